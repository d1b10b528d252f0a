// Definitions of replace_folder.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/train/replace_folder.hpp>

namespace xtrain::detail {

XTRAIN_INLINE int exchange_names(const char* one, const char* other) {
  return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
}

XTRAIN_INLINE void replace_folder(const std::string& part, const std::string& whole, int (*exchange)(const char*, const char*)) {
  const auto check = [&](int result) { require<file_error>(result == 0, whole, ": must take its name; the system says: ", reason(errno)); };
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

XTRAIN_INLINE void find_replaced_folders(const std::string& parent) {
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
