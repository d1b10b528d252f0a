// The check of a softcap, for the operations that have one.
#pragma once

#include <cmath>
#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain::ops {

/// A softcap is finite and positive, or 0 for none. `who` names the operation.
///   has_one   it must not be 0
///   throws    config_error
inline void require_softcap(std::string_view who, double softcap, bool has_one = false) {
  require<config_error>(std::isfinite(softcap) && (softcap > 0.0 || (softcap == 0.0 && !has_one)), who, ": softcap must be finite and ",
                        has_one ? "positive" : "not negative", "; given ", softcap);
}

}  // namespace xtrain::ops
