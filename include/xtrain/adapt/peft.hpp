// Adapters in PEFT's folder format: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

namespace detail {

inline constexpr std::string_view peft_prefix = "base_model.model.";

/// What is in an adapter_config.json that changes the mathematics, checked.
///   throws  config_error when the folder holds something that is not plain LoRA
[[nodiscard]] inline lora::config read_adapter_config(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with an adapter; there is none of that name");
  const std::string path = folder + "/adapter_config.json";
  const json_settings s(read_json(path), path);
  const std::string type = s.text_or("", {"peft_type"});
  require<config_error>(type == "LORA", path, ": peft_type must be LORA; given '", type, "'");
  for (const char* feature : {"use_dora", "use_rslora", "lora_bias"})
    require<config_error>(!s.flag_or(false, {feature}), path, ": '", feature, "' must be off; it is on");
  require<config_error>(s.text_or("none", {"bias"}) == "none", path, ": bias must be 'none'; given '", s.text_or("none", {"bias"}), "'");
  for (const char* pattern : {"rank_pattern", "alpha_pattern", "layers_to_transform"})
    require<config_error>(!s.has({pattern}) || s.object()[pattern].empty(), path, ": '", pattern,
                          "' must be empty: every module has the same rank and scale");
  lora::config config;
  config.rank = s.size({"r"});
  config.alpha = s.number_or(8.0, {"lora_alpha"});
  config.dropout = s.number_or(0.0, {"lora_dropout"});
  const auto names = [&](const char* key, std::vector<std::string>& to) {
    if (!s.has({key})) return;
    const json& value = s.object()[key];
    require<config_error>(value.is_array(), path, ": '", key, "' must be a list of module names; given ", value.dump());
    for (const json& one : value) {
      require<config_error>(one.is_string(), path, ": '", key, "' must be a list of module names; given ", value.dump());
      to.push_back(one.get<std::string>());
    }
  };
  names("target_modules", config.targets);
  names("modules_to_save", config.modules_to_save);
  require<config_error>(!config.targets.empty(), path, ": 'target_modules' must name modules; there are none");
  return config;
}

}  // namespace detail

/// The settings of a saved adapter: make a model with them before load_adapter.
[[nodiscard]] inline lora::config adapter_config_of(const std::string& folder) { return detail::read_adapter_config(folder); }

/// How an adapter is written.
struct save_adapter_options {
  std::string base_model{};      ///< name or path of the model the adapter belongs to
  std::string tokenizer_from{};  ///< folder or file whose tokenizer files are copied along
};

/// Writes the adapter, and the base modules that are trained with it.
///   throws  file_error; what the folder held before stays whole until the new adapter is
template <class Model>
requires std::is_same_v<typename Model::recipe::adapter, lora>
void save_pretrained(const Model& model, const std::string& folder, const save_adapter_options& options = {}) {
  make_folder(folder);
  const lora::config& c = model.settings().adapter;
  const json nothing = nullptr;
  const json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", options.base_model},
                       {"revision", nothing},
                       {"inference_mode", true},
                       {"r", c.rank},
                       {"lora_alpha", c.alpha},
                       {"lora_dropout", c.dropout},
                       {"target_modules", c.targets},
                       {"modules_to_save", c.modules_to_save.empty() ? nothing : json(c.modules_to_save)},
                       {"fan_in_fan_out", Model::family::transposed_in_files},
                       {"bias", "none"},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"init_lora_weights", true},
                       {"layers_to_transform", nothing},
                       {"layers_pattern", nothing},
                       {"rank_pattern", json::object()},
                       {"alpha_pattern", json::object()}};
  std::vector<tensor_to_write> tensors;
  for (const auto& entry : model.parameters().entries())
    if (entry.spec.trainable) tensors.push_back(detail::parameter_to_write(model, entry, concat(detail::peft_prefix, entry.spec.name)));
  copy_tokenizer(options.tokenizer_from, folder);
  write_file(folder + "/adapter_config.json", config.dump(2) + "\n");
  write_safetensors(folder + "/adapter_model.safetensors", std::move(tensors));
}

