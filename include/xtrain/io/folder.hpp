// A folder of weights: one file, or several with an index.
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

/// All tensors of a folder, whichever files they are in. Searched in this order:
///
///   <stem>.safetensors        or <stem>.safetensors.index.json and the files it names
///   pytorch_<stem>.bin        or pytorch_<stem>.bin.index.json and the files it names
///   *.safetensors             one file, or several whose names differ in a number that counts them: all of a set
///   *.bin, *.pt, *.pth        likewise: PyTorch's, llm.c's or llama2.c's
///
/// Not counted are adapters, and what trainers save beside a model (optimizer.pt, training_args.bin, ...). Files of torch.distributed.checkpoint
/// (shard-00001-model-00001-of-00001.safetensors) hold parts of tensors, which are put together in memory.
class weight_folder : public tensor_source {
 public:
  /// throws file_error when there is none of these, when a file is missing or damaged, or when index and files disagree
  explicit weight_folder(const std::string& folder, const std::string& stem = "model");

 private:
  /// Reads the file of that name, or its index; returns whether either exists.
  template <class File>
  bool read(const std::string& folder, const std::string& name);
  template <class File>
  void read_index(const std::string& folder, const std::string& path);
  /// Files that could be weights under other names.
  [[nodiscard]] static std::vector<std::string> other_files(const std::string& folder, const std::string& stem, bool safetensors);
  /// Reads files that are one set.
  void read_set(const std::string& folder, const std::vector<std::string>& names);
  /// Reads files of which each may hold a part of a tensor: metadata say where it begins.
  void read_parts(const std::vector<const safetensors_file*>& files);
};

namespace detail {

/// Whether a file with this name is an adapter, or what trainers save beside a model.
[[nodiscard]] bool is_beside_model(std::string_view name);

/// Tensors grouped by shard file, and their total bytes.
[[nodiscard]] std::pair<std::vector<std::vector<tensor_to_write>>, std::size_t> cut_into_shards(std::vector<tensor_to_write> tensors,
                                                                                                std::size_t shard_bytes);

/// The counterpart of write_weights on the other ranks, while the first rank writes alone or together with all.
void follow_weights(std::vector<tensor_to_write> tensors, std::size_t shard_bytes, file_writers* together = nullptr);

}  // namespace detail

/// Writes tensors into an existing folder, as one file or, if they exceed `shard_bytes`, as several with an
/// index. Readers see the old weights or the new ones, never a mixture: the switch is one rename. With `together`, the other ranks
/// write their parts of each file.
void write_weights(const std::string& folder, std::vector<tensor_to_write> tensors, std::size_t shard_bytes, const std::string& stem = "model",
                   file_writers* together = nullptr);

/// Creates the folder and its parents.
///   throws  file_error
void make_folder(const std::string& path);

/// Files of a folder that hold weights, but not those of its <stem>.safetensors (or its index): of another model that was saved there, in PyTorch's
/// format or as an adapter. Sorted.
[[nodiscard]] std::vector<std::string> other_weights(const std::string& folder, const std::string& stem = "model");

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/folder_impl.hpp>
#endif
