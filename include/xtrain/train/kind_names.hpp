// Names of kinds of settings, objectives and optimizers, as checkpoints record them and command lines take them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/train/config.hpp>

namespace xtrain {

/// Kinds and their names.
template <class Kind, std::size_t N>
using named_kinds = std::array<std::pair<std::string_view, Kind>, N>;

/// all: the names of an enumeration that is a setting. Specialize it for kinds of your own.
template <class Kind>
struct kind_names;
template <>
struct kind_names<loss_average> {
  static constexpr named_kinds<loss_average, 2> all{{{"step", loss_average::step}, {"micro_batch", loss_average::micro_batch}}};
};
template <>
struct kind_names<balance_average> {
  static constexpr named_kinds<balance_average, 3> all{
      {{"targets", balance_average::targets}, {"micro_batches", balance_average::micro_batches}, {"none", balance_average::none}}};
};
template <>
struct kind_names<decayed_parameters> {
  static constexpr named_kinds<decayed_parameters, 2> all{{{"matrices", decayed_parameters::matrices}, {"all", decayed_parameters::all}}};
};
template <>
struct kind_names<lr_shape> {
  static constexpr named_kinds<lr_shape, 3> all{detail::lr_shape_names};
};
template <>
struct kind_names<kernel::preference_kind> {
  static constexpr named_kinds<kernel::preference_kind, 4> all{{{"sigmoid", kernel::preference_kind::sigmoid},  // those of dpo
                                                                {"robust", kernel::preference_kind::robust},
                                                                {"hinge", kernel::preference_kind::hinge},
                                                                {"ipo", kernel::preference_kind::ipo}}};
};
template <>
struct kind_names<kernel::divergence_kind> {
  static constexpr named_kinds<kernel::divergence_kind, 2> all{
      {{"forward", kernel::divergence_kind::forward}, {"reverse", kernel::divergence_kind::reverse}}};
};
template <>
struct kind_names<kto_kind> {
  static constexpr named_kinds<kto_kind, 2> all{{{"kto", kto_kind::kto}, {"apo_zero_unpaired", kto_kind::apo_zero}}};
};
template <>
struct kind_names<kernel::grpo_kind> {
  static constexpr named_kinds<kernel::grpo_kind, 3> all{
      {{"grpo", kernel::grpo_kind::grpo}, {"dapo", kernel::grpo_kind::dapo}, {"dr_grpo", kernel::grpo_kind::dr_grpo}}};
};
template <>
struct kind_names<muon_rate> {
  static constexpr named_kinds<muon_rate, 3> all{
      {{"original", muon_rate::original}, {"match_rms_adamw", muon_rate::match_rms_adamw}, {"spectral", muon_rate::spectral}}};
};

/// An enumeration whose values have names.
template <class Kind>
concept kind_with_names = requires {
  kind_names<Kind>::all.size();
};

/// The name of a kind.
template <kind_with_names Kind>
[[nodiscard]] constexpr std::string_view name_of_kind(Kind kind) {
  for (const auto& [name, known] : kind_names<Kind>::all)
    if (known == kind) return name;
  return "unknown";
}
/// throws config_error for an unknown name, with the known ones
template <kind_with_names Kind>
[[nodiscard]] Kind kind_named(std::string_view name) {
  std::string names;
  for (const auto& [each, kind] : kind_names<Kind>::all) {
    if (each == name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(each);
  }
  fail<config_error>("must be one of ", names, "; given '", name, "'");
}

}  // namespace xtrain
