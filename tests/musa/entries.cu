// The entries of libmusart that device/musa/runtime.hpp names, as CUDA's: compiled with the shim, so that a wrong name does not link.
#include <cstdio>
#include <string>

#include <xtrain/device/cuda/launch.cuh>
#include <xtrain/device/musa/musa.hpp>

#include "shim/cuda_entries.hpp"

// of what mcc is to compile
template struct xtrain::cuda_kernels::compiled<xtrain::kernel::add<xtrain::cuda_memory, float>>;

/// Opens the device `musa` on CUDA's runtime, where there is an NVIDIA GPU, and adds numbers there.
int main() {
  using namespace xtrain;
  const cuda_runtime table = xtrain::detail::make_musa_runtime(&entry_of, &musa_kernels::library());
  if (!table.problem.empty()) return std::printf("%s\n", std::string(table.problem).c_str()), 1;
  if (const std::string missing = xtrain::detail::the_musa_loaded().missing; missing != "musaGraphInstantiate")
    return std::printf("missing: %s\n", missing.c_str()), 1;
  if (const std::string why = xtrain::detail::why_no_gpu(&table, moore_threads); !why.empty()) return std::printf("%s\n", why.c_str()), 0;
  const musa_context on(musa_config{.device = 0, .runtime = &table});
  std::printf("%s\n", on.description().c_str());
  const buffer<musa> x(on, 400, memory_role::other);
  float host[100];
  for (int i = 0; i < 100; ++i) host[i] = static_cast<float>(i);
  cuda_stream stream(on);
  stream.copy_from_host(x.as<float>().raw(), host, 400);
  run_kernel(stream, kernel::add<cuda_memory, float>{.n = 100, .x_n = x.as<float>(), .y_n = x.as<float>()}, {});
  stream.copy_to_host(host, x.as<float>().raw(), 400);
  stream.synchronize();
  return host[99] == 198 ? 0 : 1;
}
