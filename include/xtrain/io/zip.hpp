// ZIP archives with uncompressed entries, as PyTorch's; entries are views of the mapped file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain {

/// Entries of an archive, also zip64; refuses compressed, encrypted and overlapping entries. Checksums are not compared, as this reads every byte.
///
///   end record   found from the end; offset of the directory
///   directory    per entry: name, size, offset of its header
///   entry        header with name and extra field, then bytes
class stored_zip {
 public:
  /// Has the signature.
  [[nodiscard]] static bool begins_as_one(std::string_view file) { return file.starts_with("PK\3\4"); }

  /// `file` must outlive the archive.
  ///   throws  file_error when the archive is damaged, or an entry is no view
  explicit stored_zip(const mapped_file& file) : path_(file.path()), file_(file.text()) { read_directory(); }

  [[nodiscard]] const std::map<std::string_view, std::string_view>& entries() const { return entries_; }
  [[nodiscard]] const std::string_view* find(std::string_view name) const {
    const auto at = entries_.find(name);
    return at == entries_.end() ? nullptr : &at->second;
  }

 private:
  static constexpr std::uint32_t in_zip64 = 0xffffffffU;  ///< the size is in the zip64 field

  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, path_, ": not a whole ZIP archive: ", parts...);
  }
  template <class Number>
  [[nodiscard]] Number number_at(std::uint64_t at) const {
    check(at <= file_.size() && file_.size() - at >= sizeof(Number), "a record must lie inside the file; it is said to be at byte ", at);
    Number value;
    std::memcpy(&value, file_.data() + at, sizeof(Number));
    return value;
  }
  [[nodiscard]] bool has_at(std::uint64_t at, std::string_view signature) const {
    return at <= file_.size() && file_.substr(static_cast<std::size_t>(at)).starts_with(signature);
  }
  [[nodiscard]] std::string_view bytes_at(std::uint64_t at, std::uint64_t size, std::string_view what) const {
    check(at <= file_.size() && size <= file_.size() - at, what, " must lie inside the file; it is said to be ", size, " bytes at byte ",
          at, " of ", file_.size(), ". Is the file cut short?");
    return file_.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
  }

  /// The last position whose comment reaches the end of the file.
  [[nodiscard]] std::uint64_t end_record() const {
    constexpr std::size_t record = 22, longest_comment = 65535;
    for (std::size_t back = record; back <= std::min(file_.size(), record + longest_comment); ++back) {
      const std::size_t at = file_.size() - back;
      if (has_at(at, "PK\5\6") && number_at<std::uint16_t>(at + 20) == back - record) return at;
    }
    fail<file_error>(path_, ": not a whole ZIP archive: its directory must be at the end; there is none. Is the file cut short?");
  }

  void read_directory() {
    const std::uint64_t end = end_record();
    std::uint64_t count = number_at<std::uint16_t>(end + 10), at = number_at<std::uint32_t>(end + 16);
    if (constexpr std::uint64_t locator = 20; end >= locator && has_at(end - locator, "PK\6\7")) {
      const auto wide_end = number_at<std::uint64_t>(end - locator + 8);
      check(has_at(wide_end, "PK\6\6"), "the zip64 end record must be at byte ", wide_end, "; it is not");
      count = number_at<std::uint64_t>(wide_end + 32);
      at = number_at<std::uint64_t>(wide_end + 48);
    }
    for (std::uint64_t i = 0; i < count; ++i) at = read_entry(at);
    check_apart();
  }

  /// Overlapping entries claim more than a file contains.
  void check_apart() {
    std::sort(extents_.begin(), extents_.end(), [](const extent& a, const extent& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < extents_.size(); ++i)
      check(extents_[i].begin >= extents_[i - 1].end, "entry '", extents_[i].name, "' must begin where no other lies; '", extents_[i - 1].name,
            "' reaches to byte ", extents_[i - 1].end, ", and it begins at byte ", extents_[i].begin);
    extents_ = {};
  }

  /// Returns the next record's position.
  std::uint64_t read_entry(std::uint64_t at) {
    check(has_at(at, "PK\1\2"), "a directory record must be at byte ", at, "; there is none");
    const auto flags = number_at<std::uint16_t>(at + 8), method = number_at<std::uint16_t>(at + 10);
    std::uint64_t packed = number_at<std::uint32_t>(at + 20), size = number_at<std::uint32_t>(at + 24),
                  header = number_at<std::uint32_t>(at + 42);
    const std::uint64_t name_size = number_at<std::uint16_t>(at + 28), extra_size = number_at<std::uint16_t>(at + 30),
                        comment_size = number_at<std::uint16_t>(at + 32), names_at = at + 46;
    const std::string_view name = bytes_at(names_at, name_size, "a name");
    read_zip64(names_at + name_size, extra_size, {&size, &packed, &header});
    check((flags & 1U) == 0, "entry '", name, "' must not be encrypted; it is");
    check(method == 0 && packed == size, "entry '", name, "' must be stored as it is; it is compressed (method ", method,
          "). Unpack the archive and pack it again without compression");
    check(has_at(header, "PK\3\4"), "entry '", name, "' must begin at byte ", header, "; it does not");
    const std::uint64_t begin = header + 30 + number_at<std::uint16_t>(header + 26) + number_at<std::uint16_t>(header + 28);
    check(entries_.emplace(name, bytes_at(begin, size, name)).second, "entry '", name, "' must be there once; it is there twice");
    extents_.push_back({header, begin + size, name});
    return names_at + name_size + extra_size + comment_size;
  }

  /// Reads values of the zip64 field.
  void read_zip64(std::uint64_t at, std::uint64_t size, std::initializer_list<std::uint64_t*> values) const {
    const std::uint64_t end = at + size;
    while (end - at >= 4) {
      const auto id = number_at<std::uint16_t>(at), length = number_at<std::uint16_t>(at + 2);
      at += 4;
      check(length <= end - at, "a field must lie inside its record; it has ", length, " bytes, ", end - at, " are left");
      if (id == 1) {
        std::uint64_t next = at;
        for (std::uint64_t* value : values) {
          if (*value != in_zip64) continue;
          check(next + 8 <= at + length, "a zip64 field must hold the sizes that it is asked for; it has ", length, " bytes");
          *value = number_at<std::uint64_t>(next);
          next += 8;
        }
        return;
      }
      at += length;
    }
  }

  /// Bytes of an entry with header.
  struct extent {
    std::uint64_t begin, end;
    std::string_view name;
  };

  std::string path_;
  std::string_view file_;
  std::vector<extent> extents_;  ///< while the directory is read
  std::map<std::string_view, std::string_view> entries_;
};

}  // namespace xtrain
