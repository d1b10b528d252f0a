// Lion.                      [Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/master.hpp>

namespace xtrain {

/// One momentum per weight; every weight changes by ± the learning rate: the paper takes a learning rate 3 to 10 times smaller than AdamW's, and a weight decay
/// larger by the same factor (section 5). Weight decay applies to matrices only. Defaults: the published code (google/automl, lion_pytorch.py).
struct lion {
  static constexpr std::string_view name = "lion";
  using hooks = xtrain::hooks<hook::has_learning_rate_factors>;

  struct config {
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0.0;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "beta1", .full_name = "betas", .range = setting_range::share_below_one, .help = "share of the mean in the direction of a step"}, c.beta1);
      visit({.name = "beta2", .full_name = "betas", .range = setting_range::share_below_one, .help = "decay of the mean of gradients"}, c.beta2);
      visit({.name = "weight_decay", .range = setting_range::non_negative, .help = "weight decay, per unit of learning rate"}, c.weight_decay);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using dtype = typename Precision::state;

    /// throws config_error when a setting is outside its range
    state(const config& settings, execution<Device>& on, const parameter_store<Device, Precision>& store)
        : settings_(require_ranges(name, settings)), master_(on, store), m_(store.device(), store.stepped() * sizeof(dtype), memory_role::optimizer) {
      fill_zero(on.stream, m_.template as<dtype>());
    }

    void step(execution<Device>& on, const parameter_store<Device, Precision>& store, const optimizer_step<Device>& step) {
      for (const parameter_slice& run : store.parameter_slices()) {
        const std::size_t n = run.size();
        ops::lion(on, kernel::lion<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                                   typename Precision::master, dtype>{
                          .n = n,
                          .beta1 = settings_.beta1,
                          .beta2 = settings_.beta2,
                          .weight_decay = run.decays ? settings_.weight_decay : 0.0,
                          .learning_rate_factor = run.learning_rate_factor,
                          .stochastic = Precision::update == rounding::stochastic,
                          .random = {.seed = step.seed, .step = step.number, .site = rounding_site, .first = run.element},
                          .scalars_1 = step.scalars,
                          .gradient_n = store.gradients_of(run),
                          .master_n = master_.of(run),
                          .parameter_n = store.values_of(run),
                          .m_n = m_.template as<dtype>().subspan(run.kept, n)});
      }
    }

    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (has_master_copy<Precision>) visit("master", master_.span());
      visit("m", m_.template as<dtype>());
    }

   private:
    static constexpr std::uint32_t rounding_site = 0xffff0000U;

    config settings_;
    master_copy<Device, Precision> master_;
    buffer<Device> m_;
  };
};

static_assert(optimizer<lion>);

}  // namespace xtrain
