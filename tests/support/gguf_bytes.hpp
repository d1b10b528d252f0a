// Bytes of GGUF files, well formed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gguf_bytes {

template <class T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string u32(std::uint32_t value) { return number(value); }
inline std::string u64(std::uint64_t value) { return number(value); }
inline std::string text(std::string_view value) { return u64(value.size()).append(value); }

inline std::string of_text(std::string_view key, std::string_view value) { return text(key) + u32(8) + text(value); }
inline std::string of_u32(std::string_view key, std::uint32_t value) { return text(key) + u32(4) + u32(value); }
inline std::string of_flag(std::string_view key, bool value) { return text(key) + u32(7) + std::string(1, value ? '\1' : '\0'); }
inline std::string of_f32(std::string_view key, float value) { return text(key) + u32(6) + number(value); }
inline std::string of_texts(std::string_view key, const std::vector<std::string>& values) {
  std::string all = text(key) + u32(9) + u32(8) + u64(values.size());
  for (const std::string& value : values) all += text(value);
  return all;
}
template <class T>
std::string of_numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
  std::string all = text(key) + u32(9) + u32(type) + u64(values.size());
  for (const T value : values) all += number(value);
  return all;
}

/// An entry of the tensor table; dims in file order, innermost first.
inline std::string listed(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type, std::uint64_t offset) {
  std::string all = text(name) + u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) all += u64(dim);
  return all + u32(type) + u64(offset);
}

inline std::string file(const std::vector<std::string>& entries, const std::vector<std::string>& tensors, const std::string& data, std::size_t alignment = 32,
                        std::uint32_t version = 3) {
  std::string all = "GGUF" + u32(version) + u64(tensors.size()) + u64(entries.size());
  for (const std::string& entry : entries) all += entry;
  for (const std::string& one : tensors) all += one;
  if (tensors.empty()) return all;
  all.resize((all.size() + alignment - 1) / alignment * alignment);
  return all + data;
}

}  // namespace gguf_bytes
