// Objectives other than next-token prediction: losses and gradients against PyTorch, trl and torchtune (tests/golden/make_objectives.py), with unsharded and
// sharded vocabulary; derivatives against difference quotients.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/ops/distillation.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/split_loss.hpp>
#include "golden.hpp"
#include "ops_on_host.hpp"

using namespace xtrain;
using namespace on_host;

namespace {

template <class T>
std::vector<T> drawn(std::size_t n, std::uint32_t site, double low = -1.0, double high = 1.0) {
  std::vector<T> all(n);
  for (std::size_t i = 0; i < n; ++i)
    all[i] = static_cast<T>(low + (high - low) * static_cast<double>(uniform_open(random_word({.seed = 12, .step = 0, .site = site}, i))));
  return all;
}

class fixture {
 public:
  explicit fixture(const std::string& name) : file_(golden::folder("objectives") + "/" + name + ".safetensors") {}
  std::vector<double> operator[](const std::string& name) const { return golden::numbers(file_, name); }

 private:
  safetensors_file file_;
};

template <class T>
std::vector<T> columns(const std::vector<T>& all, std::size_t rows, std::size_t first, std::size_t last) {
  const std::size_t width = all.size() / rows;
  std::vector<T> part;
  for (std::size_t i = 0; i < rows; ++i)
    part.insert(part.end(), all.begin() + static_cast<std::ptrdiff_t>(i * width + first),
                all.begin() + static_cast<std::ptrdiff_t>(i * width + last));
  return part;
}

/// Bounds of uneven vocabulary shards.
std::vector<std::size_t> shards(std::size_t v, std::size_t ranks) {
  std::vector<std::size_t> bounds{0};
  for (std::size_t r = 1; r <= ranks; ++r) bounds.push_back(v * r / ranks);
  return bounds;
}

template <class T>
struct head_result {
  std::vector<T> loss, dx, dweight;
};

/// The head: unsharded by one kernel, or shard by shard, each on its own rank.
template <class Device, class T>
head_result<T> run_head(std::vector<T> x, std::vector<T> weight, std::vector<token> target, std::vector<T> token_weight, std::size_t v,
                        double label_smoothing, double z_loss, std::size_t ranks, double log_z_loss = 0.0) {
  computing<Device> device;
  auto& on = device.where;
  const std::size_t n = target.size(), c = x.size() / n;
  head_result<T> r{std::vector<T>(n), std::vector<T>(x.size()), std::vector<T>(weight.size())};
  const vector_view<const T, host_memory> factors = token_weight.empty() ? vector_view<const T, host_memory>{} : vec(token_weight);
  if (ranks == 1) {
    ops::linear_cross_entropy_with_gradient(on, mat(x, n), mat(weight, v), vec(target), 1.0, vec(r.loss), mat(r.dx, n), mat(r.dweight, v),
                                            z_loss, {}, {}, factors, label_smoothing, log_z_loss);
    return r;
  }
  const auto bounds = shards(v, ranks);
  const std::size_t parts_each = kernel::softmax_parts(label_smoothing);
  std::vector<T> parts(ranks * parts_each * n);
  std::vector<std::vector<T>> logits(ranks);
  const auto weights = mat(weight, v), dweights = mat(r.dweight, v);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t first = bounds[rank], size = bounds[rank + 1] - first;
    logits[rank].resize(n * size);
    ops::linear(on, mat(x, n), weights.rows(first, size), {}, mat(logits[rank], n));
    ops::softmax_part<Device, T>(on, mat(logits[rank], n), vec(target), first,
                                 mat(parts, ranks * parts_each).rows(rank * parts_each, parts_each));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t first = bounds[rank], size = bounds[rank + 1] - first;
    std::vector<T> dlogits(n * size), dx(n * c);
    ops::softmax_of_parts<Device, T, T>(on, mat(logits[rank], n), vec(target), first, v, rank, mat(parts, ranks * parts_each), 1.0,
                                        z_loss, vec(r.loss), mat(dlogits, n), factors, label_smoothing, log_z_loss);
    ops::linear_backward_input(on, mat(dlogits, n), weights.rows(first, size), mat(dx, n));
    for (std::size_t i = 0; i < dx.size(); ++i) r.dx[i] += dx[i];  // the all-reduce
    ops::linear_backward_weight(on, mat(dlogits, n), mat(x, n), dweights.rows(first, size));
  }
  return r;
}

