// Launches for a program without nvcc: the kernels of device/simt/ are compiled for the host, where a fake runtime (testing/fake_cuda.hpp) runs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/device/cuda/attend.hpp>
#include <xtrain/device/cuda/multiply.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/simt/kernels.hpp>
#include <xtrain/device/simt/language/host_runner.hpp>

namespace xtrain {

/// Target of a launch's `entry`.
struct cuda_host_entry {
  static constexpr std::uint64_t mark = 0x78747261696e5f31;
  std::uint64_t is_entry = mark;
  std::size_t argument_bytes = 0;
  void (*run)(const void* kernel, simt::grid_size grid, std::uint64_t seed) = nullptr;
};

namespace detail {

template <class Kernel>
inline constexpr cuda_host_entry host_entry_of{cuda_host_entry::mark, sizeof(Kernel), [](const void* kernel, simt::grid_size grid, std::uint64_t seed) {
                                                 simt::host::runner::here().run(*static_cast<const Kernel*>(kernel), grid, seed);
                                               }};

}  // namespace detail

template <class Kernel>
void cuda_launcher::launch(const Kernel& kernel, simt::grid_size grid) {
  stream_->launch({.kernel = stream_->last_kernel(),
                   .entry = &detail::host_entry_of<Kernel>,
                   .grid = grid,
                   .threads = Kernel::threads,
                   .shared_bytes = sizeof(typename Kernel::shared),
                   .argument = &kernel,
                   .argument_bytes = sizeof kernel});
}

}  // namespace xtrain
