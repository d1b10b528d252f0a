#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::string text_of(const dataset& data, std::size_t sample, bool learned_only) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (!learned_only || data.is_target(i)) text += data.at(i) < 256 ? std::string(1, static_cast<char>(data.at(i))) : "|";
  return text;
}

dataset read(const std::string& records, const chat_template& form, const chat_options& options = {}) {
  const scratch_folder folder;
  put_file(folder / "chats.jsonl", records);
  return chat_dataset(folder / "chats.jsonl", byte_tokenizer(), form, options);
}

}  // namespace

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
  CHECK(text_of(read(R"({"instruction": "i", "output": "o", "system": "s", "history": []})", form), 0, false).find("s<|im_end|>") != std::string::npos);
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
  CHECK(text_of(llama, 0, false) == "|[INST] u [/INST] a |");  // the byte tokenizer has one token for bos and eos
  CHECK(text_of(llama, 0, true) == " a |");
  // a template that leaves the last turn open: the end-of-text token closes it
  const chat_template open = chat_template::from_text(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  CHECK(text_of(read(record, open), 0, true) == "a|");
}

TEST_CASE("a prompt has the tokens that the conversation has before its answer") {
  const std::string record = R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  for (const char* name : {"llama2", "chatml"}) {
    const chat_template form = named_chat_template(name);
    const std::vector<token> prompt = encode_chat(form.apply({{"user", "u"}}, {.add_generation_prompt = true}), byte_tokenizer(), form);
    const dataset data = read(record, form);
    std::vector<token> before;
    for (std::size_t i = data.begin(0); !data.is_target(i); ++i) before.push_back(data.at(i));
    CHECK(prompt == before);
  }
  CHECK(encode_chat("<s>x</s>", byte_tokenizer(), named_chat_template("llama2")) == std::vector<token>{256, 'x', 256});
  CHECK(encode_chat("", byte_tokenizer(), named_chat_template("llama2")).empty());
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
  for (const auto& [content, type] : {std::pair{"5", "int"}, {"true", "bool"}, {"{\"text\": \"u\"}", "dict"}})
    refused(good + "\n" + R"({"messages": [{"role": "user", "content": )" + content + R"(}, {"role": "assistant", "content": "a"}]})",
            ("chats.jsonl: line 2: content of a message must be a string or a list of parts; it is " + std::string(type)).c_str());
  refused(good + "\n" + R"({"conversations": [{"from": "human", "value": 5}, {"from": "gpt", "value": "a"}]})",
          "line 2: content of a message must be a string");
  refused(good + "\n" + R"({"messages": [{"role": "user", "content": "u"}]})", "line 2: a conversation must have an answer to train on");
  refused(good + "\n" + R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "weight": 0}]})",
          "line 2: every answer is learned: 'weight' of a message must be 1 or true; it is 0");
  refused(good + "\n" + R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "train": "false"}]})",
          "line 2: every answer is learned: 'train' of a message must be 1 or true; it is str");
  refused(good + "\n" + R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}]})",
          "line 2: chat template 'llama2': must write tool_calls");
  const std::string with_tools = good.substr(0, good.size() - 1);
  refused(good + "\n" + with_tools + R"(, "tools": [{"name": "f"}]})", "line 2: chat template 'llama2': must write the tools that come with the messages");
  refused(good + "\n" + with_tools + R"(, "tools": "[{\"name\": \"f\"}]"})", "it leaves them out");
  CHECK(read(good + "\n" + with_tools + R"(, "tools": []})", named_chat_template("llama2")).size() == 2);
  refused(good + "\n" + R"({"messages": [{"role": "critic", "content": "u"}]})",
          "line 2: chat template 'llama2': line 11: the template refuses");
  refused(good + "\n" + R"({"instruction": "Human: u\nAssistant: a", "output": "b"})", "it ends with an answer");
  refused(good + "\n" + R"({"instruction": "u"})", "must have 'output'");
  refused(good + "\n" + R"({"instruction": "u", "output": "a", "history": [["v", "b"]]})", "line 2: 'history' must be empty");
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
  // calls are in tool_calls: Qwen's own template writes them, the ChatML template does not
  CHECK_THROWS_WITH_AS((void)count("llamafactory/glaive_toolcall_en_demo.json"),
                       doctest::Contains("chat template 'chatml': must write tool_calls, which a message has; it leaves them out"), data_error);
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
  // SentencePiece model: with tokenizer.json, Hugging Face's package merges the space before </s> into </s>
  const tokenizer with = load_tokenizer(folder + "/tokenizer.model");
  const dataset data = chat_dataset(scratch / "chat.jsonl", with, named_chat_template("llama2"));
  std::vector<token> ids;
  std::string learned;
  for (std::size_t i = 0; i < data.tokens(); ++i) {
    ids.push_back(data.at(i));
    learned.push_back(data.is_target(i) ? 'x' : '.');
  }
  // as in Meta's code: turns are encoded separately, between bos and eos
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

TEST_CASE("the end token that a template writes is that token, also where a tokenizer.json finds it in normalized text only") {
  const std::string folder = test_data("tokenizers/llama2");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers/llama2");
    return;
  }
  const scratch_folder scratch;
  put_file(
      scratch / "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "No."}]})");
  const tokenizer with = load_tokenizer(folder + "/tokenizer.json");
  const auto tokens_of = [&](const char* form) {
    const dataset data = chat_dataset(scratch / "chat.jsonl", with, named_chat_template(form));
    std::pair<std::vector<token>, std::string> all;
    for (std::size_t i = 0; i < data.tokens(); ++i) {
      all.first.push_back(data.at(i));
      all.second.push_back(data.is_target(i) ? 'x' : '.');
    }
    return all;
  };
  // transformers 5.24: AutoTokenizer.from_pretrained(folder)(the template's text, add_special_tokens=False)
  const auto llama2 = tokens_of("llama2");
  CHECK(llama2.first == std::vector<token>{1,     29961, 25580, 29962, 7251, 518, 29914, 25580, 29962, 15043, 29889, 29871, 2,
                                           1,     29961, 25580, 29962, 901,  518, 29914, 25580, 29962, 1939,  29889, 29871, 2});
  CHECK(llama2.second == ".........xxxx.........xxxx");
  const auto mistral = tokens_of("mistral");
  CHECK(mistral.first == std::vector<token>{1,     29961, 25580, 29962, 7251, 518, 29914, 25580, 29962, 15043, 29889, 2,
                                            29961, 25580, 29962, 901,   518,  29914, 25580, 29962, 1939,  29889, 2});
  CHECK(mistral.second == ".........xxx........xxx");
}

