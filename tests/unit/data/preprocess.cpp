// Records of files, their handlers, and indexed datasets of both: independent of the number of workers and of interruptions.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/plain_json.hpp>
#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/indexed_instructions.hpp>
#include <xtrain/data/ordered_workers.hpp>
#include <xtrain/data/preprocess.hpp>
#include <xtrain/data/record_handler.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

constexpr token end_of_text = 256;

struct read_record {
  json fields;
  std::size_t number;
  bool begins, ends;
};

std::vector<read_record> records_of(const std::string& path, const record_options& options = {}) {
  std::vector<read_record> all;
  const auto formats = record_formats();
  const record_format* format = find_format(formats, path);
  REQUIRE(format != nullptr);
  format->read(path, options, [&](source_record&& one) {
    const auto number = one.place.number;
    const bool begins = one.begins, ends = one.ends;
    all.push_back({std::move(one).parsed(), number, begins, ends});
  });
  return all;
}

template <class Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const error& problem) {
    return problem.what();
  }
  return "";
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string csv_problem(const std::string& text) {
  const scratch_folder f;
  put_file(f / "a.csv", text);
  return message_of([&] { records_of(f / "a.csv"); });
}

/// Each sample's text and its target part; "$" is the end-of-text token.
std::vector<std::pair<std::string, std::string>> samples_of(const record_handler& handler, const json& record) {
  const std::string path = "records";
  source_record one{.text = {}, .fields = record, .place = {&path, 3, false}};
  std::vector<detail::text_with_loss_mask> samples;
  handler.tokenize(one, samples);
  std::vector<std::pair<std::string, std::string>> all(samples.size());
  for (std::size_t s = 0; s < samples.size(); ++s)
    for (std::size_t i = 0; i < samples[s].tokens.size(); ++i) {
      const char c = samples[s].tokens[i] == end_of_text ? '$' : static_cast<char>(samples[s].tokens[i]);
      all[s].first.push_back(c);
      if (samples[s].learned[i]) all[s].second.push_back(c);
    }
  return all;
}
/// The only sample.
std::pair<std::string, std::string> handled(const record_handler& handler, const json& record) {
  const auto all = samples_of(handler, record);
  REQUIRE(all.size() == 1);
  return all[0];
}
std::pair<std::string, std::string> handled(const std::string& name, const json& record,
                                            const handler_options& options = {.append_eod = true}) {
  return handled(*make_record_handler(name, byte_tokenizer(), options), record);
}

const std::string before =
    "\nBelow is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request. "
    "Please note that you need to think through your response logically and step by step.\n";

std::map<std::string, std::string> outputs_in(const scratch_folder& f, const std::string& prefix) {
  std::map<std::string, std::string> all;
  for (const std::string& name : f.files())
    if (name.starts_with(prefix)) all[name.substr(prefix.size())] = get_file(f / name);
  return all;
}

struct interruption : std::runtime_error {
  interruption() : std::runtime_error("stopped") {}
};

/// Hundreds of records of several lengths in three files, some empty.
std::vector<std::string> some_files(const scratch_folder& f) {
  std::string lines;
  for (int i = 0; i < 90; ++i)
    lines += json{{"text", i % 17 == 3 ? "" : std::string(static_cast<std::size_t>(i * 7 % 61) + 1, static_cast<char>('a' + i % 26))},
                  {"title", std::to_string(i)}}
                 .dump() +
             "\n";
  put_file(f / "a.jsonl", lines);
  put_file(f / "b.csv", "text,title\r\n\"one, \"\"two\"\"\nthree\",x\r\nlast,y");
  put_file(f / "c.json", R"([{"text": "in a list", "title": "1"}, {"text": "another", "title": "2"}])");
  return {f / "a.jsonl", f / "b.csv", f / "c.json"};
}

}  // namespace

TEST_CASE("records of CSV have quotes, line breaks and separators, and know their lines") {
  const scratch_folder f;
  put_file(f / "a.csv", "\xEF\xBB\xBFname,text\r\nx,\"a \"\"b\"\", c\r\nd\"\r\n\r\n,\r\ny,\"\"\nlast,no break");
  const auto all = records_of(f / "a.csv");
  REQUIRE(all.size() == 4);
  CHECK(all[0].fields == json{{"name", "x"}, {"text", "a \"b\", c\r\nd"}});
  CHECK(all[0].number == 2);
  CHECK(all[1].fields == json{{"name", ""}, {"text", ""}});
  CHECK(all[1].number == 5);
  CHECK(all[2].fields == json{{"name", "y"}, {"text", ""}});
  CHECK(all[3].fields == json{{"name", "last"}, {"text", "no break"}});
  CHECK(all[3].number == 7);
  put_file(f / "a.tsv", "a\tb\n1,2\t3\n");
  CHECK(records_of(f / "a.tsv")[0].fields == json{{"a", "1,2"}, {"b", "3"}});
}

TEST_CASE("damaged CSV is refused with its line") {
  CHECK(holds(csv_problem("a,b\n1,2\n3\n"), "line 3: a record must have the 2 fields that line 1 names; it has 1"));
  CHECK(holds(csv_problem("a,b\n1,2,3\n"), "line 2: a record must have the 2 fields"));
  CHECK(holds(csv_problem("a\n\"1\n2\n"), "line 2: a field begins with a quote that does not end"));
  CHECK(holds(csv_problem("a\n\"1\n2\"x\n"), "line 3: after the quote"));
  CHECK(holds(csv_problem("a\nx\"1\"\n"), "line 2: a field with a quote must be in quotes"));
  CHECK(holds(csv_problem("a,a\n1,2\n"), "line 1: fields must have different names"));
}

