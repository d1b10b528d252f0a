// The device `musa`: a Moore Threads GPU. It is the device `cuda` on a table of MUSA's entries: memory, streams and kernels have the same types, and a program
// is for one of the two. Not run on a GPU yet.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/device/musa/mublas/products.hpp>
#include <xtrain/device/musa/runtime.hpp>
#if defined(XTRAIN_CUDA_KERNELS) && defined(XTRAIN_MUSA_KERNELS)
#error "a program has kernels for cuda or for musa: link xtrain::cuda_kernels or xtrain::musa_kernels"
#endif

namespace xtrain {

/// A call of MUSA has failed.
using musa_error = cuda_error;
/// How a GPU is opened; runtime: MUSA's table if null.
using musa_config = cuda_config;

namespace detail {

/// Of this program; null if it has no kernels for it.
[[nodiscard]] inline const cuda_runtime* musa_runtime_here() {
#if defined(XTRAIN_MUSA_KERNELS) || defined(__MUSACC__)
  static const cuda_runtime one = load_musa_runtime(&musa_kernels::library());
  return &one;
#else
  return nullptr;
#endif
}

/// With MUSA's table where none is given, and then with this process's muBLAS.
///   throws  config_error with a sentence
[[nodiscard]] inline cuda_config for_musa(cuda_config settings) {
  if (settings.runtime == nullptr) {
    settings.runtime = musa_runtime_here();
    if (settings.runtime == nullptr) throw config_error(why_no_gpu(nullptr, moore_threads));
    if (settings.other_products.make == nullptr && settings.products != cuda_product_choice::own_kernels) settings.other_products = products_by_mublas();
  }
  require<config_error>(settings.runtime->vendor == &moore_threads, "musa: the runtime must be MUSA's; it is ", settings.runtime->vendor->toolkit, "'s");
  return settings;
}

}  // namespace detail

/// A handle: copies share the GPU.
class musa_context : public cuda_context {
 public:
  ///   throws  config_error with a sentence when there is no runtime, no driver, no GPU, not this GPU, or no kernels for it
  explicit musa_context(const musa_config& settings) : cuda_context(detail::for_musa(settings)) {}
  musa_context() : musa_context(musa_config{}) {}
  /// Of a stream.
  musa_context(const cuda_context& opened) : cuda_context(opened) {
    require<config_error>(is_dry_run() || &state()->vendor() == &moore_threads, "musa: the GPU must be one of Moore Threads; it is ", description());
  }
  static constexpr std::size_t planned_memory = std::size_t{48} << 30;  ///< of the GPU that a plan without one is for
  static constexpr cuda_properties planned_properties{.architecture = 22};
  static constexpr std::string_view planned_gpu = "an S4000";
  [[nodiscard]] static musa_context for_dry_run(const cuda_properties& like) { return cuda_context::for_dry_run(like); }
};

/// Policy for `using device`.
struct musa {
  static constexpr std::string_view name = "musa";
  using memory = cuda_memory;
  using properties = cuda_properties;  // not derived from it: then another scratch_bytes is chosen
  using config = musa_config;
  using context = musa_context;
  using stream = cuda_stream;
  /// What a GPU may lack, before one is opened.
  static constexpr std::string_view limits =
      "  fp64: no kernel computes in it, products included\n"
      "  bf16: refused on mp_21 (MTT S80); fp16 and fp32 run there\n"
      "  capture_steps: refused where the runtime cannot capture and replay work, which is tried when a GPU is opened\n"
      "  collectives: MCCL on mp_22 (S4000) and newer; through the host on mp_21 (S80, S3000)\n"
      "  products: muBLAS's on mp_22 and newer, without a bias, where they agree with our kernel's; otherwise our kernel's, which use no tensor cores\n";

  /// Whether this process can use a GPU; asks the driver.
  [[nodiscard]] static bool is_available() { return why_unavailable().empty(); }
  /// A sentence; empty if a GPU can be used.
  [[nodiscard]] static std::string why_unavailable() { return detail::why_no_gpu(detail::musa_runtime_here(), moore_threads); }
};

static_assert(device<musa> && clause::device_has_dry_run<musa> && clause::device_captures_work<musa> && clause::device_has_pinned_memory<musa> &&
              clause::device_runs_host_functions<musa> && clause::device_marks_host_failures<musa> && clause::device_prepares_kernels<musa>);

}  // namespace xtrain
