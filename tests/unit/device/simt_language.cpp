// The dialect of GPU kernels on the host: instructions, and mistakes undefined on a GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/language/tensor_core.hpp>
#include <xtrain/device/simt/optimizer.hpp>
#include <xtrain/device/simt/two_stage_sum.hpp>

using namespace xtrain;

namespace {

/// Runs a kernel for some seeds. Returns the number of faults whose text contains `words`.
template <class Kernel>
int faults(const Kernel& kernel, const std::string& words, int seeds = 8) {
  int found = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    try {
      simt::host::runner::here().run(kernel, {2, 1, 1}, static_cast<std::uint64_t>(seed));
    } catch (const simt::fault& fault) {
      INFO(fault.what());
      found += std::string(fault.what()).find(words) != std::string::npos ? 1 : 0;
    }
  }
  return found;
}

/// Reverses a block's numbers through shared memory.
template <bool WithBarrier>
struct reverse {
  static constexpr int threads = 64;
  struct shared {
    simt::shared_array<float, threads> all;
  };
  float* x;
  void operator()(shared& s) const {
    float* const mine = x + simt::block_x() * threads;
    s.all[simt::thread()] = mine[simt::thread()];
    if (WithBarrier) simt::sync();
    mine[simt::thread()] = s.all[threads - 1 - simt::thread()];
  }
};

struct half_waits {
  static constexpr int threads = 64;
  struct shared {};
  void operator()(shared&) const {
    if (simt::thread() < 32) simt::sync();
  }
};
struct waits_elsewhere {
  static constexpr int threads = 64;
  struct shared {};
  void operator()(shared&) const {
    if (simt::thread() < 32) simt::sync();
    else simt::sync();
  }
};
struct beyond_the_end {
  static constexpr int threads = 32;
  struct shared {
    simt::shared_array<float, 32> all;
  };
  void operator()(shared& s) const { s.all[simt::thread() + 1] = 0; }
};
struct not_aligned {
  static constexpr int threads = 32;
  struct shared {};
  float* x;
  void operator()(shared&) const { (void)simt::load<4>(static_cast<const float*>(x + 1)); }
};
template <bool Waits>
struct copies {
  static constexpr int threads = 32;
  struct shared {
    simt::shared_array<float, 4 * threads> all;
  };
  const float* from;
  float* to;
  void operator()(shared& s) const {
    simt::copy_async(s.all.at(4 * simt::thread()), from + 4 * simt::thread(), 16);
    simt::commit_copies();
    if (Waits) simt::wait_for_copies<0>();
    to[simt::thread()] = s.all[4 * simt::thread()];
    simt::wait_for_copies<0>();
  }
};
struct forgets_copies {
  static constexpr int threads = 32;
  struct shared {
    simt::shared_array<float, 4 * threads> all;
  };
  const float* from;
  void operator()(shared& s) const { simt::copy_async(s.all.at(4 * simt::thread()), from, 16); }
};

/// c = a · b of 16 × 16 by 16 × 16 from shared memory, each operand as it is or transposed, by the GPU's instruction or by the lanes.
template <class T, bool TransposeA, bool TransposeB, bool ByLanes>
struct product {
  static constexpr int threads = 32, stride = 16 + simt::wide<T>;
  struct shared {
    simt::shared_array<T, 16 * stride> a, b;
  };
  const T *a, *b;
  float* c;
  void operator()(shared& s) const {
    simt::copy_tile<T, 16, 16, stride, threads>(s.a.at(0), a, 16, 16, 16, true);
    simt::copy_tile<T, 16, 16, stride, threads>(s.b.at(0), b, 16, 16, 16, true);
    simt::commit_copies();
    simt::wait_for_copies<0>();
    simt::sync();
    simt::fragment_b<T> b_part[2];
    const auto a_part = simt::load_a<T, TransposeA>(s.a.at(0), stride);
    simt::load_b_pair<T, TransposeB>(b_part[0], b_part[1], s.b.at(0), stride);
    simt::fragment_c sum[2];
    for (int j = 0; j < 2; ++j) {
      simt::set_zero(sum[j]);
      simt::multiply<T>(sum[j], a_part, b_part[j]);
    }
    // also with the result as operand: c = (a · b) · b
    const auto again = simt::operand_of<T>(sum[0], sum[1]);
    for (int j = 0; j < 2; ++j) {
      simt::set_zero(sum[j]);
      if constexpr (ByLanes) simt::multiply_by_lanes<T>(sum[j], again, b_part[j]);
      else simt::multiply<T>(sum[j], again, b_part[j]);
      for (int e = 0; e < 4; ++e) c[simt::c_row(e) * 16 + j * 8 + simt::c_column(e)] = sum[j].r[e];
    }
  }
};

template <class T, bool TransposeA, bool TransposeB, bool ByLanes>
void check_product_of() {
  alignas(16) T a[256], b[256];
  float c[256], first[256];
  for (int i = 0; i < 256; ++i) a[i] = T(static_cast<float>(i * 7 % 11 - 5)), b[i] = T(static_cast<float>(i * 5 % 7 - 3));
  const auto a_at = [&](int i, int k) { return static_cast<float>(TransposeA ? a[k * 16 + i] : a[i * 16 + k]); };
  const auto b_at = [&](int k, int j) { return static_cast<float>(TransposeB ? b[j * 16 + k] : b[k * 16 + j]); };
  simt::host::runner::here().run(product<T, TransposeA, TransposeB, ByLanes>{a, b, c}, {1, 1, 1}, 5);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      first[i * 16 + j] = 0;
      for (int k = 0; k < 16; ++k) first[i * 16 + j] += a_at(i, k) * b_at(k, j);
    }
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += static_cast<float>(T(first[i * 16 + k])) * b_at(k, j);
      CHECK(c[i * 16 + j] == sum);  // integers below 2²⁴: exact in any order
    }
}
template <class T, bool TransposeA, bool TransposeB>
void check_product() {
  check_product_of<T, TransposeA, TransposeB, false>();
  check_product_of<T, TransposeA, TransposeB, true>();
}

