// The corrections of Adam's moments, in device memory.
#pragma once

#include <xtrain/device/memory.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/concepts.hpp>

namespace xtrain::detail {

/// Holds both corrections of a step, computed once for all parameters.
template <class Device>
class adam_corrections {
 public:
  explicit adam_corrections(const typename Device::context& device) : values_(device, 2 * sizeof(double), memory_role::optimizer) {}

  /// Computes the corrections of a step; kernels queued later may read them.
  [[nodiscard]] device_span<const double, typename Device::memory> of_step(execution<Device>& on, double beta1, double beta2,
                                                                           const optimizer_step<Device>& step) {
    ops::adam_corrections(on, kernel::adam_corrections<typename Device::memory>{
                                  .beta1 = beta1, .beta2 = beta2, .scalars_1 = step.scalars, .correction_2 = values_.template as<double>()});
    return values_.template as<double>();
  }

 private:
  buffer<Device> values_;
};

}  // namespace xtrain::detail
