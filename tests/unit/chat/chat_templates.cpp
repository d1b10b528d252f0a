// Chat templates by name and from folders; locating answers.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/jinja/from_json.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

const std::vector<chat_message> two_turns{{"system", "S"}, {"user", "u"}, {"assistant", "a"}, {"user", "v"}, {"assistant", "b"}};

std::string answers_of(const chat_text& chat) {
  std::string all;
  for (const text_span& a : chat.answers) all += "[" + chat.text.substr(a.begin, a.end - a.begin) + "]";
  return all;
}

struct model_folder {
  explicit model_folder(const std::string& config) { put_file(folder / "tokenizer_config.json", config); }
  scratch_folder folder;
};

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
  // as in Qwen1.5: the turn's end is written only before other text
  CHECK(found(header + "{{ m.content }}{% if not loop.last or add_generation_prompt %}</s>{% endif %}" + prompt) == "[a</s>][b]");
  // as in Phi-3-small: eos ends the text, not the turn
  CHECK(found(header + "{{ m.content }}.{% endfor %}{{ '<assistant>' if add_generation_prompt else eos_token }}") == "[a.][b.</s>]");
  // the prompt opens a thought, the answer has no thought
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
  CHECK_THROWS_AS((void)chat_template::from_folder(several.folder.path()).apply(hello, tools), data_error);  // as in transformers: only this file counts
  std::filesystem::create_directory(several.folder / "additional_chat_templates");
  put_file(several.folder / "additional_chat_templates/tool_use.jinja", "beside it {{ tools|length }}");
  CHECK(chat_template::from_folder(several.folder.path()).apply(hello) == "from a file </e>");
  CHECK(chat_template::from_folder(several.folder.path()).apply(hello, tools) == "beside it 1");
  const model_folder both(R"({"chat_template": "{{ eos_token }}", "eos_token": "<c>"})");
  put_file(both.folder / "special_tokens_map.json", R"({"eos_token": "<m>"})");
  CHECK(chat_template::from_folder(both.folder.path()).apply(hello) == "<m>");
  put_file(both.folder / "tokenizer_config.json", R"({"chat_template": "{{ eos_token }}", "eos_token": "<c>", "added_tokens_decoder": {}})");
  CHECK(chat_template::from_folder(both.folder.path()).apply(hello) == "<c>");
  const model_folder own(
      R"({"chat_template": "{{ image_token }}{{ think_token }}{{ x_token is defined }}", "image_token": "<i>", "x_token": 5,
          "extra_special_tokens": {"think_token": {"content": "<t>"}}})");
  CHECK(chat_template::from_folder(own.folder.path()).apply(hello) == "<i><t>False");

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

TEST_CASE("whether a folder has a template, and one that is written there is read again") {
  const std::vector<chat_message> hello{{"user", "hi"}};
  const model_folder none("{}"), null(R"({"chat_template": null})"), inside(R"({"chat_template": "{{ messages[0].content }}", "eos_token": "</e>"})");
  CHECK_FALSE(chat_template::is_in(none.folder.path()));
  CHECK_FALSE(chat_template::is_in(null.folder.path()));
  CHECK_FALSE(chat_template::is_in(""));
  CHECK_FALSE(chat_template::is_in(inside.folder / "tokenizer_config.json"));
  CHECK(chat_template::is_in(inside.folder.path()));
  for (const std::string text : {"{{ messages[0].content }}", "{% for m in messages %}\n  <{{ m.role }}>{{ eos_token }}\n{% endfor %}\n"}) {
    const scratch_folder folder;
    chat_template::from_text(text).save(folder.path());
    CHECK(chat_template::is_in(folder.path()));
    CHECK(get_file(folder / "chat_template.jinja") == text);
  }
  chat_template::from_folder(inside.folder.path()).save(none.folder.path());
  CHECK(chat_template::from_folder(none.folder.path()).apply(hello) == "hi");
  const model_folder several(R"({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]})");
  chat_template::from_folder(several.folder.path()).save(none.folder.path());
  CHECK(get_file(none.folder / "chat_template.jinja") == "plain");
  CHECK(get_file(none.folder / "additional_chat_templates/tool_use.jinja") == "tools");
  CHECK(chat_template::from_folder(none.folder.path()).fingerprint() == chat_template::from_folder(several.folder.path()).fingerprint());
  chat_template::from_text("{{ messages[0].content }}").save(none.folder.path());
  CHECK_FALSE(file_exists(none.folder / "additional_chat_templates/tool_use.jinja"));
  CHECK_THROWS_AS(chat_template::from_text("x").save(none.folder / "nothing"), file_error);
}

