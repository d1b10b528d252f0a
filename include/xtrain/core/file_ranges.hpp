// Files written by several processes: one creates the full length, all write ranges.
#pragma once

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain {

/// Sixteen random letters: a file of this name is the intended one.
[[nodiscard]] inline std::string drawn_name() {
  std::uint64_t drawn = 0;
  require<file_error>(::getrandom(&drawn, sizeof drawn, 0) == sizeof drawn, "a name for a file must be drawn; the system says: ", detail::reason(errno));
  std::string name(16, '0');
  for (char& letter : name) {
    letter = "0123456789abcdef"[drawn % 16];
    drawn /= 16;
  }
  return name;
}

/// One writer of an existing file.
class file_ranges {
 public:
  /// Opens the file if it is visible and writable.
  explicit file_ranges(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {}
  [[nodiscard]] bool is_there() const { return file_.valid(); }
  [[nodiscard]] std::size_t written() const { return written_; }

  /// throws file_error on failure, such as a full disk
  void write_at(std::size_t offset, const void* data, std::size_t bytes) {
    const char* from = static_cast<const char*>(data);
    written_ += bytes;
    while (bytes > 0) {
      constexpr std::size_t most = std::size_t{1} << 30;
      const ::ssize_t done = ::pwrite(file_.get(), from, bytes < most ? bytes : most, static_cast<::off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      require<file_error>(done > 0, path_, ": must be written whole; ", bytes, " bytes of a range are left and the system says: ",
                          detail::reason(done < 0 ? errno : ENOSPC));
      from += done;
      offset += static_cast<std::size_t>(done);
      bytes -= static_cast<std::size_t>(done);
    }
  }

  /// Makes written bytes durable, or leaves that to deferred_sync::take().
  ///   throws  file_error
  void finish() {
    if (deferred_sync* const later = deferred_sync::innermost()) return later->files_.add(std::move(file_), path_);
    require<file_error>(::fsync(file_.get()) == 0, path_, ": must be written whole; the system says: ", detail::reason(errno));
    file_.close();
  }

 private:
  std::string path_;
  detail::descriptor file_;
  std::size_t written_ = 0;
};

}  // namespace xtrain
