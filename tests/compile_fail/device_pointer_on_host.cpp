// says: memory_is_host_addressable
// The host follows a pointer into a device's memory.
#include <xtrain/device/memory.hpp>

struct far_memory {
  static constexpr std::string_view name = "far";
  static constexpr bool host_addressable = false;
};
#ifdef MISTAKE
using memory = far_memory;
#else
using memory = xtrain::host_memory;
#endif

float first(xtrain::device_ptr<float, memory> p) { return p[0]; }
