// Memory of a training step, allocated once: passes, batches, losses, and a pipeline's micro-batches in flight.
#pragma once

#include <array>
#include <cstddef>

#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/parallel/whole_model_runner.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/train/checked_recipe.hpp>

namespace xtrain::detail {

template <class Model, bool Runs = strategy_runs<Model>>
struct runner_of {
  using type = whole_model_runner<Model>;
};
template <class Model>
struct runner_of<Model, true> {
  using type = typename Model::recipe::parallel::template runner<Model>;
};

/// For micro-batches of the sizes in a completed training_config.
template <class Model>
struct step_memory {
  using device = typename Model::recipe::device;
  using memory = typename device::memory;
  using accumulate = typename Model::accumulate;

  typename runner_of<Model>::type runner;
  pass_memory<Model> passes;  // workspace; stashes are in the runner
  batch_staging<device> staging;  // slots = 2 steps x 2 passes x chunks
  buffer<device> losses;
  buffer<device> step;                                // step_values, and host_failure_1
  pinned_memory<device> reports;                      // of two steps
  pinned_memory<device> inputs;                       // of two steps, if captured

  template <class Config>
  step_memory(Model& of, const Config& c, const pass_sizes& sizes)
      : runner(of, c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length, sizes),
        passes(of, {.workspace = sizes.workspace}),
        staging(of.context(), runner.num_tokens(), 4 * c.gradient_accumulation_steps * runner.chunks(), attention_mask_of(of)),
        losses(of.context(), local_tokens_of(of) * sizeof(accumulate), memory_role::batch),
        step(of.context(), sizeof(step_values) + sizeof(double), memory_role::batch),
        reports(of.context(), 2 * sizeof(kernel::step_report)),
        inputs(of.context(), c.capture_steps && !is_dry_run(of.context()) ? 2 * sizeof(kernel::step_inputs) : 0) {
    if constexpr (strategy_runs<Model> && requires { c.rampup_batch_size; })
      if (const batch_size_rampup& rampup = c.rampup_batch_size; rampup && !is_dry_run(of.context())) {
        const std::size_t one = c.micro_batch_size * of.parallel().data().size();
        runner.allow_fewer(rampup.start / one, (rampup.start + rampup.increment) / one);
      }
  }

  [[nodiscard]] std::size_t local_tokens_of(const Model& of) const { return runner.num_tokens() / context_shard_of(of.parallel()).ranks; }
  [[nodiscard]] device_span<double, memory> loss_1() const { return value<double>(offsetof(step_values, losses)); }
  [[nodiscard]] device_span<double, memory> losses_and_statistics(std::size_t statistics) const {
    return span_of<double, memory>(loss_1().raw(), 1 + statistics);
  }
  [[nodiscard]] device_span<double, memory> squares_1() const { return value<double>(offsetof(step_values, squares)); }
  [[nodiscard]] device_span<kernel::step_state, memory> state_1() const { return value<kernel::step_state>(offsetof(step_values, state)); }
  [[nodiscard]] device_span<kernel::step_scalars, memory> scalars_1() const { return value<kernel::step_scalars>(offsetof(step_values, scalars)); }
  [[nodiscard]] device_span<kernel::step_report, memory> report_1() const { return value<kernel::step_report>(offsetof(step_values, report)); }
  [[nodiscard]] device_span<const double, memory> loss_scale_1() const {
    return value<const double>(offsetof(step_values, state) + offsetof(kernel::step_state, loss_scale));
  }

  /// A copy of the stream's mark, on devices with marks. All devices reserve it: a dry run of another type must plan the same.
  static constexpr bool marks_failures = clause::device_marks_host_failures<device>;
  [[nodiscard]] device_span<double, memory> host_failure_1() const { return value<double>(sizeof(step_values)); }

  // For captured steps.
  [[nodiscard]] device_span<kernel::step_inputs, memory> inputs_1() const { return value<kernel::step_inputs>(offsetof(step_values, inputs)); }
  [[nodiscard]] device_span<double, memory> gradient_scale_1() const { return value<double>(offsetof(step_values, gradient_scale)); }
  [[nodiscard]] kernel::step_inputs& inputs_of(std::size_t slot) const { return inputs.template as<kernel::step_inputs>()[slot]; }

  [[nodiscard]] vector_view<accumulate, memory> losses_of(std::size_t n) const { return {losses.template as<accumulate>().subspan(0, n), {n}}; }
  [[nodiscard]] pass_sizes high_water() const {
    pass_sizes most = runner.high_water();
    most.workspace = passes.high_water().workspace;
    return most;
  }
  void forget() {
    passes.forget();
    runner.forget();
  }
  [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const { return runner.stash_bytes(each); }

 private:
  struct step_values {
    std::array<double, 1 + kernel::max_statistics> losses;  // sums: losses, then statistics
    double squares;
    kernel::step_state state;
    kernel::step_scalars scalars;
    kernel::step_report report;
    kernel::step_inputs inputs;
    double gradient_scale;
  };
  template <class T>
  [[nodiscard]] device_span<T, memory> value(std::size_t offset) const {
    return span_of<T, memory>(reinterpret_cast<T*>(step.template as<std::byte>().raw() + offset), 1);
  }
};

}  // namespace xtrain::detail
