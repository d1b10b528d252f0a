// Where a record of a file stands, for errors. Component 'io'.
#pragma once

#include <cstddef>
#include <string>

namespace xtrain {

/// Where a record stands, for errors.
struct record_place {
  std::string path{};
  std::size_t line = 0;
};

}  // namespace xtrain