TEST_CASE("records of text are lines, or whole files in pieces; of JSON what for_each_record finds") {
  const scratch_folder f;
  put_file(f / "a.txt", "one\r\n\ntwo\nthree");
  const auto lines = records_of(f / "a.txt");
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].fields == json{{"text", "two"}});
  CHECK(lines[1].number == 3);
  CHECK(lines[2].fields == json{{"text", "three"}});
  std::string large;
  for (int i = 0; large.size() < (std::size_t{5} << 19); ++i) large += "line " + std::to_string(i) + "\n";
  put_file(f / "large.txt", large);
  const auto pieces = records_of(f / "large.txt", {.whole_files = true});
  REQUIRE(pieces.size() == 3);
  std::string joined;
  for (std::size_t i = 0; i < 3; ++i) {
    joined += pieces[i].fields["text"].get<std::string>();
    CHECK(pieces[i].begins == (i == 0));
    CHECK(pieces[i].ends == (i == 2));
  }
  CHECK(joined == large);
  put_file(f / "a.jsonl", "{\"text\": \"x\"}\n\n[1]\n");
  CHECK(holds(message_of([&] { records_of(f / "a.jsonl"); }), "line 3: a record must be an object; it is array"));
  put_file(f / "a.jsonl", "\n[1]\n\n[2, 3]\n");
  CHECK(holds(message_of([&] { records_of(f / "a.jsonl"); }), "line 2: a record must be an object; it is array"));
  put_file(f / "a.jsonl", "[{\"text\": \"x\"},\n{\"text\": \"y\"}]\n");
  CHECK(records_of(f / "a.jsonl").size() == 2);
  put_file(f / "a.jsonl", "{\"text\": \"x\"}\n{\"text\": \n");
  CHECK(holds(message_of([&] { records_of(f / "a.jsonl"); }), "a.jsonl: must be JSON; line 2"));
}

TEST_CASE("a record of JSON is parsed to what nlohmann's parser makes of it, or left to it") {
  const auto mine = [](const std::string& text) {
    json value;
    return detail::plain_json_parser(text).parse(value) ? std::optional<json>(std::move(value)) : std::nullopt;
  };
  const auto theirs = [](const std::string& text) {
    try {
      return std::optional<json>(parse_json<data_error>(text, "text"));
    } catch (const data_error&) {
      return std::optional<json>();
    }
  };
  const std::string deep(128, '['), deeper(129, '[');
  const std::vector<std::string> good{
      R"({"text": "plain", "a": [], "b": {}, "c": [1, -2, 0, -0, 1.5, -1e-3, 18446744073709551615, 123456789012345678, -9223372036854775808], "d": null, "e": true})",
      R"([ "\"\\\/\b\f\n\r\t", "\u0041\u00e9\u20ac\ud83d\ude42\uFFFF\u0000" , false ] )",
      "\"12345678901234567890\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\x7F\"",
      " \t\r\n3",
      "\"\"",
      deep + std::string(128, ']'),
      R"({"a": {"a": {"a": 1}, "b": "a"}})"};
  for (const std::string& text : good) {
    CAPTURE(text);
    REQUIRE(theirs(text));
    REQUIRE(mine(text));
    CHECK(*mine(text) == *theirs(text));
    CHECK(mine(text)->dump() == theirs(text)->dump());  // types of numbers
  }
  const std::vector<std::string> bad{"",
                                     " ",
                                     "{",
                                     "[1",
                                     "\"a",
                                     "{\"a\"}",
                                     "{\"a\":}",
                                     "{\"a\": 1,}",
                                     "[1,]",
                                     "[,]",
                                     "{,}",
                                     "01",
                                     "+1",
                                     "1.",
                                     ".5",
                                     "1e",
                                     "--1",
                                     "-",
                                     "tru",
                                     "True",
                                     "nul",
                                     "1 2",
                                     "{} x",
                                     "\"\n\"",
                                     "\"\x1f\"",
                                     R"("\x")",
                                     R"("\u12")",
                                     R"("\u12g4")",
                                     R"("\ud800")",
                                     R"("\ud800\u0041")",
                                     R"("\udc00")",
                                     "\"\x80\"",
                                     "\"\xC0\xAF\"",
                                     "\"\xE0\x80\x80\"",
                                     "\"\xED\xA0\x80\"",
                                     "\"\xF4\x90\x80\x80\"",
                                     "\"\xF8\"",
                                     "\"\xE2\x82\"",
                                     "\"\xC3",
                                     R"({"a": 1, "a": 2})",
                                     R"({"a": 1, "\u0061": 2})",
                                     "1e999",
                                     deeper + std::string(129, ']'),
                                     std::string("\"\0\"", 3)};
  for (const std::string& text : bad) {
    CAPTURE(text);
    CHECK_FALSE(theirs(text));
    CHECK_FALSE(mine(text));
  }
  // random changes: never another value, never a value instead of an error
  std::uint32_t state = 1;
  const auto random = [&](std::size_t below) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::size_t>(state >> 8U) % below;
  };
  const std::string letters = "{}[]\":,\\ue0123456789-+. \n\x80\xC3\xA9\xED\xA0tfn";
  std::size_t parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good[random(good.size())];
    for (std::size_t changes = random(3); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random(text.size());
      const char letter = letters[random(letters.size())];
      if (random(2) == 0) text[at] = letter;
      else if (random(2) == 0) text.insert(at, 1, letter);
      else text.erase(at, 1 + random(4));
    }
    const auto one = mine(text), other = theirs(text);
    const bool same = one.has_value() == other.has_value() && (!one || one->dump() == other->dump());
    if (!same) CAPTURE(text);
    REQUIRE(same);
    parsed += one ? 1 : 0;
  }
  CHECK(parsed > 5000);
}

