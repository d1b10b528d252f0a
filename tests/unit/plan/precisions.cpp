#include <doctest/doctest.h>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

template <class Precision>
struct in_precision : defaults {
  using precision = Precision;
};

}  // namespace

TEST_CASE("the plan of a bf16_mixed run is what the run takes: 18 bytes per weight, and 16 where gradients are bf16") {
  (void)planned_run::check_memory<llama<in_precision<bf16_gradients>>>({.weight = 2, .gradient = 2, .optimizer = 12});
  const dry_run plan = planned_run::check_memory<llama<in_precision<bf16_mixed>>>({.weight = 2, .gradient = 4, .optimizer = 12}, {}, 2);
  CHECK(plan.num_tokens == 2 * 3 * 12);
}

TEST_CASE("the plan of a bf16_pure run is what the run takes: 8 bytes per weight") {
  (void)planned_run::check_memory<llama<in_precision<bf16_pure>>>({.weight = 2, .gradient = 2, .optimizer = 4});
}

TEST_CASE("the plan of an fp16_mixed run is what the run takes: 16 bytes per weight") {
  (void)planned_run::check_memory<llama<in_precision<fp16_mixed>>>({.weight = 2, .gradient = 2, .optimizer = 12});
}