TEST_CASE("fields of conversations may have other names, and a prompt and a system message around them") {
  const chat_template form = named_chat_template("chatml");
  chat_options options{.form = chat_form::instruction};
  options.prompt = {"<{instruction}|{input}>", "<{instruction}>"};
  options.instruction_field = "q", options.output_field = "a";
  const std::string both = R"({"q": "Human: one", "input": "x", "a": "o"})" "\n" R"({"q": "two", "a": "p"})";
  const dataset data = read(both, form, options);
  REQUIRE(data.size() == 2);
  CHECK(text_of(data, 0, false) == "<|im_start|>user\n<Human: one|x><|im_end|>\n<|im_start|>assistant\no<|im_end|>\n");
  CHECK(text_of(data, 1, false) == "<|im_start|>user\n<two><|im_end|>\n<|im_start|>assistant\np<|im_end|>\n");
  CHECK(text_of(data, 1, true) == "p<|im_end|>");
  CHECK_THROWS_WITH_AS(read(R"({"q": "one"})", form, options), doctest::Contains("line 1: a record must have 'a'; it is missing"), data_error);

  chat_options listed{.form = chat_form::messages};
  listed.conversation_field = "talk";
  listed.system_prompt = "S";
  const std::string talk = R"({"talk": [{"role": "system", "content": "other"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})";
  CHECK(text_of(read(talk, form, listed), 0, false) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");

  options.form = chat_form::automatic;
  CHECK_THROWS_WITH_AS(read(both, form, options), "chat_dataset: a prompt template needs the form instruction", config_error);
  listed.form = chat_form::automatic;
  CHECK_THROWS_AS(read(talk, form, listed), config_error);
}

TEST_CASE("reasoning of any name is written, and null members are absent") {
  const chat_template form = chat_template::from_text(
      "{%- for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{% if m.reasoning_content %}<r>{{ m.reasoning_content }}</r>{% endif %}"
      "{{ m.content }}[end]{% endgeneration %}{% else %}{{ m.content }}[end]{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    CAPTURE(name);
    const dataset data = read(R"({"messages": [{"role": "user", "content": "hi", "reasoning_content": null}, )"
                              R"({"role": "assistant", "content": "yo", "tool_calls": null, ")" +
                                  std::string(name) + R"(": "add"}]})",
                              form);
    CHECK(text_of(data, 0, false) == "[user]hi[end][assistant]<r>add</r>yo[end]");
    CHECK(text_of(data, 0, true) == "<r>add</r>yo[end]");
  }
}