TEST_CASE("files are given, below folders, or match a pattern") {
  const scratch_folder f;
  std::filesystem::create_directories(f / "d/e");
  for (const char* name : {"d/b.jsonl", "d/a.txt", "d/e/c.csv", "d/README.md", "x1.json", "x2.json"}) put_file(f / name, "");
  const auto formats = record_formats();
  std::size_t left_out = 0;
  CHECK(record_files({f / "x*.json", f / "d"}, formats, &left_out) ==
        std::vector<std::string>{f / "x1.json", f / "x2.json", f / "d/a.txt", f / "d/b.jsonl", f / "d/e/c.csv"});
  CHECK(left_out == 1);
  std::vector<std::string> repeated;
  std::filesystem::create_symlink(f / "x1.json", f / "x3.json");
  CHECK(record_files({f / "x2.json", f / "x*.json", f / "d", f / "d/../d/a.txt"}, formats, nullptr, &repeated) ==
        std::vector<std::string>{f / "x2.json", f / "x1.json", f / "d/a.txt", f / "d/b.jsonl", f / "d/e/c.csv"});
  CHECK(repeated == std::vector<std::string>{f / "x2.json", f / "x3.json", f / "d/../d/a.txt"});
  CHECK(holds(message_of([&] { (void)record_files({f / "y*.json"}, formats); }), "y*.json: must be a pattern that some files match"));
  CHECK(holds(message_of([&] { (void)record_files({f / "y.json"}, formats); }), "y.json: must be a file, a folder or a pattern"));
}

TEST_CASE("texts are documents; Stack Overflow's questions are texts") {
  CHECK(handled("GeneralPretrainHandler", {{"text", "abc"}}) == std::pair<std::string, std::string>("abc$", "abc$"));
  CHECK(handled("GeneralPretrain", {{"text", "abc"}}, {}).first == "abc");
  CHECK(handled("GeneralPretrain", {{"text", "abc"}}, {.append_eod = true, .beginning = text_beginning::always}).first == "$abc$");
  CHECK(handled("GeneralPretrain", {{"text", ""}}).first.empty());
  CHECK(handled("GeneralPretrain", {{"content", "z"}}, {.keys = {"content"}}).first == "z");
  const std::string chat =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's "
      "questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\n";
  CHECK(handled("AlpacaPretrainHandler", {{"instruction", "I"}, {"input", "1 2"}, {"output", "O"}, {"text", "T"}}).first ==
        chat + "I\n\n### Input:\n1 2\n\n### Response: ASSISTANT: O$");
  CHECK(handled("AlpacaPretrain", {{"instruction", "I"}, {"input", ""}, {"output", "O"}}, {}).first == chat + "I\n\n###None\n\n### Response: ASSISTANT: O");
  CHECK(handled("StackOverflowPythonPretrainHandler", {{"title", "T"}, {"question_body", "Q"}, {"answer_body", "A"}}).first ==
        "In python, T\n### Question:\nQ\n### Response:\nA\n$");
  CHECK(holds(message_of([] {
                handled("GeneralPretrain", {{"content", "z"}});
              }),
              "records: line 3: a record must have 'text'; it is missing"));
}

TEST_CASE("of instructions the last answer is the target, whatever it contains") {
  const auto sample = handled("GeneralInstructionHandler", {{"instruction", "Add."}, {"input", "1 2"}, {"output", "### Response:\n3"}});
  CHECK(sample.first == before + "### Instruction:\nAdd.\n1 2\n### Response:\n### Response:\n3\n$");
  CHECK(sample.second == "### Response:\n3\n$");
  CHECK(handled("GeneralInstruction", {{"instruction", "Add."}, {"output", "3"}}, {}).first ==
        before + "### Instruction:\nAdd.\n\n### Response:\n3\n");
  const handler_options mapped{.map_keys = {{"prompt", "query"}, {"query", "none"}, {"response", "response"}}};
  CHECK(handled("GeneralInstruction", {{"query", "q"}, {"response", "r"}}, mapped).first ==
        before + "### Instruction:\nq\n\n### Response:\nr\n");
}