template <class Device, class T>
void cross_entropy_is_pytorchs() {
  const fixture expected("cross_entropy");
  const std::size_t v = 11;
  const auto target = as<token>(expected["targets"]);
  for (const std::string name : {"plain", "smoothed", "z", "smoothed_z"})
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}}) {
      CAPTURE(name);
      CAPTURE(ranks);
      const auto r = run_head<Device, T>(as<T>(expected["x"]), as<T>(expected["weight"]), target, as<T>(expected["token_weights"]), v,
                                         name.starts_with("smoothed") ? 0.15 : 0.0, 0.0, ranks, name.ends_with("z") ? 0.05 : 0.0);
      agrees(r.loss, expected[name + ".loss"]);
      agrees(r.dx, expected[name + ".dx"]);
      agrees(r.dweight, expected[name + ".dweight"]);
      const std::size_t c = r.dx.size() / target.size();
      for (const std::size_t row : {std::size_t{2}, std::size_t{4}}) {  // ignored target, weight 0
        CHECK(r.loss[row] == T{0});
        for (std::size_t j = 0; j < c; ++j) CHECK(r.dx[row * c + j] == T{0});
      }
    }
}

struct variant {
  std::string name;
  ops::preference_settings settings;
  bool reference_free = false;
};

template <class Device, class T>
void pairs_are_trls() {
  using kind = ops::preference_kind;
  const fixture expected("preference");
  constexpr std::size_t b = 6, v = 11, c = 5;
  auto x = as<T>(expected["x"]), weight = as<T>(expected["weight"]);
  auto target = as<token>(expected["targets"]);
  auto reference = expected["reference"];
  const std::size_t n = target.size();
  for (const variant& one : {variant{"sigmoid", {.beta = 0.3}}, variant{"ipo", {.kind = kind::ipo, .beta = 0.3, .average_log_probs = true}},
                             variant{"hinge", {.kind = kind::hinge, .beta = 0.3}},
                             variant{"robust", {.kind = kind::robust, .beta = 0.3, .label_smoothing = 0.2}},
                             variant{"sigmoid_norm", {.beta = 2.0, .average_log_probs = true}},
                             variant{"reference_free", {.beta = 0.3}, true}, variant{"cdpo", {.beta = 0.3, .label_smoothing = 0.2}},
                             variant{"orpo",
                                     {.kind = kind::odds_ratio, .beta = 0.3, .average_log_probs = true, .average_rewards = true, .nll_weight = 1.0},
                                     true},
                             variant{"simpo", {.beta = 2.0, .margin = 0.6, .average_log_probs = true, .average_rewards = true}, true},
                             variant{"simpo_nll",
                                     {.beta = 2.0,
                                      .label_smoothing = 0.1,
                                      .margin = 0.6,
                                      .average_log_probs = true,
                                      .average_rewards = true,
                                      .nll_weight = 0.7},
                                     true}}) {
    const std::string& name = one.name;
    const ops::preference_settings& settings = one.settings;
    CAPTURE(name);
    computing<Device> device;
    auto& on = device.where;
    std::vector<T> loss(n), token_weight(n), dx(n * c), dweight(v * c);
    std::vector<double> logp(b), count(b), losses(b / 2), dlogp(b), statistics(4 * b / 2);
    ops::linear_cross_entropy(on, mat(x, n), mat(weight, v), vec(target), vec(loss));
    ops::sequence_sums(on, vec(loss), vec(target), v, vec(logp), vec(count));
    ops::preference_loss(on, settings, vec(logp), vec(count),
                         one.reference_free ? vector_view<const double, host_memory>{} : vec(reference), vec(losses), vec(dlogp),
                         mat(statistics, 4));
    ops::sequence_weights(on, vec(target), v, vec(dlogp), vec(token_weight));
    ops::linear_cross_entropy_with_gradient(on, mat(x, n), mat(weight, v), vec(target), 1.0, vec(loss), mat(dx, n), mat(dweight, v), 0.0,
                                            {}, {}, vec(token_weight));
    ops::sequence_losses(on, vec(losses), b, vec(loss));

    agrees(as<T>(logp), expected["logp"]);
    CHECK(count == expected["count"]);
    agrees(as<T>(losses), expected[name + ".loss"]);
    agrees(as<T>(statistics), expected[name + ".statistics"]);
    agrees(as<T>(dlogp), expected[name + ".dlogp"]);
    agrees(dx, expected[name + ".dx"]);
    agrees(dweight, expected[name + ".dweight"]);
    agrees(std::vector<T>{std::accumulate(loss.begin(), loss.end(), T{0})}, {std::accumulate(losses.begin(), losses.end(), 0.0)});
    CHECK(std::count(loss.begin(), loss.end(), T{0}) >= static_cast<std::ptrdiff_t>(n - b / 2));
  }
}

