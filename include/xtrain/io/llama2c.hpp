// llama2.c's files: LLaMA in fp32, tensors without names.
//
//   version 0   28 bytes: dim, hidden dim, layers, heads, key/value heads, vocabulary (negative: untied head), sequence length, int32 each; tensors, with
//               tables of rotary angles
//   version 1   256 bytes: "ak42" as an integer, 1, the same seven sizes, one byte (1: tied head); tensors
//
// Rows of queries and keys are interleaved (Meta's order). llama2.c hard-codes the epsilon of norms, 1e-5, and the base of rotary angles, 10000.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/nameless.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// Layouts of llama2.c's files.
enum class llama2c_version : std::int32_t { legacy = 0, v1 = 1 };

namespace detail {

inline constexpr std::int32_t llama2c_magic = 0x616b3432;  // "24ka"
inline constexpr double llama2c_epsilon = 1e-5, llama2c_rope_theta = 10000.0;

struct llama2c_sizes {
  std::size_t hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, vocab_size = 0, max_position_embeddings = 0;
  bool tie_word_embeddings = true;
};

/// Of a file or a config.
///   throws  config_error
inline void check(const llama2c_sizes& s, const std::string& who) {
  constexpr std::size_t limit = std::size_t{1} << 31, max_layers = 4096;
  for (const std::size_t size : {s.hidden_size, s.intermediate_size, s.num_layers, s.num_heads, s.num_kv_heads, s.vocab_size, s.max_position_embeddings})
    require<config_error>(size > 0 && size < limit, who, ": sizes must be from 1 to 2^31 - 1; one is ", size);
  require<config_error>(s.num_layers <= max_layers, who, ": num_layers must be at most ", max_layers, "; given ", s.num_layers);
  require<config_error>(s.hidden_size % s.num_heads == 0 && s.hidden_size / s.num_heads % 2 == 0, who, ": hidden_size (", s.hidden_size,
                        ") must be an even multiple of num_heads (", s.num_heads, ")");
  require<config_error>(s.num_heads % s.num_kv_heads == 0, who, ": num_heads (", s.num_heads, ") must be divisible by key/value heads (", s.num_kv_heads, ")");
}

/// Tensors in file order.
[[nodiscard]] inline std::vector<nameless_tensor> llama2c_tensors(const llama2c_sizes& s, llama2c_version version) {
  const std::size_t d = s.hidden_size / s.num_heads, kv_width = s.num_kv_heads * d;
  std::vector<nameless_tensor> all;
  const auto layers = [&](const char* name, std::vector<std::size_t> shape, arrangement how = arrangement::same, std::size_t heads = 0) {
    for (std::size_t i = 0; i < s.num_layers; ++i)
      all.push_back({.name = concat("model.layers.", i, ".", name, ".weight"), .shape = shape, .how = how, .heads = heads});
  };
  const nameless_tensor embedding{.name = "model.embed_tokens.weight", .shape = {s.vocab_size, s.hidden_size}},
      final_norm{.name = "model.norm.weight", .shape = {s.hidden_size}}, head{.name = "lm_head.weight", .shape = {s.vocab_size, s.hidden_size}};
  const auto attention = [&] {
    layers("self_attn.q_proj", {s.hidden_size, s.hidden_size}, arrangement::interleaved, s.num_heads);
    layers("self_attn.k_proj", {kv_width, s.hidden_size}, arrangement::interleaved, s.num_kv_heads);
    layers("self_attn.v_proj", {kv_width, s.hidden_size});
    layers("self_attn.o_proj", {s.hidden_size, s.hidden_size});
  };
  const auto feed_forward = [&] {
    layers("mlp.gate_proj", {s.intermediate_size, s.hidden_size});
    layers("mlp.down_proj", {s.hidden_size, s.intermediate_size});
    layers("mlp.up_proj", {s.intermediate_size, s.hidden_size});
  };
  if (version == llama2c_version::legacy) {
    all.push_back(embedding);
    layers("input_layernorm", {s.hidden_size});
    attention();
    layers("post_attention_layernorm", {s.hidden_size});
    feed_forward();
    all.push_back(final_norm);
    all.push_back({.padding = s.max_position_embeddings * d});  // per position: d/2 cosines, d/2 sines
  } else {
    layers("input_layernorm", {s.hidden_size});
    layers("post_attention_layernorm", {s.hidden_size});
    all.push_back(final_norm);
    all.push_back(embedding);
    attention();
    feed_forward();
  }
  if (!s.tie_word_embeddings) all.push_back(head);
  return all;
}

}  // namespace detail

