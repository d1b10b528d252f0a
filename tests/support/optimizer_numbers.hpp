// Weights and gradients of tests/golden/make_optimizers.py, and a store for them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

#include "golden.hpp"

namespace optimizer_numbers {

inline constexpr std::size_t steps = 50;

/// A number of [-1/2, 1/2), a multiple of 2^-24.
[[nodiscard]] inline double number(std::uint64_t site, std::uint64_t i) {
  auto mixed = static_cast<std::uint32_t>((i + 1) * 2654435761U + (site + 1) * (40503ULL * 65537));
  mixed ^= mixed >> 15;
  mixed *= 2246822519U;
  mixed ^= mixed >> 13;
  return static_cast<double>(mixed >> 8) * 0x1p-24 - 0.5;
}
[[nodiscard]] inline double weight(bool is_matrix, std::size_t i) { return number(is_matrix ? 1000 : 1001, i); }
[[nodiscard]] inline double gradient(bool is_matrix, std::size_t step, std::size_t i) {
  return std::ldexp(number(2 * step + (is_matrix ? 0 : 1), i), -static_cast<int>(i % 8));
}

/// A store with the fixture's matrix and vector, and launch state.
template <class Precision>
struct bench {
  xtrain::cpu::context on;
  xtrain::cpu::stream stream{on};
  xtrain::arena<xtrain::cpu> workspace{on, std::size_t{1} << 20, xtrain::memory_role::workspace};
  xtrain::execution<xtrain::cpu> where{stream, workspace, on.properties()};
  xtrain::parameter_store<xtrain::cpu, Precision> store{on};
  xtrain::parameter matrix, vector;

  explicit bench(const xtrain::shard_spec& sharding = {}) {
    matrix = store.declare({.name = "matrix", .shape = {23, 27}});
    vector = store.declare({.name = "vector", .shape = {100}});
    store.allocate(sharding);
    store.allocate_gradients();
    fill_zero(stream, store.stored_values());
    fill_zero(stream, store.gradients());
    set(store.value(matrix), [](std::size_t i) { return weight(true, i); });
    set(store.value(vector), [](std::size_t i) { return weight(false, i); });
  }
  void set_gradients(std::size_t step) {
    set(store.gradient(matrix), [&](std::size_t i) { return gradient(true, step, i); });
    set(store.gradient(vector), [&](std::size_t i) { return gradient(false, step, i); });
  }
  /// The largest difference from a fixture's tensor.
  template <class Span>
  [[nodiscard]] static double difference(const xtrain::safetensors_file& file, std::string_view name, Span span) {
    const std::vector<double> expected = golden::numbers(file, std::string(name));
    double most = expected.size() == span.size() ? 0.0 : HUGE_VAL;
    for (std::size_t i = 0; i < span.size() && i < expected.size(); ++i)
      most = std::fmax(most, std::abs(static_cast<double>(span.host()[i]) - expected[i]));
    return most;
  }

 private:
  template <class T, class Value>
  static void set(xtrain::device_span<T, xtrain::host_memory> span, const Value& value) {
    for (std::size_t i = 0; i < span.size(); ++i) span.host()[i] = static_cast<T>(value(i));
  }
};

}  // namespace optimizer_numbers
