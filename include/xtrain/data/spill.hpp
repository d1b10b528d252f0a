// A growable array: in memory while small, in an unnamed file when large; only pages read are loaded.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain {

/// Append, then finish, then read.
template <class T>
class spilled_array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// `in_memory`: maximum bytes in memory.
  explicit spilled_array(std::size_t in_memory = std::size_t{64} << 20) : limit_(in_memory / sizeof(T)) {}
  spilled_array(spilled_array&& from) noexcept
      : limit_(from.limit_), buffer_(std::move(from.buffer_)), file_(std::move(from.file_)), written_(std::exchange(from.written_, 0)),
        mapped_(std::exchange(from.mapped_, nullptr)) {}
  spilled_array& operator=(spilled_array&& from) noexcept {
    std::swap(limit_, from.limit_);
    std::swap(buffer_, from.buffer_);
    std::swap(file_, from.file_);
    std::swap(written_, from.written_);
    std::swap(mapped_, from.mapped_);
    return *this;
  }
  ~spilled_array() {
    if (mapped_ != nullptr) ::munmap(mapped_, written_ * sizeof(T));
  }

  void push_back(const T& value) {
    buffer_.push_back(value);
    if (buffer_.size() >= limit_) spill();
  }
  /// Drops all but the first `count` elements, before finish(); also after a failed push_back.
  void cut(std::size_t count) noexcept {
    if (mapped_ != nullptr || count >= size()) return;
    const std::size_t kept = count < written_ ? count : written_;
    buffer_.resize(count - kept);
    written_ = kept;
    if (!file_.valid()) return;
    const auto end = static_cast<::off_t>(written_ * sizeof(T));  // elements may be partly written
    [[maybe_unused]] const int shortened = ::ftruncate(file_.get(), end);  // otherwise overwritten
    ::lseek(file_.get(), end, SEEK_SET);
  }
  [[nodiscard]] std::size_t size() const { return written_ + (mapped_ != nullptr ? 0 : buffer_.size()); }

  /// Makes everything readable; no more appending.
  ///   throws  file_error if the temporary directory is full
  void finish() {
    if (!file_.valid()) {
      buffer_.shrink_to_fit();
      return;
    }
    spill();
    map_all();
  }
  [[nodiscard]] std::span<const T> values() const {
    return mapped_ != nullptr ? std::span<const T>(static_cast<const T*>(mapped_), written_) : std::span<const T>(buffer_);
  }
  [[nodiscard]] const T& operator[](std::size_t i) const { return values()[i]; }
  [[nodiscard]] bool in_file() const { return file_.valid(); }

  /// Moves a finished array to an unnamed file that other processes can map.
  ///   throws  file_error when there is no room
  void move_to_file() {
    if (file_.valid()) return;
    file_ = detail::descriptor(::memfd_create("xtrain", MFD_CLOEXEC));
    require<file_error>(file_.valid(), "memory: a file for ", buffer_.size() * sizeof(T), " bytes must be made; the system says: ", detail::reason(errno));
    spill();
    map_all();
  }
  [[nodiscard]] int file() const { return file_.get(); }
  /// An empty array maps another's file; false: not possible.
  [[nodiscard]] bool map(detail::descriptor file, std::size_t count) {
    if (::lseek(file.get(), 0, SEEK_END) != static_cast<::off_t>(count * sizeof(T))) return false;
    void* const found = count > 0 ? ::mmap(nullptr, count * sizeof(T), PROT_READ, MAP_SHARED, file.get(), 0) : nullptr;
    if (found == MAP_FAILED) return false;
    buffer_ = {};
    file_ = std::move(file);
    written_ = count;
    mapped_ = found;
    return true;
  }

 private:
  void map_all() {
    if (written_ > 0) {
      mapped_ = ::mmap(nullptr, written_ * sizeof(T), PROT_READ, MAP_SHARED, file_.get(), 0);
      if (mapped_ == MAP_FAILED) {
        mapped_ = nullptr;
        fail<file_error>("temporary file: must be mapped into memory; the system says: ", detail::reason(errno));
      }
    }
    buffer_ = {};
  }
  void spill() {
    if (!file_.valid()) file_ = open_unnamed();
    detail::write_all(file_.get(), buffer_.data(), buffer_.size() * sizeof(T), "temporary file");
    written_ += buffer_.size();
    buffer_.clear();
  }
  /// Disappears with its last user.
  static detail::descriptor open_unnamed() {
    const char* chosen = std::getenv("TMPDIR");
    const std::string directory = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
    detail::descriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file.valid()) return file;
    std::string pattern = directory + "/xtrain-XXXXXX";  // file systems without unnamed files
    file = detail::descriptor(::mkstemp(pattern.data()));
    require<file_error>(file.valid(), directory,
                        ": a temporary file must fit here (TMPDIR chooses another place); the system says: ", detail::reason(errno));
    ::unlink(pattern.c_str());
    return file;
  }

  std::size_t limit_;
  std::vector<T> buffer_;
  detail::descriptor file_;
  std::size_t written_ = 0;
  void* mapped_ = nullptr;
};

}  // namespace xtrain
