#pragma once

#include <unistd.h>

#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/file_ranges.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/write_together.hpp>

namespace xtrain {

namespace detail {

/// Writes this rank's ranges; data start at `begin`. A rank that cannot write still helps to collect tensors.
inline void write_own_ranges(file_ranges& file, std::size_t begin, const std::vector<tensor_to_write>& sorted) {
  std::exception_ptr problem;
  for (const tensor_to_write& tensor : sorted) {
    tensor.produce_own([&](std::size_t first, const void* data, std::size_t size) {
      if (problem) return;
      try {
        file.write_at(begin + first, data, size);
      } catch (...) {
        problem = std::current_exception();
      }
    });
    begin += tensor.bytes;
  }
  if (problem) std::rethrow_exception(problem);
  file.finish();
}

}  // namespace detail

XTRAIN_INLINE std::size_t write_safetensors_together(file_writers& ranks, const std::string& path, std::vector<tensor_to_write> tensors,
                                                     const std::map<std::string, std::string>& metadata) {
  const bool first = ranks.rank() == 0;
  detail::sort_as_written(tensors);
  std::size_t bytes = 0;
  for (const tensor_to_write& tensor : tensors) bytes += tensor.bytes;

  std::optional<atomic_file> file;
  std::size_t begin = 0;
  ranks.all_do(path, [&] {
    if (!first) return;
    const std::string header = detail::safetensors_header(path, tensors, metadata);
    file.emplace(path, concat(path, ".", ::getpid(), ".", drawn_name(), ".part"));
    file->write(header);
    file->set_size(header.size() + bytes);
    begin = header.size();
  });
  begin = ranks.sum(begin);
  file_ranges own(ranks.said_by_first(first ? file->temporary() : std::string{}));
  if (ranks.sum(own.is_there() ? 0 : 1) > 0) {
    if (first) detail::write_tensors(*file, path, tensors);
    else detail::produce_for_another(std::move(tensors));
    return 1;
  }
  ranks.all_do(path, [&] { detail::write_own_ranges(own, begin, tensors); });
  const std::size_t written = ranks.sum(own.written());
  require<file_error>(written == bytes, path, ": ranks must write ", bytes, " bytes together; they wrote ", written);
  ranks.all_do(path, [&] {
    if (first) file->commit();
  });
  return ranks.size();
}

namespace detail {

XTRAIN_INLINE std::size_t write_safetensors_with(file_writers* together, const std::string& path, std::vector<tensor_to_write> tensors) {
  if (together != nullptr) return write_safetensors_together(*together, path, std::move(tensors));
  write_safetensors(path, std::move(tensors));
  return 1;
}

XTRAIN_INLINE std::size_t follow_safetensors_with(file_writers* together, std::vector<tensor_to_write> tensors) {
  if (together != nullptr) return write_safetensors_together(*together, "files of the first rank", std::move(tensors));
  produce_for_another(std::move(tensors));
  return 1;
}

}  // namespace detail

}  // namespace xtrain
