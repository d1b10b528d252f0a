// Objectives over sequences as one type, chosen at run time: a test instantiates one trainer for all.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/objective/orpo.hpp>
#include <xtrain/objective/simpo.hpp>

/// Losses, checks and counts of the policies; statistics are not converted as in kto.
struct any_preference {
  static constexpr std::string_view name = "any_preference";
  static constexpr std::size_t group_size = 2;
  static constexpr auto statistics = xtrain::dpo::statistics;
  using hooks = xtrain::hooks<xtrain::hook::upload, xtrain::hook::uses_reference, xtrain::hook::reads_labels>;

  enum class policy { dpo, orpo, simpo, kto };
  struct config {
    policy is = policy::dpo;
    xtrain::dpo::config dpo{};
    xtrain::orpo::config orpo{};
    xtrain::simpo::config simpo{};
    xtrain::kto::config kto{};
  };

  /// Calls work(policy type, its config).
  template <class Work>
  static auto with(const config& c, Work&& work) {
    if (c.is == policy::orpo) return work(xtrain::orpo{}, c.orpo);
    if (c.is == policy::simpo) return work(xtrain::simpo{}, c.simpo);
    if (c.is == policy::kto) return work(xtrain::kto{}, c.kto);
    return work(xtrain::dpo{}, c.dpo);
  }
  /// Batches with labels are kto's.
  static double count_losses(const xtrain::batch_view& batch) {
    return batch.labels.empty() ? xtrain::dpo::count_losses(batch) : xtrain::kto::count_losses(batch);
  }
  static void require_batch(const config& c, const xtrain::batch_view& batch) {
    with(c, [&](auto of, const auto& own) { decltype(of)::require_batch(own, batch); });
  }
  static void require_config(const config& c) {
    with(c, [](auto of, const auto& own) { decltype(of)::require_config(own); });
  }
  static xtrain::reference_use reference(const config& c) {
    return with(c, [](auto of, const auto& own) { return decltype(of)::reference(own); });
  }
  template <class Device, class Memory>
  static void losses(xtrain::execution<Device>& on, const config& c, const xtrain::sequence_losses<Memory>& values) {
    with(c, [&](auto of, const auto& own) { decltype(of)::losses(on, own, values); });
  }
  template <class Recipe>
  using state = xtrain::sequence_objective<Recipe, any_preference>;
};
static_assert(xtrain::objective<any_preference>);
