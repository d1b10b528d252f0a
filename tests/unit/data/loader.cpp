// The order of samples, compared with an independent implementation; the contents of batches; resuming.
#include <doctest/doctest.h>

#include <cstddef>
#include <numeric>
#include <vector>

#include <xtrain/data/loader.hpp>

using namespace xtrain;

namespace {

/// Sequences of ten tokens; the first of sequence r is 10 r.
dataset numbers(std::size_t rows = 10) {
  dataset data("numbers", sequence_layout::stream);
  std::vector<token> tokens(10 * rows + 1);
  std::iota(tokens.begin(), tokens.end(), 0);
  data.add(tokens);
  data.finish();
  return data;
}

dataset samples_of(std::initializer_list<std::size_t> lengths, sequence_layout layout) {
  dataset all("samples", layout);
  token next = 0;
  for (const std::size_t length : lengths) {
    std::vector<token> tokens(length);
    std::iota(tokens.begin(), tokens.end(), next);
    next += 100;
    all.add(tokens);
  }
  all.finish();
  return all;
}

std::vector<std::size_t> order_of_epoch(const loader& rows, std::size_t epoch) {
  std::vector<std::size_t> order;
  std::vector<host_batch> batches;
  for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) {
    rows.fill({epoch, step}, batches);
    for (const host_batch& batch : batches)
      for (std::size_t r = 0; r < batch.b; ++r)
        if (batch.targets[r * batch.t] >= 0) order.push_back(static_cast<std::size_t>(batch.tokens[r * batch.t]) / 10);
  }
  return order;
}

using order = std::vector<std::size_t>;

}  // namespace

TEST_CASE("the order of every epoch is that of the cipher, another in each") {
  const dataset data = numbers();
  // a Feistel network of four rounds of Philox, computed by an independent program
  const order first{8, 1, 4, 5, 6, 9, 2, 3, 0, 7}, second{8, 9, 0, 3, 5, 1, 6, 7, 4, 2}, third{8, 0, 1, 6, 2, 7, 4, 5, 3, 9};
  loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5});
  CHECK(order_of_epoch(rows, 0) == first);
  CHECK(order_of_epoch(rows, 1) == second);
  CHECK(order_of_epoch(rows, 2) == third);
  order came;
  for (int step = 0; step < 9; ++step)  // three steps per epoch
    for (const host_batch& batch : rows.next())
      for (std::size_t r = 0; r < batch.b; ++r)
        if (batch.targets[r * batch.t] >= 0) came.push_back(static_cast<std::size_t>(batch.tokens[r * batch.t]) / 10);
  order expected = first;
  expected.insert(expected.end(), second.begin(), second.end());
  expected.insert(expected.end(), third.begin(), third.end());
  CHECK(came == expected);
  CHECK(order_of_epoch(loader(data, {.micro_batch_size = 3, .seq_length = 10, .shuffle = false}), 4) == order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  // a seed of more than 32 bits, and a number of sequences that is not a power of four
  const dataset twenty = numbers(20);
  CHECK(order_of_epoch(loader(twenty, {.micro_batch_size = 4, .seq_length = 10, .seed = (std::uint64_t{7} << 32) | 9}), 1) ==
        order{8, 13, 0, 5, 4, 10, 2, 14, 16, 19, 9, 1, 17, 7, 12, 15, 11, 6, 18, 3});
}

