// Overrides settings of a config.json with those of another file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

/// The aliases of each setting.
using setting_names = std::vector<std::vector<std::string>>;

/// The result of overriding settings.
struct overridden_settings {
  struct change {
    std::string key{}, before{}, after{};  // values as JSON; before: empty if it was not set
  };
  json_settings settings{};            ///< the settings after overriding
  std::vector<change> changes{};       ///< what was replaced
  std::vector<std::string> unknown{};  ///< unknown keys, which were ignored
};  // namespace detail

/// Replaces the settings in `with` that are known: keys of `config` and those in `known`. A value must have the type of the one that it
/// replaces; null means that the setting is not given, and has no type.
///   throws  config_error with the key, the expected type and the given value
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with, const setting_names& known = {});

namespace detail {

/// The same where `read` reads the settings: everything that it asks for is known, under any of its names.
template <class Read>
[[nodiscard]] overridden_settings override_read_by(const Read& read, const json_settings& config, const json_settings& with) {
  const auto asked = std::make_shared<asked_settings>();
  json_settings listened = config;
  listened.remember_names(asked);
  try {
    (void)read(listened);
  } catch (const config_error&) {  // what is wrong with it may be what is replaced; what holds in the end is read again
  }
  return override_settings(config, with, asked->names);
}

}  // namespace detail

/// The same where a family's settings are read.
template <class Family>
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with) {
  return detail::override_read_by([](const named_settings& s) { return Family::read(s); }, config, with);
}
/// The same of a family that is known at run time.
template <class Info>
requires requires(const Info& family, const json_settings& config) { family.read(config); }
[[nodiscard]] overridden_settings override_settings(const json_settings& config, const json_settings& with, const Info& family) {
  return detail::override_read_by(family.read, config, with);
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/override_settings_impl.hpp>
#endif
