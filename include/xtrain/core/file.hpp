// Memory-mapped reading, atomic writing.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstring>
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

class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& from) noexcept : fd_(std::exchange(from.fd_, -1)) {}
  descriptor& operator=(descriptor&& from) noexcept;
  ~descriptor() { close(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

/// In as many calls as needed.
void write_all(int fd, const void* data, std::size_t bytes, const std::string& path);

/// Makes entries survive a power failure.
void sync_directory(const std::string& path);

[[nodiscard]] std::string parent_of(const std::string& path);

}  // namespace detail

/// Mapped read-only: only read pages take memory.
class mapped_file {
 public:
  /// throws file_error when the file is missing or cannot be mapped
  explicit mapped_file(const std::string& path);
  mapped_file(mapped_file&& from) noexcept
      : path_(std::move(from.path_)), data_(std::exchange(from.data_, nullptr)), size_(std::exchange(from.size_, 0)) {}
  mapped_file& operator=(mapped_file&& from) noexcept;
  ~mapped_file() { unmap(); }

  [[nodiscard]] std::string_view text() const { return {data_, size_}; }
  [[nodiscard]] const char* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void unmap();

  std::string path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Renamed files that may not be on disk yet.
class unsynced_files {
 public:
  void add(detail::descriptor file, std::string path) { files_.emplace_back(std::move(file), std::move(path)); }
  /// Waits for the disk; any thread may call it.
  ///   throws  file_error when a file could not be made durable
  void sync();

 private:
  std::vector<std::pair<detail::descriptor, std::string>> files_;
};

/// While it exists, this thread's files are not synced; the caller of take() syncs them.
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
  static deferred_sync*& innermost();

  deferred_sync* outer_;
  unsynced_files files_;
};

/// Prefetch hint for mapped bytes; does not wait.
void will_be_read(std::span<const std::byte> bytes);

/// Written to a temporary file in the same directory, synced, renamed. On failure the previous file is intact. (With deferred_sync a power failure may lose
/// both.)
class atomic_file {
 public:
  /// throws file_error when the directory is not writable
  explicit atomic_file(std::string path) : atomic_file(path, concat(path, ".", ::getpid(), ".part")) {}
  /// With a temporary name in the same directory.
  atomic_file(std::string path, std::string temporary);
  ~atomic_file();
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  void write(const void* data, std::size_t bytes) { detail::write_all(file_.get(), data, bytes, path_); }
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Sets the length; unwritten bytes are 0.
  ///   throws  file_error
  void set_size(std::size_t bytes);
  [[nodiscard]] const std::string& temporary() const { return temporary_; }

  /// Renames the file.
  ///   throws  file_error when it could not be made durable; then it does not appear
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  detail::descriptor file_;
};

/// Writes a file atomically.
void write_file(const std::string& path, std::string_view contents);

/// Whether the file exists.
[[nodiscard]] bool file_exists(const std::string& path);
/// Whether the folder exists.
[[nodiscard]] bool is_directory(const std::string& path);

/// Sorted names of a folder's entries; nullopt if unreadable.
[[nodiscard]] std::optional<std::vector<std::string>> try_names_in(const std::string& folder);

/// Sorted names of a folder's entries.
///   throws  file_error when it cannot be read
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/file_impl.hpp>
#endif
