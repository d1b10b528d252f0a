// A model's tensors in GGUF: llama.cpp's names, row order, types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/io/file_tensor.hpp>

namespace xtrain {

/// Of matrices. Vectors, norms, learned positions and routers are F32; rows not in blocks of 32 are F16 in place of Q8_0 and Q4_0.
enum class gguf_type : std::uint8_t { f32, f16, bf16, q8_0, q4_0 };

/// Name in the tensor table: "F32".
[[nodiscard]] std::string_view name_of(gguf_type type);
/// In any case; else nullopt.
[[nodiscard]] std::optional<gguf_type> gguf_type_named(std::string_view name);

/// A tensor in Hugging Face's layout, opened when written.
struct gguf_source {
  std::string name{};
  std::vector<std::size_t> shape{};
  /// A view of a file or of `storage`, which it may fill.
  std::function<file_tensor(std::vector<std::byte>& storage)> open{};
};
/// Of an open file.
[[nodiscard]] gguf_source gguf_source_of(const file_tensor& tensor);

/// Sizes that decide tensors and row order.
struct gguf_sizes {
  std::string architecture{};  ///< llama.cpp's: "llama"
  std::size_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, num_experts = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false, output_bias = false, feed_forward_bias = false;
  bool all_biases = false;       ///< of all modules but embeddings and head
  bool normalized_head = false;  ///< the head's rows are written with length 1
};

namespace detail {

/// Numbers in a GGUF type, entire blocks.
///   throws  data_error for a number beyond the type
void put_gguf_numbers(std::span<const float> numbers, std::string_view type, const std::string& who, std::vector<std::byte>& bytes);

}  // namespace detail

/// Adds a model's tensors; each is opened, converted and written in pieces.
///   find    a tensor by name, or null
///   throws  config_error when a tensor is missing or has another shape; later data_error for a number beyond the type
void add_gguf_tensors(gguf_writer& to, const gguf_sizes& sizes, gguf_type type, const std::function<const gguf_source*(const std::string&)>& find);

/// LoRA of `module`: scale x B x A.
struct gguf_adapter_source {
  std::string module{};
  gguf_source a{}, b{};       ///< [rank, in], [out, rank]; embedding: [rank, vocabulary], [hidden size, rank]
  double scale = 1.0;
  bool is_embedding = false;
};

/// Adds an adapter in F32, F16 or BF16. llama.cpp has one alpha with scale alpha / rank: a module's B is multiplied by the quotient of scales.
///   throws  config_error for a module that the architecture lacks, an expert without an adapter among others, the tied embedding or head
void add_gguf_adapter(gguf_writer& to, const gguf_sizes& sizes, gguf_type type, const std::vector<gguf_adapter_source>& modules);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/gguf_tensors_impl.hpp>
#endif
