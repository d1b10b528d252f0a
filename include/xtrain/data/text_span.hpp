// A piece of a text.
#pragma once

#include <cstddef>

namespace xtrain {

/// Bytes of a text from begin up to end.
struct text_span {
  std::size_t begin = 0, end = 0;
};

}  // namespace xtrain
