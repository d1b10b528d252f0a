#pragma once

#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/concepts.hpp>

namespace xtrain::detail {

/// Both corrections of a step, computed once for all parameters, in workspace released by the caller's scope.
template <class Device>
[[nodiscard]] device_span<const double, typename Device::memory> adam_corrections(execution<Device>& on, double beta1, double beta2,
                                                                                  const optimizer_step<Device>& step) {
  const auto correction_2 = on.workspace.template take<double>(2);
  ops::adam_corrections(on, kernel::adam_corrections<typename Device::memory>{
                                .beta1 = beta1, .beta2 = beta2, .scalars_1 = step.scalars, .correction_2 = correction_2});
  return correction_2;
}

}  // namespace xtrain::detail
