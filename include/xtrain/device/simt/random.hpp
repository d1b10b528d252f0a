// Random numbers of a step whose number is in device memory.
#pragma once

#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/simt/language/numbers.hpp>

namespace xtrain::simt {

/// kernel::random_of on the device; `scalars` may be null.
template <class Scalars>
XTRAIN_SIMT_FN random_site site_of_step(random_site at, const Scalars* scalars) {
  if (scalars != nullptr) at.step += static_cast<std::uint32_t>(scalars->number);
  return at;
}

}  // namespace xtrain::simt