template <class Device>
void answers_are_trls() {
  const fixture expected("kto");
  auto logp = expected["logp"], reference = expected["reference"];
  auto label = as<token>(expected["labels"]);
  const std::size_t b = logp.size(), answers = b / 2;
  const auto n = static_cast<double>(answers);
  std::vector<double> count(b, 1.0);
  struct one {
    std::string name;
    ops::kto_settings settings;
  };
  for (const one& each : {one{"kto", {.beta = 0.3}}, one{"weighted", {.beta = 0.3, .desirable_weight = 1.5, .undesirable_weight = 0.8}},
                          one{"apo_zero", {.beta = 0.3, .estimates_kl = false}}}) {
    CAPTURE(each.name);
    computing<Device> device;
    std::vector<double> losses(answers), dlogp(b), statistics(4 * answers);
    ops::kto_loss(device.where, each.settings, vec(logp), vec(count), vec(reference), vec(label), vec(losses), vec(dlogp), mat(statistics, 4));
    agrees(std::vector<double>{std::accumulate(losses.begin(), losses.end(), 0.0) / n}, expected[each.name + ".loss"]);
    for (double& d : dlogp) d /= n;
    agrees(dlogp, expected[each.name + ".dlogp"]);
    std::array<double, 4> means{};
    for (std::size_t i = 0; i < statistics.size(); ++i) means[i / answers] += statistics[i] / n;
    const std::array<double, 4> reported = kto::reported(means);
    agrees(std::vector<double>(reported.begin(), reported.end()), expected[each.name + ".statistics"]);
  }
}

/// Loss and gradient of distillation with a sharded vocabulary; `top` > 0: from stored log-probabilities.
template <class Device, class T>
struct distilled {
  std::vector<T> loss, dstudent;

  distilled(const ops::distillation_settings& settings, std::vector<T> student, std::vector<T> teacher, std::vector<token> ids,
            std::vector<token> target, std::size_t ranks, std::vector<T> token_weight = {}, std::vector<T> loss_before = {},
            std::vector<T> gradient_before = {}) {
    computing<Device> device;
    auto& on = device.where;
    const std::size_t n = target.size(), v = student.size() / n, parts_each = ids.empty() ? 5 : 3;
    const vector_view<const T, host_memory> factors = token_weight.empty() ? vector_view<const T, host_memory>{} : vec(token_weight);
    std::vector<T> parts(ranks * parts_each * n);
    const auto bounds = shards(v, ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto own_parts = mat(parts, ranks * parts_each).rows(rank * parts_each, parts_each);
      auto own = columns(student, n, bounds[rank], bounds[rank + 1]);
      if (ids.empty()) {
        auto theirs = columns(teacher, n, bounds[rank], bounds[rank + 1]);
        ops::distillation_part<Device, T>(on, settings, mat(own, n), mat(theirs, n), own_parts);
      } else {
        ops::topk_distillation_part<Device, T>(on, settings, mat(own, n), mat(ids, n), mat(teacher, n), bounds[rank], own_parts);
      }
    }
    dstudent.resize(n * v);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t first = bounds[rank], size = bounds[rank + 1] - first;
      auto own = columns(student, n, first, first + size);
      loss = loss_before.empty() ? std::vector<T>(n, T{77}) : loss_before;
      auto gradient = gradient_before.empty() ? std::vector<T>(n * size, T{77}) : columns(gradient_before, n, first, first + size);
      if (ids.empty()) {
        auto theirs = columns(teacher, n, first, first + size);
        ops::distillation_of_parts<Device, T, T>(on, settings, mat(own, n), mat(theirs, n), vec(target), v, mat(parts, ranks * 5), 1.0,
                                                 vec(loss), mat(gradient, n), factors);
      } else {
        ops::topk_distillation_of_parts<Device, T, T>(on, settings, mat(own, n), mat(ids, n), mat(teacher, n), vec(target), first, v,
                                                      mat(parts, ranks * 3), 1.0, vec(loss), mat(gradient, n), factors);
      }
      for (std::size_t i = 0; i < n; ++i)
        std::copy_n(gradient.begin() + static_cast<std::ptrdiff_t>(i * size), size,
                    dstudent.begin() + static_cast<std::ptrdiff_t>(i * v + first));
    }
  }
};

