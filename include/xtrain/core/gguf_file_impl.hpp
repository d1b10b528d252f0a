#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

namespace detail::gguf {

/// Bytes of a scalar; 0: string, array.
[[nodiscard]] constexpr std::size_t width_of(gguf_value_type type) {
  constexpr std::array<std::size_t, 13> widths{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return widths[static_cast<std::size_t>(type)];
}

[[nodiscard]] constexpr std::string_view name_of(gguf_value_type type) {
  constexpr std::array<std::string_view, 13> names{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

inline constexpr std::array<gguf_tensor_type, 34> tensor_types{
    {{0, "F32", 1, 4},        {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},     {7, "Q5_1", 32, 24},
     {8, "Q8_0", 32, 34},     {9, "Q8_1", 32, 40},    {10, "Q2_K", 256, 84},   {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},
     {14, "Q6_K", 256, 210},  {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
     {20, "IQ4_NL", 32, 18},  {21, "IQ3_S", 256, 110}, {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},        {25, "I16", 1, 2},
     {26, "I32", 1, 4},       {27, "I64", 1, 8},      {28, "F64", 1, 8},       {29, "IQ1_M", 256, 56}, {30, "BF16", 1, 2},      {34, "TQ1_0", 256, 54},
     {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},  {40, "NVFP4", 64, 36},   {41, "Q1_0", 128, 18}}};

template <class T>
[[nodiscard]] T number_at(std::string_view bytes, std::size_t at = 0) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// Element i of numbers.
[[nodiscard]] inline double as_number(const gguf_value& value, std::size_t i) {
  const std::size_t at = i * width_of(value.type);
  switch (value.type) {
    case gguf_value_type::f32:
      return static_cast<double>(number_at<float>(value.bytes, at));
    case gguf_value_type::f64:
      return number_at<double>(value.bytes, at);
    case gguf_value_type::u8:
    case gguf_value_type::boolean:
      return static_cast<double>(number_at<std::uint8_t>(value.bytes, at));
    case gguf_value_type::i8:
      return static_cast<double>(number_at<std::int8_t>(value.bytes, at));
    case gguf_value_type::u16:
      return static_cast<double>(number_at<std::uint16_t>(value.bytes, at));
    case gguf_value_type::i16:
      return static_cast<double>(number_at<std::int16_t>(value.bytes, at));
    case gguf_value_type::u32:
      return static_cast<double>(number_at<std::uint32_t>(value.bytes, at));
    case gguf_value_type::i32:
      return static_cast<double>(number_at<std::int32_t>(value.bytes, at));
    case gguf_value_type::u64:
      return static_cast<double>(number_at<std::uint64_t>(value.bytes, at));
    default:
      return static_cast<double>(number_at<std::int64_t>(value.bytes, at));
  }
}

/// Nullopt beyond signed 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> as_integer(const gguf_value& value, std::size_t i) {
  if (value.type == gguf_value_type::i64) return number_at<std::int64_t>(value.bytes, i * 8);
  if (value.type != gguf_value_type::u64) return static_cast<std::int64_t>(as_number(value, i));
  const auto number = number_at<std::uint64_t>(value.bytes, i * 8);
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
  return static_cast<std::int64_t>(number);
}

[[nodiscard]] constexpr bool is_integer(gguf_value_type type) {
  return type != gguf_value_type::f32 && type != gguf_value_type::f64 && type != gguf_value_type::boolean && width_of(type) != 0;
}
[[nodiscard]] constexpr bool is_number(gguf_value_type type) { return type != gguf_value_type::boolean && width_of(type) != 0; }

}  // namespace detail::gguf

/// Reads forward, never beyond the end.
class gguf_file::reader {
 public:
  explicit reader(const gguf_file& file) : file_(&file), text_(file.file_.text()) {}

  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] std::size_t left() const { return text_.size() - at_; }

  /// `what`: at most two words or a name, for errors.
  template <class... What>
  [[nodiscard]] std::string_view take(std::uint64_t bytes, const What&... what) {
    file_->check(bytes <= left(), what..., " must lie inside the file; at byte ", at_, " it claims ", bytes, " bytes, ", left(), " are left");
    const std::string_view taken = text_.substr(at_, static_cast<std::size_t>(bytes));
    at_ += taken.size();
    return taken;
  }
  template <class T, class... What>
  [[nodiscard]] T number(const What&... what) {
    return detail::gguf::number_at<T>(take(sizeof(T), what...));
  }
  template <class... What>
  [[nodiscard]] std::string_view string(const What&... what) {
    const auto length = number<std::uint64_t>(what...);
    return take(length, what...);
  }

 private:
  const gguf_file* file_;
  std::string_view text_;
  std::size_t at_ = 0;
};

XTRAIN_INLINE bool gguf_file::is_one(const std::string& path) {
  return file_exists(path) && !is_directory(path) && begins_as_one(mapped_file(path).text());
}

XTRAIN_INLINE gguf_file::gguf_file(const std::string& path) : file_(path) {
  check(!file_.text().starts_with("version https://git-lfs"), "it is a pointer of Git LFS; the file itself comes with 'git lfs pull'");
  check(begins_as_one(file_.text()), "must begin with 'GGUF'");
  reader from(*this);
  (void)from.take(4, "the magic number");
  version_ = from.number<std::uint32_t>("the version");
  check((version_ & 0xffff) != 0 || version_ == 0, "must be little-endian; its version, ", version_, ", is that of a big-endian file");
  check(version_ == 2 || version_ == 3, "must be of version 2 or 3; it is of version ", version_);
  const auto tensors = from.number<std::uint64_t>("the number of tensors");
  const auto entries = from.number<std::uint64_t>("the number of metadata entries");
  read_metadata(from, entries);
  read_tensors(from, tensors);
}

XTRAIN_INLINE void gguf_file::read_metadata(reader& from, std::uint64_t entries) {
  constexpr std::size_t shortest = 8 + 4 + 1;  // key, type, value
  check(entries <= from.left() / shortest, "metadata must lie inside the file; it claims ", entries, " entries, ", from.left(), " bytes are left");
  const auto type_of = [&](std::string_view key) {
    const auto number = from.number<std::uint32_t>("the type of '", key, "'");
    check(number <= static_cast<std::uint32_t>(gguf_value_type::f64), "'", key, "' must have a type from 0 to 12; it has ", number);
    return static_cast<gguf_value_type>(number);
  };
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::string_view key = from.string("key ", i + 1, " of ", entries);
    check(!key.empty(), "keys must have a name; key ", i + 1, " has none");
    gguf_value value{.type = type_of(key)};
    if (value.type == gguf_value_type::array) {
      value.is_array = true;
      value.type = type_of(key);
      check(value.type != gguf_value_type::array, "'", key, "' must be an array of scalars or strings; it is an array of arrays");
      const auto count = from.number<std::uint64_t>("the length of '", key, "'");
      const std::size_t width = value.type == gguf_value_type::string ? 8 : detail::gguf::width_of(value.type);
      check(count <= from.left() / width, "'", key, "' must lie inside the file; it claims ", count, " elements, ", from.left(), " bytes are left");
      value.count = static_cast<std::size_t>(count);
    }
    if (value.type != gguf_value_type::string) {
      value.bytes = from.take(value.count * detail::gguf::width_of(value.type), "'", key, "'");
    } else if (!value.is_array) {
      value.bytes = from.string("'", key, "'");
    } else {
      const std::size_t begin = from.at();
      for (std::size_t element = 0; element < value.count; ++element) (void)from.string("element ", element, " of '", key, "'");
      value.bytes = file_.text().substr(begin, from.at() - begin);
    }
    if (value.type == gguf_value_type::boolean)
      check(std::all_of(value.bytes.begin(), value.bytes.end(), [](char one) { return one == 0 || one == 1; }), "'", key,
            "' must be true or false, 1 or 0; it is neither");
    check(metadata_.emplace(key, value).second, "'", key, "' must be there once; it is there twice");
  }
  if (const gguf_value* value = find("general.alignment")) {
    check(!value->is_array && value->type == gguf_value_type::u32, "general.alignment must be a u32");
    alignment_ = detail::gguf::number_at<std::uint32_t>(value->bytes);
    check(alignment_ != 0 && (alignment_ & (alignment_ - 1)) == 0, "general.alignment must be a power of two; it is ", alignment_);
  }
}

XTRAIN_INLINE void gguf_file::read_tensors(reader& from, std::uint64_t tensors) {
  constexpr std::size_t shortest = 8 + 4 + 4 + 8;  // name, dims, type, offset
  check(tensors <= from.left() / shortest, "the tensor table must lie inside the file; it claims ", tensors, " tensors, ", from.left(), " bytes are left");
  struct place {
    std::uint64_t begin, bytes;
  };
  std::vector<place> places;
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    gguf_tensor tensor{.name = from.string("the name of tensor ", i + 1, " of ", tensors)};
    const std::string_view name = tensor.name;
    check(!name.empty(), "tensors must have a name; tensor ", i + 1, " of ", tensors, " has none");
    check(names.insert(name).second, "tensor '", name, "' must be there once; it is there twice");
    const auto dims = from.number<std::uint32_t>("tensor '", name, "'");
    check(dims <= most_dims, "tensor '", name, "' must have at most ", most_dims, " dims; it has ", dims);
    std::uint64_t all = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      const auto dim = from.number<std::uint64_t>("tensor '", name, "'");
      check(!__builtin_mul_overflow(all, dim, &all) && all <= std::uint64_t{1} << 60, "tensor '", name, "': shape is larger than any file; dim ", d + 1, " is ",
            dim);
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::size_t>(dim));
    }
    const auto number = from.number<std::uint32_t>("tensor '", name, "'");
    const auto type =
        std::find_if(detail::gguf::tensor_types.begin(), detail::gguf::tensor_types.end(), [&](const gguf_tensor_type& one) { return one.number == number; });
    check(type != detail::gguf::tensor_types.end(), "tensor '", name, "': type ", number, " is not one of the format's");
    tensor.type = type->name;
    const std::size_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    check(row % type->numbers == 0, "tensor '", name, "': rows of ", type->name, " must be whole blocks of ", type->numbers, " numbers; they have ", row);
    const auto offset = from.number<std::uint64_t>("tensor '", name, "'");
    check(offset % alignment_ == 0, "tensor '", name, "' must begin at a multiple of ", alignment_, "; it begins at ", offset);
    places.push_back({offset, all / type->numbers * type->bytes});
    tensors_.push_back(std::move(tensor));
  }
  if (tensors_.empty()) return;
  const auto padded = [&](std::uint64_t bytes) { return (bytes + alignment_ - 1) / alignment_ * alignment_; };
  const std::uint64_t begin = padded(from.at()), size = file_.size();
  check(begin <= size, "tensors must lie inside the file; they begin at byte ", begin, " of ", size, ". Is the file cut short?");
  const auto data = std::as_bytes(std::span(file_.data(), file_.size())).subspan(static_cast<std::size_t>(begin));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [offset, bytes] = places[i];
    check(offset <= data.size() && bytes <= data.size() - offset, "tensor '", tensors_[i].name, "': must lie inside the file; it claims ", bytes,
          " bytes from byte ", begin, " + ", offset, " of ", size, " on. Is the file cut short?");
    tensors_[i].bytes = data.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  }
  std::vector<std::size_t> order(tensors_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(places[a].begin, places[a].bytes) < std::pair(places[b].begin, places[b].bytes); });
  std::uint64_t next = 0;
  for (const std::size_t i : order) {
    check(places[i].begin == next, "tensors must lie one behind the other; '", tensors_[i].name, "' begins at ", places[i].begin, " where ", next, " is next");
    next = padded(places[i].begin + places[i].bytes);
  }
  check(data.size() <= next, "tensors must fill the file; they end at ", next, " of ", data.size(), " bytes");
}

