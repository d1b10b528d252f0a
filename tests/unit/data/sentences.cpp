// Sequences of sentences: construction from texts and records, and masking.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <xtrain/data/labelled_dataset.hpp>
#include <xtrain/data/masked_text_dataset.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

constexpr token pad = 0, cls = 2, sep = 3, mask = 4;

/// Words are single letters; later letters are continuation pieces.
struct letters : scratch_folder {
  letters() {
    std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (char c = 'a'; c <= 'z'; ++c) words += std::string(1, c) + "\n##" + c + "\n";
    put_file(*this / "vocab.txt", words);
  }
  [[nodiscard]] tokenizer with() const { return load_tokenizer(path()); }
};

std::string many_words(std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i)
    text += std::string{static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26), i % 7 == 6 ? '\n' : ' '};
  return text;
}
std::vector<token> tokens_of(const sentence_dataset& data, std::size_t row) {
  std::vector<token> tokens;
  for (std::size_t i = 0; i < data.length(row); ++i) tokens.push_back(data.at(data.begin(row) + i));
  return tokens;
}
std::vector<host_batch> step_of(const sentence_loader& rows, std::size_t epoch, std::size_t step) {
  std::vector<host_batch> batches;
  rows.fill({epoch, step}, batches);
  return batches;
}

}  // namespace

TEST_CASE("a text fills rows between their marks, and loses no word") {
  const letters folder;
  put_file(folder / "t.txt", many_words(100));
  const tokenizer with = folder.with();
  const sentence_dataset data = masked_text_dataset({folder / "t.txt"}, with, {.seq_length = 12});
  std::vector<token> words;
  for (std::size_t row = 0; row < data.size(); ++row) {
    const auto tokens = tokens_of(data, row);
    CHECK(tokens.front() == cls);
    CHECK(tokens.back() == sep);
    CHECK((tokens.size() == 12 || row + 1 == data.size()));
    CHECK_FALSE(data.maskable(data.begin(row)));
    CHECK(data.maskable(data.begin(row) + 1));
    words.insert(words.end(), tokens.begin() + 1, tokens.end() - 1);
  }
  CHECK(words == with.encode(many_words(100)));
  const sentence_dataset lines = masked_text_dataset({folder / "t.txt"}, with, {.seq_length = 8, .lines = true});
  CHECK(lines.size() == 15);
  CHECK(lines.longest() == 8);  // seven words of two tokens are truncated
}

TEST_CASE("of the words 15 of 100 are chosen; of those 80 become the mask, 10 any word, 10 stay; every epoch anew") {
  const letters folder;
  put_file(folder / "t.txt", many_words(20000));
  const sentence_dataset data = masked_text_dataset({folder / "t.txt"}, folder.with(), {.seq_length = 64});
  const sentence_loader rows(data, {.micro_batch_size = 16, .seq_length = 64, .seed = 5});
  std::size_t words = 0, chosen = 0, hidden = 0, same = 0, another = 0;
  for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step)
    for (const host_batch& batch : step_of(rows, 0, step)) {
      words += batch.token_count;
      chosen += batch.target_count;
      for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
        if (batch.targets[i] < 0) continue;
        CHECK((batch.targets[i] > mask && batch.tokens[i] >= 0 && batch.tokens[i] < 57));
        hidden += batch.tokens[i] == mask ? 1 : 0;
        same += batch.tokens[i] == batch.targets[i] ? 1 : 0;
        another += batch.tokens[i] != mask && batch.tokens[i] != batch.targets[i] ? 1 : 0;
      }
    }
  // three standard deviations of a fraction p of n: 3 sqrt(p (1 - p) / n); 2 of 64 tokens are special
  const double n = static_cast<double>(words) * 62 / 64, all = static_cast<double>(chosen);
  CHECK(std::abs(all / n - 0.15) < 3 * std::sqrt(0.15 * 0.85 / n));
  CHECK(std::abs(static_cast<double>(hidden) / all - (0.8 + 0.1 / 57)) < 3 * std::sqrt(0.8 * 0.2 / all));
  CHECK(std::abs(static_cast<double>(same) / all - (0.1 + 0.1 / 57)) < 3 * std::sqrt(0.1 * 0.9 / all));
  CHECK(std::abs(static_cast<double>(another) / all - 0.1 * 55 / 57) < 3 * std::sqrt(0.1 * 0.9 / all));

  // masking is a function of epoch and seed
  const auto targets = [&](const sentence_loader& of, std::size_t epoch) { return step_of(of, epoch, 1).front().targets; };
  CHECK(targets(rows, 3) == targets(rows, 3));
  const sentence_loader in_order(data, {.micro_batch_size = 16, .seq_length = 64, .shuffle = false, .seed = 5});
  const sentence_loader other(data, {.micro_batch_size = 16, .seq_length = 64, .shuffle = false, .seed = 6});
  CHECK(targets(in_order, 0) != targets(in_order, 1));
  CHECK(targets(in_order, 0) != targets(other, 0));
}

