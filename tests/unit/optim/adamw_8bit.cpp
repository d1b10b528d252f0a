// AdamW with 8-bit moments: codes, formula, bitsandbytes' numbers, equal bits on any number of ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/dynamic_code.hpp>
#include <xtrain/device/reference/optimizer.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/precision/precision.hpp>

#include "optimizer_numbers.hpp"
#include "step_of.hpp"

using namespace xtrain;
using optimizer_numbers::bench;

static_assert(optimizer_for<adamw_8bit, cpu, fp32> && optimizer_for<adamw_8bit, cpu, bf16_mixed> &&
              optimizer_for<adamw_8bit, cpu, bf16_pure> && optimizer_for<adamw_8bit, cpu, fp16_mixed> &&
              optimizer_for<adamw_8bit, cpu, fp64>);

namespace {

constexpr shard_spec aligned{.alignment = adamw_8bit::layout_alignment};

/// The arrays of a state by name, as bytes.
template <class State>
std::map<std::string, std::vector<std::byte>> arrays_of(const State& state) {
  std::map<std::string, std::vector<std::byte>> all;
  state.visit([&](std::string_view name, auto span, const auto&...) {
    const auto bytes = std::as_bytes(span.host());
    all[std::string(name)].assign(bytes.begin(), bytes.end());
  });
  return all;
}

}  // namespace

TEST_CASE("the fractions are those of bitsandbytes") {
  const safetensors_file file(golden::folder("optimizers") + "/adamw_8bit.safetensors");
  const auto with_sign = golden::numbers(file, "signed_levels"), without = golden::numbers(file, "unsigned_levels");
  REQUIRE(with_sign.size() == 256);
  REQUIRE(without.size() == 256);
  for (std::size_t i = 0; i < 256; ++i) {  // bitsandbytes rounds to fp32 four times
    CHECK(static_cast<double>(dynamic_code::signed_levels[i]) == doctest::Approx(with_sign[i]).epsilon(4 * 0x1p-24));
    CHECK(static_cast<double>(dynamic_code::unsigned_levels[i]) == doctest::Approx(without[i]).epsilon(4 * 0x1p-24));
  }
  CHECK(dynamic_code::signed_levels[dynamic_code::signed_zero] == 0.0f);
}

TEST_CASE("the processor's table gives the nearest fraction at every midpoint, beside it, and in between") {
  std::vector<float> tried{0.0f, 1e-9f, 1e-7f, 1.0f};
  for (const auto* levels : {&dynamic_code::signed_levels, &dynamic_code::unsigned_levels})
    for (std::size_t i = 0; i + 1 < 256; ++i) {
      const float middle = std::abs(dynamic_code::midpoint(*levels, i));
      for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 2.0f), std::abs((*levels)[i])})
        tried.push_back(std::min(x, 1.0f));
    }
  for (std::uint32_t bits = 0; bits <= std::uint32_t{0x3f80}; ++bits) tried.push_back(std::bit_cast<float>(bits << 16));
  for (const float x : tried) {
    CAPTURE(x);
    REQUIRE(cpu_kernels::unsigned_code_of(x) == detail::dynamic_code_of(x, 1.0f, false));
    REQUIRE(cpu_kernels::signed_code_of(x) == detail::dynamic_code_of(x, 1.0f, true));
    REQUIRE(cpu_kernels::signed_code_of(-x) == detail::dynamic_code_of(-x, 1.0f, true));
    float nearest = 2;
    for (const float level : dynamic_code::signed_levels) nearest = std::min(nearest, std::abs(level + x));
    REQUIRE(std::abs(dynamic_code::signed_levels[cpu_kernels::signed_code_of(-x)] + x) <= nearest + 0x1p-24f);
  }
}

