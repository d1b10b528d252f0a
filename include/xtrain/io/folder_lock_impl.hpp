#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/folder_lock.hpp>

namespace xtrain {

XTRAIN_INLINE folder_lock::folder_lock(const std::string& folder, const std::string& use) {
  const std::string path = folder + "/.lock";
  auto& here = locks();
  const std::lock_guard hold(here.guard);
  for (;;) {
    detail::descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    struct stat opened {
    }, named{};
    require<file_error>(file.valid() && ::fstat(file.get(), &opened) == 0, path,
                        ": must be opened; the system says: ", detail::reason(errno));
    auto& known = here.held[{opened.st_dev, opened.st_ino}];
    held_ = known.lock();
    if (held_) return;
    const bool is_locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    require<file_error>(is_locked || errno != EWOULDBLOCK, folder, ": ", use, "; it must end first, or another folder be chosen");
    // the previous owner may have removed the file meanwhile: the name is another file's
    if (::stat(path.c_str(), &named) != 0 || named.st_ino != opened.st_ino || named.st_dev != opened.st_dev) continue;
    held_ = std::make_shared<held_file>(std::move(file), path, is_locked);
    known = held_;
    return;
  }
}

XTRAIN_INLINE folder_lock::all_locks& folder_lock::locks() {
  static all_locks all;
  return all;
}

}  // namespace xtrain
