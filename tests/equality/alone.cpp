// One device: the reference of every combination.
#include "run.hpp"

namespace equality {

outcome train_alone(const drawn_run& run) {
  training_config<adamw> settings = run.settings;
  settings.gradient_accumulation_steps *= run.mesh.data;
  const auto on_one = [&]<class Model>() {
    typename Model::options options;
    if constexpr (requires { options.adapter.rank; }) options.adapter = run.adapter;
    return train<Model>(run, settings, options);
  };
  if (run.what == kind::mixtral) return on_one.operator()<mixtral<plain_recipe<single>>>();
  if (run.what == kind::mixtral_adapted) return on_one.operator()<mixtral<adapted_recipe<single>>>();
  return with_dense_model<single>(run.what, on_one);
}

}  // namespace equality
