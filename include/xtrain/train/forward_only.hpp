// Forward passes of a frozen model next to a trained one: a reference model, a teacher.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/models/require_batch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/step_memory.hpp>

namespace xtrain {

/// Batch sizes of the trainer.
struct forward_only_config {
  std::size_t micro_batch_size = 8;             ///< sequences
  std::size_t gradient_accumulation_steps = 1;  ///< micro-batches of a step
  std::size_t seq_length = 0;                   ///< in tokens; 0: the model's
  double temperature = 1.0;                     ///< reference model: divides logits

  static constexpr bool capture_steps = false;  // of training_config
};

/// Forward passes with an objective in place of the loss. A dry run measures memory; it is allocated once.
template <class Model>
class forward_only {
 public:
  using computation = model_computation<Model>;
  using config = forward_only_config;

  ///   rounds  adapters that round weights (qat) do so; false: unrounded weights
  ///   who     for messages; must outlive this
  ///   throws  config_error for a sequence length that the model does not have, memory_error
  forward_only(Model& model, const config& settings, bool rounds = true, std::string_view who = "forward_only")
      : model_(&model), model_life_(model), who_(who), settings_(completed(model.config(), settings)), rounds_(rounds),
        needs_(needs_beside(model, settings_, rounds)),
        memory_(model, settings_, needs_.passes) {}

  /// Memory of the passes and the model.
  struct needs {
    pass_sizes passes{};
    planned_memory memory{};
    std::size_t num_tokens = 0;  // maximum per batch on this rank
    config settings{};           // completed
  };
  [[nodiscard]] const needs& needed() const { return needs_; }
  /// For a model that does not exist yet. Allocates nothing.
  [[nodiscard]] static needs run_dry(const typename Model::config_type& sizes, const typename Model::options& options, const config& settings,
                                     const typename Model::device::properties& properties, bool rounds = true) {
    auto like = make_dry_model<Model>(sizes, options, properties);
    return measured(like, completed(like.config(), settings), rounds);
  }

  /// throws  config_error when the model was moved, assigned to or destroyed
  [[nodiscard]] Model& model() const {
    model_life_.require_model(who_);
    return *model_;
  }
  [[nodiscard]] const config& settings() const { return settings_; }
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }
  [[nodiscard]] std::size_t num_tokens() const { return memory_.local_tokens_of(model()); }

  /// The model's workspace for work on another stream of the device: that stream and the model's stream must wait for each other.
  [[nodiscard]] execution<typename Model::device> execution_on(typename Model::device::stream& stream) {
    auto own = memory_.passes.execution_on();
    return {stream, own.workspace, own.properties};
  }

  /// Queued on the model's stream; the objective replaces the head's loss.
  ///   micro_batch   index of the batch in the step
  ///   throws        shape_error for too large a batch or too many; data_error; config_error when the model no longer exists
  void run(const batch_view& batch, std::size_t micro_batch, pass_objective<computation>& instead) {
    model_life_.require_model(who_);
    require<shape_error>(micro_batch < settings_.gradient_accumulation_steps,
                         "a model beside the trained one: gradient_accumulation_steps must be at least the trainer's; given ",
                         settings_.gradient_accumulation_steps, ", micro-batch ", micro_batch);
    require<shape_error>(batch.b <= settings_.micro_batch_size && batch.t <= settings_.seq_length, "a model beside the trained one: a batch must have at most ",
                         settings_.micro_batch_size, " sequences of ", settings_.seq_length, " tokens; given ", batch.b, " of ", batch.t);
    detail::require_batch(*model_, batch, "a model beside the trained one");
    const auto use = detail::use_of(*model_, who_);
    run(memory_, instead, batch, rounds_);
  }
  /// Runs a batch with an objective that writes its cross-entropy, and waits for it.
  ///   returns   log p(target) of every token; this rank, or the last stage of its pipeline, must have all tokens
  [[nodiscard]] std::vector<float> log_probs_of(const batch_view& batch, pass_objective<computation>& cross_entropy) {
    model_life_.require_model(who_);
    const auto use = detail::use_of(*model_, who_);
    fill_zero(model_->stream(), memory_.losses_of(batch.b * batch.t).span());  // in a pipeline only the last stage writes them
    run(batch, 0, cross_entropy);
    std::vector<typename Model::accumulate> losses(batch.b * batch.t);
    copy_in_pieces<typename Model::device>(model_->context(), model_->stream(), std::span<typename Model::accumulate>(losses),
                                           memory_.losses_of(losses.size()).span());
    std::vector<double> sums(losses.begin(), losses.end());
    detail::add_up_stages(*model_, sums);
    std::vector<float> log_probs;
    for (const double loss : sums) log_probs.push_back(static_cast<float>(-loss));
    return log_probs;
  }

