// Sums over warps and blocks, in an order that depends on sizes alone.
#pragma once

#include <xtrain/device/simt/language/block.hpp>

namespace xtrain::simt {

template <class T>
XTRAIN_SIMT_FN T warp_sum(T value) {
  XTRAIN_SIMT_UNROLL
  for (int mask = warp_width / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <class T>
XTRAIN_SIMT_FN T warp_max(T value) {
  XTRAIN_SIMT_UNROLL
  for (int mask = warp_width / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}

/// A number per warp, for block_sum and block_max.
template <class T, int Threads>
using warp_parts = shared_array<T, Threads / warp_width>;

/// For every thread; `parts` is free on return.
template <int Threads, class T>
XTRAIN_SIMT_FN T block_sum(T value, warp_parts<T, Threads>& parts) {
  value = warp_sum(value);
  if (lane() == 0) parts[warp()] = value;
  sync();
  T sum{0};
  XTRAIN_SIMT_UNROLL
  for (int w = 0; w < Threads / warp_width; ++w) sum += parts[w];
  sync();
  return sum;
}
/// With one pair of barriers.
template <int Threads>
XTRAIN_SIMT_FN void block_sums(float& a, float& b, warp_parts<float, Threads>& a_parts, warp_parts<float, Threads>& b_parts) {
  a = warp_sum(a);
  b = warp_sum(b);
  if (lane() == 0) a_parts[warp()] = a, b_parts[warp()] = b;
  sync();
  a = 0, b = 0;
  XTRAIN_SIMT_UNROLL
  for (int w = 0; w < Threads / warp_width; ++w) a += a_parts[w], b += b_parts[w];
  sync();
}
template <int Threads, class T>
XTRAIN_SIMT_FN T block_max(T value, warp_parts<T, Threads>& parts) {
  value = warp_max(value);
  if (lane() == 0) parts[warp()] = value;
  sync();
  T most = parts[0];
  XTRAIN_SIMT_UNROLL
  for (int w = 1; w < Threads / warp_width; ++w) most = larger(most, parts[w]);
  sync();
  return most;
}

}  // namespace xtrain::simt
