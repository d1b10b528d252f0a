// A record's place in a file. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xtrain {

/// For errors.
struct record_place {
  std::string path{};
  std::size_t line = 0;
  std::string_view text{};  ///< JSON text, with members in file order; valid during the visit
};

}  // namespace xtrain
