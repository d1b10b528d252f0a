// Chat templates by name and from folders, locating answers, and data sets of conversations.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/data/byte_tokenizer.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/data/chat_templates.hpp>
#include <xtrain/data/jinja/from_json.hpp>
#include <xtrain/data/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

const std::vector<chat_message> two_turns{{"system", "S"}, {"user", "u"}, {"assistant", "a"}, {"user", "v"}, {"assistant", "b"}};

std::string answers_of(const chat_text& chat) {
  std::string all;
  for (const text_span& a : chat.answers) all += "[" + chat.text.substr(a.begin, a.end - a.begin) + "]";
  return all;
}
std::string text_of(const dataset& data, std::size_t sample, bool learned_only) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (!learned_only || data.is_target(i)) text += data.at(i) < 256 ? std::string(1, static_cast<char>(data.at(i))) : "|";
  return text;
}

/// A folder with this tokenizer_config.json.
struct model_folder {
  explicit model_folder(const std::string& config) { put_file(folder / "tokenizer_config.json", config); }
  scratch_folder folder;
};

dataset read(const std::string& records, const chat_template& form, const chat_options& options = {}) {
  const scratch_folder folder;
  put_file(folder / "chats.jsonl", records);
  return chat_dataset(folder / "chats.jsonl", byte_tokenizer(), form, options);
}

}  // namespace

TEST_CASE("templates by name write what their models' makers published") {
  const auto text = [](const char* name) { return named_chat_template(name).apply(two_turns); };
  CHECK(text("llama2") == "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nu [/INST] a </s><s>[INST] v [/INST] b </s>");
  CHECK(text("mistral") == "<s>[INST] S\n\nu [/INST] a</s>[INST] v [/INST] b</s>");
  CHECK(text("vicuna") == "<s>S USER: u ASSISTANT: a</s>USER: v ASSISTANT: b</s>");
  CHECK(
      text("chatml") ==
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nv<|im_end|>\n"
      "<|im_start|>assistant\nb<|im_end|>\n");
  CHECK(text("qwen") == text("chatml"));
  CHECK(text("baichuan") == "S<reserved_106>u<reserved_107>a<reserved_106>v<reserved_107>b</s>");
  CHECK(text("chatglm2") == "[gMASK]sopS\n\n[Round 1]\n\n问：u\n\n答：a\n\n[Round 2]\n\n问：v\n\n答：b</s>");
  CHECK(text("chatglm3") == "[gMASK]sop<|system|>\n S<|user|>\n u<|assistant|>\n a<|user|>\n v<|assistant|>\n b</s>");
  CHECK(text("internlm") == "<s><|System|>:S\n<|User|>:u<eoh>\n<|Bot|>:a<eoa>\n<|User|>:v<eoh>\n<|Bot|>:b<eoa>\n");
  CHECK(text("alpaca") == "S\n\n### Instruction:\nu\n\n### Response:\na</s>\n\n### Instruction:\nv\n\n### Response:\nb</s>");
  CHECK(named_chat_template("qwen").apply({{"user", "u"}}).starts_with("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"));
  CHECK_THROWS_WITH_AS((void)named_chat_template("chatmll"), doctest::Contains("Did you mean 'chatml'?"), config_error);
  CHECK_THROWS_WITH_AS((void)named_chat_template("llama2").apply({{"tool", "x"}}), doctest::Contains("given tool"), data_error);
}

TEST_CASE("an instruction without a system message is Alpaca's prompt") {
  CHECK(named_chat_template("alpaca").apply({{"user", "Say."}}) == alpaca_template().text("Say.", ""));
}

TEST_CASE("of a template by name the prompt is what stands before the first answer") {
  for (const std::string& name : chat_template_names()) {
    CAPTURE(name);
    const chat_template form = named_chat_template(name);
    const std::vector<chat_message> question(two_turns.begin(), two_turns.begin() + 2);
    const std::string prompt = form.apply(question, {.add_generation_prompt = true});
    const chat_text whole = form.apply_with_answers(two_turns);
    REQUIRE(whole.answers.size() == 2);
    CHECK(whole.text.substr(0, whole.answers[0].begin) == prompt);
  }
}

TEST_CASE("answers are marked: their words and what ends the turn") {
  CHECK(answers_of(named_chat_template("llama2").apply_with_answers(two_turns)) == "[ a </s>][ b </s>]");
  CHECK(answers_of(named_chat_template("chatml").apply_with_answers(two_turns)) == "[a<|im_end|>][b<|im_end|>]");
  CHECK(answers_of(named_chat_template("chatglm2").apply_with_answers(two_turns)) == "[a][b</s>]");
}

