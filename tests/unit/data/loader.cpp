// Sample order, against an independent implementation; contents of batches; resuming.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
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
  // Feistel network of four rounds of Philox, computed by an independent program
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
  // a seed above 32 bits; the number of sequences is no power of four
  const dataset twenty = numbers(20);
  CHECK(order_of_epoch(loader(twenty, {.micro_batch_size = 4, .seq_length = 10, .seed = (std::uint64_t{7} << 32) | 9}), 1) ==
        order{8, 13, 0, 5, 4, 10, 2, 14, 16, 19, 9, 1, 17, 7, 12, 15, 11, 6, 18, 3});
}

TEST_CASE("with drop_last an epoch ends with its last whole step") {
  const dataset data = numbers(10);
  loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5, .drop_last = true});
  const loader all(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5});
  CHECK(rows.steps_per_epoch() == 2);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    order expected = order_of_epoch(all, epoch), came;
    expected.resize(8);
    for (int step = 0; step < 2; ++step)
      for (const host_batch& batch : rows.next())
        for (std::size_t r = 0; r < batch.b; ++r) came.push_back(static_cast<std::size_t>(batch.tokens[r * batch.t]) / 10);
    CHECK(came == expected);
  }
  CHECK_THROWS_AS(loader(data, {.micro_batch_size = 11, .seq_length = 10, .drop_last = true}), config_error);
}

TEST_CASE("an epoch that is cut begins as a whole one, and the next begins with an order of its own") {
  const dataset data = numbers(10);
  const loader all(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5});
  for (const bool drop_last : {false, true}) {
    const loader_config cut{
        .micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 10, .seed = 5, .drop_last = drop_last, .max_steps_per_epoch = 1};
    loader rows(data, cut);
    CHECK(rows.steps_per_epoch() == 1);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      CHECK(rows.state() == loader_state{epoch, 0});
      order expected = order_of_epoch(all, epoch), came;
      expected.resize(4);
      for (const host_batch& batch : rows.next())
        for (std::size_t r = 0; r < batch.b; ++r) came.push_back(static_cast<std::size_t>(batch.tokens[r * batch.t]) / 10);
      CHECK(came == expected);
    }
    // from a saved position
    loader resumed(data, cut);
    resumed.restore({3, 0});
    CHECK(resumed.next()[0].tokens[0] == rows.next()[0].tokens[0]);
    CHECK_THROWS_AS(resumed.restore({0, 1}), config_error);
  }
  // longer than an epoch: not cut
  CHECK(loader(data, {.micro_batch_size = 4, .seq_length = 10, .max_steps_per_epoch = 4}).steps_per_epoch() == 3);
  CHECK(loader(data, {.micro_batch_size = 4, .seq_length = 10, .drop_last = true, .max_steps_per_epoch = 4}).steps_per_epoch() == 2);
}

TEST_CASE("ranks and micro-batches of different sizes cut a step alike") {
  const dataset data = numbers(12);
  const order all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<host_batch> batches;
  // micro-batch m of all ranks comes before micro-batch m + 1
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
  CHECK(batches[0].targets == std::vector<token>{2, 3, 4, 5, 6, padding_target, padding_target, padding_target, padding_target});
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

  // a one-token sample has no target and is skipped; another one exactly fills the remaining space
  const dataset several = samples_of({4, 1, 3, 2, 7}, sequence_layout::packed);
  const loader packed(several, {.micro_batch_size = 2, .seq_length = 6, .shuffle = false});
  CHECK(packed.rows() == 2);
  packed.fill({0, 0}, batches);
  CHECK(batches[0].tokens == std::vector<token>{0, 1, 2, 200, 201, 300, 400, 401, 402, 403, 404, 405});
  CHECK(batches[0].targets == std::vector<token>{1, 2, 3, 201, 202, 301, 401, 402, 403, 404, 405, 406});
  CHECK(batches[0].starts == std::vector<token>{0, 0, 0, 3, 3, 5, 0, 0, 0, 0, 0, 0});
  CHECK(packed.unused().all == 5);
  CHECK(packed.unused().left_out == 1);
  CHECK(packed.unused().without_targets == 0);
}

