// adafactor against transformers' and PyTorch's, and its formula.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/precision/precision.hpp>

#include "matrix_bench.hpp"

using namespace xtrain;
using matrix_bench::bench;
using matrix_bench::difference;

static_assert(optimizer_for<adafactor, cpu, fp32> && optimizer_for<adafactor, cpu, bf16_mixed> && optimizer_for<adafactor, cpu, bf16_pure> &&
              optimizer_for<adafactor, cpu, fp16_mixed> && optimizer_for<adafactor, cpu, fp64>);

namespace {

struct named_config {
  std::string name;
  double learning_rate;
  adafactor::config settings;
};
std::vector<named_config> cases() {
  return {{"plain", 1e-2, {}},
          {"scaled", 3e-2, {.scale_parameter = true, .clip_threshold = 0.5, .beta1 = 0.9}},
          {"relative", 123.0, {.scale_parameter = true, .relative_step = true}},
          {"warmup", 123.0, {.scale_parameter = true, .relative_step = true, .warmup_init = true}},
          {"torch", 5e-2, {.scale_parameter = true, .relative_step = true, .at_most_learning_rate = true}}};
}

template <class Precision>
void fifty_steps(bench<Precision>& b, adafactor::state<cpu, Precision>& state, double learning_rate) {
  for (std::size_t t = 1; t <= 50; ++t) {
    b.draw_gradients();
    const kernel::step_scalars scalars{.learning_rate = learning_rate, .update = static_cast<double>(t)};
    state.step(b.where, b.store, testing::step_of(scalars, static_cast<std::uint32_t>(t)));
  }
}

std::vector<double> fixture(const std::string& name) { return golden::numbers(matrix_bench::fixture(), name); }

/// The parameter's state.
template <class Precision>
std::vector<double> state_of(const bench<Precision>& b, const adafactor::state<cpu, Precision>& state, std::string_view array, const std::string& name) {
  std::vector<double> found;
  state.visit([&](std::string_view shown, auto span, const auto&... part_of) {
    if constexpr (sizeof...(part_of) != 0) {
      if (shown != array) return;
      const state_part part = (part_of(*b.store.find(name)), ...);
      for (const auto x : span.subspan(part.at, part.count).host()) found.push_back(static_cast<double>(x));
    }
  });
  return found;
}

}  // namespace

TEST_CASE("50 steps of adafactor are those of transformers' and of PyTorch's") {
  for (const named_config& one : cases()) {
    const std::string& name = one.name;
    CAPTURE(name);
    bench<fp32> b;
    adafactor::state<cpu, fp32> state(one.settings, b.where, b.store);
    fifty_steps(b, state, one.learning_rate);
    for (const char* parameter : {"tall", "wide", "vector"}) {
      CAPTURE(parameter);
      // weights up to 4 are rounded 50 times to fp32, on both sides
      CHECK(difference(b.weights(parameter), fixture(concat("adafactor.", name, ".", parameter))) < 2 * 4 * std::sqrt(50.0) * 0x1p-24);
      if (name == "torch" || std::string_view(parameter) == "vector") continue;
      // factors of about 1 are means of at most 12 rounded squares up to 10
      CHECK(difference(state_of(b, state, "row_factor", parameter), fixture(concat("adafactor.", name, ".", parameter, ".row"))) < 16 * 0x1p-24);
      CHECK(difference(state_of(b, state, "column_factor", parameter), fixture(concat("adafactor.", name, ".", parameter, ".column"))) < 16 * 0x1p-24);
    }
  }
}

TEST_CASE("adafactor is its formula, with a gradient scale, and decay on matrices only") {
  const adafactor::config c{.scale_parameter = true, .clip_threshold = 0.75, .decay_rate = -0.7, .beta1 = 0.8, .epsilon1 = 1e-4, .epsilon2 = 2.0,
                            .weight_decay = 0.5};
  bench<fp64> b;
  adafactor::state<cpu, fp64> state(c, b.where, b.store);
  struct expected {
    std::string name;
    std::size_t rows, columns;
    std::vector<double> w, m, row, column;
  };
  std::vector<expected> all{{"tall", 12, 5, {}, {}, {}, {}}, {"vector", 1, 7, {}, {}, {}, {}}};
  for (expected& e : all) {
    e.w = b.weights(e.name);
    e.m.assign(e.w.size(), 0.0);
    e.row.assign(e.name == "vector" ? e.w.size() : e.rows, 0.0);
    e.column.assign(e.columns, 0.0);
  }
  for (std::size_t t = 1; t <= 4; ++t) {
    b.draw_gradients();
    for (auto& [name, rows, columns, w, m, row, column] : all) {
      const bool is_vector = name == "vector";
      const auto gradient = b.store.gradient(b.parameters[name]).host();
      const double added = std::pow(static_cast<double>(t), c.decay_rate), n = static_cast<double>(w.size());
      std::vector<double> u(w.size());
      double weights = 0, updates = 0, mean = 0;
      for (const double x : w) weights += x * x;
      for (double& x : row) x *= 1 - added;
      for (double& x : column) x *= 1 - added;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = gradient[i] * 0.5, square = g * g + c.epsilon1;
        row[is_vector ? i : i / columns] += added * square / (is_vector ? 1.0 : static_cast<double>(columns));
        column[i % columns] += added * square / static_cast<double>(rows);
      }
      for (const double x : row) mean += x / static_cast<double>(row.size());
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double second = is_vector ? row[i] : row[i / columns] * column[i % columns] / mean;
        u[i] = gradient[i] * 0.5 / std::sqrt(second);
        updates += u[i] * u[i];
      }
      const double rate = 0.1 * std::max(c.epsilon2, std::sqrt(weights / n)), clip = std::max(1.0, std::sqrt(updates / n) / c.clip_threshold);
      for (std::size_t i = 0; i < w.size(); ++i) {
        m[i] = c.beta1 * m[i] + (1 - c.beta1) * rate * u[i] / clip;
        w[i] -= rate * (is_vector ? 0.0 : c.weight_decay) * w[i] + m[i];
      }
    }
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
  }
  for (const expected& e : all) CHECK(difference(b.weights(e.name), e.w) < 1e-13);
}