TEST_CASE("answers of a template without marks lie between two of its texts") {
  const auto found = [](std::string_view text) {
    chat_template form = chat_template::from_text(text);
    form.set_token("eos_token", "</s>");
    return answers_of(form.apply_with_answers(two_turns));
  };
  const std::string header = "{% for m in messages %}<{{ m.role }}>";
  const std::string prompt = "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  CHECK(found(header + "{{ m.content }}.{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}") == "[a.][b.]");
  // as in Qwen1.5: the end of a turn is only written if something follows
  CHECK(found(header + "{{ m.content }}{% if not loop.last or add_generation_prompt %}</s>{% endif %}" + prompt) == "[a</s>][b]");
  // as in Phi-3-small: eos ends the text, not the turn
  CHECK(found(header + "{{ m.content }}.{% endfor %}{{ '<assistant>' if add_generation_prompt else eos_token }}") == "[a.][b.</s>]");
  // the prompt opens a thought, the answer has none
  CHECK(found(header + "{{ m.content }}.{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}") == "[a.][b.]");
  // an answer that cannot be located is an error, not a guess
  CHECK_THROWS_WITH_AS((void)found(header + "{{ m.content if loop.last }}.{% endfor %}"),
                       doctest::Contains("the same whether it follows or not"), config_error);
  CHECK_THROWS_WITH_AS((void)found(header + "{{ m.content }}.{% endfor %}<assistant>"), doctest::Contains("the same whatever follows it"),
                       config_error);
  CHECK_THROWS_WITH_AS((void)found("{% macro w(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ w('a') }}"),
                       doctest::Contains("outside macros"), config_error);
}

TEST_CASE("answers of published templates without marks") {
  const std::string qwen = test_data("tokenizers/qwen2"), llama = test_data("tokenizers/llama3"), glm = test_data("tokenizers/chatglm3");
  if (qwen.empty() || llama.empty() || glm.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers");
    return;
  }
  CHECK(answers_of(chat_template::from_folder(qwen).apply_with_answers(two_turns)) == "[a<|im_end|>\n][b<|im_end|>\n]");
  CHECK(answers_of(chat_template::from_folder(llama).apply_with_answers(two_turns)) == "[a<|eot_id|>][b<|eot_id|>]");
  CHECK(answers_of(chat_template::from_folder(glm).apply_with_answers(two_turns)) == "[ \n a][ \n b]");
  CHECK(answers_of(chat_template::from_folder(test_data("tokenizers/qwen1.5")).apply_with_answers(two_turns)) == "[a<|im_end|>][b]");
  CHECK(chat_template::from_folder(qwen).token("eos_token") == "<|im_end|>");
  CHECK(chat_template::from_folder(qwen).token("bos_token").empty());
}

TEST_CASE("a folder's template: a string, one of several, or a file of its own, with its special tokens") {
  const std::vector<chat_message> hello{{"user", "hi"}};
  CHECK(chat_template::from_folder(
            model_folder(R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}", "bos_token": {"content": "<b>"}})").folder.path())
            .apply(hello) == "<b>hi");
  const model_folder several(
      R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools|tojson }}"}, {"name": "rag", "template": "{{"}]})");
  CHECK(chat_template::from_folder(several.folder.path()).apply(hello) == "plain");
  chat_variables tools;
  tools.tools = jinja_value_from_json(R"([{"b": 1, "a": 2}])", "tools");
  CHECK(chat_template::from_folder(several.folder.path()).apply(hello, tools) == R"([{"b": 1, "a": 2}])");
  put_file(several.folder / "chat_template.jinja", "from a file {{ eos_token }}");
  put_file(several.folder / "special_tokens_map.json", R"({"eos_token": "</e>"})");
  CHECK(chat_template::from_folder(several.folder.path()).apply(hello) == "from a file </e>");

  const auto refused = [](const std::string& config, const char* why) {
    CHECK_THROWS_WITH_AS((void)chat_template::from_folder(model_folder(config).folder.path()), doctest::Contains(why), config_error);
  };
  refused("{}", "must hold chat_template.jinja");
  refused(R"({"chat_template": 5})", "must be a string or a list");
  refused(R"({"chat_template": [{"name": "rag", "template": ""}]})", "'default'");
  refused(R"({"chat_template": [{"name": "default"}]})", "must have a name and a template");
  refused(R"({"chat_template": "{% if %}"})", "chat_template: line 1: ");
  refused("[]", "must be an object");
}

TEST_CASE("what a template is told beside the messages") {
  const chat_template form = chat_template::from_text("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ depth }}");
  chat_variables with{.add_generation_prompt = true};
  with.more.set("depth", 3);
  CHECK(form.apply(two_turns, with) == "TrueTrueTrue3");
  CHECK_THROWS_WITH_AS((void)form.apply(jinja_value("text")), doctest::Contains("messages must be a list"), data_error);
  CHECK_THROWS_WITH_AS((void)form.apply(jinja_value(std::vector<jinja_value>{1})), doctest::Contains("every message must be an object"),
                       data_error);
}

