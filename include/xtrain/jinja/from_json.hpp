// JSON to template values; members keep their order for tojson. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/jinja/template.hpp>

namespace xtrain {

/// Value of a JSON text. `who`: for errors; `first_line`: number of its first line.
///   throws  data_error with the line for invalid JSON, a duplicate key, deep nesting, or a number beyond 64 bits
[[nodiscard]] jinja_value jinja_value_from_json(std::string_view text, std::string_view who, std::size_t first_line = 1);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/jinja/from_json_impl.hpp>
#endif