TEST_CASE("a record's chat_template_kwargs are variables of its template") {
  const chat_template form = chat_template::from_text(
      "{%- if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}(today is {{ date_string }})"
      "{% for d in documents or [] %}{{ d.text }}{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  std::vector<std::string> told;
  chat_options options;
  options.warn = [&](const std::string& text) { told.push_back(text.substr(text.rfind('/') + 1)); };
  options.variables.more.set("date_string", "01 Jan 2024");
  const auto record = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])" + more + "}\n";
  };
  const dataset data = read(record(R"(, "chat_template_kwargs": {"date_string": "01 Jan 2025", "documents": [{"text": "d"}]})") + record("") +
                                record(R"(, "chat_template_kwargs": null)") + record(R"(, "chat_template_kwargs": {"enable_thinking": false})") +
                                record(R"(, "chat_template_kwargs": {"enable_thinking": true, "tools": []})"),
                            form, options);
  REQUIRE(data.size() == 5);
  CHECK(text_of(data, 0, false) == "(today is 01 Jan 2025)d[user]hi[end][assistant]yo[end]");
  CHECK(text_of(data, 1, false) == "(today is 01 Jan 2024)[user]hi[end][assistant]yo[end]");
  CHECK(text_of(data, 2, false) == text_of(data, 1, false));
  CHECK(told == std::vector<std::string>{"chats.jsonl: line 4: the chat template does not read 'enable_thinking' of chat_template_kwargs: it has no effect"});
  for (const auto& [given, why] : {std::pair{R"("x")", "'chat_template_kwargs' must be an object; it is str"},
                                   {R"({"messages": []})", "must hold variables of the template; given 'messages'"},
                                   {R"({"chat_template": ""})", "must hold variables of the template; given 'chat_template'"}})
    CHECK_THROWS_WITH_AS((void)read(record(R"(, "chat_template_kwargs": )" + std::string(given)), form), doctest::Contains(why), data_error);
}

TEST_CASE("a field that the template does not read is told once per file") {
  std::vector<std::string> told;
  chat_options options;
  options.warn = [&](const std::string& text) { told.push_back(text.substr(text.rfind('/') + 1)); };
  const std::string records =
      R"({"messages": [{"role": "user", "content": "u", "name": ""}, {"role": "assistant", "content": "a", "weight": 1, "reasoning_content": null}]})" "\n"
      R"({"messages": [{"role": "user", "content": "u", "name": "n"}, {"role": "assistant", "content": "a", "reasoning": "r"}]})" "\n"
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "reasoning": "r", "name": "n"}]})";
  CHECK(read(records, named_chat_template("chatml"), options).size() == 3);
  CHECK(told == std::vector<std::string>{
                    "chats.jsonl: line 2: the chat template does not read 'name', which a message of role 'user' has: it is left out",
                    "chats.jsonl: line 2: the chat template does not read 'reasoning', which a message of role 'assistant' has: it is left out"});
  options.warn = nullptr;  // no warning
  CHECK(read(records, named_chat_template("chatml"), options).size() == 3);
}

