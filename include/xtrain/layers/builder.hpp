// How layers come by their parameters: they declare them here, once, when a model is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/place_share.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Which part of every layer this rank has, where ranks divide layers among them.       [Shoeybi et al. 2019, "Megatron-LM"]
struct layer_share {
  std::size_t rank = 0, ranks = 1;
  /// Between layers too, where every rank would have the same: each has 1/ranks of the places, and norms, residuals and dropout are of
  /// these alone.                                                       [Korthikanti et al. 2022, "sequence parallelism"]
  bool between_layers = false;

  [[nodiscard]] bool divides() const { return ranks > 1; }
  /// An equal part of n things.
  ///   throws  config_error when n is not divisible
  [[nodiscard]] row_range of(std::size_t n, std::string_view things) const {
    require<config_error>(n % ranks == 0, "tensor: ", ranks, " ranks must divide a layer equally; ", n, " ", things, " are not divisible by ", ranks);
    return {rank * (n / ranks), n / ranks};
  }
  /// A part of n things that may be shorter for the last ranks.
  [[nodiscard]] row_range up_to(std::size_t n) const {
    const std::size_t most = (n + ranks - 1) / ranks, begin = std::min(n, rank * most);
    return {begin, std::min(most, n - begin)};
  }
};

/// The recipe's strategy may divide layers: its state says how.
template <class Recipe>
inline constexpr bool divides_layers =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.layers(); };

/// The recipe's strategy may spread experts over neighbouring ranks: its state says how.
template <class Recipe>
inline constexpr bool spreads_experts =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.expert_share(); };

/// One module of a matrix that several modules share: "model.layers.0.self_attn.q_proj" makes the first 64 outputs.
struct module_part {
  std::string name{};
  std::size_t outputs = 0;  // of this rank
  file_order order{};
  // where ranks divide the outputs
  std::size_t whole_outputs = 0;   // of all ranks; 0: this rank has them all
  std::vector<row_range> rows{};   // which of them are this rank's
  std::size_t copies = 1;          // neighbouring ranks that have the same ones
};

/// The inputs of a matrix: all, or where ranks divide them, this rank's.
struct input_part {
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t whole = 0;  // 0: these are all

  input_part(std::size_t all) : count(all) {}
  input_part(row_range mine, std::size_t all) : count(mine.count), first(mine.begin), whole(mine.count == all ? 0 : all) {}
};

namespace detail {

/// Says of a parameter which part of a whole one it is.
inline void cut(parameter_spec& spec, const module_part& part, const input_part& inputs) {
  if (part.whole_outputs == 0 && inputs.whole == 0) return;
  spec.cut.whole = spec.shape;
  if (part.whole_outputs != 0) {
    spec.cut.whole[0] = part.whole_outputs;
    spec.cut.rows = part.rows;
  }
  if (inputs.whole != 0 && spec.shape.size() > 1) {
    spec.cut.whole[1] = inputs.whole;
    spec.cut.first_column = inputs.first;
  }
  spec.copies = part.copies;
  spec.gradients_are_parts = part.copies > 1;
}

}  // namespace detail

/// What a matrix is for: the weight of a linear layer may be quantised.
enum class matrix_use : std::uint8_t { linear_weight, table };

/// Where a parameter that every rank has is used. Between layers each rank may have some places only (sequence parallelism), and then makes
/// a part of the gradient: all of them are added up. In a layer that ranks divide, each has all places, and makes the whole gradient.
enum class stands : std::uint8_t { in_layer, between_layers };

/// Declares parameters in a store. The adapter says which modules are trained.
template <class Recipe>
class builder {
 public:
  using recipe = Recipe;
  using store = parameter_store<typename Recipe::device, typename Recipe::precision>;
  using adapter_config = typename Recipe::adapter::config;

  builder(store& parameters, const adapter_config& adapter, const layer_share& share = {}, const layer_share& experts = {},
          const place_share& places = {})
      : parameters_(&parameters), adapter_(&adapter), share_(share), experts_(experts), places_(places) {}

