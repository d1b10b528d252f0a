#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/io/file_tensor.hpp>

namespace xtrain {

namespace detail {

/// Without wrappers' names: DistributedDataParallel's `module.` at the front; anywhere torch.compile's `_orig_mod.`, FSDP's and recomputation's.
[[nodiscard]] inline std::string name_without_wrappers(std::string_view name) {
  std::string plain;
  for (bool first = true; !name.empty();) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool last = dot == std::string_view::npos;
    const bool wraps = !last && ((first && part == "module") || part == "_orig_mod" || part == "_fsdp_wrapped_module" || part == "_checkpoint_wrapped_module");
    if (!wraps) {
      plain += name.substr(0, last ? dot : dot + 1);
      first = false;
    }
    name = last ? std::string_view() : name.substr(dot + 1);
  }
  return plain;
}

}  // namespace detail

/// Interface of all formats. Names are without wrappers (name_without_wrappers). Tensors are views of files mapped while the source exists; see read_numbers.
class tensor_source {
 public:
  [[nodiscard]] const file_tensor* find(std::string_view name) const {
    const auto at = tensors_.find(name);
    return at == tensors_.end() ? nullptr : at->second;
  }
  [[nodiscard]] const std::map<std::string, const file_tensor*, std::less<>>& tensors() const { return tensors_; }

 protected:
  tensor_source() = default;
  ~tensor_source() = default;
  tensor_source(tensor_source&&) = default;
  tensor_source& operator=(tensor_source&&) = default;

  template <class File>
  const File& keep(const std::string& path) {
    auto file = std::make_shared<const File>(path);
    const File& kept = *file;
    files_.push_back(std::move(file));
    return kept;
  }
  /// Owner of viewed memory.
  void keep(std::shared_ptr<const void> kept) { files_.push_back(std::move(kept)); }
  ///  where   its file or folder, for errors
  ///   throws  file_error for a second tensor of that name
  void add(const file_tensor& tensor, const std::string& where) {
    const file_tensor* added = &tensor;
    if (std::string name = detail::name_without_wrappers(tensor.name); name != tensor.name) {
      auto renamed = std::make_shared<file_tensor>(tensor);
      renamed->name = std::move(name);
      added = renamed.get();
      files_.push_back(std::move(renamed));
    }
    require<file_error>(tensors_.emplace(added->name, added).second, where, ": tensor '", added->name, "' must be there once; it is there twice",
                        added == &tensor ? "" : concat(", here as '", tensor.name, "'"));
  }
  template <class File>
  void add_all(const File& file) {
    for (const file_tensor& tensor : file.tensors()) add(tensor, file.path());
  }

 private:
  std::vector<std::shared_ptr<const void>> files_;
  std::map<std::string, const file_tensor*, std::less<>> tensors_;
};

namespace detail {

/// Advice for DeepSpeed ZeRO checkpoints, with weights sharded over ranks.
inline constexpr std::string_view gather_zero =
    "DeepSpeed's ZeRO shares weights out among ranks; the checkpoint's own script gathers them: python zero_to_fp32.py CHECKPOINT OUTPUT";

}  // namespace detail

/// Refuses empty tensors: DeepSpeed's ZeRO-3 saves them for other ranks' weights.
///   throws  file_error
inline void require_numbers(const tensor_source& weights, const std::string& where) {
  std::size_t empty = 0;
  const file_tensor* first = nullptr;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (tensor->size() != 0) continue;
    if (empty++ == 0) first = tensor;
  }
  if (first == nullptr) return;
  fail<file_error>(where, ": tensors must hold numbers; ", empty, " of ", weights.tensors().size(), " hold none, the first is '", first->name, "' of shape ",
                   std::span<const std::size_t>(first->shape), ". ", detail::gather_zero);
}

/// Checks a tied head that is stored with the embedding, its parameter.
///   throws  config_error
inline void require_tied(const file_tensor& copy, const file_tensor& original, const std::string& where) {
  require<config_error>(same_values(copy, original), where, ": '", copy.name, "' must be equal to '", original.name,
                        "', because they are one parameter with tie_word_embeddings true, as given or by default; they differ. "
                        "A head of its own needs tie_word_embeddings false");
}

}  // namespace xtrain
