// The library's kernels as launches of the dialect, for every stream that launches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/simt/language/block.hpp>
#include <xtrain/device/simt/language/numbers.hpp>

namespace xtrain::simt {

/// A stream with launch(kernel, grid_size), by declaration.
template <class Stream>
concept launches = Stream::launches_simt;
/// Properties of such a device: scratch memory depends on sizes alone.
template <class Properties>
concept of_simt_device = Properties::is_simt;

[[nodiscard]] constexpr std::size_t parts_of(std::size_t n, std::size_t size) { return (n + size - 1) / size; }
[[nodiscard]] constexpr int blocks_of(std::size_t n, std::size_t size) { return static_cast<int>(parts_of(n, size)); }

template <class T>
[[nodiscard]] bool is_aligned(const T* at, std::size_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}
/// Vector access is possible; null pointers count as aligned.
template <class... T>
[[nodiscard]] bool all_aligned(const T*... at) {
  return (is_aligned(at) && ...);
}
[[nodiscard]] inline float narrowed(double value) { return static_cast<float>(value); }

/// Calls f(std::true_type) or f(std::false_type), for settings whose code costs registers.
template <class F>
void choose(bool setting, F&& f) {
  if (setting) f(std::true_type{});
  else f(std::false_type{});
}

/// Rows of a batch with a range in device memory: elements first · width … (first + count) · width − 1. Null: all.
struct row_range {
  const token* range = nullptr;
  std::size_t width = 0;
};

/// op.at<N>(i): N neighbours from element i on; vectors if operands are aligned.
template <class Op, int Width>
struct each_element {
  static constexpr int threads = 256;
  struct shared {};
  Op op;
  std::size_t n;
  row_range rows;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t i = thread_of_grid(threads) * Width;
    std::size_t begin = 0, end = n;
    if (rows.range != nullptr) {
      begin = static_cast<std::size_t>(rows.range[0]) * rows.width;
      end = begin + static_cast<std::size_t>(rows.range[1]) * rows.width;
    }
    if (begin + i + Width <= end) {
      op.template at<Width>(begin + i, i);
    } else {
      for (std::size_t j = i; begin + j < end; ++j) op.template at<1>(begin + j, j);
    }
  }
};

///   vectors   operands and rows are aligned
template <int Width, launches Stream, class Op>
void launch_each(Stream& stream, const Op& op, std::size_t n, bool vectors, row_range rows = {}) {
  if (n == 0) return;
  if (rows.range != nullptr && rows.width % Width != 0) vectors = false;
  if (vectors) stream.launch(each_element<Op, Width>{op, n, rows}, {blocks_of(n, 256 * Width), 1, 1});
  else stream.launch(each_element<Op, 1>{op, n, rows}, {blocks_of(n, 256), 1, 1});
}

/// work(i) for i < n, a thread each.
template <class Work>
struct each_item {
  static constexpr int threads = 128;
  struct shared {};
  Work work;
  std::size_t n;
  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t i = thread_of_grid(threads);
    if (i < n) work(i);
  }
};
template <launches Stream, class Work>
void launch_items(Stream& stream, const Work& work, std::size_t n) {
  if (n > 0) stream.launch(each_item<Work>{work, n}, {blocks_of(n, 128), 1, 1});
}

/// A block per row.
inline constexpr int row_threads = 256;
template <launches Stream, class Rows>
void launch_rows(Stream& stream, const Rows& rows, std::size_t n) {
  if (n > 0) stream.launch(rows, {static_cast<int>(n), 1, 1});
}

XTRAIN_SIMT_FN bool is_inside(token id, std::size_t v) { return id >= 0 && static_cast<std::size_t>(id) < v; }

/// Elements per thread: 16 bytes.
template <class T>
inline constexpr int elements_of = 16 / static_cast<int>(sizeof(T));

}  // namespace xtrain::simt
