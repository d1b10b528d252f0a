// The kernels of a bf16 LLaMA or GPT-2 step, as nvcc compiles them for a GPU. Nothing runs: the resource report is what a test reads.
#include <xtrain/device/simt/kernels.hpp>

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, 1) entry(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(128) unsigned char shared[];
  kernel(*reinterpret_cast<typename Kernel::shared*>(shared));
}

struct memory {
  static constexpr std::string_view name = "gpu";
  static constexpr bool host_addressable = false;
};

namespace xtrain {

/// Instantiates what is launched on it.
struct compiling_stream {
  static constexpr bool launches_simt = true;
  template <class Kernel>
  void launch(const Kernel& kernel, simt::grid_size grid) {
    static_assert(sizeof(typename Kernel::shared) <= 99 * 1024);
    entry<Kernel><<<dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)), Kernel::threads,
                    sizeof(typename Kernel::shared)>>>(kernel);
  }
};

}  // namespace xtrain

template <class... Kernel>
void instantiate(xtrain::compiling_stream& stream) {
  (run_kernel(stream, Kernel{}, xtrain::scratch_span<memory>{}), ...);
}

namespace k = xtrain::kernel;
using T = xtrain::bf16;
using M = memory;

void all(xtrain::compiling_stream& stream) {
  instantiate<k::matmul<M, T, T>, k::matmul<M, T, float>, k::column_sum<M, T, float>, k::rms_norm<M, T>, k::rms_norm_backward<M, T, float>, k::layer_norm<M, T>,
              k::layer_norm_backward<M, T, float>, k::head_norm<M, T>, k::head_norm_backward<M, T, float>, k::gelu_tanh<M, T>, k::gelu_tanh_backward<M, T>,
              k::swiglu<M, T>, k::swiglu_backward<M, T>, k::embedding<M, T>, k::embedding_backward<M, T, float>, k::rotary<M, T>, k::attention<M, T>,
              k::attention_backward<M, T>, k::linear_cross_entropy<M, T, float>, k::add<M, T>, k::copy_rows<M, T>, k::cast<M, float, T>, k::cast<M, T, float>,
              k::dropout<M, T>, k::sum_of_squares<M, float>, k::sum<M, float>, k::step_gradient_scale<M>, k::update_step_scalars<M>,
              k::adamw<M, T, float, float, float>>(stream);
}