XTRAIN_INLINE const gguf_value* gguf_file::find(std::string_view key) const {
  const auto at = metadata_.find(key);
  return at == metadata_.end() ? nullptr : &at->second;
}

XTRAIN_INLINE const gguf_value* gguf_file::expect(std::string_view key, bool is_array) const {
  const gguf_value* value = find(key);
  require<file_error>(value == nullptr || value->is_array == is_array, path(), ": '", key, "' must be ", is_array ? "an array" : "one value", "; it is ",
                      is_array ? "one value" : "an array");
  return value;
}

XTRAIN_INLINE std::optional<std::int64_t> gguf_file::integer(std::string_view key) const {
  const gguf_value* value = expect(key, false);
  if (value == nullptr) return {};
  require<file_error>(detail::gguf::is_integer(value->type), path(), ": '", key, "' must be an integer; its type is ", detail::gguf::name_of(value->type));
  const std::optional<std::int64_t> number = detail::gguf::as_integer(*value, 0);
  require<file_error>(number.has_value(), path(), ": '", key, "' must be below 2^63");
  return number;
}

XTRAIN_INLINE std::optional<std::size_t> gguf_file::size(std::string_view key) const {
  const std::optional<std::int64_t> number = integer(key);
  if (!number) return {};
  require<file_error>(*number >= 0, path(), ": '", key, "' must be non-negative; it is ", *number);
  return static_cast<std::size_t>(*number);
}