TEST_CASE("turns of BELLE, MOSS and LeetCode") {
  const auto belle =
      handled("BelleMultiTurnInstructionHandler",
              {{"instruction", "Human: hi \nAssistant: hello\nHuman:\nmore?\nAssistant:\n"}, {"input", ""}, {"output", " yes\n"}});
  CHECK(belle.first == before + "### Instruction:\nhi\n### Response:\nhello\n### Instruction:\nmore?\n### Response:\nyes\n$");
  CHECK(belle.second == "yes\n$");
  const auto refused = [](const std::string& instruction) {
    return message_of([&] { handled("BelleMultiTurnInstruction", {{"instruction", instruction}, {"output", "x"}}); });
  };
  CHECK(holds(refused("hi"), "line 3: an instruction of turns must begin with 'Human:'"));
  CHECK(holds(refused("Human: hi"), "line 3: every turn of 'Human:' must have an 'Assistant:'"));
  CHECK(holds(refused("Human: hi\nAssistant: said"), "line 3: an instruction of turns must end with 'Assistant:'"));

  const json turn{{"Human", "<|Human|>: a<eoh>\n"}, {"Inner Thoughts", "<|Inner Thoughts|>: t<eot>\n"}, {"MOSS", "<|MOSS|>: b<eom>\n"}};
  const json second{{"Human", "<|Human|>: c<eoh>\n"}, {"MOSS", "<|MOSS|>: d<eom>\n"}};
  const auto moss = samples_of(*make_record_handler("MOSSInstructionHandler", byte_tokenizer(), {.append_eod = true}),
                               {{"chat", {{"turn_1", turn}, {"turn_2", second}, {"turn_3", json::object()}}}});
  REQUIRE(moss.size() == 2);
  CHECK(moss[0].first == before + "### Instruction:\na\n### Response:\nb\n$");
  CHECK(moss[0].second == "b\n$");
  CHECK(moss[1].first == before + "### Instruction:\na\n### Response:\nb\n### Instruction:\nc\n### Response:\nd\n$");
  CHECK(moss[1].second == "d\n$");

  const auto code = handled("LeetcodePythonInstructionHandler",
                            {{"code_with_problem", "# Sum\n Add two.\n\n```python\nx\n```"}, {"code_only", "return a + b"}, {"explanation_only", "It adds."}});
  CHECK(code.first == before + "### Instruction:\n# Sum\n Add two.\n### Response:\nreturn a + b\nIt adds.\n$");
  CHECK(code.second == "return a + b\nIt adds.\n$");
}

TEST_CASE("conversations are formatted by a chat template, with every answer a target") {
  handler_options options;
  options.chat = chat_template::from_text(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}");
  const auto talk = handled("ConversationHandler",
                            {{"conversations",
                              {{{"from", "human"}, {"value", "a"}},
                               {{"from", "gpt"}, {"value", "b"}},
                               {{"from", "human"}, {"value", "c"}},
                               {{"from", "gpt"}, {"value", "d"}}}}},
                            options);
  CHECK(talk.first == "user: a\nassistant: b\nuser: c\nassistant: d\n$");
  CHECK(talk.second == "b\nd\n$");

  const auto problem = [&](const json& record, bool in_rows) {
    const std::string path = "chats";
    const auto handler = make_record_handler("Conversation", byte_tokenizer(), options);
    source_record one{.text = {}, .fields = record, .place = {&path, 3, in_rows}};
    std::vector<detail::text_with_loss_mask> samples;
    return message_of([&] { handler->tokenize(one, samples); });
  };
  const json bad{{"conversations", {{{"from", "human"}, {"value", "a\xff"}}, {{"from", "gpt"}, {"value", "b"}}}}};
  CHECK(holds(problem(bad, false), "chats: line 3: its fields must be JSON; "));
  CHECK(holds(problem(bad, true), "chats: row 3: its fields must be JSON; "));
  CHECK(holds(problem({{"conversations", {{{"from", "nobody"}, {"value", "a"}}}}}, false), "chats: line 3: "));
  CHECK(holds(problem({{"conversations", {{{"from", "nobody"}, {"value", "a"}}}}}, true), "chats: row 3: "));
  CHECK(holds(problem({{"conversations", 3}}, true), "chats: row 3: "));
}

TEST_CASE("a conversation's fields that its template does not read are told once per file; prompts with completions are conversations") {
  const scratch_folder f;
  const auto talk = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a")" + more + "}]}\n";
  };
  put_file(f / "a.jsonl", talk("") + talk(R"(, "name": "n")") + talk(R"(, "name": "m")") + R"({"prompt": "p", "completion": "c"})" "\n");
  put_file(f / "b.jsonl", talk(R"(, "name": "n")") +
                              R"({"prompt": [{"role": "user", "content": "u"}], "completion": [{"role": "assistant", "content": "c"}]})");
  std::vector<std::string> told;
  handler_options options;
  options.chat = chat_template::from_text(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  options.warn = [&](const std::string& text) { told.push_back(text.substr(text.rfind('/') + 1)); };
  const auto handler = make_record_handler("Conversation", byte_tokenizer(), options);
  const auto counts = preprocess_data({f / "a.jsonl", f / "b.jsonl"}, byte_tokenizer(), *handler, {.output_prefix = f / "out"});
  CHECK(counts.documents == 6);
  CHECK(counts.targets == 6 * 2);  // "a.", or "c" and the end-of-text token, or "c."
  CHECK(told == std::vector<std::string>{"a.jsonl: line 2: the chat template does not read 'name', which a message of role 'assistant' has: it is left out",
                                         "b.jsonl: line 1: the chat template does not read 'name', which a message of role 'assistant' has: it is left out"});
}

TEST_CASE("a record's fields reach a chat template in the order of the file") {
  const std::string path = "chats";
  source_record one{.text = {}, .fields = {{"b", 1}, {"tools", json::object()}, {"x", "y"}}, .place = {&path, 3, true}};
  CHECK(one.json_text() == R"({"b":1,"tools":{},"x":"y"})");
  one.in_order["tools"] = R"({"z": 1, "a": 2})";
  CHECK(one.json_text() == R"({"b": 1, "tools": {"z": 1, "a": 2}, "x": "y"})");
  CHECK(source_record{.text = R"({"b": 1, "a": 2})", .place = {&path, 3, false}}.json_text() == R"({"b": 1, "a": 2})");
}