TEST_CASE("a loader that is restored forgets what it had prepared") {
  const dataset data = numbers();
  loader rows(data, {.micro_batch_size = 1, .seq_length = 10, .shuffle = false});
  CHECK(rows.state() == loader_state{0, 0});
  for (int round = 0; round < 50; ++round)  // in any state of the worker
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

namespace {

/// Values tell their origin: token t of sample s is 100 s + t.
dataset samples_with_values(std::initializer_list<std::size_t> lengths, sequence_layout layout, bool of_samples) {
  dataset all("samples", layout);
  std::size_t s = 0;
  for (const std::size_t length : lengths) {
    std::vector<token> tokens, teacher;
    std::vector<float> weights, log_probs;
    for (std::size_t t = 0; t < length; ++t) {
      tokens.push_back(static_cast<token>(100 * s + t));
      weights.push_back(static_cast<float>(tokens.back()) + 0.5F);
      for (const int j : {0, 1}) {
        teacher.push_back(2 * tokens.back() + j);
        log_probs.push_back(-static_cast<float>(teacher.back()));
      }
    }
    sample_values values{.token_weights = weights, .teacher_tokens = teacher, .teacher_log_probs = log_probs};
    if (of_samples) {
      values.label = static_cast<token>(s);
      values.reference_log_prob = -static_cast<double>(s);
    }
    all.add(tokens, [](std::size_t t) { return t % 3 != 1; }, values);
    ++s;
  }
  all.finish();
  return all;
}

}  // namespace

TEST_CASE("what samples have beside tokens comes with them: shuffled, on ranks, packed, truncated, as a stream") {
  for (const sequence_layout layout : {sequence_layout::separate, sequence_layout::packed, sequence_layout::stream}) {
    const bool of_samples = layout == sequence_layout::separate;
    dataset data = samples_with_values({5, 9, 3, 30, 4, 7, 6, 2}, layout, of_samples);
    data.when_too_long = overlong::truncate;
    if (of_samples) {
      data.group_size = 2;
      spilled_array<double> of_length_12;  // made-up model outputs
      for (std::size_t s = 0; s < data.size(); ++s) of_length_12.push_back(-static_cast<double>(s));
      data.set_reference_log_probs(std::move(of_length_12), 12);
    }
    CHECK(data.top_k() == 2);
    std::size_t seen = 0;
    for (const std::size_t rank : {0U, 1U}) {
      const loader rows(data, {.micro_batch_size = 2, .seq_length = 12, .ranks = 2, .rank = rank});
      std::vector<host_batch> batches;
      for (std::size_t step = 0; step < rows.steps_per_epoch(); ++step) {
        rows.fill({1, step}, batches);
        const host_batch& batch = batches.front();
        const std::size_t n = batch.b * batch.t;
        REQUIRE(batch.token_weights.size() == n);
        REQUIRE(batch.teacher_tokens.size() == 2 * n);
        REQUIRE(batch.teacher_log_probs.size() == 2 * n);
        REQUIRE(batch.labels.size() == (of_samples ? batch.b : 0));
        REQUIRE(batch.reference_log_probs.size() == (of_samples ? batch.b : 0));
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t row = i / batch.t;
          if (of_samples && batch.targets[row * batch.t] < 0 && batch.tokens[row * batch.t] == 0 && batch.labels[row] != 0) CHECK(batch.labels[row] == -1);
          if (batch.targets[i] < 0) continue;
          ++seen;
          CHECK(batch.token_weights[i] == static_cast<float>(batch.targets[i]) + 0.5F);
          CHECK(batch.teacher_tokens[2 * i] == 2 * batch.tokens[i]);
          CHECK(batch.teacher_tokens[2 * i + 1] == 2 * batch.tokens[i] + 1);
          CHECK(batch.teacher_log_probs[2 * i + 1] == -static_cast<float>(2 * batch.tokens[i] + 1));
          if (!of_samples) continue;
          CHECK(batch.labels[row] == batch.tokens[i] / 100);
          CHECK(batch.reference_log_probs[row] == -static_cast<double>(batch.tokens[i] / 100));
        }
      }
    }
    CHECK(seen > 20);
  }
  // a dataset without them has none
  const dataset plain = samples_of({5, 6}, sequence_layout::separate);
  std::vector<host_batch> batches;
  loader(plain, {.micro_batch_size = 2, .seq_length = 12}).fill({}, batches);
  CHECK(batches[0].labels.empty());
  CHECK(batches[0].token_weights.empty());
  CHECK(batches[0].teacher_tokens.empty());
}

