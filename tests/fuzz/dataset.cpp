// JSON records: as texts, as instructions with answers, and as texts with labels.
#include <xtrain/core/json.hpp>
#include <xtrain/core/plain_json.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/data/labelled_dataset.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

constexpr token end_of_text = 256;

/// Bytes of a sample's tokens that are targets, or ignored; without the end-of-text token.
std::string text_of(const dataset& data, std::size_t sample, bool learned) {
  std::string text;
  for (std::size_t i = data.begin(sample); i < data.begin(sample) + data.length(sample); ++i)
    if (data.is_target(i) == learned && data.at(i) != end_of_text) text.push_back(static_cast<char>(data.at(i)));
  return text;
}

void check_sizes(const dataset& data) {
  std::size_t all = 0;
  for (std::size_t s = 0; s < data.size(); ++s) {
    fuzz::must(data.begin(s) == all, "samples must lie one behind the other");
    fuzz::must(data.length(s) <= data.longest(), "no sample must be longer than the longest");
    all += data.length(s);
  }
  fuzz::must(all == data.tokens(), "samples must be all there is");
  fuzz::must(data.largest_token() <= end_of_text, "tokens must be of the vocabulary");
}

/// Cutting into sequences preserves every token's count.
void check_rows(const dataset& data) {
  (void)fuzz::reads([&] {
    const loader rows(data, {.micro_batch_size = 2, .seq_length = 16, .shuffle = true, .seed = 1});
    std::vector<host_batch> batches;
    std::size_t tokens = 0;
    for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) {
      rows.fill({0, step}, batches);
      for (const host_batch& batch : batches) {
        tokens += batch.token_count;
        std::size_t targets = 0;
        for (std::size_t i = 0; i < batch.b * batch.t; ++i) {
          targets += batch.targets[i] >= 0 ? 1 : 0;
          fuzz::must(batch.tokens[i] >= 0 && batch.positions[i] >= 0 && static_cast<std::size_t>(batch.positions[i]) < batch.t,
                     "tokens and positions must be those of a row");
          fuzz::must(batch.starts[i] >= 0 && static_cast<std::size_t>(batch.starts[i]) <= i % batch.t,
                     "a sample must begin before it goes on");
        }
        fuzz::must(targets == batch.target_count, "targets must be counted right");
      }
    }
    if (data.layout() == sequence_layout::stream) fuzz::must(tokens == data.tokens() - 1, "every token but the last must be read once");
  });
}

bool read_texts(const std::string& path, sequence_layout layout) {
  return fuzz::reads([&] {
    dataset data = json_text_dataset(path, byte_tokenizer(), {.layout = layout, .when_too_long = overlong::truncate});
    check_sizes(data);
    std::size_t sample = 0;
    detail::for_each_record(mapped_file(path), [&](const json& record, std::size_t) {
      fuzz::must(text_of(data, sample++, true) == record["text"].get<std::string>(), "a sample must be the record's text");
    });
    fuzz::must(sample == data.size(), "every record must be a sample");
    check_rows(data);
  });
}

bool read_instructions(const std::string& path, bool packed, overlong when_too_long) {
  return fuzz::reads([&] {
    const instruct_options options{.packed = packed,
                                   .prompt = {.with_input = "{instruction}+{input}=", .without_input = "{instruction}="},
                                   .when_too_long = when_too_long};
    const dataset data = instruct_dataset(path, byte_tokenizer(), options);
    check_sizes(data);
    std::size_t sample = 0;
    detail::for_each_record(mapped_file(path), [&](const json& record, std::size_t) {
      const bool has_input = record.contains("input") && !record["input"].is_null();
      fuzz::must(text_of(data, sample, true) == record["output"].get<std::string>(), "what is learned must be the answer");
      fuzz::must(text_of(data, sample, false) == options.prompt.text(record["instruction"].get<std::string>(),
                                                                     has_input ? record["input"].get<std::string>() : std::string{}),
                 "what is only read must be the prompt");
      ++sample;
    });
    fuzz::must(sample == data.size(), "every record must be a sample");
    check_rows(data);
  });
}

/// Labelled records, as sequences truncated to a few tokens.
bool read_labels(const std::string& path) {
  return fuzz::reads([&] {
    const sentence_dataset data = labelled_dataset(path, byte_tokenizer(), {.second = "input", .label = "output", .seq_length = 12});
    std::size_t record = 0;
    detail::for_each_record(mapped_file(path), [&](const json&, std::size_t) {
      fuzz::must(data.length(record) > 0 && data.length(record) <= 12, "a row must fit the context");
      fuzz::must(data.label(record) >= 0 && static_cast<std::size_t>(data.label(record)) < data.labels.size(), "a label must have a name");
      fuzz::must(data.second(record) <= data.length(record), "a second text must lie in its row");
      ++record;
    });
    fuzz::must(record == data.size(), "every record must be a row");
    const sentence_loader rows(data, {.micro_batch_size = 2, .seq_length = 12, .seed = 1});
    std::vector<host_batch> batches;
    std::size_t labels = 0;
    for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) {
      rows.fill({0, step}, batches);
      for (const host_batch& batch : batches)
        labels += static_cast<std::size_t>(std::count_if(batch.labels.begin(), batch.labels.end(), [](token label) { return label >= 0; }));
    }
    fuzz::must(labels == data.size(), "every row must come once");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = fuzz::folder() / "records.jsonl", text(fuzz::text_of(data, size));
  put_file(path, text);
  json plain, strict;
  const bool is_plain = detail::plain_json_parser(text).parse(plain), is_strict = fuzz::reads([&] { strict = parse_json<data_error>(text, path); });
  fuzz::must(is_plain ? is_strict && plain.dump() == strict.dump() : !is_strict || text.starts_with("\xEF\xBB\xBF"),
             "a record must be parsed to what nlohmann's parser makes of it, or left to it");
  const bool stream = read_texts(path, sequence_layout::stream), packed_texts = read_texts(path, sequence_layout::packed);
  fuzz::must(stream == packed_texts, "whether records are good must not depend on the layout");
  const bool packed = read_instructions(path, true, overlong::truncate);
  const bool separate = read_instructions(path, false, overlong::leave_out);
  fuzz::must(packed == separate, "whether records are good must not depend on the layout");
  const bool labelled = read_labels(path);
  fuzz::accepted = stream || packed || labelled;
  return 0;
}
