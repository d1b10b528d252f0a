// Definitions of yaml.hpp; the only header that includes yaml-cpp.
#pragma once

#if !__has_include(<yaml-cpp/parser.h>)
#error "xtrain recipes: yaml-cpp must be found; link xtrain::recipes (Debian and Ubuntu: libyaml-cpp-dev)"
#endif

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/front_ends/yaml.hpp>

namespace xtrain {

namespace detail {

/// The type of a plain scalar, as OmegaConf's loader resolves it (YAML 1.1, with exponents without a dot).
inline void resolve_plain(yaml_value& scalar) {
  using kind = yaml_value::kind;
  const std::string& text = scalar.text;
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {  // true, True, TRUE
      if (word.size() != text.size()) return false;
      const auto upper = [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); };
      const bool first = text[0] == word[0] || text[0] == upper(word[0]);
      const std::string_view a = std::string_view(text).substr(1), b = word.substr(1);
      return first && (a == b || (text[0] == upper(word[0]) && std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return x == upper(y); })));
    });
  };
  scalar.type = kind::text;
  if (text.empty() || text == "~" || is_one_of({"null"})) {
    scalar.type = kind::null;
    return;
  }
  if (is_one_of({"true", "yes", "on"}) || is_one_of({"false", "no", "off"})) {
    scalar.type = kind::boolean;
    scalar.truth = is_one_of({"true", "yes", "on"});
    return;
  }
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest == ".inf" || rest == ".Inf" || rest == ".INF" || text == ".nan" || text == ".NaN" || text == ".NAN") {
    scalar.type = kind::number;
    scalar.real = rest.starts_with(".n") || rest.starts_with(".N") ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    if (negative) scalar.real = -scalar.real;
    return;
  }
  if (rest.empty() || (std::isdigit(static_cast<unsigned char>(rest[0])) == 0 && rest[0] != '.')) return;
  std::string digits;
  for (const char c : rest)
    if (c != '_') digits += c;
  const char *begin = digits.data(), *end = begin + digits.size();
  const bool hexadecimal = digits.starts_with("0x");
  const bool octal = digits.size() > 1 && digits[0] == '0' && std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (octal) return;  // 00030 of a file name; octal in YAML 1.1
  std::uint64_t whole = 0;
  const auto read = std::from_chars(begin + (hexadecimal ? 2 : 0), end, whole, hexadecimal ? 16 : 10);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (read.ec == std::errc{} && read.ptr == end && whole <= most) {
    scalar.type = kind::integer;
    scalar.whole = negative ? -static_cast<std::int64_t>(whole) : static_cast<std::int64_t>(whole);
    scalar.real = static_cast<double>(scalar.whole);
    return;
  }
  double real = 0.0;
  const auto number = std::from_chars(begin, end, real);
  if (hexadecimal || number.ptr != end || (number.ec != std::errc{} && number.ec != std::errc::result_out_of_range)) return;
  if (number.ec == std::errc::result_out_of_range) return;
  scalar.type = kind::number;
  scalar.real = negative ? -real : real;
}

class yaml_builder final : public YAML::EventHandler {
 public:
  yaml_builder(const std::string& who, const yaml_limits& limits) : who_(who), limits_(limits) {}