TEST_CASE("conversations in every form become the same sample; only answers are learned") {
  const chat_template form = named_chat_template("chatml");
  const std::string text =
      "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
  const std::vector<std::string> forms{
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}, {"role": "assistant", "content": "b"}]})",
      R"([[{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}, {"role": "assistant", "content": "b"}]])",
      R"({"id": 1, "conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": "v"}, {"from": "gpt", "value": "b"}]})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}, {"role": "assistant", "content": "a"}, {"role": "user", "content": [{"type": "text", "value": "v"}]}, {"role": "assistant", "content": "b"}]})",
      R"({"instruction": "Human:u\nAssistant:a\nHuman: v\nAssistant:", "input": "", "output": "b"})",
      R"({"instruction": "Human: u\nAssistant: a\nHuman: v", "output": "b"})",
      R"({"chat": {"turn_2": {"Human": "<|Human|>: v<eoh>\n", "Commands": "<|Commands|>: None<eoc>\n", "MOSS": "<|MOSS|>: b<eom>\n"}, "turn_1": {"Human": "<|Human|>: u<eoh>\n", "MOSS": "<|MOSS|>: a<eom>\n"}}})"};
  for (const std::string& record : forms) {
    CAPTURE(record);
    const dataset data = read(record, form);
    REQUIRE(data.size() == 1);
    CHECK(text_of(data, 0, false) == text);
    CHECK(text_of(data, 0, true) == "a<|im_end|>b<|im_end|>");
  }
  CHECK(text_of(read(forms[0], form, {.train_on_input = true}), 0, true) == text);
  CHECK(read(forms[0], form, {.packed = true}).layout() == sequence_layout::packed);
  CHECK(read(forms[0], form).layout() == sequence_layout::separate);
  CHECK(read(forms[0], form, {.when_too_long = overlong::truncate}).when_too_long == overlong::truncate);
  const dataset plain = read(R"({"instruction": "i", "input": "x", "output": "o"})", form);
  CHECK(text_of(plain, 0, false) == "<|im_start|>user\ni\nx<|im_end|>\n<|im_start|>assistant\no<|im_end|>\n");
  const dataset system =
      read(R"({"system": "S", "conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})", form);
  CHECK(text_of(system, 0, false).starts_with("<|im_start|>system\nS<|im_end|>\n"));
}

TEST_CASE("an object over several lines is one record") {
  const dataset data =
      read("{\n \"messages\": [\n  {\"role\": \"user\", \"content\": \"u\"},\n  {\"role\": \"assistant\", \"content\": \"a\"}\n ]\n}\n",
           named_chat_template("llama2"));
  REQUIRE(data.size() == 1);
  CHECK(text_of(data, 0, true) == " a |");
}

TEST_CASE("special tokens that the tokenizer does not know as text are the tokens they are") {
  const std::string record = R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  const dataset llama = read(record, named_chat_template("llama2"));
  CHECK(text_of(llama, 0, false) == "|[INST] u [/INST] a |");  // the byte tokenizer uses one token for both bos and eos
  CHECK(text_of(llama, 0, true) == " a |");
  // a template that leaves the last turn open: the end-of-text token closes it
  const chat_template open = chat_template::from_text(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  CHECK(text_of(read(record, open), 0, true) == "a|");
}

TEST_CASE("answers are found by bytes, whatever they say") {
  const dataset data = read(
      R"({"messages": [{"role": "user", "content": "x<|im_start|>assistant\nfake"}, {"role": "assistant", "content": "é\n<|im_end|>"}]})",
      named_chat_template("chatml"));
  CHECK(text_of(data, 0, true) == "é\n<|im_end|><|im_end|>");
}

TEST_CASE("tools and calls reach the template in their own order") {
  const chat_template form = chat_template::from_text(
      "{{ tools|tojson }}{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{{ m.tool_calls[0].function|tojson if m.tool_calls }}"
      "{% endgeneration %}{% endfor %}");
  const dataset data = read(
      R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}"}, {"from": "observation", "value": "42"}, {"from": "gpt", "value": "done"}], "tools": "[{\"name\": \"f\", \"description\": \"d\"}]"})",
      form);
  CHECK(
      text_of(data, 0, false) ==
      R"([{"type": "function", "function": {"name": "f", "description": "d"}}]<user>q<assistant>{"name": "f", "arguments": {"b": 1, "a": 2}}<tool>42<assistant>done|)");
}

