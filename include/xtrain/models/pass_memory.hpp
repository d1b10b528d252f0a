// The memory of a model's passes: measured by a dry run, allocated once.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <xtrain/comm/transport.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/rehearsal.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/arena.hpp>

namespace xtrain {

/// The same recipe on the dry device.
template <class Recipe>
struct on_dry_device : Recipe {
  using device = dry<typename Recipe::device>;
};

namespace detail {

/// The strategy's settings for a dry run: the same ranks, but nothing is sent.
template <class Config>
[[nodiscard]] Config sending_nothing(Config config) {
  if constexpr (requires { config.ranks->carries(); })
    if (config.ranks) config.ranks = std::make_shared<dry_transport>(config.ranks->rank(), config.ranks->size());
  return config;
}
template <class Config>
concept can_send_nothing = std::is_empty_v<Config> || requires(Config& config) {
  config.ranks->carries();
};

template <class Model>
struct rehearsal_of {
  using type = typename Model::template with_recipe<on_dry_device<typename Model::recipe>>;
  [[nodiscard]] static auto opened(const typename Model::device::properties& like) { return dry_context<typename Model::device>(like); }
};
template <class Model>
requires clause::device_rehearses_itself<typename Model::device> && can_send_nothing<typename Model::recipe::parallel::config>
struct rehearsal_of<Model> {
  using type = Model;
  [[nodiscard]] static auto opened(const typename Model::device::properties& like) { return Model::device::context::rehearsing(like); }
};

}  // namespace detail

/// The model type for dry runs: the same type if the device supports dry runs itself, otherwise on the dry device.
template <class Model>
using rehearsed = typename detail::rehearsal_of<Model>::type;

/// A copy of a model for dry runs: no memory, no values.
///   options  Model::options
template <class Model>
[[nodiscard]] rehearsed<Model> rehearse_model(const typename Model::config& sizes, typename Model::options options,
                                              const typename Model::device::properties& properties) {
  options.parallel = detail::sending_nothing(options.parallel);
  return rehearsed<Model>(typename rehearsed<Model>::uninitialised_t{}, sizes, detail::rehearsal_of<Model>::opened(properties), options);
}

template <class Model>
class pass_memory {
 public:
  using recipe = typename Model::recipe;
  using device = typename recipe::device;

  /// In a dry run the sizes are ignored: it measures them.
  pass_memory(Model& of, const pass_sizes& sizes)
      : model_(&of), boundaries_(of.on(), sizes.boundaries), kept_(of.on(), sizes.kept),
        workspace_(of.on(), sizes.workspace, memory_role::workspace) {
    boundaries_.reserve(sizes.boundary_entries);
    kept_.reserve(sizes.kept_entries);
  }

  [[nodiscard]] execution<device> execution_on() { return {model_->work(), workspace_, model_->on().properties()}; }
  [[nodiscard]] pass<recipe> new_pass(pass_mode mode) {
    pass<recipe> p(execution_on(), model_->parameters(), kept_, model_->parallel());
    p.mode = mode;
    return p;
  }
  [[nodiscard]] stash<device>& boundaries() { return boundaries_; }
  /// Discards what a pass that threw has left.
  void forget() {
    boundaries_.drop(0);
    kept_.drop(0);
  }

  /// The largest sizes in use at any time.
  [[nodiscard]] pass_sizes high_water() const {
    return {boundaries_.high_water(), kept_.high_water(), workspace_.high_water(), boundaries_.reserved(), kept_.reserved()};
  }

 private:
  Model* model_;
  stash<device> boundaries_;
  stash<device> kept_;
  arena<device> workspace_;
};

/// Dry run: calls work(model, pass_memory) with a copy of the model without memory or values, and returns how much memory it needs.
template <class Model, class Work>
[[nodiscard]] pass_sizes measure_pass(const Model& model, Work&& work) {
  auto like = rehearse_model<Model>(model.sizes(), model.settings(), model.on().properties());
  pass_memory<rehearsed<Model>> memory(like, {});
  work(like, memory);
  return memory.high_water();
}

}  // namespace xtrain