struct values {
  const double* x;
  double at(std::size_t i) const { return x[i]; }
  template <int N>
  double of(std::size_t i) const {
    double sum = 0;
    for (int e = 0; e < N; ++e) sum += x[i + static_cast<std::size_t>(e)];
    return sum;
  }
};
struct counting_rule {
  static constexpr bool corrects = false;
  int* updates;
  void update(std::size_t i, const simt::step_of_block&, const kernel::step_scalars&) const { ++updates[i]; }
};
struct stream {
  static constexpr bool launches_simt = true;
  std::uint64_t seed = 1;
  template <class Kernel>
  void launch(const Kernel& kernel, simt::grid_size grid) {
    simt::host::runner::here().run(kernel, grid, seed++);
  }
};

}  // namespace

TEST_CASE("threads exchange numbers through shared memory and a barrier") {
  std::vector<float> x(128);
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    for (int i = 0; i < 128; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);
    simt::host::runner::here().run(reverse<true>{x.data()}, {2, 1, 1}, seed);
    for (int i = 0; i < 128; ++i) CHECK(x[static_cast<std::size_t>(i)] == static_cast<float>(i / 64 * 64 + 63 - i % 64));
  }
}

#if !XTRAIN_SIMT_TSAN  // reports this race and ends the program
TEST_CASE("a missing barrier gives NaN or another number with every seed") {
  std::vector<float> x(128);
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    for (int i = 0; i < 128; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);
    simt::host::runner::here().run(reverse<false>{x.data()}, {2, 1, 1}, seed);
    int wrong = 0;
    for (int i = 0; i < 128; ++i) wrong += x[static_cast<std::size_t>(i)] == static_cast<float>(i / 64 * 64 + 63 - i % 64) ? 0 : 1;
    CHECK(wrong > 0);
  }
}
#endif

TEST_CASE("barriers that not all threads reach are faults with the line") {
  CHECK(faults(half_waits{}, "32 threads wait for others, which have ended or wait elsewhere: 32 at the block's") == 8);
  CHECK(faults(waits_elsewhere{}, "while others wait at") == 8);
}

TEST_CASE("an element outside a shared array, and a vector that is not aligned, are faults") {
  CHECK(faults(beyond_the_end{}, "element 32 of a shared array of 32") == 8);
  alignas(16) float x[8] = {};
  CHECK(faults(not_aligned{x}, "a vector of 16 bytes is not aligned to 16") == 8);
}

TEST_CASE("a copy that is read before it has arrived is NaN for some threads, and one that is not waited for is a fault") {
  alignas(16) float from[128], to[32];
  for (int i = 0; i < 128; ++i) from[i] = static_cast<float>(i);
  int early = 0;
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    simt::host::runner::here().run(copies<true>{from, to}, {1, 1, 1}, seed);
    for (int i = 0; i < 32; ++i) CHECK(to[i] == static_cast<float>(4 * i));
    simt::host::runner::here().run(copies<false>{from, to}, {1, 1, 1}, seed);
    int missing = 0;
    for (int i = 0; i < 32; ++i) missing += std::isnan(to[i]) ? 1 : 0;
    early += missing > 0 ? 1 : 0;
  }
  CHECK(early == 8);
  CHECK(faults(forgets_copies{from}, "ended with asynchronous copies that it did not wait for") == 8);
}

TEST_CASE("products of a warp, whose result is an operand of the next") {
  check_product<bf16, false, false>();
  check_product<bf16, true, false>();
  check_product<fp16, false, true>();
  check_product<fp16, true, true>();
  check_product<float, false, true>();
  check_product<float, true, false>();
}

TEST_CASE("a two-stage sum has the same bits in vectors and in single elements, for any order of blocks") {
  const std::size_t n = 70001;
  std::vector<double> x(n + 1), scratch(simt::most_sum_parts);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<double>(i)) * std::exp2(static_cast<double>(i % 40));
  double first = 0, sum = 0;
  stream on;
  simt::launch_sum<2>(on, values{x.data()}, n, false, &first, false, scratch.data());
  on.seed = 12345;
  simt::launch_sum<2>(on, values{x.data()}, n, true, &sum, false, scratch.data());
  CHECK(sum == first);
}

TEST_CASE("an optimizer updates every element once, whatever the number of blocks") {
  std::vector<int> updates(2001, 0);
  const kernel::step_scalars scalars;
  for (const int blocks : {1, 3, 8})
    simt::host::runner::here().run(simt::optimizer_launch<counting_rule>{&scalars, nullptr, 1.0, 0.0, 2000, {updates.data()}}, {blocks, 1, 1}, 1);
  CHECK(std::count(updates.begin(), updates.end() - 1, 3) == 2000);
  CHECK(updates.back() == 0);
}

TEST_CASE("random words of neighbours are those of each element, from any first element") {
  for (std::uint64_t first = 0; first < 6; ++first) {
    const random_site site{.seed = 7, .step = 2, .site = 3, .first = first};
    simt::random_words words(site);
    for (const std::uint64_t i : std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 40, 41, 5, 5}) CHECK(words.of(i) == random_word(site, i));
  }
}
