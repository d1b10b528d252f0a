// What kernels need of CUDA, by clang's builtins: clang does not know the headers of a toolkit that is newer. The runtime's interface in C is the toolkit's.
// Functions of the device library (__nv_...) are only declared: what clang makes of a kernel can be assembled, not linked.
#pragma once

#if !defined(__clang__) || !defined(__CUDA__)
#error "for clang's CUDA mode, with -nocudainc"
#endif
#define __CUDACC__  // as clang's own wrapper of CUDA's headers does

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))

// before <cmath>, so that its using-declarations see them
#define XTRAIN_CLANG_FUNCTION(type, name)                \
  extern "C" __device__ type __nv_##name(type);          \
  static __device__ __forceinline__ type name(type x) { return __nv_##name(x); }
XTRAIN_CLANG_FUNCTION(float, exp2f)
XTRAIN_CLANG_FUNCTION(float, expf)
XTRAIN_CLANG_FUNCTION(float, logf)
XTRAIN_CLANG_FUNCTION(float, log2f)
XTRAIN_CLANG_FUNCTION(float, tanhf)
XTRAIN_CLANG_FUNCTION(float, erff)
XTRAIN_CLANG_FUNCTION(float, sqrtf)
XTRAIN_CLANG_FUNCTION(float, fabsf)
XTRAIN_CLANG_FUNCTION(double, exp)
XTRAIN_CLANG_FUNCTION(double, expm1)
XTRAIN_CLANG_FUNCTION(double, log)
XTRAIN_CLANG_FUNCTION(double, log1p)
XTRAIN_CLANG_FUNCTION(double, sqrt)
XTRAIN_CLANG_FUNCTION(double, fabs)
XTRAIN_CLANG_FUNCTION(double, ceil)
XTRAIN_CLANG_FUNCTION(double, rint)
#undef XTRAIN_CLANG_FUNCTION
#define XTRAIN_CLANG_FUNCTION(name)                       \
  extern "C" __device__ double __nv_##name(double, double); \
  static __device__ __forceinline__ double name(double x, double y) { return __nv_##name(x, y); }
XTRAIN_CLANG_FUNCTION(pow)
XTRAIN_CLANG_FUNCTION(fmin)
XTRAIN_CLANG_FUNCTION(fmax)
#undef XTRAIN_CLANG_FUNCTION
extern "C" __device__ float __nv_fmaf(float, float, float);
static __device__ __forceinline__ float fmaf(float x, float y, float z) { return __nv_fmaf(x, y, z); }

// for clang's wrapper of <new>
extern "C" __device__ void* malloc(__SIZE_TYPE__);
extern "C" __device__ void free(void*);
#include <stdlib.h>

#include <cuda_runtime_api.h>
#undef __grid_constant__  // not known to clang before 20; it changes only where an argument lies
#define __grid_constant__

// what the toolkit's header adds for C++
template <class... Argument>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*entry)(Argument...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(entry));
}
template <class... Argument>
cudaError_t cudaFuncSetAttribute(void (*entry)(Argument...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(entry), attribute, value);
}

// a thread's place: threadIdx.x
#define XTRAIN_CLANG_PLACE(name, of_x, of_y, of_z)                         \
  struct place_of_##name {                                                 \
    __declspec(property(get = read_x)) unsigned x;                         \
    __declspec(property(get = read_y)) unsigned y;                         \
    __declspec(property(get = read_z)) unsigned z;                         \
    static __device__ __forceinline__ unsigned read_x() { return of_x(); } \
    static __device__ __forceinline__ unsigned read_y() { return of_y(); } \
    static __device__ __forceinline__ unsigned read_z() { return of_z(); } \
  };                                                                       \
  extern const __device__ __attribute__((weak)) place_of_##name name;
XTRAIN_CLANG_PLACE(threadIdx, __nvvm_read_ptx_sreg_tid_x, __nvvm_read_ptx_sreg_tid_y, __nvvm_read_ptx_sreg_tid_z)
XTRAIN_CLANG_PLACE(blockIdx, __nvvm_read_ptx_sreg_ctaid_x, __nvvm_read_ptx_sreg_ctaid_y, __nvvm_read_ptx_sreg_ctaid_z)
XTRAIN_CLANG_PLACE(gridDim, __nvvm_read_ptx_sreg_nctaid_x, __nvvm_read_ptx_sreg_nctaid_y, __nvvm_read_ptx_sreg_nctaid_z)
#undef XTRAIN_CLANG_PLACE

static __device__ __forceinline__ void __syncwarp(unsigned mask = 0xffffffff) { __nvvm_bar_warp_sync(mask); }
static __device__ __forceinline__ __SIZE_TYPE__ __cvta_generic_to_shared(const void* at) {
  return (__SIZE_TYPE__)(const __attribute__((address_space(3))) void*)at;
}
/// Of 4 or 8 bytes, a word at a time.
#define XTRAIN_CLANG_SHUFFLE(name, builtin)                                                                        \
  template <class T>                                                                                               \
  static __device__ __forceinline__ T name(unsigned mask, T value, int lane, int) {                                \
    static_assert(sizeof(T) % 4 == 0);                                                                             \
    int words[sizeof(T) / 4];                                                                                      \
    __builtin_memcpy(words, &value, sizeof(T));                                                                    \
    for (unsigned i = 0; i < sizeof(T) / 4; ++i) words[i] = builtin(static_cast<int>(mask), words[i], lane, 0x1f); \
    __builtin_memcpy(&value, words, sizeof(T));                                                                    \
    return value;                                                                                                  \
  }
XTRAIN_CLANG_SHUFFLE(__shfl_sync, __nvvm_shfl_sync_idx_i32)
XTRAIN_CLANG_SHUFFLE(__shfl_xor_sync, __nvvm_shfl_sync_bfly_i32)
#undef XTRAIN_CLANG_SHUFFLE
