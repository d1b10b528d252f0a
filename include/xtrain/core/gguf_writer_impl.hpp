#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/gguf_file_impl.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

namespace detail::gguf {

[[nodiscard]] inline const gguf_tensor_type* find_tensor_type(std::string_view name) {
  const auto found = std::find_if(tensor_types.begin(), tensor_types.end(), [&](const gguf_tensor_type& one) { return one.name == name; });
  return found == tensor_types.end() ? nullptr : &*found;
}

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) { return (bytes + gguf_writer::alignment - 1) / gguf_writer::alignment * gguf_writer::alignment; }

}  // namespace detail::gguf

XTRAIN_INLINE void gguf_writer::begin(std::string_view key, gguf_value_type type) {
  require<config_error>(!key.empty(), path_, ": keys must have a name; one has none");
  require<config_error>(keys_.emplace(key).second, path_, ": '", key, "' must be given once; it is given twice");
  put_text(key);
  detail::gguf::put(metadata_, static_cast<std::uint32_t>(type));
}
XTRAIN_INLINE void gguf_writer::begin_array(std::string_view key, gguf_value_type type, std::size_t count) {
  begin(key, gguf_value_type::array);
  detail::gguf::put(metadata_, static_cast<std::uint32_t>(type));
  detail::gguf::put(metadata_, std::uint64_t{count});
}
XTRAIN_INLINE void gguf_writer::put_text(std::string_view text) {
  detail::gguf::put(metadata_, std::uint64_t{text.size()});
  metadata_.append(text);
}

XTRAIN_INLINE void gguf_writer::add_text(std::string_view key, std::string_view value) {
  begin(key, gguf_value_type::string);
  put_text(value);
}
XTRAIN_INLINE void gguf_writer::add_u32(std::string_view key, std::size_t value) {
  require<config_error>(value <= std::numeric_limits<std::uint32_t>::max(), path_, ": '", key, "' must be below 2^32; it is ", value);
  begin(key, gguf_value_type::u32);
  detail::gguf::put(metadata_, static_cast<std::uint32_t>(value));
}
XTRAIN_INLINE void gguf_writer::add_f32(std::string_view key, double value) {
  begin(key, gguf_value_type::f32);
  detail::gguf::put(metadata_, static_cast<float>(value));
}
XTRAIN_INLINE void gguf_writer::add_flag(std::string_view key, bool value) {
  begin(key, gguf_value_type::boolean);
  detail::gguf::put(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
}
XTRAIN_INLINE void gguf_writer::add_texts(std::string_view key, std::span<const std::string> values) {
  begin_array(key, gguf_value_type::string, values.size());
  for (const std::string& value : values) put_text(value);
}
XTRAIN_INLINE void gguf_writer::add_f32s(std::string_view key, std::span<const float> values) {
  begin_array(key, gguf_value_type::f32, values.size());
  for (const float value : values) detail::gguf::put(metadata_, value);
}
XTRAIN_INLINE void gguf_writer::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, gguf_value_type::i32, values.size());
  for (const std::int32_t value : values) detail::gguf::put(metadata_, value);
}
XTRAIN_INLINE void gguf_writer::add(std::string_view key, const gguf_value& value) {
  if (value.is_array) begin_array(key, value.type, value.count);
  else begin(key, value.type);
  if (value.type == gguf_value_type::string && !value.is_array) put_text(value.bytes);
  else metadata_.append(value.bytes);
}

XTRAIN_INLINE void gguf_writer::add_tensor(gguf_tensor_to_write tensor) {
  const auto must = [&](bool holds, const auto&... what) { require<config_error>(holds, path_, ": tensor '", tensor.name, "' must ", what...); };
  const gguf_tensor_type* type = detail::gguf::find_tensor_type(tensor.type);
  must(type != nullptr, "be of one of the format's types; it is ", tensor.type);
  must(!tensor.name.empty() && tensor.name.size() <= longest_name, "have a name of 1 to ", longest_name, " bytes; it has ", tensor.name.size());
  must(!names_.contains(tensor.name), "be given once; it is given twice");
  must(!tensor.shape.empty() && tensor.shape.size() <= gguf_file::most_dims, "have 1 to ", gguf_file::most_dims, " dims; it has ", tensor.shape.size());
  std::size_t all = 1;
  for (const std::size_t dim : tensor.shape)
    must(dim != 0 && !__builtin_mul_overflow(all, dim, &all) && all < std::size_t{1} << 60, "have 1 to 2^60 numbers; its shape is ",
         std::span<const std::size_t>(tensor.shape));
  must(tensor.shape.back() % type->numbers == 0, "have rows of whole blocks of ", type->numbers, " numbers, to be ", tensor.type, "; they have ",
       tensor.shape.back());
  names_.insert(tensor.name);
  bytes_.push_back(all / type->numbers * type->bytes);
  tensors_.push_back(std::move(tensor));
}

XTRAIN_INLINE void gguf_writer::write() const {
  std::string head = "GGUF";
  detail::gguf::put(head, std::uint32_t{3});
  detail::gguf::put(head, std::uint64_t{tensors_.size()});
  detail::gguf::put(head, std::uint64_t{keys_.size()});
  head += metadata_;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const gguf_tensor_to_write& tensor = tensors_[i];
    detail::gguf::put(head, std::uint64_t{tensor.name.size()});
    head += tensor.name;
    detail::gguf::put(head, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t d = tensor.shape.size(); d-- > 0;) detail::gguf::put(head, std::uint64_t{tensor.shape[d]});
    detail::gguf::put(head, detail::gguf::find_tensor_type(tensor.type)->number);
    detail::gguf::put(head, std::uint64_t{offset});
    offset += detail::gguf::padded(bytes_[i]);
  }
  if (!tensors_.empty()) head.resize(detail::gguf::padded(head.size()), '\0');
  atomic_file file(path_);
  file.write(head);
  constexpr std::array<char, alignment> zeros{};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::size_t written = 0;
    tensors_[i].produce([&](const void* data, std::size_t size) {
      written += size;
      file.write(data, size);
    });
    require<file_error>(written == bytes_[i], path_, ": tensor '", tensors_[i].name, "' must have ", bytes_[i], " bytes; ", written, " were produced");
    file.write(zeros.data(), detail::gguf::padded(written) - written);
  }
  file.commit();
}

}  // namespace xtrain
