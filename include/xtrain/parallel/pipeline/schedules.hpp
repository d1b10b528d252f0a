// The schedules of schedule/ as policy types that a recipe names.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

namespace xtrain {

/// make(ranks, chunks, rows): every rank's action list, for micro-batches of `rows[i]` sequences. splits_backwards = true: backwards may be in two parts.
template <class S>
concept pipeline_schedule_policy = requires(std::size_t count, std::vector<std::size_t> rows) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::make(count, count, std::move(rows)) } -> std::same_as<pipeline_schedule>;
};

namespace detail {

inline void require_one_chunk(std::string_view name, std::size_t chunks) {
  require<config_error>(chunks == 1, name, ": a rank must have one stage; given ", chunks,
                        " chunks. Schedules with more are interleaved and all_in_all_out");
}

}  // namespace detail

/// All forwards, then all backwards.                                                               [Huang et al. 2019]
struct gpipe {
  static constexpr std::string_view name = "gpipe";
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    detail::require_one_chunk(name, chunks);
    return gpipe_schedule(ranks, std::move(rows));
  }
};

/// 1F1B: saves at most as many micro-batches as there are ranks.
///                                                               [Narayanan et al. 2021, section 2.2.1]
struct one_forward_one_backward {
  static constexpr std::string_view name = "one_forward_one_backward";
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    detail::require_one_chunk(name, chunks);
    return one_forward_one_backward_schedule(ranks, std::move(rows));
  }
};

/// 1F1B over several chunks on each rank (virtual stages).
///                                                               [Narayanan et al. 2021, section 2.2.2]
struct interleaved {
  static constexpr std::string_view name = "interleaved";
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    return interleaved_schedule(ranks, chunks, std::move(rows));
  }
};

/// All micro-batches pass a chunk before the next chunk: gradients of a chunk are reduced during other chunks' backwards.
///                                                                                                     [Li et al. 2023]
struct all_in_all_out {
  static constexpr std::string_view name = "all_in_all_out";
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    return all_in_all_out_schedule(ranks, chunks, std::move(rows));
  }
};

/// 1F1B with backwards in two parts: weight gradients (W) fill the bubbles.
///                                                               [Qi et al. 2023, ZB-H1]
struct zero_bubble {
  static constexpr std::string_view name = "zero_bubble";
  static constexpr bool splits_backwards = true;
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    detail::require_one_chunk(name, chunks);
    return zero_bubble_schedule(ranks, std::move(rows));
  }
};

static_assert(pipeline_schedule_policy<gpipe> && pipeline_schedule_policy<one_forward_one_backward> &&
              pipeline_schedule_policy<interleaved> && pipeline_schedule_policy<all_in_all_out> && pipeline_schedule_policy<zero_bubble>);

}  // namespace xtrain
