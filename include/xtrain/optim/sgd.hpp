// Stochastic gradient descent with momentum.                   [Polyak 1964; Sutskever et al. 2013]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/master.hpp>

namespace xtrain {

/// One velocity per weight, or no state when momentum is 0. Weight decay is decoupled (as in adamw) and applies to matrices only; PyTorch's SGD adds it to
/// the gradient.
struct sgd {
  static constexpr std::string_view name = "sgd";
  using hooks = xtrain::hooks<hook::has_learning_rate_factors>;

  struct config {
    double momentum = 0.9;
    double weight_decay = 0.0;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "momentum", .range = setting_range::non_negative, .help = "decay of the sum of gradients"}, c.momentum);
      visit({.name = "weight_decay", .range = setting_range::non_negative, .help = "weight decay, per unit of learning rate"}, c.weight_decay);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using dtype = typename Precision::state;

    /// throws config_error when a setting is negative
    state(const config& settings, execution<Device>& on, const parameter_store<Device, Precision>& store)
        : settings_(checked(settings)), master_(on, store),
          velocity_(store.device(), settings.momentum == 0.0 ? 0 : store.stepped() * sizeof(dtype), memory_role::optimizer) {
      fill_zero(on.stream, velocity_.template as<dtype>());
    }

    void step(execution<Device>& on, const parameter_store<Device, Precision>& store, const optimizer_step<Device>& step) {
      const auto velocity = velocity_.template as<dtype>();
      for (const parameter_slice& run : store.parameter_slices()) {
        const std::size_t n = run.size();
        ops::sgd(on,
                 kernel::sgd<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                             typename Precision::master, dtype>{
                     .n = n,
                     .momentum = settings_.momentum,
                     .weight_decay = run.decays ? settings_.weight_decay : 0.0,
                     .learning_rate_factor = run.learning_rate_factor,
                     .stochastic = Precision::update == rounding::stochastic,
                     .random = {.seed = step.seed, .step = step.number, .site = rounding_site, .first = run.element},
                     .scalars_1 = step.scalars,
                     .gradient_n = store.gradients_of(run),
                     .master_n = master_.of(run),
                     .parameter_n = store.values_of(run),
                     .velocity_n = velocity.empty() ? velocity : velocity.subspan(run.kept, n)});
      }
    }

    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (has_master_copy<Precision>) visit("master", master_.span());
      if (settings_.momentum != 0.0) visit("velocity", velocity_.template as<dtype>());
    }

   private:
    static constexpr std::uint32_t rounding_site = 0xffff0000U;

    static const config& checked(const config& c) {
      return require_ranges(name, c);
    }

    config settings_;
    master_copy<Device, Precision> master_;
    buffer<Device> velocity_;
  };
};

static_assert(optimizer<sgd>);

}  // namespace xtrain
