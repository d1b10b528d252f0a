#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/hooks.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain {

/// Only a linear layer's weight may be quantized.
enum class matrix_use : std::uint8_t { linear_weight, table };

/// Where a replicated parameter is used. sequence_parallel: ranks may have different tokens; gradients are partial and all-reduced. tensor_parallel: every
/// rank has all tokens and the entire gradient. sharded_layer: a rank has some heads or channels; gradients are always partial.
enum class region : std::uint8_t { tensor_parallel, sequence_parallel, sharded_layer };

/// Declares a model's parameters once, at construction. The adapter decides which modules are trained.
template <class Recipe>
class builder {
 public:
  using recipe = Recipe;
  using store = parameter_store<typename Recipe::device, typename Recipe::precision>;
  using adapter_config = typename Recipe::adapter::config;

  builder(store& parameters, const adapter_config& adapter, const tensor_shard& shard = {}, const tensor_shard& experts = {},
          const context_shard& sequence_shard = {}, const weight_blocks* blocks = nullptr)
      : parameters_(&parameters), adapter_(&adapter), shard_(shard), experts_(experts), sequence_shard_(sequence_shard), blocks_(blocks) {
    require<config_error>(blocks == nullptr || blocks->empty() || stores_blocks<typename Recipe::adapter>,
                          "blocks: only frozen weights can be stored in blocks of a GGUF file; the adapter must be lora, it is ", Recipe::adapter::name);
  }

  [[nodiscard]] store& parameters() { return *parameters_; }
  [[nodiscard]] const adapter_config& adapter() const { return *adapter_; }
  [[nodiscard]] const tensor_shard& shard() const { return shard_; }
  /// Expert-parallel shard.
  [[nodiscard]] const tensor_shard& experts() const { return experts_; }
  [[nodiscard]] const context_shard& sequence_shard() const { return sequence_shard_; }
  /// throws config_error under tensor parallelism
  void require_whole_layers(std::string_view who) const {
    require<config_error>(!shard_.is_sharded(), "tensor: ", who, " cannot be sharded among tensor-parallel ranks; given ", shard_.ranks, " ranks");
  }
  /// throws config_error under context parallelism
  void require_whole_sequences(std::string_view who) const {
    require<config_error>(!sequence_shard_.is_sharded(), "context: ", who,
                          " needs whole sequences, which context-parallel ranks shard; given ", sequence_shard_.ranks, " ranks");
  }
  /// A module of a column parallel layer: an equal part of its outputs.
  ///   throws  config_error when they are not divisible
  [[nodiscard]] module_part column_part(const std::string& name, std::size_t outputs) const {
    if (!shard_.is_sharded()) return {name, outputs};
    const row_range mine = shard_.of(outputs, "outputs");
    return {name, mine.count, {}, outputs, {mine}};
  }
  /// Inputs of a row parallel layer: this rank's outputs of column_part.
  ///   throws  config_error when they are not divisible
  [[nodiscard]] input_part row_part(std::size_t inputs) const { return {shard_.of(inputs, "inputs"), inputs}; }
  /// A module with one output per token of the vocabulary, sharded.
  [[nodiscard]] module_part vocabulary_part(const std::string& name, std::size_t vocabulary) const {
    if (!shard_.is_sharded()) return {name, vocabulary};
    const row_range mine = shard_.up_to(vocabulary);
    require<config_error>((vocabulary - 1) / ((vocabulary + shard_.ranks - 1) / shard_.ranks) + 1 == shard_.ranks, "tensor: every one of the ", shard_.ranks,
                          " tensor-parallel ranks must have a part of '", name, "'; given a vocabulary of ", vocabulary);
    return {name, mine.count, {}, vocabulary, {mine}};
  }

  /// One matrix [outputs of all parts, inputs]; files have "<name>.weight" per part.
  parameter matrix(const std::vector<module_part>& parts, const input_part& inputs, initial_values initial, bool transposed_in_files = false,
                   matrix_use use = matrix_use::table, region where = region::sequence_parallel) {
    std::vector<parameter_spec> specs;
    const bool in_blocks = use == matrix_use::linear_weight && stored_in_blocks(parts, inputs.count);
    for (const module_part& part : parts) {
      specs.push_back({.name = part.name + ".weight",
                       .shape = {part.outputs, inputs.count},
                       .initial = initial,
                       .trainable = trains(part.name),
                       .transposed_in_files = transposed_in_files,
                       .rows_in_files = part.order,
                       .quantized = in_blocks || (quantizes_weights_of(*adapter_) && use == matrix_use::linear_weight && !trains(part.name)),
                       .integer_bits = 0});
      if (in_blocks) specs.back().blocks = blocks_->of(specs.back().name, inputs.count);
      else if (specs.back().quantized) specs.back().integer_bits = integer_bits_of<typename Recipe::adapter>(*adapter_);
      if (specs.back().quantized) require_whole_layers(in_blocks ? "weights in blocks" : specs.back().integer_bits > 0 ? "weights in few bits" : "qlora");
      detail::cut(specs.back(), part, inputs);
      mark(specs.back(), where);
    }
    return parameters_->declare(std::move(specs));
  }
  /// One vector over all parts; files have "<name>.<kind>" per part.
  parameter vector(const std::vector<module_part>& parts, const std::string& kind, double value, region where = region::sequence_parallel) {
    std::vector<parameter_spec> specs;
    for (const module_part& part : parts) {
      specs.push_back({.name = concat(part.name, ".", kind),
                       .shape = {part.outputs},
                       .initial = initial_values::constant(value),
                       .trainable = trains(part.name) || (kind == "bias" && trains_bias(part.name)),
                       .rows_in_files = part.order});
      detail::cut(specs.back(), part, part.outputs);
      mark(specs.back(), where);
    }
    return parameters_->declare(std::move(specs));
  }
  [[nodiscard]] bool trains(const std::string& module) const { return adapter_->trains(module); }

 private:
  /// Each part is in blocks and frozen.
  [[nodiscard]] bool stored_in_blocks(const std::vector<module_part>& parts, std::size_t columns) const {
    if (blocks_ == nullptr || blocks_->empty()) return false;
    return std::all_of(parts.begin(), parts.end(),
                       [&](const module_part& part) { return blocks_->of(part.name + ".weight", columns) && !trains(part.name); });
  }
  /// With config.weight_bits, only if it is positive.
  [[nodiscard]] static bool quantizes_weights_of(const adapter_config& config) {
    if constexpr (has_hook<typename Recipe::adapter, hook::weight_bits>) return config.weight_bits > 0;
    else return quantizes_weights<typename Recipe::adapter>;
  }
  /// A sharded parameter's gradient is complete: its rank has all tokens.
  void mark(parameter_spec& spec, region where) const {
    if (spec.cut.exists() || !shard_.is_sharded()) return;
    if (where == region::sharded_layer || (where == region::sequence_parallel && shard_.has_sequence_parallel)) spec.gradients_are_parts = true;
  }
  /// An adapter may train biases alone.
  [[nodiscard]] bool trains_bias(const std::string& module) const {
    if constexpr (has_hook<typename Recipe::adapter, hook::trains_bias>) {
      const auto* weight = parameters_->find(module + ".weight");
      return adapter_->trains_bias(module, weight != nullptr && weight->spec.shape.size() == 2);
    }
    return false;
  }

  store* parameters_;
  const adapter_config* adapter_;
  tensor_shard shard_, experts_;
  context_shard sequence_shard_;
  const weight_blocks* blocks_;
};

}  // namespace xtrain
