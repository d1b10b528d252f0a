// YAML: the values of a document with their lines, and as text. Component 'recipes'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json.hpp>

namespace xtrain {

/// A value of a YAML document. Plain scalars as in OmegaConf: 3e-4 is a number, yes and off are booleans; but 00030 is a text.
struct yaml_value {
  enum class kind : std::uint8_t { null, boolean, integer, number, text, list, map };

  kind type = kind::null;
  std::string text{};               ///< of a scalar: as written, without quotes
  bool truth = false;
  std::int64_t whole = 0;
  double real = 0.0;                ///< also of an integer
  std::vector<std::string> keys{};  ///< of a map, in the order of the document
  std::vector<yaml_value> items{};  ///< of a list, or the values of a map
  std::size_t line = 0;             ///< in the document, from 1; 0: not from a document
  bool is_named = false;            ///< an interpolation reads it, or a value in it

  [[nodiscard]] bool is_null() const { return type == kind::null; }
  [[nodiscard]] bool is_map() const { return type == kind::map; }
  [[nodiscard]] bool is_list() const { return type == kind::list; }
  [[nodiscard]] bool is_text() const { return type == kind::text; }
  [[nodiscard]] const char* type_name() const;

  /// Null when a map has no such key, or this is not a map.
  [[nodiscard]] const yaml_value* find(std::string_view key) const;
  [[nodiscard]] yaml_value* find(std::string_view key);
  /// Of a map: replaces the value, or appends it.
  void set(const std::string& key, yaml_value value);
  /// Returns whether the key existed.
  bool erase(std::string_view key);
  [[nodiscard]] json to_json() const;
  /// For messages: a scalar's text, a list or a map as JSON; at most 200 bytes.
  [[nodiscard]] std::string shown() const;

  [[nodiscard]] static yaml_value of_text(std::string text);
  [[nodiscard]] static yaml_value empty_map();
};

/// Limits of a document, which is not trusted.
struct yaml_limits {
  std::size_t bytes = std::size_t{1} << 20;  ///< of the document, and of texts repeated by aliases
  std::size_t depth = 64;
  std::size_t values = std::size_t{1} << 16;  ///< aliases count as what they repeat
};

/// Parses a text of one document.
///   who     names it in errors
///   throws  config_error, with the line: not UTF-8, not YAML, a repeated key, several documents, tags other than YAML's scalars, a limit
[[nodiscard]] yaml_value parse_yaml(std::string_view text, const std::string& who, const yaml_limits& limits = {});
/// throws  file_error, config_error
[[nodiscard]] yaml_value read_yaml(const std::string& path, const yaml_limits& limits = {});

/// The value as a YAML document, a line per scalar.
///   sorted  the keys of every map, by name
[[nodiscard]] std::string yaml_text(const yaml_value& value, bool sorted = false);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/yaml_impl.hpp>
#endif