/// A llama2.c file with Hugging Face's names and layout.
class llama2c_file {
 public:
  /// The magic number (from version 1 on), or plausible sizes.
  [[nodiscard]] static bool begins_as_one(std::string_view file) {
    if (has_magic(file)) return true;
    std::array<std::int32_t, 7> sizes{};
    if (file.size() < sizeof(sizes)) return false;
    std::memcpy(sizes.data(), file.data(), sizeof(sizes));
    constexpr std::int32_t largest = 1 << 24;
    return std::all_of(sizes.begin(), sizes.end(),
                       [&](const std::int32_t& size) { return size <= largest && (size > 0 || (&size == &sizes[5] && size >= -largest)); });
  }

  /// throws file_error, config_error when header and file contradict
  explicit llama2c_file(const std::string& path) : file_(path), config_(json::object(), path) {
    std::size_t begin = 28;
    const bool legacy = !has_magic(file_.text());
    detail::llama2c_sizes sizes;
    if (legacy) {
      sizes = read_sizes(0);
      sizes.tie_word_embeddings = vocabulary_ > 0;
    } else {
      begin = 256;
      const std::int32_t version = number_at(4);
      require<file_error>(version == 1, path, ": must be a llama2.c file of version 0 or 1; it is of version ", version,
                          version == 2 ? ", whose weights are quantized" : "");
      sizes = read_sizes(8);
      require<file_error>(file_.size() >= begin, path, ": must have a header of ", begin, " bytes; the file has ", file_.size());
      require<file_error>(vocabulary_ > 0, path, ": must be a llama2.c file; size 6 of 7 in its header is ", vocabulary_);
      sizes.tie_word_embeddings = file_.text()[36] != '\0';
    }
    detail::check(sizes, path);
    tensors_ = detail::named(detail::llama2c_tensors(sizes, legacy ? llama2c_version::legacy : llama2c_version::v1),
                             std::as_bytes(std::span(file_.text())).subspan(begin), "F32", path);
    describe(sizes);
  }

