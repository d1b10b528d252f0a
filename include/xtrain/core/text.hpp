// Text of messages: values concatenated into one string, without <iostream> and independent of the locale.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace xtrain {

namespace detail {

inline void append(std::string& to, std::string_view s) { to.append(s); }
inline void append(std::string& to, const char* s) { to.append(s); }
inline void append(std::string& to, char c) { to.push_back(c); }
inline void append(std::string& to, bool b) { to.append(b ? "true" : "false"); }

template <std::integral I>
void append(std::string& to, I value) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  to.append(digits.data(), end);
}

template <std::floating_point F>
void append(std::string& to, F value) {
  std::array<char, 40> digits{};  // the shortest text that parses back to the same value
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  to.append(digits.data(), end);
}

/// A shape is written as [2, 3].
template <std::integral I, std::size_t N>
void append(std::string& to, std::span<const I, N> shape) {
  to.push_back('[');
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) to.append(", ");
    append(to, shape[i]);
  }
  to.push_back(']');
}
template <std::integral I, std::size_t N>
void append(std::string& to, const std::array<I, N>& shape) {
  append(to, std::span<const I, N>(shape));
}

}  // namespace detail

namespace detail {

/// A part of a text, whatever its type: a template per list of types would be most of what a program's compiler is busy with. The value must stay alive.
class text_part {
 public:
  template <class T>
  explicit text_part(const T& value) : value_(&value), append_(append_value<T>) {}
  explicit text_part(const char* text) : value_(text), append_(append_characters) {}

  void append_to(std::string& to) const { append_(to, value_); }

 private:
  template <class T>
  static void append_value(std::string& to, const void* value) {
    append(to, *static_cast<const T*>(value));
  }
  static void append_characters(std::string& to, const void* text) { to.append(static_cast<const char*>(text)); }

  const void* value_;
  void (*append_)(std::string&, const void*);
};

[[nodiscard, gnu::noinline]] inline std::string joined(std::span<const text_part> parts) {
  std::string all;
  for (const text_part& one : parts) one.append_to(all);
  return all;
}

}  // namespace detail

/// The parts concatenated: concat("hidden_size (", 6, ") must be ...").
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) return {};
  else {
    const std::array<detail::text_part, sizeof...(parts)> all{detail::text_part(parts)...};
    return detail::joined(all);
  }
}

/// A text for a terminal, which must not obey what a file's names contain: control characters are written as \n or \x1b.
///   lines  keeps line breaks
[[nodiscard]] inline std::string printable(std::string_view text, bool lines = false) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]), next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F || (byte == 0xC2 && next >= 0x80 && next < 0xA0);  // U+0080 to U+009F
    if (!control || (lines && byte == '\n')) {
      result.push_back(text[i]);
      continue;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    for (std::size_t left = byte == 0xC2 ? 2 : 1; left > 0; --left) {
      const auto one = static_cast<unsigned char>(text[i]);
      if (one == '\n') result += "\\n";
      else result.append({'\\', 'x', digits[one >> 4U], digits[one & 15U]});
      if (left > 1) ++i;
    }
  }
  return result;
}

/// A number with `digits` digits after the decimal point: fixed(1.5, 2) is "1.50".
[[nodiscard]] inline std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  if (length < 0 || static_cast<std::size_t>(length) >= text.size()) return concat(value);
  return {text.data(), static_cast<std::size_t>(length)};
}

/// Bytes in human-readable binary units: "1.55 GiB".
[[nodiscard]] inline std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < units.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return concat(fixed(bytes, unit == 0 ? 0 : 2), " ", units[unit]);
}
[[nodiscard]] inline std::string bytes_text(std::size_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// A count with a decimal unit: "123.65 M".
[[nodiscard]] inline std::string count_text(double count) {
  constexpr std::array<const char*, 7> units{"", " K", " M", " G", " T", " P", " E"};
  std::size_t unit = 0;
  while (count >= 1000.0 && unit + 1 < units.size()) {
    count /= 1000.0;
    ++unit;
  }
  return concat(fixed(count, unit == 0 ? 0 : 2), units[unit]);
}

/// The name among `known` with the smallest edit distance to `given`; empty when none is close
/// (more than a third of the longer name would have to change).
[[nodiscard]] inline std::string nearest_name(std::string_view given, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = 0;
  std::string row;  // distances fit in a byte: names are short
  for (const std::string& name : known) {
    if (name.size() > 250 || given.size() > 250) continue;
    row.resize(given.size() + 1);
    for (std::size_t j = 0; j <= given.size(); ++j) row[j] = static_cast<char>(j);
    for (std::size_t i = 0; i < name.size(); ++i) {
      auto diagonal = static_cast<unsigned char>(row[0]);
      row[0] = static_cast<char>(i + 1);
      for (std::size_t j = 0; j < given.size(); ++j) {
        const auto above = static_cast<unsigned char>(row[j + 1]);
        const auto left = static_cast<unsigned char>(row[j]);
        const unsigned change = diagonal + (name[i] == given[j] ? 0U : 1U);
        const unsigned gap = 1U + (above < left ? above : left);
        row[j + 1] = static_cast<char>(change < gap ? change : gap);
        diagonal = above;
      }
    }
    const std::size_t distance = static_cast<unsigned char>(row[given.size()]);
    if (best.empty() || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  const std::size_t longer = best.size() > given.size() ? best.size() : given.size();
  return 3 * best_distance <= longer + 2 ? best : std::string{};
}

}  // namespace xtrain