template <class Device, class T>
void distillation_is_pytorchs() {
  using kind = ops::divergence_kind;
  const fixture expected("distillation");
  const auto student = as<T>(expected["student"]), teacher = as<T>(expected["teacher"]), stored = as<T>(expected["topk.teacher"]);
  const auto target = as<token>(expected["targets"]), ids = as<token>(expected["topk.ids"]);
  const double temperature = expected["temperature"][0];
  struct one {
    std::string name;
    ops::distillation_settings settings;
  };
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}}) {
    CAPTURE(ranks);
    for (const one& each : {one{"forward", {}}, one{"reverse", {.kind = kind::reverse}}, one{"forward_warm", {.temperature = temperature}},
                            one{"reverse_warm", {.kind = kind::reverse, .temperature = temperature}}}) {
      CAPTURE(each.name);
      const distilled<Device, T> r(each.settings, student, teacher, {}, target, ranks);
      agrees(r.loss, expected[each.name + ".loss"]);
      agrees(r.dstudent, expected[each.name + ".dstudent"]);
    }
    for (const one& each : {one{"topk", {}}, one{"topk_renormalized", {.renormalize = true}}}) {
      CAPTURE(each.name);
      const distilled<Device, T> r(each.settings, student, stored, ids, target, ranks);
      agrees(r.loss, expected[each.name + ".loss"]);
      agrees(r.dstudent, expected[each.name + ".dstudent"]);
    }
  }
}

/// Compares derivatives with difference quotients of `loss` in each of `values`. Their error at h = 1e-5 is about 1e-10 for values near 1.
void is_derivative(std::vector<double>& values, const std::vector<double>& derivative, const std::function<double()>& loss) {
  REQUIRE(values.size() == derivative.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    constexpr double h = 1e-5;
    const double before = values[i];
    values[i] = before + h;
    const double above = loss();
    values[i] = before - h;
    const double below = loss();
    values[i] = before;
    CHECK(derivative[i] == doctest::Approx((above - below) / (2 * h)).epsilon(1e-7));
  }
}

double sum(const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); }

}  // namespace

TEST_CASE("cross-entropy with weights, label smoothing and the z-loss of PaLM is that of PyTorch") {
  SUBCASE("reference fp64") { cross_entropy_is_pytorchs<reference, double>(); }
  SUBCASE("reference fp32") { cross_entropy_is_pytorchs<reference, float>(); }
  SUBCASE("cpu fp64") { cross_entropy_is_pytorchs<cpu, double>(); }
  SUBCASE("cpu fp32") { cross_entropy_is_pytorchs<cpu, float>(); }
}

TEST_CASE("losses of pairs, their statistics and gradients are those of trl, and cDPO's those of torchtune") {
  SUBCASE("reference fp64") { pairs_are_trls<reference, double>(); }
  SUBCASE("reference fp32") { pairs_are_trls<reference, float>(); }
  SUBCASE("cpu fp64") { pairs_are_trls<cpu, double>(); }
  SUBCASE("cpu fp32") { pairs_are_trls<cpu, float>(); }
}

TEST_CASE("losses of labeled answers, their statistics and gradients are those of trl") {
  SUBCASE("reference") { answers_are_trls<reference>(); }
  SUBCASE("cpu") { answers_are_trls<cpu>(); }
}

TEST_CASE("the loss of scores of a reward model is that of trl") {
  const fixture expected("reward");
  auto score = expected["scores"];
  std::vector<double> count(score.size(), 1.0), losses(score.size() / 2), dscore(score.size()), statistics(4 * losses.size());
  computing<cpu> device;
  for (const auto& one : {std::pair<std::string, ops::preference_settings>{"plain", {.beta = 1.0}},
                          {"centered", {.beta = 1.0, .margin = 0.7, .center = 0.05}}}) {
    const std::string& name = one.first;
    const ops::preference_settings& settings = one.second;
    CAPTURE(name);
    ops::preference_loss(device.where, settings, vec(score), vec(count), vector_view<const double, host_memory>{}, vec(losses), vec(dscore),
                         mat(statistics, 4));
    agrees(losses, expected[name + ".loss"]);
    agrees(dscore, expected[name + ".dscores"]);
    agrees(statistics, expected[name + ".statistics"]);
  }
}

TEST_CASE("distillation is that of PyTorch's kl_div") {
  SUBCASE("reference fp64") { distillation_is_pytorchs<reference, double>(); }
  SUBCASE("reference fp32") { distillation_is_pytorchs<reference, float>(); }
  SUBCASE("cpu fp64") { distillation_is_pytorchs<cpu, double>(); }
  SUBCASE("cpu fp32") { distillation_is_pytorchs<cpu, float>(); }
}

TEST_CASE("torchtune's divergences are the same, but for the teacher's entropy, which its forward divergence leaves out") {
  const fixture expected("distillation");
  const auto student = as<float>(expected["student"]), teacher = as<float>(expected["teacher"]);
  const auto target = as<token>(expected["targets"]);
  for (const bool is_forward : {true, false}) {
    const std::string name = is_forward ? "torchtune.forward" : "torchtune.reverse";
    CAPTURE(name);
    const distilled<cpu, float> r({.kind = is_forward ? ops::divergence_kind::forward : ops::divergence_kind::reverse}, student, teacher,
                                  {}, target, 1);
    const double left_out = is_forward ? expected["torchtune.left_out"][0] : 0.0;
    agrees(std::vector<float>{std::accumulate(r.loss.begin(), r.loss.end(), 0.0f)}, {expected[name + ".sum"][0] + left_out});
    agrees(r.dstudent, expected[name + ".dstudent"]);
  }
}

