// Shared by programs that time matrix products, xtrain's and peers': list of products, operands, timing, the processor's measured peak, the printed line. Each
// program supplies the product.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of what its own header leaves undefined on purpose
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/peak.hpp>

#include "../processors.hpp"

namespace products {

/// C [m, n] = op(A) · op(B), or the same added to C; row-major. A is [m, k], or [k, m] where transpose_a; B is [k, n], or [n, k]
/// where transpose_b.
struct product {
  const char* form = "";
  std::size_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  bool b_is_a_weight = true;  ///< weight, not activation: a library may keep it in its own packed format

  [[nodiscard]] double operations() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

/// The three products of a linear layer from k to n features, on m rows.
[[nodiscard]] inline product forward(std::size_t m, std::size_t n, std::size_t k) {
  return {.form = "forward", .m = m, .n = n, .k = k, .transpose_b = true};  // Y = X · Wᵀ
}
[[nodiscard]] inline product input(std::size_t m, std::size_t n, std::size_t k) {
  return {.form = "input", .m = m, .n = k, .k = n};  // dX = dY · W
}
[[nodiscard]] inline product weight(std::size_t m, std::size_t n, std::size_t k) {
  return {.form = "weight", .m = n, .n = k, .k = m, .transpose_a = true, .accumulate = true, .b_is_a_weight = false};  // dW += dYᵀ · X
}

struct choice {
  std::vector<product> all{};
  bool fp32 = true, bf16 = true;
  std::vector<std::size_t> threads{};
};

/// Reads  [all|forward|input|weight|lora] [both|fp32|bf16] [THREADS...].
///   throws  std::invalid_argument for any other argument
[[nodiscard]] inline choice read_choice(int argc, char** argv) {
  const auto word = [&](int index, const char* otherwise) { return std::string_view(argc > index ? argv[index] : otherwise); };
  const auto refuse = [](const char* must, std::string_view given) {
    throw std::invalid_argument(std::string(must) + "; given '" + std::string(given) + "'");
  };
  choice chosen;
  const std::string_view form = word(1, "forward"), numbers = word(2, "both");
  if (form != "all" && form != "forward" && form != "input" && form != "weight" && form != "lora")
    refuse("the form must be all, forward, input, weight or lora", form);
  if (numbers != "both" && numbers != "fp32" && numbers != "bf16") refuse("the number type must be both, fp32 or bf16", numbers);
  chosen.fp32 = numbers != "bf16";
  chosen.bf16 = numbers != "fp32";
  for (int i = 3; i < argc; ++i) {
    const auto threads = static_cast<std::size_t>(std::strtoul(argv[i], nullptr, 10));
    if (threads == 0 || threads > 1024) refuse("a number of threads must be between 1 and 1024", argv[i]);
    chosen.threads.push_back(threads);
  }
  if (chosen.threads.empty()) {
    chosen.threads = {1};
    if (xtrain::detail::usable_processors(xtrain::detail::processors_of_process()) > 1) chosen.threads.push_back(2);
  }
  struct layer {
    std::size_t m, n, k;
  };
  // 256 rows are a small batch, 1024 a typical one; 50304 is the vocabulary of GPT-2 rounded up; the last is a LLaMA's
  for (const auto& [m, n, k] : {layer{256, 768, 768}, layer{256, 3072, 768}, layer{256, 768, 3072}, layer{256, 50304, 768},
                                layer{1024, 768, 768}, layer{1024, 3072, 768}, layer{2048, 4096, 4096}}) {
    if (form == "all" || form == "forward") chosen.all.push_back(forward(m, n, k));
    if (form == "all" || form == "input") chosen.all.push_back(input(m, n, k));
    if (form == "all" || form == "weight") chosen.all.push_back(weight(m, n, k));
  }
  if (form == "all" || form == "lora") {  // an adapter of rank 16 on a layer from 2048 to 2048 features, 1024 rows
    const std::size_t rows = 1024, width = 2048, rank = 16;
    const auto add = [&](product one, const char* name, bool accumulate) {
      one.form = name;
      one.accumulate = accumulate;
      chosen.all.push_back(one);
    };
    add(forward(rows, rank, width), "lora_t", false);  // t = x · Aᵀ
    add(forward(rows, width, rank), "lora_y", true);   // y += t · Bᵀ
    add(input(rows, width, rank), "lora_dt", false);   // dt = dy · B
    add(weight(rows, width, rank), "lora_dB", true);   // dB += dyᵀ · t
    add(input(rows, rank, width), "lora_dx", true);    // dx += dt · A
    add(weight(rows, rank, width), "lora_dA", true);   // dA += dtᵀ · x
  }
  return chosen;
}

/// An array as in a training run: on its own pages, huge ones if it fills them.
class bytes {
 public:
  explicit bytes(std::size_t size) {
    constexpr std::size_t huge = std::size_t{2} << 20, line = 64;
    const std::size_t alignment = size >= huge ? huge : line;
    const std::size_t whole = (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
    if (!data_) throw std::bad_alloc();
    if (alignment == huge) ::madvise(data_.get(), whole, MADV_HUGEPAGE);  // only advice: if refused, timings are slightly worse
    std::fill_n(data_.get(), whole, std::byte{0});
  }
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  struct give_back {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], give_back> data_;
};

template <class T>
class array {
 public:
  explicit array(std::size_t size) : memory_(size * sizeof(T)), size_(size) {}
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T operator[](std::size_t i) const { return data()[i]; }
  /// Uniform in (-0.5, 0.5).
  void draw(std::uint64_t seed) {
    for (std::size_t i = 0; i < size_; ++i)
      data()[i] = static_cast<T>(static_cast<float>(xtrain::uniform_open(xtrain::random_word({.seed = seed}, i))) - 0.5f);
  }

