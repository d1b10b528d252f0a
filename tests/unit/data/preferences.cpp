// Preference data sets: pairs, and labelled answers.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/preference_dataset.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/load_tokenizer.hpp>

#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::string text_of(const dataset& data, std::size_t sample, bool learned_only) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (!learned_only || data.is_target(i)) text += data.at(i) < 256 ? std::string(1, static_cast<char>(data.at(i))) : "|";
  return text;
}

dataset read(const std::string& records, const preference_options& options = {}) {
  const scratch_folder folder;
  put_file(folder / "pairs.jsonl", records);
  return preference_dataset(folder / "pairs.jsonl", byte_tokenizer(), named_chat_template("chatml"), options);
}
dataset read_unpaired(const std::string& records) {
  const scratch_folder folder;
  put_file(folder / "answers.jsonl", records);
  return unpaired_preference_dataset(folder / "answers.jsonl", byte_tokenizer(), named_chat_template("chatml"));
}

const std::string asked = "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n";

}  // namespace

TEST_CASE("pairs in every form become the same samples; only answers after the prompt are learned") {
  const std::vector<std::string> forms{
      R"({"prompt": [{"role": "user", "content": "u"}], "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})",
      R"({"chosen": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "b"}]})",
      R"({"prompt": "u", "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "chosen": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "b"}], "score_chosen": 8.5})",
      R"({"conversations": [{"from": "human", "value": "u"}], "chosen": {"from": "gpt", "value": "a"}, "rejected": {"from": "gpt", "value": "b"}})",
      R"({"instruction": "u", "input": "", "chosen": "a", "rejected": "b"})",
      R"({"question": "u", "response_j": "a", "response_k": "b"})",
      R"({"prompt": "u", "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})",
      R"({"chosen_messages": [{"role": "user", "content": [{"type": "text", "value": "u"}], "loss_weight": 0.0}, {"role": "assistant", "content": [{"type": "text", "value": "a"}], "loss_weight": 1.0}], "rejected_messages": [{"role": "user", "content": [{"type": "text", "value": "u"}], "loss_weight": 0.0}, {"role": "assistant", "content": [{"type": "text", "value": "b"}], "loss_weight": 1.0}]})"};
  for (const std::string& record : forms) {
    CAPTURE(record);
    const dataset data = read(record);
    REQUIRE(data.size() == 2);
    CHECK(data.group_size == 2);
    CHECK(data.layout() == sequence_layout::separate);
    CHECK(text_of(data, 0, false) == asked + "a<|im_end|>\n");
    CHECK(text_of(data, 1, false) == asked + "b<|im_end|>\n");
    CHECK(text_of(data, 0, true) == "a<|im_end|>");
    CHECK(text_of(data, 1, true) == "b<|im_end|>");
    CHECK(data.labels().empty());
  }
  const dataset strings = read(R"({"prompt": "u", "chosen": "a", "rejected": "b"})", {.form = preference_form::messages});
  CHECK(text_of(strings, 0, false) == asked + "a<|im_end|>\n");
  const preference_options named{.form = preference_form::messages, .fields = {"q", "better", "worse"}, .system_prompt = "T"};
  const dataset others = read(R"({"system": "S", "history": 1, "q": "u", "better": "a", "worse": "b", "chosen": "no", "rejected": "no"})", named);
  CHECK(text_of(others, 0, false) == "<|im_start|>system\nT<|im_end|>\n" + asked + "a<|im_end|>\n");
  CHECK(text_of(others, 1, true) == "b<|im_end|>");
  const dataset lists = read(R"({"better": [{"role": "system", "content": "S"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}],
                                 "worse": [{"role": "system", "content": "S"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "b"}]})",
                             {.fields = {.chosen = "better", .rejected = "worse"}, .system_prompt = "T"});
  CHECK(text_of(lists, 1, false) == "<|im_start|>system\nT<|im_end|>\n" + asked + "b<|im_end|>\n");
  CHECK_THROWS_WITH_AS(read(R"({"better": "a", "worse": "b"})", named), doctest::Contains("a record must have 'q'; it is missing"), data_error);
  CHECK_THROWS_WITH_AS(read(R"({"q": "u", "chosen": "a", "worse": "b"})", named),
                       doctest::Contains("a record must have 'better' and 'worse'; 'better' is missing"), data_error);
  CHECK_THROWS_WITH_AS(read(R"({"prompt": "u", "chosen": "a", "rejected": "b"})", {.system_prompt = "T"}), doctest::Contains("needs records of messages"),
                       data_error);
  const dataset longer = read(R"({"system": "S", "instruction": "v", "input": "w", "history": [["u", "a"]], "chosen": "c", "rejected": "d"})");
  CHECK(text_of(longer, 1, false) ==
        "<|im_start|>system\nS<|im_end|>\n" + asked + "a<|im_end|>\n<|im_start|>user\nv\nw<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n");
  CHECK(text_of(longer, 1, true) == "d<|im_end|>");  // earlier turns are not part of it
}