/// Reads an adapter into a model that was made with its settings (adapter_config_of).
///   throws  file_error, config_error when the adapter is another model's: then the model is as it was
template <class Model>
requires std::is_same_v<typename Model::recipe::adapter, lora>
void load_adapter(Model& model, const std::string& folder) {
  const lora::config saved = detail::read_adapter_config(folder);
  require<config_error>(saved.rank == model.settings().adapter.rank, folder, ": rank must be the model's ", model.settings().adapter.rank,
                        "; the adapter has ", saved.rank);
  require<config_error>(saved.alpha == model.settings().adapter.alpha, folder, ": alpha must be the model's ",
                        model.settings().adapter.alpha, "; the adapter has ", saved.alpha);
  const safetensors_file file(folder + "/adapter_model.safetensors");
  const auto for_each_tensor = [&](auto&& use) {
    std::size_t used = 0;
    for (const auto& entry : model.parameters().entries()) {
      if (!entry.spec.trainable) continue;
      const file_tensor* tensor = file.find(concat(detail::peft_prefix, entry.spec.name));
      require<config_error>(tensor != nullptr, folder, ": must hold '", detail::peft_prefix, entry.spec.name, "'; it is missing");
      use(entry, *tensor);
      ++used;
    }
    return used;
  };
  const std::size_t used =
      for_each_tensor([&](const auto& entry, const file_tensor& tensor) { detail::require_place(entry, tensor, folder); });
  require<config_error>(used == file.tensors().size(), folder, ": holds ", file.tensors().size(), " tensors; the model has a place for ",
                        used);
  for_each_tensor([&](const auto& entry, const file_tensor& tensor) { detail::load_parameter(model, entry, tensor, folder); });
}

namespace detail {

/// weight += scale · B · A, in the accumulate type, rounded once.
template <class Model, class Entry>
void add_low_rank(Model& model, const Entry& entry, const file_tensor& a, const file_tensor& b, double scale) {
  using number = typename Model::compute;
  using sum = accumulate_t<number>;
  const std::size_t out = entry.spec.shape[0], in = entry.spec.shape[1], r = a.shape[0];
  std::vector<sum> a_ri(r * in), b_or(out * r);
  read_numbers<sum>(a, 0, a_ri);
  read_numbers<sum>(b, 0, b_or);
  std::vector<number> weight(entry.size());
  const auto on_device = model.parameters().value(entry);
  copy_to_host(model.work(), std::span<number>(weight), on_device);
  model.work().synchronize();
  for (std::size_t o = 0; o < out; ++o) {
    for (std::size_t i = 0; i < in; ++i) {
      sum update{0};
      for (std::size_t k = 0; k < r; ++k) update += b_or[o * r + k] * a_ri[k * in + i];
      weight[o * in + i] = static_cast<number>(static_cast<sum>(weight[o * in + i]) + static_cast<sum>(scale) * update);
    }
  }
  copy_to_device(model.work(), on_device, weight);
  model.work().synchronize();
}

}  // namespace detail

/// Adds a saved adapter to the weights of a plain model: what generating and exporting want.
///   throws  file_error, config_error when the adapter is another model's: then the model is as it was
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) void merge_adapter(Model& model, const std::string& folder) {
  const lora::config saved = detail::read_adapter_config(folder);
  const safetensors_file file(folder + "/adapter_model.safetensors");
  struct change {
    const typename Model::store::entry* to;
    const file_tensor* whole;  // takes the parameter's place; null: stays
    const file_tensor *a, *b;  // is added to it; null: nothing is
  };
  std::vector<change> changes;
  std::size_t used = 0;
  for (const auto& entry : model.parameters().entries()) {
    const std::string module = entry.spec.name.substr(0, entry.spec.name.rfind('.'));
    const bool is_matrix = entry.spec.shape.size() == 2 && entry.spec.name.ends_with(".weight");
    const auto find = [&](const auto&... name) { return file.find(concat(detail::peft_prefix, name...)); };
    const change found{.to = &entry,
                       .whole = find(entry.spec.name),
                       .a = is_matrix ? find(module, lora::a_suffix) : nullptr,
                       .b = is_matrix ? find(module, lora::b_suffix) : nullptr};
    if (found.whole != nullptr) detail::require_place(entry, *found.whole, folder);
    if (found.a != nullptr) {
      const std::size_t out = entry.spec.shape[0], in = entry.spec.shape[1], r = saved.rank;
      require<config_error>(
          found.b != nullptr && found.a->shape == std::vector<std::size_t>{r, in} && found.b->shape == std::vector<std::size_t>{out, r},
          folder, ": the adapter of '", module, "' must have shapes [", r, ", ", in, "] and [", out, ", ", r, "]");
    }
    used += (found.whole != nullptr ? 1U : 0U) + (found.a != nullptr ? 2U : 0U);
    changes.push_back(found);
  }
  require<config_error>(used == file.tensors().size(), folder, ": holds ", file.tensors().size(), " tensors; the model has a place for ",
                        used, ". Does the adapter belong to this model?");
  for (const change& c : changes) {
    if (c.whole != nullptr) detail::load_parameter(model, *c.to, *c.whole, folder);
    if (c.a != nullptr) detail::add_low_rank(model, *c.to, *c.a, *c.b, saved.scale());
  }
}

}  // namespace xtrain
