// Parts of the program `gpu`, and their device.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <xtrain/device/cuda/cuda.hpp>
#ifndef XTRAIN_CUDA_KERNELS
#include <xtrain/testing/fake_cuda.hpp>  // a rehearsal: without nvcc, the kernels run on the host
#endif

namespace gpu {

///   throws  config_error without a GPU
inline xtrain::cuda::context open() {
#ifdef XTRAIN_CUDA_KERNELS
  return xtrain::cuda::context{};
#else
  static const xtrain::testing::fake_cuda stand_in({.memory = std::size_t{2} << 30});
  return stand_in.open();
#endif
}

inline std::size_t number(int argc, char** argv, int index, std::size_t otherwise) {
  return argc > index ? static_cast<std::size_t>(std::strtoull(argv[index], nullptr, 10)) : otherwise;
}

int check_fp32(bool large);
int check_bf16(bool large);
int check_fp16(bool large);
int compare_losses(const char* golden);
int measure(int argc, char** argv);

}  // namespace gpu
