// Sequences of sentences: arrays of a batch, sequences of each rank, flags of each token.
#include <doctest/doctest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/data/masked_text_dataset.hpp>
#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// Sequence r has lengths[r] tokens: 10 · r, 10 · r + 1, ...
sentence_dataset rows_of(const std::vector<std::size_t>& lengths) {
  sentence_dataset data("rows");
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    sentence_row one;
    for (std::size_t i = 0; i < lengths[row]; ++i) one.add(static_cast<token>(10 * row + i), true);
    one.label = static_cast<token>(row % 2);
    data.add(one);
  }
  data.finish();
  return data;
}

}  // namespace

TEST_CASE("a dataset of rows remembers of each token what was said of it") {
  sentence_row row;
  row.add(0, false);
  row.add(7, true);
  row.add(8, true, true);
  row.add(3, false);
  row.add((1 << 29) - 1, true);
  row.second = 4;
  sentence_dataset data("rows");
  data.add(row);
  sentence_row bad;
  bad.add(9, true);
  bad.add(-1, true);
  CHECK_THROWS_AS(data.add(bad), data_error);  // nothing is stored
  row.clear();
  row.add(5, true);
  data.add(row);
  CHECK(data.longest() == 5);
  CHECK_FALSE(data.has_labels());
  CHECK_THROWS_WITH_AS(data.finish(), doctest::Contains("labels or tokens to mask"), data_error);
  data.masking = word_masking{.mask = 4, .vocab_size = 5};
  const std::vector<token> tokens{0, 7, 8, 3, (1 << 29) - 1, 5};
  const std::vector<bool> maskable{false, true, true, false, true, true}, continues{false, false, true, false, false, false};
  for (std::size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(data.at(i) == tokens[i]);
    CHECK(data.maskable(i) == maskable[i]);
    CHECK(data.continues(i) == continues[i]);
  }
  CHECK(std::pair(data.second(0), data.second(1)) == std::pair<std::size_t, std::size_t>(4, 1));
  CHECK(data.label(0) == -1);
  CHECK(data.largest_token() == (1 << 29) - 1);
  row.tokens[0] = 1 << 29;
  CHECK_THROWS_AS(data.add(row), data_error);

  sentence_dataset small = rows_of({3});
  CHECK(small.has_labels());  // label 0 is a label
  CHECK(small.longest() == 3);
  CHECK_NOTHROW(require_tokens_below(small, 3));
  CHECK_THROWS_AS(require_tokens_below(small, 2), data_error);
  small.masking = word_masking{.mask = 0, .vocab_size = 9};
  CHECK_THROWS_AS(require_tokens_below(small, 8), data_error);
  CHECK_NOTHROW(require_tokens_below(small, 9));
}

TEST_CASE("steps of rows, epoch after epoch: who gets which, how long, where they go on") {
  const sentence_dataset data = rows_of({3, 5, 2, 4, 6, 3, 3});
  sentence_loader rows(data, {.micro_batch_size = 1,
                              .gradient_accumulation_steps = 2,
                              .seq_length = 7,
                              .shuffle = false,
                              .pad_token_id = 99,
                              .ranks = 2,
                              .rank = 1,
                              .pad_to_multiple_of = 4});
  CHECK(rows.sequences_per_step() == 4);
  CHECK(rows.steps_per_epoch() == 2);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    CHECK(rows.state() == loader_state{epoch, 0});
    const auto first = rows.next();
    CHECK(rows.state() == loader_state{epoch, 1});
    REQUIRE(first.size() == 2);
    CHECK(std::pair(first[0].first_sequence, first[1].first_sequence) == std::pair<std::size_t, std::size_t>(1, 3));
    CHECK(first[0].t == 7);  // five, padded to a multiple of four, at most the sequence length
    CHECK(first[0].tokens == std::vector<token>{10, 11, 12, 13, 14, 99, 99});
    CHECK(first[0].positions == std::vector<token>{0, 1, 2, 3, 4, 5, 6});
    CHECK(first[0].ends == std::vector<token>(7, 5));
    CHECK(first[0].segments == std::vector<token>(7, 0));
    CHECK(first[0].targets == std::vector<token>(7, -1));
    CHECK(first[0].labels == std::vector<token>{1});
    CHECK(first[0].token_count == 5);
    CHECK(first[1].tokens == std::vector<token>{30, 31, 32, 33, 99, 99, 99});
    const auto second = rows.next();
    CHECK(second[0].tokens == std::vector<token>{50, 51, 52, 99, 99, 99, 99});
    CHECK(second[1].tokens == std::vector<token>(7, 99));  // there are only seven sequences
    CHECK(second[1].labels == std::vector<token>{-1});
    CHECK(second[1].ends == std::vector<token>(7, 1));
    CHECK(second[1].token_count == 0);
  }
  rows.restore({5, 1});
  CHECK(rows.state() == loader_state{5, 1});
  CHECK(rows.next()[0].tokens[0] == 50);
  const sentence_loader exact(data, {.micro_batch_size = 7, .seq_length = 6, .shuffle = false});
  CHECK(exact.steps_per_epoch() == 1);
  sentence_loader whole(data, {.micro_batch_size = 2, .seq_length = 9, .shuffle = false, .drop_last = true});
  CHECK(whole.steps_per_epoch() == 3);
  CHECK_THROWS_WITH_AS(sentence_loader(data, {.micro_batch_size = 8, .seq_length = 9, .drop_last = true}),
                       doctest::Contains("with drop_last an epoch must fill a step of 8 sequences; it has 7"), config_error);
  sentence_loader cut(data, {.micro_batch_size = 2, .seq_length = 9, .shuffle = false, .max_steps_per_epoch = 2});
  CHECK(cut.steps_per_epoch() == 2);
  for (int step = 0; step < 2; ++step) (void)cut.next();
  CHECK(cut.state() == loader_state{1, 0});
  CHECK(cut.next()[0].tokens[0] == 0);
  const sentence_loader shorter(data, {.micro_batch_size = 2, .seq_length = 9, .shuffle = false, .pad_to_multiple_of = 3});
  std::vector<host_batch> batches;
  shorter.fill({0, 3}, batches);
  CHECK(batches[0].t == 3);
  CHECK(batches[0].positions == std::vector<token>{0, 1, 2, 0, 1, 2});
  for (const loader_config& bad :
       {loader_config{.micro_batch_size = 0, .seq_length = 9}, loader_config{.gradient_accumulation_steps = 0, .seq_length = 9},
        loader_config{.seq_length = 0}, loader_config{.seq_length = 9, .pad_to_multiple_of = 0},
        loader_config{.seq_length = 9, .ranks = 2, .rank = 2}})
    CHECK_THROWS_AS(sentence_loader(data, bad), config_error);
}

