// Preferences: as pairs, and as labelled answers, in every form.
#include <cstddef>
#include <string>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/preference_dataset.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

void check(const dataset& data, bool labelled) {
  fuzz::must(data.group_size == 2 && data.size() % 2 == 0 && data.layout() == sequence_layout::separate, "samples must be pairs");
  fuzz::must(data.labels().size() == (labelled ? data.size() : 0), "only answers with labels have labels");
  for (std::size_t s = 0; s < data.size(); s += 2) {
    std::size_t prompt = 0, targets = 0;
    for (std::size_t i = 0; i < data.length(s) && !data.is_target(data.begin(s) + i); ++i) ++prompt;
    for (std::size_t i = 0; i < data.length(s); ++i) targets += data.is_target(data.begin(s) + i) ? 1 : 0;
    fuzz::must(targets > 0, "an answer must be learned");
    fuzz::must(!labelled || (data.labels()[s] == data.labels()[s + 1] && (data.labels()[s] == 0 || data.labels()[s] == 1)), "a group must have one label");
    for (std::size_t i = 0; i < std::min(prompt, data.length(s + 1)) && !data.is_target(data.begin(s + 1) + i); ++i)
      fuzz::must(data.at(data.begin(s) + i) == data.at(data.begin(s + 1) + i), "both of a group must have the same prompt");
  }
}

template <class Read>
bool reads(const Read& read, bool labelled) {
  return fuzz::reads([&] {
    const dataset data = read();
    check(data, labelled);
    (void)fuzz::reads([&] {
      const loader rows(data, {.micro_batch_size = 2, .seq_length = 24, .seed = 1});
      std::vector<host_batch> batches;
      for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) rows.fill({0, step}, batches);
    });
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const chat_template form = named_chat_template("chatml");
  const std::string path = fuzz::folder() / "preferences.jsonl";
  put_file(path, fuzz::text_of(data, size));
  const preference_options cut{.when_too_long = overlong::truncate, .warn = nullptr}, messages{.form = preference_form::messages, .warn = nullptr},
      texts{.form = preference_form::text};
  const bool pairs = reads([&] { return preference_dataset(path, byte_tokenizer(), form, cut); }, false);
  const bool answers = reads([&] { return unpaired_preference_dataset(path, byte_tokenizer(), form, cut); }, true);
  const bool only_texts = reads([&] { return preference_dataset(path, byte_tokenizer()); }, false);
  fuzz::must(!only_texts || pairs, "what needs no template must be read with one");
  (void)reads([&] { return preference_dataset(path, byte_tokenizer(), form, messages); }, false);
  (void)reads([&] { return preference_dataset(path, byte_tokenizer(), texts); }, false);
  (void)reads([&] { return unpaired_preference_dataset(path, byte_tokenizer(), form, messages); }, true);
  fuzz::accepted = pairs || answers;
  return 0;
}
