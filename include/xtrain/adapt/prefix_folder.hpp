// Prefixes in folders: formats of PEFT and of ChatGLM's P-tuning.
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
#include <xtrain/adapt/prefix_tuning.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

/// The prefix is one matrix [length, layers · 2·kv]: each row has keys and values of layer after layer.
namespace prefix_names {
inline constexpr std::string_view peft = "prompt_embeddings";
inline constexpr std::string_view chatglm = "transformer.prefix_encoder.embedding.weight";
inline constexpr std::string_view up = "transformer.prefix_encoder.trans.0", down = "transformer.prefix_encoder.trans.2";

}  // namespace prefix_names

[[nodiscard]] bool is_peft_folder(const std::string& folder);

/// PEFT's adapter_config.json of a prefix; the network that made it does not matter: PEFT saves its result.
///   throws  config_error for other kinds
[[nodiscard]] prefix_config prefix_config_of(const json_settings& s);

/// A prefix's tensors, in either format.
class prefix_tensors {
 public:
  /// throws file_error, config_error when the folder has no prefix
  explicit prefix_tensors(const std::string& folder);

  [[nodiscard]] std::size_t length() const;
  /// Inner size of a projection network that xtrain saved; 0: none.
  [[nodiscard]] std::size_t projection() const;
  [[nodiscard]] const file_tensor& of_network(const std::string& parameter) const;

  /// The matrix [length, columns], row-major.
  ///   throws  config_error when the columns differ
  template <class T>
  [[nodiscard]] std::vector<T> read(std::size_t columns) const {
    if (source_.find(concat(prefix_names::down, ".weight")) != nullptr) return projected<T>(columns);
    require_columns(*main_, main_->shape[1], columns);
    std::vector<T> values(main_->size());
    read_numbers<T>(*main_, 0, values);
    return values;
  }

 private:
  [[nodiscard]] const file_tensor& get(std::string_view name) const;
  void require_columns(const file_tensor& tensor, std::size_t given, std::size_t expected) const;

  /// y = x · Wᵀ + b, in double
  [[nodiscard]] std::vector<double> linear(const std::vector<double>& x, std::string_view module) const;
  /// W2 · tanh(W1 · embedding + b1) + b2: P-tuning with prefix_projection saves the network.
  template <class T>
  [[nodiscard]] std::vector<T> projected(std::size_t columns) const {
    const file_tensor& last = get(concat(prefix_names::down, ".weight"));
    require_columns(last, last.shape.empty() ? 0 : last.shape[0], columns);
    std::vector<double> embedding(main_->size());
    read_numbers<double>(*main_, 0, embedding);
    std::vector<double> inner = linear(embedding, prefix_names::up);
    for (double& value : inner) value = std::tanh(value);
    const std::vector<double> made = linear(inner, prefix_names::down);
    return {made.begin(), made.end()};
  }

  std::string folder_;
  weight_folder source_;
  const file_tensor* main_;
};

/// File columns of a layer's keys and values, [2·kv]. Order within heads may differ; the order of heads is equal.
template <class Model>
[[nodiscard]] std::vector<std::size_t> prefix_columns(const Model& model) {
  const auto& c = model.config();
  const std::size_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  std::vector<std::size_t> columns(2 * kv);
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  const file_order order = model.family_info().qkv_order(c);
  for (std::size_t first = 0; order && first < 2 * kv; first += kv) {
    const std::span<const std::uint32_t> rows = std::span(*order).subspan(q + first, kv);
    std::vector<std::uint32_t> sorted(rows.begin(), rows.end());
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t j = 0; j < kv; ++j)
      columns[first + j] = first + static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), rows[j]) - sorted.begin());
  }
  return columns;
}

/// A parameter's values on this host.
template <class Model>
[[nodiscard]] std::vector<typename Model::compute> prefix_parameter(const Model& model, const std::string& name) {
  const auto& store = model.parameters();
  const auto& entry = *store.find(name);
  std::vector<typename Model::compute> host(entry.size());
  model.parallel().collect(model.stream(), store, entry, store.stored_values(), std::span(host));
  return host;
}

