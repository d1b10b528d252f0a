// Warnings: data without effect.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// Takes one sentence with its place, without a line break.
using warning_handler = std::function<void(const std::string&)>;

/// To standard error: "warning: ...".
inline void print_warning(const std::string& text) { std::fprintf(stderr, "warning: %s\n", printable(text).c_str()); }

}  // namespace xtrain
