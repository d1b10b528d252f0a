// Files: memory-mapped for reading, written atomically.
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

namespace xtrain {

namespace detail {

[[nodiscard]] inline std::string reason(int error) { return std::strerror(error); }

/// A file descriptor that its destructor closes.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  descriptor& operator=(descriptor&& from) noexcept {
    if (this != &from) {
      close();
      fd_ = std::exchange(from.fd_, -1);
    }
    return *this;
  }
  ~descriptor() { close(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// Writes all bytes, in as many calls as it takes.
inline void write_all(int fd, const void* data, std::size_t bytes, const std::string& path) {
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

/// Makes directory entries durable across a power failure.
inline void sync_directory(const std::string& path) {
  const descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) ::fsync(directory.get());  // some file systems do not support this: nothing to sync
}

[[nodiscard]] inline std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail

/// A file mapped read-only: only pages that are read take memory.
class mapped_file {
 public:
  /// throws file_error when the file is missing or cannot be mapped
  explicit mapped_file(const std::string& path) : path_(path) {
    const detail::descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    require<file_error>(file.valid(), path, ": must be a readable file; the system says: ", detail::reason(errno));
    struct ::stat status {};
    require<file_error>(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), path,
                        ": must be a file; it is a directory or a device");
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    require<file_error>(mapped != MAP_FAILED, path, ": must be mapped into memory; the system says: ", detail::reason(errno));
    data_ = static_cast<const char*>(mapped);
  }
  mapped_file(mapped_file&& from) noexcept
      : path_(std::move(from.path_)), data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0)) {}
  mapped_file& operator=(mapped_file&& from) noexcept {
    if (this != &from) {
      unmap();
      path_ = std::move(from.path_);
      data_ = std::exchange(from.data_, nullptr);
      size_ = std::exchange(from.size_, 0);
    }
    return *this;
  }
  ~mapped_file() { unmap(); }

  [[nodiscard]] std::string_view text() const { return {data_, size_}; }
  [[nodiscard]] const char* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void unmap() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }

  std::string path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Files already under their final names that may not be on disk yet.
class unsynced_files {
 public:
  void add(detail::descriptor file, std::string path) { files_.emplace_back(std::move(file), std::move(path)); }
  /// Waits until they are on disk. May be called from any thread.
  ///   throws  file_error when a file could not be made durable
  void sync() {
    for (auto& [file, path] : files_) {
      require<file_error>(::fsync(file.get()) == 0, path, ": must be written whole; the system says: ", detail::reason(errno));
      file.close();
    }
    for (const auto& [file, path] : files_) detail::sync_directory(detail::parent_of(path));
    files_.clear();
  }

 private:
  std::vector<std::pair<detail::descriptor, std::string>> files_;
};

/// While one exists, files written by this thread are not synced; the caller that take()s them syncs them later.
class deferred_sync {
 public:
  deferred_sync() : outer_(std::exchange(innermost(), this)) {}
  ~deferred_sync() { innermost() = outer_; }
  deferred_sync(const deferred_sync&) = delete;
  deferred_sync& operator=(const deferred_sync&) = delete;

  [[nodiscard]] unsynced_files take() { return std::exchange(files_, {}); }

 private:
  friend class atomic_file;
  friend class file_ranges;
  static deferred_sync*& innermost() {
    static thread_local deferred_sync* one = nullptr;
    return one;
  }

  deferred_sync* outer_;
  unsynced_files files_;
};

/// Advice to the system that these bytes of mapped memory will be read soon, so it can prefetch them. Does not wait.
inline void will_be_read(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  if (!bytes.empty()) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

/// A file that appears under its name only when complete: written to a temporary file in the same directory, synced, renamed. If anything
/// fails, the previous file of that name is untouched. (With a deferred_sync, a power failure may lose both.)
class atomic_file {
 public:
  /// throws file_error when the directory cannot be written to
  explicit atomic_file(std::string path) : atomic_file(path, concat(path, ".", ::getpid(), ".part")) {}
  /// The same, with a caller-chosen temporary name in the same directory.
  atomic_file(std::string path, std::string temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {
    file_ = detail::descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    require<file_error>(file_.valid(), path_, ": must be writable; the system says: ", detail::reason(errno));
  }
  ~atomic_file() {
    if (file_.valid()) ::unlink(temporary_.c_str());
  }
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  void write(const void* data, std::size_t bytes) { detail::write_all(file_.get(), data, bytes, path_); }
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Sets the length before writing: bytes that are never written are zero.
  ///   throws  file_error
  void set_size(std::size_t bytes) {
    const int result = ::ftruncate(file_.get(), static_cast<::off_t>(bytes));
    require<file_error>(result == 0, path_, ": must be written whole; of ", bytes, " bytes the system says: ", detail::reason(errno));
  }
  /// The temporary name, used until commit().
  [[nodiscard]] const std::string& temporary() const { return temporary_; }

  /// Renames the file to its final name.
  ///   throws  file_error when it could not be made durable; then it does not appear
  void commit() {
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

 private:
  std::string path_;
  std::string temporary_;
  detail::descriptor file_;
};

/// Writes a whole file in one call, atomically.
inline void write_file(const std::string& path, std::string_view contents) {
  atomic_file file(path);
  file.write(contents);
  file.commit();
}

[[nodiscard]] inline bool file_exists(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0;
}
[[nodiscard]] inline bool is_directory(const std::string& path) {
  struct ::stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// The names of all entries of a folder, sorted; nothing if it cannot be read.
[[nodiscard]] inline std::optional<std::vector<std::string>> try_names_in(const std::string& folder) {
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

/// The names of all entries of a folder, sorted.
///   throws  file_error when it cannot be read
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& folder) {
  auto names = try_names_in(folder);
  require<file_error>(names.has_value(), folder, ": must be a readable folder; the system says: ", detail::reason(errno));
  return *std::move(names);
}

}  // namespace xtrain