TEST_CASE("what ends a turn is what follows the words of the last answer") {
  const auto end = [](const char* name) { return named_chat_template(name).end_of_turn(); };
  CHECK(end("chatml") == "<|im_end|>");
  CHECK(end("internlm") == "<eoa>");
  for (const char* name : {"alpaca", "llama2", "mistral", "baichuan", "chatglm2", "chatglm3", "vicuna"}) CHECK(end(name) == "</s>");
  const std::string header = "{% for m in messages %}<{{ m.role }}>";
  const std::string prompt = "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  CHECK(chat_template::from_text(header + "{{ m.content }}<|end|>\n" + prompt).end_of_turn() == "<|end|>");
  CHECK(chat_template::from_text(header + "{{ m.content }}" + prompt).end_of_turn().empty());
  CHECK(chat_template::from_text(header + "{% generation %}{{ m.content }}{% endgeneration %}." + prompt).end_of_turn().empty());
  CHECK(chat_template::from_text("{{ raise_exception('no') }}").end_of_turn().empty());
  CHECK(chat_template::from_text("{{ messages[0].content }}{% generation %}.{% endgeneration %}").end_of_turn().empty());
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

namespace {

jinja_value chat_of(std::string_view text) { return jinja_value_from_json(text, "chat"); }

std::string unread_of(std::string_view form, std::string_view messages) {
  std::string all;
  for (const unread_field& one : chat_template::from_text(form).apply_with_answers(chat_of(messages)).unread) all += one.role + "." + one.name + " ";
  return all;
}

const std::string plain_form =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

}  // namespace

TEST_CASE("messages reach a template without null members, and with their reasoning under both names") {
  // transformers 5.24: apply_chat_template of each message with this template
  const chat_template members = chat_template::from_text("{{ messages[0] | tojson }}");
  const auto given = [&](std::string_view message) { return members.apply(chat_of("[" + std::string(message) + "]")); };
  CHECK(given(R"({"role": "a", "content": null, "tool_calls": null, "x": [null, {"y": null}]})") == R"({"role": "a", "x": [null, {"y": null}]})");
  CHECK(given(R"({"role": "a", "reasoning_content": "r", "content": "c"})") ==
        R"({"thinking": "r", "role": "a", "reasoning_content": "r", "content": "c"})");
  CHECK(given(R"({"role": "a", "thinking": "t", "content": "c"})") == R"({"thinking": "t", "role": "a", "content": "c", "reasoning_content": "t"})");
  CHECK(given(R"({"role": "a", "reasoning": "r", "content": "c"})") ==
        R"({"thinking": "r", "role": "a", "reasoning": "r", "content": "c", "reasoning_content": "r"})");
  CHECK(given(R"({"role": "a", "thinking": "t", "reasoning_content": "r"})") == R"({"thinking": "t", "role": "a", "reasoning_content": "r"})");
  CHECK(given(R"({"role": "a", "reasoning_content": null, "thinking": null, "reasoning": "r"})") ==
        R"({"thinking": "r", "role": "a", "reasoning": "r", "reasoning_content": "r"})");
  CHECK(given(R"({"role": "a", "reasoning_content": "", "thinking": "t"})") == R"({"thinking": "t", "role": "a", "reasoning_content": ""})");
  CHECK(given(R"({"role": "a", "content": ""})") == R"({"role": "a", "content": ""})");

  const chat_template calls = chat_template::from_text(
      "{% for m in messages %}[{{ m.role }}]{% if 'tool_calls' in m and m.tool_calls | length > 0 %}(calls){% endif %}"
      "{% if m.content is not none %}{{ m.content }}{% endif %}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  CHECK(calls.apply(chat_of(R"([{"role": "assistant", "content": null, "tool_calls": [{"function": {}}]}])")) == "[assistant](calls)[end]");
  CHECK(calls.apply(chat_of(R"([{"role": "assistant", "content": "4", "tool_calls": null}])")) == "[assistant]4[end]");
}

TEST_CASE("a template that reads the parts of a content gets them; any other gets their text") {
  const std::string_view chat =
      R"([{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]}, {"role": "assistant", "content": [{"type": "text", "value": "c"}]}, {"role": "tool", "content": []}])";
  CHECK(chat_template::from_text(plain_form).apply(chat_of(chat)) == "[user] a b[end][assistant]c[end][tool][end]");
  // a template that fails for a list
  CHECK(chat_template::from_text("{% for m in messages %}{{ m.role + ':' + m.content + '/' }}{% endfor %}").apply(chat_of(chat)) ==
        "user: a b/assistant:c/tool:/");
  const std::string parts =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text | trim if p.type == 'text' else '[' + p.type + ']' }};{% endfor %}{% endif %}{% endfor %}";
  CHECK(chat_template::from_text(parts).apply(chat_of(chat)) == "<user>a;b;<assistant>c<tool>");
  CHECK(chat_template::from_text(parts).apply(chat_of(R"([{"role": "user", "content": [{"type": "image", "url": "u"}, {"type": "text", "text": "x"}]}])")) ==
        "<user>[image];x;");
  CHECK(answers_of(chat_template::from_text(plain_form).apply_with_answers(chat_of(chat))) == "[c[end]]");
}

