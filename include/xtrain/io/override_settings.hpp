// Overrides settings of config.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

/// Aliases per setting.
using setting_names = std::vector<std::vector<std::string>>;

/// Result of overriding.
struct overridden_settings {
  struct change {
    std::string key{}, before{}, after{};  // JSON; before: empty if not set
  };
  json_settings settings{};            ///< after overriding
  std::vector<change> changes{};       ///< what was replaced
  std::vector<std::string> unknown{};  ///< ignored keys
};  // namespace detail

/// Replaces known settings: keys of `config` and `known`. Types must match; null: not given, any type.
///   throws  config_error with key, expected type, given value
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with, const setting_names& known = {});

namespace detail {

/// Known: what `read` asks for, under any name.
template <class Read>
[[nodiscard]] overridden_settings override_read_by(const Read& read, const json_settings& config, const json_settings& with) {
  const auto asked = std::make_shared<asked_settings>();
  json_settings listened = config;
  listened.remember_names(asked);
  try {
    (void)read(listened);
  } catch (const config_error&) {  // a wrong value may be replaced; the result is read again
  }
  return override_settings(config, with, asked->names);
}

}  // namespace detail

/// By a family's settings.
template <class Family>
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with) {
  return detail::override_read_by([](const named_settings& s) { return Family::read(s); }, config, with);
}
/// By a family known at run time.
template <class Info>
requires requires(const Info& family, const json_settings& config) { family.read(config); }
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with, const Info& family) {
  return detail::override_read_by(family.read, config, with);
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/override_settings_impl.hpp>
#endif
