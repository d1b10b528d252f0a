#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/yaml.hpp>

namespace xtrain::detail {

[[noreturn]] inline void tune_wrong(const std::string& file, const yaml_value& at, const std::string& path, const std::string& must) {
  if (at.line > 0) fail<config_error>(file, ":", at.line, ": ", path, ": ", must);
  fail<config_error>(path, ": ", must);  // from the command line
}

class tune_interpolation {
 public:
  tune_interpolation(const yaml_value& root, const std::string& file) : root_(root), file_(file) {}

  [[nodiscard]] yaml_value all() {
    yaml_value result = resolved(root_, "");
    for (const std::string& name : named_) {
      yaml_value* value = &result;
      for (std::string_view rest = name; value != nullptr && !rest.empty();) {
        const std::size_t end = std::min(rest.find('.'), rest.size());
        value = value->find(rest.substr(0, end));
        if (value != nullptr) value->is_named = true;
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return result;
  }

 private:
  static constexpr std::size_t max_depth = 32, max_text = std::size_t{1} << 16, max_values = std::size_t{1} << 16,
                               max_bytes = std::size_t{1} << 22;

  [[nodiscard]] yaml_value resolved(const yaml_value& value, const std::string& path) {
    if (++count_ > max_values) tune_wrong(file_, value, path, concat("interpolations must not make more than ", max_values, " values"));
    bytes_ += value.text.size();
    if (bytes_ > max_bytes) tune_wrong(file_, value, path, concat("interpolations must not make more than ", max_bytes, " bytes"));
    if (value.is_text() && value.text.find("${") != std::string::npos) return filled(value, path);
    yaml_value result = value;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const std::string name = value.is_map() ? value.keys[i] : concat(i);
      result.items[i] = resolved(value.items[i], path.empty() ? name : concat(path, ".", name));
    }
    return result;
  }
  [[nodiscard]] yaml_value filled(const yaml_value& value, const std::string& path) {
    if (++depth_ > max_depth) tune_wrong(file_, value, path, concat("interpolations must not go in a circle; given ", value.shown()));
    const std::string& text = value.text;
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = text.find("${", at);
      if (begin == std::string::npos) {
        result += text.substr(at);
        break;
      }
      if (begin > at && text[begin - 1] == '\\') {  // \${ is itself
        result += text.substr(at, begin - 1 - at) + "${";
        at = begin + 2;
        continue;
      }
      result += text.substr(at, begin - at);
      const std::size_t end = text.find('}', begin);
      const std::string name = text.substr(begin + 2, end == std::string::npos ? end : end - begin - 2);
      if (end == std::string::npos || name.empty() || name.find("${") != std::string::npos)
        tune_wrong(file_, value, path, concat("an interpolation must be ${key}, not nested; given ", value.shown()));
      yaml_value found = named(name, value, path);
      if (begin == 0 && end + 1 == text.size()) {  // the whole text: keeps the value's type
        found.line = value.line;
        --depth_;
        return found;
      }
      if (found.is_list() || found.is_map())
        tune_wrong(file_, value, path, concat("${", name, "} must be a single value within a text; it is ", found.type_name()));
      result += found.is_null() ? "None" : found.text;
      at = end + 1;
      if (result.size() > max_text) tune_wrong(file_, value, path, concat("interpolations must not make more than ", max_text, " characters"));
    }
    --depth_;
    yaml_value made = yaml_value::of_text(std::move(result));
    made.line = value.line;
    return made;
  }
  [[nodiscard]] yaml_value named(std::string name, const yaml_value& at, const std::string& path) {
    if (name.starts_with("oc.env:")) {
      name.erase(0, 7);
      const std::size_t comma = name.find(',');
      const char* found = std::getenv(name.substr(0, comma).c_str());
      if (found == nullptr && comma == std::string::npos) tune_wrong(file_, at, path, concat("the environment must have ", name, "; it has not"));
      return yaml_value::of_text(found != nullptr ? found : name.substr(comma + 1));
    }
    if (name.find(':') != std::string::npos || name.starts_with('.'))
      tune_wrong(file_, at, path, concat("an interpolation must be ${key}, ${key.key} or ${oc.env:NAME}; given ${", name, "}"));
    const yaml_value* value = &root_;
    std::string_view rest = name;
    while (value != nullptr && !rest.empty()) {
      const std::size_t end = std::min(rest.find('.'), rest.size());
      value = value->find(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (value == nullptr) tune_wrong(file_, at, path, concat("there is no key ", name, ", which ${", name, "} names"));
    if (++depth_ > max_depth) tune_wrong(file_, at, path, concat("interpolations must not go in a circle; given ", at.shown()));
    if (std::find(named_.begin(), named_.end(), name) == named_.end()) named_.push_back(name);
    yaml_value result = resolved(*value, name);
    --depth_;
    return result;
  }

  const yaml_value& root_;
  const std::string& file_;
  std::size_t depth_ = 0, count_ = 0, bytes_ = 0;
  std::vector<std::string> named_{};  // by interpolations
};

/// Sets the last part of a dotted name; creates missing maps.
inline void tune_set(yaml_value& root, const std::string& key, yaml_value value, const std::string& argument) {
  yaml_value* at = &root;
  std::string_view rest = key;
  while (true) {
    const std::size_t end = rest.find('.');
    const std::string name(rest.substr(0, end));
    const std::size_t bracket = name.find('[');
    require<config_error>(!name.empty() && bracket != 0, argument, ": must be key=value with keys separated by dots");
    std::string own = name.substr(0, bracket);
    const bool last = end == std::string_view::npos;
    const auto within = [&]() -> yaml_value& {
      if (at->is_list()) {  // a list's item by its number, as in dataset.0.split
        const bool is_number = std::all_of(own.begin(), own.end(), [](unsigned char c) { return c >= '0' && c <= '9'; }) && own.size() < 6;
        require<config_error>(is_number && std::stoul(own) < at->items.size(), argument, ": ", own, " must be the number of an item of the list, which has ",
                              at->items.size());
        return at->items[std::stoul(own)];
      }
      if (!at->is_map()) *at = yaml_value::empty_map();
      if (at->find(own) == nullptr) at->set(own, bracket == std::string::npos && last ? yaml_value{} : yaml_value::empty_map());
      return *at->find(own);
    };
    at = &within();
    for (std::size_t open = bracket; open != std::string::npos && open < name.size();) {
      const std::size_t close = name.find(']', open);
      require<config_error>(name[open] == '[' && close != std::string::npos, argument, ": an index must be [number]");
      own = name.substr(open + 1, close - open - 1);
      require<config_error>(at->is_list(), argument, ": ", name.substr(0, open), " must be a list; it is ", at->type_name());
      at = &within();
      open = close + 1;
    }
    if (last) {
      *at = std::move(value);
      return;
    }
    rest.remove_prefix(end + 1);
  }
}

inline void tune_override(yaml_value& root, const std::string& argument) {
  if (argument.starts_with('~')) {
    std::string_view rest = std::string_view(argument).substr(1);
    rest = rest.substr(0, rest.find('='));
    require<config_error>(rest.find("_component_") == std::string_view::npos, argument, ": a component cannot be removed");
    yaml_value* in = &root;
    while (rest.find('.') != std::string_view::npos && in != nullptr) {
      in = in->find(rest.substr(0, rest.find('.')));
      rest.remove_prefix(rest.find('.') + 1);
    }
    const yaml_value* gone = in == nullptr ? nullptr : in->find(rest);
    require<config_error>(gone != nullptr, argument, ": there is no such key in the config to remove");
    require<config_error>(gone->find("_component_") == nullptr, argument, ": a component cannot be removed");
    in->erase(rest);
    return;
  }
  const std::size_t equals = argument.find('=');
  require<config_error>(!argument.starts_with('-'), argument, ": must be key=value or ~key: a recipe has no flags but --config");
  require<config_error>(equals != std::string::npos && equals > 0, argument, ": must be key=value or ~key");
  std::string key = argument.substr(0, equals);
  const std::string given = argument.substr(equals + 1);
  yaml_value value;
  if (key.find("max_filename") != std::string::npos) value = yaml_value::of_text(given);
  else if (given != "None") value = parse_yaml(given, argument);
  const auto forget_lines = [](auto& self, yaml_value& one) -> void {
    one.line = 0;
    for (yaml_value& item : one.items) self(self, item);
  };
  forget_lines(forget_lines, value);
  if (const yaml_value* whole = root.find(key); whole != nullptr && whole->find("_component_") != nullptr && !value.is_map()) key += "._component_";
  tune_set(root, key, std::move(value), argument);
}

/// A map of a config: records which keys were read.
class tune_section {
 public:
  tune_section(const yaml_value& values, const std::string& file, std::string path) : values_(&values), file_(&file), path_(std::move(path)) {
    if (!values.is_map()) tune_wrong(file, values, path_, concat("must be a map; given ", values.shown()));
  }

  /// Null: missing key.
  [[nodiscard]] const yaml_value* any(const std::string& key) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.push_back(key);
    return values_->find(key);
  }
  /// Null: missing or null key.
  [[nodiscard]] const yaml_value* get(const std::string& key) {
    const yaml_value* found = any(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  [[nodiscard]] bool has(const std::string& key) { return get(key) != nullptr; }
  [[nodiscard]] std::string path_of(const std::string& key) const { return path_.empty() ? key : concat(path_, ".", key); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& file() const { return *file_; }
  [[nodiscard]] const yaml_value& values() const { return *values_; }

  [[noreturn]] void wrong(const std::string& key, const std::string& must) const {
    const yaml_value* at = values_->find(key);
    tune_wrong(*file_, at == nullptr ? *values_ : *at, path_of(key), at == nullptr ? must : concat(must, "; given ", at->shown()));
  }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise = {}) {
    const yaml_value* found = get(key);
    if (found == nullptr) return otherwise;
    if (!found->is_text()) wrong(key, "must be a text");
    return found->text;
  }
  [[nodiscard]] std::string required_text(const std::string& key) {
    std::string found = text(key);
    if (found.empty()) wrong(key, "must be given");
    return found;
  }
  [[nodiscard]] std::size_t count(const std::string& key, std::size_t otherwise) {
    const yaml_value* found = get(key);
    if (found == nullptr) return otherwise;
    if (found->type != yaml_value::kind::integer || found->whole < 0) wrong(key, "must be a non-negative integer");
    return static_cast<std::size_t>(found->whole);
  }
  [[nodiscard]] std::size_t positive(const std::string& key, std::size_t otherwise) {
    const std::size_t value = count(key, otherwise);
    if (value == 0) wrong(key, "must be positive");
    return value;
  }
  [[nodiscard]] std::size_t required_positive(const std::string& key) {
    if (!has(key)) wrong(key, "must be given, a positive whole number");
    return positive(key, 1);
  }
  [[nodiscard]] double number(const std::string& key, double otherwise) {
    const yaml_value* found = get(key);
    if (found == nullptr) return otherwise;
    if (found->type != yaml_value::kind::integer && found->type != yaml_value::kind::number) wrong(key, "must be a number");
    if (!std::isfinite(found->real)) wrong(key, "must be a number that is finite");
    return found->real;
  }
  [[nodiscard]] bool flag(const std::string& key, bool otherwise) {
    const yaml_value* found = get(key);
    if (found == nullptr) return otherwise;
    if (found->type != yaml_value::kind::boolean) wrong(key, "must be True or False");
    return found->truth;
  }
  [[nodiscard]] std::vector<std::string> texts(const std::string& key) {
    const yaml_value* found = get(key);
    std::vector<std::string> all;
    if (found == nullptr) return all;
    if (found->is_text()) return {found->text};
    if (!found->is_list()) wrong(key, "must be a list of texts");
    for (const yaml_value& one : found->items) {
      if (!one.is_text()) wrong(key, "must be a list of texts");
      all.push_back(one.text);
    }
    return all;
  }
  [[nodiscard]] tune_section section(const std::string& key) {
    const yaml_value* found = get(key);
    if (found == nullptr) wrong(key, "must be given");
    return {*found, *file_, path_of(key)};
  }
  /// Refuses every value of a key except `value`; the key may be missing.
  void only(const std::string& key, bool value, const std::string& why) {
    if (flag(key, value) != value) wrong(key, concat("must be ", value ? "True" : "False", ": ", why));
  }
  void must_be_null(const std::string& key, const std::string& why) {
    if (has(key)) wrong(key, concat("must be null: ", why));
  }
  void asks_for(std::initializer_list<const char*> keys) {
    for (const char* key : keys) (void)any(key);
  }
  /// Refuses keys that were not read. Outside of components, whose arguments they would be, keys may be read by interpolations only.
  void finish() const {
    for (const std::string& key : values_->keys) {
      if (values_->find(key)->is_named && values_->find("_component_") == nullptr) continue;
      if (key == "_component_" || std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      const std::string near = nearest_name(key, asked_);
      wrong(key, concat("there is no such key", near.empty() ? "" : concat("; did you mean ", near, "?")));
    }
  }

 private:
  const yaml_value* values_;
  const std::string* file_;
  std::string path_;
  std::vector<std::string> asked_{};
};

}  // namespace xtrain::detail
