#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

XTRAIN_INLINE json_settings::json_settings() : object_(std::make_unique<json>(json::object())) {}

XTRAIN_INLINE json_settings::json_settings(json object, std::string who)
    : object_(std::make_unique<json>(std::move(object))), who_(std::move(who)) {
  require<config_error>(object_->is_object(), who_, ": must be a JSON object; it is ", object_->type_name());
}

XTRAIN_INLINE json_settings::json_settings(const json_settings& from)
    : named_settings(from), object_(std::make_unique<json>(*from.object_)), who_(from.who_), asked_(from.asked_) {}
XTRAIN_INLINE json_settings::json_settings(json_settings&& from) noexcept = default;
XTRAIN_INLINE json_settings& json_settings::operator=(const json_settings& from) { return *this = json_settings(from); }
XTRAIN_INLINE json_settings& json_settings::operator=(json_settings&& from) noexcept = default;
XTRAIN_INLINE json_settings::~json_settings() = default;

XTRAIN_INLINE bool json_settings::has(names keys) const { return find(keys) != nullptr; }

XTRAIN_INLINE bool json_settings::is_null(const char* key) const { return find({key}) == nullptr && object_->contains(key); }

XTRAIN_INLINE std::size_t json_settings::size(names keys) const {
  const json* value = value_of(keys);
  require<config_error>(value != nullptr, who_, ": '", *keys.begin(), "' must be given; it is missing");
  return as_size(*value, keys);
}

XTRAIN_INLINE std::size_t json_settings::size_or(std::size_t otherwise, names keys) const {
  const json* value = value_of(keys);
  return value == nullptr ? otherwise : as_size(*value, keys);
}

XTRAIN_INLINE double json_settings::number_or(double otherwise, names keys) const {
  const json* value = value_of(keys);
  if (value == nullptr) return otherwise;
  require<config_error>(value->is_number(), who_, ": '", *keys.begin(), "' must be a number; given ", value->dump());
  return value->get<double>();
}

XTRAIN_INLINE bool json_settings::flag_or(bool otherwise, names keys) const {
  const json* value = value_of(keys);
  if (value == nullptr) return otherwise;
  require<config_error>(value->is_boolean(), who_, ": '", *keys.begin(), "' must be true or false; given ", value->dump());
  return value->get<bool>();
}

XTRAIN_INLINE std::string json_settings::text_or(const std::string& otherwise, names keys) const {
  const json* value = value_of(keys);
  if (value == nullptr) return otherwise;
  require<config_error>(value->is_string(), who_, ": '", *keys.begin(), "' must be a string; given ", value->dump());
  return value->get<std::string>();
}

XTRAIN_INLINE std::vector<token> json_settings::tokens(names keys) const {
  const json* value = value_of(keys);
  std::vector<token> all;
  if (value == nullptr) return all;
  const auto add = [&](const json& one) {
    require<config_error>(
        one.is_number_integer() && one.get<std::int64_t>() >= 0 && one.get<std::int64_t>() < std::numeric_limits<token>::max(), who_, ": '",
        *keys.begin(), "' must be a token or a list of tokens; given ", value->dump());
    all.push_back(one.get<token>());
  };
  if (value->is_array()) {
    for (const json& one : *value) add(one);
  } else {
    add(*value);
  }
  return all;
}

XTRAIN_INLINE std::optional<token> json_settings::token_or(std::optional<token> otherwise, const char* key) const {
  const json* value = find({key});
  if (value == nullptr) return object_->contains(key) ? std::nullopt : otherwise;
  using limits = std::numeric_limits<token>;
  require<config_error>(
      value->is_number_integer() && value->get<std::int64_t>() >= limits::min() && value->get<std::int64_t>() <= limits::max(), who_, ": '",
      key, "' must be a token; given ", value->dump());
  return value->get<token>();
}

XTRAIN_INLINE std::vector<std::string> json_settings::texts(names keys) const {
  const json* value = value_of(keys);
  std::vector<std::string> all;
  if (value == nullptr) return all;
  const bool good = value->is_array() && std::all_of(value->begin(), value->end(), [](const json& one) { return one.is_string(); });
  require<config_error>(good, who_, ": '", *keys.begin(), "' must be a list of strings; given ", value->dump());
  for (const json& one : *value) all.push_back(one.get<std::string>());
  return all;
}

