// muon against torch.optim.Muon and its formula.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/precision/precision.hpp>
#include <xtrain/testing/archetypes.hpp>

#include "matrix_bench.hpp"

using namespace xtrain;
using matrix_bench::bench;
using matrix_bench::difference;

static_assert(optimizer_for<muon, cpu, fp32> && optimizer_for<muon, cpu, bf16_mixed> && optimizer_for<muon, cpu, bf16_pure> &&
              optimizer_for<muon, cpu, fp16_mixed> && optimizer_for<muon, cpu, fp64>);
// communicates nothing: also accepted by other optimizers
using some_store = parameter_store<cpu, fp32>;
static_assert(clause::strategy_combines_matrices<single, cpu, some_store> && clause::strategy_combines_matrices<zero<3>, cpu, some_store> &&
              !clause::strategy_combines_matrices<testing::bare_strategy, cpu, some_store>);

namespace {

template <class Precision>
bench<Precision> stepped(const muon::config& settings, double learning_rate, std::size_t steps = 50) {
  bench<Precision> b;
  muon::state<cpu, Precision> state(settings, b.where, b.store);
  for (std::size_t t = 1; t <= steps; ++t) {
    b.draw_gradients();
    state.step(b.where, b.store, testing::step_of({.learning_rate = learning_rate, .update = static_cast<double>(t)}, static_cast<std::uint32_t>(t)));
  }
  return b;
}

std::vector<double> fixture(const std::string& name) { return golden::numbers(matrix_bench::fixture(), name); }

struct named_config {
  std::string name;
  muon::config settings;
};
std::vector<named_config> cases() {
  return {{"original", {.momentum = 0.95, .weight_decay = 0.1, .adjust_learning_rate = muon_rate::original}},
          {"rms", {.momentum = 0.9, .nesterov = false, .weight_decay = 0.2, .adjust_learning_rate = muon_rate::match_rms_adamw}},
          {"spectral", {.momentum = 0.9, .weight_decay = 0.0, .adjust_learning_rate = muon_rate::spectral}}};
}

}  // namespace

TEST_CASE("50 steps of muon are the formula's, and those of torch.optim.Muon up to its Newton-Schulz in bf16") {
  for (const named_config& one : cases()) {
    const std::string& name = one.name;
    CAPTURE(name);
    const auto b = stepped<fp32>(one.settings, 2e-2);
    const auto exact = stepped<fp64>(one.settings, 2e-2);
    for (const char* matrix : {"tall", "wide"}) {
      CAPTURE(matrix);
      const std::vector<double> expected = fixture(concat("muon.", name, ".", matrix));
      // 50 sums of up to 0.1; relative error of an update 50 · 2^-24
      CHECK(difference(b.weights(matrix), expected) < 50 * 0.1 * 50 * 0x1p-24);
      CHECK(difference(exact.weights(matrix), expected) < 0x1p-23);  // the fixture is rounded to fp32: weights up to 4
      CHECK(difference(b.weights(matrix), fixture(concat("muon.", name, ".", matrix, ".torch"))) < 50 * 0.02 * 0.6 * 0x1p-8 * 4);
    }
  }
}

TEST_CASE("muon with a ratio of learning rates is muon at that learning rate") {
  muon::config settings = cases()[0].settings;
  const auto all = stepped<fp64>(settings, 2e-2, 5);
  settings.learning_rate_ratio = 4;
  const auto ratio = stepped<fp64>(settings, 5e-3, 5);
  for (const char* matrix : {"tall", "wide"}) CHECK(difference(all.weights(matrix), ratio.weights(matrix)) < 1e-14);
}

TEST_CASE("newton-schulz takes every singular value to about 1") {
  bench<fp64> b;
  // [4, 3] with orthogonal columns of lengths 1, 0.3, 0.05: the result's column lengths are its singular values
  std::vector<double> x{1, 0, 0, 0, 0.3, 0, 0, 0, 0.05, 0, 0, 0}, y(12);
  double norm = 0;
  for (const double v : x) norm += v * v;
  for (double& v : x) v /= std::sqrt(norm);
  for (const bool tall : {true, false}) {
    std::vector<double> in(12), scratch(12);
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 3; ++j) in[tall ? i * 3 + j : j * 4 + i] = x[i * 3 + j];
    const auto result = xtrain::detail::orthogonalise<cpu, double>(b.where, {span_of(in.data(), 12), span_of(scratch.data(), 12)}, tall ? 4 : 3,
                                                                  tall ? 3 : 4, {3.4445, -4.7750, 2.0315}, 5);
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 3; ++j) {
        const double value = result.host()[tall ? i * 3 + j : j * 4 + i];
        if (i != j) CHECK(std::abs(value) < 1e-15);
        else CHECK((value > 0.65 && value < 1.25));  // the coefficients' target band
      }
  }
}

