// A chat template and a conversation for it: "%% template", "%% messages", "%% tools" (see fuzz.hpp for how one input holds
// several). An input without marks is the template.
#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

constexpr jinja_limits limits{.steps = 500'000, .bytes = std::size_t{4} << 20};  // the sanitizers make every step slow

void check_spans(const chat_text& chat) {
  std::size_t last = 0;
  for (const text_span& a : chat.answers) {
    fuzz::must(a.begin <= a.end && a.end <= chat.text.size(), "an answer must lie in the text");
    fuzz::must(a.begin >= last, "answers must come one behind the other");
    last = a.begin;
  }
}

/// Records in any form, applied to a template that accepts them: every byte is present, and the loss mask covers answers.
bool read_records(const std::string& records) {
  const std::string path = fuzz::folder() / "chats.jsonl";
  put_file(path, records);
  return fuzz::reads([&] {
    const dataset data = chat_dataset(path, byte_tokenizer(), named_chat_template("chatml"), {.variables = {.limits = limits}, .warn = nullptr});
    fuzz::must(data.size() > 0 && data.largest_token() <= 256, "samples must be of the vocabulary");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input = fuzz::text_of(data, size);
  std::string text = input,
              messages =
                  R"([{"role": "system", "content": "S"}, {"role": "user", "content": " u "}, {"role": "assistant", "content": "a"}])",
              tools, records;
  for (const auto& [name, contents] : fuzz::files_of(input)) {
    if (name == "template") text = contents;
    else if (name == "messages") messages = contents;
    else if (name == "tools") tools = contents;
    else if (name == "records") records = contents;
  }
  if (!records.empty()) {
    fuzz::accepted = read_records(records);
    return 0;
  }
  fuzz::accepted = fuzz::reads([&] {
    chat_template form = chat_template::from_text(text);
    form.set_token("bos_token", "<s>");
    form.set_token("eos_token", "</s>");
    chat_variables with{.now = 1'700'000'000, .limits = limits};
    if (!tools.empty()) with.tools = jinja_value_from_json(tools, "tools");
    const jinja_value chat = jinja_value_from_json(messages, "messages");
    const std::string written = form.apply(chat, with);
    fuzz::must(form.apply(chat, with) == written, "the same chat must be the same text");
    (void)fuzz::reads([&] {
      const chat_text found = form.apply_with_answers(chat, with);
      fuzz::must(found.text == written, "looking for answers must not change the text");
      check_spans(found);
    });
  });
  return 0;
}
