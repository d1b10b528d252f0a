// Definitions of peft.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/merge.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE adapter_tensors::adapter_tensors(const std::string& folder) : folder_(folder), file_(path_in(folder)) {}

XTRAIN_INLINE const file_tensor* adapter_tensors::find(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (const file_tensor* found = file_.find(concat(peft_prefix, name))) {
      used_.insert(found);
      return found;
    }
  return nullptr;
}

XTRAIN_INLINE const file_tensor& adapter_tensors::get(const std::vector<std::string>& names) {
  const file_tensor* found = find(names);
  require<config_error>(found != nullptr, folder_, ": must hold '", peft_prefix, names.front(), "'; it is missing");
  return *found;
}

XTRAIN_INLINE void adapter_tensors::require_all_used() const {
  require<config_error>(used_.size() == file_.tensors().size(), folder_, ": holds ", file_.tensors().size(),
                        " tensors; the model uses ", used_.size(), ". Does the adapter belong to this model?");
}

XTRAIN_INLINE const std::string& adapter_tensors::folder() const { return folder_; }

XTRAIN_INLINE std::string adapter_tensors::path_in(const std::string& folder) {
  const std::string torch = folder + "/adapter_model.bin", path = folder + "/adapter_model.safetensors";
  return !file_exists(path) && file_exists(torch) ? torch : path;
}

XTRAIN_INLINE void require_as_configured(const lora_config& saved, const parameter_spec& of, bool adapter, bool whole, bool in_layers,
                                         bool biases, const std::string& folder) {
  const std::string module = module_of(of.name), kind = of.name.substr(module.size());
  const bool is_matrix = of.shape.size() == 2 && kind == ".weight", names_targets = !saved.targets.empty() || !saved.target_pattern.empty();
  if (is_matrix && names_targets) {
    // of all-linear, which names no modules, those are taken for targets that have an adapter in some layer
    const bool expected = saved.adapts(module) && (in_layers || saved.adapts_table(module));
    require<config_error>(adapter || !expected, folder, ": must hold the adapter of '", module, "', a target of its adapter_config.json; it is missing");
    require<config_error>(!adapter || expected, folder, ": the adapter of '", module, "' must be of a target of its adapter_config.json; it is of none");
  }
  const bool has_biases = biases || saved.bias == trained_biases::all;
  const bool trained = saved.trains(module) || (kind == ".bias" && has_biases && saved.trains_bias(module, adapter || saved.adapts(module)));
  require<config_error>(whole || !trained, folder, ": must hold '", peft_prefix, of.name, "', which its adapter_config.json says is trained; it is missing");
}

XTRAIN_INLINE void require_same_head(adapter_tensors& tensors, const std::string& head, const file_tensor& embedding) {
  const file_tensor* given = tensors.find({head});
  require<config_error>(given != nullptr, tensors.folder(), ": changes the embedding and leaves the head as it was ('", peft_prefix, head,
                        "' is missing); the model's head is tied to the embedding");
  bool same = given->shape == embedding.shape;
  std::vector<float> left(std::min(numbers_at_once, embedding.size())), right(left.size());
  for (std::size_t first = 0; same && first < embedding.size(); first += left.size()) {
    const std::size_t count = std::min(left.size(), embedding.size() - first);
    read_numbers<float>(*given, first, std::span(left).first(count));
    read_numbers<float>(embedding, first, std::span(right).first(count));
    same = std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count), right.begin());
  }
  require<config_error>(same, tensors.folder(), ": the head must be the embedding, as the model ties them; '", embedding.name, "' and '",
                        given->name, "' differ");
}

}  // namespace detail

namespace detail {

XTRAIN_INLINE model_card adapter_card(const std::string& base_model, const std::string& kind, const std::string& pipeline) {
  model_card card{.base_model = base_model, .library = "peft", .pipeline = pipeline, .tags = {kind, "transformers"}};
  card.description = base_model.empty() ? concat("An adapter (", kind, ").") : concat("An adapter (", kind, ") of ", base_model, ".");
  if (!base_model.empty()) card.tags.insert(card.tags.begin(), concat("base_model:adapter:", base_model));
  return card;
}

}  // namespace detail

}  // namespace xtrain
