// Objects of a tokenizer.json: checks types of members, rejects unknown members. Component 'text'.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// A step's "type".
[[nodiscard]] inline std::string type_of(const json& step) {
  if (!step.is_object()) return {};
  const auto at = step.find("type");
  return at != step.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

/// One object of a tokenizer.json.
class settings_reader {
 public:
  /// `who`: the file; `role`: the object's.
  ///   throws  config_error if it is not an object
  settings_reader(const json& object, std::string_view who, std::string_view role) : object_(&object) {
    const std::string type = type_of(object);
    who_ = concat(who, ": ", role, type.empty() ? "" : " '", type, type.empty() ? "" : "'");
    require<config_error>(object.is_object(), who_, ": must be an object; it is ", object.type_name());
  }

  /// throws config_error for any other member
  void allow(std::initializer_list<std::string_view> names) const {
    for (const auto& [name, value] : object_->items()) {
      bool known = name == "type" || value.is_null();
      for (const std::string_view allowed : names) known = known || name == allowed;
      require<config_error>(known, who_, ": '", name, "' must be something this library knows; it is ", value.dump().substr(0, 100));
    }
  }

  [[nodiscard]] bool has(const char* name) const {
    const auto at = object_->find(name);
    return at != object_->end() && !at->is_null();
  }
  [[nodiscard]] const json& member(const char* name) const {
    require<config_error>(has(name), who_, ": must have '", name, "'; it is missing");
    return *object_->find(name);
  }
  [[nodiscard]] bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    require<config_error>(member(name).is_boolean(), who_, ": '", name, "' must be true or false; it is ",
                          member(name).dump().substr(0, 100));
    return member(name).get<bool>();
  }
  [[nodiscard]] std::string text(const char* name) const {
    require<config_error>(member(name).is_string(), who_, ": '", name, "' must be a string; it is ", member(name).dump().substr(0, 100));
    return member(name).get<std::string>();
  }
  [[nodiscard]] std::string text(const char* name, std::string otherwise) const { return has(name) ? text(name) : otherwise; }
  [[nodiscard]] std::uint64_t count(const char* name) const {
    const json& value = member(name);
    require<config_error>(value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0), who_, ": '", name,
                          "' must be a whole number, not negative; it is ", value.dump().substr(0, 100));
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] std::uint64_t count(const char* name, std::uint64_t otherwise) const { return has(name) ? count(name) : otherwise; }
  [[nodiscard]] const json& list(const char* name) const {
    require<config_error>(member(name).is_array(), who_, ": '", name, "' must be a list; it is ", member(name).type_name());
    return member(name);
  }
  /// A string of one character.
  [[nodiscard]] std::string character(const char* name, std::string otherwise) const {
    const std::string one = text(name, std::move(otherwise));
    require<config_error>(!one.empty() && character_at(one, 0).bytes == one.size(), who_, ": '", name, "' must be one character; it is '",
                          one, "'");
    return one;
  }

  [[nodiscard]] const std::string& who() const { return who_; }
  [[nodiscard]] const json& object() const { return *object_; }

 private:
  const json* object_;
  std::string who_;
};

}  // namespace xtrain::detail
