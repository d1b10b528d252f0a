#pragma once

#include <cstddef>

#include <xtrain/device/memory.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Master weights, in a wider dtype than the layers' weights; empty when the precision has no master copy.
template <class Device, class Precision>
class master_copy {
 public:
  using master = typename Precision::master;
  using memory = typename Device::memory;
  static constexpr bool exists = has_master_copy<Precision>;

  master_copy(execution<Device>& on, const parameter_store<Device, Precision>& store)
      : buffer_(store.device(), exists ? store.stepped() * sizeof(master) : 0, memory_role::optimizer) {
    if constexpr (exists)
      for (const parameter_slice& run : store.parameter_slices()) ops::cast(on, store.values_of(run), of(run));
  }

  [[nodiscard]] device_span<master, memory> span() const { return buffer_.template as<master>(); }
  /// The slice of a run of trained parameters; empty without master weights.
  [[nodiscard]] device_span<master, memory> of(const parameter_slice& run) const {
    return exists ? span().subspan(run.kept, run.size()) : device_span<master, memory>{};
  }

 private:
  buffer<Device> buffer_;
};

}  // namespace xtrain