TEST_CASE("a mixture of cross-entropy and distillation is the sum of both, with weights and ignored rows") {
  constexpr std::size_t n = 9, v = 53;
  const auto student = drawn<double>(n * v, 1, -4, 4), teacher = drawn<double>(n * v, 2, -4, 4);
  std::vector<token> target{3, 0, 52, -1, 7, 53, 11, 12, 13};
  auto weight = drawn<double>(n, 3);
  weight[4] = 0.0;
  const auto before = drawn<double>(n, 4), dbefore = drawn<double>(n * v, 5);
  for (const auto kind : {ops::divergence_kind::forward, ops::divergence_kind::reverse}) {
    const distilled<cpu, double> alone({.kind = kind, .temperature = 3.0}, student, teacher, {}, target, 1, weight);
    const distilled<cpu, double> added({.kind = kind, .temperature = 3.0, .factor = 0.25, .accumulate = true}, student, teacher, {}, target,
                                       2, weight, before, dbefore);
    for (std::size_t i = 0; i < n; ++i) CHECK(added.loss[i] == doctest::Approx(before[i] + 0.25 * alone.loss[i]).epsilon(1e-13));
    for (std::size_t i = 0; i < n * v; ++i)
      CHECK(added.dstudent[i] == doctest::Approx(dbefore[i] + 0.25 * alone.dstudent[i]).epsilon(1e-13));
    for (const std::size_t ignored : {std::size_t{3}, std::size_t{4}, std::size_t{5}}) {
      CHECK(alone.loss[ignored] == 0.0);
      for (std::size_t j = 0; j < v; ++j) CHECK(alone.dstudent[ignored * v + j] == 0.0);
      CHECK(added.loss[ignored] == before[ignored]);
      for (std::size_t j = 0; j < v; ++j) CHECK(added.dstudent[ignored * v + j] == dbefore[ignored * v + j]);
    }
  }
}

TEST_CASE("a divergence of equal distributions is 0, and masked logits of the teacher do not count") {
  constexpr std::size_t n = 3, v = 70;
  const auto logits = drawn<float>(n * v, 6, -9, 9);
  const std::vector<token> target(n, 1);
  for (const auto kind : {ops::divergence_kind::forward, ops::divergence_kind::reverse}) {
    const distilled<cpu, float> equal({.kind = kind}, logits, logits, {}, target, 2);
    for (const float loss : equal.loss) CHECK(std::abs(loss) < 1e-6f);
    for (const float d : equal.dstudent) CHECK(std::abs(d) < 1e-6f);
  }
  auto masked = logits;
  for (std::size_t i = 0; i < n; ++i) masked[i * v + 5] = -std::numeric_limits<float>::infinity();
  const distilled<cpu, float> r({}, logits, masked, {}, target, 2);
  const distilled<reference, float> plain({}, logits, masked, {}, target, 1);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(std::isfinite(r.loss[i]));
    CHECK(r.loss[i] == doctest::Approx(plain.loss[i]).epsilon(1e-5));
  }
}

TEST_CASE("the reference's gradients of cross-entropy are its derivatives, with weights, label smoothing and both kinds of z-loss") {
  constexpr std::size_t n = 5, c = 3, v = 7;
  auto x = drawn<double>(n * c, 7), weight = drawn<double>(v * c, 8);
  const std::vector<token> target{3, 0, -100, 6, 2};
  const auto factors = drawn<double>(n, 9);
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}}) {
    const auto run = [&] { return run_head<reference, double>(x, weight, target, factors, v, 0.2, 0.05, ranks, 0.03); };
    const auto r = run();
    is_derivative(x, r.dx, [&] { return sum(run().loss); });
    is_derivative(weight, r.dweight, [&] { return sum(run().loss); });
  }
}

TEST_CASE("the reference's derivatives of pairs agree with difference quotients") {
  using kind = ops::preference_kind;
  constexpr std::size_t b = 6;
  auto logp = drawn<double>(b, 10, -6, -1), reference_logp = drawn<double>(b, 11, -6, -1);
  std::vector<double> count{3, 7, 1, 0, 4, 9};
  for (const auto& settings : {ops::preference_settings{.beta = 0.7, .label_smoothing = 0.3, .margin = 0.4},
                               ops::preference_settings{.beta = 2.0, .average_log_probs = true},
                               ops::preference_settings{.kind = kind::robust, .beta = 0.7, .label_smoothing = 0.3},
                               ops::preference_settings{.kind = kind::hinge, .beta = 0.7},
                               ops::preference_settings{.kind = kind::ipo, .beta = 0.7, .average_log_probs = true},
                               ops::preference_settings{.kind = kind::ipo, .beta = 0.7},
                               ops::preference_settings{.beta = 0.7, .nll_weight = 0.6, .center = 0.05}}) {
    computing<reference> device;
    std::vector<double> loss(b / 2), dlogp(b);
    const auto run = [&] {
      ops::preference_loss(device.where, settings, vec(logp), vec(count), vec(reference_logp), vec(loss), vec(dlogp));
      return sum(loss);
    };
    run();
    const auto derivative = dlogp;
    is_derivative(logp, derivative, run);
  }
}

