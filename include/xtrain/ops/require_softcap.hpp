// Checks softcaps.
#pragma once

#include <cmath>
#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain::ops {

///   has_one   it must not be 0
///   throws    config_error unless softcap is finite and positive, or 0 (none)
inline void require_softcap(std::string_view who, double softcap, bool has_one = false) {
  require<config_error>(std::isfinite(softcap) && (softcap > 0.0 || (softcap == 0.0 && !has_one)), who, ": softcap must be finite and ",
                        has_one ? "positive" : "not negative", "; given ", softcap);
}

}  // namespace xtrain::ops