TEST_CASE("what a template does not read of a message is told by name") {
  const auto unread = [](std::string_view fields, std::string_view form = plain_form) {
    return unread_of(form, R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", )" + std::string(fields) + "}]");
  };
  CHECK(unread(R"("reasoning_content": "r")") == "assistant.reasoning_content ");
  CHECK(unread(R"("reasoning": "r", "name": "n", "refusal": null, "audio": {}, "prefix": false)") == "assistant.reasoning assistant.name ");
  CHECK(unread(R"("weight": 1, "x": [0])") == "assistant.weight assistant.x ");
  const std::string thinks = "{% for m in messages %}[{{ m.role }}]{% if m.thinking %}<{{ m.thinking }}>{% endif %}{{ m.content }}[end]{% endfor %}";
  CHECK(unread(R"("reasoning_content": "r")", thinks).empty());
  CHECK(unread(R"("reasoning": "r")", thinks).empty());
  CHECK(unread(R"("reasoning_content": "r", "thinking": "t")", thinks) == "assistant.reasoning_content ");
  // every read of a member counts; comparing messages does not
  for (const char* reads : {"{{ m['name'] }}", "{{ m.get('name') }}", "{{ 'name' in m }}", "{{ m | tojson }}", "{{ m }}", "{{ m.items() | list }}",
                            "{% for k in m %}{{ m[k] }}{% endfor %}", "{{ m.values() | list }}", "{{ m | dictsort }}", "{{ dict(m) }}", "{{ [m] | map(attribute='name') | list }}",
                            "{{ [m] | selectattr('name', 'defined') | list | length }}", "{{ '%(name)s' % m if m.role == 'assistant' }}"})
    CHECK_MESSAGE(unread(R"("name": "n")", "{% for m in messages %}[{{ m.role }}]{{ m.content }}" + std::string(reads) + "[end]{% endfor %}").empty(), reads);
  CHECK(unread(R"("name": "n")", "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m == messages[0] }}{{ m | length }}[end]{% endfor %}") ==
        "assistant.name ");
  // a field read only in a branch for other messages
  const std::string of_tools = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'tool' %}{{ m.name }}: {% endif %}{{ m.content }}[end]{% endfor %}";
  CHECK(unread_of(of_tools,
                  R"([{"role": "user", "content": "u", "name": "n"}, {"role": "tool", "content": "t", "name": "f"}, {"role": "assistant", "content": "a"}])") ==
        "user.name ");
  CHECK(unread_of("{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}",
                  R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])") == "system.content ");
  // parts of a content
  const std::string parts =
      "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}[end]{% endfor %}";
  CHECK(unread_of(parts,
                  R"([{"role": "user", "content": [{"type": "image", "url": "u"}, {"type": "text", "text": "x", "image": null}]}])") == "user.content[].url ");
  CHECK(unread_of(plain_form, R"([{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"a": 1}}]}])") ==
        "user.content[].cache_control ");
  // a string that the template iterates by character is not written
  CHECK(unread_of(parts, R"([{"role": "assistant", "content": "x y"}])") == "assistant.content ");
  CHECK(unread_of("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}",
                  R"([{"role": "assistant", "content": "<think>abc</think>answer"}])").empty());
}

TEST_CASE("calls that a template asks for and does not write are told") {
  const std::string_view chat = R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f_1"}}]}])";
  CHECK(unread_of("{% for m in messages if not m.tool_calls %}[{{ m.role }}]{{ m.content }}{% endfor %}", chat) == "assistant.tool_calls ");
  CHECK(unread_of("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}", chat).empty());
  CHECK(unread_of("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}", chat).empty());
}

