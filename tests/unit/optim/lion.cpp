// Lion: formula, numbers of its published code, checkpoint arrays.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/lion.hpp>
#include <xtrain/precision/precision.hpp>

#include "optimizer_numbers.hpp"
#include "step_of.hpp"

using namespace xtrain;
using optimizer_numbers::bench;

static_assert(optimizer_for<lion, cpu, fp32> && optimizer_for<lion, cpu, bf16_mixed> && optimizer_for<lion, cpu, bf16_pure> &&
              optimizer_for<lion, cpu, fp16_mixed> && optimizer_for<lion, cpu, fp64>);

TEST_CASE("lion is its formula: plus or minus the learning rate, and decay on matrices only") {
  bench<fp64> b;
  const lion::config c{.beta1 = 0.8, .beta2 = 0.6, .weight_decay = 0.5};
  lion::state<cpu, fp64> state(c, b.where, b.store);
  struct expected {
    bool is_matrix;
    std::span<double> values;
    std::vector<double> w{values.begin(), values.end()}, m = std::vector<double>(w.size(), 0.0);
  };
  std::vector<expected> both{{true, b.store.value(b.matrix).host()}, {false, b.store.value(b.vector).host()}};
  for (std::size_t t = 1; t <= 4; ++t) {
    for (auto& [is_matrix, values, w, m] : both)
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = optimizer_numbers::gradient(is_matrix, t, i) * 0.5, u = c.beta1 * m[i] + (1 - c.beta1) * g;
        w[i] -= 0.1 * ((u > 0 ? 1.0 : u < 0 ? -1.0 : 0.0) + (is_matrix ? c.weight_decay * w[i] : 0.0));
        m[i] = c.beta2 * m[i] + (1 - c.beta2) * g;
      }
    b.set_gradients(t);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
  }
  for (const auto& [is_matrix, values, w, m] : both)
    for (std::size_t i = 0; i < w.size(); ++i) CHECK(values[i] == doctest::Approx(w[i]).epsilon(1e-13));
}

TEST_CASE("a gradient of zero and no momentum leave a weight where it is") {
  bench<fp32> b;
  lion::state<cpu, fp32> state({}, b.where, b.store);
  b.store.gradient(b.matrix).host()[1] = 1e-30f;
  b.store.gradient(b.matrix).host()[2] = -1e-30f;
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.25}));
  const auto w = b.store.value(b.matrix).host();
  CHECK(w[0] == static_cast<float>(optimizer_numbers::weight(true, 0)));
  CHECK(w[1] == static_cast<float>(optimizer_numbers::weight(true, 1)) - 0.25f);
  CHECK(w[2] == static_cast<float>(optimizer_numbers::weight(true, 2)) + 0.25f);
}

TEST_CASE("fifty steps of lion are those of the published code") {
  bench<fp32> b;
  lion::state<cpu, fp32> state({.weight_decay = 0.1}, b.where, b.store);
  for (std::size_t t = 1; t <= optimizer_numbers::steps; ++t) {
    b.set_gradients(t);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0x1p-9, .update = static_cast<double>(t)}));
  }
  const safetensors_file file(golden::folder("optimizers") + "/lion.safetensors");
  // two roundings per step of numbers below 1, a few more where products are not fused with sums
  const double allowed = 4 * 50 * 0x1p-25;
  CHECK(b.difference(file, "matrix.weight", b.store.value(b.matrix)) < allowed);
  CHECK(b.difference(file, "vector.weight", b.store.value(b.vector)) < allowed);
  state.visit([&](std::string_view name, auto m) {
    CHECK(name == "m");
    CHECK(b.difference(file, "matrix.m", m.subspan(0, 23 * 27)) < allowed);
  });
}

TEST_CASE("lion shows what a checkpoint must hold, and its defaults are those of the published code") {
  bench<bf16_mixed> mixed;
  const lion::state<cpu, bf16_mixed> state({}, mixed.where, mixed.store);
  std::vector<std::string> names;
  state.visit([&](std::string_view name, auto span) {
    names.emplace_back(name);
    CHECK(span.size() == mixed.store.stepped());
  });
  CHECK(names == std::vector<std::string>{"master", "m"});
  CHECK(mixed.on.memory().of(memory_role::optimizer) == 8 * mixed.store.stepped());
  CHECK(lion::config{}.beta1 == 0.9);
  CHECK(lion::config{}.beta2 == 0.99);
  CHECK(lion::config{}.weight_decay == 0.0);
}
