#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE descriptor& descriptor::operator=(descriptor&& from) noexcept {
  if (this != &from) {
    close();
    fd_ = std::exchange(from.fd_, -1);
  }
  return *this;
}

XTRAIN_INLINE void descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

XTRAIN_INLINE void write_all(int fd, const void* data, std::size_t bytes, const std::string& path) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    constexpr std::size_t most = std::size_t{1} << 30;
    const ::ssize_t written = ::write(fd, from, bytes < most ? bytes : most);
    if (written < 0 && errno == EINTR) continue;
    require<file_error>(written > 0, path, ": must be written whole; ", bytes,
                        " bytes are left and the system says: ", reason(written < 0 ? errno : ENOSPC));
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

XTRAIN_INLINE void sync_directory(const std::string& path) {
  const descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) ::fsync(directory.get());  // unsupported by some file systems: nothing to sync
}

XTRAIN_INLINE std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail

XTRAIN_INLINE mapped_file::mapped_file(const std::string& path) : path_(path) {
  const detail::descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // does not wait for a pipe's writer
  require<file_error>(file.valid(), path, ": must be a readable file; the system says: ", detail::reason(errno));
  struct ::stat status {};
  require<file_error>(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), path,
                      ": must be a file; it is a directory, a device or a pipe");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  require<file_error>(mapped != MAP_FAILED, path, ": must be mapped into memory; the system says: ", detail::reason(errno));
  data_ = static_cast<const char*>(mapped);
}

XTRAIN_INLINE mapped_file& mapped_file::operator=(mapped_file&& from) noexcept {
  if (this != &from) {
    unmap();
    path_ = std::move(from.path_);
    data_ = std::exchange(from.data_, nullptr);
    size_ = std::exchange(from.size_, 0);
  }
  return *this;
}

XTRAIN_INLINE void mapped_file::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

XTRAIN_INLINE void unsynced_files::sync() {
  for (auto& [file, path] : files_) {
    require<file_error>(::fsync(file.get()) == 0, path, ": must be written whole; the system says: ", detail::reason(errno));
    file.close();
  }
  for (const auto& [file, path] : files_) detail::sync_directory(detail::parent_of(path));
  files_.clear();
}

XTRAIN_INLINE deferred_sync*& deferred_sync::innermost() {
  static thread_local deferred_sync* one = nullptr;
  return one;
}

XTRAIN_INLINE void will_be_read(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  if (!bytes.empty()) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

XTRAIN_INLINE atomic_file::atomic_file(std::string path, std::string temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {
  file_ = detail::descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  require<file_error>(file_.valid(), path_, ": must be writable; the system says: ", detail::reason(errno));
}

XTRAIN_INLINE atomic_file::~atomic_file() {
  if (file_.valid()) ::unlink(temporary_.c_str());
}

XTRAIN_INLINE void atomic_file::set_size(std::size_t bytes) {
  const int result = ::ftruncate(file_.get(), static_cast<::off_t>(bytes));
  require<file_error>(result == 0, path_, ": must be written whole; of ", bytes, " bytes the system says: ", detail::reason(errno));
}

XTRAIN_INLINE void atomic_file::commit() {
  deferred_sync* const later = deferred_sync::innermost();
  const bool synced = later != nullptr || ::fsync(file_.get()) == 0;
  const int why = errno;
  if (later != nullptr) later->files_.add(std::move(file_), path_);
  file_.close();
  if (!synced || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = synced ? errno : why;
    ::unlink(temporary_.c_str());
    fail<file_error>(path_, ": must be written whole; the system says: ", detail::reason(error));
  }
  if (later == nullptr) detail::sync_directory(detail::parent_of(path_));
}

XTRAIN_INLINE void write_file(const std::string& path, std::string_view contents) {
  atomic_file file(path);
  file.write(contents);
  file.commit();
}

XTRAIN_INLINE bool file_exists(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

XTRAIN_INLINE bool is_directory(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

XTRAIN_INLINE std::optional<std::vector<std::string>> try_names_in(const std::string& folder) {
  const auto close = [](::DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<::DIR, decltype(close)> directory(::opendir(folder.c_str()), close);
  if (!directory) return std::nullopt;
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const ::dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return std::nullopt;
  std::sort(names.begin(), names.end());
  return names;
}

XTRAIN_INLINE std::vector<std::string> names_in(const std::string& folder) {
  auto names = try_names_in(folder);
  require<file_error>(names.has_value(), folder, ": must be a readable folder; the system says: ", detail::reason(errno));
  return *std::move(names);
}

}  // namespace xtrain
