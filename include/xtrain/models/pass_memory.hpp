// Memory of a model's passes: measured by a dry run, allocated once.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <xtrain/comm/transport.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/pass_sizes.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/tensor/arena.hpp>

namespace xtrain {

/// The recipe on the dry device.
template <class Recipe>
struct on_dry_device : Recipe {
  using device = dry<typename Recipe::device>;
};

namespace detail {

template <class Config>
concept has_transport = requires(Config& config) { config.ranks->carries(); };
/// The strategy's settings with the same ranks but no messages.
template <class Config>
[[nodiscard]] Config sending_nothing(Config config) {
  if constexpr (has_transport<Config>)
    if (config.ranks) config.ranks = std::make_shared<dry_transport>(config.ranks->rank(), config.ranks->size());
  return config;
}
template <class Config>
concept can_send_nothing = std::is_empty_v<Config> || has_transport<Config>;

template <class Model>
struct dry_run_of {
  using type = typename Model::template with_recipe<on_dry_device<typename Model::recipe>>;
  [[nodiscard]] static auto opened(const typename Model::device::properties& like) { return dry_context<typename Model::device>(like); }
};
template <class Model>
requires clause::device_has_dry_run<typename Model::device> && can_send_nothing<typename Model::recipe::parallel::config>
struct dry_run_of<Model> {
  using type = Model;
  [[nodiscard]] static auto opened(const typename Model::device::properties& like) { return Model::device::context::for_dry_run(like); }
};

}  // namespace detail

/// The model type for dry runs: unchanged if the device supports them, otherwise on the dry device.
template <class Model>
using dry_model = typename detail::dry_run_of<Model>::type;

/// A copy without memory or values.
///   options  Model::options
template <class Model>
[[nodiscard]] dry_model<Model> make_dry_model(const typename Model::config_type& sizes, typename Model::options options,
                                              const typename Model::device::properties& properties) {
  options.parallel = detail::sending_nothing(options.parallel);
  return dry_model<Model>(typename dry_model<Model>::uninitialised_t{}, sizes, detail::dry_run_of<Model>::opened(properties), options);
}

/// Memory of a model's passes.
template <class Model>
class pass_memory {
 public:
  using computation = model_computation<Model>;
  using device = typename computation::device;

  /// A dry run ignores the sizes and measures them.
  pass_memory(Model& of, const pass_sizes& sizes)
      : model_(&of), layer_inputs_(of.context(), sizes.layer_inputs), saved_(of.context(), sizes.saved),
        workspace_(of.context(), sizes.workspace, memory_role::workspace) {
    layer_inputs_.reserve(sizes.layer_input_entries);
    saved_.reserve(sizes.saved_entries);
  }

  [[nodiscard]] execution<device> execution_on() { return {model_->stream(), workspace_, model_->context().properties()}; }
  [[nodiscard]] pass<computation> new_pass(pass_mode mode) {
    pass<computation> p(execution_on(), model_->parameters(), saved_, layer_parallel_of(*model_));
    p.mode = mode;
    return p;
  }
  [[nodiscard]] stash<device>& layer_inputs() { return layer_inputs_; }
  /// Discards what a failed pass has left.
  void forget() {
    layer_inputs_.drop(0);
    saved_.drop(0);
  }

  [[nodiscard]] pass_sizes high_water() const {
    return {layer_inputs_.high_water(), saved_.high_water(), workspace_.high_water(), layer_inputs_.reserved(), saved_.reserved()};
  }

 private:
  Model* model_;
  stash<device> layer_inputs_;
  stash<device> saved_;
  arena<device> workspace_;
};

/// Calls work(model, pass_memory) with a copy without memory or values; returns the memory it needs.
template <class Model, class Work>
[[nodiscard]] pass_sizes measure_pass(const Model& model, Work&& work) {
  auto like = make_dry_model<Model>(model.config(), model.settings(), model.context().properties());
  pass_memory<dry_model<Model>> memory(like, {});
  work(like, memory);
  return memory.high_water();
}

}  // namespace xtrain
