#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/quantized_weights.hpp>
#include <xtrain/io/rewrite_impl.hpp>

namespace xtrain {

namespace detail {

/// With a block index, as "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] inline bool is_in_block(std::string_view name) {
  for (std::size_t dot = 0; dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    const std::string_view part = name.substr(dot == 0 ? 0 : dot + 1);
    const std::size_t digits = part.find_first_not_of("0123456789");
    if (digits != 0 && digits != std::string_view::npos && part[digits] == '.') return true;
  }
  return false;
}

/// use(index of the first element, stride) per group.
template <class Use>
void for_each_weight_group(const file_tensor& tensor, bool transposed, std::size_t group, Use&& use) {
  const std::size_t inputs = tensor.shape[transposed ? 0 : 1], outputs = tensor.shape[transposed ? 1 : 0];
  for (std::size_t out = 0; out < outputs; ++out)
    for (std::size_t in = 0; in < inputs; in += group) use(transposed ? in * outputs + out : out * inputs + in, transposed ? outputs : std::size_t{1});
}

template <class T>
[[nodiscard]] std::vector<T> all_numbers(const file_tensor& tensor) {
  std::vector<T> values(tensor.size());
  read_numbers<T>(tensor, 0, values);
  for (std::size_t i = 0; i < values.size(); ++i)  // an integer cannot represent NaN
    require<data_error>(std::isfinite(static_cast<accumulate_t<T>>(values[i])), "quantized weights: weights must be finite; '", tensor.name, "' has ",
                        static_cast<double>(static_cast<accumulate_t<T>>(values[i])), " at ", i);
  return values;
}

template <class T>
void quantize_in_place(std::vector<T>& values, const file_tensor& tensor, bool transposed, const weight_quantization& quantization) {
  std::vector<T> x(quantization.group_size);
  for_each_weight_group(tensor, transposed, quantization.group_size, [&](std::size_t first, std::size_t step) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = values[first + i * step];
    quantization.format.of_values(x.data(), x.size(), [&](const auto& group) {
      for (std::size_t i = 0; i < x.size(); ++i) values[first + i * step] = static_cast<T>(group.rounded(static_cast<accumulate_t<T>>(x[i])));
    });
  });
}

}  // namespace detail

XTRAIN_INLINE std::vector<std::string> quantized_weights(const tensor_source& weights, bool transposed, const weight_quantization& quantization) {
  require<config_error>(quantization.group_size > 1, "quantized weights: a group must have at least 2 inputs; given ", quantization.group_size);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (tensor->shape.size() != 2 || !name.ends_with(".weight") || !is_floating(tensor->dtype) || !detail::is_in_block(name)) continue;
    require<config_error>(name.find(".experts.") == std::string::npos, "quantized weights: the model must not be a mixture of experts; it has '", name, "'");
    const std::size_t inputs = tensor->shape[transposed ? 0 : 1];
    require<config_error>(inputs % quantization.group_size == 0, "quantized weights: groups must divide the inputs of every linear layer; '", name,
                          "' has ", inputs, ", a group ", quantization.group_size);
    names.push_back(name);
  }
  return names;
}

XTRAIN_INLINE tensor_to_write with_quantized_values(const file_tensor& tensor, bool transposed, const weight_quantization& quantization,
                                                   std::string_view dtype) {
  tensor_to_write result{.name = tensor.name, .dtype = std::string(dtype), .shape = tensor.shape, .bytes = tensor.size() * bits_of(dtype) / 8};
  detail::with_number(dtype, [&]<class T>(T) {
    result.produce = [&tensor, transposed, quantization](const auto& sink) {
      std::vector<T> values = detail::all_numbers<T>(tensor);
      detail::quantize_in_place(values, tensor, transposed, quantization);
      sink(values.data(), values.size() * sizeof(T));
    };
  });
  return result;
}

XTRAIN_INLINE std::vector<tensor_to_write> packed_in_four_bits(const file_tensor& tensor, const weight_quantization& quantization) {
  require<config_error>(quantization.format == fake_quantization{.bits = 4}, "quantized weights: packed weights must be in int4 without zero points");
  const std::size_t outputs = tensor.shape[0], inputs = tensor.shape[1], groups = inputs / quantization.group_size;
  require<config_error>(inputs % 8 == 0, "quantized weights: inputs of packed weights must be a multiple of 8; '", tensor.name, "' has ", inputs);
  const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size());
  // use(first element, numbers) per group
  const auto for_each_group = [&tensor, quantization](std::vector<float>& values, const auto& use) {
    detail::for_each_weight_group(tensor, false, quantization.group_size, [&](std::size_t first, std::size_t) {
      const auto [smallest, largest] = std::minmax_element(&values[first], &values[first] + quantization.group_size);
      use(first, quantization.format.of(*smallest, *largest));
    });
  };
  tensor_to_write packed{.name = module + ".weight_packed", .dtype = "I32", .shape = {outputs, inputs / 8}, .bytes = tensor.size() / 2};
  packed.produce = [&tensor, for_each_group, quantization](const auto& sink) {
    std::vector<float> values = detail::all_numbers<float>(tensor);
    std::vector<std::uint32_t> words(values.size() / 8, 0);
    for_each_group(values, [&](std::size_t first, const auto& group) {
      for (std::size_t i = first; i < first + quantization.group_size; ++i) {
        const auto code = static_cast<std::uint32_t>(std::clamp(group.code(values[i]), group.lowest, group.highest) - group.lowest);
        words[i / 8] |= code << (i % 8 * 4);
      }
    });
    sink(words.data(), words.size() * sizeof(std::uint32_t));
  };
  tensor_to_write scales{.name = module + ".weight_scale", .dtype = "F32", .shape = {outputs, groups}, .bytes = outputs * groups * sizeof(float)};
  scales.produce = [&tensor, for_each_group](const auto& sink) {
    std::vector<float> values = detail::all_numbers<float>(tensor), all;
    for_each_group(values, [&](std::size_t, const auto& group) { all.push_back(group.scale); });
    sink(all.data(), all.size() * sizeof(float));
  };
  tensor_to_write shape{.name = module + ".weight_shape", .dtype = "I64", .shape = {2}, .bytes = 2 * sizeof(std::int64_t)};
  shape.produce = [outputs, inputs](const auto& sink) {
    const std::int64_t sizes[] = {static_cast<std::int64_t>(outputs), static_cast<std::int64_t>(inputs)};
    sink(sizes, sizeof(sizes));
  };
  return {packed, scales, shape};
}

XTRAIN_INLINE json packed_settings(const weight_quantization& quantization, const std::string& head) {
  json settings = detail::literal_json(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": [], "config_groups": {"group_0": )"
      R"({"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "dynamic": false}}}})");
  settings["config_groups"]["group_0"]["weights"]["group_size"] = quantization.group_size;
  settings["ignore"].push_back(head);
  return settings;
}

XTRAIN_INLINE void measure_quantization(const file_tensor& tensor, bool transposed, const weight_quantization& quantization, std::string_view dtype,
                                        quantization_error& error) {
  detail::with_number(dtype, [&]<class T>(T) {
    std::vector<T> values = detail::all_numbers<T>(tensor);
    const std::vector<T> before = values;
    detail::quantize_in_place(values, tensor, transposed, quantization);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto x = static_cast<double>(static_cast<accumulate_t<T>>(before[i])), y = static_cast<double>(static_cast<accumulate_t<T>>(values[i]));
      error.squares += (y - x) * (y - x);
      error.of_squares += x * x;
    }
  });
}

}  // namespace xtrain
