// Quantization-aware training: linear layers compute with weights and inputs rounded to integers.
//           [Jacob et al. 2018, section 3; torchao's Int8DynActInt4WeightQATQuantizer and Int4WeightOnlyQATQuantizer, as torchtune uses them]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/fake_quantize.hpp>

namespace xtrain {

/// All weights are trained. Linear layers compute y = Q(x) · Q(W)ᵀ + b: W in int4 with a scale per group of inputs, x in int8 with scale and zero point per
/// token, rounded in every pass. Gradients pass where nothing was clamped (straight-through estimator; scales are constants). Weights are saved unquantized.
/// With float_zero_points, W is unsigned int4 with scale and zero point in bf16; without quantizes_activations, too, this is Int4WeightOnlyQATQuantizer.
/// Departures from torchtune: an untied head is not rounded; symmetric scales of 16-bit weights are computed in fp32.
struct qat {
  static constexpr std::string_view name = "qat";
  using hooks = xtrain::hooks<hook::works_on_rows, hook::quantizes, hook::fake_quant_after_n_steps>;
  static constexpr bool freezes_weights = false;

  struct config {
    std::size_t group_size = 256;              ///< inputs per weight scale; must divide every linear layer's inputs
    bool quantizes_activations = true;         ///< int8 inputs; false: weights only
    bool float_zero_points = false;            ///< unsigned int4 with a bf16 zero point per group, instead of symmetric int4
    std::size_t fake_quant_after_n_steps = 0;  ///< first steps with unrounded weights

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "group_size", .range = setting_range::positive, .help = "inputs per scale of a weight"}, c.group_size);
      visit({.name = "quantizes_activations", .help = "int8 inputs"}, c.quantizes_activations);
      visit({.name = "float_zero_points", .help = "unsigned int4 with a zero point per group"}, c.float_zero_points);
      visit({.name = "fake_quant_after_n_steps", .unit = "steps", .help = "steps before weights are rounded"}, c.fake_quant_after_n_steps);
    }

    [[nodiscard]] bool trains(const std::string&) const { return true; }
    void choose_targets(const std::vector<std::string>&) const {}
    template <class Store>
    void finish(const Store&) const {}
  };

  [[nodiscard]] static bool is_own(std::string_view) { return false; }

  /// Rounds weights in the forward pass.
  template <class Recipe>
  class on_linear {
   public:
    using compute = typename pass<Recipe>::compute;
    using memory = typename pass<Recipe>::memory;
    using gradient_type = typename pass<Recipe>::gradient_type;
    static_assert(!splits_backwards<Recipe>,
                  "xtrain recipe: 'adapter' must not be qat with a schedule that splits backwards (zero_bubble), where the gradient of a weight comes after "
                  "its layer's; choose another schedule; see adapt/README.md");

    ///   throws  config_error when groups do not divide the inputs, or layers are sharded among tensor-parallel ranks
    template <class Builder, class Parts, class Inputs>
    void declare(Builder& build, const Parts& parts, const Inputs& inputs) {
      const config& c = build.adapter();
      build.require_whole_layers("qat");
      require<config_error>(c.group_size > 1 && inputs.count % c.group_size == 0, "qat: group_size must divide the inputs of every linear layer; '",
                            parts.front().name, "' has ", inputs.count, ", group_size is ", c.group_size);
      group_size_ = c.group_size;
      quantizes_inputs_ = c.quantizes_activations;
      if (c.float_zero_points) weight_format_.zeros = zero_points::floating;
    }
    [[nodiscard]] bool needs_input() const { return true; }
    [[nodiscard]] bool works_on_rows() const { return false; }

    // Nothing is added to the layer.
    template <class Pass, class X, class Y>
    void forward(Pass&, const X&, const Y&) const {}
    template <class Pass, class X, class DY, class DX>
    void backward(Pass&, const X&, const DY&, const DX&) const {}

    // Rounded operands, in temporary memory of the caller's scope.
    [[nodiscard]] bool quantizes(const pass<Recipe>& p) const { return !p.internal.without_fake_quantization; }
    [[nodiscard]] matrix_view<const compute, memory> quantized_input(pass<Recipe>& p, matrix_view<const compute, memory> x) const {
      return quantizes_inputs_ ? rounded(p, x, x.shape(1), input_format) : x;
    }
    [[nodiscard]] matrix_view<const compute, memory> quantized_weight(pass<Recipe>& p, matrix_view<const compute, memory> w) const {
      return rounded(p, w, group_size_, weight_format_);
    }
    /// dx written or added to; to_quantized(matrix, how) computes the rounded input's gradient.
    template <class ToQuantized>
    void input_backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx, ops::result write_mode,
                        ToQuantized&& to_quantized) const {
      if (!quantizes_inputs_) return to_quantized(dx, write_mode);
      const auto scope = p.scope();
      const auto d = p.temporary(dx.shape(0), dx.shape(1));
      to_quantized(d, ops::result::replaces);
      ops::fake_quantize_backward<typename Recipe::device, compute, compute>(p, x, x.shape(1), input_format, d, dx, write_mode);
    }
    /// The rounded weight's gradient becomes the weight's; earlier micro-batches stay, as the weight is the same.
    void weight_backward(pass<Recipe>& p, matrix_view<const compute, memory> w, matrix_view<gradient_type, memory> dw) const {
      ops::fake_quantize_backward<typename Recipe::device, compute, gradient_type>(p, w, group_size_, weight_format_, dw, dw);
    }

   private:
    static constexpr fake_quantization input_format{.bits = 8, .zeros = zero_points::integer};

    [[nodiscard]] static matrix_view<const compute, memory> rounded(pass<Recipe>& p, matrix_view<const compute, memory> x, std::size_t group,
                                                                    const fake_quantization& format) {
      const auto y = p.temporary(x.shape(0), x.shape(1));
      ops::fake_quantize<typename Recipe::device, compute>(p, x, group, format, y);
      return y;
    }

    fake_quantization weight_format_{.bits = 4};
    std::size_t group_size_ = 1;
    bool quantizes_inputs_ = true;
  };
};

static_assert(adapter<qat>);

}  // namespace xtrain