TEST_CASE("values that do not belong to what is read are refused") {
  const dataset packed = samples_with_values({5, 9}, sequence_layout::packed, true);
  CHECK_THROWS_WITH_AS(loader(packed, {.micro_batch_size = 1, .seq_length = 12}), doctest::Contains("must be sequences of their own"), config_error);
  dataset cut = samples_with_values({5, 9}, sequence_layout::separate, true);
  cut.when_too_long = overlong::truncate;
  CHECK_NOTHROW(loader(cut, {.micro_batch_size = 1, .seq_length = 8}));
  CHECK_THROWS_WITH_AS(loader(cut, {.micro_batch_size = 1, .seq_length = 7}),
                       doctest::Contains("that of sample 2 is of 8 tokens, and the sequence length leaves 7"), data_error);
  spilled_array<double> some;
  some.push_back(-1.0);
  some.push_back(std::nan(""));
  cut.set_reference_log_probs(std::move(some));
  CHECK_THROWS_WITH_AS(loader(cut, {.micro_batch_size = 1, .seq_length = 8}),
                       doctest::Contains("sample 2 must have a reference log-probability that is a finite number"), data_error);

  dataset some_labels("some", sequence_layout::separate);
  some_labels.add(std::vector<token>{1, 2}, [](std::size_t) { return true; }, {.label = 1});
  some_labels.add(std::vector<token>{1, 2}, [](std::size_t) { return true; });
  CHECK_THROWS_WITH_AS(some_labels.finish(), doctest::Contains("every sample must have a label, or none; given 1 for 2"), data_error);
  dataset other_k("k", sequence_layout::separate);
  const std::vector<token> four{1, 2, 3, 4};
  const std::vector<float> log_probs{-1, -2, -3, -4};
  other_k.add(std::span(four).first(2), [](std::size_t) { return true; }, {.teacher_tokens = four, .teacher_log_probs = log_probs});
  CHECK_THROWS_WITH_AS(other_k.add(four, [](std::size_t) { return true; }, {.teacher_tokens = four, .teacher_log_probs = log_probs}),
                       doctest::Contains("k the same for all samples"), data_error);
  CHECK_THROWS_WITH_AS(other_k.add(four, [](std::size_t) { return true; }, {.token_weights = std::span(log_probs).first(3)}),
                       doctest::Contains("a weight for each of its 4 tokens"), data_error);

  // a pair is skipped if truncation leaves one text without a target
  dataset pairs("pairs", sequence_layout::separate);
  pairs.group_size = 2;
  pairs.when_too_long = overlong::truncate;
  for (const std::size_t prompt : {2U, 2U, 2U, 20U})
    pairs.add(std::vector<token>(prompt + 4, 1), [&](std::size_t t) { return t >= prompt; });
  pairs.finish();
  CHECK(loader(pairs, {.micro_batch_size = 2, .seq_length = 8}).rows() == 2);
  CHECK(loader(pairs, {.micro_batch_size = 2, .seq_length = 20}).rows() == 4);
}
