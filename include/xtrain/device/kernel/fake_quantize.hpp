// Rounding to integers of few bits and back, for quantization-aware training.
//                  [Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-only inference", section 3]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// Integers of `bits` bits with a scale per group, as torchao's IntxFakeQuantizer.
///   none      signed, symmetric; fp32 scales
///   integer   signed, integer zero point; fp32 scales
///   floating  unsigned, scale and zero point in bf16, as tinygemm's int4 kernels; zero need not be representable
enum class zero_points : std::uint8_t { none, integer, floating };

/// A quantization's rounding.
struct fake_quantization {
  std::size_t bits = 4;
  zero_points zeros = zero_points::none;

  friend bool operator==(const fake_quantization&, const fake_quantization&) = default;

  /// A group's numbers in accumulate dtype A, without or with integer zero points.
  template <class A>
  struct group {
    A scale{1}, inverse{1}, zero_point{0}, lowest{0}, highest{0};

    /// Before clamping to [lowest, highest]: ties to even.
    [[nodiscard]] constexpr A code(A x) const { return std::nearbyint(x * inverse) + zero_point; }
    [[nodiscard]] constexpr A rounded(A x) const { return (std::clamp(code(x), lowest, highest) - zero_point) * scale; }
    /// Straight-through estimator: x's integer is not clamped.
    [[nodiscard]] constexpr bool passes(A x) const {
      const A q = code(x);
      return q >= lowest && q <= highest;
    }
  };
  /// From smallest and largest value; zero is representable.
  template <class A>
  [[nodiscard]] constexpr group<A> of(A smallest, A largest) const {
    const A levels = static_cast<A>(std::size_t{1} << bits), lowest = -levels / A{2}, highest = lowest + levels - A{1};
    smallest = std::min(smallest, A{0});
    largest = std::max(largest, A{0});
    if (zeros == zero_points::none) {
      const A scale = std::max(std::max(-smallest, largest) / ((levels - A{1}) / A{2}), static_cast<A>(std::numeric_limits<float>::min()));
      return {scale, A{1} / scale, A{0}, lowest, highest};
    }
    const A scale = std::max((largest - smallest) / (levels - A{1}), static_cast<A>(std::numeric_limits<float>::epsilon()));
    return {scale, A{1} / scale, std::clamp(lowest - std::nearbyint(smallest / scale), lowest, highest), lowest, highest};
  }
  /// A group's numbers of dtype T with floating zero point. Every result is rounded to T: torchao computes in the weights' dtype.
  template <class T>
  struct floating_group {
    using A = accumulate_t<T>;
    A scale{1}, zero_point{0}, smallest{0}, middle{0}, highest{0};  ///< `smallest`: the value of integer 0

    [[nodiscard]] static constexpr A stored(A x) { return static_cast<A>(static_cast<T>(x)); }
    [[nodiscard]] constexpr A code(A x) const { return std::nearbyint(stored(stored(x - smallest) / scale)); }
    [[nodiscard]] constexpr A rounded(A x) const { return stored((std::clamp(code(x), A{0}, highest) - middle) * scale) + zero_point; }
    [[nodiscard]] constexpr bool passes(A x) const {
      const A q = code(x);
      return q >= A{0} && q <= highest;
    }
  };
  /// From smallest and largest value.                                [torchao's _choose_qparams_affine_tinygemm]
  template <class T>
  [[nodiscard]] constexpr floating_group<T> floating_of(accumulate_t<T> smallest, accumulate_t<T> largest) const {
    using A = accumulate_t<T>;
    const auto in_dtype = [](A x) { return static_cast<A>(static_cast<T>(x)); };
    const auto in_bf16 = [](A x) { return static_cast<A>(static_cast<bf16>(x)); };
    const A levels = static_cast<A>(std::size_t{1} << bits), middle = levels / A{2};
    const A exact = std::max(in_dtype(in_dtype(largest - smallest) / (levels - A{1})), in_dtype(static_cast<A>(1e-6)));
    const A scale = in_bf16(exact), zero_point = in_bf16(in_dtype(smallest + exact * middle));
    return {scale, zero_point, in_bf16(zero_point - scale * middle), middle, levels - A{1}};
  }

  /// Calls work(numbers) for a group of n ≥ 1 values.
  template <class T, class Work>
  void of_values(const T* x, std::size_t n, Work&& work) const {
    using A = accumulate_t<T>;
    A smallest = static_cast<A>(x[0]), largest = smallest;
    for (std::size_t i = 1; i < n; ++i) {
      smallest = std::min(smallest, static_cast<A>(x[i]));
      largest = std::max(largest, static_cast<A>(x[i]));
    }
    if (zeros == zero_points::floating)
      work(floating_of<T>(smallest, largest));
    else
      work(of(smallest, largest));
  }
};

namespace kernel {

/// y = x rounded to its group's integers and back. Groups are `group` consecutive elements; n is a multiple.
///   none          scale = max|x| / ((2^bits − 1) / 2),   q = clamp(round(x / scale))
///   integer       scale = (max(x, 0) − min(x, 0)) / (2^bits − 1),   zero = lowest − round(min(x, 0) / scale),   q = clamp(round(x / scale) + zero)
///   y = (q − zero) · scale, with 1 / scale rounded once
///   floating      scale = (max(x) − min(x)) / (2^bits − 1),   zero = min(x) + scale · 2^(bits − 1), both rounded to bf16,
///                 q = clamp(round((x − (zero − scale · 2^(bits − 1))) / scale)),   y = (q − 2^(bits − 1)) · scale + zero
///   x_n   read
///   y_n   written, rounded once; may alias x_n
template <class Memory, class T>
struct fake_quantize {
  static constexpr std::string_view name = "fake_quantize";
  template <class To>
  using on = fake_quantize<To, T>;

  std::size_t n = 0, group = 1;
  fake_quantization format{};
  read<T, Memory> x_n{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.group, s.format, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(n); }
};

/// dx = or += dy where x's integer was not clamped, else 0: straight-through estimator with constant scales.
///   x_n    read      the forward's
///   dy_n   read
///   dx_n   written (may alias dy_n), or updated with accumulate
template <class Memory, class T, class G>
struct fake_quantize_backward {
  static constexpr std::string_view name = "fake_quantize_backward";
  template <class To>
  using on = fake_quantize_backward<To, T, G>;

  std::size_t n = 0, group = 1;
  fake_quantization format{};
  bool accumulate = false;
  read<T, Memory> x_n{};
  read<G, Memory> dy_n{};
  updated<G, Memory> dx_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.group, s.format, s.accumulate, s.x_n, s.dy_n, s.dx_n);
  }
  [[nodiscard]] constexpr double operations() const { return 6.0 * static_cast<double>(n); }
};

}  // namespace kernel

}  // namespace xtrain
