// The memory of passes through one model: measured on the dry device, allocated once.
#pragma once

#include <cstddef>

#include <xtrain/device/dry/dry.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/arena.hpp>

namespace xtrain {

/// The same recipe on the dry device: what a program needs is found by running it there.
template <class Recipe>
struct on_dry_device : Recipe {
  using device = dry<typename Recipe::device>;
};

template <class Model>
class pass_memory {
 public:
  using recipe = typename Model::recipe;
  using device = typename recipe::device;

  /// On a dry device the sizes do not matter: it measures.
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
  /// What a pass that threw has left.
  void forget() {
    boundaries_.drop(0);
    kept_.drop(0);
  }

  /// The most that was in use at once.
  [[nodiscard]] pass_sizes high_water() const {
    return {boundaries_.high_water(), kept_.high_water(), workspace_.high_water(), boundaries_.reserved(), kept_.reserved()};
  }

 private:
  Model* model_;
  stash<device> boundaries_;
  stash<device> kept_;
  arena<device> workspace_;
};

/// Runs work(model, pass_memory) with the model's like on the dry device and says how much memory it took.
template <class Model, class Work>
[[nodiscard]] pass_sizes measure_pass(const Model& model, Work&& work) {
  using dry_model = typename Model::template with_recipe<on_dry_device<typename Model::recipe>>;
  dry_model like(typename dry_model::uninitialised_t{}, model.sizes(), dry_context<typename Model::device>(model.on().properties()),
                 model.settings());
  pass_memory<dry_model> memory(like, {});
  work(like, memory);
  return memory.high_water();
}

}  // namespace xtrain
