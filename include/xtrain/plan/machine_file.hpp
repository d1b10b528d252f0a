// A machine as a JSON file. Component 'io'.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/plan/machine.hpp>

namespace xtrain {

/// Keys are the members of `machine`; omitted ones have defaults.
///   who      names the text in errors
///   throws   config_error, data_error
[[nodiscard]] machine parse_machine(std::string_view text, const std::string& who);
/// throws file_error too
[[nodiscard]] machine read_machine(const std::string& path);

/// Inverse of parse_machine.
[[nodiscard]] std::string machine_text(const machine& m);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/machine_file_impl.hpp>
#endif
