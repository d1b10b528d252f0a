// Pipeline parallelism: ranks hold different layers; micro-batches pass from rank to rank, forward and backward.
#pragma once

#include <string_view>
#include <type_traits>

#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/pipeline/runner.hpp>
#include <xtrain/parallel/pipeline/schedules.hpp>
#include <xtrain/parallel/pipeline/state.hpp>
#include <xtrain/parallel/zero.hpp>

namespace xtrain {

/// Each rank has some of embedding, layers and head, with gradients and optimizer state. Schedule orders the actions; Beside is the strategy among ranks with
/// the same layers.
///                                                                           [Huang et al. 2019; Narayanan et al. 2021]
///   departs   a tied head is a second copy of the table: its gradients are all-reduced between first and last rank, and count once in the norm
template <class Schedule = one_forward_one_backward, class Beside = data_parallel>
struct pipeline {
  static_assert(pipeline_schedule_policy<Schedule>,
                "xtrain pipeline<Schedule>: must be a schedule: a name, and make(ranks, chunks, rows) that gives a pipeline_schedule; see "
                "parallel/README.md");
  static_assert(requires { Beside::stage; },
                "xtrain pipeline<Schedule, Beside>: Beside must be data_parallel or zero<Stage>, or parallel<...> of one of them with "
                "tensor_parallel or sequence_parallel, context_parallel or ring_context_parallel, expert_parallel; see parallel/README.md");
  static constexpr std::string_view name = Schedule::name;
  static constexpr bool has_sequence_parallel = has_sequence_parallel_of<Beside>;
  static constexpr bool splits_backwards = splits_backwards_of<Schedule>;
  using hooks = xtrain::hooks<hook::runner, hook::ranks, hook::add_up, hook::steps_are_queued, hook::collects_with_index, hook::collect_state,
                              hook::combines_matrices>;
  using config = pipeline_ranks;
  template <class Device>
  using state = detail::pipeline_state<Device, Beside>;
  template <class Model>
  using runner = pipeline_runner<Model, Schedule>;
};

static_assert(parallel_strategy<pipeline<>>);

}  // namespace xtrain
