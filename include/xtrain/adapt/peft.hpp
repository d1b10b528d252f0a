// Adapters in PEFT's folder format: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/merge.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/weight_file.hpp>
#include <xtrain/io/write_together.hpp>

namespace xtrain {

namespace detail {

/// Parts of fused modules, whose order does not matter.
[[nodiscard]] inline auto in_order(std::map<std::string, std::vector<std::string>> parts) {
  for (auto& part : parts) std::sort(part.second.begin(), part.second.end());
  return parts;
}

inline constexpr std::string_view peft_prefix = "base_model.model.";

/// The tensors of an adapter folder. Records which of them were used.
class adapter_tensors {
 public:
  explicit adapter_tensors(const std::string& folder);

  /// The first of these names that exists, given without PEFT's prefix; null when none does.
  [[nodiscard]] const file_tensor* find(const std::vector<std::string>& names);
  [[nodiscard]] const file_tensor& get(const std::vector<std::string>& names);
  /// throws config_error when some tensors were not used
  void require_all_used() const;
  [[nodiscard]] const std::string& folder() const;

 private:
  [[nodiscard]] static std::string path_in(const std::string& folder);

  std::string folder_;
  weight_file file_;
  std::set<const file_tensor*> used_;
};

/// The names of a parameter in an adapter folder; the first is the one written. PEFT wraps an adapted module and puts the base
/// module's own parameters under base_layer.
template <class Adapted>
[[nodiscard]] std::vector<std::string> peft_names(const std::string& parameter, Adapted&& is_adapted) {
  if (parameter.ends_with(lora_names::magnitude)) return {parameter, parameter + ".weight"};
  const std::string module = module_of(parameter);
  if (lora_names::module_beside(parameter).empty() && is_adapted(module))
    return {concat(module, ".base_layer", parameter.substr(module.size())), parameter};
  return {parameter};
}

/// The name of the head's tensor if this parameter is the embedding tied to it; empty otherwise.
template <class Model>
[[nodiscard]] std::string tied_head_tensor(const Model& model, const std::string& parameter) {
  const std::string head = has_score_head<Model> ? std::string() : model.family_info().head_name();
  if (!head.empty() && model.config().tie_word_embeddings && parameter == model.family_info().embedding_name() + ".weight") return head + ".weight";
  return {};
}

/// A trained embedding tied to the head is in the folder twice: by default PEFT would leave the head unchanged.
void require_same_head(adapter_tensors& tensors, const std::string& head, const file_tensor& embedding);

template <class Store>
[[nodiscard]] bool is_adapted(const Store& store, const std::string& module) {
  return store.find(concat(module, lora_names::a)) != nullptr || store.find(concat(module, lora_names::table_a)) != nullptr;
}

}  // namespace detail

namespace detail {

/// The card of an adapter, with PEFT's tags.
[[nodiscard]] model_card adapter_card(const std::string& base_model, const std::string& kind, const std::string& pipeline);

}  // namespace detail

/// Options for writing an adapter.
struct save_adapter_options {
  std::string base_model{};      ///< name or path of the base model
  std::string tokenizer_from{};  ///< folder or file from which tokenizer files are copied
  bool one_writer = false;       ///< with several ranks, only the first writes: see save_options
};

/// Writes the adapter, the trained parameters of the base model, and a model card (README.md) if there is none.
///   throws  config_error after merge_adapter(model): the adapter would not belong to the base model's weights; file_error: the folder's previous contents
///           stay intact until the new adapter is complete
template <class Model>
requires std::derived_from<typename Model::recipe::adapter, lora>
void save_pretrained(const Model& model, const std::string& folder, const save_adapter_options& options = {}) {
  const auto& store = model.parameters();
  require<config_error>(!store.has_merged_adapter(), folder, ": an adapter must be saved before it is merged: of this model only the adapter is saved, ",
                        "and what merge_adapter(model) added to its weights would be lost. Save the adapter, and merge its folder into a model without one: ",
                        "merge_adapter(plain, folder)");
  std::vector<tensor_to_write> tensors;
  bool tied = false;
  for (const auto& entry : store.entries()) {
    if (!entry.spec.trainable) continue;
    const std::string name =
        detail::peft_names(entry.spec.name, [&](const std::string& m) { return detail::is_adapted(store, m); }).front();
    tensors.push_back(detail::parameter_to_write(model, entry, concat(detail::peft_prefix, name)));
    const std::string head = detail::tied_head_tensor(model, entry.spec.name);
    if (head.empty()) continue;
    tied = true;
    tensors.push_back(detail::parameter_to_write(model, entry, concat(detail::peft_prefix, head)));
  }
  const detail::saving_ranks ranks(model, options.one_writer);
  if (!ranks.writes()) {
    (void)detail::follow_safetensors_with(ranks.together(), std::move(tensors));
    return ranks.wait_for_all();
  }
  make_folder(folder);
  copy_tokenizer(options.tokenizer_from, folder);
  write_file(folder + "/adapter_config.json", detail::peft_config_text(model.settings().adapter, options.base_model, model.family_info().transposed_in_files,
                                                                       tied, detail::has_score_head<Model> ? "SEQ_CLS" : model.family_info().peft_task));
  detail::write_parts(model.settings().adapter, folder);
  write_model_card(folder, detail::adapter_card(options.base_model, model.settings().adapter.dora ? "dora" : "lora", detail::pipeline_of<Model>()));
  (void)detail::write_safetensors_with(ranks.together(), folder + "/adapter_model.safetensors", std::move(tensors));
  ranks.wait_for_all();
}

/// Loads an adapter into a model that was created with its settings (adapter_config_of).
///   throws  file_error, config_error when the adapter belongs to another model: then the model is unchanged
template <class Model>
requires std::derived_from<typename Model::recipe::adapter, lora>
void load_adapter(Model& model, const std::string& folder) {
  const lora_config saved = adapter_config_of(folder);
  const lora_config& own = model.settings().adapter;
  require<config_error>(saved.rank == own.rank, folder, ": rank must be the model's ", own.rank, "; the adapter has ", saved.rank);
  require<config_error>(saved.alpha == own.alpha, folder, ": alpha must be the model's ", own.alpha, "; the adapter has ", saved.alpha);
  require<config_error>(detail::in_order(saved.parts) == detail::in_order(own.parts), folder,
                        ": the parts of fused modules that have adapters of their own must be those of the model's adapter");
  require<config_error>(saved.dora == own.dora, folder, ": must be DoRA as the model's adapter is, or neither; the adapter is ",
                        saved.dora ? "DoRA" : "LoRA");
  using entry = typename Model::store::entry;
  const auto& store = model.parameters();
  detail::adapter_tensors tensors(folder);
  std::vector<std::pair<const entry*, const file_tensor*>> places;
  const std::string head_module = detail::has_score_head<Model> ? std::string() : std::string(model.family_info().head_name());
  for (const entry& e : store.entries()) {
    const std::string module = module_of(e.spec.name);
    const auto names = detail::peft_names(e.spec.name, [&](const std::string& m) { return detail::is_adapted(store, m); });
    // PEFT also writes the base of an adapted embedding, and of an adapted head: the vocabulary may have been resized
    const bool may_have_base = store.find(concat(module, lora_names::table_a)) != nullptr || (module == head_module && detail::is_adapted(store, module));
    const file_tensor* tensor = e.spec.trainable ? &tensors.get(names) : may_have_base ? tensors.find({names.front()}) : nullptr;
    if (tensor == nullptr) continue;
    detail::require_place(e, *tensor, folder);
    places.emplace_back(&e, tensor);
    if (const std::string head = detail::tied_head_tensor(model, e.spec.name); !head.empty() && e.spec.trainable)
      detail::require_same_head(tensors, head, *tensor);
    if (const std::string beside(lora_names::module_beside(e.spec.name)); !beside.empty())
      require<config_error>(saved.scale_of(beside) == own.scale_of(beside), folder, ": the scale of '", beside, "' must be the model's ",
                            own.scale_of(beside), "; the adapter has ", saved.scale_of(beside));
  }
  tensors.require_all_used();
  for (const auto& [to, tensor] : places) detail::load_parameter(model, *to, *tensor, folder);
  model.parallel().weights_changed(model.stream(), model.parameters());  // weights gathered earlier by the ranks are stale
}

namespace detail {

/// Refuses a folder that lacks a tensor of a parameter which its adapter_config.json says is adapted or trained, or has one more: an adapter of a model with
/// fewer layers fits otherwise.
///   adapter   whether the folder has an adapter of the parameter
///   whole     whether it has the parameter itself
///   in_layers whether it has an adapter of a module with this last name, in any layer
///   biases    whether it has any bias: older versions of PEFT save none with lora_only
void require_as_configured(const lora_config& saved, const parameter_spec& of, bool adapter, bool whole, bool in_layers, bool biases,
                           const std::string& folder);

/// A matrix of a file [rows, columns] with its rows in the model's order, or transposed to [columns, rows].
template <class T>
[[nodiscard]] std::vector<T> sorted_rows(const file_tensor& tensor, const file_order& order) {
  std::vector<T> values(tensor.size());
  read_numbers<T>(tensor, 0, values);
  return order ? reordered<T>(values, *order, false) : values;
}
template <class T>
[[nodiscard]] std::vector<T> turned(const file_tensor& tensor) {
  const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
  const std::vector<T> values = sorted_rows<T>(tensor, {});
  std::vector<T> other(values.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) other[j * rows + i] = values[i * columns + j];
  return other;
}

/// The change that an adapter folder makes to one parameter of a plain model.
template <class Entry>
struct adapter_change {
  const Entry* to = nullptr;
  const file_tensor* whole = nullptr;  // replaces the parameter; null: it stays
  const file_tensor *a = nullptr, *b = nullptr, *magnitude = nullptr;
  bool is_table = false;
  double scale = 1.0;

