// A row's softmax by a block: largest, its first place, Σ exp, Σ, in one pass.
#pragma once

#include <cmath>

#include <xtrain/device/simt/language/numbers.hpp>
#include <xtrain/device/simt/language/sums.hpp>

namespace xtrain::simt {

/// Largest, its first place, Σ exp(x − largest).
struct softmax_state {
  float largest, sum;
  int place;
};

template <int Threads>
struct softmax_shared {
  warp_parts<float, Threads> largest, sum;
  warp_parts<int, Threads> place;
};

/// Of x_of(j), j < v; total: their sum. Equal for every thread of the block; shared memory is free on return. A thread's sum is relative to its largest;
/// threads are added relative to the largest of all.
///                                                                        [Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"]
template <int Threads, class Values, class Shared>
XTRAIN_SIMT_FN softmax_state softmax_of_row(int v, Values&& x_of, float& total, Shared& s) {
  float largest = -INFINITY, sum = 0;
  int place = 0x7fffffff;
  total = 0;
  for (int j = thread(); j < v; j += Threads) {
    const float x = x_of(j);
    total += x;
    if (x > largest || place == 0x7fffffff) {
      sum = (place == 0x7fffffff ? 0.0f : sum * exp(largest - x)) + 1.0f;
      largest = x, place = j;
    } else {
      sum += x == largest ? 1.0f : exp(x - largest);  // −∞ minus −∞ is NaN
    }
  }
  const float most = block_max<Threads>(largest, s.largest);
  if (place == 0x7fffffff) sum = 0;
  else if (largest != most) sum *= exp(largest - most);
  block_sums<Threads>(sum, total, s.sum, s.largest);
  place = -block_max<Threads>(largest == most ? -place : -0x7fffffff, s.place);
  return {most, sum, place};
}

}  // namespace xtrain::simt
