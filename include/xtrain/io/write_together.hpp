// A safetensors file that ranks write together: the first rank creates it with its header and full length, each rank writes its own ranges,
// and the file is renamed when all are done. If the ranks do not share a file system, the first rank writes all of it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {  // namespace detail

/// Called by every rank with the same tensors; the first rank's file name is used. The bytes equal those of write_safetensors.
/// To detect a shared file system, all ranks look for the file under its random temporary name.
///   returns the number of ranks that wrote: all of them, or 1
///   throws  file_error on every rank if one cannot write its part; the previous file of that name is then untouched
std::size_t write_safetensors_together(file_writers& ranks, const std::string& path, std::vector<tensor_to_write> tensors,
                                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

namespace detail {

/// The same, or by the first rank alone if `together` is null.
std::size_t write_safetensors_with(file_writers* together, const std::string& path, std::vector<tensor_to_write> tensors);
/// The counterpart on the other ranks.
std::size_t follow_safetensors_with(file_writers* together, std::vector<tensor_to_write> tensors);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/write_together_impl.hpp>
#endif