  [[nodiscard]] const std::vector<file_tensor>& tensors() const { return tensors_; }
  /// Equivalent config.json.
  [[nodiscard]] const json_settings& config() const { return config_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  [[nodiscard]] static bool has_magic(std::string_view file) { return file.starts_with("24ka"); }
  [[nodiscard]] std::int32_t number_at(std::size_t at) const {
    require<file_error>(file_.size() >= at + 4, file_.path(), ": must be a llama2.c file; it has ", file_.size(),
                        " bytes, the header is longer");
    std::int32_t value = 0;
    std::memcpy(&value, file_.data() + at, 4);
    return value;
  }
  [[nodiscard]] detail::llama2c_sizes read_sizes(std::size_t at) {
    const auto size = [&](std::size_t i) {
      const std::int32_t value = number_at(at + 4 * i);
      require<file_error>(value > 0, file_.path(), ": must be a llama2.c file; size ", i + 1, " of 7 in its header is ", value);
      return static_cast<std::size_t>(value);
    };
    vocabulary_ = number_at(at + 20);
    const std::int64_t vocabulary = vocabulary_;
    return {.hidden_size = size(0),
            .intermediate_size = size(1),
            .num_layers = size(2),
            .num_heads = size(3),
            .num_kv_heads = size(4),
            .vocab_size = static_cast<std::size_t>(vocabulary < 0 ? -vocabulary : vocabulary),
            .max_position_embeddings = size(6)};
  }
  void describe(const detail::llama2c_sizes& s) {
    config_.set("architectures", json::array({"LlamaForCausalLM"}));
    config_.set("model_type", "llama");
    config_.set("hidden_act", "silu");
    config_.set("hidden_size", s.hidden_size);
    config_.set("intermediate_size", s.intermediate_size);
    config_.set("num_hidden_layers", s.num_layers);
    config_.set("num_attention_heads", s.num_heads);
    config_.set("num_key_value_heads", s.num_kv_heads);
    config_.set("vocab_size", s.vocab_size);
    config_.set("max_position_embeddings", s.max_position_embeddings);
    config_.set("rms_norm_eps", detail::llama2c_epsilon);
    config_.set("rope_theta", detail::llama2c_rope_theta);
    config_.set("tie_word_embeddings", s.tie_word_embeddings);
    config_.set("bos_token_id", 1);
    config_.set("eos_token_id", 2);
    config_.set("torch_dtype", "float32");
  }

  mapped_file file_;
  std::int32_t vocabulary_ = 0;
  std::vector<file_tensor> tensors_;
  json_settings config_;
};

/// Writes a LLaMA in fp32, one tensor at a time.
///   config   settings of config.json
///   returns  names of tensors left out: not in the format, without information
///   throws   config_error for a model that llama2.c computes differently; file_error
inline std::vector<std::string> write_llama2c(const std::string& path, const tensor_source& from, const json_settings& config,
                                              llama2c_version version = llama2c_version::legacy) {
  const std::string& who = config.who();
  const std::string type = config.text_or("", {"model_type"});
  require<config_error>(type == "llama", who, ": must describe a 'llama' model to be written for llama2.c; its model_type is '", type, "'");
  const json_settings rope = config.inner({"rope_parameters", "rope_scaling"});
  const std::string scaling = rope.text_or("default", {"rope_type", "type"});
  const double base = rope.number_or(config.number_or(detail::llama2c_rope_theta, {"rope_theta"}), {"rope_theta"}),
               epsilon = config.number_or(1e-6, {"rms_norm_eps"});
  require<config_error>(scaling == "default" && base == detail::llama2c_rope_theta && epsilon == detail::llama2c_epsilon, who,
                        ": llama2.c has rotary angles of base 10000, unscaled, and norms of epsilon 1e-05; the model has base ", base,
                        ", scaling '", scaling, "', epsilon ", epsilon);
  detail::llama2c_sizes sizes{.hidden_size = config.size({"hidden_size"}),
                              .intermediate_size = config.size({"intermediate_size"}),
                              .num_layers = config.size({"num_hidden_layers"}),
                              .num_heads = config.size({"num_attention_heads"}),
                              .num_kv_heads = 0,
                              .vocab_size = config.size({"vocab_size"}),
                              .max_position_embeddings = config.size_or(2048, {"max_position_embeddings"}),
                              .tie_word_embeddings = config.flag_or(false, {"tie_word_embeddings"})};
  sizes.num_kv_heads = config.size_or(sizes.num_heads, {"num_key_value_heads"});
  detail::check(sizes, who);
  const std::size_t d = sizes.hidden_size / sizes.num_heads;
  require<config_error>(config.size_or(d, {"head_dim"}) == d, who, ": heads must have hidden_size / num_heads = ", d,
                        " channels for llama2.c; they have ", config.size_or(d, {"head_dim"}));
  const auto tensors = detail::llama2c_tensors(sizes, version);
  const std::vector<std::string> left_out = detail::left_out(from, tensors, who, [&](std::string_view name) {
    return name.ends_with(".rotary_emb.inv_freq") || (sizes.tie_word_embeddings && name == "lm_head.weight");
  });

  if (const file_tensor* head = from.find("lm_head.weight"); sizes.tie_word_embeddings && head != nullptr)
    require_tied(*head, *from.find("model.embed_tokens.weight"), who);

  std::vector<std::int32_t> header;
  if (version == llama2c_version::v1) header = {detail::llama2c_magic, 1};
  for (const std::size_t size :
       {sizes.hidden_size, sizes.intermediate_size, sizes.num_layers, sizes.num_heads, sizes.num_kv_heads, sizes.vocab_size, sizes.max_position_embeddings})
    header.push_back(static_cast<std::int32_t>(size));
  if (version == llama2c_version::legacy) {
    if (!sizes.tie_word_embeddings) header[5] = -header[5];
  } else {
    header.push_back(sizes.tie_word_embeddings ? 1 : 0);
    header.resize(64);
  }
  atomic_file file(path);
  file.write(header.data(), header.size() * sizeof(std::int32_t));
  for (const nameless_tensor& tensor : tensors) {
    if (!tensor.name.empty()) {
      detail::write_nameless<float>(file, tensor, *from.find(tensor.name), who);
      continue;
    }
    std::vector<float> row(d / 2);
    for (const bool sines : {false, true}) {
      for (std::size_t t = 0; t < sizes.max_position_embeddings; ++t) {
        for (std::size_t i = 0; i < row.size(); ++i) {
          const float power = static_cast<float>(2 * i) / static_cast<float>(d);  // fp32, as llama2.c
          const float angle = static_cast<float>(t) * (1.0f / std::pow(static_cast<float>(base), power));
          row[i] = sines ? std::sin(angle) : std::cos(angle);
        }
        file.write(row.data(), row.size() * sizeof(float));
      }
    }
  }
  file.commit();
  return left_out;
}

}  // namespace xtrain