TEST_CASE("the reference's derivatives of odds ratios and of labeled answers agree with difference quotients") {
  constexpr std::size_t b = 6;
  computing<reference> device;
  auto logp = drawn<double>(b, 13, -6, -1), reference_logp = drawn<double>(b, 14, -6, -1);
  std::vector<double> count{3, 7, 1, 2, 4, 9}, loss(b / 2), dlogp(b);
  const auto odds = [&] {
    ops::preference_loss(device.where, {.kind = kernel::preference_kind::odds_ratio, .beta = 0.7, .average_log_probs = true, .nll_weight = 1.0},
                         vec(logp), vec(count), vector_view<const double, host_memory>{}, vec(loss), vec(dlogp));
    return sum(loss);
  };
  odds();
  const auto derivative = dlogp;
  is_derivative(logp, derivative, odds);

  // z has no gradient: change only answers
  std::vector<token> label{1, 1, 0, 0, 1, 1};
  std::vector<double> own{logp[0], logp[2], logp[4]};
  const auto answers = [&] {
    for (std::size_t i = 0; i < own.size(); ++i) logp[2 * i] = own[i];
    ops::kto_loss(device.where, {.beta = 0.7, .desirable_weight = 1.3}, vec(logp), vec(count), vec(reference_logp), vec(label), vec(loss), vec(dlogp));
    return sum(loss);
  };
  answers();
  CHECK(dlogp[1] == 0.0);
  CHECK(dlogp[3] == 0.0);
  CHECK(dlogp[5] == 0.0);
  is_derivative(own, {dlogp[0], dlogp[2], dlogp[4]}, answers);
}

TEST_CASE("a chosen answer of probability 1 has finite log-odds") {
  computing<cpu> device;
  std::vector<double> logp{0.0, -3.0, -3.0, 0.0}, count{2, 2, 2, 2}, loss(2), dlogp(4);
  ops::preference_loss(device.where, {.kind = kernel::preference_kind::odds_ratio, .beta = 0.5, .average_log_probs = true}, vec(logp), vec(count),
                       vector_view<const double, host_memory>{}, vec(loss), vec(dlogp));
  for (const double value : loss) CHECK(std::isfinite(value));
  for (const double value : dlogp) CHECK(std::isfinite(value));
  CHECK(loss[0] < 1e-9);
  CHECK(loss[1] > 10.0);
}

TEST_CASE("the reference's gradients of distillation are its derivatives") {
  constexpr std::size_t n = 3, v = 8;
  auto student = drawn<double>(n * v, 12, -2, 2);
  const auto teacher = drawn<double>(n * v, 13, -2, 2), stored = drawn<double>(n * 2, 14, -2, -1);
  const std::vector<token> target{1, -1, 5}, ids{6, 2, 0, 1, 7, 3};
  const auto factors = drawn<double>(n, 15);
  for (const auto& settings : {ops::distillation_settings{.temperature = 1.7, .factor = 2.0},
                               ops::distillation_settings{.kind = ops::divergence_kind::reverse, .temperature = 0.6}}) {
    const auto run = [&] { return distilled<reference, double>(settings, student, teacher, {}, target, 2, factors); };
    is_derivative(student, run().dstudent, [&] { return sum(run().loss); });
  }
  for (const bool renormalize : {false, true}) {
    const auto run = [&] {
      return distilled<reference, double>({.temperature = 1.7, .factor = 2.0, .renormalize = renormalize}, student, stored, ids, target, 2,
                                          factors);
    };
    is_derivative(student, run().dstudent, [&] { return sum(run().loss); });
  }
}

TEST_CASE("a loss of pairs is finite where the exponential is not, and its gradient has its limits") {
  computing<cpu> device;
  std::vector<double> logp{0.0, -4000.0, -4000.0, 0.0}, count{1, 1, 1, 1}, loss(2), dlogp(4);
  ops::preference_loss(device.where, {.beta = 1.0}, vec(logp), vec(count), {}, vec(loss), vec(dlogp));
  CHECK(loss == std::vector<double>{0.0, 4000.0});
  CHECK(dlogp == std::vector<double>{0.0, 0.0, -1.0, 1.0});
}

