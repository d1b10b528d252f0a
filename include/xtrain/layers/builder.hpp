// How layers come by their parameters: they declare them here, once, when a model is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// One module of a matrix that several modules share: "model.layers.0.self_attn.q_proj" makes the first 64 outputs.
struct module_part {
  std::string name{};
  std::size_t outputs = 0;
  file_order order{};
};

/// What a matrix is for: the weight of a linear layer may be quantised.
enum class matrix_use : std::uint8_t { linear_weight, table };

/// Declares parameters in a store. The adapter says which modules are trained.
template <class Recipe>
class builder {
 public:
  using store = parameter_store<typename Recipe::device, typename Recipe::precision>;
  using adapter_config = typename Recipe::adapter::config;

  builder(store& parameters, const adapter_config& adapter) : parameters_(&parameters), adapter_(&adapter) {}

  [[nodiscard]] store& parameters() { return *parameters_; }
  [[nodiscard]] const adapter_config& adapter() const { return *adapter_; }

  /// One matrix [outputs of all parts, inputs], stored as a parameter "<name>.weight" per part.
  parameter matrix(const std::vector<module_part>& parts, std::size_t inputs, initial_values initial, bool transposed_in_files = false,
                   matrix_use use = matrix_use::table) {
    std::vector<parameter_spec> specs;
    for (const module_part& part : parts)
      specs.push_back({.name = part.name + ".weight",
                       .shape = {part.outputs, inputs},
                       .initial = initial,
                       .trainable = trains(part.name),
                       .transposed_in_files = transposed_in_files,
                       .rows_in_files = part.order,
                       .quantised = quantises_weights<typename Recipe::adapter> && use == matrix_use::linear_weight && !trains(part.name)});
    return parameters_->declare(std::move(specs));
  }
  /// One vector over all parts, stored as "<name>.<kind>" per part.
  parameter vector(const std::vector<module_part>& parts, const std::string& kind, double value) {
    std::vector<parameter_spec> specs;
    for (const module_part& part : parts)
      specs.push_back({.name = concat(part.name, ".", kind),
                       .shape = {part.outputs},
                       .initial = initial_values::constant(value),
                       .trainable = trains(part.name) || (kind == "bias" && trains_bias(part.name)),
                       .rows_in_files = part.order});
    return parameters_->declare(std::move(specs));
  }
  [[nodiscard]] bool trains(const std::string& module) const { return adapter_->trains(module); }

 private:
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
};

}  // namespace xtrain
