// Definitions of peft.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/merge.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE adapter_tensors::adapter_tensors(const std::string& folder) : folder_(folder), file_(path_in(folder)) {
  require_numbers(file_, folder);
  // PEFT writes a trained copy of a resized embedding in modules_to_save under two names, and the untrained original
  constexpr std::string_view copy = ".modules_to_save.", unused = ".original_module.";
  for (const auto& [name, tensor] : file_.tensors()) {
    if (name.find(unused) != std::string::npos) used_.insert(tensor);
    const std::size_t at = name.find(copy);
    if (at == std::string::npos) continue;
    const std::string plain = concat(name.substr(0, at), ".", name.substr(at + copy.size()));
    const file_tensor* twin = file_.find(plain);
    require<config_error>(twin == nullptr || same_values(*twin, *tensor), folder, ": '", name, "' and '", plain, "' must be the same; they differ");
    if (twin != nullptr) used_.insert(tensor);
  }
}

XTRAIN_INLINE const file_tensor* adapter_tensors::find(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const file_tensor* found = file_.find(concat(peft_prefix, name));
    if (const std::size_t dot = name.rfind('.'); found == nullptr && dot != std::string::npos)  // a module in modules_to_save, as written by older releases
      found = file_.find(concat(peft_prefix, name.substr(0, dot), ".modules_to_save", name.substr(dot)));
    if (found == nullptr) continue;
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

/// Saved by PEFT before 0.19.
[[nodiscard]] inline bool is_before_0_19(const std::string& folder) {
  const json config = read_json(folder + "/adapter_config.json");
  const auto version = config.find("peft_version");
  if (version == config.end() || !version->is_string()) return false;
  const auto text = version->get<std::string>();
  std::size_t minor = 0;
  return text.starts_with("0.") && std::from_chars(text.data() + 2, text.data() + text.size(), minor).ec == std::errc{} && minor < 19;
}

XTRAIN_INLINE adapter_tensors::expert_pair adapter_tensors::find_experts(const std::string& layer, std::size_t in, std::size_t out) {
  const auto find_as = [&](bool swapped) -> expert_pair {
    for (const char* module : {"mlp.experts.base_layer", "mlp.experts", "block_sparse_moe.experts.base_layer", "block_sparse_moe.experts"}) {
      const file_tensor* a = file_.find(concat(peft_prefix, layer, module, lora_names::a));
      const file_tensor* b = file_.find(concat(peft_prefix, layer, module, lora_names::b));
      if (a == nullptr || b == nullptr || a->shape.size() != 2 || b->shape.size() != 2) continue;
      if (a->shape[1] == (swapped ? out : in) && b->shape[0] == (swapped ? in : out)) return {a, b, swapped};
    }
    return {};
  };
  const bool is_old = is_before_0_19(folder_);  // square matrices do not show it
  expert_pair found = find_as(is_old);
  if (found.a == nullptr) found = find_as(!is_old);
  if (found.a != nullptr) used_.insert({found.a, found.b});
  return found;
}

XTRAIN_INLINE void adapter_tensors::require_all_used(const tied_head& tied) const {
  if (used_.size() == file_.tensors().size()) return;
  std::string first;
  for (const auto& [name, tensor] : file_.tensors())
    if (first.empty() && !used_.contains(tensor)) first = name;
  const std::string_view plain = std::string_view(first).starts_with(peft_prefix) ? std::string_view(first).substr(peft_prefix.size()) : first;
  if (!tied.head.empty() && plain.starts_with(tied.head + "."))
    fail<config_error>(folder_, ": adapts '", tied.head, "' ('", first, "'), which must have a weight of its own; in this model it is tied to '",
                       tied.embedding, "' (tie_word_embeddings is true)");
  fail<config_error>(folder_, ": holds ", file_.tensors().size(), " tensors; the model uses ", used_.size(), ", and not '", first,
                     "'. Does the adapter belong to this model?");
}

XTRAIN_INLINE const std::string& adapter_tensors::folder() const { return folder_; }

XTRAIN_INLINE std::string adapter_tensors::path_in(const std::string& folder) {
  const std::string torch = folder + "/adapter_model.bin", path = folder + "/adapter_model.safetensors";
  return !file_exists(path) && file_exists(torch) ? torch : path;
}

XTRAIN_INLINE std::optional<expert_matrix> expert_matrix_of(const std::string& parameter) {
  constexpr std::string_view experts = "block_sparse_moe.experts.";
  const std::size_t at = parameter.find(experts);
  if (at == std::string::npos) return {};
  expert_matrix found{.layer = parameter.substr(0, at)};
  const std::string_view rest = std::string_view(parameter).substr(at + experts.size());
  const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), found.expert);
  const std::string_view matrix(end, static_cast<std::size_t>(rest.data() + rest.size() - end));
  if (problem != std::errc{} || (matrix != ".w1.weight" && matrix != ".w2.weight" && matrix != ".w3.weight")) return {};
  found.is_down = matrix == ".w2.weight";
  found.is_up = matrix == ".w3.weight";
  return found;
}

XTRAIN_INLINE void require_as_configured(const lora_config& saved, const parameter_spec& of, const std::string& target, bool adapter, bool whole,
                                         bool in_layers, bool biases, const std::string& folder) {
  const std::string module = module_of(of.name), kind = of.name.substr(module.size());
  const bool is_matrix = of.shape.size() == 2 && kind == ".weight";
  const bool names_targets = !saved.targets.empty() || !saved.target_pattern.empty() || !saved.target_parameters.empty();
  if (is_matrix && names_targets) {
    // all-linear names no modules: targets are modules with an adapter in some layer
    const bool expected = (saved.adapts(module) && (in_layers || saved.adapts_table(module))) || saved.adapts_parameter(target);
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
                        "' is missing); the model's head is tied to the embedding (tie_word_embeddings is true)");
  bool same = given->shape == embedding.shape;
  constexpr std::size_t at_once = std::size_t{1} << 20;
  std::vector<float> left(std::min(at_once, embedding.size())), right(left.size());
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
