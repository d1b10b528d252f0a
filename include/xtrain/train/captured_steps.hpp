#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/none.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/device/capture.hpp>
#include <xtrain/device/prepared_kernels.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>

namespace xtrain::detail {

template <class Objective>
inline constexpr bool can_be_captured = has_hook<Objective, hook::can_be_captured>;

/// throws config_error when steps of this model, device or objective cannot be captured
template <class Model>
void require_captures(Model& model) {
  using recipe = typename Model::recipe;
  using device = typename recipe::device;
  if constexpr (!is_dry<device>)
    require<config_error>(clause::device_captures_work<device>, "capture_steps: the device must be able to capture work; ", device::name,
                          " is not; see device/README.md");
  require<config_error>(!strategy_runs<Model> && model.parallel().world().size() == 1,
                        "capture_steps: steps of several ranks cannot be captured; there are ", model.parallel().world().size());
  require<config_error>(can_be_captured<typename recipe::objective>,
                        "capture_steps: the objective must be one whose steps can be captured, as next_token; it is ", recipe::objective::name);
}

/// Captured work per layout of batches and per staging slot (two).
template <class Device>
class captured_steps {
 public:
  using stream = typename Device::stream;

  /// Stages a step's batches; captures its work if their layout is new.
  ///   slot            of this step: 0 or 1
  ///   queue(batches, number)   queues the whole step for a capture; number: for random numbers
  ///   throws  config_error when two steps would queue different work; nothing has run then
  template <class Queue>
  void prepare(stream& on, const batch_memory<Device>& memory, batch_staging<Device>& staging, std::size_t slot, std::span<const batch_view> batches,
               std::uint32_t number, Queue&& queue) {
    layout_.clear();
    staging.restart(slot);
    for (const batch_view& batch : batches) add(memory.stage(on, batch, staging));
    auto& known = known_[slot];
    now_ = std::find_if(known.begin(), known.end(), [&](const one& other) { return other.layout == layout_; }) - known.begin();
    if (static_cast<std::size_t>(now_) < known.size()) return;
    if constexpr (clause::device_prepares_kernels<Device>) {
      find_kernels(on, [&] {
        staging.restart(slot);
        queue(batches, number);
      });
      kernels_.prepare(on);
    }
    const auto capture = [&](std::span<const batch_view> all, std::uint32_t with_number) {
      staging.restart(slot);
      on.begin_capture();
      try {
        queue(all, with_number);
      } catch (...) {
        on.cancel_capture();
        throw;
      }
      return on.end_capture();
    };
    // capture twice; any difference was not in device memory
    const graph other = capture(with_fewer_targets(batches), number + 1);
    one fresh{layout_, capture(batches, number)};
    const std::string difference = fresh.work.difference(other);
    require<config_error>(difference.empty(), "capture_steps: every step must queue the same work; in two steps, ", difference,
                          ". What differs from step to step must be in device memory");
    if (known.size() == most_layouts) known.erase(known.begin());
    known.push_back(std::move(fresh));
    now_ = static_cast<std::ptrdiff_t>(known.size()) - 1;
  }
  /// Chooses kernels for an uncaptured step as for a captured one: devices that time kernels choose the same.
  ///   queue()  queues the step; called in a dry run
  template <class Queue>
  void prepare_uncaptured(stream& on, batch_staging<Device>& staging, Queue&& queue) requires clause::device_prepares_kernels<Device> {
    const std::size_t position = staging.position();
    find_kernels(on, queue);
    staging.return_to(position);
    kernels_.prepare(on);
  }
  void replay(stream& on, std::size_t slot) { on.replay(known_[slot][static_cast<std::size_t>(now_)].work); }

 private:
  static constexpr std::size_t most_layouts = 16;
  using graph = typename stream::graph;
  struct one {
    std::vector<std::uintptr_t> layout;
    graph work;
  };

