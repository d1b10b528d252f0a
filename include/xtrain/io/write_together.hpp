// A safetensors file written by several ranks: the first creates header and full length, each writes its ranges, then a rename. Without a shared file system
// the first writes all.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {  // namespace detail

/// Called by every rank with equal tensors; the first rank's name counts. Bytes as write_safetensors. Ranks look for the file's random temporary name to
/// detect a shared file system.
///   returns  ranks that wrote: all, or 1
///   throws   file_error on every rank if one fails; an existing file is then unchanged
std::size_t write_safetensors_together(file_writers& ranks, const std::string& path, std::vector<tensor_to_write> tensors,
                                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

namespace detail {

/// `together` null: by the first rank alone.
std::size_t write_safetensors_with(file_writers* together, const std::string& path, std::vector<tensor_to_write> tensors);
/// Counterpart on other ranks.
std::size_t follow_safetensors_with(file_writers* together, std::vector<tensor_to_write> tensors);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/write_together_impl.hpp>
#endif
