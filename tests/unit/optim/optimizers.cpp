#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/optim/lion.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/optim/sgd.hpp>
#include <xtrain/precision/precision.hpp>
#include <xtrain/testing/archetypes.hpp>

#include "step_of.hpp"

using namespace xtrain;

static_assert(optimizer_for<adamw, cpu, fp32> && optimizer_for<sgd, cpu, bf16_mixed> && optimizer_for<testing::bare_optimizer, cpu, fp32>);
struct without_config {
  static constexpr std::string_view name = "x";
};
struct without_step : testing::bare_optimizer {
  template <class Device, class Precision>
  struct state {
    state(const config&, execution<Device>&, const parameter_store<Device, Precision>&) {}
    template <class Visit>
    void visit(Visit&&) const {}
  };
};
struct without_visit : testing::bare_optimizer {
  template <class Device, class Precision>
  struct state {
    state(const config&, execution<Device>&, const parameter_store<Device, Precision>&) {}
    void step(execution<Device>&, const parameter_store<Device, Precision>&, const optimizer_step<Device>&) {}
  };
};
static_assert(!optimizer<without_config> && !clause::optimizer_state_steps<without_step, cpu, fp32> &&
              !clause::optimizer_state_shows_its_arrays<without_visit, cpu, fp32>);

namespace {

template <class Optimizer, class Precision>
struct bench {
  cpu::context on;
  cpu::stream stream{on};
  arena<cpu> workspace{on, std::size_t{1} << 20, memory_role::workspace};
  execution<cpu> where{stream, workspace, on.properties()};
  parameter_store<cpu, Precision> store{on};
  parameter matrix, vector;

  bench() {
    matrix = store.declare({.name = "matrix", .shape = {2, 3}, .initial = initial_values::normal(1.0)});
    vector = store.declare({.name = "vector", .shape = {3}, .initial = initial_values::constant(1)});
    store.allocate();
    store.allocate_gradients();
    store.initialise(stream, 1, [](std::string_view) { return true; });
    fill_zero(stream, store.gradients());
  }
};

}  // namespace

TEST_CASE("settings outside their range are refused, as PyTorch does") {
  bench<adamw, fp32> b;
  const auto refused = [&]<class Optimizer>(Optimizer, const typename Optimizer::config& c, const char* words) {
    CHECK_THROWS_WITH_AS((typename Optimizer::template state<cpu, fp32>(c, b.where, b.store)), words, config_error);
  };
  refused(adamw{}, {.beta1 = 1.0}, "adamw: beta1 must be in [0, 1); given 1");
  refused(adamw{}, {.beta1 = -0.5}, "adamw: beta1 must be in [0, 1); given -0.5");
  refused(adamw{}, {.beta2 = 1.5}, "adamw: beta2 must be in [0, 1); given 1.5");
  refused(adamw{}, {.beta2 = std::numeric_limits<double>::quiet_NaN()}, "adamw: beta2 must be in [0, 1); given nan");
  refused(adamw{}, {.epsilon = -1.0}, "adamw: epsilon must be non-negative; given -1");
  refused(adamw{}, {.weight_decay = -1.0}, "adamw: weight_decay must be non-negative; given -1");
  refused(adamw{}, {.weight_decay = std::numeric_limits<double>::infinity()}, "adamw: weight_decay must be finite; given inf");
  refused(adafactor{}, {.clip_threshold = 0.0}, "adafactor: clip_threshold must be positive; given 0");
  refused(adamw_8bit{}, {.beta2 = 1.0}, "adamw_8bit: beta2 must be in [0, 1); given 1");
  refused(lion{}, {.beta1 = 1.0}, "lion: beta1 must be in [0, 1); given 1");
  refused(muon{}, {.adamw = {.beta1 = 1.0}}, "muon: adamw: beta1 must be in [0, 1); given 1");
  refused(sgd{}, {.momentum = -1.0}, "sgd: momentum must be non-negative; given -1");
  CHECK_NOTHROW((adamw::state<cpu, fp32>({.beta1 = 0.0, .beta2 = 0.0, .epsilon = 0.0, .weight_decay = 0.0}, b.where, b.store)));
}

