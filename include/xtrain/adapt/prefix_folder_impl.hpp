// Definitions of prefix_folder.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/prefix_folder.hpp>
#include <xtrain/adapt/prefix_tuning.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE bool is_peft_folder(const std::string& folder) { return file_exists(folder + "/adapter_config.json"); }

XTRAIN_INLINE prefix_config prefix_config_of(const json_settings& s) {
  const std::string type = s.text_or("", {"peft_type"});
  require<config_error>(type == "PREFIX_TUNING", s.who(), ": peft_type must be PREFIX_TUNING; given '", type, "'");
  const std::size_t submodules = s.size_or(1, {"num_transformer_submodules"});
  require<config_error>(submodules == 1, s.who(), ": num_transformer_submodules must be 1: a decoder alone; given ", submodules);
  const prefix_config c{.length = s.size({"num_virtual_tokens"})};
  require<config_error>(c.length <= prefix_tuning::max_num_tokens, s.who(), ": num_virtual_tokens must be at most ",
                        prefix_tuning::max_num_tokens, "; given ", c.length);
  return c;
}

XTRAIN_INLINE prefix_tensors::prefix_tensors(const std::string& folder)
    : folder_(folder), source_(folder, is_peft_folder(folder) ? "adapter_model" : "model"),
      main_(&get(is_peft_folder(folder) ? prefix_names::peft : prefix_names::chatglm)) {
  require<config_error>(main_->shape.size() == 2 && main_->shape[0] > 0 && main_->shape[0] <= prefix_tuning::max_num_tokens, folder, ": '",
                        main_->name, "' must have a row for each of 1 to ", prefix_tuning::max_num_tokens, " virtual tokens");
}

XTRAIN_INLINE std::size_t prefix_tensors::length() const { return main_->shape[0]; }

XTRAIN_INLINE std::size_t prefix_tensors::projection() const {
  const file_tensor* inner = source_.find(prefix_tuning::inner("weight"));
  return inner == nullptr || inner->shape.empty() ? 0 : inner->shape[0];
}

XTRAIN_INLINE const file_tensor& prefix_tensors::of_network(const std::string& parameter) const { return get(parameter); }

XTRAIN_INLINE const file_tensor& prefix_tensors::get(std::string_view name) const {
  const file_tensor* found = source_.find(name);
  require<config_error>(found != nullptr, folder_, ": must hold '", name, "'; it is missing");
  return *found;
}

XTRAIN_INLINE void prefix_tensors::require_columns(const file_tensor& tensor, std::size_t given, std::size_t expected) const {
  require<config_error>(given == expected, folder_, ": '", tensor.name, "' must hold keys and values of all the model's layers, ", expected,
                        " elements; it has ", given, ". Does the prefix belong to this model?");
}

XTRAIN_INLINE std::vector<double> prefix_tensors::linear(const std::vector<double>& x, std::string_view module) const {
  const file_tensor &weight = get(concat(module, ".weight")), &bias = get(concat(module, ".bias"));
  const std::size_t rows = length(), in = x.size() / rows;
  require<config_error>(weight.shape.size() == 2 && weight.shape[1] == in && bias.shape == std::vector<std::size_t>{weight.shape[0]},
                        folder_, ": '", weight.name, "' must have ", in, " columns and a bias for each row");
  const std::size_t out = weight.shape[0];
  std::vector<double> w_oi(weight.size()), b_o(out), y(rows * out);
  read_numbers<double>(weight, 0, w_oi);
  read_numbers<double>(bias, 0, b_o);
  const auto pool = thread_pool::shared();
  const auto one_row = [&](std::size_t r, std::size_t) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = b_o[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w_oi[o * in + i];
      y[r * out + o] = sum;
    }
  };
  pool->run(rows, pool->threads(), one_row);
  return y;
}

}  // namespace detail

XTRAIN_INLINE prefix_config prefix_config_of(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with a prefix; no such folder");
  if (!detail::is_peft_folder(folder)) {
    const detail::prefix_tensors tensors(folder);
    return {.length = tensors.length(), .projection = tensors.projection(), .counts_in_positions = false};
  }
  const std::string path = folder + "/adapter_config.json";
  prefix_config c = detail::prefix_config_of(json_settings(read_json(path), path));
  if (file_exists(folder + "/adapter_model.safetensors")) c.projection = detail::prefix_tensors(folder).projection();
  return c;
}

}  // namespace xtrain