TEST_CASE("a completion is learned, and its prompt is not") {
  const chat_template form = named_chat_template("chatml");
  // messages: all text after the prompt, as in trl 1.16
  const dataset one = read(
      R"({"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}], "completion": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "w"}, {"role": "assistant", "content": "c"}]})",
      form);
  CHECK(text_of(one, 0, false) == form.apply({{"user", "u"}, {"assistant", "a"}, {"user", "v"}, {"assistant", "b"}, {"user", "w"}, {"assistant", "c"}}));
  CHECK(text_of(one, 0, true) == "b<|im_end|>\n<|im_start|>user\nw<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n");
  // a template that writes earlier answers differently
  const chat_template thinks = chat_template::from_text(
      "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}<think></think>{% endif %}{{ m.content }}.{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}");
  const std::string prompt = R"("prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}])";
  const std::string completion = R"("completion": [{"role": "assistant", "content": "b"}])";
  const dataset two = read("{" + prompt + ", " + completion + "}\n{" + prompt +
                                R"(, "chat_template_kwargs": {"enable_thinking": false}, )" + completion + "}", thinks);
  CHECK(text_of(two, 0, false) == "<user>u.<assistant>a.<user>v.<assistant><think></think>b.");
  CHECK(text_of(two, 0, true) == "<think></think>b.");
  CHECK(text_of(two, 1, true) == "b.");
  CHECK(text_of(read("{" + prompt + ", " + completion + "}", thinks, {.train_on_input = true}), 0, true) == text_of(two, 0, false));
  chat_options system;
  system.system_prompt = "S";
  const dataset told = read(R"({"prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "u"}], )" + completion + "}", form, system);
  CHECK(text_of(told, 0, false).starts_with("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu"));
  CHECK(text_of(told, 0, true) == "b<|im_end|>\n");

  // texts: unchanged, followed by the end-of-text token
  const scratch_folder folder;
  put_file(folder / "texts.jsonl",
           R"({"prompt": "The sky is", "completion": " blue."})" "\n" R"({"prompt": "x", "completion": ""})" "\n" R"({"prompt": "", "completion": "y"})");
  CHECK(holds_text_completions(folder / "texts.jsonl"));
  const dataset texts = chat_dataset(folder / "texts.jsonl", byte_tokenizer());
  REQUIRE(texts.size() == 3);
  CHECK(text_of(texts, 0, false) == "The sky is blue.|");
  CHECK(text_of(texts, 0, true) == " blue.|");
  CHECK(text_of(texts, 1, true) == "|");
  CHECK(text_of(texts, 2, true) == "y|");
  put_file(folder / "messages.jsonl", "{" + prompt + ", " + completion + "}");
  CHECK_FALSE(holds_text_completions(folder / "messages.jsonl"));
  CHECK_THROWS_WITH_AS((void)chat_dataset(folder / "messages.jsonl", byte_tokenizer()),
                       doctest::Contains("line 1: a record of messages needs a chat template"), data_error);

  const auto refused = [&](const std::string& record, const char* why) {
    CHECK_THROWS_WITH_AS((void)read(record, form, {.form = chat_form::prompt_completion}), doctest::Contains(why), data_error);
  };
  refused(R"({"prompt": "x"})", "line 1: a record must have 'prompt' and 'completion'; 'completion' is missing");
  refused("{" + prompt + R"(, "completion": "b"})", "must both be strings, or both be lists of messages; 'completion' is str");
  refused(R"({"prompt": [], )" + completion + "}", "'prompt' must have a message; it is empty");
  refused(R"({"prompt": "x", "completion": "y", "label": false})", "a record with a 'label' of true or false is a preference (kto)");
  CHECK_THROWS_WITH_AS((void)read(R"({"prompt": "x", "completion": "y"})", form, system),
                       doctest::Contains("a system prompt needs records of messages"), data_error);
}

TEST_CASE("a completion's tokens and mask are trl's") {
  const std::string folder = test_data("tokenizers/qwen2");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers/qwen2");
    return;
  }
  const scratch_folder scratch;
  put_file(scratch / "chat.jsonl", R"({"prompt": "hello wor", "completion": "ld"})" "\n" R"({"prompt": "x ", "completion": " y<|im_end|>"})" "\n"
                                   R"({"prompt": [{"role": "user", "content": "hi"}], "completion": [{"role": "assistant", "content": "yo"}]})");
  const dataset data = chat_dataset(scratch / "chat.jsonl", load_tokenizer(folder), chat_template::from_folder(folder));
  std::vector<std::pair<std::vector<token>, std::string>> found;
  for (std::size_t s = 0; s < data.size(); ++s) {
    auto& [ids, learned] = found.emplace_back();
    for (std::size_t i = data.begin(s); i < data.begin(s) + data.length(s); ++i) {
      ids.push_back(data.at(i));
      learned.push_back(data.is_target(i) ? 'x' : '.');
    }
  }
  // trl 1.16, SFTTrainer's tokenize_fn; tokens of prompt and completion together already differ before the completion
  CHECK(found == std::vector<std::pair<std::vector<token>, std::string>>{
      {{14990, 1879, 151645}, ".xx"},
      {{87, 220, 379, 151645}, "..xx"},
      {{151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264,
        10950, 17847, 13, 151645, 198, 151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198, 16032, 151645, 198}, "..............................xxx"}});
}