TEST_CASE("adamw is its formula: decay on matrices only, both moments corrected") {
  bench<adamw, fp32> b;
  const adamw::config c{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.5};
  adamw::state<cpu, fp32> state(c, b.where, b.store);
  std::vector<double> w, m(9, 0.0), v(9, 0.0);
  for (const parameter p : {b.matrix, b.vector})
    for (const float x : b.store.value(p).host()) w.push_back(static_cast<double>(x));
  for (std::size_t t = 1; t <= 4; ++t) {
    std::size_t i = 0;
    for (const parameter p : {b.matrix, b.vector}) {
      for (float& g : b.store.gradient(p).host()) {
        g = static_cast<float>(0.1 * static_cast<double>(i + 1) * (t % 2 == 0 ? -1.0 : 1.0));
        const double grad = static_cast<double>(g) * 0.5;
        m[i] = c.beta1 * m[i] + (1 - c.beta1) * grad;
        v[i] = c.beta2 * v[i] + (1 - c.beta2) * grad * grad;
        if (i < 6) w[i] -= 0.1 * c.weight_decay * w[i];
        w[i] -= 0.1 * (m[i] / (1 - std::pow(c.beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(c.beta2, t))) + c.epsilon);
        ++i;
      }
    }
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
  }
  std::size_t i = 0;
  for (const parameter p : {b.matrix, b.vector})
    for (const float x : b.store.value(p).host()) CHECK(static_cast<double>(x) == doctest::Approx(w[i++]).epsilon(1e-5));
}

TEST_CASE("sgd is its formula, and without momentum remembers nothing") {
  bench<sgd, fp32> b;
  const float before = b.store.value(b.matrix).host()[0];
  {
    sgd::state<cpu, fp32> state({.momentum = 0.0, .weight_decay = 0.1}, b.where, b.store);
    CHECK(b.on.memory().of(memory_role::optimizer) == 0);
    b.store.gradient(b.matrix).host()[0] = 2.0f;
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.5}));
  }
  CHECK(b.store.value(b.matrix).host()[0] == doctest::Approx(before * (1 - 0.05f) - 1.0f));
  sgd::state<cpu, fp32> state({.momentum = 0.5}, b.where, b.store);
  const float start = b.store.value(b.matrix).host()[0];
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1}));
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1}));
  CHECK(b.store.value(b.matrix).host()[0] == doctest::Approx(start - 0.1f * 2.0f - 0.1f * 3.0f));
}

TEST_CASE("an optimizer shows every array that a checkpoint must hold, by name, zero before the first step") {
  const auto shown = [](auto& b, auto& state) {
    std::vector<std::string> names;
    state.visit([&](std::string_view name, auto span) {
      names.emplace_back(name);
      CHECK(span.size() == b.store.stepped());
    });
    return names;
  };
  using list = std::vector<std::string>;
  bench<adamw, bf16_mixed> mixed;
  adamw::state<cpu, bf16_mixed> with_master({}, mixed.where, mixed.store);
  CHECK(shown(mixed, with_master) == list{"master", "m", "v"});
  sgd::state<cpu, bf16_mixed> momentum_and_master({}, mixed.where, mixed.store);
  CHECK(shown(mixed, momentum_and_master) == list{"master", "velocity"});
  sgd::state<cpu, bf16_mixed> master_alone({.momentum = 0.0}, mixed.where, mixed.store);
  CHECK(shown(mixed, master_alone) == list{"master"});
  bench<adamw, fp32> plain;
  adamw::state<cpu, fp32> without({}, plain.where, plain.store);
  CHECK(shown(plain, without) == list{"m", "v"});
  without.visit([](std::string_view, auto span) {
    for (const float x : span.host()) CHECK(x == 0.0f);
  });
}

TEST_CASE("a step that does not apply keeps all bits of weights, master weights and state") {
  const auto keeps = []<class Optimizer, class Precision>(Optimizer, Precision) {
    bench<Optimizer, Precision> b;
    typename Optimizer::template state<cpu, Precision> state({}, b.where, b.store);
    const auto fill = [&](float value) {
      for (auto& g : b.store.gradients().host()) g = static_cast<typename Precision::gradient>(value);
    };
    const auto bytes = [&] {
      std::vector<std::byte> all;
      const auto add = [&](auto span) {
        const auto some = std::as_bytes(span.host());
        all.insert(all.end(), some.begin(), some.end());
      };
      add(b.store.stored_values());
      state.visit([&](std::string_view, auto span) { add(span); });
      return all;
    };
    fill(0.5f);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1}, 1, 3));
    const std::vector<std::byte> before = bytes();
    fill(std::numeric_limits<float>::infinity());
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .gradient_scale = std::nan(""), .update = 2, .applies = 0}, 2, 3));
    CHECK(bytes() == before);
    fill(0.5f);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 0.1, .update = 2}, 3, 3));
    CHECK(bytes() != before);
  };
  keeps(adamw{}, fp32{});
  keeps(adamw{}, bf16_mixed{});
  keeps(adamw{}, bf16_pure{});
  keeps(sgd{}, fp32{});
  keeps(sgd{}, bf16_mixed{});
  keeps(sgd{}, bf16_pure{});
}

