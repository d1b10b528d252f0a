// Settings of a config.json, with type checks and aliases.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/core/number.hpp>

namespace xtrain {

/// What a reader of settings has asked for: every setting with all its aliases, and the same of nested objects.
struct asked_settings {
  std::vector<std::vector<std::string>> names{};
  std::map<std::string, std::shared_ptr<asked_settings>> inner{};
};

/// An object of named settings, to read from or write to. If several names are given, the first one present is used.
class json_settings final : public named_settings {
 public:
  json_settings() : object_(json::object()) {}
  /// `who` names the file in errors.
  ///   throws  config_error unless `object` is an object
  json_settings(json object, std::string who) : object_(std::move(object)), who_(std::move(who)) {
    require<config_error>(object_.is_object(), who_, ": must be a JSON object; it is ", object_.type_name());
  }

  [[nodiscard]] bool has(names keys) const override { return find(keys) != nullptr; }

  /// A positive integer.
  [[nodiscard]] std::size_t size(names keys) const override {
    const json* value = find(keys);
    require<config_error>(value != nullptr, who_, ": '", *keys.begin(), "' must be given; it is missing");
    return as_size(*value, keys);
  }
  [[nodiscard]] std::size_t size_or(std::size_t otherwise, names keys) const override {
    const json* value = find(keys);
    return value == nullptr ? otherwise : as_size(*value, keys);
  }
  [[nodiscard]] double number_or(double otherwise, names keys) const override {
    const json* value = find(keys);
    if (value == nullptr) return otherwise;
    require<config_error>(value->is_number(), who_, ": '", *keys.begin(), "' must be a number; given ", value->dump());
    return value->get<double>();
  }
  [[nodiscard]] bool flag_or(bool otherwise, names keys) const override {
    const json* value = find(keys);
    if (value == nullptr) return otherwise;
    require<config_error>(value->is_boolean(), who_, ": '", *keys.begin(), "' must be true or false; given ", value->dump());
    return value->get<bool>();
  }
  [[nodiscard]] std::string text_or(const std::string& otherwise, names keys) const override {
    const json* value = find(keys);
    if (value == nullptr) return otherwise;
    require<config_error>(value->is_string(), who_, ": '", *keys.begin(), "' must be a string; given ", value->dump());
    return value->get<std::string>();
  }
  /// One token or a list of tokens; empty when missing.
  [[nodiscard]] std::vector<token> tokens(names keys) const override {
    const json* value = find(keys);
    std::vector<token> all;
    if (value == nullptr) return all;
    const auto add = [&](const json& one) {
      require<config_error>(
          one.is_number_integer() && one.get<std::int64_t>() >= 0 && one.get<std::int64_t>() < std::numeric_limits<token>::max(), who_,
          ": '", *keys.begin(), "' must be a token or a list of tokens; given ", value->dump());
      all.push_back(one.get<token>());
    };
    if (value->is_array()) {
      for (const json& one : *value) add(one);
    } else {
      add(*value);
    }
    return all;
  }
  /// A token, which may be negative; `otherwise` when missing, nullopt when it is null.
  [[nodiscard]] std::optional<token> token_or(std::optional<token> otherwise, const char* key) const override {
    const json* value = find({key});
    if (value == nullptr) return object_.contains(key) ? std::nullopt : otherwise;
    using limits = std::numeric_limits<token>;
    require<config_error>(value->is_number_integer() && value->get<std::int64_t>() >= limits::min() && value->get<std::int64_t>() <= limits::max(),
                          who_, ": '", key, "' must be a token; given ", value->dump());
    return value->get<token>();
  }
  /// A list of strings; empty when missing.
  [[nodiscard]] std::vector<std::string> texts(names keys) const override {
    const json* value = find(keys);
    std::vector<std::string> all;
    if (value == nullptr) return all;
    const bool good = value->is_array() && std::all_of(value->begin(), value->end(), [](const json& one) { return one.is_string(); });
    require<config_error>(good, who_, ": '", *keys.begin(), "' must be a list of strings; given ", value->dump());
    for (const json& one : *value) all.push_back(one.get<std::string>());
    return all;
  }
  /// A nested object; empty when missing.
  [[nodiscard]] json_settings inner(names keys) const {
    const json* value = find(keys);
    if (value == nullptr) return {};
    json_settings found(*value, concat(who_, ", '", *keys.begin(), "'"));
    if (asked_)
      for (const char* key : keys) {
        if (const auto at = object_.find(key); at == object_.end() || &*at != value) continue;
        auto& asked = asked_->inner[key];
        if (!asked) asked = std::make_shared<asked_settings>();
        found.remember_names(asked);
      }
    return found;
  }

  [[nodiscard]] std::unique_ptr<named_settings> object_at(names keys) const override { return std::make_unique<json_settings>(inner(keys)); }

  void set(const char* key, json value) { object_[key] = std::move(value); }
  void set(const char* key, bool value) override { object_[key] = value; }
  void set(const char* key, std::size_t value) override { object_[key] = value; }
  void set(const char* key, token value) override { object_[key] = value; }
  void set(const char* key, double value) override { object_[key] = value; }
  void set(const char* key, const char* value) override { object_[key] = value; }
  void set(const char* key, const std::string& value) override { object_[key] = value; }
  void set(const char* key, const std::vector<std::string>& values) override { object_[key] = values; }
  [[nodiscard]] std::unique_ptr<named_settings> new_object() const override { return std::make_unique<json_settings>(); }
  void set_object(const char* key, const named_settings& object) override { object_[key] = dynamic_cast<const json_settings&>(object).object_; }
  void set_null(const char* key) override { object_[key] = nullptr; }
  /// null where there is none, so that nobody takes a default for it
  void set_token(const char* key, std::optional<token> value) override {
    if (value) object_[key] = *value;
    else set_null(key);
  }
  void set_tokens(const char* key, const std::vector<token>& all) override {
    if (all.empty()) set_null(key);
    else if (all.size() == 1) object_[key] = all.front();
    else object_[key] = all;
  }
  void erase(names keys) override {
    for (const char* key : keys) object_.erase(key);
  }

  [[nodiscard]] const std::string& who() const override { return who_; }
  [[nodiscard]] const json& object() const { return object_; }

  /// From now on, appends the aliases of each setting that is read, here and in nested objects, to `asked`.
  void remember_names(std::shared_ptr<asked_settings> asked) { asked_ = std::move(asked); }

 private:
  [[nodiscard]] const json* find(names keys) const {
    if (asked_) asked_->names.emplace_back(keys.begin(), keys.end());
    for (const char* key : keys)
      if (const auto at = object_.find(key); at != object_.end() && !at->is_null()) return &*at;
    return nullptr;
  }
  [[nodiscard]] std::size_t as_size(const json& value, names keys) const {
    require<config_error>(value.is_number_unsigned() && value.get<std::uint64_t>() > 0, who_, ": '", *keys.begin(),
                          "' must be a positive whole number; given ", value.dump());
    return value.get<std::size_t>();
  }

  json object_;
  std::string who_;
  std::shared_ptr<asked_settings> asked_;
};

}  // namespace xtrain