TEST_CASE("handlers that are not there, and options that a handler does not have, are refused") {
  const auto refusal = [](const std::string& name, const handler_options& options = {}) {
    return message_of([&] { (void)make_record_handler(name, byte_tokenizer(), options); });
  };
  CHECK(holds(refusal("AlpacaPretrain", {.keys = {"a"}}), "must be GeneralPretrainHandler to have json keys"));
  CHECK(holds(refusal("GeneralInstructonHandler"), "did you mean 'GeneralInstructionHandler'?"));
  CHECK(holds(refusal("GeneralInstruction", {.keys = {"a"}}), "must be GeneralPretrainHandler to have json keys"));
  CHECK(holds(refusal("GeneralPretrain", {.keys = {"a", "a"}}), "one is given twice"));
  CHECK(holds(refusal("GeneralInstruction", {.map_keys = {{"answer", "x"}}}), "must map prompt, query and response; given 'answer'"));
  CHECK(holds(refusal("ConversationHandler"), "must have a chat template; given none"));
}

TEST_CASE("batches are taken in order, and the first failure in order is thrown") {
  for (const std::size_t threads : {std::size_t{1}, std::size_t{3}}) {
    std::vector<int> taken;
    detail::ordered_workers<std::pair<int, int>> workers(
        threads,
        [](std::pair<int, int>& b) {
          if (b.first >= 40) throw std::runtime_error(std::to_string(b.first));
          b.second = b.first * b.first;
        },
        [&](std::pair<int, int>& b) { taken.push_back(b.second); });
    std::string said;
    try {
      for (int i = 0; i < 45; ++i) workers.give({i, 0});
      workers.finish();
    } catch (const std::runtime_error& problem) {
      said = problem.what();
    }
    CHECK(said == "40");
    REQUIRE(taken.size() == 40);
    CHECK(taken[39] == 39 * 39);
  }
}

TEST_CASE("what is written does not depend on workers or batches, and is what an indexed_writer writes") {
  const scratch_folder f;
  const auto files = some_files(f);
  const auto handler = make_record_handler("GeneralPretrain", byte_tokenizer(), {.keys = {"text", "title"}, .append_eod = true});
  const auto counts = preprocess_data(files, byte_tokenizer(), *handler, {.output_prefix = f / "one"});
  CHECK(counts.records == 94);
  CHECK(counts.empty == 6);
  CHECK(counts.documents == 2 * 94);
  const auto expected = outputs_in(f, "one_");
  REQUIRE(expected.size() == 4);
  {
    indexed_writer writer(f / "by_hand", indexed_dtype::u16);
    for (const std::string& path : files)
      for (const read_record& record : records_of(path)) {
        std::vector<token> tokens = byte_tokenizer().encode(record.fields["title"].get<std::string>());
        tokens.push_back(end_of_text);
        writer.add_document(tokens);
      }
    writer.finish();
  }
  CHECK(expected.at("title_document.bin") == get_file(f / "by_hand.bin"));
  CHECK(expected.at("title_document.idx") == get_file(f / "by_hand.idx"));
  for (const auto& [workers, bytes] : {std::pair<std::size_t, std::size_t>{1, 1}, {2, 100}, {5, 300}, {0, 1 << 20}}) {
    CHECK(preprocess_data(files, byte_tokenizer(), *handler,
                          {.output_prefix = f / "two", .workers = workers, .batch_bytes = bytes, .sync_seconds = 0}) == counts);
    CHECK(outputs_in(f, "two_") == expected);
  }
}

TEST_CASE("a text without tokens is a document without a sequence, so that the datasets of several keys have the same documents") {
  const scratch_folder f;
  put_file(f / "a.jsonl", R"({"q": "a", "a": "1"})" "\n" R"({"q": "", "a": "2"})" "\n" R"({"q": "bc", "a": ""})" "\n" R"({"q": "d", "a": "4"})");
  const auto handler = make_record_handler("GeneralPretrain", byte_tokenizer(), {.keys = {"q", "a"}, .append_eod = true});
  const auto counts = preprocess_data({f / "a.jsonl"}, byte_tokenizer(), *handler, {.output_prefix = f / "out"});
  CHECK(counts.documents == 8);
  CHECK(counts.empty == 2);
  // Megatron-LM's preprocess_data.py calls add_document with no tokens and lengths for an empty text: the document index repeats a boundary
  const auto boundaries = [&](const char* key) {
    const indexed_file data(f / (std::string("out_") + key + "_document"));
    std::vector<std::size_t> all;
    for (std::size_t d = 0; d <= data.documents(); ++d) all.push_back(data.document_begin(d));
    return all;
  };
  CHECK(boundaries("q") == std::vector<std::size_t>{0, 1, 1, 2, 3});
  CHECK(boundaries("a") == std::vector<std::size_t>{0, 1, 2, 2, 3});
  put_file(f / "b.jsonl", R"({"q": "", "a": ""})");
  CHECK(holds(message_of([&] { (void)preprocess_data({f / "b.jsonl"}, byte_tokenizer(), *handler, {.output_prefix = f / "none"}); }),
              "of 1 records nothing is left (2 without text"));
}