TEST_CASE("strings are used as they are, with an end; without a prompt it is what they begin with") {
  for (const std::string record :
       {R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})", R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})"}) {
    const dataset data = read(record);
    CHECK(text_of(data, 0, false) == "The sky is blue.|");
    CHECK(text_of(data, 1, false) == "The sky is green.|");
    CHECK(text_of(data, 0, true) == " blue.|");
    CHECK(text_of(data, 1, true) == " green.|");
  }
  // two two-byte characters with equal first bytes
  CHECK(text_of(read(R"({"chosen": "x\u00e9", "rejected": "x\u00ea"})"), 0, true) == "\u00e9|");
  const dataset shorter = read(R"({"chosen": "xyz", "rejected": "xy"})");
  CHECK(text_of(shorter, 0, true) == "yz|");
  CHECK(text_of(shorter, 1, true) == "y|");
  const dataset shorter_by_words = read(R"({"chosen": "Q A", "rejected": "Q A more"})");  // trl moves a space only before a difference
  CHECK(text_of(shorter_by_words, 0, true) == "A|");
  CHECK(text_of(shorter_by_words, 1, true) == "A more|");
  const dataset one_is_empty = read(R"({"chosen": "", "rejected": "xy"})");
  CHECK(text_of(one_is_empty, 0, true) == "|");
  CHECK(text_of(one_is_empty, 1, true) == "xy|");
}

TEST_CASE("for scores one more token follows, so that the last one has a target") {
  const dataset data = read(R"({"prompt": "u", "chosen": "ab", "rejected": "c"})", {.scores_last_token = true});
  const dataset plain = read(R"({"prompt": "u", "chosen": "ab", "rejected": "c"})");
  for (std::size_t sample = 0; sample < 2; ++sample) {
    REQUIRE(data.length(sample) == plain.length(sample) + 1);
    const std::size_t end = data.begin(sample) + data.length(sample);
    CHECK(data.at(end - 1) == data.at(end - 2));
    CHECK(data.is_target(end - 1));
  }
  CHECK_THROWS_AS((void)unpaired_preference_dataset("none.jsonl", byte_tokenizer(), {.scores_last_token = true}), config_error);
}

TEST_CASE("answers with labels: each prompt has its own answer, and that of the next record") {
  for (const std::string& records : {std::string(R"({"prompt": "u", "completion": "a", "label": true}
{"prompt": "v", "completion": "b", "label": false}
{"prompt": "w", "completion": "c", "label": 1})")}) {
    const dataset data = read_unpaired(records);
    REQUIRE(data.size() == 6);
    CHECK(data.group_size == 2);
    const std::vector<std::string> texts{"ua|", "ub|", "vb|", "vc|", "wc|", "wa|"};
    for (std::size_t s = 0; s < 6; ++s) {
      CHECK(text_of(data, s, false) == texts[s]);
      CHECK(text_of(data, s, true) == texts[s].substr(1));
      CHECK(data.labels()[s] == (s / 2 == 1 ? 0 : 1));
    }
  }
  const std::vector<std::string> forms{
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "label": true})",
      R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], "kto_tag": true})",
      R"({"instruction": "u", "input": "", "output": "a", "kto_tag": true})",
      R"({"prompt": [{"role": "user", "content": "u"}], "completion": [{"role": "assistant", "content": "a"}], "label": true})",
      R"({"completion": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "label": true})"};
  const std::string other = R"({"prompt": [{"role": "user", "content": "v"}], "completion": [{"role": "assistant", "content": "b"}], "label": false})";
  for (const std::string& record : forms) {
    CAPTURE(record);
    const dataset data = read_unpaired(record + "\n" + other);
    REQUIRE(data.size() == 4);
    CHECK(text_of(data, 0, false) == asked + "a<|im_end|>\n");
    CHECK(text_of(data, 1, false) == asked + "b<|im_end|>\n");
    CHECK(text_of(data, 1, true) == "b<|im_end|>");
    CHECK(text_of(data, 3, true) == "a<|im_end|>");
    CHECK(data.labels()[1] == 1);
    CHECK(data.labels()[2] == 0);
  }
}