TEST_CASE("adafactor has a factor per row and column of a matrix, and a skipped step changes no bit") {
  bench<fp32> b;
  adafactor::state<cpu, fp32> state({}, b.where, b.store);
  const std::size_t factors = 2 * (3 + 4) + (12 + 5) + (4 + 9), vectors = 7;
  CHECK(b.on.memory().of(memory_role::optimizer) == (factors + vectors) * sizeof(float));
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
  for (const char* name : {"tall", "vector"}) b.store.gradient(b.parameters[name]).host()[3] = std::nanf("");
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .update = 2, .applies = 0}));
  CHECK(snapshot() == before);
  CHECK(b.workspace.used() == 0);
}

TEST_CASE("parameters whose gradients are zero stay where they are") {
  bench<fp32> b;  // gradients of the table and the head are 0
  adafactor::state<cpu, fp32> state({.scale_parameter = true}, b.where, b.store);
  const std::vector<double> table = b.weights("table"), head = b.weights("head");
  fifty_steps(b, state, 1e-2);
  CHECK(b.weights("table") == table);
  CHECK(b.weights("head") == head);
}

TEST_CASE("adafactor in bf16: near fp32") {
  const adafactor::config c{.beta1 = 0.9};
  bench<fp32> wide;
  adafactor::state<cpu, fp32> wide_state(c, wide.where, wide.store);
  fifty_steps(wide, wide_state, 1e-2);
  bench<bf16_mixed> mixed;
  adafactor::state<cpu, bf16_mixed> mixed_state(c, mixed.where, mixed.store);
  fifty_steps(mixed, mixed_state, 1e-2);
  bench<bf16_pure> pure;
  adafactor::state<cpu, bf16_pure> pure_state(c, pure.where, pure.store);
  fifty_steps(pure, pure_state, 1e-2);
  for (const char* parameter : {"tall", "wide", "vector"}) {
    // initial and final weights up to 4 are rounded to bf16
    CHECK(difference(wide.weights(parameter), mixed.weights(parameter)) < 2 * 4 * 0x1p-9);
    // each of 50 steps rounds weights up to 4 at random by up to one unit, 2^-6, and gradients to bf16
    CHECK(difference(wide.weights(parameter), pure.weights(parameter)) < 3 * std::sqrt(50.0) * 0x1p-6);
  }
}

TEST_CASE("adafactor refuses settings out of range, and shards of matrices that the strategy cannot combine") {
  bench<fp32> b;
  const auto refused = [&](const adafactor::config& c) { CHECK_THROWS_AS((adafactor::state<cpu, fp32>(c, b.where, b.store)), config_error); };
  refused({.warmup_init = true});
  refused({.at_most_learning_rate = true});
  refused({.relative_step = true, .warmup_init = true, .at_most_learning_rate = true});
  refused({.clip_threshold = 0.0});
  refused({.decay_rate = 0.8});
  refused({.beta1 = 1.0});
  refused({.epsilon1 = 0.0});
  refused({.weight_decay = -1.0});
  parameter_store<cpu, fp32> sharded(b.on);
  sharded.declare({.name = "matrix", .shape = {8, 8}});
  sharded.allocate({.parts = 2, .part = 1});
  sharded.allocate_gradients();
  adafactor::state<cpu, fp32> state({}, b.where, sharded);
  CHECK_THROWS_WITH_AS(state.step(b.where, sharded, testing::step_of({})),
                       "adafactor: the parallel strategy shards matrices, so it must combine them (gather_pieces, sum_pieces, sum_tensor_shards); "
                       "see parallel/README.md",
                       config_error);
}