 private:
  static config completed(const typename Model::config_type& sizes, config c) {
    const std::size_t longest = sizes.max_position_embeddings;
    if (c.seq_length == 0) c.seq_length = longest;
    require<config_error>(c.seq_length <= longest && c.micro_batch_size > 0 && c.gradient_accumulation_steps > 0,
                          "a model beside the trained one: seq_length must not be longer than its ", longest, " tokens, and sizes must be positive; given ",
                          c.seq_length, ", ", c.micro_batch_size, " and ", c.gradient_accumulation_steps);
    require<config_error>(c.temperature > 0.0 && std::isfinite(c.temperature), "a model beside the trained one: temperature must be positive; given ",
                          c.temperature);
    const double bound = detail::logit_bound_of(sizes);  // checked on all stages of a pipeline
    require<config_error>(c.temperature == 1.0 || bound == 0.0,
                          "a model beside the trained one: temperature: must be 1 where logits are bounded (final_logit_softcapping ", bound, "); given ",
                          c.temperature);
    require<config_error>(c.temperature == 1.0 || !scores_sequences<computation>, "a model with a score head has no temperature; given ", c.temperature);
    return c;
  }
  template <class Any>
  static void run(detail::step_memory<Any>& memory, pass_objective<model_computation<Any>>& instead, const batch_view& batch, bool rounds) {
    const auto prepare = [&](pass<model_computation<Any>>& p) {
      p.internal.objective = &instead;
      p.internal.without_fake_quantization = !rounds;
    };
    const auto losses = [&](std::size_t n) { return memory.losses_of(n); };
    memory.runner.evaluate(memory.passes.execution_on(), batch, prepare, losses, [](std::size_t) {}, &memory.staging);
  }
  /// Dry run of the largest pass: cross-entropy, and logits in chunks.
  template <class Any>
  struct everything final : pass_objective<model_computation<Any>> {
    using any_computation = model_computation<Any>;
    double temperature = 1.0;

    void compute(pass<any_computation>& p, const head_pass<any_computation>& head, typename head_pass<any_computation>::sums loss_n) override {
      if constexpr (scores_sequences<any_computation>) return scores(p, head);
      else tokens(p, head, loss_n, temperature);
    }
    static void scores(pass<any_computation>& p, const head_pass<any_computation>& head) requires scores_sequences<any_computation> {
      using memory = typename Any::device::memory;
      const auto scope = p.scope();
      const std::size_t b = p.batch.b;
      const auto values = [&] { return vector_view<double, memory>{p.workspace.template take<double>(b), {b}}; };
      const vector_view<const token, memory> last_b{p.workspace.template take<token>(b), {b}};
      const auto score_b = values(), count_b = values();
      head.scores(p, head.hidden_states(p, last_b), last_b, score_b, count_b);
    }
    static void tokens(pass<any_computation>& p, const head_pass<any_computation>& head, typename head_pass<any_computation>::sums loss_n, double temperature) {
      {
        const auto scope = p.scope();
        head.with_temperature(p, temperature).cross_entropy(p, loss_n);
      }
      const auto scope = p.scope();
      const auto x = head.hidden_states(p);
      const std::size_t rows = head.tokens_at_once(x.shape(0)), v = head.weight().shape(0);
      using logits = matrix_view<typename Any::accumulate, typename Any::device::memory>;
      head.logits(p, x.rows(0, rows), logits{p.workspace.template take<typename Any::accumulate>(rows * v), {rows, v}});
    }
  };
  [[nodiscard]] static needs needs_beside(const Model& model, const config& c, bool rounds) {
    auto like = make_dry_model<Model>(model.config(), model.settings(), model.context().properties());
    return measured(like, c, rounds);
  }
  ///   like   a model for dry runs
  template <class Any>
  [[nodiscard]] static needs measured(Any& like, const config& c, bool rounds) {
    detail::step_memory<Any> memory(like, c, {});
    const std::vector<token> zeros(c.micro_batch_size * c.seq_length);
    batch_view full;
    full.b = c.micro_batch_size;
    full.t = c.seq_length;
    full.tokens = full.targets = full.positions = full.starts = zeros;
    everything<Any> instead;
    instead.temperature = c.temperature;
    run(memory, instead, full, rounds);
    needs found{.passes = memory.high_water(), .num_tokens = memory.local_tokens_of(like), .settings = c};
    found.memory.bytes = like.context().memory().now;
    found.memory.add(memory_role::stash, memory.stash_bytes(found.passes));
    found.memory.add(memory_role::workspace, found.passes.workspace);
    found.memory.in_files = Model::recipe::offload::roles;
    found.memory.is_on_host = keeps_on_host<typename Model::recipe::offload>;
    found.memory.host = memory.staging.bytes();
    return found;
  }

  Model* model_;
  detail::watched model_life_;
  std::string_view who_;
  config settings_;
  bool rounds_;
  needs needs_;
  detail::step_memory<Model> memory_;
  detail::address_lifetime lifetime_;
};

}  // namespace xtrain