  template <class Work>
  void find_kernels(stream& on, Work&& work) {
    auto dry = Device::context::for_dry_run(on.device().properties());
    dry.record().launched = &kernels_;
    stream beside(dry);
    std::swap(on, beside);
    try {
      work();
    } catch (...) {
      std::swap(on, beside);
      throw;
    }
    std::swap(on, beside);
  }
  /// All that the host knows when it queues kernels.
  void add(const device_batch<Device>& batch) {
    const std::array<std::size_t, 5> sizes{batch.b, batch.t, batch.first_sequence, batch.whole_t, std::size_t{batch.is_packed}};
    layout_.insert(layout_.end(), sizes.begin(), sizes.end());
    const auto add_view = [&](const auto& view) {
      layout_.push_back(reinterpret_cast<std::uintptr_t>(view.span().raw()));
      layout_.push_back(view.span().size());
    };
    for (const auto* view : {&batch.tokens_n, &batch.targets_n, &batch.positions_n, &batch.starts_n, &batch.withins_n, &batch.ends_n, &batch.segments_n,
                             &batch.labels_b, &batch.firsts_b})
      add_view(*view);
    add_view(batch.weights_n);
  }
  /// Ignores the first target of each batch.
  [[nodiscard]] std::span<const batch_view> with_fewer_targets(std::span<const batch_view> batches) {
    targets_.assign(batches.size(), {});
    views_.assign(batches.begin(), batches.end());
    for (std::size_t m = 0; m < batches.size(); ++m) {
      targets_[m].assign(batches[m].targets.begin(), batches[m].targets.end());
      const auto first = std::find_if(targets_[m].begin(), targets_[m].end(), [](token t) { return t >= 0; });
      if (first != targets_[m].end()) {
        *first = -1;
        --views_[m].target_count;
      }
      views_[m].targets = targets_[m];
    }
    return views_;
  }

  struct nothing {};
  template <class D>
  struct kernels_of {
    using type = nothing;
  };
  template <clause::device_prepares_kernels D>
  struct kernels_of<D> {
    using type = kernels_to_prepare<stream>;
  };

  std::vector<one> known_[2];
  [[no_unique_address]] typename kernels_of<Device>::type kernels_{};
  std::ptrdiff_t now_ = 0;
  std::vector<std::uintptr_t> layout_;
  std::vector<std::vector<token>> targets_;
  std::vector<batch_view> views_;
};

/// For devices that do not capture work.
struct no_captured_steps {};
template <class Device>
struct captured_steps_of {
  using type = no_captured_steps;
};
template <clause::device_captures_work Device>
struct captured_steps_of<Device> {
  using type = captured_steps<Device>;
};

}  // namespace xtrain::detail

namespace xtrain {

/// Whether these settings allow a trainer with capture_steps. False for encoders: their batches may have sequence labels, which captured steps refuse.
template <class Model, class Config>
[[nodiscard]] bool can_capture_steps([[maybe_unused]] const typename Model::config_type& sizes, [[maybe_unused]] const typename Model::options& options,
                                     [[maybe_unused]] const Config& c) {
  using recipe = typename Model::recipe;
  if constexpr (causal_model<Model> && clause::device_captures_work<typename recipe::device> && !detail::strategy_runs<Model> &&
                detail::can_be_captured<typename recipe::objective>) {
    if constexpr (has_hook<typename recipe::parallel, hook::ranks>)
      if (options.parallel.ranks != nullptr && options.parallel.ranks->size() != 1) return false;
    if (detail::num_experts_of(sizes) != 0 && !std::same_as<typename recipe::adapter, no_adapter>) return false;  // the host may wait for experts' counts
    if constexpr (has_hook<typename recipe::adapter, hook::fake_quant_after_n_steps>)
      if (options.adapter.fake_quant_after_n_steps != 0) return false;
    return c.neftune_noise_alpha == 0.0 && !c.keep_gradients && c.average_loss == loss_average::step && c.average_balance != balance_average::micro_batches;
  } else {
    return false;
  }
}

/// For an existing model: its device may learn only when opened that it cannot capture work.
template <class Model, class Config>
[[nodiscard]] bool can_capture_steps(Model& model, const Config& c) {
  if constexpr (requires { model.context().why_no_captures(); })
    if (!model.context().why_no_captures().empty()) return false;
  return can_capture_steps<Model>(model.config(), model.settings(), c);
}

/// Whether steps of this data have few layouts. Steps of separate samples are as long as their longest sample: capturing each length takes longer than
/// launching its kernels.
template <class Data>
[[nodiscard]] bool has_few_layouts([[maybe_unused]] const Data& data) {
  if constexpr (std::derived_from<Data, dataset>) return data.layout() != sequence_layout::separate;
  else return true;
}

}  // namespace xtrain
