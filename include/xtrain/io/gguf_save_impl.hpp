#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/text/gguf_tokenizer_writer.hpp>

namespace xtrain {

XTRAIN_INLINE gguf_sizes gguf_sizes_of(const gguf_config& c, const std::string& where) {
  const std::string& family = c.family;
  static const std::map<std::string, std::string, std::less<>> architectures{
      {"llama", "llama"},   {"mistral", "llama"}, {"mixtral", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"},       {"gemma", "gemma"},
      {"gemma2", "gemma2"}, {"phi3", "phi3"},     {"gpt2", "gpt2"},     {"bloom", "bloom"}, {"baichuan", "baichuan"}, {"internlm2", "internlm2"},
      {"chatglm", "chatglm"}};
  const auto known = architectures.find(family);
  require<config_error>(known != architectures.end(), where, ": a GGUF file must hold a model of a family that llama.cpp has: llama, mistral, mixtral, ",
                        "qwen2, qwen3, gemma, gemma2, phi3, gpt2, bloom, baichuan, internlm2 or chatglm; given ", family);
  const std::string& architecture = known->second;
  const auto must = [&](bool holds, const auto&... what) { require<config_error>(holds, where, ": ", family, " in a GGUF file must ", what...); };
  const std::size_t d = c.head_dim;
  const bool is_llama = architecture == "llama", all_biases = family == "gpt2" || family == "bloom";
  const bool any_head_dim = is_llama || family == "qwen3" || architecture.starts_with("gemma");
  must(any_head_dim || d * c.num_heads == c.hidden_size, "have heads of hidden_size / num_heads, as llama.cpp assumes; head_dim is ", d, ", the quotient ",
       c.hidden_size / c.num_heads);
  must(all_biases || !c.output_bias || is_llama, "have no bias of the attention's output, for which llama.cpp has no tensor; it has one");
  must(all_biases || !c.feed_forward_bias || family == "llama", "have no biases of the feed-forward layers, for which llama.cpp has no tensor; it has them");
  must(!architecture.starts_with("gemma") || c.tie_word_embeddings, "have the embedding as its head, because llama.cpp takes no other; ",
       "tie_word_embeddings is false");
  using rule = gguf_config::rope_rule;
  must(c.rope != rule::llama3 || is_llama, "have no rope scaling of type llama3, whose factors llama.cpp reads for LLaMA only");
  const bool has_window = c.sliding_window != 0;
  const bool in_all_layers = std::find(c.windowed_layers.begin(), c.windowed_layers.end(), false) == c.windowed_layers.end();
  if (family == "gemma2") {
    const double usual = static_cast<double>(c.num_layers == 46 ? c.hidden_size / c.num_heads : d);  // 27B: llama.cpp decides by layers
    must(c.query_pre_attn_scalar == 0.0 || c.query_pre_attn_scalar == usual, "have a query_pre_attn_scalar of ", usual, ", which llama.cpp takes for ",
         c.num_layers, " layers; it is ", c.query_pre_attn_scalar);
    must(c.attn_logit_softcapping != 0.0 && c.final_logit_softcapping != 0.0, "have both softcaps of logits, by which llama.cpp divides; one is none");
    must(has_window, "have a sliding window, because llama.cpp has one in every second layer; it has none");
    for (std::size_t layer = 0; layer < c.num_layers; ++layer)
      must(c.windowed_layers[layer] == (layer % 2 == 0), "have its sliding window in every second layer, from the first on; layer ", layer, " differs");
  } else {
    must(!has_window || in_all_layers, "have its sliding window in all layers: the file cannot say which have one");
    must(!has_window || is_llama || family == "phi3", "have no sliding window, for which llama.cpp has no setting there; it is ", c.sliding_window);
  }
  if (family == "baichuan") {
    const std::size_t expected = c.alibi ? 40 : 32;
    must(c.num_layers == expected, "have ", expected, " layers with ", c.alibi ? "ALiBi" : "rotary positions",
         ": llama.cpp knows 7B and 13B by 32 and 40; it has ", c.num_layers);
  }
  return {.architecture = architecture,
          .num_layers = c.num_layers,
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_dim = d,
          .num_experts = c.num_experts,
          .tie_word_embeddings = c.tie_word_embeddings,
          .attention_bias = c.attention_bias,
          .output_bias = c.output_bias,
          .feed_forward_bias = c.feed_forward_bias,
          .all_biases = all_biases,
          .normalized_head = c.normalized_head};
}

namespace detail {

/// "1.1B" of general.size_label: at least two digits.
[[nodiscard]] inline std::string gguf_size_label(double parameters) {
  const std::string_view units = "KMBT";
  std::size_t unit = 0;
  for (parameters /= 1e3; parameters >= 1e3 && unit + 1 < units.size(); parameters /= 1e3) ++unit;
  const double rounded = parameters < 9.5 ? std::round(parameters * 10.0) / 10.0 : std::round(parameters);
  const auto tenths = static_cast<std::size_t>(std::llround(rounded * 10.0));
  return concat(tenths / 10, parameters < 9.5 ? concat(".", tenths % 10) : "", units[unit]);
}

XTRAIN_INLINE std::size_t gguf_file_type(gguf_type type) {
  switch (type) {
    case gguf_type::f16:
      return 1;
    case gguf_type::q4_0:
      return 2;
    case gguf_type::q8_0:
      return 7;
    case gguf_type::bf16:
      return 32;
    default:
      return 0;
  }
}

/// llama.cpp takes a model of this name for Phi-3: other spaces after special tokens, and no vocabulary without <|endoftext|>.
[[nodiscard]] inline bool names_phi3(std::string name) {
  for (char& letter : name)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return name.find("phi3") != std::string::npos || name.find("phi-3") != std::string::npos;
}

XTRAIN_INLINE gguf_writer begin_gguf(const std::string& path, const gguf_config& c, const gguf_sizes& sizes, const save_gguf_options& options) {
  gguf_writer file(path);
  const std::string family = c.family, before = sizes.architecture + ".";
  const auto key = [&](const char* name) { return before + name; };
  std::string name = options.name;
  if (name.empty()) {
    name = path.substr(path.rfind('/') + 1);
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    if (family != "phi3" && names_phi3(name)) name = sizes.architecture;
  }
  file.add_text("general.architecture", sizes.architecture);
  file.add_text("general.type", "model");
  file.add_text("general.name", name);
  file.add_u32(key("block_count"), c.num_layers);
  if (family == "baichuan") file.add_text(key("tensor_data_layout"), "Meta AI original pth");
  file.add_u32(key("context_length"), c.max_position_embeddings);
  file.add_u32(key("embedding_length"), c.hidden_size);
  file.add_u32(key("feed_forward_length"), c.intermediate_size);
  file.add_u32(key("attention.head_count"), c.num_heads);
  if (family != "gpt2") file.add_u32(key("attention.head_count_kv"), sizes.num_kv_heads);
  const bool has_layer_norm = family == "gpt2" || family == "bloom";
  file.add_f32(key(has_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), c.norm_epsilon);
  const bool is_llama = sizes.architecture == "llama", is_gemma = sizes.architecture.starts_with("gemma");
  if (is_gemma || family == "llama" || family == "mistral" || family == "qwen3" || sizes.head_dim * c.num_heads != c.hidden_size) {
    file.add_u32(key("attention.key_length"), sizes.head_dim);
    file.add_u32(key("attention.value_length"), sizes.head_dim);
  }
  if (!has_layer_norm && !c.alibi) {
    file.add_f32(key("rope.freq_base"), c.rope_theta);
    if (is_llama || family == "baichuan") file.add_u32(key("rope.dimension_count"), sizes.head_dim);
    if (family == "chatglm") file.add_u32(key("rope.dimension_count"), sizes.head_dim / 2);
    if (family == "phi3") file.add_u32(key("rope.dimension_count"), c.rotary_dim == 0 ? sizes.head_dim : c.rotary_dim);
    if (c.rope == gguf_config::rope_rule::linear) {
      file.add_text(key("rope.scaling.type"), "linear");
      file.add_f32(key("rope.scaling.factor"), c.rope_factor);
    }
  }
  if (family == "phi3") file.add_u32(key("rope.scaling.original_context_length"), c.max_position_embeddings);
  if (family == "phi3" || family == "gemma2" || c.sliding_window != 0) file.add_u32(key("attention.sliding_window"), c.sliding_window);
  if (family == "gemma2") {
    file.add_f32(key("attn_logit_softcapping"), c.attn_logit_softcapping);
    file.add_f32(key("final_logit_softcapping"), c.final_logit_softcapping);
  }
  if (sizes.num_experts != 0) {
    file.add_u32(key("expert_count"), c.num_experts);
    file.add_u32(key("expert_used_count"), c.num_experts_per_token);
  }
  file.add_u32("general.file_type", gguf_file_type(options.type));
  file.add_u32(key("vocab_size"), c.vocab_size);
  add_gguf_tokenizer(file, options.tokenizer_from, {.vocab_size = c.vocab_size, .bos = c.bos, .eos = c.eos, .pad = c.pad});
  file.add_u32("general.quantization_version", 2);
  return file;
}

XTRAIN_INLINE void finish_gguf(gguf_writer file, const gguf_config& c, const gguf_sizes& sizes, const save_gguf_options& options,
                               const std::vector<gguf_source>& sources, bool writes) {
  std::map<std::string, const gguf_source*, std::less<>> by_name;
  double numbers = 0.0;
  for (const gguf_source& source : sources) {
    by_name.emplace(source.name, &source);
    double product = 1.0;
    for (const std::size_t dim : source.shape) product *= static_cast<double>(dim);
    numbers += product;
  }
  if (sizes.num_experts == 0) file.add_text("general.size_label", gguf_size_label(numbers));
  if (!c.rope_factors.empty())
    file.add_tensor({.name = "rope_freqs.weight", .type = "F32", .shape = {c.rope_factors.size()}, .produce = [factors = c.rope_factors](const auto& sink) {
                       sink(factors.data(), factors.size() * sizeof(float));
                     }});
  std::set<const gguf_source*> used;
  const auto find = [&](const std::string& name) -> const gguf_source* {
    auto at = by_name.find(name);
    if (at == by_name.end())
      for (const std::string& other : c.other_names(name))
        if (at = by_name.find(other); at != by_name.end()) break;
    if (at == by_name.end()) return nullptr;
    used.insert(at->second);
    return at->second;
  };
  add_gguf_tensors(file, sizes, options.type, find);
  for (const gguf_source& source : sources)
    require<config_error>(used.contains(&source) || c.may_be_ignored(source.name), file.path(), ": '", source.name,
                          "' must have a place in a GGUF file of ", c.family, "; it has none");
  if (writes) return file.write();
  for (const gguf_tensor_to_write& tensor : file.tensors()) tensor.produce([](const void*, std::size_t) {});
}

}  // namespace detail

XTRAIN_INLINE void write_gguf(const std::string& path, const gguf_config& config, const tensor_source& weights, const save_gguf_options& options) {
  const gguf_sizes sizes = gguf_sizes_of(config, path);
  std::vector<gguf_source> sources;
  for (const auto& entry : weights.tensors()) {
    sources.push_back(gguf_source_of(*entry.second));
    sources.back().name = entry.first;
  }
  const file_tensor* copy = config.tie_word_embeddings ? weights.find(config.head + ".weight") : nullptr;
  const file_tensor* embedding = weights.find(config.embedding + ".weight");
  if (copy != nullptr && embedding != nullptr) require_tied(*copy, *embedding, path);
  detail::finish_gguf(detail::begin_gguf(path, config, sizes, options), config, sizes, options, sources, true);
}

}  // namespace xtrain