/// A layer's prefix [length, 2·kv] in the model's order: the parameter, or the projection's output.
template <class Model>
[[nodiscard]] std::vector<typename Model::compute> prefix_of_layer(const Model& model, std::size_t layer) {
  using dtype = typename Model::compute;
  using sum = accumulate_t<dtype>;
  const prefix_config& c = model.settings().adapter;
  if (c.projection == 0) return prefix_parameter(model, prefix_tuning::parameter_of(layer));
  const auto linear = [&](const std::vector<sum>& x, const std::string& weight, const std::string& bias) {
    const auto w_oi = prefix_parameter(model, weight), b_o = prefix_parameter(model, bias);
    const std::size_t in = x.size() / c.length, out = b_o.size();
    std::vector<sum> y(c.length * out);
    for (std::size_t r = 0; r < c.length; ++r)
      for (std::size_t o = 0; o < out; ++o) {
        sum all = static_cast<sum>(b_o[o]);
        for (std::size_t i = 0; i < in; ++i) all += x[r * in + i] * static_cast<sum>(w_oi[o * in + i]);
        y[r * out + o] = all;
      }
    return y;
  };
  const auto embedding = prefix_parameter(model, prefix_tuning::embedding());
  std::vector<sum> inner = linear({embedding.begin(), embedding.end()}, prefix_tuning::inner("weight"), prefix_tuning::inner("bias"));
  for (sum& value : inner) value = std::tanh(value);
  const std::vector<sum> made = linear(inner, prefix_tuning::parameter_of(layer), prefix_tuning::parameter_of(layer, "bias"));
  std::vector<dtype> rounded;
  for (const sum value : made) rounded.push_back(static_cast<dtype>(value));
  return rounded;
}

/// Loads a model's projection network.
///   throws  config_error when a tensor is missing or has another shape: the model is unchanged
template <class Model>
void load_prefix_network(Model& model, const prefix_tensors& tensors, const std::string& folder) {
  const auto each = [&](auto&& visit) {
    for (const auto& entry : model.parameters().entries())
      if (prefix_tuning::is_own(entry.spec.name)) visit(entry, tensors.of_network(entry.spec.name));
  };
  each([&](const auto& entry, const file_tensor& tensor) { require_place(entry, tensor, folder); });
  each([&](const auto& entry, const file_tensor& tensor) { load_parameter(model, entry, tensor, folder); });
}

/// The entire prefix in file layout.
template <class Model>
[[nodiscard]] tensor_to_write prefix_to_write(const Model& model, std::string_view name) {
  using dtype = typename Model::compute;
  const std::vector<std::size_t> columns = prefix_columns(model);
  const std::size_t length = model.settings().adapter.length, all = model.config().num_layers * columns.size();
  const auto produce = [&model, columns, length, all](const std::function<void(const void*, std::size_t)>& sink) {
    std::vector<dtype> whole(length * all);
    for (std::size_t layer = 0; layer < model.config().num_layers; ++layer) {
      const std::vector<dtype> host = prefix_of_layer(model, layer);
      for (std::size_t i = 0; i < length; ++i)
        for (std::size_t j = 0; j < columns.size(); ++j)
          whole[i * all + layer * columns.size() + columns[j]] = host[i * columns.size() + j];
    }
    sink(whole.data(), whole.size() * sizeof(dtype));
  };
  return {.name = std::string(name),
          .dtype = std::string(safetensors_dtype_of<dtype>()),
          .shape = {length, all},
          .bytes = length * all * sizeof(dtype),
          .produce = produce};
}

}  // namespace detail

/// Settings of a saved prefix: create a model with them before load_adapter.
///   throws  file_error, config_error when the folder has no prefix
[[nodiscard]] prefix_config prefix_config_of(const std::string& folder);