TEST_CASE("a malformed preference is an error with file and line") {
  const std::string good = R"({"prompt": "u", "chosen": "a", "rejected": "b"})";
  const auto refused = [&](const std::string& record, const std::string& says) {
    CAPTURE(record);
    CHECK_THROWS_WITH_AS((void)read(good + "\n" + record), doctest::Contains("pairs.jsonl: line 2: "), data_error);
    CHECK_THROWS_WITH_AS((void)read(good + "\n" + record), doctest::Contains(says.c_str()), data_error);
  };
  refused(R"({"prompt": "u", "chosen": "a"})", "'rejected' is missing");
  refused(R"({"prompt": "u", "completion": "a", "label": true})", "Is it unpaired preference data?");
  refused(R"({"prompt": "u", "chosen": 3, "rejected": "b"})", "'chosen' must be a string, a message or a list of messages; it is int");
  refused(R"({"prompt": "u", "chosen": [], "rejected": []})", "it is empty");
  refused(R"({"prompt": "u", "chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]})", "must be of the same kind");
  refused(R"({"prompt": 3, "chosen": "a", "rejected": "b"})", "'prompt' must be a string; it is int");
  refused(R"({"chosen": "a", "rejected": "a"})", "must differ where there is no 'prompt'");
  refused(R"({"chosen": [{"role": "user", "content": "u"}], "rejected": [{"role": "user", "content": "u"}]})", "must differ in an answer; they are equal");
  refused(R"({"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})", "must have its prompt");
  refused(R"({"prompt": "u", "chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "b"}]})", "its last role is user");
  refused(R"({"instruction": "u", "history": ["x"], "chosen": "a", "rejected": "b"})", "'history' must be a list of pairs");
  refused(R"({"conversations": [{"from": "function_call", "tool_calls": []}], "chosen": "a", "rejected": "b"})", "a function_call must be a string");
  refused("[1]", "a record must be an object; it is list");
  CHECK_THROWS_WITH_AS((void)read(good + "\n{"), doctest::Contains("pairs.jsonl: must be JSON; line 2: "), data_error);
  const scratch_folder folder;
  put_file(folder / "pairs.jsonl", R"({"instruction": "u", "chosen": "a", "rejected": "b"})");
  CHECK_THROWS_WITH_AS((void)preference_dataset(folder / "pairs.jsonl", byte_tokenizer()), doctest::Contains("needs a chat template; none is given"),
                       data_error);

  const auto refused_unpaired = [&](const std::string& records, const std::string& says) {
    CAPTURE(records);
    CHECK_THROWS_WITH_AS((void)read_unpaired(records), doctest::Contains(says.c_str()), data_error);
  };
  const std::string fine = R"({"prompt": "u", "completion": "a", "label": true})";
  refused_unpaired(fine, "must have at least two records");
  refused_unpaired(fine + "\n" + R"({"prompt": "u", "completion": "a", "label": 2})", "line 2: 'label' must be true or false; it is 2");
  refused_unpaired(fine + "\n" + R"({"prompt": "u", "completion": "a", "label": "yes"})", "'label' must be true or false; it is str");
  refused_unpaired(fine + "\n" + R"({"prompt": "u", "completion": "a"})", "must have 'label' or 'kto_tag'");
  refused_unpaired(fine + "\n" + good, "Is it a set of pairs?");
  refused_unpaired(fine + "\n" + R"({"label": true})", "must have 'completion', or a list of messages");
  refused_unpaired(fine + "\n" + R"({"messages": [{"role": "user", "content": "u"}], "label": true})", "it has one message");
  refused_unpaired(fine + "\n" + R"({"instruction": "u", "output": "a", "label": true})", "all be texts or all be messages");
}