TEST_CASE("a whole file is one document, however many pieces it has") {
  const scratch_folder f;
  put_file(f / "a.txt", std::string(std::size_t{3} << 20, 'x') + "\nend");
  const auto handler = make_record_handler("GeneralPretrain", byte_tokenizer(), {.append_eod = true, .beginning = text_beginning::always});
  (void)preprocess_data({f / "a.txt"}, byte_tokenizer(), *handler,
                        {.output_prefix = f / "out", .records = {.whole_files = true}, .workers = 2, .sync_seconds = 0});
  const indexed_file data(f / "out_text_document");
  CHECK(data.documents() == 1);
  CHECK(data.tokens() == (std::size_t{3} << 20) + 4 + 2);
}

TEST_CASE("a run that is stopped anywhere goes on, and ends with the same bytes") {
  const scratch_folder f;
  const auto files = some_files(f);
  for (const bool instructions : {false, true}) {
    handler_options how{.append_eod = true};
    if (!instructions) how.keys = {"text", "title"};
    else how.map_keys = {{"prompt", "title"}, {"query", "none"}, {"response", "text"}};
    const auto handler = make_record_handler(instructions ? "GeneralInstruction" : "GeneralPretrain", byte_tokenizer(), how);
    preprocess_options options{.output_prefix = f / "whole", .seq_length = instructions ? std::size_t{330} : 0};
    const auto counts = preprocess_data(files, byte_tokenizer(), *handler, options);
    if (instructions) CHECK(counts.too_long > 0);
    const auto expected = outputs_in(f, "whole_");
    for (std::uint64_t step : {1U, 7U, 30U}) {
      options = {.output_prefix = f / "cut", .seq_length = options.seq_length, .workers = 2, .batch_bytes = 150, .sync_seconds = 0};
      std::uint64_t stop = 0;
      options.on_batch = [&](const preprocess_progress& now) {
        if (now.records >= stop) throw interruption();
      };
      std::size_t stops = 0;
      preprocess_progress end;
      for (bool ended = false; !ended;) {
        stop += step;
        options.sync_seconds = stops % 3 == 1 ? 1000 : 0;  // sometimes the last write is lost
        if (stops % 3 == 1) stop += 5;
        try {
          end = preprocess_data(files, byte_tokenizer(), *handler, options);
          ended = true;
        } catch (const interruption&) {
          ++stops;
          CHECK(holds(message_of([&] { (void)indexed_file(f / (instructions ? "cut_packed_labels_document" : "cut_text_document")); }),
                      "cut_"));
        }
        if (stops > 400) break;
      }
      CHECK(stops > 0);
      end.resumed = 0;
      CHECK(end == counts);
      CHECK(outputs_in(f, "cut_") == expected);
      for (const std::string& name : f.files())
        if (name.starts_with("cut_")) std::filesystem::remove(f / name);
    }
    for (const std::string& name : f.files())
      if (name.starts_with("whole_")) std::filesystem::remove(f / name);
  }
}

TEST_CASE("a run that was stopped while files took their names ends with the same bytes") {
  const scratch_folder f;
  const auto files = some_files(f);
  const auto handler = make_record_handler("GeneralPretrain", byte_tokenizer(), {.keys = {"text", "title"}});
  preprocess_options options{.output_prefix = f / "whole"};
  (void)preprocess_data(files, byte_tokenizer(), *handler, options);
  const auto expected = outputs_in(f, "whole_");
  for (int state = 0; state < 4; ++state) {
    CAPTURE(state);
    options = {.output_prefix = f / "cut", .sync_seconds = 0};
    options.on_batch = [](const preprocess_progress&) { throw interruption(); };  // all records are one batch
    CHECK_THROWS_AS((void)preprocess_data(files, byte_tokenizer(), *handler, options), interruption);
    const std::string path = f / "cut_preprocess.json", one = f / "cut_text_document";
    json said = read_json(path);
    said["complete"] = true;
    put_file(path, said.dump());
    const json at = said["positions"][0];
    const std::string log = get_file(one + ".idx.part");
    if (state == 1) std::filesystem::rename(one + ".bin.part", one + ".bin");
    if (state >= 2) indexed_writer(one, indexed_dtype::u16, {at[0], at[1], at[2]}).finish();
    if (state == 3) put_file(one + ".idx.part", log);
    options.on_batch = {};
    (void)preprocess_data(files, byte_tokenizer(), *handler, options);
    CHECK(outputs_in(f, "cut_") == expected);
    for (const std::string& name : f.files())
      if (name.starts_with("cut_")) std::filesystem::remove(f / name);
  }
}

