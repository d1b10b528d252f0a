// AdamW with 8-bit moments.       [Dettmers et al. 2022, "8-bit optimizers via block-wise quantization"; bitsandbytes' AdamW8bit]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/adam_corrections.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/master.hpp>
#include <xtrain/optim/state_part.hpp>

namespace xtrain {

/// Moments are 8-bit codes with a scale per block of 256 weights: 2 + 8 / 256 bytes per weight instead of adamw's 8. Blocks begin with each parameter; adjacent
/// parameters used as one matrix (queries, keys and values) count as one. Weight decay applies to matrices only.
///
/// Parameters and shards begin at multiples of 256 elements (shard_spec::alignment): shards have the bits of a single rank.
struct adamw_8bit {
  static constexpr std::string_view name = "adamw_8bit";
  using hooks = xtrain::hooks<hook::has_learning_rate_factors, hook::layout_alignment>;
  static constexpr std::size_t layout_alignment = dynamic_code::block;  ///< alignment of parameters and shards in a model's layout

  struct config {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
    std::size_t min_8bit_size = 4096;  ///< elements of the smallest parameter with 8-bit moments

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "beta1", .full_name = "betas", .range = setting_range::share_below_one, .help = "decay of the mean of gradients"}, c.beta1);
      visit({.name = "beta2", .full_name = "betas", .range = setting_range::share_below_one, .help = "decay of the mean of their squares"}, c.beta2);
      visit({.name = "epsilon", .range = setting_range::non_negative, .help = "added to the root of the squares"}, c.epsilon);
      visit({.name = "weight_decay", .range = setting_range::non_negative, .help = "weight decay, per unit of learning rate"}, c.weight_decay);
      visit({.name = "min_8bit_size", .range = setting_range::non_negative, .unit = "elements",
             .help = "elements of the smallest parameter with 8-bit moments"}, c.min_8bit_size);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using store_type = parameter_store<Device, Precision>;
    using entry = typename store_type::entry;
    using wide = accumulate_t<typename Precision::master>;  ///< moments of small parameters

    /// `store` must outlive the state.
    ///   throws  config_error when this rank has tensor-parallel shards (whose blocks differ from unsharded parameters'), the store is not laid out for
    ///           blocks, or a setting is out of range
    state(const config& settings, execution<Device>& on, const store_type& store)
        : settings_(require_ranges(name, settings)), store_(&checked(store)), master_(on, store), pieces_(pieces_of_this_rank()),
          m_code_(zeros<std::uint8_t>(on, store.stepped())), v_code_(zeros<std::uint8_t>(on, store.stepped())),
          m_scale_(zeros<float>(on, store.stepped() / dynamic_code::block)),
          v_scale_(zeros<float>(on, store.stepped() / dynamic_code::block)), m_(zeros<wide>(on, small_)), v_(zeros<wide>(on, small_)) {}

    void step(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step) {
      const typename arena<Device>::scope scope(on.workspace);
      const auto corrections = detail::adam_corrections(on, settings_.beta1, settings_.beta2, step);
      for (const piece& one : pieces_) {
        const parameter_slice& run = one.run;
        const double weight_decay = run.decays ? settings_.weight_decay : 0.0;
        const random_site random{.seed = step.seed, .step = step.number, .site = rounding_site, .first = run.element};
        const std::size_t n = run.size(), blocks = dynamic_code::blocks(n), block = run.kept / dynamic_code::block;
        if (one.has_codes)
          ops::adamw_8bit(
              on, kernel::adamw_8bit<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                                     typename Precision::master>{.n = n,
                                                                 .beta1 = settings_.beta1,
                                                                 .beta2 = settings_.beta2,
                                                                 .epsilon = settings_.epsilon,
                                                                 .weight_decay = weight_decay,
                                                                 .learning_rate_factor = run.learning_rate_factor,
                                                                 .stochastic = Precision::update == rounding::stochastic,
                                                                 .random = random,
                                                                 .scalars_1 = step.scalars,
                                                                 .correction_2 = corrections,
                                                                 .gradient_n = store.gradients_of(run),
                                                                 .master_n = master_.of(run),
                                                                 .parameter_n = store.values_of(run),
                                                                 .m_code_n = m_code_.template as<std::uint8_t>().subspan(run.kept, n),
                                                                 .v_code_n = v_code_.template as<std::uint8_t>().subspan(run.kept, n),
                                                                 .m_scale_k = m_scale_.template as<float>().subspan(block, blocks),
                                                                 .v_scale_k = v_scale_.template as<float>().subspan(block, blocks)});
        else
          ops::adamw(on, kernel::adamw<typename Device::memory, typename Precision::parameter, typename Precision::gradient,
                                       typename Precision::master, wide>{.n = n,
                                                                         .beta1 = settings_.beta1,
                                                                         .beta2 = settings_.beta2,
                                                                         .epsilon = settings_.epsilon,
                                                                         .weight_decay = weight_decay,
                                                                         .learning_rate_factor = run.learning_rate_factor,
                                                                         .stochastic = Precision::update == rounding::stochastic,
                                                                         .random = random,
                                                                         .scalars_1 = step.scalars,
                                                                         .correction_2 = corrections,
                                                                         .gradient_n = store.gradients_of(run),
                                                                         .master_n = master_.of(run),
                                                                         .parameter_n = store.values_of(run),
                                                                         .m_n = m_.template as<wide>().subspan(one.small, n),
                                                                         .v_n = v_.template as<wide>().subspan(one.small, n)});
      }
    }

