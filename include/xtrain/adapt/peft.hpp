// Adapters in PEFT's folders: adapter_config.json, adapter_model.safetensors.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
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
#include <xtrain/models/concepts.hpp>

namespace xtrain {

namespace detail {

/// With sorted parts: their order does not matter.
[[nodiscard]] inline auto in_order(std::map<std::string, std::vector<std::string>> parts) {
  for (auto& part : parts) std::sort(part.second.begin(), part.second.end());
  return parts;
}

inline constexpr std::string_view peft_prefix = "base_model.model.";

/// An adapter folder's tensors; records which were used.
class adapter_tensors {
 public:
  explicit adapter_tensors(const std::string& folder);

  /// The first existing name, without PEFT's prefix; null: none.
  [[nodiscard]] const file_tensor* find(const std::vector<std::string>& names);
  [[nodiscard]] const file_tensor& get(const std::vector<std::string>& names);
  /// A and B of a layer's parameter [experts, out, in], found by size: PEFT nests parameters.
  struct expert_pair {
    const file_tensor *a = nullptr, *b = nullptr;  // null: none
    bool swapped = false;                          // PEFT before 0.19 took `in` for outputs: A is [.., out], B is [in, ..]
  };
  [[nodiscard]] expert_pair find_experts(const std::string& layer, std::size_t in, std::size_t out);
  /// Names of a tied head and its embedding; empty: not tied.
  struct tied_head {
    std::string head{}, embedding{};
  };
  /// throws config_error when tensors were not used
  void require_all_used(const tied_head& tied) const;
  [[nodiscard]] const std::string& folder() const;

 private:
  [[nodiscard]] static std::string path_in(const std::string& folder);