TEST_CASE("a template that leaves out tools, documents, calls, or all that a message has, is refused") {
  const auto refused = [](std::string_view form, std::string_view messages, const char* why, const chat_variables& with = {}) {
    CHECK_THROWS_WITH_AS((void)chat_template::from_text(form).apply(chat_of(messages), with), doctest::Contains(why), data_error);
  };
  const std::string_view hello = R"([{"role": "user", "content": "u"}])";
  chat_variables tools, documents;
  tools.tools = chat_of(R"([{"name": "f"}])");
  documents.documents = chat_of(R"([{"text": "d"}])");
  refused(plain_form, hello, "must write the tools that come with the messages; it leaves them out", tools);
  refused("{% if messages[0].role == 'system' %}{{ tools }}{% endif %}" + plain_form, hello, "must write the tools", tools);
  refused(plain_form, hello, "must write the documents that come with the messages", documents);
  CHECK(chat_template::from_text("{{ documents[0].text }}").apply(chat_of(hello), documents) == "d");
  const std::string of_tools = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'tool' %}{{ m.tool_calls }}{% endif %}{% endfor %}";
  refused(of_tools, R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}])", "must write tool_calls, which a message has");
  CHECK(chat_template::from_text(of_tools).apply(chat_of(R"([{"role": "assistant", "content": "a", "tool_calls": []}])")) == "[assistant]a");
  refused(plain_form, R"([{"role": "assistant", "content": null, "refusal": "no"}])", "must write what a message without content has, 'refusal'");
  refused(plain_form, R"([{"role": "assistant", "reasoning": "r"}])", "must write what a message without content has, 'reasoning'");
  CHECK(chat_template::from_text("{{ messages[0].reasoning_content }}").apply(chat_of(R"([{"role": "assistant", "reasoning": "r"}])")) == "r");
}

TEST_CASE("the last answer may be written otherwise when a question follows") {
  // as in Qwen3: only text after the last question has a thought
  const std::string thinks =
      "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}"
      "{{ m.content }}</end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const chat_template form = chat_template::from_text(thinks);
  const auto found = [&](std::string_view messages) { return answers_of(form.apply_with_answers(chat_of(messages))); };
  CHECK(found(R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])") == "[<think></think>a</end>]");
  CHECK(found(R"([{"role": "user", "content": "u"}, {"role": "assistant", "thinking": "t", "content": "a"}])") == "[<think>t</think>a</end>]");
  CHECK(form.end_of_turn() == "</end>");
  const std::string_view two =
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}, {"role": "assistant", "content": "b"}])";
  CHECK_THROWS_WITH_AS((void)found(two), doctest::Contains("message 1 is written otherwise when others follow"), config_error);
  CHECK(answers_of(form.apply_with_answers(chat_of(two), {}, 2)) == "[<think></think>b</end>]");
  // every text ends with the next answer's beginning
  const std::vector<chat_message> one{{"user", "u"}, {"assistant", "a"}};
  CHECK_THROWS_WITH_AS((void)chat_template::from_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}.{% endfor %}<assistant>").apply_with_answers(one),
                       doctest::Contains("the same whatever follows it"), config_error);
  // no prompt after an answer (as in Gemma 4 after a call), but before it
  const std::string closed = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '/last' if loop.last }}.{% endfor %}"
                             "{% if add_generation_prompt and messages[-1].role == 'user' %}<assistant>{% endif %}";
  CHECK_THROWS_AS((void)chat_template::from_text(closed).apply_with_answers(one), config_error);  // text before an answer differs, too
  const std::string open = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '/last' if loop.last and m.role == 'assistant' }}.{% endfor %}"
                           "{% if add_generation_prompt and messages[-1].role == 'user' %}<assistant>{% endif %}";
  CHECK(answers_of(chat_template::from_text(open).apply_with_answers(one)) == "[a/last.]");
}

TEST_CASE("arguments of a call that are JSON text are told where a template writes them in quotes") {
  const auto told = [](std::string_view form, const std::string& arguments) {
    const chat_text chat = chat_template::from_text(form).apply_with_answers(
        chat_of(R"([{"role": "user", "content": "u"}, )"
                R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": )" + arguments + "}}]}]"));
    return chat.unread == std::vector<unread_field>{{"arguments", "assistant", true}} ? "told: " + chat.text : chat.unread.empty() ? chat.text : "another";
  };
  const std::string head = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}", tail = "{% endfor %}{% endfor %}";
  const std::string text = R"("{\"b\": 1}")";
  CHECK(told(head + "{{ c.function | tojson }}" + tail, text) == R"(told: u{"name": "f", "arguments": "{\"b\": 1}"})");  // as Qwen2.5's
  CHECK(told(head + "{{ c.function | tojson }}" + tail, R"({"b": 1})") == R"(u{"name": "f", "arguments": {"b": 1}})");
  CHECK(told(head + "{{ c.function.name }}{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}" + tail, text) ==
        R"(uf{"b": 1})");
}

TEST_CASE("a word that a template's text has is found as a whole") {
  const chat_template form = chat_template::from_text("{{ date_string }}{{ enable_thinking_now }}");
  CHECK(form.mentions("date_string"));
  CHECK_FALSE(form.mentions("date"));
  CHECK_FALSE(form.mentions("enable_thinking"));
  CHECK_FALSE(form.mentions(""));
}
