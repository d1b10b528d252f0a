// Atomic replacement of a folder: at every moment one complete folder can be found.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain::detail {

/// Suffix of the old folder while it is replaced on file systems without atomic exchange.
inline constexpr std::string_view replaced_folder = ".replaced";

[[nodiscard]] inline int exchange_names(const char* one, const char* other) {
  return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
}

/// Renames `part` to `whole` and removes the previous `whole`. Some file systems (NFS, FUSE) cannot exchange two names: there the
/// old folder is briefly named <whole>.replaced; see find_replaced_folders.
///   throws  file_error: then `whole` is unchanged
inline void replace_folder(const std::string& part, const std::string& whole, int (*exchange)(const char*, const char*) = exchange_names) {
  const auto check = [&](int result) {
    require<file_error>(result == 0, whole, ": must take its name; the system says: ", reason(errno));
  };
  std::error_code ignored;
  if (!file_exists(whole)) {
    check(::rename(part.c_str(), whole.c_str()));
  } else if (exchange(part.c_str(), whole.c_str()) == 0) {
    std::filesystem::remove_all(part, ignored);
  } else {
    require<file_error>(errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP, whole,
                        ": must change its name with the folder that is there; the system says: ", reason(errno));
    const std::string old = whole + std::string(replaced_folder);
    std::filesystem::remove_all(old, ignored);
    check(::rename(whole.c_str(), old.c_str()));
    if (::rename(part.c_str(), whole.c_str()) != 0) {
      const int problem = errno;
      (void)::rename(old.c_str(), whole.c_str());
      errno = problem;
      check(-1);
    }
    std::filesystem::remove_all(old, ignored);
  }
  sync_directory(parent_of(whole));
}

/// Recovers after a program was killed while it replaced a folder in `parent`: restores the old folder's name unless the new one has it.
inline void find_replaced_folders(const std::string& parent) {
  std::error_code ignored;
  for (const std::string& name : try_names_in(parent).value_or(std::vector<std::string>{})) {
    const std::string old = parent + "/" + name;
    if (!old.ends_with(replaced_folder) || !is_directory(old)) continue;
    const std::string whole = old.substr(0, old.size() - replaced_folder.size());
    if (file_exists(whole)) std::filesystem::remove_all(old, ignored);
    else std::filesystem::rename(old, whole, ignored);
  }
}

}  // namespace xtrain::detail