TEST_CASE("sgd's decay is not for vectors, and its defaults are those of the page") {
  bench<sgd, fp32> b;
  sgd::state<cpu, fp32> state({.momentum = 0.0, .weight_decay = 0.5}, b.where, b.store);
  state.step(b.where, b.store, testing::step_of({.learning_rate = 0.5}));
  for (const float x : b.store.value(b.vector).host()) CHECK(x == 1.0f);
  CHECK(sgd::config{}.momentum == 0.9);
  CHECK(sgd::config{}.weight_decay == 0.0);
  CHECK(adamw::config{}.beta1 == 0.9);
  CHECK(adamw::config{}.beta2 == 0.999);
  CHECK(adamw::config{}.epsilon == 1e-8);
  CHECK(adamw::config{}.weight_decay == 0.01);
}

TEST_CASE("sgd without a master copy rounds stochastically, too") {
  bench<sgd, bf16_pure> b;
  sgd::state<cpu, bf16_pure> state({.momentum = 0.0}, b.where, b.store);
  for (std::uint32_t t = 1; t <= 400; ++t) {
    for (bf16& g : b.store.gradients().host()) g = bf16(1.0f);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 1e-4, .update = static_cast<double>(t)}, t, 7));
  }
  double mean = 0;
  for (const bf16 x : b.store.value(b.vector).host()) mean += static_cast<double>(static_cast<float>(x)) / 3.0;
  CHECK(std::abs(mean - 0.96) < 0.021);  // as for adamw below
}

TEST_CASE("a master copy keeps steps that bf16 would lose") {
  bench<adamw, bf16_mixed> b;
  adamw::state<cpu, bf16_mixed> state({.weight_decay = 0.0}, b.where, b.store);
  const bf16 before = b.store.value(b.vector).host()[0];
  for (std::size_t t = 1; t <= 100; ++t) {
    for (float& g : b.store.gradients().host()) g = 1.0f;
    state.step(b.where, b.store, testing::step_of({.learning_rate = 1e-4, .update = static_cast<double>(t)}));  // each step is 1/40 of a bf16 unit at 1
  }
  CHECK(static_cast<float>(before) == 1.0f);
  CHECK(static_cast<float>(b.store.value(b.vector).host()[0]) == doctest::Approx(0.99).epsilon(0.004));
}

TEST_CASE("without a master copy stochastic rounding keeps them on average") {
  bench<adamw, bf16_pure> b;
  adamw::state<cpu, bf16_pure> state({.weight_decay = 0.0}, b.where, b.store);
  for (std::uint32_t t = 1; t <= 400; ++t) {
    for (bf16& g : b.store.gradients().host()) g = bf16(1.0f);
    state.step(b.where, b.store, testing::step_of({.learning_rate = 1e-4, .update = static_cast<double>(t)}, t, 7));
  }
  double mean = 0;
  for (const bf16 x : b.store.value(b.vector).host()) mean += static_cast<double>(static_cast<float>(x)) / 3.0;
  // 400 steps of 1e-4 each; below 1 a unit is 2^-8, and the sum of 400 roundings deviates by 2^-8 · sqrt(400 p (1 - p)) with
  // p = 1e-4 · 2^8, over three weights: 0.007; three standard deviations
  CHECK(std::abs(mean - 0.96) < 0.021);
}

TEST_CASE("schedules rise, hold, fall, and stop at their floor") {
  const learning_rate_schedule cosine(lr_schedule_kind::cosine, 1.0, 10, 110, 0.1), linear(lr_schedule_kind::linear, 2.0, 0, 101, 0.0),
      constant(lr_schedule_kind::constant, 0.5, 4, 100, 0.0);
  CHECK(cosine.at(0) == doctest::Approx(0.1));
  CHECK(cosine.at(9) == doctest::Approx(1.0));
  CHECK(cosine.at(10) == doctest::Approx(1.0));
  CHECK(cosine.at(109) == doctest::Approx(0.1));
  CHECK(cosine.at(500) == doctest::Approx(0.1));
  for (std::size_t s = 10; s < 109; ++s) REQUIRE(cosine.at(s + 1) <= cosine.at(s));
  CHECK(linear.at(0) == doctest::Approx(2.0));
  CHECK(linear.at(50) == doctest::Approx(1.0));
  CHECK(linear.at(100) == doctest::Approx(0.0));
  CHECK(constant.at(1) == doctest::Approx(0.25));
  CHECK(constant.at(99) == doctest::Approx(0.5));
  CHECK(lr_schedule_named("linear") == lr_schedule_kind::linear);
  CHECK_THROWS_WITH_AS((void)lr_schedule_named("cosin"),
                       doctest::Contains("warmup_stable_decay or cosine_warmup_with_min_lr; given 'cosin'"), config_error);
  CHECK_THROWS_AS(learning_rate_schedule(lr_schedule_kind::cosine, std::nan(""), 0, 1, 0.0), config_error);
  CHECK_THROWS_AS(learning_rate_schedule(lr_schedule_kind::cosine, 1.0, 0, 1, 1.5), config_error);
}

