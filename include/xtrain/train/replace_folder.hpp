// Atomic replacement of a folder: a complete folder exists at every moment.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain::detail {

inline constexpr std::string_view replaced_folder = ".replaced";

[[nodiscard]] int exchange_names(const char* one, const char* other);

/// Renames `part` to `whole` and removes the previous `whole`. Some file systems (NFS, FUSE) cannot exchange two names: there the
/// old folder is briefly named <whole>.replaced; see find_replaced_folders.
///   throws  file_error: then `whole` is unchanged
void replace_folder(const std::string& part, const std::string& whole, int (*exchange)(const char*, const char*) = exchange_names);

/// Recovery from a killed replacement in `parent`: restores the old folder's name unless the new one has it.
void find_replaced_folders(const std::string& parent);

}  // namespace xtrain::detail

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/replace_folder_impl.hpp>
#endif