    /// Arrays of a checkpoint: codes per weight and scales per block of large parameters, moments of small ones.
    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (has_master_copy<Precision>) visit("master", master_.span());
      const auto codes = [this](const entry& e) {
        return has_codes(group_of(e)) ? state_part::weights_of(*store_, e, store_->piece_of(e).kept) : state_part{};
      };
      const auto scales = [this](const entry& e) { return scales_of(e); };
      const auto moments = [this](const entry& e) {
        return has_codes(group_of(e)) ? state_part{} : state_part::weights_of(*store_, e, index_of_moments(e));
      };
      visit("m_code", m_code_.template as<std::uint8_t>(), codes);
      visit("v_code", v_code_.template as<std::uint8_t>(), codes);
      visit("m_scale", m_scale_.template as<float>(), scales);
      visit("v_scale", v_scale_.template as<float>(), scales);
      visit("m", m_.template as<wide>(), moments);
      visit("v", v_.template as<wide>(), moments);
    }

   private:
    static constexpr std::uint32_t rounding_site = 0xffff0000U;

    struct piece {
      parameter_slice run{};
      std::uint32_t group = 0;
      bool has_codes = true;
      std::size_t small = 0;  // without codes: index of its moments
    };

    [[nodiscard]] static const store_type& checked(const store_type& store) {
      require<config_error>(!store.has_tensor_shards(),
                            "adamw_8bit: must have whole parameters; tensor parallelism shards them. Use adamw");
      require<config_error>(store.sharding().alignment % dynamic_code::block == 0,
                            "adamw_8bit: parameters and shards must begin at multiples of ", dynamic_code::block,
                            " elements; the alignment that the parameter store was allocated with (shard_spec::alignment) is ",
                            store.sharding().alignment);
      return store;
    }

    [[nodiscard]] entry group_of(const entry& e) const {
      const auto& all = store_->entries();
      entry group = all[e.group];
      std::size_t n = 0;
      for (std::size_t i = e.group; i < all.size() && all[i].group == e.group; ++i) n += all[i].size();
      group.spec.shape = {n};
      return group;
    }
    [[nodiscard]] bool has_codes(const entry& group) const { return group.size() >= settings_.min_8bit_size; }

    /// Sets the number of weights with 32-bit moments.
    [[nodiscard]] std::vector<piece> pieces_of_this_rank() {
      std::vector<piece> pieces;
      const auto& all = store_->entries();
      for (std::uint32_t i = 0; i < all.size(); ++i) {
        if (all[i].group != i || !all[i].spec.trainable || !all[i].is_here) continue;
        const entry group = group_of(all[i]);
        const auto own = store_->piece_of(group);
        const std::size_t begin = group.offset + own.first, end = begin + own.count;
        for (const parameter_slice& run : store_->parameter_slices()) {
          const std::size_t from = std::max(begin, run.begin), to = std::min(end, run.end);
          if (from >= to) continue;
          const std::size_t skipped = from - run.begin;
          pieces.push_back({{from, to, run.decays, run.kept + skipped, run.element + skipped, run.learning_rate_factor}, i, has_codes(group), small_});
          if (!has_codes(group)) small_ += to - from;
        }
      }
      return pieces;
    }

    /// One scale per block, under the name of a group's first parameter.
    [[nodiscard]] state_part scales_of(const entry& e) const {
      const entry group = group_of(e);
      if (group.spec.name != e.spec.name || !has_codes(group)) return {};
      const auto own = store_->piece_of(group);
      return {.is = state_part::kind::shards,
              .shape = {dynamic_code::blocks(group.size())},
              .first = own.first / dynamic_code::block,
              .at = own.kept / dynamic_code::block,
              .count = dynamic_code::blocks(own.count)};
    }
    [[nodiscard]] std::size_t index_of_moments(const entry& e) const {
      const auto own = store_->piece_of(e);
      for (const piece& one : pieces_)
        if (own.count != 0 && one.group == e.group) return one.small + (own.kept - one.run.kept);
      return 0;
    }

    template <class T>
    [[nodiscard]] buffer<Device> zeros(execution<Device>& on, std::size_t n) const {
      buffer<Device> made(store_->device(), n * sizeof(T), memory_role::optimizer);
      fill_zero(on.stream, made.template as<T>());
      return made;
    }

    config settings_;
    const store_type* store_;
    master_copy<Device, Precision> master_;
    std::size_t small_ = 0;
    std::vector<piece> pieces_;
    buffer<Device> m_code_, v_code_, m_scale_, v_scale_, m_, v_;
  };
};

static_assert(optimizer<adamw_8bit>);

}  // namespace xtrain
