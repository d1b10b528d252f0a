// The settings of a run in checkpoints and records of metrics. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/setting_list.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/io/setting_values.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/kind_names.hpp>

namespace xtrain::detail {

/// The family of a model and its settings, as in config.json; nothing for models without that file.
template <class Model>
void record_model(json_settings& all, const Model& model) {
  if constexpr (clause::model_has_family_info<Model>) {
    all.set("model_type", std::string(model.family_info().model_type));
    model.family_info().write(model.config(), all);
  }
}

/// Adapter settings stored nowhere else.
template <class Config>
void record_adapter(json_settings& all, const Config& c) {
  Config copy = c;
  write_settings(all, list_settings(copy), "adapter");
}

/// Checkpoints record the config: it describes its members, or is empty.
template <class Config>
inline constexpr bool is_recorded = describes_settings<Config> || std::is_empty_v<Config>;

/// Settings of a run, its optimizer and its objective.
///   c            a training_config
///   scales_loss  the precision has loss scaling
template <bool scales_loss, class Config>
void record_settings(json_settings& all, const Config& c, written_settings which = written_settings::compared) {
  static_assert(is_recorded<decltype(c.optimizer)>, "xtrain settings: the optimizer's config must describe its members, so that checkpoints have them; give it "
                                                    "members(Self&, Visit&&); see train/README.md");
  static_assert(is_recorded<decltype(c.objective)>, "xtrain settings: the objective's config must describe its members, so that checkpoints have them; give it "
                                                    "members(Self&, Visit&&); see train/README.md");
  Config copy = c;
  auto settings = list_settings(copy);
  if constexpr (!scales_loss) std::erase_if(settings, [](const setting_entry& one) { return one.about.part == "loss_scale"; });
  write_settings(all, settings, "run", which);
  const batch_size_rampup& rampup = c.rampup_batch_size;
  all.set("rampup_batch_size", rampup ? std::vector<std::size_t>{rampup.start, rampup.increment, rampup.samples} : std::vector<std::size_t>{});
}

}  // namespace xtrain::detail