TEST_CASE("muon steps embeddings, the head and vectors as adamw does, bit for bit") {
  const muon::config settings{.adamw = {.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.5}};
  const auto run = [&]<class Optimizer>(Optimizer, const auto& config) {
    bench<bf16_mixed> b;
    typename Optimizer::template state<cpu, bf16_mixed> state(config, b.where, b.store);
    for (std::size_t t = 1; t <= 3; ++t) {
      b.draw_gradients();
      for (const char* name : {"table", "head"})
        for (float& g : b.store.gradient(b.parameters[name]).host()) g = 0.25f * static_cast<float>(t);
      state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
    }
    return b;
  };
  const auto by_muon = run(muon{}, settings);
  const auto by_adamw = run(adamw{}, settings.adamw);
  for (const char* name : {"table", "head", "vector"}) CHECK(by_muon.weights(name) == by_adamw.weights(name));
  for (const char* name : {"tall", "wide"}) CHECK(difference(by_muon.weights(name), by_adamw.weights(name)) > 0.01);
}

TEST_CASE("muon has second moments only where adamw steps, and a skipped step changes no bit") {
  bench<fp32> b;
  muon::state<cpu, fp32> state({}, b.where, b.store);
  const std::size_t without_hidden = 12 + 12 + 7;
  CHECK(b.on.memory().of(memory_role::optimizer) == (b.store.stepped() + without_hidden) * sizeof(float));
  b.draw_gradients();
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1}));
  const auto snapshot = [&] {
    std::vector<float> all;
    state.visit([&](std::string_view, auto span, const auto&...) { all.insert(all.end(), span.host().begin(), span.host().end()); });
    const auto weights = b.store.trained_values().host();
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
  };
  const std::vector<float> before = snapshot();
  b.draw_gradients();
  b.store.gradient(b.parameters["tall"]).host()[3] = std::nanf("");
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .update = 2, .applies = 0}));
  CHECK(snapshot() == before);
  CHECK(b.workspace.used() == 0);
}

TEST_CASE("muon in bf16, with stochastic rounding: near fp32") {
  const auto wide = stepped<fp32>(cases()[0].settings, 2e-2, 20);
  for (const char* matrix : {"tall", "wide"}) {
    CHECK(difference(wide.weights(matrix), stepped<bf16_mixed>(cases()[0].settings, 2e-2, 20).weights(matrix)) < 4 * 0x1p-9 + 20 * 0.02 * 0x1p-6);
    // each of 20 steps rounds weights up to 4 at random by up to one unit, 2^-6
    CHECK(difference(wide.weights(matrix), stepped<bf16_pure>(cases()[0].settings, 2e-2, 20).weights(matrix)) < 4 * std::sqrt(20.0) * 0x1p-6);
  }
}

TEST_CASE("muon refuses settings out of range, and shards of matrices that the strategy cannot combine") {
  bench<fp32> b;
  const auto refused = [&](const muon::config& c) { CHECK_THROWS_AS((muon::state<cpu, fp32>(c, b.where, b.store)), config_error); };
  refused({.momentum = 1.0});
  refused({.weight_decay = -1.0});
  refused({.steps = 0});
  refused({.epsilon = 0.0});
  refused({.learning_rate_ratio = -1.0});
  parameter_store<cpu, fp32> sharded(b.on);
  sharded.declare({.name = "matrix", .shape = {8, 8}});
  sharded.allocate({.parts = 2, .part = 1});
  sharded.allocate_gradients();
  muon::state<cpu, fp32> state({}, b.where, sharded);
  CHECK_THROWS_WITH_AS(state.step(b.where, sharded, testing::step_of({})),
                       "muon: the parallel strategy shards matrices, so it must combine them (gather_pieces, sum_pieces, sum_tensor_shards); see "
                       "parallel/README.md",
                       config_error);
}
