// A piece of a text.
#pragma once

#include <cstddef>

namespace xtrain {

/// Bytes [begin, end) of a text.
struct text_span {
  std::size_t begin = 0, end = 0;
};

}  // namespace xtrain
