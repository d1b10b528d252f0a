// A model's tensors as they are in GGUF files: llama.cpp's names, order of rows, and types.
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

/// The type of a file's matrices. Vectors, norms, learned positions and routers are F32 in any file; where rows are no whole blocks of 32, F16 takes
/// the place of Q8_0 and Q4_0.
enum class gguf_type : std::uint8_t { f32, f16, bf16, q8_0, q4_0 };

/// "F32", as in the tensor table.
[[nodiscard]] std::string_view name_of(gguf_type type);
/// The type of that name, in small letters too; none for another name.
[[nodiscard]] std::optional<gguf_type> gguf_type_named(std::string_view name);

/// A tensor with Hugging Face's name and layout, opened when it is written.
struct gguf_source {
  std::string name{};
  std::vector<std::size_t> shape{};
  /// A view of a file, or of `storage`, which it may fill.
  std::function<file_tensor(std::vector<std::byte>& storage)> open{};
};
/// The tensor of an open file.
[[nodiscard]] gguf_source gguf_source_of(const file_tensor& tensor);

/// The sizes that decide which tensors there are, and the order of their rows.
struct gguf_sizes {
  std::string architecture{};  ///< llama.cpp's: "llama"
  std::size_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, num_experts = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false, output_bias = false, feed_forward_bias = false;
  bool all_biases = false;       ///< every module but embeddings and head has a bias
  bool normalized_head = false;  ///< rows of the head's weight are written with length 1
};

namespace detail {

/// Bytes of numbers in a type of GGUF files, whole blocks of them.
///   throws  data_error when a number is not one of the type
void put_gguf_numbers(std::span<const float> numbers, std::string_view type, const std::string& who, std::vector<std::byte>& bytes);

}  // namespace detail

/// Adds the tensors of a model to a file. Each is opened, converted and written in pieces.
///   find      the tensor of that name; null if there is none
///   throws    config_error when a tensor is missing or has another shape; while it is written, data_error for a number that the type cannot hold
void add_gguf_tensors(gguf_writer& to, const gguf_sizes& sizes, gguf_type type, const std::function<const gguf_source*(const std::string&)>& find);

/// Matrices of LoRA: the change of `module`'s weight is scale x B x A.
struct gguf_adapter_source {
  std::string module{};
  gguf_source a{}, b{};       ///< [rank, in] and [out, rank]; of an embedding [rank, vocabulary] and [hidden size, rank]
  double scale = 1.0;
  bool is_embedding = false;
};

/// Adds the tensors of an adapter, in F32, F16 or BF16, and its alpha: llama.cpp's scale is alpha / rank, with one alpha. Where that of a module is another,
/// its B is multiplied by the quotient.
///   throws  config_error when the architecture has no such module, an expert has no adapter where others have one, or the tied embedding or head has one
void add_gguf_adapter(gguf_writer& to, const gguf_sizes& sizes, gguf_type type, const std::vector<gguf_adapter_source>& modules);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/gguf_tensors_impl.hpp>
#endif
