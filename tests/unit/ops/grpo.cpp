// GRPO's loss: losses and gradients against trl's GRPOTrainer (tests/golden/make_grpo.py), derivatives against difference quotients.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/ops/grpo.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/value_loss.hpp>
#include "golden.hpp"
#include "ops_on_host.hpp"

using namespace xtrain;
using namespace on_host;

namespace {

struct variant {
  std::string name;
  ops::grpo_settings settings;
  bool has_old = true;
};

template <class Device, class T>
void losses_are_trls() {
  using kind = ops::grpo_kind;
  const safetensors_file file(golden::folder("objectives") + "/grpo.safetensors");
  const auto expected = [&](const std::string& name) { return golden::numbers(file, name); };
  constexpr std::size_t b = 5, t = 7, n = b * t, c = 5, v = 11;
  auto x = as<T>(expected("x")), weight = as<T>(expected("weight")), old = as<T>(expected("old")), reference = as<T>(expected("reference"));
  auto target = as<token>(expected("targets"));
  auto advantages = expected("advantages");
  for (const variant& one : {variant{"grpo", {.kind = kind::grpo, .beta = 0.3}}, variant{"dapo", {.beta = 0.3, .epsilon_high = 0.28}},
                             variant{"dr_grpo", {.kind = kind::dr_grpo, .max_completion_length = 10.0}}, variant{"on_policy", {}, false},
                             variant{"sequence_ratio", {.kind = kind::grpo, .sequence_ratio = true, .beta = 0.3}}}) {
    CAPTURE(one.name);
    // the padding sequence does not count; 11 tokens of 4 answers do
    const double denominator = one.settings.kind == kind::dapo ? 11.0 : 4.0;
    computing<Device> device;
    auto& on = device.where;
    std::vector<T> loss(n), token_weight(n), dx(n * c), dweight(v * c);
    std::vector<double> losses(b), statistics(3 * b);
    using none = vector_view<const T, host_memory>;
    ops::linear_cross_entropy(on, mat(x, n), mat(weight, v), vec(target), vec(loss));
    ops::grpo_loss(on, one.settings, vec(loss), vec(target), v, vec(advantages), one.has_old ? none(vec(old)) : none{},
                   one.settings.beta > 0 ? none(vec(reference)) : none{}, vec(losses), mat(statistics, 3), vec(token_weight));
    ops::linear_cross_entropy_with_gradient(on, mat(x, n), mat(weight, v), vec(target), 1.0 / denominator, vec(loss), mat(dx, n), mat(dweight, v), 0.0,
                                            {}, {}, vec(token_weight));
    agrees<T>({static_cast<T>(std::accumulate(losses.begin(), losses.end(), 0.0) / denominator)}, expected(one.name + ".loss"));
    agrees(dx, expected(one.name + ".dx"));
    agrees(dweight, expected(one.name + ".dweight"));
    CHECK(losses[2] == 0.0);
    if (one.settings.kind != kind::dapo) continue;  // trl's are means over all tokens, in fp32
    std::vector<float> means;
    for (std::size_t s = 0; s < 3; ++s)
      means.push_back(static_cast<float>(std::accumulate(statistics.begin() + static_cast<std::ptrdiff_t>(s * b),
                                                         statistics.begin() + static_cast<std::ptrdiff_t>((s + 1) * b), 0.0) / denominator));
    agrees(means, expected(one.name + ".statistics"));
  }
}

}  // namespace

TEST_CASE("losses and gradients of answers with advantages are those of trl") {
  SUBCASE("reference fp64") { losses_are_trls<reference, double>(); }
  SUBCASE("reference fp32") { losses_are_trls<reference, float>(); }
  SUBCASE("cpu fp64") { losses_are_trls<cpu, double>(); }
  SUBCASE("cpu fp32") { losses_are_trls<cpu, float>(); }
}