TEST_CASE("adamw_8bit is adamw on moments that are replaced by their nearest fractions") {
  bench<fp64> b(aligned);
  const adamw_8bit::config c{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.5, .min_8bit_size = 256};
  adamw_8bit::state<cpu, fp64> state(c, b.where, b.store);
  const auto values = b.store.value(b.matrix).host();
  std::vector<double> w(values.begin(), values.end()), m(w.size(), 0.0), v(w.size(), 0.0);
  const auto replaced = [](std::vector<double>& x, const std::array<float, 256>& levels) {
    for (std::size_t begin = 0; begin < x.size(); begin += 256) {
      const std::span<double> block(x.data() + begin, std::min<std::size_t>(256, x.size() - begin));
      double largest = 0;
      for (const double y : block) largest = std::max(largest, std::abs(y));
      for (double& y : block)
        y = largest * static_cast<double>(*std::min_element(levels.begin(), levels.end(), [&](float p, float q) {
              return std::abs(static_cast<double>(p) - y / largest) < std::abs(static_cast<double>(q) - y / largest);
            }));
    }
  };
  for (std::size_t t = 1; t <= 5; ++t) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = optimizer_numbers::gradient(true, t, i) * 0.5;
      m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
      v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
      w[i] -= 0.1 * c.weight_decay * w[i];
      w[i] -= 0.1 * (m[i] / (1 - std::pow(c.beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(c.beta2, t))) + c.epsilon);
    }
    replaced(m, dynamic_code::signed_levels);
    replaced(v, dynamic_code::unsigned_levels);
    b.set_gradients(t);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
  }
  // scales are rounded to fp32
  for (std::size_t i = 0; i < w.size(); ++i) CHECK(values[i] == doctest::Approx(w[i]).epsilon(1e-6));
}

TEST_CASE("fifty steps of adamw_8bit are those of bitsandbytes, codes included") {
  bench<fp32> b(aligned);
  adamw_8bit::state<cpu, fp32> state({.weight_decay = 0.1, .min_8bit_size = 256}, b.where, b.store);
  for (std::size_t t = 1; t <= optimizer_numbers::steps; ++t) {
    b.set_gradients(t);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0x1p-7, .update = static_cast<double>(t)}));
  }
  const safetensors_file file(golden::folder("optimizers") + "/adamw_8bit.safetensors");
  // ten roundings of numbers below 1 per step
  const double allowed = 50 * 10 * 0x1p-25;
  CHECK(b.difference(file, "matrix.weight", b.store.value(b.matrix)) < allowed);
  CHECK(b.difference(file, "vector.weight", b.store.value(b.vector)) < allowed);
  std::vector<std::string> names;
  state.visit([&](std::string_view name, auto span, const auto& part_of) {
    names.emplace_back(name);
    for (const auto& entry : b.store.entries()) {
      const state_part part = part_of(entry);
      if (part.shape.empty()) continue;
      CAPTURE(name);
      const auto own = span.subspan(part.at, part.count);
      CHECK(b.difference(file, concat(entry.spec.name, ".", name), own) < (sizeof(own.raw()[0]) == 1 ? 0.5 : allowed));
    }
  });
  CHECK(names == std::vector<std::string>{"m_code", "v_code", "m_scale", "v_scale", "m", "v"});
}

namespace {

/// Three blocks; parameter sizes are no multiples of 256, some parameters are adjacent; stepped as one of `parts` ranks.
template <class Precision>
struct sharded {
  cpu::context on;
  cpu::stream stream{on};
  arena<cpu> workspace{on, std::size_t{1} << 20, memory_role::workspace};
  execution<cpu> where{stream, workspace, on.properties()};
  parameter_store<cpu, Precision> store{on};
  std::map<std::string, std::vector<double>> arrays{};  // by array and parameter, elements of other ranks 0