  /// throws config_error unless the tensors match the parameter and each other
  void require_fit(std::size_t rank, bool dora, const std::string& module, const std::string& folder) const {
    const std::size_t out = to->spec.shape[0], in = to->spec.shape[1], r = rank;
    const std::size_t of_a = is_table ? out : in, of_b = is_table ? in : out;
    require<config_error>(b != nullptr && a->shape == std::vector<std::size_t>{r, of_a} && b->shape == std::vector<std::size_t>{of_b, r},
                          folder, ": the adapter of '", module, "' must have shapes [", r, ", ", of_a, "] and [", of_b, ", ", r, "]");
    require<config_error>(!dora || (magnitude != nullptr && magnitude->shape == std::vector<std::size_t>{out}), folder,
                          ": the adapter of '", module, "' must have a magnitude for each of ", out, " rows");
  }
  template <class T>
  [[nodiscard]] low_rank_change<T> read() const {
    using sum = accumulate_t<T>;
    const file_order& order = to->spec.rows_in_files;
    return {.rows = to->spec.shape[0],
            .columns = to->spec.shape[1],
            .rank = a->shape[0],
            .left = is_table ? turned<sum>(*a) : sorted_rows<sum>(*b, order),
            .right = is_table ? turned<sum>(*b) : sorted_rows<sum>(*a, {}),
            .lengths = magnitude != nullptr ? sorted_rows<sum>(*magnitude, order) : std::vector<sum>{},
            .scale = scale};
  }
};

}  // namespace detail

/// Merges a saved adapter into the weights of a plain model, for generation or export.
///   throws  file_error, config_error when the adapter belongs to another model: then the model is unchanged
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) void merge_adapter(Model& model, const std::string& folder) {
  const lora_config saved = adapter_config_of(folder);
  detail::adapter_tensors tensors(folder);
  using change = detail::adapter_change<typename Model::store::entry>;
  std::vector<change> changes;
  for (const auto& entry : model.parameters().entries()) {
    const std::string module = module_of(entry.spec.name), kind = entry.spec.name.substr(module.size());
    change found{.to = &entry, .whole = tensors.find(std::vector<std::string>{entry.spec.name, concat(module, ".base_layer", kind)})};
    if (entry.spec.shape.size() == 2 && kind == ".weight") {
      found.a = tensors.find({concat(module, lora_names::a)});
      found.b = tensors.find({concat(module, lora_names::b)});
      if (const file_tensor* table = tensors.find({concat(module, lora_names::table_a)})) {
        detail::require_head_apart(model, module);
        found.is_table = true;
        found.a = table;
        found.b = tensors.find({concat(module, lora_names::table_b)});
      }
    }
    if (found.whole != nullptr) {
      detail::require_place(entry, *found.whole, folder);
      if (const std::string head = detail::tied_head_tensor(model, entry.spec.name); !head.empty() && !found.is_table)
        detail::require_same_head(tensors, head, *found.whole);
    }
    if (found.a != nullptr) {
      if (saved.dora)
        found.magnitude = tensors.find({concat(module, lora_names::magnitude), concat(module, lora_names::magnitude, ".weight")});
      found.require_fit(saved.rank_of(module), saved.dora, module, folder);
      found.scale = saved.scale_of(module);
    }
    changes.push_back(found);
  }
  tensors.require_all_used();
  const auto last_name = [](const change& c) {
    const std::string module = module_of(c.to->spec.name);
    return module.substr(module.rfind('.') + 1);
  };
  std::set<std::string> adapted;
  for (const change& c : changes)
    if (c.a != nullptr) adapted.insert(last_name(c));
  const bool biases = std::any_of(changes.begin(), changes.end(), [](const change& c) { return c.whole != nullptr && c.to->spec.name.ends_with(".bias"); });
  for (const change& c : changes)
    detail::require_as_configured(saved, c.to->spec, c.a != nullptr, c.whole != nullptr, adapted.contains(last_name(c)), biases, folder);
  for (const change& c : changes) {
    if (c.whole != nullptr) detail::load_parameter(model, *c.to, *c.whole, folder);
    if (c.a != nullptr) detail::apply_change(model, *c.to, c.template read<typename Model::compute>());
  }
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/peft_impl.hpp>
#endif