TEST_CASE("words are masked whole where that is asked for") {
  const letters folder;
  put_file(folder / "t.txt", "abcd efg h ijklm nop qr stuv wxyz\n" + many_words(500));
  const sentence_dataset data = masked_text_dataset({folder / "t.txt"}, folder.with(),
                                                    {.seq_length = 32, .masking = {.as_mask = 1.0, .as_any = 0.0, .whole_words = true}});
  const sentence_loader rows(data, {.micro_batch_size = 8, .seq_length = 32, .shuffle = false});
  std::size_t whole = 0;
  for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step)
    for (const host_batch& batch : step_of(rows, 0, step))
      for (std::size_t r = 0; r < batch.b; ++r) {
        const std::size_t row = step * 8 + r;
        for (std::size_t i = 2; row < data.size() && i + 1 < data.length(row); ++i) {
          if (!data.continues(data.begin(row) + i)) continue;
          REQUIRE((batch.targets[r * batch.t + i] >= 0) == (batch.targets[r * batch.t + i - 1] >= 0));
          whole += batch.targets[r * batch.t + i] >= 0 ? 1 : 0;
        }
      }
  CHECK(whole > 20);
}

TEST_CASE("ranks get the rows that one rank would have, masked alike") {
  const letters folder;
  put_file(folder / "t.txt", many_words(200));
  const sentence_dataset data = masked_text_dataset({folder / "t.txt"}, folder.with(), {.seq_length = 16});
  const sentence_loader one(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 16});
  const auto whole = step_of(one, 1, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const sentence_loader part(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 1, .seq_length = 16, .ranks = 2, .rank = rank});
    const auto mine = step_of(part, 1, 2);
    CHECK(mine.front().tokens == whole[rank].tokens);
    CHECK(mine.front().targets == whole[rank].targets);
    CHECK(mine.front().first_sequence == whole[rank].first_sequence);
  }
}

TEST_CASE("a row is padded to the longest of its step, a row that is not there sees nothing and has nothing to find") {
  const letters folder;
  put_file(folder / "t.txt", "a b c\na\n");
  sentence_dataset data = masked_text_dataset({folder / "t.txt"}, folder.with(), {.seq_length = 16, .lines = true, .masking = {.share = 1.0}});
  sentence_loader rows(data, {.micro_batch_size = 3, .seq_length = 16, .shuffle = false, .pad_to_multiple_of = 1});
  const host_batch batch = rows.next().front();
  CHECK(batch.t == 5);
  CHECK(batch.ends == std::vector<token>{5, 5, 5, 5, 5, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1});
  CHECK(batch.target_count == 4);
  CHECK(batch.token_count == 8);
  CHECK(batch.tokens[8] == pad);
  CHECK(rows.state() == loader_state{1, 0});
  CHECK_THROWS_WITH_AS(rows.restore({0, 1}), doctest::Contains("must exist in the data"), config_error);
  CHECK_THROWS_WITH_AS(sentence_loader(data, {.micro_batch_size = 3, .seq_length = 4}),
                       doctest::Contains("must fit the sequence length of 4 tokens; the longest has 5"), data_error);
}

