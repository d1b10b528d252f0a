// Where a record of a file stands, for errors and for its text. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xtrain {

/// Where a record stands, for errors.
struct record_place {
  std::string path{};
  std::size_t line = 0;
  std::string_view text{};  ///< a record of JSON as it is in the file, whose members have an order; valid while the record is visited
};

}  // namespace xtrain
