#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// All tensors of a folder, from the first of:
///
///   <stem>.safetensors     or <stem>.safetensors.index.json with its files
///   pytorch_<stem>.bin     or pytorch_<stem>.bin.index.json with its files
///   *.safetensors          one file, or a complete set whose names differ in a count
///   *.bin, *.pt, *.pth     likewise: PyTorch's, llm.c's or llama2.c's
///
/// Ignores adapters and trainers' files (optimizer.pt, training_args.bin, ...). Files of torch.distributed.checkpoint
/// (shard-00001-model-00001-of-00001.safetensors) hold parts of tensors, joined in memory.
class weight_folder : public tensor_source {
 public:
  /// throws file_error when there is no such file, one is missing or damaged, or index and files disagree
  explicit weight_folder(const std::string& folder, const std::string& stem = "model");

 private:
  /// The file or its index; returns whether one exists.
  template <class File>
  bool read(const std::string& folder, const std::string& name);
  template <class File>
  void read_index(const std::string& folder, const std::string& path);
  /// Possible weights under other names.
  [[nodiscard]] static std::vector<std::string> other_files(const std::string& folder, const std::string& stem, bool safetensors);
  /// Files of one set.
  void read_set(const std::string& folder, const std::vector<std::string>& names);
  /// Files with parts of tensors; metadata say where parts begin.
  void read_parts(const std::vector<const safetensors_file*>& files);
};

namespace detail {

/// Adapters and trainers' files.
[[nodiscard]] bool is_beside_model(std::string_view name);

/// Tensors per shard file, and total bytes.
[[nodiscard]] std::pair<std::vector<std::vector<tensor_to_write>>, std::size_t> cut_into_shards(std::vector<tensor_to_write> tensors,
                                                                                                std::size_t shard_bytes);

/// write_weights on other ranks.
void follow_weights(std::vector<tensor_to_write> tensors, std::size_t shard_bytes, file_writers* together = nullptr);

}  // namespace detail

/// Writes tensors into a folder: one file, or beyond `shard_bytes` several with an index. One rename switches from old to new weights. `together`: other
/// ranks write their parts.
void write_weights(const std::string& folder, std::vector<tensor_to_write> tensors, std::size_t shard_bytes, const std::string& stem = "model",
                   file_writers* together = nullptr);

/// With parents.
///   throws  file_error
void make_folder(const std::string& path);

/// Weight files other than <stem>.safetensors and its index: another model's, PyTorch's or an adapter. Sorted.
[[nodiscard]] std::vector<std::string> other_weights(const std::string& folder, const std::string& stem = "model");

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/folder_impl.hpp>
#endif
