// One kernel in one source, as nvcc compiles it from the installed headers: where there is a GPU it runs, elsewhere the program says what is missing.
#include <cstdio>
#include <vector>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/device/cuda/launch.cuh>

int main() {
  using xtrain::cuda;
  if (const std::string why = cuda::why_unavailable(); !why.empty()) {
    std::printf("%s\n", why.c_str());
    return 0;
  }
  const cuda::context gpu;
  cuda::stream stream(gpu);
  const xtrain::buffer<cuda> x(gpu, 1000 * sizeof(float), xtrain::memory_role::other);
  std::vector<float> values(1000, 1.0f);
  stream.copy_from_host(x.as<float>().raw(), values.data(), x.bytes());
  const xtrain::kernel::add<cuda::memory, float> twice{.n = values.size(), .x_n = x.as<float>(), .y_n = x.as<float>()};
  run_kernel(stream, twice, {});
  stream.copy_to_host(values.data(), x.as<float>().raw(), x.bytes());
  stream.synchronize();
  std::printf("1 + 1 is %.0f\n", values[999]);
}