namespace {

/// Four answers as one-token sequences: grpo_loss equals PPO's.
template <class Device, class T>
void losses_are_torchtunes() {
  const safetensors_file file(golden::folder("objectives") + "/ppo.safetensors");
  const auto expected = [&](const std::string& name) { return golden::numbers(file, name); };
  const auto mask = expected("mask");
  const std::size_t n = mask.size();
  const double count = std::accumulate(mask.begin(), mask.end(), 0.0);
  std::vector<token> target(n), index(n);
  for (std::size_t i = 0; i < n; ++i) {
    target[i] = mask[i] > 0 ? 1 : -1;
    index[i] = mask[i] > 0 ? static_cast<token>(i) : -1;
  }
  const auto mean = [&](const std::vector<double>& values) { return static_cast<T>(std::accumulate(values.begin(), values.end(), 0.0) / count); };
  computing<Device> device;
  auto log_probs = expected("log_probs");
  for (double& x : log_probs) x = -x;
  auto loss = as<T>(log_probs), old = as<T>(expected("old"));
  auto advantages = expected("advantages");
  std::vector<T> weight(n);
  std::vector<double> losses(n), statistics(3 * n);
  ops::grpo_loss(device.where, {}, vec(loss), vec(target), 2, vec(advantages), vector_view<const T, host_memory>(vec(old)), {}, vec(losses),
                 mat(statistics, 3), vec(weight));
  agrees<T>({mean(losses)}, expected("policy_loss"));
  for (T& w : weight) w = -w / static_cast<T>(count);
  agrees(weight, expected("dlog_probs"));
  agrees<T>({mean({statistics.begin() + static_cast<std::ptrdiff_t>(n), statistics.end()})}, expected("clip_ratio"));

  auto value = expected("new_values"), before = expected("values"), returns = expected("returns");
  std::vector<double> value_losses(n), dvalue(n), clipped(n);
  ops::value_loss<Device>(device.where, 0.3, vec(value), vec(before), vec(returns), vec(index), vec(value_losses), vec(dvalue), vec(clipped));
  agrees<double>({std::accumulate(value_losses.begin(), value_losses.end(), 0.0) / count}, expected("value_loss"));
  for (double& d : dvalue) d /= count;
  agrees(dvalue, expected("dvalues"));
  CHECK(std::accumulate(clipped.begin(), clipped.end(), 0.0) > 0.0);
}

}  // namespace

TEST_CASE("losses and gradients of tokens with advantages, and of their values, are those of torchtune's PPO") {
  SUBCASE("reference fp64") { losses_are_torchtunes<reference, double>(); }
  SUBCASE("reference fp32") { losses_are_torchtunes<reference, float>(); }
  SUBCASE("cpu fp64") { losses_are_torchtunes<cpu, double>(); }
  SUBCASE("cpu fp32") { losses_are_torchtunes<cpu, float>(); }
}

TEST_CASE("the reference's derivatives agree with difference quotients") {
  using kind = ops::grpo_kind;
  constexpr std::size_t b = 3, t = 4, n = b * t, v = 9;
  std::vector<token> target{-1, 3, 4, -1, 0, 1, 8, 2, -1, 9, 5, -1};
  std::vector<double> cross_entropy(n), old(n), reference_logp(n), advantages{1.5, -0.8, 0.6};
  for (std::size_t i = 0; i < n; ++i) {
    cross_entropy[i] = 1.0 + 0.13 * static_cast<double>(i * 5 % 7);
    old[i] = -cross_entropy[i] + 0.11 * (static_cast<double>(i * 3 % 8) - 3.5);  // some ratios are clipped; none is at a bound
    reference_logp[i] = -1.4 + 0.1 * static_cast<double>(i % 5);
  }
  std::size_t clipped = 0;
  for (const auto& settings : {ops::grpo_settings{.kind = kind::grpo, .beta = 0.4}, ops::grpo_settings{.epsilon_high = 0.28},
                               ops::grpo_settings{.kind = kind::dr_grpo, .beta = 0.4, .max_completion_length = 9.0},
                               ops::grpo_settings{.kind = kind::grpo, .sequence_ratio = true, .beta = 0.4}}) {
    computing<reference> device;
    std::vector<double> loss(b), statistics(3 * b), weight(n);
    const auto run = [&] {
      ops::grpo_loss(device.where, settings, vec(cross_entropy), vec(target), v, vec(advantages), vec(old), vec(reference_logp), vec(loss),
                     mat(statistics, 3), vec(weight));
      return std::accumulate(loss.begin(), loss.end(), 0.0);
    };
    (void)run();
    const std::vector<double> derivative = weight;  // by cross-entropy, −log p
    for (std::size_t s = b; s < 3 * b; ++s) clipped += statistics[s] > 0 ? 1 : 0;
    for (std::size_t i = 0; i < n; ++i) {
      CAPTURE(i);
      constexpr double h = 1e-5;
      const double before = cross_entropy[i];
      cross_entropy[i] = before + h;
      const double above = run();
      cross_entropy[i] = before - h;
      const double below = run();
      cross_entropy[i] = before;
      CHECK(derivative[i] == doctest::Approx((above - below) / (2 * h)).epsilon(1e-7));
    }
  }
  CHECK(clipped > 0);
}