TEST_CASE("ranks and micro-batches of different sizes cut a step alike") {
  const dataset data = numbers(12);
  const order all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<host_batch> batches;
  // micro-batch m of every rank comes before micro-batch m + 1 of any rank
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const loader rows(data, {.micro_batch_size = 3,
                             .gradient_accumulation_steps = 2,
                             .seq_length = 10,
                             .shuffle = false,
                             .ranks = 2,
                             .rank = rank,
                             .micro_batch_sizes = {2, 4}});
    CHECK(rows.sequences_per_step() == 12);
    rows.fill({0, 0}, batches);
    REQUIRE(batches.size() == 2);
    CHECK(batches[0].b == 2);
    CHECK(batches[1].b == 4);
    CHECK(batches[0].first_sequence == 2 * rank);
    CHECK(batches[1].first_sequence == 4 + 4 * rank);
    for (std::size_t r = 0; r < 2; ++r) CHECK(batches[0].tokens[10 * r] == static_cast<token>(10 * (2 * rank + r)));
    for (std::size_t r = 0; r < 4; ++r) CHECK(batches[1].tokens[10 * r] == static_cast<token>(10 * (4 + 4 * rank + r)));
    CHECK(batches[0].token_count == 20);
    CHECK(batches[1].target_count == 40);
  }
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .gradient_accumulation_steps = 2, .seq_length = 10, .micro_batch_sizes = {2, 5}}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .gradient_accumulation_steps = 2, .seq_length = 10, .micro_batch_sizes = {6}}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .gradient_accumulation_steps = 2, .seq_length = 10, .micro_batch_sizes = {1, 2, 3}}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .gradient_accumulation_steps = 0, .seq_length = 10}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .seq_length = 0}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .seq_length = 10, .pad_to_multiple_of = 0}), config_error);
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 3, .seq_length = 10, .ranks = 2, .rank = 2}), config_error);
  CHECK_NOTHROW(loader(data, {.micro_batch_size = 1, .seq_length = 1, .pad_to_multiple_of = 1}));
}

TEST_CASE("a batch whole: rows, a row that is shorter than its stream, and one that is not there") {
  dataset data("numbers", sequence_layout::stream);
  data.add(std::vector<token>{1, 2, 3, 4, 5, 6});
  data.finish();
  const loader rows(data, {.micro_batch_size = 3, .seq_length = 3, .shuffle = false, .pad_token_id = 9});
  CHECK(rows.rows() == 2);
  std::vector<host_batch> batches;
  rows.fill({0, 0}, batches);
  REQUIRE(batches.size() == 1);
  CHECK(batches[0].tokens == std::vector<token>{1, 2, 3, 4, 5, 9, 9, 9, 9});
  CHECK(batches[0].targets == std::vector<token>{2, 3, 4, 5, 6, -1, -1, -1, -1});
  CHECK(batches[0].positions == std::vector<token>{0, 1, 2, 0, 1, 2, 0, 1, 2});
  CHECK(batches[0].starts == std::vector<token>(9, 0));
  CHECK(batches[0].target_count == 5);
  CHECK(batches[0].token_count == 5);
}

