// llm.c's files: GPT-2, and LLaMA 3 (read only). 256 int32, then tensors without names; each kind of tensor is consecutive for all layers.
//
//   [0] 20240326 (GPT-2) or 20240803 (LLaMA 3)   [1] 3: fp32, 5: bf16
//   GPT-2     [2] sequence length  [3] vocabulary  [4] layers  [5] heads  [6] hidden size  [7] embedding rows, with padding at the end
//   LLaMA 3   [2] sequence length  [3] vocabulary  [4] layers  [5] heads  [6] key/value heads  [7] hidden size, then one of two variants:
//               older   [8] feed-forward multiplier  [9] multiple of  [10] epsilon of norms  [11] base of rotary angles  [12] scaled or not
//               newer   [8] multiple of  [9] scaled or not  [10], [11] version; then 256 fp32: [0] multiplier  [1] epsilon  [2] base
//
// The older variant truncates fractions to integers (multiplier 1.3: 1, epsilon: 0): the feed-forward size comes from the file size, the epsilon is LLaMA 3's.
// Linear weights are [out, in]; Hugging Face's GPT-2 transposes them.
#pragma once

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

namespace detail {

inline constexpr std::int32_t llmc_gpt2 = 20240326, llmc_llama3 = 20240803;
inline constexpr std::int32_t llmc_fp32 = 3, llmc_bf16 = 5;
inline constexpr std::size_t llmc_header = 256;

struct llmc_sizes {
  std::size_t max_position_embeddings = 0, vocab_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, hidden_size = 0, intermediate_size = 0;
  std::size_t embedding_rows = 0;  ///< vocabulary, in multiples of 128
};

/// Of a file or a config.
///   throws  config_error
inline void check(const llmc_sizes& s, const std::string& who) {
  constexpr std::size_t limit = std::size_t{1} << 31, max_layers = 4096;
  for (const std::size_t size : {s.max_position_embeddings, s.vocab_size, s.num_layers, s.num_heads, s.num_kv_heads, s.hidden_size,
                                 s.intermediate_size, s.embedding_rows})
    require<config_error>(size > 0 && size < limit, who, ": sizes must be from 1 to 2^31 - 1; one is ", size);
  require<config_error>(s.num_layers <= max_layers, who, ": num_layers must be at most ", max_layers, "; given ", s.num_layers);
  require<config_error>(s.hidden_size % s.num_heads == 0, who, ": hidden_size (", s.hidden_size, ") must be divisible by num_heads (", s.num_heads, ")");
  require<config_error>(s.num_heads % s.num_kv_heads == 0, who, ": num_heads (", s.num_heads, ") must be divisible by key/value heads (", s.num_kv_heads, ")");
  require<config_error>(s.vocab_size <= s.embedding_rows, who, ": the embedding must have a row per token; it has ", s.embedding_rows,
                        " for ", s.vocab_size);
}

/// GPT-2's tensors in file order.
[[nodiscard]] inline std::vector<nameless_tensor> llmc_gpt2_tensors(const llmc_sizes& s) {
  std::vector<nameless_tensor> all;
  const auto layers = [&](const char* name, std::vector<std::size_t> shape) {
    const auto how = shape.size() == 2 ? arrangement::transposed : arrangement::same;
    for (std::size_t i = 0; i < s.num_layers; ++i) all.push_back({.name = concat("transformer.h.", i, ".", name), .shape = shape, .how = how});
  };
  const std::size_t c = s.hidden_size, f = s.intermediate_size;
  all.push_back({.name = "transformer.wte.weight", .shape = {s.vocab_size, c}, .padding = (s.embedding_rows - s.vocab_size) * c});
  all.push_back({.name = "transformer.wpe.weight", .shape = {s.max_position_embeddings, c}});
  layers("ln_1.weight", {c});
  layers("ln_1.bias", {c});
  layers("attn.c_attn.weight", {c, 3 * c});
  layers("attn.c_attn.bias", {3 * c});
  layers("attn.c_proj.weight", {c, c});
  layers("attn.c_proj.bias", {c});
  layers("ln_2.weight", {c});
  layers("ln_2.bias", {c});
  layers("mlp.c_fc.weight", {c, f});
  layers("mlp.c_fc.bias", {f});
  layers("mlp.c_proj.weight", {f, c});
  layers("mlp.c_proj.bias", {c});
  all.push_back({.name = "transformer.ln_f.weight", .shape = {c}});
  all.push_back({.name = "transformer.ln_f.bias", .shape = {c}});
  return all;
}

/// LLaMA 3's tensors in file order.
[[nodiscard]] inline std::vector<nameless_tensor> llmc_llama3_tensors(const llmc_sizes& s) {
  std::vector<nameless_tensor> all;
  const auto add = [&](std::size_t i, const char* name, std::vector<std::size_t> shape, std::size_t heads = 0) {
    all.push_back({.name = concat("model.layers.", i, ".", name, ".weight"),
                   .shape = std::move(shape),
                   .how = heads > 0 ? arrangement::interleaved : arrangement::same,
                   .heads = heads});
  };
  const auto layers = [&](const char* name, const std::vector<std::size_t>& shape) {
    for (std::size_t i = 0; i < s.num_layers; ++i) add(i, name, shape);
  };
  const std::size_t c = s.hidden_size, f = s.intermediate_size, kv = s.num_kv_heads * (c / s.num_heads);
  all.push_back({.name = "model.embed_tokens.weight", .shape = {s.vocab_size, c}});
  layers("input_layernorm", {c});
  for (std::size_t i = 0; i < s.num_layers; ++i) {  // fused in the file
    add(i, "self_attn.q_proj", {c, c}, s.num_heads);
    add(i, "self_attn.k_proj", {kv, c}, s.num_kv_heads);
    add(i, "self_attn.v_proj", {kv, c});
  }
  layers("self_attn.o_proj", {c, c});
  layers("post_attention_layernorm", {c});
  layers("mlp.up_proj", {f, c});
  layers("mlp.gate_proj", {f, c});
  layers("mlp.down_proj", {c, f});
  all.push_back({.name = "model.norm.weight", .shape = {c}});
  all.push_back({.name = "lm_head.weight", .shape = {s.vocab_size, c}});
  return all;
}

}  // namespace detail