namespace {

/// Three blocks, a learning rate per parameter.
template <class Optimizer>
struct rates_bench {
  cpu::context on;
  cpu::stream stream{on};
  arena<cpu> workspace{on, std::size_t{1} << 20, memory_role::workspace};
  execution<cpu> where{stream, workspace, on.properties()};
  parameter_store<cpu, fp32> store{on};
  std::optional<typename Optimizer::template state<cpu, fp32>> state{};

  template <class FactorOf>
  rates_bench(const typename Optimizer::config& c, const shard_spec& sharding, FactorOf&& factor_of) {
    store.declare({.name = "embed", .shape = {5, 8}, .initial = initial_values::normal(1.0)});
    store.begin_block(1);
    store.declare({.name = "a", .shape = {6, 8}, .initial = initial_values::normal(1.0)});
    store.declare({.name = "norm", .shape = {8}, .initial = initial_values::constant(1)});
    store.declare({.name = "b", .shape = {8, 6}, .initial = initial_values::normal(1.0)});
    store.declare({.name = "bias", .shape = {6}, .initial = initial_values::constant(1)});
    store.begin_block(2);
    store.declare({.name = "head", .shape = {3, 8}, .initial = initial_values::normal(1.0)});
    store.allocate(sharding);
    store.allocate_gradients();
    store.initialise(stream, 1, [](std::string_view) { return true; });
    store.set_learning_rate_factors([](const auto&) { return 7.0; });  // forgotten
    store.set_learning_rate_factors(factor_of);
    state.emplace(c, where, store);
  }
  void steps(double learning_rate) {
    for (std::size_t t = 1; t <= 3; ++t) {
      std::size_t i = 0;
      for (const auto& entry : store.entries())
        for (float& g : store.gradient(entry).host()) g = 0.25f * static_cast<float>(static_cast<int>(++i * t * 7 % 9) - 4);
      state->step(where, store, testing::step_of({.learning_rate = learning_rate, .gradient_scale = 0.5, .update = static_cast<double>(t)}));
    }
  }
};

/// Parameters with factors have the bits of a run with that learning rate, for whole and sharded optimizer state.
template <class Optimizer>
void check_learning_rate_factors(const typename Optimizer::config& c, std::size_t most_parts) {
  INFO(Optimizer::name);
  const auto factor_of = [](const auto& entry) {
    return entry.spec.name == "b" || entry.spec.name == "norm" ? 16.0 : entry.spec.name == "embed" ? 0.25 : entry.spec.name == "head" ? 0.0 : 1.0;
  };
  for (std::size_t parts = 1; parts <= most_parts; ++parts) {
    for (std::size_t part = 0; part < parts; ++part) {
      const shard_spec sharding{.parts = parts, .part = part, .alignment = has_hook<Optimizer, hook::layout_alignment> ? std::size_t{256} : std::size_t{1}};
      rates_bench<Optimizer> mixed(c, sharding, factor_of);
      mixed.steps(0.0625);
      for (const double factor : {16.0, 0.25, 0.0, 1.0}) {
        rates_bench<Optimizer> uniform(c, {.alignment = sharding.alignment}, [](const auto&) { return 1.0; });
        uniform.steps(0.0625 * factor);
        for (std::size_t e = 0; e < mixed.store.entries().size(); ++e) {
          const auto& entry = mixed.store.entries()[e];
          if (factor_of(entry) != factor) continue;
          const auto own = mixed.store.piece_of(entry);
          const auto values = mixed.store.value(entry).host(), expected = uniform.store.value(uniform.store.entries()[e]).host();
          std::size_t different = 0;
          for (std::size_t i = own.first; i < own.first + own.count; ++i) different += values[i] == expected[i] ? 0 : 1;
          INFO(entry.spec.name, " part ", part, " of ", parts);
          CHECK(different == 0);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("a parameter with a learning rate of its own has the bits of a run with that rate, wherever shards are cut") {
  check_learning_rate_factors<adamw>({.weight_decay = 0.1}, 3);
  check_learning_rate_factors<sgd>({.momentum = 0.5, .weight_decay = 0.1}, 3);
  check_learning_rate_factors<lion>({.weight_decay = 0.1}, 3);
  check_learning_rate_factors<adamw_8bit>({.weight_decay = 0.1, .min_8bit_size = 1}, 3);
  check_learning_rate_factors<muon>({}, 1);
  check_learning_rate_factors<adafactor>({.weight_decay = 0.1}, 1);
}

namespace {

/// With zero gradients a step only decays weights: matrices, and vectors if all decay.
template <class Optimizer>
void check_weight_decay_of_all(const typename Optimizer::config& c, std::size_t most_parts) {
  INFO(Optimizer::name);
  constexpr std::size_t alignment = has_hook<Optimizer, hook::layout_alignment> ? 256 : 1;
  for (std::size_t parts = 1; parts <= most_parts; ++parts) {
    for (std::size_t part = 0; part < parts; ++part) {
      rates_bench<Optimizer> bench(c, {.parts = parts, .part = part, .alignment = alignment}, [](const auto& e) { return e.spec.name == "bias" ? 2.0 : 1.0; });
      const auto runs_of_matrices = bench.store.parameter_slices().size();
      for (const bool all : {false, true, false}) {
        INFO("all ", all, " part ", part, " of ", parts);
        bench.store.set_weight_decay_of_all(all);
        if (!all) CHECK(bench.store.parameter_slices().size() == runs_of_matrices);
        bench.store.initialise(bench.stream, 1, [](std::string_view) { return true; });
        bench.state.emplace(c, bench.where, bench.store);
        fill_zero(bench.stream, bench.store.gradients());
        std::vector<std::vector<float>> before;
        for (const auto& entry : bench.store.entries()) before.emplace_back(bench.store.value(entry).host().begin(), bench.store.value(entry).host().end());
        bench.state->step(bench.where, bench.store, testing::step_of({.learning_rate = 0.0625, .update = 1.0}));
        std::size_t wrong = 0;
        for (std::size_t e = 0; e < before.size(); ++e) {
          const auto& entry = bench.store.entries()[e];
          const auto own = bench.store.piece_of(entry);
          const double rate = 0.0625 * (entry.spec.name == "bias" ? 2.0 : 1.0), kept = all || entry.spec.shape.size() > 1 ? 1.0 - rate * 0.5 : 1.0;
          for (std::size_t i = own.first; i < own.first + own.count; ++i)
            wrong += std::abs(bench.store.value(entry).host()[i] - kept * before[e][i]) <= 1e-6 * std::abs(before[e][i]) ? 0 : 1;  // a few roundings
        }
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace

TEST_CASE("weight decay of all parameters decays vectors like matrices, and can be taken back") {
  check_weight_decay_of_all<adamw>({.weight_decay = 0.5}, 3);
  check_weight_decay_of_all<sgd>({.momentum = 0.5, .weight_decay = 0.5}, 3);
  check_weight_decay_of_all<lion>({.weight_decay = 0.5}, 3);
  check_weight_decay_of_all<adamw_8bit>({.weight_decay = 0.5, .min_8bit_size = 1}, 3);
  check_weight_decay_of_all<muon>({.weight_decay = 0.5, .adamw = {.weight_decay = 0.5}}, 1);
  check_weight_decay_of_all<adafactor>({.weight_decay = 0.5}, 1);
}

TEST_CASE("learning rates that cannot be are refused; without them runs are not split") {
  const auto one = [](const auto&) { return 1.0; };
  const rates_bench<adamw> plain({}, {}, one);
  CHECK(plain.store.parameter_slices().size() == 3);  // matrices of two blocks, vectors of one, the head
  CHECK_THROWS_WITH_AS(rates_bench<adamw>({}, {}, [](const auto&) { return -1.0; }),
                       "learning_rate_factor of 'embed': must be non-negative; given -1", config_error);
  CHECK_THROWS_WITH_AS(rates_bench<adafactor>({.relative_step = true}, {}, [](const auto&) { return 2.0; }),
                       "adafactor: relative_step must be off where parameters have learning rates of their own, which it does not use; a factor is 2",
                       config_error);
}