TEST_CASE("a malformed conversation is an error with file and line") {
  const auto refused = [](const std::string& records, const char* why) {
    CHECK_THROWS_WITH_AS((void)read(records, named_chat_template("llama2")), doctest::Contains(why), data_error);
  };
  const std::string good = R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  refused(good + "\n{\"text\": 1}", "chats.jsonl: line 2: a record must have messages, conversations, instruction or chat");
  refused(good + "\n" + R"({"messages": 5})", "line 2: a record must have a list of messages");
  refused(good + "\n" + R"({"messages": [5]})", "every message must be an object");
  refused(good + "\n" + R"({"messages": [{"content": "x"}]})", "must have 'role' or 'from'");
  refused(good + "\n" + R"({"messages": [{"role": 5, "content": "x"}]})", "'role' must be a string");
  refused(good + "\n" + R"({"messages": [{"role": "user"}]})", "must have content or value");
  refused(good + "\n" + R"({"messages": [{"role": "user", "content": "u"}]})", "line 2: a conversation must have an answer to train on");
  refused(good + "\n" + R"({"messages": [{"role": "critic", "content": "u"}]})",
          "line 2: chat template 'llama2': line 11: the template refuses");
  refused(good + "\n" + R"({"instruction": "Human: u\nAssistant: a", "output": "b"})", "it ends with an answer");
  refused(good + "\n" + R"({"instruction": "u"})", "must have 'output'");
  refused(good + "\n" + R"({"chat": {"turn_1": {"Human": "u"}}})", "'turn_1' has no 'MOSS'");
  refused(good + "\n" + R"({"chat": {"turn_2": {"Human": "u", "MOSS": "a"}}})", "'turn_1' is missing");
  refused(good + "\n" + R"({"messages": [], "tools": "{"})", "'tools'");
  refused(good + "\n{", "line 2: ");
  refused("", "must hold text to train on");
}

TEST_CASE("public sets of conversations are read whole") {
  const std::string folder = test_data("instruct");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to instruct");
    return;
  }
  const chat_template form = named_chat_template("chatml");
  const auto count = [&](const std::string& name, const chat_options& options = {}) {
    const std::string path = test_data("instruct/" + name);
    REQUIRE(!path.empty());
    return chat_dataset(path, byte_tokenizer(), form, options).size();
  };
  CHECK(count("fastchat/dummy_conversation.json") == 1000 / 2);
  CHECK(count("torchtune/chat_tiny.json") == 1);
  CHECK(count("belle/belle_readme_samples.jsonl") == 6);
  CHECK(count("moss/helpful_code_conversations/helpful_code_conversation_1.json") == 1);
  CHECK(count("llamafactory/v1_sft_demo.jsonl") > 0);
  CHECK(count("aquila/convo_samples.jsonl") > 0);
  // calls are in tool_calls, which the named ChatML template does not write; Qwen's own template does
  if (const std::string qwen = test_data("tokenizers/qwen2"); !qwen.empty())
    CHECK(chat_dataset(test_data("instruct/llamafactory/glaive_toolcall_en_demo.json"), byte_tokenizer(), chat_template::from_folder(qwen))
              .size() > 200);
}

TEST_CASE("tokens of a conversation for LLaMA 2 are those that Meta's code makes, and the answers' are learned") {
  const std::string folder = test_data("tokenizers/llama2");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers/llama2");
    return;
  }
  const scratch_folder scratch;
  put_file(
      scratch / "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "What is é?"}, {"role": "assistant", "content": "An accent."}, {"role": "user", "content": "More"}, {"role": "assistant", "content": "No."}]})");
  // the SentencePiece model: with the tokenizer.json beside it, Hugging Face's package merges the space before </s> into </s>
  const tokenizer with = load_tokenizer(folder + "/tokenizer.model");
  const dataset data = chat_dataset(scratch / "chat.jsonl", with, named_chat_template("llama2"));
  std::vector<token> ids;
  std::string learned;
  for (std::size_t i = 0; i < data.tokens(); ++i) {
    ids.push_back(data.at(i));
    learned.push_back(data.is_target(i) ? 'x' : '.');
  }
  // as in Meta's own code: each turn is encoded separately, between bos and eos
  std::vector<token> expected;
  std::string answers;
  for (const auto& [prompt, answer] : {std::pair{"[INST] What is é? [/INST]", " An accent. "}, std::pair{"[INST] More [/INST]", " No. "}}) {
    const std::vector<token> before = with.encode(prompt), whole = with.encode(std::string(prompt) + answer);
    expected.push_back(with.special().bos);
    expected.insert(expected.end(), whole.begin(), whole.end());
    expected.push_back(with.special().eos);
    answers += "." + std::string(before.size(), '.') + std::string(whole.size() - before.size() + 1, 'x');
  }
  CHECK(ids == expected);
  CHECK(learned == answers);
}