TEST_CASE("public sets of preferences are read whole") {
  if (test_data("instruct").empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to instruct");
    return;
  }
  const chat_template form = named_chat_template("chatml");
  const auto pairs = [&](const std::string& name) { return preference_dataset(test_data("instruct/" + name), byte_tokenizer(), form).size(); };
  CHECK(pairs("llamafactory/dpo_en_demo.json") == 2 * 300);
  CHECK(pairs("llamafactory/v1_dpo_demo.jsonl") > 0);
  CHECK(pairs("torchtune/hh_rlhf_tiny.json") == 2);
  CHECK(pairs("torchtune/stack_exchange_paired_tiny.json") > 0);
  const dataset answers = unpaired_preference_dataset(test_data("instruct/llamafactory/kto_en_demo.json"), byte_tokenizer(), form);
  CHECK(answers.size() == 2 * 300);
  std::size_t desirable = 0;
  for (const token label : answers.labels()) desirable += label == 1 ? 1 : 0;
  CHECK(desirable == 2 * 150);
}

TEST_CASE("tokens of pairs are those that trl makes of them") {
  const std::string gpt2 = test_data("tokenizers/gpt2"), qwen2 = test_data("tokenizers/qwen2");
  if (gpt2.empty() || qwen2.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers/gpt2 and qwen2");
    return;
  }
  const tokenizer texts = load_tokenizer(gpt2), chats = load_tokenizer(qwen2);
  const chat_template form = chat_template::from_folder(qwen2);
  const scratch_folder folder;
  std::size_t compared = 0;
  for (const json& one : json::parse(get_file(golden::folder("preferences/cases.json")))) {
    const bool is_text = one["tokenizer"] == "gpt2";
    CAPTURE(one["record"].dump());
    put_file(folder / "pair.jsonl", one["record"].dump());
    const dataset data = is_text ? preference_dataset(folder / "pair.jsonl", texts) : preference_dataset(folder / "pair.jsonl", chats, form);
    for (std::size_t s = 0; s < 2; ++s) {
      const auto expected = one[s == 0 ? "chosen" : "rejected"].get<std::vector<token>>();
      std::vector<token> found, learned;
      for (std::size_t i = data.begin(s); i < data.begin(s) + data.length(s); ++i) {
        found.push_back(data.at(i));
        if (data.is_target(i)) learned.push_back(data.at(i));
      }
      CHECK(found == expected);
      CHECK(learned == std::vector<token>(expected.begin() + one["prompt_length"].get<std::ptrdiff_t>(), expected.end()));
      ++compared;
    }
  }
  CHECK(compared == 14);
}

TEST_CASE("answers of a prompt need not be located, and a record's chat_template_kwargs are variables") {
  // as in Qwen3, earlier answers are written differently
  const chat_template form = chat_template::from_text(
      "{{ day }}{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}<think>{{ m.reasoning_content }}</think>{% endif %}"
      "{{ m.content }}.{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const scratch_folder folder;
  const std::string prompt =
      R"("prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "name": "n"}, {"role": "user", "content": "v"}])";
  put_file(folder / "pairs.jsonl", "{" + prompt +
                                       R"(, "chosen": [{"role": "assistant", "content": "b", "reasoning": "r"}], "rejected": [{"role": "assistant", "content": "c"}],
      "chat_template_kwargs": {"day": "Monday", "hour": 3}})");
  std::vector<std::string> told;
  preference_options options;
  options.warn = [&](const std::string& text) { told.push_back(text.substr(text.rfind('/') + 1)); };
  const dataset data = preference_dataset(folder / "pairs.jsonl", byte_tokenizer(), form, options);
  REQUIRE(data.size() == 2);
  CHECK(text_of(data, 0, false) == "Monday<user>u.<assistant>a.<user>v.<assistant><think>r</think>b.");
  CHECK(text_of(data, 0, true) == "<think>r</think>b.");
  CHECK(text_of(data, 1, true) == "<think></think>c.");
  CHECK(told == std::vector<std::string>{"pairs.jsonl: line 1: the chat template does not read 'name', which a message of role 'assistant' has: it is left out",
                                         "pairs.jsonl: line 1: the chat template does not read 'hour' of chat_template_kwargs: it has no effect"});
}
