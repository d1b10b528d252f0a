// A store with the parameters of tests/golden/optimizers/matrix.safetensors, for optimizers over whole matrices.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/tensor/parameters.hpp>

#include "golden.hpp"
#include "step_of.hpp"

namespace matrix_bench {

inline const xtrain::safetensors_file& fixture() {
  static const xtrain::safetensors_file file(golden::folder("optimizers/matrix.safetensors"));
  return file;
}

/// Two matrices and a vector in a hidden block, a table in the first block and a head in the last.
template <class Precision>
struct bench {
  using parameter_type = typename Precision::parameter;

  xtrain::cpu::context on;
  xtrain::cpu::stream stream{on};
  xtrain::arena<xtrain::cpu> workspace{on, std::size_t{1} << 20, xtrain::memory_role::workspace};
  xtrain::execution<xtrain::cpu> where{stream, workspace, on.properties()};
  xtrain::parameter_store<xtrain::cpu, Precision> store{on};
  std::map<std::string, xtrain::parameter> parameters;
  std::size_t steps = 0;

  bench() {
    const auto declare = [&](const std::string& name, std::vector<std::size_t> shape) {
      parameters[name] = store.declare({.name = name, .shape = std::move(shape), .initial = xtrain::initial_values::normal(1.0)});
    };
    declare("table", {3, 4});
    store.begin_block(1);
    declare("tall", {12, 5});
    declare("wide", {4, 9});
    declare("vector", {7});
    store.begin_block(2);
    declare("head", {3, 4});
    store.allocate();
    store.allocate_gradients();
    store.initialise(stream, 1, [](std::string_view) { return true; });
    fill_zero(stream, store.gradients());
    for (const char* name : {"tall", "wide", "vector"}) {
      const std::vector<double> weights = golden::numbers(fixture(), std::string("weights.") + name);
      set(store.value(parameters[name]).host(), weights, 0);
    }
  }

  /// The fixture's gradients of the next step.
  void draw_gradients() {
    for (const char* name : {"tall", "wide", "vector"}) {
      const auto gradient = store.gradient(parameters[name]).host();
      set(gradient, golden::numbers(fixture(), std::string("gradients.") + name), steps % 50 * gradient.size());
    }
    ++steps;
  }
  [[nodiscard]] std::vector<double> weights(const std::string& name) const {
    std::vector<double> all;
    for (const parameter_type x : store.value(parameters.at(name)).host()) all.push_back(static_cast<double>(x));
    return all;
  }

 private:
  template <class T>
  static void set(std::span<T> to, const std::vector<double>& from, std::size_t first) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(from[first + i]);
  }
};

/// The largest difference of elements.
[[nodiscard]] inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace matrix_bench