XTRAIN_INLINE std::optional<double> gguf_file::number(std::string_view key) const {
  const gguf_value* value = expect(key, false);
  if (value == nullptr) return {};
  require<file_error>(detail::gguf::is_number(value->type), path(), ": '", key, "' must be a number; its type is ", detail::gguf::name_of(value->type));
  return detail::gguf::as_number(*value, 0);
}

XTRAIN_INLINE std::optional<bool> gguf_file::flag(std::string_view key) const {
  const gguf_value* value = expect(key, false);
  if (value == nullptr) return {};
  require<file_error>(value->type == gguf_value_type::boolean, path(), ": '", key, "' must be a bool; its type is ", detail::gguf::name_of(value->type));
  return value->bytes[0] != 0;
}

XTRAIN_INLINE std::optional<std::string> gguf_file::text(std::string_view key) const {
  const gguf_value* value = expect(key, false);
  if (value == nullptr) return {};
  require<file_error>(value->type == gguf_value_type::string, path(), ": '", key, "' must be a string; its type is ", detail::gguf::name_of(value->type));
  return std::string(value->bytes);
}

XTRAIN_INLINE std::vector<std::string_view> gguf_file::texts(std::string_view key) const {
  const gguf_value* value = expect(key, true);
  if (value == nullptr) return {};
  require<file_error>(value->type == gguf_value_type::string, path(), ": '", key, "' must hold strings; it holds ", detail::gguf::name_of(value->type));
  std::vector<std::string_view> all;
  all.reserve(value->count);
  for (std::size_t at = 0; all.size() < value->count;) {
    const auto length = static_cast<std::size_t>(detail::gguf::number_at<std::uint64_t>(value->bytes, at));
    all.push_back(value->bytes.substr(at + 8, length));
    at += 8 + length;
  }
  return all;
}

XTRAIN_INLINE std::vector<double> gguf_file::numbers(std::string_view key) const {
  const gguf_value* value = expect(key, true);
  if (value == nullptr) return {};
  require<file_error>(detail::gguf::is_number(value->type), path(), ": '", key, "' must hold numbers; it holds ", detail::gguf::name_of(value->type));
  std::vector<double> all(value->count);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = detail::gguf::as_number(*value, i);
  return all;
}

XTRAIN_INLINE std::vector<std::int64_t> gguf_file::integers(std::string_view key) const {
  const gguf_value* value = expect(key, true);
  if (value == nullptr) return {};
  require<file_error>(detail::gguf::is_integer(value->type), path(), ": '", key, "' must hold integers; it holds ", detail::gguf::name_of(value->type));
  std::vector<std::int64_t> all(value->count);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::optional<std::int64_t> number = detail::gguf::as_integer(*value, i);
    require<file_error>(number.has_value(), path(), ": element ", i, " of '", key, "' must be below 2^63");
    all[i] = *number;
  }
  return all;
}

}  // namespace xtrain