TEST_CASE("an interrupted run goes on only with the same files and settings, and bad records are named") {
  const scratch_folder f;
  const auto files = some_files(f);
  const auto handler = make_record_handler("GeneralPretrain", byte_tokenizer());
  preprocess_options options{.output_prefix = f / "out", .batch_bytes = 100, .sync_seconds = 0, .identity = "tokenizer a"};
  options.on_batch = [](const preprocess_progress& now) {
    if (now.records > 20) throw interruption();
  };
  CHECK_THROWS_AS((void)preprocess_data(files, byte_tokenizer(), *handler, options), interruption);
  const auto refusal = [&](const std::vector<std::string>& of, const preprocess_options& with) {
    return message_of([&] { (void)preprocess_data(of, byte_tokenizer(), *handler, with); });
  };
  preprocess_options other = options;
  other.identity = "tokenizer b";
  CHECK(holds(refusal(files, other),
              "to go on, 'identity' must be as in the interrupted run, \"tokenizer a\"; given \"tokenizer b\". Remove it to begin again"));
  CHECK(holds(refusal({files[0]}, options), "the files must be the 3 of the interrupted run; given 1"));
  other = options;
  other.formats = {{"lines", {".jsonl", ".csv", ".json"}, record_formats()[2].read}};
  CHECK(holds(refusal(files, other), "file 1 must be unchanged (path, size, time, format)"));
  put_file(files[1], "text\nchanged");
  CHECK(holds(refusal(files, options), "file 2 must be unchanged"));
  std::filesystem::remove(f / "out_text_document.bin.part");
  CHECK(holds(refusal(some_files(f), options), "unchanged"));

  put_file(f / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n");
  CHECK(holds(refusal({f / "bad.jsonl"}, {.output_prefix = f / "bad"}), "bad.jsonl: line 2: 'text' must be a string; it is number"));
  CHECK(!std::filesystem::exists(f / "bad_text_document.idx"));
  put_file(f / "empty.jsonl", "");
  CHECK(
      holds(refusal({f / "empty.jsonl"}, {.output_prefix = f / "empty"}), "must hold something to train on; of 0 records nothing is left"));
  CHECK(holds(refusal({f / "x.gz"}, {.output_prefix = f / "gz"}), "compressed files must be decompressed first"));
}

TEST_CASE("parts of an interrupted run that were damaged are refused, and the refusal says what to remove") {
  const scratch_folder f;
  const auto files = some_files(f);
  for (const bool instructions : {false, true}) {
    handler_options how;
    if (instructions) how.map_keys = {{"prompt", "title"}, {"query", "none"}, {"response", "text"}};
    const auto handler = make_record_handler(instructions ? "GeneralInstruction" : "GeneralPretrain", byte_tokenizer(), how);
    preprocess_options options{.output_prefix = f / "out", .batch_bytes = 100, .sync_seconds = 0};
    options.on_batch = [](const preprocess_progress& now) {
      if (now.records > 20) throw interruption();
    };
    CHECK_THROWS_AS((void)preprocess_data(files, byte_tokenizer(), *handler, options), interruption);
    options.on_batch = {};
    const auto refused_with = [&](const std::string& path, const std::string& contents, const std::string& words) {
      const std::string undamaged = get_file(path);
      put_file(path, contents);
      const std::string message = message_of([&] { (void)preprocess_data(files, byte_tokenizer(), *handler, options); });
      CAPTURE(message);
      CHECK(holds(message, words));
      CHECK(message.ends_with(". Remove " + (f / "out_preprocess.json") + " to begin again"));
      put_file(path, undamaged);
    };
    for (const char* key : {"input_ids", "labels", "attention_mask"}) {
      const std::string one = f / (instructions ? concat("out_packed_", key, "_document") : std::string("out_text_document"));
      std::string flipped = get_file(one + ".bin.part");
      flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
      refused_with(one + ".bin.part", flipped, "must hold what an interrupted run wrote; their checksum is another, they are damaged");
      const std::string log = get_file(one + ".idx.part");
      refused_with(one + ".idx.part", log.substr(0, log.size() / 2), ".idx.part: must hold the ");
    }
    CHECK(preprocess_data(files, byte_tokenizer(), *handler, options).resumed > 0);
  }
}

TEST_CASE("an interrupted run is the same only with the same handler and tokenizer, whatever its identity") {
  const scratch_folder f;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines +=
        json{{"instruction", "a"}, {"input", "b"}, {"output", "c"}, {"text", "d"}, {"title", "e"}, {"question_body", "f"}, {"answer_body", "g"}}.dump() + "\n";
  put_file(f / "a.jsonl", lines);
  const auto interrupt = [&](const std::string& name, const handler_options& with) {
    preprocess_options options{.output_prefix = f / "out", .batch_bytes = 100, .sync_seconds = 0};
    options.on_batch = [](const preprocess_progress& now) {
      if (now.records > 20) throw interruption();
    };
    std::filesystem::remove(f / "out_preprocess.json");
    CHECK_THROWS_AS((void)preprocess_data({f / "a.jsonl"}, byte_tokenizer(), *make_record_handler(name, byte_tokenizer(), with), options), interruption);
  };
  const auto refusal = [&](const std::string& name, const handler_options& with, const tokenizer& tokens = byte_tokenizer()) {
    preprocess_options options{.output_prefix = f / "out"};
    return message_of([&] { (void)preprocess_data({f / "a.jsonl"}, tokens, *make_record_handler(name, tokens, with), options); });
  };
  interrupt("GeneralPretrain", {});
  CHECK(holds(refusal("GeneralPretrain", {.append_eod = true}), "to go on, 'handler' must be as in the interrupted run"));
  CHECK(holds(refusal("GeneralPretrain", {.beginning = text_beginning::always}), "to go on, 'handler' must be"));
  CHECK(holds(refusal("AlpacaPretrain", {}), "\"name\":\"GeneralPretrain\""));
  CHECK(holds(refusal("StackOverflowPythonPretrain", {}), "to go on, 'handler' must be"));
  special_tokens other = byte_tokenizer().special();
  other.eos = 3;
  class spaced final : public tokenizer_model {  // the same vocabulary
    void encode(std::string_view text, std::vector<placed_token>& tokens) const override {
      for (std::size_t i = 0; i < text.size(); ++i) tokens.push_back({static_cast<token>(static_cast<unsigned char>(text[i]) ^ 1U), i, i + 1});
    }
    [[nodiscard]] std::string decode(std::span<const token>) const override { return {}; }
    [[nodiscard]] std::size_t vocab_size() const override { return byte_tokenizer().vocab_size(); }
    void save(const std::string&) const override {}
  };
  CHECK(holds(refusal("GeneralPretrain", {}, tokenizer(std::make_shared<const spaced>(), byte_tokenizer().special())), "to go on, 'tokenizer' must be"));
  CHECK(holds(refusal("GeneralPretrain", {}, tokenizer(std::make_shared<const spaced>(), other)), "to go on, 'tokenizer' must be"));

  interrupt("GeneralInstruction", {});
  CHECK(holds(refusal("GeneralInstruction", {.map_keys = {{"query", "title"}}}), "to go on, 'handler' must be"));

  handler_options chat;
  chat.chat = chat_template::from_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  interrupt("Conversation", chat);
  chat.chat = chat_template::from_text("{% for m in messages %}{{ m.role }}> {{ m.content }}\n{% endfor %}");
  CHECK(holds(refusal("Conversation", chat), "\"chat_template\":"));
}

TEST_CASE("instructions come back with their loss masks") {
  const scratch_folder f;
  put_file(f / "a.jsonl", R"({"instruction": "Add.", "input": "1 2", "output": "3"})");
  const auto handler = make_record_handler("GeneralInstruction", byte_tokenizer(), {.append_eod = true});
  const auto counts = preprocess_data({f / "a.jsonl"}, byte_tokenizer(), *handler, {.output_prefix = f / "out"});
  CHECK(counts.targets == 3);
  const dataset data = indexed_instruction_dataset(f / "out");
  REQUIRE(data.size() == 1);
  CHECK(data.length(0) == counts.tokens);
  for (std::size_t i = 0; i < data.length(0); ++i) CHECK(data.is_target(i) == (i + 3 >= data.length(0)));
}

TEST_CASE("the samples of a record are one document; those that are too long are left out") {
  const scratch_folder f;
  const auto turn = [](const std::string& said, const std::string& answer) { return json{{"Human", said}, {"MOSS", answer}}; };
  put_file(f / "a.jsonl", json{{"chat", {{"turn_1", turn("a", "b")}, {"turn_2", turn("c", "d")}, {"turn_3", turn("e", std::string(500, 'f'))}}}}.dump() + "\n" +
                              json{{"chat", {{"turn_1", turn("g", "h")}}}}.dump() + "\n");
  const auto handler = make_record_handler("MOSSInstruction", byte_tokenizer());
  const auto counts = preprocess_data({f / "a.jsonl"}, byte_tokenizer(), *handler, {.output_prefix = f / "out", .seq_length = 600});
  CHECK(counts.documents == 2);
  CHECK(counts.too_long == 1);
  CHECK(counts.targets == 3 * 2);
  const indexed_file ids(f / "out_packed_input_ids_document");
  CHECK(ids.documents() == 2);
  CHECK(ids.sequences() == 3);
  CHECK(ids.document_begin(1) == 2);
  CHECK(indexed_instruction_dataset(f / "out").size() == 3);
}

TEST_CASE("public instruction data is readable by some handler") {
  if (test_data("instruct").empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA names no folder with instruct/");
    return;
  }
  const scratch_folder f;
  handler_options chat;
  chat.chat = named_chat_template("chatml");
  handler_options calls;  // ChatML supports no tools
  calls.chat = chat_template::from_text("{{ tools|tojson if tools }}\n"
                                        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls|tojson if m.tool_calls }}\n{% endfor %}");
  const handler_options plain;
  for (const auto& [path, name, options, at_least] : {std::tuple{"alpaca/alpaca_data_0-3252_en.json", "GeneralInstruction", plain, 3000U},
                                                      {"alpaca/alpaca_data_0-3252_zh.json", "GeneralInstruction", plain, 3000U},
                                                      {"alpaca/zh_terms.json", "GeneralInstruction", plain, 100U},
                                                      {"aquila/convo_samples.jsonl", "Conversation", chat, 50U},
                                                      {"aquila/sft_samples.jsonl", "Conversation", chat, 2U},
                                                      {"belle/belle_readme_samples.jsonl", "Conversation", chat, 5U},
                                                      {"fastchat/dummy_conversation.json", "Conversation", chat, 500U},
                                                      {"llamafactory/alpaca_en_demo.json", "GeneralInstruction", plain, 900U},
                                                      {"llamafactory/identity.json", "GeneralInstruction", plain, 80U},
                                                      {"llamafactory/glaive_toolcall_en_demo.json", "Conversation", calls, 200U},
                                                      {"moss", "MOSSInstruction", plain, 60U},
                                                      {"torchtune/alpaca_tiny.json", "GeneralInstruction", plain, 50U},
                                                      {"xtuner/openai_sft.jsonl", "Conversation", chat, 10U}}) {
    const std::string& which = path;
    CAPTURE(which);
    const auto handler = make_record_handler(name, byte_tokenizer(), options);
    const auto formats = record_formats();
    const auto counts = preprocess_data(record_files({test_data(std::string("instruct/") + path)}, formats), byte_tokenizer(), *handler,
                                        {.output_prefix = f / "out", .workers = 2});
    CHECK(counts.documents >= at_least);
    CHECK(counts.documents == counts.records);
    CHECK(counts.targets > counts.documents);
  }
}