  [[nodiscard]] yaml_value& result() { return result_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(made(mark), mark, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    must(found != anchors_.end(), mark, "an alias must name an anchor before it that is complete");
    count(size_of(found->second), mark);
    repeated_ += bytes_of(found->second);
    must(repeated_ <= limits_.bytes, mark, "aliases must not repeat more than ", limits_.bytes, " bytes");
    must(open_.size() + depth_of(found->second) <= limits_.depth, mark, "must not be nested deeper than ", limits_.depth);
    append(found->second, mark, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    yaml_value scalar = made(mark);
    scalar.text = value;
    // yaml-cpp makes a byte, not a character, of \N and \_
    must(whole_characters_end(value, 0) == value.size() && value.find('\0') == std::string::npos, mark,
         "a text must be UTF-8 without zero bytes; an escape makes it something else");
    constexpr std::string_view own = "tag:yaml.org,2002:";
    if (tag == "!" || tag == concat(own, "str")) scalar.type = yaml_value::kind::text;
    else if (tag == concat(own, "null")) scalar.type = yaml_value::kind::null;
    else {
      must(tag.empty() || tag == "?" || tag == concat(own, "int") || tag == concat(own, "float") || tag == concat(own, "bool"), mark,
           "must be a plain value; its tag is ", tag);
      resolve_plain(scalar);
    }
    add(std::move(scalar), mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(yaml_value::kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(yaml_value::kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct part {
    yaml_value value;
    YAML::anchor_t anchor;
    std::string key{};
    bool has_key = false;
    std::vector<yaml_value> merged{};  ///< maps of a merge key (<<), in ascending precedence
  };

  template <class... Parts>
  void must(bool holds, const YAML::Mark& mark, const Parts&... parts) const {
    require<config_error>(holds, who_, ":", mark.line + 1, ": ", parts...);
  }
  [[nodiscard]] static yaml_value made(const YAML::Mark& mark) {
    yaml_value value;
    value.line = static_cast<std::size_t>(mark.line + 1);
    return value;
  }
  [[nodiscard]] static std::size_t size_of(const yaml_value& value) {
    return std::accumulate(value.items.begin(), value.items.end(), std::size_t{1}, [](std::size_t sum, const yaml_value& one) { return sum + size_of(one); });
  }
  [[nodiscard]] static std::size_t bytes_of(const yaml_value& value) {
    std::size_t sum = value.text.size();
    for (const std::string& key : value.keys) sum += key.size();
    for (const yaml_value& one : value.items) sum += bytes_of(one);
    return sum;
  }
  [[nodiscard]] static std::size_t depth_of(const yaml_value& value) {
    std::size_t most = 0;
    for (const yaml_value& one : value.items) most = std::max(most, 1 + depth_of(one));
    return most;
  }
  void count(std::size_t values, const YAML::Mark& mark) {
    count_ += values;
    must(count_ <= limits_.values, mark, "must not have more than ", limits_.values, " values");
  }
  void open(yaml_value::kind type, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    must(open_.size() < limits_.depth, mark, "must not be nested deeper than ", limits_.depth);
    must(tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:map" || tag == "tag:yaml.org,2002:seq", mark,
         "must be a plain value; its tag is ", tag);
    must(open_.empty() || !open_.back().value.is_map() || open_.back().has_key, mark, "a key must be a scalar");
    count(1, mark);
    open_.push_back({made(mark), anchor});
    open_.back().value.type = type;
  }
  void close() {
    part done = std::move(open_.back());
    open_.pop_back();
    if (!done.merged.empty()) merge(done);
    append(std::move(done.value), YAML::Mark::null_mark(), done.anchor);  // counted when it began
  }
  /// As PyYAML: keys of merged maps come first; the map's values replace theirs.
  static void merge(part& done) {
    yaml_value whole = done.value;
    whole.keys.clear(), whole.items.clear();
    done.merged.push_back(std::move(done.value));
    for (yaml_value& from : done.merged)
      for (std::size_t i = 0; i < from.keys.size(); ++i)
        if (yaml_value* const there = whole.find(from.keys[i])) *there = std::move(from.items[i]);
        else whole.keys.push_back(std::move(from.keys[i])), whole.items.push_back(std::move(from.items[i]));
    done.value = std::move(whole);
  }
  void add_merged(part& in, yaml_value value, const YAML::Mark& mark) {
    const bool is_list = value.is_list();
    const bool right = value.is_map() || (is_list && std::all_of(value.items.begin(), value.items.end(), [](const yaml_value& one) { return one.is_map(); }));
    require<config_error>(right, who_, ":", mark.line < 0 ? value.line : static_cast<std::size_t>(mark.line + 1), ": <<: must be a map, or a list of maps");
    if (!is_list) return in.merged.push_back(std::move(value));
    for (auto at = value.items.rbegin(); at != value.items.rend(); ++at) in.merged.push_back(std::move(*at));  // the first of a list has precedence
  }
  void add(yaml_value value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    count(1, mark);
    append(std::move(value), mark, anchor);
  }
  void append(yaml_value value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = value;
    if (open_.empty()) {
      result_ = std::move(value);
      return;
    }
    part& in = open_.back();
    if (in.value.is_list()) {
      in.value.items.push_back(std::move(value));
    } else if (!in.has_key) {
      must(!value.is_list() && !value.is_map(), mark, "a key must be a scalar");
      // PyYAML's versions differ in the precedence of two merge keys
      must(in.value.find(value.text) == nullptr && (value.text != "<<" || in.merged.empty()), mark, value.text, ": occurs twice in its map");
      in.key = std::move(value.text);
      in.has_key = true;
    } else {
      in.has_key = false;
      if (in.key == "<<") return add_merged(in, std::move(value), mark);
      in.value.keys.push_back(std::move(in.key));
      in.value.items.push_back(std::move(value));
    }
  }

  const std::string& who_;
  const yaml_limits& limits_;
  yaml_value result_{};
  std::vector<part> open_{};
  std::map<YAML::anchor_t, yaml_value> anchors_{};
  std::size_t count_ = 0, repeated_ = 0;  // values; bytes of texts repeated by aliases
};

/// A scalar in a document: quoted, if it would otherwise be read differently.
[[nodiscard]] inline std::string yaml_scalar(const yaml_value& value) {
  if (value.is_null()) return "null";
  if (value.type == yaml_value::kind::boolean) return value.truth ? "true" : "false";
  if (!value.is_text()) return value.text;
  yaml_value plain;
  plain.text = value.text;
  resolve_plain(plain);
  const std::string& text = value.text;
  const bool octal = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const bool harmless = plain.is_text() && !octal && text.find_first_of("\n\r\t\"\\") == std::string::npos && text.find(": ") == std::string::npos &&
                        text.find(" #") == std::string::npos && text.front() != ' ' && text.back() != ' ' && text.back() != ':' &&
                        std::string_view("-?:,[]{}#&*!|>'%@`").find(text.front()) == std::string_view::npos;
  return harmless ? text : json(text).dump(-1, ' ', false, json::error_handler_t::replace);  // a JSON string is a YAML string
}

inline void write_yaml(const yaml_value& value, bool sorted, std::size_t indent, bool after_dash, std::string& to) {
  std::vector<std::size_t> order(value.items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (sorted && value.is_map()) std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return value.keys[a] < value.keys[b]; });
  bool first = true;
  for (const std::size_t i : order) {
    const yaml_value& one = value.items[i];
    if (!first || !after_dash) to += std::string(indent, ' ');
    first = false;
    to += value.is_map() ? yaml_scalar(yaml_value::of_text(value.keys[i])) + ":" : "-";
    if (one.items.empty()) {
      to += concat(" ", one.is_map() ? "{}" : one.is_list() ? "[]" : yaml_scalar(one), "\n");
    } else if (value.is_map()) {
      to += "\n";
      write_yaml(one, sorted, indent + (one.is_map() ? 2 : 0), false, to);
    } else {
      to += " ";
      write_yaml(one, sorted, indent + 2, true, to);
    }
  }
}

}  // namespace detail

XTRAIN_INLINE const char* yaml_value::type_name() const {
  constexpr std::array<const char*, 7> names{"null", "a boolean", "an integer", "a number", "a text", "a list", "a map"};
  return names[static_cast<std::size_t>(type)];
}

XTRAIN_INLINE const yaml_value* yaml_value::find(std::string_view key) const {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
}
XTRAIN_INLINE yaml_value* yaml_value::find(std::string_view key) {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
}

XTRAIN_INLINE void yaml_value::set(const std::string& key, yaml_value value) {
  if (yaml_value* at = find(key)) {
    *at = std::move(value);
    return;
  }
  keys.push_back(key);
  items.push_back(std::move(value));
}

XTRAIN_INLINE bool yaml_value::erase(std::string_view key) {
  const auto at = std::find(keys.begin(), keys.end(), key);
  if (at == keys.end()) return false;
  items.erase(items.begin() + (at - keys.begin()));
  keys.erase(at);
  return true;
}

XTRAIN_INLINE json yaml_value::to_json() const {
  switch (type) {
    case kind::null: return nullptr;
    case kind::boolean: return truth;
    case kind::integer: return whole;
    case kind::number: return real;
    case kind::text: return text;
    case kind::list: {
      json all = json::array();
      for (const yaml_value& one : items) all.push_back(one.to_json());
      return all;
    }
    case kind::map: break;
  }
  json all = json::object();
  for (std::size_t i = 0; i < items.size(); ++i) all[keys[i]] = items[i].to_json();
  return all;
}

XTRAIN_INLINE std::string yaml_value::shown() const {
  const auto cut = [](std::string all) {
    constexpr std::size_t most = 200;
    if (all.size() <= most) return all;
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(all[end]) & 0xC0U) == 0x80U) --end;  // a whole character of UTF-8
    return all.substr(0, end) + "...";
  };
  if (is_null()) return "null";
  if (is_text()) return concat("'", cut(text), "'");
  if (!is_list() && !is_map()) return cut(text);
  return cut(to_json().dump(-1, ' ', false, json::error_handler_t::replace));
}

XTRAIN_INLINE yaml_value yaml_value::of_text(std::string text) {
  yaml_value value;
  value.type = kind::text;
  value.text = std::move(text);
  return value;
}

XTRAIN_INLINE yaml_value yaml_value::empty_map() {
  yaml_value value;
  value.type = kind::map;
  return value;
}

XTRAIN_INLINE yaml_value parse_yaml(std::string_view text, const std::string& who, const yaml_limits& limits) {
  require<config_error>(text.size() <= limits.bytes, who, ": must not have more than ", limits.bytes, " bytes; it has ", text.size());
  require<config_error>(text.find('\0') == std::string_view::npos, who, ": must be YAML; it has a zero byte");
  const std::size_t whole = detail::whole_characters_end(text, 0);
  require<config_error>(whole == text.size(), who, ":", 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(whole), '\n'),
                        ": must be UTF-8; byte ", whole + 1, " of the file is not");
  // the end mark: yaml-cpp accepts an unfinished quotation at the end of a file, but not before a mark
  std::istringstream stream(concat(text, text.ends_with('\n') ? "" : "\n", "...\n"));
  detail::yaml_builder builder(who, limits);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    yaml_value document = std::move(builder.result());
    detail::yaml_builder next(who, limits);
    require<config_error>(!parser.HandleNextDocument(next), who, ": must be one document; there are several");
    return document;
  } catch (const YAML::Exception& problem) {
    fail<config_error>(who, ":", problem.mark.line + 1, ": must be YAML; ", problem.msg);
  }
}

XTRAIN_INLINE yaml_value read_yaml(const std::string& path, const yaml_limits& limits) {
  const mapped_file file(path);
  return parse_yaml(file.text(), path, limits);
}

XTRAIN_INLINE std::string yaml_text(const yaml_value& value, bool sorted) {
  if (value.items.empty()) return (value.is_map() ? "{}" : value.is_list() ? "[]" : detail::yaml_scalar(value)) + std::string("\n");
  std::string text;
  detail::write_yaml(value, sorted, 0, false, text);
  return text;
}

}  // namespace xtrain