/// Writes the prefix: PEFT's format if it counts in positions, else ChatGLM's. A projection network is saved too, to continue training.
///   throws  config_error when the tokenizer has tokens outside the vocabulary, or a prefix in ChatGLM's format would replace a model; file_error: previous
///           contents stay intact until the new prefix is complete
template <class Model>
requires std::is_same_v<typename Model::recipe::adapter, prefix_tuning>
void save_pretrained(const Model& model, const std::string& folder, const save_adapter_options& options = {}) {
  if (detail::is_gguf_path(folder)) return detail::save_to_gguf(model, folder, options.tokenizer_from);
  const prefix_config& c = model.settings().adapter;
  if (!c.counts_in_positions) detail::require_same_family(folder, "");
  detail::require_tokenizer_fits(folder, options.tokenizer_from, model.config().vocab_size);
  std::vector<tensor_to_write> tensors;
  tensors.push_back(detail::prefix_to_write(model, c.counts_in_positions ? detail::prefix_names::peft : detail::prefix_names::chatglm));
  for (const auto& entry : model.parameters().entries())
    if (c.projection != 0 && prefix_tuning::is_own(entry.spec.name))
      tensors.push_back(detail::parameter_to_write(model, entry, entry.spec.name));
  const detail::saving_ranks ranks(model);
  if (!ranks.writes()) {
    detail::produce_for_another(std::move(tensors));
    return ranks.wait_for_all();
  }
  make_folder(folder);
  copy_tokenizer(options.tokenizer_from, folder);
  if (!c.counts_in_positions) {
    json_settings config;
    config.set("pre_seq_len", c.length);
    config.set("prefix_projection", false);
    write_file(folder + "/config.json", config.text());
    write_safetensors(folder + "/model.safetensors", std::move(tensors));
    return ranks.wait_for_all();
  }
  const auto& sizes = model.config();
  json_settings config;
  config.set("peft_type", "PREFIX_TUNING");
  config.set("task_type", "CAUSAL_LM");
  if (options.base_model.empty()) config.set_null("base_model_name_or_path");
  else config.set("base_model_name_or_path", options.base_model);
  config.set("inference_mode", true);
  config.set("num_virtual_tokens", c.length);
  config.set("num_layers", sizes.num_layers);
  config.set("num_attention_heads", sizes.num_kv_heads);
  config.set("token_dim", sizes.num_kv_heads * sizes.head_dim);
  config.set("num_transformer_submodules", std::size_t{1});
  config.set("prefix_projection", false);
  config.set("encoder_hidden_size", sizes.num_kv_heads * sizes.head_dim);
  write_file(folder + "/adapter_config.json", config.text());
  write_model_card(folder, detail::adapter_card(options.base_model, "prefix-tuning", detail::pipeline_of<Model>()));
  write_safetensors(folder + "/adapter_model.safetensors", std::move(tensors));
  ranks.wait_for_all();
}

/// Loads a prefix into a model created with its settings (prefix_config_of); without a projection, its result.
///   throws  file_error, config_error when the prefix belongs to another model: the model is unchanged
template <class Model>
requires std::is_same_v<typename Model::recipe::adapter, prefix_tuning>
void load_adapter(Model& model, const std::string& folder) {
  using dtype = typename Model::compute;
  const prefix_config saved = prefix_config_of(folder);
  const prefix_config& own = model.settings().adapter;
  require<config_error>(saved.counts_in_positions == own.counts_in_positions, folder, ": the prefix must ",
                        own.counts_in_positions ? "" : "not ", "shift position ids, as the model's does; PEFT's prefixes do, ChatGLM's do not");
  const detail::prefix_tensors tensors(folder);
  require<config_error>(saved.length == own.length && tensors.length() == own.length, folder, ": the prefix must have the model's ",
                        own.length, " virtual tokens; it has ", tensors.length());
  if (own.projection != 0) {
    detail::load_prefix_network(model, tensors, folder);
    return model.parallel().weights_changed(model.stream(), model.parameters());
  }
  const std::vector<std::size_t> columns = detail::prefix_columns(model);
  const std::size_t all = model.config().num_layers * columns.size();
  const auto whole = tensors.template read<dtype>(all);
  for (std::size_t layer = 0; layer < model.config().num_layers; ++layer) {
    const auto& entry = *model.parameters().find(prefix_tuning::parameter_of(layer));
    std::vector<dtype> host(entry.size());
    for (std::size_t i = 0; i < own.length; ++i)
      for (std::size_t j = 0; j < columns.size(); ++j) host[i * columns.size() + j] = whole[i * all + layer * columns.size() + columns[j]];
    model.parameters().write(model.stream(), entry, 0, host);
    model.stream().synchronize();
  }
  model.parallel().weights_changed(model.stream(), model.parameters());  // weights that ranks gathered earlier are stale
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/prefix_folder_impl.hpp>
#endif
