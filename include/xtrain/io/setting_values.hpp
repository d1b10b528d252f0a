// Values of described settings, written to JSON and read from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/core/setting_list.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

/// Which settings are written: those that are compared on resume, or all.
enum class written_settings : bool { compared, all };

/// Writes settings by their full names. A full name that `to` has already is preceded by `axis` and an underscore: optimizer_epsilon.
void write_settings(json_settings& to, const std::vector<setting_entry>& settings, std::string_view axis, written_settings which = written_settings::compared);

/// Sets members to what `given`, an object, has under their names; every name in it must be the name of a setting.
///   where   names the object in errors
///   throws  config_error for an unknown name, and for a value of another type or outside the setting's range
void read_settings(const std::vector<setting_entry>& settings, const json& given, const std::string& where);

/// The settings of a part of a run description.
[[nodiscard]] std::vector<setting_entry> settings_of_part(const std::vector<setting_entry>& settings, std::string_view part);

/// What a number in the range is: "a positive number".
[[nodiscard]] const char* text_of_range(setting_range range, bool is_whole);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/setting_values_impl.hpp>
#endif