  sharded(std::size_t parts, std::size_t part) {
    for (std::size_t b = 0; b < 3; ++b) {
      store.begin_block(b);
      store.declare({{.name = concat("q", b), .shape = {24 + b, 25}},
                     {.name = concat("k", b), .shape = {11, 25}},
                     {.name = concat("v", b), .shape = {12, 25}}});
      store.declare({.name = concat("w", b), .shape = {31, 41 + b}});
      store.declare({.name = concat("bias", b), .shape = {700}});
      store.declare({.name = concat("norm", b), .shape = {33}});
    }
    store.allocate({.parts = parts, .part = part, .alignment = adamw_8bit::layout_alignment});
    store.allocate_gradients();
    fill_zero(stream, store.stored_values());
    fill_zero(stream, store.gradients());
    std::uint64_t site = 0;
    for (const auto& entry : store.entries()) {
      ++site;
      const auto values = store.value(entry).host();
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<typename Precision::parameter>(optimizer_numbers::number(site, i));
    }
    adamw_8bit::state<cpu, Precision> state({.weight_decay = 0.1, .min_8bit_size = 512}, where, store);
    for (std::uint32_t t = 1; t <= 6; ++t) {
      for (const auto& entry : store.entries()) {
        ++site;
        const auto gradients = store.gradient(entry).host();
        for (std::size_t i = 0; i < gradients.size(); ++i)
          gradients[i] =
              static_cast<typename Precision::gradient>(std::ldexp(optimizer_numbers::number(site, i), -static_cast<int>(i % 9)));
      }
      state.step(where, store, testing::step_of({.learning_rate = 0.01, .update = static_cast<double>(t)}, t, 5));
    }
    state.visit([&](std::string_view name, auto span, const auto&... part_of) {
      for (const auto& entry : store.entries()) {
        if constexpr (sizeof...(part_of) == 1) {
          const state_part of = (part_of(entry), ...);
          if (!of.shape.empty()) add(concat(name, ".", entry.spec.name), span, of.whole_size(), of.first, of.at, of.count);
        } else {
          const auto own = store.piece_of(entry);
          add(concat(name, ".", entry.spec.name), span, entry.size(), own.first, own.kept, own.count);
        }
      }
    });
    for (const auto& entry : store.entries()) {
      const auto own = store.piece_of(entry);
      add(entry.spec.name, store.value(entry), entry.size(), own.first, own.first, own.count);
    }
  }

 private:
  template <class Span>
  void add(const std::string& name, Span span, std::size_t size, std::size_t first, std::size_t at, std::size_t count) {
    std::vector<double>& to = arrays[name];
    to.assign(size, 0.0);
    REQUIRE(first + count <= size);
    REQUIRE(at + count <= span.size());
    for (std::size_t i = 0; i < count; ++i) to[first + i] = static_cast<double>(span.host()[at + i]);
  }
};

}  // namespace

TEST_CASE("ranks with shards have the codes, scales, moments and weights of one rank with everything, bit for bit") {
  const auto check = []<class Precision>(Precision) {
    const sharded<Precision> whole(1, 0);
    CHECK(whole.arrays.count("m_scale.q0") == 1);
    CHECK(whole.arrays.count("m_scale.k0") == 0);  // under the name of the first of adjacent parameters
    CHECK(whole.arrays.at("m_scale.q0").size() == (24 * 25 + 11 * 25 + 12 * 25 + 255) / 256);
    CHECK(whole.arrays.count("m.norm1") == 1);
    CHECK(whole.arrays.count("m_code.norm1") == 0);
    for (const std::size_t parts : {2U, 3U, 7U}) {
      CAPTURE(parts);
      std::map<std::string, std::vector<double>> sum;
      for (std::size_t part = 0; part < parts; ++part)
        for (const auto& [name, values] : sharded<Precision>(parts, part).arrays) {
          auto& to = sum[name];
          to.resize(values.size());
          for (std::size_t i = 0; i < values.size(); ++i) to[i] += values[i];
        }
      CHECK(sum.size() == whole.arrays.size());
      for (const auto& named : whole.arrays) {
        CAPTURE(named.first);
        CHECK(sum[named.first] == named.second);
      }
    }
  };
  check(fp32{});
  check(bf16_mixed{});
}

