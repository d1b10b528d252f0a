// Tensors by name, independent of files and formats.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/io/file_tensor.hpp>

namespace xtrain {

/// The common interface of all formats. The files stay mapped as long as the source exists; tensors are views of them, read in pieces
/// with read_numbers.
class tensor_source {
 public:
  /// Null when there is no tensor of that name.
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

  /// Opens a file of a format and keeps it open.
  template <class File>
  const File& keep(const std::string& path) {
    auto file = std::make_shared<const File>(path);
    const File& kept = *file;
    files_.push_back(std::move(file));
    return kept;
  }
  void add(const file_tensor& tensor) { tensors_.emplace(tensor.name, &tensor); }
  template <class File>
  void add_all(const File& file) {
    for (const file_tensor& tensor : file.tensors()) add(tensor);
  }

 private:
  std::vector<std::shared_ptr<const void>> files_;
  std::map<std::string, const file_tensor*, std::less<>> tensors_;
};

/// Checks a tensor that is not loaded because the model has one parameter for it and another: a tied head that is stored beside the embedding.
///   throws  config_error
inline void require_tied(const file_tensor& copy, const file_tensor& original, const std::string& where) {
  require<config_error>(same_values(copy, original), where, ": '", copy.name, "' must be equal to '", original.name,
                        "', because they are one parameter with tie_word_embeddings true, as given or by default; they differ. "
                        "A head of its own needs tie_word_embeddings false");
}

}  // namespace xtrain
