// Growing global batch sizes, against Megatron-LM's calculator written out step by step; sequences of each step.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/data/loader.hpp>

using namespace xtrain;

namespace {

/// Samples of four tokens: sample s begins with 10 s.
class numbered final : public sample_source {
 public:
  explicit numbered(std::size_t size) : size_(size) {}
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t seq_length() const override { return 3; }
  [[nodiscard]] std::size_t vocab_size() const override { return 100'000; }
  void read(std::size_t sample, std::size_t first, std::span<token> into) const override {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<token>(10 * sample + first + i);
  }

 private:
  std::size_t size_;
};

}  // namespace

TEST_CASE("sizes of steps are Megatron-LM's") {
  struct one {
    std::size_t full;
    batch_size_rampup rampup;
    std::size_t multiple;
  };
  for (const one& each : {one{2048, {192, 16, 9'765'625}, 16}, one{8, {2, 2, 100}, 2}, one{8, {2, 2, 96}, 2}, one{64, {8, 56, 1}, 8},
                                               one{12, {3, 3, 7}, 3}, one{100, {1, 1, 1000}, 1}, one{100, {1, 1, 10}, 1}, one{30, {10, 10, 3'000}, 5}}) {
    const std::size_t full = each.full;
    const batch_size_rampup& rampup = each.rampup;
    CAPTURE(full);
    CAPTURE(rampup.samples);
    const global_batch_sizes sizes(full, rampup, each.multiple);
    const double per_increment = static_cast<double>(rampup.samples) / static_cast<double>((full - rampup.start) / rampup.increment);
    std::size_t consumed = 0, wrong = 0, step = 0;
    for (; consumed < 2 * rampup.samples + 5 * full; ++step) {
      const std::size_t size = consumed > rampup.samples
                                   ? full
                                   : rampup.start + static_cast<std::size_t>(static_cast<double>(consumed) / per_increment) * rampup.increment;
      wrong += sizes.of(step) == size && sizes.before(step) == consumed ? 0 : 1;
      wrong += sizes.whole_steps(consumed) == step && sizes.whole_steps(consumed + size - 1) == step ? 0 : 1;
      consumed += size;
    }
    CHECK(wrong == 0);
    CHECK(step > 5);
  }
  const global_batch_sizes equal(8, {}, 2);
  CHECK(equal.of(7) == 8);
  CHECK(equal.before(7) == 56);
  CHECK(equal.whole_steps(57) == 7);
}

TEST_CASE("ramp-ups that cannot be are refused") {
  const auto refused = [](const batch_size_rampup& rampup, const char* part) {
    CHECK_THROWS_WITH_AS(global_batch_sizes(32, rampup, 4), doctest::Contains(part), config_error);
  };
  refused({32, 4, 100}, "must start below the global batch size, 32; given 32");
  refused({8, 0, 100}, "the increment must divide the global batch size minus the start, 32 - 8; given 0");
  refused({8, 16, 100}, "the increment must divide the global batch size minus the start, 32 - 8; given 16");
  refused({6, 2, 100}, "start and increment must be divisible by micro-batch size x data-parallel ranks, 4; given 6 and 2");
  refused({8, 8, 0}, "must be over a positive number of samples below 2^53; given 0");
}

TEST_CASE("a loader gives every step its sequences, in the data's order") {
  const dataset data("numbered", std::make_shared<numbered>(66));
  const batch_size_rampup rampup{4, 4, 20};
  for (const std::size_t ranks : {1U, 2U}) {
    CAPTURE(ranks);
    std::vector<std::vector<std::size_t>> steps;  // of all ranks together
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 6 / ranks, .seq_length = 3, .ranks = ranks, .rank = rank, .drop_last = true,
                         .rampup = rampup});
      // batches of 4 after 0, 4 and 8 sequences, 8 after 12, 12 after 20, 32 and 44; after 56, ten are left
      REQUIRE(rows.steps_per_epoch() == 7);
      steps.resize(rows.steps_per_epoch());
      for (std::size_t step = 0; step < steps.size(); ++step) {
        const auto batches = rows.next();
        for (const host_batch& batch : batches)
          for (std::size_t r = 0; r < batch.b; ++r) steps[step].push_back(static_cast<std::size_t>(batch.tokens[r * batch.t]) / 10);
      }
    }
    std::size_t next = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::sort(steps[step].begin(), steps[step].end());
      CHECK(steps[step].size() == std::vector<std::size_t>{4, 4, 4, 8, 12, 12, 12}[step]);
      for (const std::size_t sample : steps[step]) CHECK(sample == next++);
    }
  }
  loader rows(data, {.micro_batch_size = 2, .gradient_accumulation_steps = 6, .seq_length = 3, .rampup = rampup});
  CHECK(rows.steps_per_epoch() == 8);  // the last one has ten sequences
  rows.restore({0, 5});
  CHECK(rows.next()[0].tokens[0] == 320);

  dataset stream("stream", sequence_layout::stream);
  stream.add(std::vector<token>(100, 1));
  stream.finish();
  CHECK_THROWS_WITH_AS(loader(stream, {.micro_batch_size = 2, .gradient_accumulation_steps = 6, .seq_length = 3, .rampup = rampup}),
                       doctest::Contains("stream: rampup_batch_size needs samples of a whole run"), config_error);
}