TEST_CASE("a step of adamw_8bit that does not apply keeps all bits") {
  const auto keeps = []<class Precision>(Precision) {
    bench<Precision> b(aligned);
    adamw_8bit::state<cpu, Precision> state({.min_8bit_size = 256}, b.where, b.store);
    const auto step = [&](std::uint32_t t, const kernel::step_scalars& scalars) {
      b.set_gradients(t);
      state.step(b.where, b.store, testing::step_of(scalars, t, 3));
    };
    step(1, {.learning_rate = 0.1});
    const auto before = arrays_of(state);
    const std::vector<typename Precision::parameter> weights(b.store.stored_values().host().begin(), b.store.stored_values().host().end());
    step(2, {.learning_rate = 0.1, .gradient_scale = std::numeric_limits<double>::quiet_NaN(), .update = 2, .applies = 0});
    CHECK(arrays_of(state) == before);
    CHECK(std::equal(weights.begin(), weights.end(), b.store.stored_values().host().begin()));
    step(3, {.learning_rate = 0.1, .update = 2});
    for (const auto& [name, bytes] : arrays_of(state)) CHECK(bytes != before.at(name));
  };
  keeps(fp32{});
  keeps(bf16_mixed{});
  keeps(bf16_pure{});
}

TEST_CASE("a block without gradients keeps codes of zero") {
  bench<fp32> b(aligned);
  adamw_8bit::state<cpu, fp32> state({.weight_decay = 0.0, .min_8bit_size = 256}, b.where, b.store);
  const std::vector<float> before(b.store.stored_values().host().begin(), b.store.stored_values().host().end());
  for (std::size_t t = 1; t <= 3; ++t)
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .update = static_cast<double>(t)}));
  CHECK(std::equal(before.begin(), before.end(), b.store.stored_values().host().begin()));
}

TEST_CASE("8-bit moments take two bytes per weight and eight per block") {
  bench<bf16_mixed> b(aligned);
  const adamw_8bit::state<cpu, bf16_mixed> state({.min_8bit_size = 256}, b.where, b.store);
  const std::size_t n = b.store.stepped();
  CHECK(n == 3 * 256 + 256);
  CHECK(b.on.memory().of(memory_role::optimizer) == n * (4 + 2) + n / 256 * 8 + 100 * 8);
  CHECK(adamw_8bit::config{}.beta1 == adamw::config{}.beta1);
  CHECK(adamw_8bit::config{}.beta2 == adamw::config{}.beta2);
  CHECK(adamw_8bit::config{}.epsilon == adamw::config{}.epsilon);
  CHECK(adamw_8bit::config{}.weight_decay == adamw::config{}.weight_decay);
  CHECK(adamw_8bit::config{}.min_8bit_size == 4096);
}

TEST_CASE("a store that is not laid out for blocks, or has tensor-parallel shards, is refused") {
  const auto open = [](auto& b) { (void)adamw_8bit::state<cpu, fp32>({}, b.where, b.store); };
  bench<fp32> b;
  CHECK_THROWS_WITH_AS(open(b), doctest::Contains("must begin at multiples of 256 elements; the alignment"), config_error);
  struct {
    cpu::context on;
    cpu::stream stream{on};
    arena<cpu> workspace{on, 64, memory_role::workspace};
    execution<cpu> where{stream, workspace, on.properties()};
    parameter_store<cpu, fp32> store{on};
  } cut;
  cut.store.declare({.name = "half", .shape = {2, 4}, .cut = {.whole = {4, 4}, .rows = {{0, 2}}}});
  cut.store.allocate(aligned);
  CHECK_THROWS_WITH_AS(open(cut), doctest::Contains("tensor parallelism shards them. Use adamw"), config_error);
}
