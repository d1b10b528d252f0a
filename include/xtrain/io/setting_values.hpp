// Described settings to and from JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/core/setting_list.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

/// Settings compared on resume, or all.
enum class written_settings : bool { compared, all };

/// Writes settings by full name, or axis_name if `to` has the full name: optimizer_epsilon.
void write_settings(json_settings& to, const std::vector<setting_entry>& settings, std::string_view axis, written_settings which = written_settings::compared);

/// Sets members from the object `given`; all its names must be settings.
///   where   object, for errors
///   throws  config_error for an unknown name, another type, or a value out of range
void read_settings(const std::vector<setting_entry>& settings, const json& given, const std::string& where);

/// Settings of a part of a run description.
[[nodiscard]] std::vector<setting_entry> settings_of_part(const std::vector<setting_entry>& settings, std::string_view part);

/// Of the range: "a positive number".
[[nodiscard]] const char* text_of_range(setting_range range, bool is_whole);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/setting_values_impl.hpp>
#endif