TEST_CASE("arrays of other programs become a batch, each in its place") {
  const std::vector<token> tokens{5, 6, 7, 8, 9, 1}, segments{0, 0, 1, 0, 1, 0}, mask{1, 1, 1, 1, 1, 0}, targets{-1, 3, 0, -1, 2, -1}, labels{4, -1};
  const host_batch batch = sentence_batch(
      {.b = 2, .t = 3, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets, .labels = labels}, 6);
  CHECK(std::pair(batch.b, batch.t) == std::pair<std::size_t, std::size_t>(2, 3));
  CHECK(batch.tokens == tokens);
  CHECK(batch.segments == segments);
  CHECK(batch.targets == targets);
  CHECK(batch.labels == labels);
  CHECK(batch.positions == std::vector<token>{0, 1, 2, 0, 1, 2});
  CHECK(batch.ends == std::vector<token>{3, 3, 3, 2, 2, 2});
  CHECK(batch.target_count == 3);
  CHECK(batch.token_count == 5);
  CHECK(batch.first_sequence == 6);
  const host_batch plain = sentence_batch({.b = 2, .t = 3, .tokens = tokens});
  CHECK(plain.targets == std::vector<token>(6, -1));
  CHECK(plain.ends == std::vector<token>(6, 3));
  CHECK(plain.segments.empty());
  CHECK(plain.token_count == 6);
  CHECK(plain.first_sequence == 0);
  const std::vector<token> hole{1, 0, 1, 1, 1, 1}, none{1, 1, 1, 0, 0, 0};
  CHECK_THROWS_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .mask = hole}), data_error);
  CHECK_THROWS_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .mask = none}), data_error);
  CHECK_THROWS_AS((void)sentence_batch({.b = 2, .t = 3}), shape_error);
  CHECK_THROWS_AS((void)sentence_batch({.b = 2, .t = 2, .tokens = tokens}), shape_error);
  CHECK_THROWS_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .labels = tokens}), shape_error);
}

TEST_CASE("the tokens around sentences are never masked, in pairs as in rows of one text") {
  const scratch_folder folder;
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char c = 'a'; c <= 'z'; ++c) words += std::string(1, c) + "\n";
  put_file(folder / "vocab.txt", words);
  std::string text;
  for (int document = 0; document < 12; ++document) {
    for (int line = 0; line < 9; ++line) text += std::string{static_cast<char>('a' + document), ' ', static_cast<char>('m' + line), '\n'};
    text += "\n";
  }
  put_file(folder / "t.txt", text);
  const tokenizer with = load_tokenizer(folder.path());
  for (const sentence_dataset& data :
       {sentence_pair_dataset({folder / "t.txt"}, with, {.seq_length = 16}), masked_text_dataset({folder / "t.txt"}, with, {.seq_length = 16})})
    for (std::size_t i = 0; i < data.tokens(); ++i) {
      CAPTURE(i);
      REQUIRE(data.maskable(i) == (data.at(i) > 4));
      REQUIRE_FALSE(data.continues(i));
    }
  CHECK_NOTHROW((void)masked_text_dataset({folder / "t.txt"}, with, {.seq_length = 4}));
  CHECK_THROWS_AS((void)masked_text_dataset({folder / "t.txt"}, with, {.seq_length = 3}), config_error);
}

TEST_CASE("a document that comes in pieces has as many targets as one that comes at once") {
  const auto count = [](const std::vector<std::vector<token>>& pieces) {
    dataset data("pieces", sequence_layout::stream);
    for (const auto& piece : pieces) data.extend(piece);
    data.finish();
    return data.tokens();
  };
  CHECK(count({{1, 2}, {}, {3}}) == 3);
  CHECK(count({{}, {1}, {2}}) == 2);
  CHECK_THROWS_WITH_AS((void)count({{1}}), doctest::Contains("it is empty"), data_error);
  CHECK_THROWS_WITH_AS((void)count({{}}), doctest::Contains("it is empty"), data_error);
  // a sample's first token is never a target: two one-token samples have no target
  dataset two("two", sequence_layout::separate);
  for (const token t : {1, 2}) {
    two.extend(std::vector<token>{t});
    two.end_sample();
  }
  CHECK(two.longest() == 1);
  CHECK_THROWS_WITH_AS(two.finish(), doctest::Contains("every token belongs to a prompt"), data_error);
  dataset three("three", sequence_layout::separate);
  three.add(std::vector<token>{1, 2, 3});
  three.add(std::vector<token>{4, 5});
  three.finish();
  CHECK(three.longest() == 3);
}
