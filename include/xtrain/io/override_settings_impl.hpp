#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/override_settings.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

/// A type for errors; the reader distinguishes integers.
[[nodiscard]] inline const char* kind_of(const json& value) {
  return value.is_boolean()  ? "true or false"
         : value.is_number() ? "a number"
         : value.is_string() ? "a string"
         : value.is_array()  ? "a list"
         : value.is_object() ? "an object"
                             : "null";
}

[[nodiscard]] inline bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A location where a setting is set.
struct setting_place {
  std::string name{};
  json* value = nullptr;
};

/// Where `key` is set: by name, alias, and in nested objects (rope_theta of "rope_parameters" takes precedence).
[[nodiscard]] inline std::vector<setting_place> places_of(json& config, const std::string& key, const setting_names& known) {
  std::vector<std::string> names{key};
  for (const std::vector<std::string>& same : known)
    if (has_name(same, key))
      for (const std::string& name : same)
        if (!has_name(names, name)) names.push_back(name);
  std::vector<setting_place> places;
  for (const std::string& name : names)
    if (config.contains(name)) places.push_back({name, &config[name]});
  for (auto& [outer, member] : config.items())
    if (member.is_object() && member.contains(key)) places.push_back({concat(outer, ".", key), &member[key]});
  return places;
}

}  // namespace detail

XTRAIN_INLINE overridden_settings override_settings(const json_settings& config, const json_settings& with, const setting_names& known) {
  overridden_settings result;
  json object = config.object();
  for (const auto& member : with.object().items()) {
    const std::string& key = member.key();
    json value = member.value();
    std::vector<detail::setting_place> places = detail::places_of(object, key, known);
    if (places.empty()) {
      if (std::none_of(known.begin(), known.end(), [&](const auto& names) { return detail::has_name(names, key); })) {
        result.unknown.push_back(key);
        continue;
      }
      places.push_back({key, &object[key]});
      result.changes.push_back({key, "", value.dump()});
    } else {
      // transformers 5 stores theta with the scaling; a new scaling must keep it
      for (const auto& place : places)
        if (value.is_object() && place.value->is_object() && place.value->contains("rope_theta") && !value.contains("rope_theta"))
          value["rope_theta"] = place.value->at("rope_theta");
      for (const auto& place : places) result.changes.push_back({place.name, place.value->dump(), value.dump()});
    }
    for (const auto& place : places) {
      const std::string_view expected = detail::kind_of(*place.value);
      require<config_error>(place.value->is_null() || value.is_null() || expected == detail::kind_of(value), with.who(), ": '", key,
                            "' must be ", expected, ", as ", place.name, " in ", config.who(), " is (", place.value->dump(), "); given ",
                            value.dump());
      *place.value = value;
    }
  }
  result.settings = json_settings(std::move(object), result.changes.empty() ? config.who() : concat(config.who(), " with ", with.who()));
  return result;
}

}  // namespace xtrain
