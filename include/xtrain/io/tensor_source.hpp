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

}  // namespace xtrain