  [[nodiscard]] store& parameters() { return *parameters_; }
  [[nodiscard]] const adapter_config& adapter() const { return *adapter_; }
  [[nodiscard]] const layer_share& share() const { return share_; }
  /// Which part of every layer's experts this rank holds.
  [[nodiscard]] const layer_share& experts() const { return experts_; }
  [[nodiscard]] const place_share& places() const { return places_; }
  /// throws config_error where ranks divide layers: `who` cannot
  void require_whole_layers(std::string_view who) const {
    require<config_error>(!share_.divides(), "tensor: ", who, " cannot be divided among ranks; given ", share_.ranks, " ranks");
  }
  /// throws config_error where ranks share rows: `who` needs whole ones
  void require_whole_rows(std::string_view who) const {
    require<config_error>(!places_.divides(), "context: ", who, " needs whole rows, which ranks share; given ", places_.ranks, " ranks");
  }
  /// A module of a column parallel layer: of its outputs this rank has an equal part.
  ///   throws  config_error when they are not divisible
  [[nodiscard]] module_part column_part(const std::string& name, std::size_t outputs) const {
    if (!share_.divides()) return {name, outputs};
    const row_range mine = share_.of(outputs, "outputs");
    return {name, mine.count, {}, outputs, {mine}};
  }
  /// The inputs of a row parallel layer: those that column_part gives this rank.
  ///   throws  config_error when they are not divisible
  [[nodiscard]] input_part row_part(std::size_t inputs) const { return {share_.of(inputs, "inputs"), inputs}; }
  /// A module with an output per token, of which this rank has its part.
  [[nodiscard]] module_part vocabulary_part(const std::string& name, std::size_t vocabulary) const {
    if (!share_.divides()) return {name, vocabulary};
    const row_range mine = share_.up_to(vocabulary);
    return {name, mine.count, {}, vocabulary, {mine}};
  }

  /// One matrix [outputs of all parts, inputs], stored as a parameter "<name>.weight" per part.
  parameter matrix(const std::vector<module_part>& parts, const input_part& inputs, initial_values initial, bool transposed_in_files = false,
                   matrix_use use = matrix_use::table, stands where = stands::between_layers) {
    std::vector<parameter_spec> specs;
    for (const module_part& part : parts) {
      specs.push_back({.name = part.name + ".weight",
                       .shape = {part.outputs, inputs.count},
                       .initial = initial,
                       .trainable = trains(part.name),
                       .transposed_in_files = transposed_in_files,
                       .rows_in_files = part.order,
                       .quantised = quantises_weights<typename Recipe::adapter> && use == matrix_use::linear_weight && !trains(part.name)});
      if (specs.back().quantised) require_whole_layers("qlora");
      detail::cut(specs.back(), part, inputs);
      mark(specs.back(), where);
    }
    return parameters_->declare(std::move(specs));
  }
  /// One vector over all parts, stored as "<name>.<kind>" per part.
  parameter vector(const std::vector<module_part>& parts, const std::string& kind, double value, stands where = stands::between_layers) {
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
  /// Who has a part of a parameter makes the gradient of that part, of all places.
  void mark(parameter_spec& spec, stands where) const {
    if (!spec.cut.exists() && where == stands::between_layers && share_.between_layers && share_.divides()) spec.gradients_are_parts = true;
  }
  /// An adapter may train biases of modules that it does not train otherwise. (Of a linear module, the weight is declared first.)
  [[nodiscard]] bool trains_bias(const std::string& module) const {
    if constexpr (requires { adapter_->trains_bias(module, true); }) {
      const auto* weight = parameters_->find(module + ".weight");
      return adapter_->trains_bias(module, weight != nullptr && weight->spec.shape.size() == 2);
    }
    return false;
  }

  store* parameters_;
  const adapter_config* adapter_;
  layer_share share_, experts_;
  place_share places_;
};

}  // namespace xtrain
