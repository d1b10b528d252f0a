// Checks a custom objective: its gradients against its loss, and its contract.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/testing/check_gradient.hpp>

namespace xtrain::testing {

/// Sizes and tolerance of a check of an objective.
struct objective_check {
  std::size_t vocab_size = 11;   ///< exclusive bound of tokens and targets
  std::size_t hidden_size = 5;
  double allowed = 1e-7;         ///< as in gradient_check
};

namespace detail {

template <class Objective>
struct objective_recipe : gradient_recipe {
  using objective = Objective;
};

}  // namespace detail

/// Runs an objective on a micro-batch's hidden states and a head, in double on the reference device; compares every derivative (hidden states, head weight)
/// with a central difference. Also reports a prepare() that installs nothing, uncounted losses, losses counted without targets, and leftover saved activations,
/// also after an evaluation.
///   batch   as in training; with reference_log_probs if the objective needs them
///   throws  what the objective's require_batch throws
template <class Objective>
[[nodiscard]] gradient_report check_objective(const batch_view& batch, const typename Objective::config& settings = {}, const objective_check& what = {}) {
  using recipe = detail::objective_recipe<Objective>;
  using device = reference;
  using state_type = typename Objective::template state<recipe>;
  static_assert(objective_for<Objective, recipe>, "xtrain check_objective: must be given an objective policy; see objective/README.md");
  static_assert(!scores_sequences<recipe>, "xtrain check_objective: the objective must be of a head with logits, not of scores; see objective/README.md");
  static_assert(xtrain::detail::objective_hooks_are_members<Objective, recipe>());

  gradient_report report;
  const auto found = [&](const auto&... parts) {
    if (report.problem.empty()) report.problem = concat(Objective::name, ": ", parts...);
    return report;
  };
  Objective::require_batch(settings, batch);
  if (!(count_losses<Objective>(settings, batch) > 0)) return found("count_losses must be positive for a batch with targets; it is not");
  const std::vector<token> none(batch.targets.size(), token{-1});
  batch_view empty = batch;
  empty.targets = none;
  empty.target_count = 0;
  empty.token_weights = {};
  if (count_losses<Objective>(settings, empty) != 0) return found("count_losses must be 0 for a batch without targets: such sequences are padding; it is not");

  typename device::context on{};
  typename device::stream stream(on);
  parameter_store<device, fp64> store(on);
  const no_adapter::config adapter{};
  builder<recipe> build(store, adapter);
  const std::size_t n = batch.b * batch.t, c = what.hidden_size;
  const parameter weight = store.declare({.name = "head.weight", .shape = {what.vocab_size, c}});
  const vocab_parallel_head<recipe> head(weight, {.vocab_size = what.vocab_size});
  store.allocate();
  store.allocate_gradients();
  typename single::template state<device> parallel{single::config{}};
  stash<device> kept(on, std::size_t{1} << 24);
  arena<device> workspace(on, std::size_t{1} << 24, memory_role::workspace);
  batch_memory<device> memory(on, n, attention_mask{}, context_shard{});
  pass<recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
  p.batch = memory.upload(stream, batch);
  p.random = {.seed = 3, .step = 1};
  p.gradient_scale = 1.0;
  p.internal.most_tokens = n;
  std::array<double, kernel::max_statistics> statistics{};
  p.internal.statistics = span_of(std::span<double>(statistics)).subspan(0, Objective::statistics.size());
  state_type state(settings, on, objective_sizes{.num_tokens = n, .sequences = batch.b, .micro_batches = 1});
  struct checked_data final : objective_data<device, double> {
    checked_data(const batch_view& of, typename device::stream& on_stream) : objective_data<device, double>(of, 0, nullptr), stream(on_stream) {}
    void write_reference(vector_view<double, typename device::memory> logp_b) const override {
      const auto& given = this->batch.reference_log_probs;
      require<config_error>(given.size() == this->batch.b, "check_objective: the batch must have reference_log_probs for ", Objective::name);
      copy_to_device(stream, logp_b.span(), given);
    }
    typename device::stream& stream;
  };
  if constexpr (has_hook<Objective, hook::upload>) state.upload(stream, checked_data(batch, stream));
  state.prepare(p, 0);
  if constexpr (!has_hook<Objective, hook::is_cross_entropy>)
    if (p.internal.objective == nullptr) return found("prepare(pass, micro_batch) of its state must set pass.internal.objective; it has not");

  std::uint64_t drawn = 0;
  const auto draw = [&] {
    return 2.0 * static_cast<double>(uniform_open(random_word({.seed = 99, .step = 0, .site = 1, .first = 0}, drawn++))) - 1.0;
  };
  std::vector<double> x(n * c), losses(n);
  for (double& value : x) value = draw();
  const auto weights = store.value(weight).host();
  const auto gradients = store.gradient(weight).host();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = draw();
    gradients[i] = draw();
  }
  const std::vector<double> gradients_before(gradients.begin(), gradients.end());
  const matrix_view<const double, host_memory> x_nc(span_of(std::span<const double>(x)), {n, c});
  const vector_view<double, host_memory> loss_n(span_of(std::span<double>(losses)), {n});
  const auto loss = [&] {
    head.forward(p, x_nc, loss_n);
    double sum = 0;
    for (const double value : losses) sum += value;
    return sum;
  };
  (void)loss();
  if (kept.entries() != 1)
    return found("compute must save only the gradient of the hidden states, by head.save_input_gradient; the pass left ", kept.entries(),
                 " entries of the stash");
  const auto dx_nc = head.backward(p, n, c);
  const auto dx_host = dx_nc.span().host();
  const std::vector<double> dx(dx_host.begin(), dx_host.end()), dweight(gradients.begin(), gradients.end());
  const auto compare = [&](double& value, double analytic, const char* name, std::size_t index) {
    const double before = value, h = 1e-5 * std::max(1.0, std::abs(value));
    const auto at = [&](double here) {
      value = here;
      const double sum = loss();
      kept.drop(0);
      return sum;
    };
    const double numeric = (at(before + h) - at(before - h)) / (2.0 * h);
    value = before;
    const double error = std::abs(analytic - numeric) / (1.0 + std::abs(numeric));
    ++report.checked;
    report.largest_error = std::max(report.largest_error, error);
    if (!(error <= what.allowed)) (void)found("derivative of ", name, "[", index, "] is ", analytic, "; the difference quotient is ", numeric);
  };
  for (std::size_t i = 0; i < x.size(); ++i) compare(x[i], dx[i], "the hidden states", i);
  for (std::size_t i = 0; i < weights.size(); ++i) compare(weights[i], dweight[i] - gradients_before[i], "the head's weight", i);

  p.mode = pass_mode::evaluation;
  p.internal.loss = {};
  state.prepare(p, 0);
  const std::vector<double> before_evaluation(gradients.begin(), gradients.end());
  (void)loss();
  if (kept.entries() != 0) (void)found("an evaluation must save nothing; it left ", kept.entries(), " entries of the stash");
  if (!std::equal(before_evaluation.begin(), before_evaluation.end(), gradients.begin())) (void)found("an evaluation must not change gradients; it did");
  return report;
}

}  // namespace xtrain::testing
