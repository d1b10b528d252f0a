// Part XTRAIN_CUDA_PART of XTRAIN_CUDA_PARTS of the cuda device's kernels. Compiled by xtrain_add_cuda_kernels.
#include <string_view>

#include <xtrain/device/cuda/launch.cuh>

namespace xtrain::cuda_kernels {

/// The dtype that a kernel computes in: 0 fp32 or more than one, 1 bf16, 2 fp16.
template <class Kernel>
inline constexpr int dtype_of = 0;
template <template <class, class, class...> class Kernel, class M, class... More>
inline constexpr int dtype_of<Kernel<M, bf16, More...>> = 1;
template <template <class, class, class...> class Kernel, class M, class... More>
inline constexpr int dtype_of<Kernel<M, fp16, More...>> = 2;
template <class Kernel, class M>
inline constexpr int dtype_of<kernel::in_rows<Kernel, M>> = dtype_of<Kernel>;

/// Kernels that launch the same functions are in one part, so that these are compiled once. Other parts have a similar number of kernels each.
inline constexpr int families = 10;
[[nodiscard]] constexpr int family_of(std::string_view name, bool is_fp32) {
  const bool is_backward = name.ends_with("_backward");
  if (name.starts_with("attention_block") && !is_fp32) return is_backward ? 3 : 2;
  if (name.starts_with("attention") || name.starts_with("cached_attention")) return is_backward ? 1 : 0;
  if (name.ends_with("matmul") || name == "linear_cross_entropy") return 4;
  int letters = 0;
  for (const char c : name) letters += c;
  return 5 + letters % 5;
}
template <class Kernel>
inline constexpr bool is_here = (family_of(Kernel::name, dtype_of<Kernel> == 0) * 3 + dtype_of<Kernel>) % XTRAIN_CUDA_PARTS == XTRAIN_CUDA_PART;
static_assert(XTRAIN_CUDA_PARTS <= families * 3);

/// Compiles what compiled.hpp declares for a kernel, if that is in this part.
template <bool IsHere, class Kernel>
struct definitions {};
template <class Kernel>
struct definitions<true, Kernel> {
  static decltype(&compiled<Kernel>::run) const run;
  static decltype(&compiled<Kernel>::scratch_bytes) const scratch_bytes;
};
// not constexpr: then the compiler would drop the addresses, and the functions
template <class Kernel>
decltype(&compiled<Kernel>::run) const definitions<true, Kernel>::run = &compiled<Kernel>::run;
template <class Kernel>
decltype(&compiled<Kernel>::scratch_bytes) const definitions<true, Kernel>::scratch_bytes = &compiled<Kernel>::scratch_bytes;

#define XTRAIN_DEFINE(...) template struct definitions<is_here<__VA_ARGS__>, __VA_ARGS__>;
XTRAIN_CUDA_KERNEL_LIST(XTRAIN_DEFINE)

}  // namespace xtrain::cuda_kernels