  std::string folder_;
  weight_file file_;
  std::set<const file_tensor*> used_;
};

/// Names of a parameter in an adapter folder, the first for writing. PEFT puts an adapted module's base parameters under base_layer.
template <class Adapted>
[[nodiscard]] std::vector<std::string> peft_names(const std::string& parameter, Adapted&& is_adapted) {
  if (parameter.ends_with(lora_names::magnitude)) return {parameter, parameter + ".weight"};
  const std::string module = module_of(parameter);
  if (lora_names::module_beside(parameter).empty() && is_adapted(module))
    return {concat(module, ".base_layer", parameter.substr(module.size())), parameter};
  return {parameter};
}

/// The tied head's tensor if the parameter is its embedding; otherwise empty.
template <class Model>
[[nodiscard]] std::string tied_head_tensor(const Model& model, const std::string& parameter) {
  const std::string head = has_score_head<Model> ? std::string() : model.family_info().head_name();
  if (!head.empty() && model.config().tie_word_embeddings && parameter == model.family_info().embedding_name() + ".weight") return head + ".weight";
  return {};
}

template <class Model>
[[nodiscard]] adapter_tensors::tied_head tied_head_of(const Model& model) {
  if (has_score_head<Model> || !model.config().tie_word_embeddings) return {};
  return {model.family_info().head_name(), model.family_info().embedding_name()};
}

/// A trained embedding tied to the head is stored twice: PEFT would leave the head unchanged.
void require_same_head(adapter_tensors& tensors, const std::string& head, const file_tensor& embedding);

template <class Store>
[[nodiscard]] bool is_adapted(const Store& store, const std::string& module) {
  return store.find(concat(module, lora_names::a)) != nullptr || store.find(concat(module, lora_names::table_a)) != nullptr;
}

}  // namespace detail

namespace detail {

/// An adapter's model card, with PEFT's tags.
[[nodiscard]] model_card adapter_card(const std::string& base_model, const std::string& kind, const std::string& pipeline);

}  // namespace detail

/// Options of save_pretrained.
struct save_adapter_options {
  std::string base_model{};      ///< name or path; empty: null in adapter_config.json, so that programs must be told the model
  std::string tokenizer_from{};  ///< folder or file with tokenizer files to copy
  bool one_writer = false;       ///< of several ranks only the first writes: see save_options
};

/// Writes a folder, or a GGUF file if the name ends in .gguf (gguf_adapter.hpp): adapter, trained base parameters, model card (README.md) if there is none.
///   throws  config_error after merge_adapter(model): the adapter would not fit the base model; or when the tokenizer has tokens outside the vocabulary;
///           file_error: previous contents stay intact until the new adapter is complete
template <class Model>
requires std::derived_from<typename Model::recipe::adapter, lora>
void save_pretrained(const Model& model, const std::string& folder, const save_adapter_options& options = {}) {
  if (detail::is_gguf_path(folder)) return detail::save_to_gguf(model, folder, options.tokenizer_from);
  const auto& store = model.parameters();
  require<config_error>(!store.has_merged_adapter(), folder, ": an adapter must be saved before it is merged: of this model only the adapter is saved, ",
                        "and what merge_adapter(model) added to its weights would be lost. Save the adapter, and merge its folder into a model without one: ",
                        "merge_adapter(plain, folder)");
  detail::require_tokenizer_fits(folder, options.tokenizer_from, model.config().vocab_size);
  std::vector<tensor_to_write> tensors;
  bool tied = false;
  for (const auto& entry : store.entries()) {
    if (!entry.spec.trainable && lora_names::module_beside(entry.spec.name).empty()) continue;  // B may be frozen
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

/// Loads an adapter into a model created with its settings (adapter_config_of).
///   throws  file_error, config_error when the adapter belongs to another model: the model is unchanged
template <class Model>
requires std::derived_from<typename Model::recipe::adapter, lora>
void load_adapter(Model& model, const std::string& folder) {
  const lora_config saved = adapter_config_of(folder);
  const lora_config& own = model.settings().adapter;
  const std::string remedy = ". Create the model with {.adapter = adapter_config_of(folder)}";
  require<config_error>(saved.rank == own.rank, folder, ": rank must be the model's ", own.rank, "; the adapter has ", saved.rank, remedy);
  require<config_error>(saved.alpha == own.alpha, folder, ": alpha must be the model's ", own.alpha, "; the adapter has ", saved.alpha, remedy);
  require<config_error>(detail::in_order(saved.parts) == detail::in_order(own.parts), folder,
                        ": the parts of fused modules that have adapters of their own must be those of the model's adapter");
  require<config_error>(saved.frozen_b == own.frozen_b, folder,
                        ": B must be frozen in the model's adapter and in this one (init_lora_weights 'mica'), or in neither");
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
    // PEFT also writes the base of an adapted embedding or head: the vocabulary may have been resized
    const bool may_have_base = store.find(concat(module, lora_names::table_a)) != nullptr || (module == head_module && detail::is_adapted(store, module));
    const bool is_saved = e.spec.trainable || !lora_names::module_beside(e.spec.name).empty();
    const file_tensor* tensor = is_saved ? &tensors.get(names) : may_have_base ? tensors.find({names.front()}) : nullptr;
    if (tensor == nullptr) continue;
    detail::require_place(e, *tensor, folder);
    places.emplace_back(&e, tensor);
    if (const std::string head = detail::tied_head_tensor(model, e.spec.name); !head.empty() && e.spec.trainable)
      detail::require_same_head(tensors, head, *tensor);
    if (const std::string beside(lora_names::module_beside(e.spec.name)); !beside.empty())
      require<config_error>(saved.scale_of(beside) == own.scale_of(beside), folder, ": the scale of '", beside, "' must be the model's ",
                            own.scale_of(beside), "; the adapter has ", saved.scale_of(beside));
  }
  tensors.require_all_used(detail::tied_head_of(model));
  for (const auto& [to, tensor] : places) detail::load_parameter(model, *to, *tensor, folder);
  model.parallel().weights_changed(model.stream(), model.parameters());  // weights that ranks gathered earlier are stale
}

namespace detail {

/// Refuses a folder whose tensors contradict its adapter_config.json: an adapter of a model with fewer layers would fit.
///   adapter   the folder has an adapter of the parameter
///   whole     it has the parameter
///   target    the parameter's name in PEFT's target_parameters
///   in_layers it has an adapter of a module with this last name, in any layer
///   biases    it has biases: older PEFT saves none with lora_only
void require_as_configured(const lora_config& saved, const parameter_spec& of, const std::string& target, bool adapter, bool whole, bool in_layers,
                           bool biases, const std::string& folder);

/// An expert's matrix, in transformers 5 a part of one parameter per layer: gate_up_proj [experts, 2 · feed-forward, hidden size], gate above up, and
/// down_proj [experts, hidden size, feed-forward].
struct expert_matrix {
  std::string layer{};  // "model.layers.0."
  std::size_t expert = 0;
  bool is_down = false, is_up = false;

  [[nodiscard]] std::string parameter() const { return concat(layer, "mlp.experts.", is_down ? "down_proj" : "gate_up_proj"); }
};
/// For "model.layers.0.block_sparse_moe.experts.3.w1.weight"; none: another parameter.
[[nodiscard]] std::optional<expert_matrix> expert_matrix_of(const std::string& parameter);

/// A file's matrix with rows in the model's order, or transposed.
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

/// An adapter folder's change of one parameter of a plain model.
template <class Entry>
struct adapter_change {
  const Entry* to = nullptr;
  const file_tensor* whole = nullptr;  // replaces the parameter; null: no
  const file_tensor *a = nullptr, *b = nullptr, *magnitude = nullptr;
  bool is_table = false;
  double scale = 1.0;
  std::string target{};                 // name in target_parameters
  std::optional<expert_matrix> fused{};  // the parameter holds this expert's matrix, among others
  bool swapped = false;                  // A has the parameter's rows, B its columns
  std::size_t experts = 1;

  /// throws config_error unless the tensors fit the parameter and each other
  void require_fit(std::size_t rank, bool dora, const std::string& module, const std::string& folder) const {
    const std::size_t out = (fused && !fused->is_down ? 2 : 1) * to->spec.shape[0], in = to->spec.shape[1], r = experts * rank;
    const bool other_way = is_table || swapped;
    const std::size_t of_a = other_way ? out : in, of_b = other_way ? in : out;
    require<config_error>(b != nullptr && a->shape == std::vector<std::size_t>{r, of_a} && b->shape == std::vector<std::size_t>{of_b, r},
                          folder, ": the adapter of '", module, "' must have shapes [", r, ", ", of_a, "] and [", of_b, ", ", r, "]");
    require<config_error>(!dora || (magnitude != nullptr && magnitude->shape == std::vector<std::size_t>{out}), folder,
                          ": the adapter of '", module, "' must have a magnitude for each of ", out, " rows");
  }
  template <class T>
  [[nodiscard]] low_rank_change<T> read() const {
    using sum = accumulate_t<T>;
    const file_order& order = to->spec.rows_in_files;
    if (fused) {  // A [experts · rank, in], by expert; B [out, rank · experts], experts innermost
      low_rank_change<T> change{.rows = to->spec.shape[0], .columns = to->spec.shape[1], .rank = a->shape[0] / experts, .scale = scale};
      const std::vector<sum> all_a = sorted_rows<sum>(*a, {}), all_b = sorted_rows<sum>(*b, {});
      const std::size_t first = fused->is_up ? change.rows : 0, width = a->shape[1];
      const auto at_a = [&](std::size_t k, std::size_t i) { return all_a[(fused->expert * change.rank + k) * width + i]; };
      const auto at_b = [&](std::size_t o, std::size_t k) { return all_b[(o * change.rank + k) * experts + fused->expert]; };
      for (std::size_t o = 0; o < change.rows; ++o)
        for (std::size_t k = 0; k < change.rank; ++k) change.left.push_back(swapped ? at_a(k, first + o) : at_b(first + o, k));
      for (std::size_t k = 0; k < change.rank; ++k)
        for (std::size_t i = 0; i < change.columns; ++i) change.right.push_back(swapped ? at_b(i, k) : at_a(k, i));
      return change;
    }
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

/// Vocabulary size of a saved adapter: rows of its embedding and head, which PEFT saves after resizing; else the model's. Load the base model with it
/// (load_options::resize_vocabulary) before merge_adapter.
///   throws  file_error, config_error when the adapter has only one of them, of another size than the model's
template <class Info, class Sizes>
[[nodiscard]] std::size_t adapter_vocabulary(const std::string& folder, const Info& family, const Sizes& sizes) {
  (void)adapter_config_of(folder);  // check the kind before the contents
  detail::adapter_tensors tensors(folder);
  const auto rows = [&](const std::string& module) {
    const file_tensor* whole = tensors.find({module + ".weight", module + ".base_layer.weight"});
    return whole == nullptr || whole->shape.size() != 2 ? sizes.vocab_size : whole->shape[0];
  };
  const std::size_t embedding = rows(family.embedding_name()), head = sizes.tie_word_embeddings ? embedding : rows(family.head_name());
  require<config_error>(embedding == head, folder, ": the embedding and the head must have the same number of rows; with this adapter they have ", embedding,
                        " and ", head);
  return embedding;
}

/// Merges a saved adapter into a plain model's weights, for generation or export.
///   throws  file_error, config_error when the adapter belongs to another model: the model is unchanged
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) void merge_adapter(Model& model, const std::string& folder) {
  const lora_config saved = adapter_config_of(folder);
  require<config_error>(saved.target_parameters.empty() || !model.family_info().transposed_in_files, folder,
                        ": target_parameters must be none in a family whose files hold [in, out]: A and B are of the transposed weight");
  detail::adapter_tensors tensors(folder);
  const std::size_t experts = detail::num_experts_of(model.config());
  using change = detail::adapter_change<typename Model::store::entry>;
  std::vector<change> changes;
  for (const auto& entry : model.parameters().entries()) {
    const std::string module = module_of(entry.spec.name), kind = entry.spec.name.substr(module.size());
    const std::vector<std::string> names{entry.spec.name, concat(module, ".base_layer", kind)};
    change found{.to = &entry, .whole = tensors.find(names), .target = entry.spec.name};
    std::string adapted = module;  // matched by patterns
    if (entry.spec.shape.size() == 2 && kind == ".weight") {
      found.a = tensors.find({concat(module, lora_names::a)});
      found.b = tensors.find({concat(module, lora_names::b)});
      if (found.a != nullptr) detail::require_head_apart(model, module);
      if (saved.adapts_parameter(entry.spec.name)) adapted = entry.spec.name;
      if (const auto expert = detail::expert_matrix_of(entry.spec.name); expert && experts != 0) {
        const std::size_t out = (expert->is_down ? 1 : 2) * entry.spec.shape[0];
        if (found.a == nullptr) {
          const auto pair = tensors.find_experts(expert->layer, entry.spec.shape[1], out);
          found.a = pair.a, found.b = pair.b, found.swapped = pair.swapped;
          if (pair.a != nullptr) found.fused = expert, found.experts = experts;
        }
        found.target = expert->parameter();
        if (found.fused) adapted = found.target;
      } else if (constexpr std::string_view router = ".block_sparse_moe.gate"; found.a == nullptr && module.ends_with(router)) {
        const std::string now = concat(module.substr(0, module.size() - router.size()), ".mlp.gate");  // in transformers 5
        found.a = tensors.find({concat(now, lora_names::a)});
        found.b = tensors.find({concat(now, lora_names::b)});
        found.target = adapted = now + ".weight";
      }
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
      found.require_fit(saved.rank_of(adapted), saved.dora, adapted, folder);
      found.scale = saved.scale_of(adapted);
    }
    changes.push_back(found);
  }
  tensors.require_all_used(detail::tied_head_of(model));
  const auto last_name = [](const change& c) {
    const std::string module = module_of(c.to->spec.name);
    return module.substr(module.rfind('.') + 1);
  };
  std::set<std::string> adapted;
  for (const change& c : changes)
    if (c.a != nullptr) adapted.insert(last_name(c));
  const bool biases = std::any_of(changes.begin(), changes.end(), [](const change& c) { return c.whole != nullptr && c.to->spec.name.ends_with(".bias"); });
  for (const change& c : changes)
    detail::require_as_configured(saved, c.to->spec, c.target, c.a != nullptr, c.whole != nullptr, adapted.contains(last_name(c)), biases, folder);
  for (const change& c : changes) {
    if (c.whole != nullptr) detail::load_parameter(model, *c.to, *c.whole, folder);
    if (c.a != nullptr) detail::apply_change(model, *c.to, c.template read<typename Model::compute>());
  }
}

}  // namespace xtrain

#include <xtrain/adapt/gguf_adapter.hpp>

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/peft_impl.hpp>
#endif
