// Runs of a parameter's file that a rank stores; ranks write one file together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Contiguous in the file from index `to`; in memory from `from`, `stride` apart.
struct file_run {
  std::size_t from = 0, stride = 1, to = 0, count = 0;
};

namespace detail {

/// For a transposed matrix: rows first … last - 1 of the shard, columns left … right - 1.
template <class Visit>
void for_each_turned_run(const parameter_spec& spec, std::size_t first, std::size_t last, std::size_t left, std::size_t right, Visit&& visit) {
  const std::size_t columns = spec.shape[1], all_rows = spec.whole_shape()[0];
  std::vector<row_range> rows = spec.cut.rows;
  if (rows.empty()) rows.push_back({0, spec.shape[0]});
  for (std::size_t column = left; column < right; ++column) {
    std::size_t here = 0;
    for (const row_range& range : rows) {
      const std::size_t begin = std::max(first, here), end = std::min(last, here + range.count);
      if (begin < end)
        visit(file_run{begin * columns + column, columns, (spec.cut.first_column + column) * all_rows + range.begin + (begin - here), end - begin});
      here += range.count;
    }
  }
}

}  // namespace detail

/// visit(file_run) for elements first … first + count - 1 of the shard.
///   as_in_files  apply the parameter's transposition or row order
template <class Visit>
void for_each_file_run(const parameter_spec& spec, std::size_t first, std::size_t count, bool as_in_files, Visit&& visit) {
  if (count == 0) return;
  if (as_in_files && spec.transposed_in_files) {
    // entire rows, and partial rows around them
    const std::size_t columns = spec.shape[1], last = first + count, head = first / columns, tail = last / columns;
    if (head == tail) return detail::for_each_turned_run(spec, head, head + 1, first % columns, last % columns, visit);
    const std::size_t begin = first % columns == 0 ? head : head + 1;
    if (begin != head) detail::for_each_turned_run(spec, head, begin, first % columns, columns, visit);
    if (begin < tail) detail::for_each_turned_run(spec, begin, tail, 0, columns, visit);
    if (last % columns != 0) detail::for_each_turned_run(spec, tail, tail + 1, 0, last % columns, visit);
    return;
  }
  const bool sorts = as_in_files && spec.rows_in_files;
  const std::size_t whole_columns = spec.whole_shape().size() > 1 ? spec.whole_shape()[1] : 1;
  spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t n) {
    const std::size_t begin = std::max(here, first), end = std::min(here + n, first + count);
    std::size_t at = begin;
    while (at < end) {
      const std::size_t to = whole + (at - here);
      if (!sorts) return visit(file_run{at, 1, to, end - at});
      const std::size_t run = std::min(end - at, whole_columns - to % whole_columns);
      visit(file_run{at, 1, (*spec.rows_in_files)[to / whole_columns] * whole_columns + to % whole_columns, run});
      at += run;
    }
  });
}

/// sink(first byte, data, size) for elements that this rank writes; elements of several ranks are divided in blocks of rows, round robin.
///   kept  what this rank stores, and where in the array
///   turn  differs between parameters, to distribute small ones
template <class T, class Device, class Span>
void write_kept(pinned_pipe<Device>& pipe, typename Device::stream& stream, const parameter_spec& spec, const stored_range& kept, Span array,
                bool as_in_files, std::size_t turn, const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
  constexpr std::size_t numbers_in_turn = std::size_t{1} << 18;
  const std::size_t columns = spec.shape.size() > 1 ? spec.shape[1] : 1;
  const std::size_t block = std::max<std::size_t>(1, numbers_in_turn / columns) * columns;
  using piece = typename pinned_pipe<Device>::piece;
  std::vector<piece> pieces;
  for (std::size_t begin = kept.first / block * block; begin < kept.first + kept.count; begin += block) {
    if ((begin / block + turn) % kept.copies != kept.copy) continue;
    const std::size_t first = std::max(begin, kept.first), last = std::min(begin + block, kept.first + kept.count);
    pieces.push_back({first, last - first});
  }
  std::vector<T> run;
  pipe.template to_host<T>(
      stream, std::span<const piece>(pieces), [&](const piece& one) { return array.subspan(kept.at + (one.first - kept.first), one.count); },
      [&](const piece& one, std::span<const T> host) {
        for_each_file_run(spec, one.first, one.count, as_in_files, [&](const file_run& part) {
          const T* from = host.data() + (part.from - one.first);
          if (part.stride != 1) {
            run.resize(part.count);
            for (std::size_t i = 0; i < part.count; ++i) run[i] = from[i * part.stride];
            from = run.data();
          }
          sink(part.to * sizeof(T), from, part.count * sizeof(T));
        });
      });
}

}  // namespace xtrain
