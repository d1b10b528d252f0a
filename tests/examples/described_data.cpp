// A config's datasets, read as in a run.
#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/front_ends/torchtune.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text/byte_tokenizer.hpp>

#include "../../examples/described_data.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// torchtune's config llama3_2/1B_full with these lines as its dataset.
run_description run_with_data(const scratch_folder& folder, const std::string& datasets) {
  std::string text;
  for (const torchtune_config& config : torchtune_configs())
    if (config.name == "llama3_2/1B_full") text = config.text;
  const std::size_t begin = text.find("dataset:\n"), end = text.find("seed:");
  put_file(folder / "config.yaml", text.replace(begin, end - begin, "dataset:\n" + datasets));
  return *torchtune_run("", folder / "config.yaml", {"tokenizer.max_seq_len=512"}).run;
}
dataset read_by_a_run(const run_description& run) {
  command_line::chat_flags chat{.given = run.tokenizer.chat_template};
  chat.find({});
  return command_line::described_data(run.data, byte_tokenizer(), chat, false, run.tokenizer.max_length);
}
/// Every sample: tokens and target flags.
std::vector<std::pair<std::vector<token>, std::vector<bool>>> samples_of(const dataset& data) {
  std::vector<std::pair<std::vector<token>, std::vector<bool>>> all;
  for (std::size_t s = 0; s < data.size(); ++s) {
    all.emplace_back();
    for (std::size_t i = 0; i < data.length(s); ++i) {
      all.back().first.push_back(data.at(data.begin(s) + i));
      all.back().second.push_back(data.is_target(data.begin(s) + i));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("of a folder of text, JSON records are read as text, with a warning; a folder of nothing else holds records") {
  const scratch_folder folder;
  const auto tokens_of = [&](const std::string& path) {
    const data_description data{.kind = "text", .files = {path}};
    return command_line::described_data({data}, byte_tokenizer(), {}).tokens();
  };
  const std::string record = R"({"text": "abc"})" "\n";
  std::filesystem::create_directories(folder / "records");
  put_file(folder / "records/a.jsonl", record + record);
  put_file(folder / "records.jsonl", record + record);
  CHECK(tokens_of(folder / "records") == tokens_of(folder / "records.jsonl"));
  put_file(folder / "records/b.txt", "def\n");
  put_file(folder / "text.txt", "def\n");
  put_file(folder / "same.txt", record + record);
  CHECK(tokens_of(folder / "records") == tokens_of(folder / "same.txt") + tokens_of(folder / "text.txt"));
}

TEST_CASE("a list of torchtune's datasets is read one after the other, each with its own form, fields and targets") {
  const scratch_folder folder;
  put_file(folder / "a.jsonl", "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n{\"instruction\": \"Say a.\", \"output\": \"a\"}\n");
  put_file(folder / "q.jsonl", R"({"question": "Who?", "answer": "I."})" "\n");
  put_file(folder / "t.jsonl", R"({"body": "one"})" "\n" R"({"body": "two"})" "\n" R"({"body": "three"})" "\n");
  const std::string alpaca = "{_component_: torchtune.datasets.alpaca_dataset, source: json, data_files: " + (folder / "a.jsonl") + "}\n";
  const std::string questions = "{_component_: torchtune.datasets.instruct_dataset, source: json, data_files: " + (folder / "q.jsonl") +
                                ", column_map: {input: question, output: answer}}\n";
  const std::string texts =
      "{_component_: torchtune.datasets.text_completion_dataset, source: json, data_files: " + (folder / "t.jsonl") + ", column: body}\n";

  const dataset all = read_by_a_run(run_with_data(folder, "- " + alpaca + "- " + questions + "- " + texts));
  auto expected = samples_of(read_by_a_run(run_with_data(folder, "  " + alpaca)));
  CHECK(expected.size() == 2);
  for (const std::string& one : {questions, texts})
    for (const auto& sample : samples_of(read_by_a_run(run_with_data(folder, "  " + one)))) expected.push_back(sample);
  CHECK(expected.size() == 6);
  CHECK(samples_of(all) == expected);
  CHECK(expected[0].second[5]);        // Alpaca's prompts are learned, by torchtune's default
  CHECK_FALSE(expected[2].second[5]);  // others are not

  const auto packed = [&](std::string one) { return one.insert(one.size() - 2, ", packed: True"); };
  CHECK(read_by_a_run(run_with_data(folder, "- " + packed(alpaca) + "- " + packed(questions))).layout() == sequence_layout::packed);
  // as many positions as in torchtune, whose samples end with <|end_of_text|>, at most 512 tokens with it
  const auto spaced = samples_of(read_by_a_run(run_with_data(folder, "  " + packed(alpaca))));
  CHECK(spaced.size() == 2);
  for (std::size_t s = 0; s < spaced.size(); ++s) {
    auto sample = expected[s];
    sample.first.insert(sample.first.end(), 2, sample.first.back());
    sample.second.insert(sample.second.end(), 2, false);
    CHECK(spaced[s] == sample);
  }
  put_file(folder / "long.jsonl", R"({"body": ")" + std::string(1000, 'a') + "\"}\n");
  const std::string longer = "  {_component_: torchtune.datasets.text_completion_dataset, source: json, data_files: " + (folder / "long.jsonl") +
                             ", column: body, split_across_pack: False}\n";
  const auto cut = samples_of(read_by_a_run(run_with_data(folder, packed(longer))));
  CHECK(cut.size() == 1);
  CHECK(cut[0].first.size() == 512);  // 511 tokens and the gap
  CHECK(cut[0].second[510]);
  CHECK_FALSE(cut[0].second[511]);
  CHECK_THROWS_WITH_AS((void)run_with_data(folder, "- " + packed(alpaca) + "- " + questions), doctest::Contains("must be packed as a whole or not at all"),
                       config_error);
}

TEST_CASE("a text ends with the token that the description names, where the tokenizer has it") {
  const scratch_folder folder;
  put_file(folder / "t.jsonl", R"({"text": "a"})" "\n" R"({"text": "a a"})" "\n");
  put_file(folder / "tokenizer.json", R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "<x>", "special": true},
    {"id": 2, "content": "</s>", "special": true}], "pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "vocab": {"a": 0, "<x>": 1, "</s>": 2}, "unk_token": "a"}})");
  put_file(folder / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})");
  const tokenizer with = load_tokenizer(folder / "");
  const auto ends = [&](const std::string& token) {
    const data_description data{.kind = "text", .files = {folder / "t.jsonl"}, .form = "separate", .end_token = token};
    std::vector<xtrain::token> last;
    for (const auto& sample : samples_of(command_line::described_data({data}, with, {}))) {
      last.push_back(sample.first.back());
      CHECK(sample.second.back());
    }
    return last;
  };
  CHECK(ends("") == std::vector<token>{2, 2});
  CHECK(ends("</s>") == std::vector<token>{2, 2});
  CHECK(ends("<x>") == std::vector<token>{1, 1});
  CHECK(ends("<none>") == std::vector<token>{2, 2});
}