TEST_CASE("pairs are neighbours or strangers, half of them each") {
  const letters folder;
  std::string text;
  for (int document = 0; document < 26; ++document) {  // one letter per document
    for (int line = 0; line < 60; ++line) text += std::string(3, static_cast<char>('a' + document)) + "\n";
    text += "\n\n";
  }
  put_file(folder / "t.txt", text);
  const sentence_dataset data = sentence_pair_dataset({folder / "t.txt"}, folder.with(), {.seq_length = 24});
  CHECK(data.labels.size() == 2);
  std::size_t strangers = 0;
  for (std::size_t row = 0; row < data.size(); ++row) {
    const auto tokens = tokens_of(data, row);
    const std::size_t second = data.second(row);
    REQUIRE((tokens.size() <= 24 && tokens.front() == cls && tokens.back() == sep && tokens[second - 1] == sep && second > 2 &&
             second + 1 < tokens.size()));
    REQUIRE((data.label(row) == 0) == ((tokens[1] - 5) / 2 == (tokens[second] - 5) / 2));  // the two tokens of a letter are adjacent ids
    strangers += data.label(row) == 1 ? 1 : 0;
  }
  const double n = static_cast<double>(data.size());
  CHECK(n > 200);
  CHECK(static_cast<double>(strangers) / n > 0.5 - 3 * std::sqrt(0.25 / n));
  CHECK(static_cast<double>(strangers) / n < 0.5 + 3 * std::sqrt(0.25 / n) + 26 / n);  // each document's last sequence
  put_file(folder / "one.txt", "a\nb\n");
  CHECK_THROWS_WITH_AS((void)sentence_pair_dataset({folder / "one.txt"}, folder.with(), {.seq_length = 24}),
                       doctest::Contains("two documents"), data_error);
}

TEST_CASE("records become rows with labels, one text or two") {
  const letters folder;
  put_file(folder / "a.jsonl", "{\"text\": \"a b\", \"label\": \"good\"}\n{\"text\": \"c\", \"label\": \"bad\"}\n");
  const tokenizer with = folder.with();
  const sentence_dataset one = labelled_dataset(folder / "a.jsonl", with);
  CHECK(one.labels == std::vector<std::string>{"bad", "good"});
  CHECK((one.label(0) == 1 && one.label(1) == 0));
  CHECK(tokens_of(one, 0) == with.encode_whole("a b").ids());
  CHECK(one.second(0) == 4);
  put_file(folder / "b.json", R"([{"q": "a", "p": "b c d e", "n": 10}, {"q": "a", "p": "b", "n": 2}])");
  const sentence_dataset two = labelled_dataset(folder / "b.json", with, {.text = "q", .second = "p", .label = "n", .seq_length = 6});
  CHECK(two.labels == std::vector<std::string>{"2", "10"});
  CHECK(two.length(0) == 6);  // [CLS] a [SEP] b c [SEP]: the longer text is truncated
  CHECK(two.second(0) == 3);
  sentence_loader rows(two, {.micro_batch_size = 2, .seq_length = 6, .shuffle = false, .pad_to_multiple_of = 1});
  const host_batch batch = rows.next().front();
  CHECK(batch.labels == std::vector<token>{1, 0});
  CHECK(batch.segments == std::vector<token>{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0});
  CHECK(batch.target_count == 0);
}

TEST_CASE("records that are not what they should be are refused with file and line") {
  const letters folder;
  const auto refused = [&](const char* records, const char* words, const labelled_options& options = {}) {
    put_file(folder / "x.jsonl", records);
    CHECK_THROWS_WITH_AS((void)labelled_dataset(folder / "x.jsonl", folder.with(), options), doctest::Contains(words), error);
  };
  refused("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"}\n", "x.jsonl: line 2: a record must have 'label'");
  refused("{\"text\": \"a\", \"label\": 1.5}\n", "line 1: 'label' must be a string, a whole number, or true or false; it is 1.5");
  refused("{\"text\": 1, \"label\": 1}\n", "line 1: 'text' must be a string");
  refused("[1]\n", "line 1: a record must be an object");
  refused("{\"text\": \"a\", \"label\": \"c\"}\n", "must be one of the 2 labels that are known, the first of them 'a'; given 'c'",
          {.labels = {"a", "b"}});
  refused("{\"text\": \"a\", \"label\": 1}\n", "must have room for the 2 special tokens around a text", {.seq_length = 2});
  refused("", "is empty");
  CHECK_THROWS_WITH_AS((void)masked_text_dataset({folder / "x.jsonl"}, byte_tokenizer(), {.seq_length = 8}),
                       doctest::Contains("must have a token [CLS]"), config_error);
  CHECK_THROWS_WITH_AS((void)masked_text_dataset({folder / "x.jsonl"}, folder.with(), {.seq_length = 8}), doctest::Contains("it is empty"),
                       data_error);
  put_file(folder / "t.txt", "a");
  CHECK_THROWS_WITH_AS((void)masked_text_dataset({folder / "t.txt"}, folder.with(), {.seq_length = 8, .masking = {.share = 0.0}}),
                       doctest::Contains("share must be in (0, 1]"), config_error);
}
