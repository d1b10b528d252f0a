// An optimizer of the program's own.
#pragma once

#include <xtrain/xtrain.hpp>

namespace mine {

struct plain_descent : xtrain::sgd {
  static constexpr std::string_view name = "plain_descent";
};

}  // namespace mine
