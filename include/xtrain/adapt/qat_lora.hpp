// Quantization-aware LoRA: low-rank updates of frozen weights that the layer rounds to integers.
//                                                   [torchtune's QATLoRALinear; Hu et al. 2021; Jacob et al. 2018, section 3]
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/qat.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/pass.hpp>

namespace xtrain {

/// y = Q(x) · Q(W)ᵀ + b + scale · dropout(x) · Aᵀ · Bᵀ for modules with an adapter, Q as in `qat`; others are not rounded. A and B are trained and saved as by
/// `lora`; the program that runs them quantizes weights, before or after merging. Gradients pass through Q(x) where nothing was clamped.
/// Departures from torchtune: as `qat`; biases are added (QATLoRALinear omits them).
struct qat_lora : lora {
  static constexpr std::string_view name = "qat_lora";
  using hooks = xtrain::hooks<hook::can_be_switched_off, hook::on_weights_loaded, hook::on_table, hook::on_head, hook::drops_input, hook::works_on_rows,
                              hook::trains_bias, hook::adapts_table, hook::quantizes, hook::quantized_outputs, hook::fake_quant_after_n_steps>;

  struct config : lora_config, qat::config {
    using lora_config::choose_targets;
    using lora_config::trains;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      lora_config::members(c, visit);
      qat::config::members(c, visit);
    }

    /// throws config_error as lora_config; for DoRA, whose magnitudes belong to unrounded weights
    template <class Store>
    void finish(const Store& store) const {
      require<config_error>(parts.empty(), "qat_lora: modules that are rounded must have one adapter each; parts of fused modules are given");
      require<config_error>(!dora, "qat_lora: rows of weights that are rounded must not be decomposed (DoRA)");
      lora_config::finish(store);
    }
  };

  template <class Recipe>
  class on_linear {
   public:
    using compute = typename pass<Recipe>::compute;
    using memory = typename pass<Recipe>::memory;
    using gradient_type = typename pass<Recipe>::gradient_type;

    /// Outputs computed alike.
    struct range {
      std::size_t first = 0, count = 0;
      bool rounds = false;
    };

    ///   throws  config_error as `qat` and `lora`
    template <class Builder, class Parts, class Inputs>
    void declare(Builder& build, const Parts& parts, const Inputs& inputs) {
      low_rank_.declare(build, parts, inputs);
      if (!low_rank_.needs_input()) return;
      rounding_.declare(build, parts, inputs);
      std::size_t first = 0;
      for (const auto& part : parts) {
        const bool rounds = build.adapter().adapts(part.name);
        require<config_error>(rounds || !build.adapter().trains(part.name), "qat_lora: '", part.name, "' must not be trained itself: it is in one matrix with ",
                              "modules that have adapters");
        if (!ranges_.empty() && ranges_.back().rounds == rounds) ranges_.back().count += part.outputs;
        else ranges_.push_back({first, part.outputs, rounds});
        first += part.outputs;
      }
    }
    [[nodiscard]] bool needs_input() const { return low_rank_.needs_input(); }
    [[nodiscard]] bool drops_input() const { return low_rank_.drops_input(); }
    [[nodiscard]] bool works_on_rows() const { return !needs_input(); }

    template <class Pass, class X, class Y>
    void forward(Pass& p, const X& x, const Y& y) const {
      low_rank_.forward(p, x, y);
    }
    template <class Pass, class X, class DY, class DX>
    void backward(Pass& p, const X& x, const DY& dy, const DX& dx) const {
      low_rank_.backward(p, x, dy, dx);
    }

    // Operands as in qat, for some outputs.
    [[nodiscard]] bool quantizes(const pass<Recipe>& p) const { return needs_input() && rounding_.quantizes(p); }
    [[nodiscard]] std::span<const range> quantized_outputs() const { return ranges_; }
    [[nodiscard]] auto quantized_input(pass<Recipe>& p, matrix_view<const compute, memory> x) const { return rounding_.quantized_input(p, x); }
    [[nodiscard]] auto quantized_weight(pass<Recipe>& p, matrix_view<const compute, memory> w) const { return rounding_.quantized_weight(p, w); }
    template <class ToQuantized>
    void input_backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx, ops::result write_mode,
                        ToQuantized&& to_quantized) const {
      rounding_.input_backward(p, x, dx, write_mode, to_quantized);
    }
    /// Never called: adapted weights are frozen.
    void weight_backward(pass<Recipe>&, matrix_view<const compute, memory>, matrix_view<gradient_type, memory>) const {}

   private:
    typename lora::template on_linear<Recipe> low_rank_;
    typename qat::template on_linear<Recipe> rounding_;
    std::vector<range> ranges_;
  };

  /// A head is not rounded.
  template <class Recipe>
  class on_head : public lora::template on_head<Recipe> {
   public:
    ///   throws  config_error when the head is a target
    template <class Builder, class Part, class Inputs>
    void declare(Builder& build, const Part& part, const Inputs&) {
      require<config_error>(!build.adapter().adapts_table(part.name), "qat_lora: targets must be layers whose weights are rounded; the head, '", part.name,
                            "', is not");
    }
  };
};

static_assert(adapter<qat_lora>);

}  // namespace xtrain