XTRAIN_INLINE json_settings json_settings::inner(names keys) const {
  const json* value = value_of(keys);
  if (value == nullptr) return {};
  json_settings found(*value, concat(who_, ", '", *keys.begin(), "'"));
  if (asked_)
    for (const char* key : keys) {
      if (const auto at = object_->find(key); at == object_->end() || &*at != value) continue;
      auto& asked = asked_->inner[key];
      if (!asked) asked = std::make_shared<asked_settings>();
      found.remember_names(asked);
    }
  return found;
}

XTRAIN_INLINE std::unique_ptr<named_settings> json_settings::object_at(names keys) const {
  return std::make_unique<json_settings>(inner(keys));
}

XTRAIN_INLINE void json_settings::set(const char* key, json value) { (*object_)[key] = std::move(value); }

XTRAIN_INLINE void json_settings::set(const char* key, bool value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, std::size_t value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, token value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, double value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, const char* value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, const std::string& value) { (*object_)[key] = value; }

XTRAIN_INLINE void json_settings::set(const char* key, const std::vector<std::string>& values) { (*object_)[key] = values; }

XTRAIN_INLINE void json_settings::set(const char* key, const std::vector<double>& values) { (*object_)[key] = values; }
XTRAIN_INLINE void json_settings::set(const char* key, const std::vector<std::size_t>& values) { (*object_)[key] = values; }

XTRAIN_INLINE std::unique_ptr<named_settings> json_settings::new_object() const { return std::make_unique<json_settings>(); }

XTRAIN_INLINE void json_settings::set_object(const char* key, const named_settings& object) {
  (*object_)[key] = dynamic_cast<const json_settings&>(object).object();
}

XTRAIN_INLINE void json_settings::set_null(const char* key) { (*object_)[key] = nullptr; }

XTRAIN_INLINE void json_settings::set_token(const char* key, std::optional<token> value) {
  if (value) (*object_)[key] = *value;
  else set_null(key);
}

XTRAIN_INLINE void json_settings::set_tokens(const char* key, const std::vector<token>& all) {
  if (all.empty()) set_null(key);
  else if (all.size() == 1) (*object_)[key] = all.front();
  else (*object_)[key] = all;
}

XTRAIN_INLINE void json_settings::erase(names keys) {
  for (const char* key : keys) object_->erase(key);
}

XTRAIN_INLINE const std::string& json_settings::who() const { return who_; }

XTRAIN_INLINE const json& json_settings::object() const { return *object_; }

XTRAIN_INLINE std::string json_settings::text() const { return object_->dump(2) + "\n"; }

XTRAIN_INLINE void json_settings::remember_names(std::shared_ptr<asked_settings> asked) { asked_ = std::move(asked); }

XTRAIN_INLINE const json* json_settings::find(names keys) const {
  if (asked_) asked_->names.emplace_back(keys.begin(), keys.end());
  for (const char* key : keys)
    if (const auto at = object_->find(key); at != object_->end() && !at->is_null()) return &*at;
  return nullptr;
}

XTRAIN_INLINE const json* json_settings::value_of(names keys) const {
  const auto is_empty = [](const json& value) { return value.is_object() && value.empty(); };
  const json* first = find(keys);
  const char* first_key = nullptr;
  for (const char* key : keys) {
    const auto at = object_->find(key);
    if (at == object_->end() || at->is_null()) continue;
    if (first_key == nullptr || is_empty(*first)) {
      first = &*at;
      first_key = key;
    } else {
      require<config_error>(is_empty(*at) || *at == *first, who_, ": ", first_key, " and ", key, " must agree, because they are names of one setting; given ",
                            first->dump(), " and ", at->dump());
    }
  }
  return first;
}

XTRAIN_INLINE std::size_t json_settings::as_size(const json& value, names keys) const {
  require<config_error>(value.is_number_unsigned() && value.get<std::uint64_t>() > 0, who_, ": '", *keys.begin(),
                        "' must be a positive whole number; given ", value.dump());
  return value.get<std::size_t>();
}

XTRAIN_INLINE json_settings read_settings(const std::string& path) { return {read_json(path), path}; }

}  // namespace xtrain
