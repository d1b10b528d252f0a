// Saves GGUF files for llama.cpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// Options of save_gguf.
struct save_gguf_options {
  gguf_type type = gguf_type::f32;  ///< of matrices
  std::string tokenizer_from{};     ///< folder, tokenizer file or GGUF file; empty: no vocabulary
  std::string name{};               ///< general.name; empty: file name without ending
};

/// A decoder's settings, as in decoder_config (a higher layer).
struct gguf_config {
  enum class rope_rule : std::uint8_t { none, linear, llama3 };

  std::string family{};
  std::size_t vocab_size = 0, hidden_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;
  std::size_t max_position_embeddings = 0, rotary_dim = 0, sliding_window = 0, num_experts = 0, num_experts_per_token = 0;
  double norm_epsilon = 0.0, rope_theta = 0.0, query_pre_attn_scalar = 0.0, attn_logit_softcapping = 0.0, final_logit_softcapping = 0.0;
  rope_rule rope = rope_rule::none;
  double rope_factor = 1.0;
  std::vector<float> rope_factors{};  ///< llama3: frequencies are divided by these
  bool alibi = false, tie_word_embeddings = false, normalized_head = false;
  bool attention_bias = false, output_bias = false, feed_forward_bias = false;
  std::vector<bool> windowed_layers{};  ///< per layer
  token bos = -1, pad = -1;
  std::vector<token> eos{};
  std::string embedding{}, head{};  ///< modules
  std::function<std::vector<std::string>(const std::string&)> other_names{};
  std::function<bool(std::string_view)> may_be_ignored{};
};

/// From a config and its family; decoders only.
template <class Config, class Info>
requires requires(const Config& c) { c.num_kv_heads; }
[[nodiscard]] gguf_config gguf_config_of(Config c, const Info& family) {
  family.complete(c);
  gguf_config to{.family = family.name,
                 .vocab_size = c.vocab_size,
                 .hidden_size = c.hidden_size,
                 .num_layers = c.num_layers,
                 .num_heads = c.num_heads,
                 .num_kv_heads = c.num_kv_heads == 0 ? c.num_heads : c.num_kv_heads,
                 .head_dim = c.head_dim == 0 ? c.hidden_size / c.num_heads : c.head_dim,
                 .intermediate_size = c.intermediate_size,
                 .max_position_embeddings = c.max_position_embeddings,
                 .rotary_dim = c.rotary_dim,
                 .sliding_window = c.sliding_window,
                 .num_experts = family.has_experts ? c.num_experts : 0,
                 .num_experts_per_token = c.num_experts_per_token,
                 .norm_epsilon = c.norm_epsilon,
                 .rope_theta = c.rope_theta,
                 .query_pre_attn_scalar = c.query_pre_attn_scalar,
                 .attn_logit_softcapping = c.attn_logit_softcapping,
                 .final_logit_softcapping = c.final_logit_softcapping,
                 .rope_factor = c.rope_scaling.factor,
                 .alibi = c.alibi,
                 .tie_word_embeddings = c.tie_word_embeddings,
                 .normalized_head = c.normalized_head,
                 .attention_bias = c.attention_bias,
                 .output_bias = c.output_bias,
                 .feed_forward_bias = c.feed_forward_bias,
                 .bos = c.bos,
                 .pad = c.pad_token_id.value_or(-1),
                 .eos = c.eos,
                 .embedding = family.embedding_name(),
                 .head = family.head_name(),
                 .other_names = family.other_names,
                 .may_be_ignored = [c, &family](std::string_view tensor) { return family.may_be_ignored(tensor, c); }};
  using rule = typename decltype(c.rope_scaling)::rule;
  if (c.rope_scaling.kind == rule::linear) to.rope = gguf_config::rope_rule::linear;
  if (c.rope_scaling.kind == rule::llama3) {
    to.rope = gguf_config::rope_rule::llama3;
    for (std::size_t i = 0; i < to.head_dim / 2; ++i) {
      const double frequency = 1.0 / std::pow(c.rope_theta, static_cast<double>(2 * i) / static_cast<double>(to.head_dim));
      to.rope_factors.push_back(static_cast<float>(frequency / c.rope_scaling.scaled(frequency)));
    }
  }
  for (std::size_t layer = 0; layer < c.num_layers; ++layer) to.windowed_layers.push_back(c.window_of(layer) != 0);
  return to;
}

/// llama.cpp's architecture and sizes.
///   where   file, for errors
///   throws  config_error with the setting's name for a model that llama.cpp lacks
[[nodiscard]] gguf_sizes gguf_sizes_of(const gguf_config& config, const std::string& where);

/// Writes tensors with Hugging Face's names and layout atomically, one in memory at a time, files in pieces.
///   throws  config_error for a model or tokenizer that llama.cpp lacks, a missing or extra tensor; file_error; data_error for a number beyond the type; an
///           existing file is then unchanged
void write_gguf(const std::string& path, const gguf_config& config, const tensor_source& weights, const save_gguf_options& options = {});

namespace detail {

/// Its number in general.file_type.
[[nodiscard]] std::size_t gguf_file_type(gguf_type type);

/// The file without tensors.
[[nodiscard]] gguf_writer begin_gguf(const std::string& path, const gguf_config& config, const gguf_sizes& sizes, const save_gguf_options& options);

void finish_gguf(gguf_writer file, const gguf_config& config, const gguf_sizes& sizes, const save_gguf_options& options,
                 const std::vector<gguf_source>& sources, bool writes);

/// A parameter, gathered when opened.
template <class Model, class Entry>
[[nodiscard]] gguf_source gguf_parameter(const Model& model, const Entry& entry, std::string name) {
  tensor_to_write tensor = parameter_to_write(model, entry, std::move(name));
  gguf_source source{.name = tensor.name, .shape = tensor.shape};
  source.open = [tensor = std::move(tensor)](std::vector<std::byte>& storage) {
    storage.clear();
    tensor.produce([&](const void* data, std::size_t size) {
      const auto* bytes = static_cast<const std::byte*>(data);
      storage.insert(storage.end(), bytes, bytes + size);
    });
    return file_tensor{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = storage};
  };
  return source;
}

}  // namespace detail

/// Writes a model without an adapter (adapters: adapt/gguf_adapter.hpp). All ranks call it; the first writes.
///   throws  as write_gguf
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) && requires(const Model& m) { gguf_config_of(m.config(), m.family_info()); }
void save_gguf(const Model& model, const std::string& path, const save_gguf_options& options = {}) {
  const gguf_config config = gguf_config_of(model.config(), model.family_info());
  const gguf_sizes sizes = gguf_sizes_of(config, path);
  std::vector<gguf_source> sources;
  for (const auto& entry : model.parameters().entries()) sources.push_back(detail::gguf_parameter(model, entry, entry.spec.name));
  const detail::saving_ranks ranks(model, true);
  detail::finish_gguf(detail::begin_gguf(path, config, sizes, options), config, sizes, options, sources, ranks.writes());
  ranks.wait_for_all();
}

/// For save_pretrained with .gguf: matrices in the model's dtype.
template <class Model, class T>
requires requires(const Model& model, const std::string& path) { save_gguf(model, path); }
void save_gguf_as(const Model& model, const std::string& path, const std::string& tokenizer_from, T) {
  const gguf_type type = std::is_same_v<T, bf16> ? gguf_type::bf16 : std::is_same_v<T, fp16> ? gguf_type::f16 : gguf_type::f32;
  save_gguf(model, path, {.type = type, .tokenizer_from = tokenizer_from});
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/gguf_save_impl.hpp>
#endif
