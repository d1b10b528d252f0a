// A machine description; with an accepted one a step can be predicted.
#include <array>

#include <xtrain/plan/machine_file.hpp>
#include <xtrain/plan/predict.hpp>

#include "fuzz.hpp"

using namespace xtrain;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted = fuzz::reads([&] {
    const machine m = parse_machine(fuzz::text_of(data, size), "machine");
    fuzz::must(parse_machine(machine_text(m), "again") == m, "a machine must survive being written");
    dry_run rank;
    rank.record.count("matmul", 1e9, 1e6);
    rank.record.count("adamw", 1e3, 1e6);
    for (traffic& one : rank.sent.sent) one = {12, 1'000'000};
    // a machine without the dtype or without links is rejected; otherwise the predicted time is positive
    const auto takes_time = [&] {
      fuzz::must(
          predict(rank, {.mesh = {.data_parallel_size = 4, .tensor_parallel_size = 2, .pipeline_parallel_size = 2}, .micro_batches = 2}, m,
                  "fp32")
                  .seconds > 0,
          "a step must take time");
    };
    (void)fuzz::reads(takes_time);
  });
  return 0;
}