TEST_CASE("a pair of padding has no loss, no gradient and no statistics") {
  std::vector<double> logp{-3.0, -2.0, 0.0, 0.0, 0.0, -5.0}, reference_logp{-2.5, -2.0, 0.5, 0.0, 0.0, -4.0}, count{3, 2, 0, 0, 0, 4};
  const auto check = [&]<class Device>(Device) {
    computing<Device> device;
    std::vector<double> loss(3, 9.0), dlogp(6, 9.0), statistics(12, 9.0);
    ops::preference_loss(device.where, {.beta = 1.0}, vec(logp), vec(count), vec(reference_logp), vec(loss), vec(dlogp), mat(statistics, 4));
    CHECK(loss[1] == 0.0);
    CHECK(dlogp[2] == 0.0);
    CHECK(dlogp[3] == 0.0);
    for (std::size_t s = 0; s < 4; ++s) CHECK(statistics[3 * s + 1] == 0.0);
    for (const std::size_t pair : {std::size_t{0}, std::size_t{2}}) {  // also with one sequence without a target
      CHECK(loss[pair] > 0.1);
      CHECK(dlogp[2 * pair] < -0.1);
      CHECK(dlogp[2 * pair + 1] == -dlogp[2 * pair]);
    }
  };
  check(reference{});
  check(cpu{});
}

TEST_CASE("the losses of sequences are at their first tokens, and a rank can leave them to another") {
  computing<cpu> device;
  std::vector<float> loss(12, 9.0f);
  std::vector<double> losses{1.5, 2.5};
  ops::sequence_losses(device.where, vec(losses), 4, vec(loss));
  CHECK(loss == std::vector<float>{1.5f, 0, 0, 0, 0, 0, 2.5f, 0, 0, 0, 0, 0});
  losses = {1, 2, 3, 4};
  ops::sequence_losses(device.where, vec(losses), 4, vec(loss));
  CHECK(loss == std::vector<float>{1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0});
  ops::sequence_losses(device.where, {}, 4, vec(loss));
  CHECK(loss == std::vector<float>(12));
}

