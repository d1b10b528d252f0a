#include <doctest/doctest.h>

#include <xtrain/precision/precision.hpp>
#include <xtrain/testing/archetypes.hpp>

using namespace xtrain;

// all shipped policies, and the minimal one
static_assert(precision<fp32> && precision<bf16_mixed> && precision<bf16_gradients> && precision<bf16_pure> && precision<fp16_mixed> && precision<fp64> &&
              precision<testing::bare_precision>);
static_assert(has_master_copy<bf16_mixed> && has_master_copy<fp16_mixed> && !has_master_copy<fp32> && !has_master_copy<bf16_pure>);

// one broken type per clause
struct without_name : testing::bare_precision {
 private:
  using testing::bare_precision::name;
};
struct without_state {
  static constexpr std::string_view name = "x";
  using parameter = float;
  using compute = float;
  using gradient = float;
  using master = float;
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};
struct integer_parameters : testing::bare_precision {
  using parameter = int;
};
struct mixed_products : testing::bare_precision {
  using compute = bf16;
};
struct odd_gradients : fp32 {
  using gradient = bf16;
};
struct narrow_master : fp32 {
  using master = bf16;
};
struct stalled : bf16_pure {
  static constexpr rounding update = rounding::nearest;
};
struct underflowing : fp16_mixed {
  static constexpr bool scales_loss = false;
};
static_assert(!clause::precision_has_a_name<without_name>);
static_assert(!clause::precision_names_a_dtype_for_every_role<without_state> &&
              !clause::precision_names_a_dtype_for_every_role<integer_parameters>);
static_assert(!clause::parameter_is_of_compute_type<mixed_products> && !precision<mixed_products>);
static_assert(!clause::gradient_is_of_compute_or_accumulate_type<odd_gradients> && !precision<odd_gradients>);
static_assert(!clause::master_not_narrower_than_parameter<narrow_master> && !precision<narrow_master>);
static_assert(!clause::narrow_parameters_have_a_master_or_round_stochastically<stalled> && !precision<stalled>);
static_assert(!clause::narrow_exponent_scales_the_loss<underflowing> && !precision<underflowing>);

TEST_CASE("bytes per weight with two optimizer states are what the policies promise") {
  const auto bytes = []<class P>(P) {
    return sizeof(typename P::parameter) + sizeof(typename P::gradient) + (has_master_copy<P> ? sizeof(typename P::master) : 0) +
           2 * sizeof(typename P::state);
  };
  CHECK(bytes(fp32{}) == 16);
  CHECK(bytes(bf16_mixed{}) == 18);
  CHECK(bytes(bf16_gradients{}) == 16);
  CHECK(bytes(fp16_mixed{}) == 16);
  CHECK(bytes(bf16_pure{}) == 8);
}