TEST_CASE("an infinite ratio is clipped, and an advantage of 0 has no policy loss at all") {
  const auto check = [&]<class Device>(Device) {
    computing<Device> device;
    std::vector<double> cross_entropy{0.0, 0.0}, old{-4000.0, -4000.0}, advantages{1.0, 0.0}, loss(2), statistics(6), weight(2);
    std::vector<token> target{0, 0};
    ops::grpo_loss(device.where, {}, vec(cross_entropy), vec(target), 3, vec(advantages), vec(old), {}, vec(loss), mat(statistics, 3), vec(weight));
    CHECK(loss == std::vector<double>{-1.2, 0.0});
    CHECK(weight == std::vector<double>{0.0, 0.0});
    CHECK(statistics[4] == 1.0);
  };
  check(reference{});
  check(cpu{});
}

TEST_CASE("what does not fit is named") {
  computing<cpu> device;
  auto& on = device.where;
  std::vector<float> f3(3), f4(4);
  std::vector<token> t3(3), t4(4);
  std::vector<double> d2(2), d3(3), d6(6);
  const auto declines = [&](const std::string& words, const ops::grpo_settings& settings) {
    CHECK_THROWS_WITH_AS(ops::grpo_loss(on, settings, vec(f4), vec(t4), 9, vec(d2), {}, {}, vec(d2), mat(d6, 3), vec(f4)), doctest::Contains(words.c_str()),
                         config_error);
  };
  declines("grpo_loss: beta must not be negative; given -1", {.beta = -1.0});
  declines("grpo_loss: epsilon_low and epsilon_high must be positive; given 0 and 0.2", {.epsilon_low = 0.0});
  declines("grpo_loss: max_completion_length must be positive; given 0", {.max_completion_length = 0.0});
  const auto refuses = [](const std::string& words, const std::function<void()>& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(words.c_str()), shape_error);
  };
  refuses("grpo_loss: the 3 tokens must be those of 2 sequences",
          [&] { ops::grpo_loss(on, {}, vec(f3), vec(t3), 9, vec(d2), {}, {}, vec(d2), mat(d6, 3), vec(f3)); });
  refuses("grpo_loss: target_n", [&] { ops::grpo_loss(on, {}, vec(f4), vec(t3), 9, vec(d2), {}, {}, vec(d2), mat(d6, 3), vec(f4)); });
  refuses("grpo_loss: reference_n",
          [&] { ops::grpo_loss(on, {.beta = 0.1}, vec(f4), vec(t4), 9, vec(d2), {}, vec(f3), vec(d2), mat(d6, 3), vec(f4)); });
  refuses("grpo_loss: statistics_3b", [&] { ops::grpo_loss(on, {}, vec(f4), vec(t4), 9, vec(d2), {}, {}, vec(d2), mat(d3, 3), vec(f4)); });
}
