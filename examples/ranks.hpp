// The ranks of a run: threads of this process, or processes that a launcher has started.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include <xtrain/parallel.hpp>

#include "command_line.hpp"

namespace command_line {

struct rank_flags {
  std::size_t ranks = 1;
  xtrain::rank_layout layout{};

  /// Only trainers whose strategy has ranks have these flags.
  template <class Parallel>
  void add(CLI::App& app) {
    if constexpr (requires(typename Parallel::config layout_of_strategy) { layout_of_strategy.ranks; }) {
      app.add_option("--ranks", ranks, "ranks, as threads of this process; processes are started by a launcher (mpirun -n N, srun -n N)")
          ->check(positive_whole_number())
          ->type_name("N")
          ->capture_default_str();
      app.add_option("--tensor", layout.tensor, "ranks that divide every layer; the others see other rows")
          ->check(positive_whole_number())
          ->type_name("N")
          ->capture_default_str();
      if constexpr (requires(const typename Parallel::template state<xtrain::cpu>& state) { state.places(); })
        app.add_option("--share-rows", layout.context, "ranks that share every row, each with some of its places")
            ->check(positive_whole_number())
            ->type_name("N")
            ->capture_default_str();
      app.add_option("--shards", layout.shards, "ranks that divide one copy of what they keep; 0: all that have the same weights")
          ->check(whole_number())
          ->type_name("N");
    }
  }
};

/// A launcher has started this process as one of several.
[[nodiscard]] inline bool is_launched() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID"})
    if (std::getenv(variable) != nullptr) return true;
  return false;
}

/// Calls run(layout, whether this is the first rank) on every rank. `Processes` is xtrain::mpi_session, or void where the program is made
/// without MPI.
template <class Parallel, class Processes, class Run>
void on_ranks(const rank_flags& flags, Run&& run) {
  if constexpr (!std::is_same_v<typename Parallel::config, xtrain::rank_layout>) {
    run(typename Parallel::config{}, true);
  } else {
    const auto one = [&](const std::shared_ptr<xtrain::transport>& wires) {
      xtrain::rank_layout layout = flags.layout;
      layout.ranks = wires;
      run(layout, wires->rank() == 0);
    };
    if constexpr (!std::is_void_v<Processes>) {
      if (is_launched()) {
        xtrain::require<xtrain::config_error>(flags.ranks == 1, "--ranks: the launcher says how many there are; leave it out");
        Processes session;
        session.run(one);
        return;
      }
    } else {
      xtrain::require<xtrain::config_error>(!is_launched(), "a launcher has started several processes, but this trainer is made without MPI; say MPI "
                                                            "to xtrain_add_trainer, or use --ranks without a launcher");
    }
    xtrain::run_ranks(flags.ranks, one);
  }
}

}  // namespace command_line
