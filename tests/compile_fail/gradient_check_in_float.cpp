// says: xtrain check_gradient: the recipe must compute in fp64 on a host-addressable device
#include <xtrain/layers/linear.hpp>
#include <xtrain/testing/check_gradient.hpp>

struct recipe : xtrain::testing::gradient_recipe {
#ifdef MISTAKE
  using precision = xtrain::fp32;
#endif
};
auto check() {
  return xtrain::testing::check_gradient<recipe>({.inputs = 2, .outputs = 3}, [](auto& build) {
    return xtrain::linear<recipe>(build, {{"w", 3}}, 2, {});
  });
}
