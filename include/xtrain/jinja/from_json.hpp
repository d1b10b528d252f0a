// Values for templates from JSON; members keep their order, in which tojson writes them. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/jinja/template.hpp>

namespace xtrain {

/// The value of a JSON text. `who` names the text in errors, `first_line` is the number of its first line.
///   throws  data_error, with the line, if the text is not JSON, repeats a key, nests too deep, or holds a number beyond 64 bits
[[nodiscard]] jinja_value jinja_value_from_json(std::string_view text, std::string_view who, std::size_t first_line = 1);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/jinja/from_json_impl.hpp>
#endif