/// An llm.c file with Hugging Face's names and layout.
class llmc_file {
 public:
  /// The magic number of an llm.c model.
  [[nodiscard]] static bool begins_as_one(std::string_view file) {
    std::int32_t first = 0;
    if (file.size() >= sizeof(first)) std::memcpy(&first, file.data(), sizeof(first));
    return first == detail::llmc_gpt2 || first == detail::llmc_llama3;
  }

  /// throws file_error, config_error when header and file contradict
  explicit llmc_file(const std::string& path) : file_(path), config_(json::object(), path) {
    require<file_error>(begins_as_one(file_.text()) && file_.size() >= sizeof(header_), path,
                        ": must be a model of llm.c, with a header of ", sizeof(header_), " bytes; it is not");
    std::memcpy(header_.data(), file_.data(), sizeof(header_));
    require<file_error>(header_[1] == detail::llmc_fp32 || header_[1] == detail::llmc_bf16, path,
                        ": must be of version 3 (fp32) or 5 (bf16); it is of version ", header_[1]);
    if (header_[0] == detail::llmc_gpt2) read_gpt2();
    else read_llama3();
    config_.set("torch_dtype", header_[1] == detail::llmc_bf16 ? "bfloat16" : "float32");
  }

  [[nodiscard]] const std::vector<file_tensor>& tensors() const { return tensors_; }
  /// Equivalent config.json.
  [[nodiscard]] const json_settings& config() const { return config_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  [[nodiscard]] std::size_t size_at(std::size_t i) const {
    require<file_error>(header_[i] > 0, file_.path(), ": sizes in its header must be positive; number ", i, " is ", header_[i]);
    return static_cast<std::size_t>(header_[i]);
  }
  [[nodiscard]] std::string_view dtype() const { return header_[1] == detail::llmc_bf16 ? "BF16" : "F32"; }
  [[nodiscard]] std::span<const std::byte> bytes_from(std::size_t begin) const {
    return std::as_bytes(std::span(file_.text())).subspan(begin);
  }

  void read_gpt2() {
    const std::size_t width = size_at(6);
    const detail::llmc_sizes s{.max_position_embeddings = size_at(2),
                               .vocab_size = size_at(3),
                               .num_layers = size_at(4),
                               .num_heads = size_at(5),
                               .num_kv_heads = size_at(5),
                               .hidden_size = width,
                               .intermediate_size = 4 * width,
                               .embedding_rows = size_at(7)};
    detail::check(s, file_.path());
    tensors_ = detail::named(detail::llmc_gpt2_tensors(s), bytes_from(sizeof(header_)), dtype(), file_.path());
    config_.set("architectures", json::array({"GPT2LMHeadModel"}));
    config_.set("model_type", "gpt2");
    config_.set("activation_function", "gelu_new");
    config_.set("vocab_size", s.vocab_size);
    config_.set("n_positions", s.max_position_embeddings);
    config_.set("n_ctx", s.max_position_embeddings);
    config_.set("n_embd", s.hidden_size);
    config_.set("n_layer", s.num_layers);
    config_.set("n_head", s.num_heads);
    config_.set("n_inner", s.intermediate_size);
    config_.set("layer_norm_epsilon", 1e-5);
    for (const char* dropout : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config_.set(dropout, 0.0);  // llm.c has none
    config_.set("tie_word_embeddings", true);
    if (s.vocab_size == 50257) {
      config_.set("bos_token_id", 50256);
      config_.set("eos_token_id", 50256);
    }
  }

  void read_llama3() {
    const std::string& who = file_.path();
    // theta is large, a minor version is not
    const bool older = header_[11] >= 1000;
    const std::size_t begin = older ? sizeof(header_) : 2 * sizeof(header_);
    require<file_error>(file_.size() >= begin, who, ": must have a header of ", begin, " bytes; the file has ", file_.size());
    double epsilon = 1e-5, base = header_[11];
    if (!older) {
      std::array<float, 3> fractions{};
      std::memcpy(fractions.data(), file_.data() + sizeof(header_), sizeof(fractions));
      epsilon = shortest(fractions[1]);
      base = shortest(fractions[2]);
      require<config_error>(epsilon > 0 && epsilon < 1 && base >= 1 && base < 1e30, who,
                            ": the epsilon of norms must be between 0 and 1 and the base of rotary angles from 1 on; they are ", epsilon,
                            " and ", base);
    }
    detail::llmc_sizes s{.max_position_embeddings = size_at(2),
                         .vocab_size = size_at(3),
                         .num_layers = size_at(4),
                         .num_heads = size_at(5),
                         .num_kv_heads = size_at(6),
                         .hidden_size = size_at(7),
                         .intermediate_size = 1,
                         .embedding_rows = size_at(3)};
    detail::check(s, who);
    require<config_error>(s.hidden_size / s.num_heads % 2 == 0, who, ": heads must have an even number of channels; they have ", s.hidden_size / s.num_heads);
    // feed-forward size: from elements left after tensors independent of it
    const std::size_t per_channel = 3 * s.num_layers * s.hidden_size, width = bits_of(dtype()) / 8,
                      others = detail::numbers_in(detail::llmc_llama3_tensors(s), who) - per_channel, all = (file_.size() - begin) / width;
    require<file_error>(all > others && (all - others) % per_channel == 0, who, ": must have ", others, " numbers and ", per_channel,
                        " for every channel of the feed-forward layers, as its header says; it has ", all, ". Is the file cut short?");
    s.intermediate_size = (all - others) / per_channel;
    detail::check(s, who);
    tensors_ = detail::named(detail::llmc_llama3_tensors(s), bytes_from(begin), dtype(), who);
    config_.set("architectures", json::array({"LlamaForCausalLM"}));
    config_.set("model_type", "llama");
    config_.set("hidden_act", "silu");
    config_.set("vocab_size", s.vocab_size);
    config_.set("max_position_embeddings", s.max_position_embeddings);
    config_.set("hidden_size", s.hidden_size);
    config_.set("intermediate_size", s.intermediate_size);
    config_.set("num_hidden_layers", s.num_layers);
    config_.set("num_attention_heads", s.num_heads);
    config_.set("num_key_value_heads", s.num_kv_heads);
    config_.set("rms_norm_eps", epsilon);
    config_.set("rope_theta", base);
    if (header_[older ? 12 : 9] != 0)
      config_.set("rope_scaling", detail::literal_json(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, )"
                                                        R"("original_max_position_embeddings": 8192})"));
    config_.set("tie_word_embeddings", false);
    if (s.vocab_size == 128256) {
      config_.set("bos_token_id", 128000);
      config_.set("eos_token_id", 128001);
    }
  }

  /// The double of the float's shortest decimal text: 1e-5f gives 1e-5.
  [[nodiscard]] static double shortest(float value) {
    double result = value;
    const std::string digits = concat(value);
    std::from_chars(digits.data(), digits.data() + digits.size(), result);
    return result;
  }

  mapped_file file_;
  std::array<std::int32_t, detail::llmc_header> header_{};
  std::vector<file_tensor> tensors_;
  json_settings config_;
};

/// Writes a GPT-2 in fp32 or bf16, one tensor at a time.
///   config   settings of config.json
///   returns  names of tensors left out: not in the format, without information
///   throws   config_error for a model that llm.c computes differently; file_error
template <dtype T>
requires(std::is_same_v<T, float> || std::is_same_v<T, bf16>) std::vector<std::string> write_llmc(const std::string& path,
                                                                                                  const tensor_source& from,
                                                                                                  const json_settings& config) {
  const std::string& who = config.who();
  const std::string type = config.text_or("", {"model_type"});
  require<config_error>(type == "gpt2", who, ": must describe a 'gpt2' model to be written for llm.c; its model_type is '", type, "'");
  constexpr std::size_t rows = 128;  // multiple of embedding rows
  const std::size_t width = config.size({"n_embd", "hidden_size"}), vocabulary = config.size({"vocab_size"}),
                    heads = config.size({"n_head", "num_attention_heads"});
  const detail::llmc_sizes s{.max_position_embeddings = config.size({"n_positions", "max_position_embeddings"}),
                             .vocab_size = vocabulary,
                             .num_layers = config.size({"n_layer", "num_hidden_layers"}),
                             .num_heads = heads,
                             .num_kv_heads = heads,
                             .hidden_size = width,
                             .intermediate_size = config.size_or(4 * width, {"n_inner", "intermediate_size"}),
                             .embedding_rows = (vocabulary + rows - 1) / rows * rows};
  detail::check(s, who);
  const double epsilon = config.number_or(1e-5, {"layer_norm_epsilon"});
  require<config_error>(s.intermediate_size == 4 * s.hidden_size && epsilon == 1e-5 && config.flag_or(true, {"tie_word_embeddings"}), who,
                        ": llm.c has an intermediate_size of 4 hidden_size, norms of epsilon 1e-05 and tied word embeddings; the model has ",
                        s.intermediate_size, " for a hidden_size of ", s.hidden_size, ", epsilon ", epsilon,
                        ", tie_word_embeddings: ", config.flag_or(true, {"tie_word_embeddings"}));
  auto tensors = detail::llmc_gpt2_tensors(s);
  constexpr std::string_view prefix = "transformer.";
  if (from.find(tensors.front().name) == nullptr)  // files of the first release have no prefix
    for (nameless_tensor& tensor : tensors) tensor.name.erase(0, prefix.size());
  const std::vector<std::string> left_out = detail::left_out(from, tensors, who, [](std::string_view name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name == "lm_head.weight";
  });
  if (const file_tensor* head = from.find("lm_head.weight")) require_tied(*head, *from.find(tensors.front().name), who);
  std::array<std::int32_t, detail::llmc_header> header{};
  header[0] = detail::llmc_gpt2;
  header[1] = std::is_same_v<T, float> ? detail::llmc_fp32 : detail::llmc_bf16;
  std::size_t next = 2;
  for (const std::size_t size : {s.max_position_embeddings, s.vocab_size, s.num_layers, s.num_heads, s.hidden_size, s.embedding_rows})
    header[next++] = static_cast<std::int32_t>(size);
  atomic_file file(path);
  file.write(header.data(), sizeof(header));
  for (const nameless_tensor& tensor : tensors) detail::write_nameless<T>(file, tensor, *from.find(tensor.name), who);
  file.commit();
  return left_out;
}

}  // namespace xtrain
