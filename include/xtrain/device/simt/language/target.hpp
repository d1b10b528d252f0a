// The compiler: nvcc, mcc or clang's CUDA mode for a GPU, or a host compiler with host_runner.hpp.
#pragma once

#if defined(__CUDACC__) || defined(__MUSACC__) || defined(__MUSA__)
#define XTRAIN_SIMT_GPU 1
#define XTRAIN_SIMT_FN __device__ __forceinline__
#define XTRAIN_SIMT_UNROLL _Pragma("unroll")
#define XTRAIN_SIMT_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define XTRAIN_SIMT_UNROLL_BY(n) XTRAIN_SIMT_PRAGMA(unroll(n))
#if defined(__CUDACC__) && !defined(__MUSA__)
#define XTRAIN_SIMT_PTX 1
#else
#define XTRAIN_SIMT_PTX 0
#endif
#if defined(__NVCC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "xtrain's kernels call constexpr functions: compile with nvcc --expt-relaxed-constexpr"
#endif
#else
#define XTRAIN_SIMT_GPU 0
#define XTRAIN_SIMT_FN inline
#define XTRAIN_SIMT_UNROLL
#define XTRAIN_SIMT_UNROLL_BY(n)
#define XTRAIN_SIMT_PTX 0
#endif

namespace xtrain::simt {

/// Threads that execute warp instructions together: a GPU's warp, or part of a wider one, as of the 128 threads of MUSA's mp_21 and mp_22. Host code counts
/// blocks with it: it must not depend on device compilation alone. The host runner plays any width.
#if defined(XTRAIN_SIMT_WARP)
inline constexpr int warp_width = XTRAIN_SIMT_WARP;
#else
inline constexpr int warp_width = 32;
#endif

/// Blocks: x at most 2³¹ − 1, y and z 65535.
struct grid_size {
  int x = 1, y = 1, z = 1;
};

}  // namespace xtrain::simt