TEST_CASE("objectives name what does not fit") {
  computing<cpu> device;
  auto& on = device.where;
  std::vector<float> f2(2), f3(3), f6(6), f8(8), f10(10);
  std::vector<double> d2(2), d3(3), d4(4), d1(1);
  std::vector<token> t2(2), t4(4), t6(6);
  const auto refuses = [](const std::string& words, const std::function<void()>& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(words.c_str()), shape_error);
  };
  const auto declines = [](const std::string& words, const std::function<void()>& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(words.c_str()), config_error);
  };
  refuses("linear_cross_entropy: token_weight_n: must have shape [2]; given [3]",
          [&] { ops::linear_cross_entropy(on, mat(f6, 2), mat(f6, 2), vec(t2), vec(f2), {}, vec(f3)); });
  declines("linear_cross_entropy: label_smoothing must be in [0, 1); given 1",
           [&] { ops::linear_cross_entropy(on, mat(f6, 2), mat(f6, 2), vec(t2), vec(f2), {}, {}, 1.0); });
  declines("linear_cross_entropy: log_z_loss must not be negative; given -0.5",
           [&] { ops::linear_cross_entropy(on, mat(f6, 2), mat(f6, 2), vec(t2), vec(f2), {}, {}, 0.0, -0.5); });
  refuses("softmax_part: parts_pn: must have shape [3, 2]; given [5, 2]",
          [&] { ops::softmax_part<cpu, float>(on, mat(f6, 2), vec(t2), 0, mat(f10, 5)); });
  refuses("softmax_of_parts: parts_rpn: must have shape [4, 2]; given [3, 2]",
          [&] { ops::softmax_of_parts<cpu, float, float>(on, mat(f6, 2), vec(t2), 0, 3, 0, mat(f6, 3), 1.0, 0.0, vec(f2), {}, {}, 0.1); });
  refuses("sequence_sums: the 6 tokens must be those of 4 sequences of equal length",
          [&] { ops::sequence_sums(on, vec(f6), vec(t6), 9, vec(d4), vec(d4)); });
  refuses("sequence_sums: target_n", [&] { ops::sequence_sums(on, vec(f6), vec(t4), 9, vec(d2), vec(d2)); });
  refuses("preference_loss: sequences must be pairs of a chosen and a rejected one; given 3 sequences",
          [&] { ops::preference_loss(on, {}, vec(d3), {}, {}, vec(d1), vec(d3)); });
  refuses("preference_loss: reference_b: must have shape [4]; given [3]",
          [&] { ops::preference_loss(on, {}, vec(d4), vec(d4), vec(d3), vec(d2), vec(d4)); });
  refuses("preference_loss: count_b: must have shape [4]; given [0]",
          [&] { ops::preference_loss(on, {}, vec(d4), {}, {}, vec(d2), vec(d4)); });
  declines("preference_loss: beta must be positive; given 0",
           [&] { ops::preference_loss(on, {.beta = 0.0}, vec(d4), {}, {}, vec(d2), vec(d4)); });
  declines("preference_loss: label_smoothing must be in [0, 0.5); given 0.5", [&] {
    ops::preference_loss(on, {.kind = ops::preference_kind::robust, .label_smoothing = 0.5}, vec(d4), {}, {}, vec(d2), vec(d4));
  });
  declines("preference_loss: label_smoothing is for the kinds sigmoid and robust only; given 0.1", [&] {
    ops::preference_loss(on, {.kind = ops::preference_kind::ipo, .label_smoothing = 0.1}, vec(d4), {}, {}, vec(d2), vec(d4));
  });
  declines("preference_loss: ipo has no margin; given 1",
           [&] { ops::preference_loss(on, {.kind = ops::preference_kind::ipo, .margin = 1.0}, vec(d4), {}, {}, vec(d2), vec(d4)); });
  refuses("sequence_weights: target_n", [&] { ops::sequence_weights(on, vec(t4), 9, vec(d2), vec(f6)); });
  refuses("sequence_losses: the number of losses must divide the 3 sequences; given 2",
          [&] { ops::sequence_losses(on, vec(d2), 3, vec(f6)); });
  refuses("distillation_part: teacher_nv: must have shape [2, 3]; given [2, 4]",
          [&] { ops::distillation_part<cpu, float>(on, {}, mat(f6, 2), mat(f8, 2), mat(f10, 5)); });
  declines("distillation_part: temperature must be positive; given 0",
           [&] { ops::distillation_part<cpu, float>(on, {.temperature = 0.0}, mat(f6, 2), mat(f6, 2), mat(f10, 5)); });
  refuses("distillation_of_parts: parts_r5n: must have shape [5, 2]; given [3, 2]",
          [&] { ops::distillation_of_parts<cpu, float, float>(on, {}, mat(f6, 2), mat(f6, 2), vec(t2), 3, mat(f6, 3), 1.0, vec(f2), {}); });
  declines("topk_distillation_part: only the forward divergence can be computed from stored log-probabilities", [&] {
    ops::topk_distillation_part<cpu, float>(on, {.kind = ops::divergence_kind::reverse}, mat(f6, 2), mat(t4, 2), mat(f8, 2), 0, mat(f6, 3));
  });
  refuses("topk_distillation_part: teacher_nk: must have shape [2, 2]; given [2, 4]",
          [&] { ops::topk_distillation_part<cpu, float>(on, {}, mat(f6, 2), mat(t4, 2), mat(f8, 2), 0, mat(f6, 3)); });
}

TEST_CASE("losses do not depend on the number of threads") {
  constexpr std::size_t n = 37, c = 9, v = 301;
  auto x = drawn<float>(n * c, 16), weight = drawn<float>(v * c, 17), factors = drawn<float>(n, 18),
       teacher = drawn<float>(n * v, 19, -5, 5);
  auto student = drawn<float>(n * v, 20, -5, 5);
  std::vector<token> target(n);
  for (std::size_t i = 0; i < n; ++i) target[i] = static_cast<token>(i * 7 % v);
  std::vector<std::vector<float>> first;
  for (const std::size_t threads : {std::size_t{1}, std::size_t{2}}) {
    const cpu::context on({.threads = threads});
    cpu::stream stream(on);
    arena<cpu> workspace(on, std::size_t{1} << 22, memory_role::workspace);
    execution<cpu> where{stream, workspace, on.properties()};
    std::vector<float> loss(n), dx(n * c), dweight(v * c), parts(5 * n), kl(n), dstudent(n * v);
    ops::linear_cross_entropy_with_gradient(where, mat(x, n), mat(weight, v), vec(target), 1.0, vec(loss), mat(dx, n), mat(dweight, v), 0.0,
                                            {}, {}, vec(factors), 0.1);
    ops::distillation_part<cpu, float>(where, {}, mat(student, n), mat(teacher, n), mat(parts, 5));
    ops::distillation_of_parts<cpu, float, float>(where, {}, mat(student, n), mat(teacher, n), vec(target), v, mat(parts, 5), 1.0, vec(kl),
                                                  mat(dstudent, n));
    const std::vector<std::vector<float>> all{loss, dx, dweight, kl, dstudent};
    if (first.empty()) first = all;
    else CHECK(first == all);
  }
}