 private:
  bytes memory_;
  std::size_t size_;
};

template <class T>
struct operands {
  explicit operands(const product& p) : a(p.m * p.k), b(p.k * p.n), c(p.m * p.n) {
    a.draw(1);
    b.draw(2);
  }
  array<T> a, b, c;
};

/// Recomputes a few elements of C after the first run, to reject a peer that computes something else.
///   throws  std::runtime_error
template <class T>
void require_right(const product& p, const operands<T>& x) {
  for (std::size_t s = 0; s < 16; ++s) {
    const std::size_t i = (s * 7919 + p.m - 1) % p.m, j = (s * 104729 + p.n - 1) % p.n;
    double sum = 0, magnitude = 0;
    for (std::size_t l = 0; l < p.k; ++l) {
      const double a = static_cast<float>(x.a[p.transpose_a ? l * p.m + i : i * p.k + l]);
      const double b = static_cast<float>(x.b[p.transpose_b ? j * p.k + l : l * p.n + j]);
      sum += a * b;
      magnitude += std::abs(a * b);
    }
    // k products summed in fp32, in any order: error at most k · 2^-24 of their magnitudes. Then one rounding to T.
    const double allowed = static_cast<double>(p.k) * 0x1p-24 * magnitude + 2 * xtrain::dtype_traits<T>::unit_roundoff * std::abs(sum);
    const double found = static_cast<float>(x.c[i * p.n + j]);
    if (!(std::abs(found - sum) <= allowed))
      throw std::runtime_error("C[" + std::to_string(i) + ", " + std::to_string(j) + "] must be " + std::to_string(sum) + "; it is " +
                               std::to_string(found));
  }
}

/// A line names no more threads than have computed.
///   throws  std::runtime_error
inline void require_threads(std::size_t asked, std::size_t are) {
  if (asked != are) throw std::runtime_error("must compute on " + std::to_string(asked) + " threads; there are " + std::to_string(are));
}

struct timing {
  double seconds = 0, processors = 0;
};

/// Median over runs for 0.3 s, and of at least five. The first 0.1 s are not counted: threads that slept may share one
/// processor until the system moves them apart.
template <class Run>
[[nodiscard]] timing median_time(Run&& run) {
  using clock = std::chrono::steady_clock;
  const auto runs_of = [&](double least, std::size_t fewest) {
    std::vector<double> seconds;
    double sum = 0;
    while (sum < least || seconds.size() < fewest) {
      const auto begin = clock::now();
      run();
      seconds.push_back(std::chrono::duration<double>(clock::now() - begin).count());
      sum += seconds.back();
    }
    return seconds;
  };
  (void)runs_of(0.1, 1);
  const processor_watch watch;
  std::vector<double> seconds = runs_of(0.3, 5);
  const double processors = watch.used();
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return {*middle, processors};
}

#ifdef __AVX512BF16__
/// Chains of multiply-adds of bf16 pairs, as measure_peak has for fp32.
[[nodiscard]] inline float bf16_chains(std::size_t rounds) {
  constexpr std::size_t chains = 12;
  __m512 sum[chains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < chains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00)), b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3a003a00));
  for (std::size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (std::size_t c = 0; c < chains; ++c) sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
  }
  float total = 0;
#pragma GCC unroll 12
  for (std::size_t c = 0; c < chains; ++c) total += _mm512_reduce_add_ps(sum[c]);
  return total;
}
#endif

