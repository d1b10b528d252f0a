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

namespace xtrain {

/// While it exists, no other process can lock the folder; a process may have several. The lock is on the file ".lock" and ends with the process at the latest.
/// On file systems without locks keeps_others_out() is false.
class folder_lock {
 public:
  folder_lock() = default;
  /// `use`, for errors: "another run writes checkpoints there".
  ///   throws  file_error when another process has the lock, or the file cannot be created
  folder_lock(const std::string& folder, const std::string& use);
  /// false: unsupported by the file system, or not requested.
  [[nodiscard]] bool keeps_others_out() const { return held_ && held_->is_locked; }

 private:
  struct held_file {
    detail::descriptor file;
    std::string path;
    bool is_locked;
    held_file(detail::descriptor of, std::string name, bool locked) : file(std::move(of)), path(std::move(name)), is_locked(locked) {}
    held_file(const held_file&) = delete;
    held_file& operator=(const held_file&) = delete;
    ~held_file() { ::unlink(path.c_str()); }
  };
  struct all_locks {
    std::mutex guard;
    std::map<std::pair<dev_t, ino_t>, std::weak_ptr<held_file>> held;
  };
  static all_locks& locks();

  std::shared_ptr<held_file> held_{};
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/folder_lock_impl.hpp>
#endif