TEST_CASE("padding is a sample of its own, behind rows of one sample and of several") {
  std::vector<host_batch> batches;
  const dataset data = samples_of({4, 6, 3}, sequence_layout::separate);
  const loader separate(data, {.micro_batch_size = 2, .seq_length = 20, .shuffle = false, .pad_token_id = 7, .pad_to_multiple_of = 4});
  CHECK(separate.steps_per_epoch() == 2);
  separate.fill({0, 0}, batches);
  REQUIRE(batches[0].t == 8);  // five inputs, padded to a multiple of four
  CHECK(batches[0].tokens == std::vector<token>{0, 1, 2, 7, 7, 7, 7, 7, 100, 101, 102, 103, 104, 7, 7, 7});
  CHECK(batches[0].starts == std::vector<token>{0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 5, 5, 5});
  CHECK(batches[0].positions == std::vector<token>{0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2});
  separate.fill({0, 1}, batches);
  CHECK(batches[0].t == 4);
  CHECK(batches[0].tokens == std::vector<token>{200, 201, 7, 7, 7, 7, 7, 7});
  const loader narrow(data, {.micro_batch_size = 2, .seq_length = 6, .shuffle = false, .pad_to_multiple_of = 4});
  narrow.fill({0, 0}, batches);
  CHECK(batches[0].t == 6);  // at most the sequence length

  // a sample of one token has no target and is in no sequence; one that exactly fills the remaining space of a sequence is in it
  const dataset several = samples_of({4, 1, 3, 2, 7}, sequence_layout::packed);
  const loader packed(several, {.micro_batch_size = 2, .seq_length = 6, .shuffle = false});
  CHECK(packed.rows() == 2);
  packed.fill({0, 0}, batches);
  CHECK(batches[0].tokens == std::vector<token>{0, 1, 2, 200, 201, 300, 400, 401, 402, 403, 404, 405});
  CHECK(batches[0].targets == std::vector<token>{1, 2, 3, 201, 202, 301, 401, 402, 403, 404, 405, 406});
  CHECK(batches[0].starts == std::vector<token>{0, 0, 0, 3, 3, 5, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a loader that is restored forgets what it had prepared") {
  const dataset data = numbers();
  loader rows(data, {.micro_batch_size = 1, .seq_length = 10, .shuffle = false});
  CHECK(rows.state() == loader_state{0, 0});
  for (int round = 0; round < 50; ++round)  // whatever state the worker is in
    for (const std::size_t step : {7UL, 2UL, 9UL}) {
      rows.restore({1, step});
      REQUIRE(rows.next()[0].tokens[0] == static_cast<token>(10 * step));
      REQUIRE(rows.state() == (step == 9 ? loader_state{2, 0} : loader_state{1, step + 1}));
    }
  CHECK_THROWS_AS(rows.restore({0, 10}), config_error);
  CHECK_NOTHROW(rows.restore({0, 9}));
}

TEST_CASE("data of which no sample fits is refused") {
  dataset data = samples_of({12, 13}, sequence_layout::separate);
  data.when_too_long = overlong::leave_out;
  CHECK_THROWS_WITH_AS(loader(data, {.micro_batch_size = 1, .seq_length = 4}), doctest::Contains("must hold samples that fit the sequence length of 4 tokens"),
                       data_error);
}

TEST_CASE("samples that stay together do so in every epoch, on every rank, and are left out together") {
  const auto pairs = [](std::size_t long_one) {
    dataset data("pairs", sequence_layout::separate);
    data.group_size = 2;
    data.when_too_long = overlong::leave_out;
    for (token i = 0; i < 22; ++i) data.add(std::vector<token>(static_cast<std::size_t>(i) == long_one ? 20U : 3U + static_cast<std::size_t>(i) % 3, i));
    data.finish();
    return data;
  };
  const dataset data = pairs(7);
  for (const std::size_t ranks : {1U, 2U}) {
    std::vector<std::vector<token>> epochs;
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<token> seen;
      for (std::size_t step = 0; step * 4 * ranks < 20; ++step) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 8, .ranks = ranks, .rank = rank});
          CHECK(rows.rows() == 20);
          std::vector<host_batch> batches;
          rows.fill({epoch, step}, batches);
          for (const host_batch& batch : batches) {
            const token chosen = batch.tokens[0], rejected = batch.tokens[batch.t];
            if (batch.target_count == 0) continue;  // the last step has fewer
            CHECK(chosen % 2 == 0);
            CHECK(rejected == chosen + 1);
            CHECK(chosen != 6);
            seen.push_back(chosen);
          }
        }
      }
      CHECK(seen.size() == 10);
      epochs.push_back(seen);
      std::sort(seen.begin(), seen.end());
      CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    }
    CHECK(epochs[0] != epochs[1]);
  }
  CHECK_THROWS_WITH_AS(loader(data, {.micro_batch_size = 3, .seq_length = 8}), doctest::Contains("whole groups of 2"), config_error);
  dataset odd = pairs(99);
  odd.group_size = 3;
  CHECK_THROWS_WITH_AS(loader(odd, {.micro_batch_size = 3, .seq_length = 8}), doctest::Contains("whole groups of 3"), data_error);
  dataset packed("packed", sequence_layout::packed);
  packed.group_size = 2;
  packed.add(std::vector<token>{1, 2, 3});
  packed.add(std::vector<token>{1, 2, 3});
  packed.finish();
  CHECK_THROWS_WITH_AS(loader(packed, {.micro_batch_size = 2, .seq_length = 8}), doctest::Contains("must be sequences of their own"), config_error);
  dataset empty("empty", sequence_layout::separate);
  empty.group_size = 2;
  empty.add(std::vector<token>{1, 2, 3});
  empty.add(std::vector<token>{1});
  empty.finish();
  CHECK_THROWS_WITH_AS(loader(empty, {.micro_batch_size = 2, .seq_length = 8}), doctest::Contains("at least 2 tokens each; sample 2 has 1"), data_error);
}
