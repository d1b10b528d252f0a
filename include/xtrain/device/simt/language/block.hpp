// A thread's place in its launch, barriers, shuffles, shared memory.
//
// A kernel of the dialect is a trivially copyable value:
//   members                     arguments
//   threads                     constant: threads per block, entire warps
//   shared                      type shared by a block; its arrays are shared_array
//   operator()(shared&) const   a thread's work
// Rules: ../README.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/device/simt/language/target.hpp>
#if !XTRAIN_SIMT_GPU
#include <xtrain/device/simt/language/host_runner.hpp>
#endif

namespace xtrain::simt {

#if XTRAIN_SIMT_GPU

XTRAIN_SIMT_FN int thread() { return static_cast<int>(threadIdx.x); }
XTRAIN_SIMT_FN int block_x() { return static_cast<int>(blockIdx.x); }
XTRAIN_SIMT_FN int block_y() { return static_cast<int>(blockIdx.y); }
XTRAIN_SIMT_FN int block_z() { return static_cast<int>(blockIdx.z); }
XTRAIN_SIMT_FN int blocks_x() { return static_cast<int>(gridDim.x); }

/// A barrier of the block.
XTRAIN_SIMT_FN void sync() { __syncthreads(); }
XTRAIN_SIMT_FN void sync_warp() { __syncwarp(); }
template <class T>
XTRAIN_SIMT_FN T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffU, value, lane, warp_width);
}
template <class T>
XTRAIN_SIMT_FN T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask, warp_width);
}

template <class T, int N>
class alignas(16) shared_array {
 public:
  XTRAIN_SIMT_FN T& operator[](int i) { return all_[i]; }
  XTRAIN_SIMT_FN T* at(int i) { return all_ + i; }

 private:
  T all_[N];
};

#else

using host::shared_array;

inline int thread(host::site where = host::site::current()) {
  const int mine = host::running->thread();
  if ((mine == 0 || mine == warp_width) && host::running->errs(host::mistake::wrong_thread, where)) return mine == 0 ? 1 : mine - 1;
  return mine;
}
inline int block_x(host::site where = host::site::current()) {
  return host::running->block_number(host::running->block().x, host::running->grid().x, where);
}
inline int block_y(host::site where = host::site::current()) {
  return host::running->block_number(host::running->block().y, host::running->grid().y, where);
}
inline int block_z(host::site where = host::site::current()) {
  return host::running->block_number(host::running->block().z, host::running->grid().z, where);
}
inline int blocks_x(host::site where = host::site::current()) {
  const int all = host::running->grid().x;
  return all > 1 && host::running->errs(host::mistake::wrong_grid, where) ? all - 1 : all;
}

inline void sync(host::site where = host::site::current()) {
  if (!host::running->errs(host::mistake::missing_barrier, where)) host::running->meet_block(where);
}
inline void sync_warp(host::site where = host::site::current()) {
  if (!host::running->errs(host::mistake::missing_barrier, where)) host::running->meet_warp(where);
}
template <class T>
T shuffle(T value, int lane, host::site where = host::site::current()) {
  struct operand {
    T value;
    int lane;
  };
  const int own = host::running->thread() % warp_width;
  if (lane != own && host::running->errs(host::mistake::wrong_lane, where)) lane = own;
  return host::running->together<T>(operand{value, lane}, where, [](const operand* const* in, T* const* out) {
    for (int l = 0; l < warp_width; ++l) {
      if (in[l]->lane < 0 || in[l]->lane >= warp_width) host::running->raise(concat("a shuffle from lane ", in[l]->lane));
      *out[l] = in[in[l]->lane]->value;
    }
  });
}
template <class T>
T shuffle_xor(T value, int mask, host::site where = host::site::current()) {
  return simt::shuffle(value, host::running->thread() % warp_width ^ mask, where);
}

#endif

// host functions know their caller's line
#if XTRAIN_SIMT_GPU
#define XTRAIN_SIMT_PLACE
#define XTRAIN_SIMT_SITE
#define XTRAIN_SIMT_HERE
#else
#define XTRAIN_SIMT_PLACE host::site where = host::site::current()
#define XTRAIN_SIMT_SITE , XTRAIN_SIMT_PLACE
#define XTRAIN_SIMT_HERE where
#endif

XTRAIN_SIMT_FN int lane(XTRAIN_SIMT_PLACE) { return thread(XTRAIN_SIMT_HERE) % warp_width; }
XTRAIN_SIMT_FN int warp(XTRAIN_SIMT_PLACE) { return thread(XTRAIN_SIMT_HERE) / warp_width; }
/// Number of this thread in a one-dimensional grid, and of all its threads.
XTRAIN_SIMT_FN std::size_t thread_of_grid(int threads XTRAIN_SIMT_SITE) {
  return static_cast<std::size_t>(block_x(XTRAIN_SIMT_HERE)) * static_cast<std::size_t>(threads) + static_cast<std::size_t>(thread(XTRAIN_SIMT_HERE));
}

template <class T>
XTRAIN_SIMT_FN T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
XTRAIN_SIMT_FN T smaller(T a, T b) {
  return a < b ? a : b;
}

/// N neighbours, moved by one instruction of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) vector_of {
  T v[N];
};
/// 16 bytes of T.
template <class T>
inline constexpr int wide = 16 / static_cast<int>(sizeof(T));

template <class V>
XTRAIN_SIMT_FN void require_aligned([[maybe_unused]] const void* at) {
#if !XTRAIN_SIMT_GPU
  if (reinterpret_cast<std::uintptr_t>(at) % alignof(V) != 0)
    host::running->raise(concat("a vector of ", sizeof(V), " bytes is not aligned to ", alignof(V)));
#endif
}
template <int N, class T>
XTRAIN_SIMT_FN vector_of<T, N> load(const T* from) {
  require_aligned<vector_of<T, N>>(from);
#if XTRAIN_SIMT_GPU
  return *reinterpret_cast<const vector_of<T, N>*>(from);
#else
  vector_of<T, N> all;
  for (int e = 0; e < N; ++e) all.v[e] = from[e];  // the thread sanitizer does not see memcpy
  return all;
#endif
}
template <int N, class T>
XTRAIN_SIMT_FN void store(T* to, const vector_of<T, N>& all) {
  require_aligned<vector_of<T, N>>(to);
#if XTRAIN_SIMT_GPU
  *reinterpret_cast<vector_of<T, N>*>(to) = all;
#else
  for (int e = 0; e < N; ++e) to[e] = all.v[e];
#endif
}

}  // namespace xtrain::simt