/// Operations per second of multiply-adds of T on this thread. A processor without bf16 instructions multiplies it as fp32.
template <class T>
[[nodiscard]] double measure_thread() {
#ifdef __AVX512BF16__
  if constexpr (std::is_same_v<T, xtrain::bf16>) {
    using clock = std::chrono::steady_clock;
    constexpr std::size_t rounds = 200'000;
    const auto begin = clock::now();
    volatile float sink = bf16_chains(rounds);
    (void)sink;
    return 2.0 * 32 * 12 * static_cast<double>(rounds) / std::chrono::duration<double>(clock::now() - begin).count();
  }
#endif
  return xtrain::measure_peak(xtrain::cpu::context({.threads = 1}));
}

/// The processor with this index among those of the process, around the end.
[[nodiscard]] inline cpu_set_t processor_of_process(std::size_t index) {
  const cpu_set_t all = xtrain::detail::processors_of_process();
  index %= static_cast<std::size_t>(std::max(1, CPU_COUNT(&all)));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &all) && index-- == 0) CPU_SET(processor, &one);
  return one;
}

/// Peak of `threads` threads together: the best that each reaches in 0.3 s on its own processor of the process. A peer may have pinned the
/// calling thread to one processor, and threads inherit that.
template <class T>
[[nodiscard]] double measure_peak(std::size_t threads) {
  using clock = std::chrono::steady_clock;
  std::vector<double> best(threads, 0.0);
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t)
    all.emplace_back([&best, t] {
      const cpu_set_t own = processor_of_process(t);
      ::sched_setaffinity(0, sizeof(own), &own);  // if refused, the system chooses
      const auto end = clock::now() + std::chrono::milliseconds(300);
      while (clock::now() < end) best[t] = std::max(best[t], measure_thread<T>());
    });
  for (std::thread& one : all) one.join();
  return std::accumulate(best.begin(), best.end(), 0.0);
}

/// One line: program, dtype, threads, form, sizes, speed, processors used. `compare` parses it.
template <class T>
void print(const char* who, std::size_t threads, const product& p, const timing& time, double peak) {
  const double reached = p.operations() / time.seconds;
  const std::string sizes = std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  std::printf("%-14s %s %zut  %-8s %-15s %8.1f GFLOP/s  %5.1f %% of %.1f  on %.2f processors\n", who, std::string(xtrain::dtype_traits<T>::name).c_str(),
              threads, p.form, sizes.c_str(), reached * 1e-9, 100.0 * reached / peak, peak * 1e-9, time.processors);
  std::fflush(stdout);
}

/// Calls time_one(threads, product, peak) for everything that was chosen, in one dtype.
template <class T, class Time>
void time_all(const choice& chosen, Time&& time_one) {
  for (const std::size_t threads : chosen.threads) {
    const double peak = measure_peak<T>(threads);
    for (const product& p : chosen.all) time_one(threads, p, peak);
  }
}

}  // namespace products
