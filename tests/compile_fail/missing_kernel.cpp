// says: xtrain device: must run every kernel that the model uses
// An operation on a device that lacks its kernel.
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/testing/archetypes.hpp>

#ifdef MISTAKE
using device = xtrain::testing::bare_device;
#else
using device = xtrain::with_host_fallback<xtrain::testing::bare_device>;
#endif

void sum(xtrain::execution<device>& on, xtrain::vector_view<const float, device::memory> x, xtrain::vector_view<float, device::memory> y) {
  xtrain::ops::add(on, x, y);
}
