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

/// A strategy that runs on several ranks is told which.
template <class Parallel>
concept has_ranks = requires(typename Parallel::config layout) { layout.ranks; };

struct rank_flags {
  std::size_t ranks = 1, tensor = 1, context = 1, expert = 1, shards = 0, data = 1, chunks = 1;

  /// A trainer has the flags that its strategy knows.
  template <class Parallel>
  void add(CLI::App& app) {
    if constexpr (has_ranks<Parallel>) {
      const auto count = [&](const char* flag, std::size_t& to, const char* help) {
        app.add_option(flag, to, help)->check(positive_whole_number())->type_name("N")->capture_default_str();
      };
      count("--ranks", ranks, "ranks, as threads of this process; processes are started by a launcher (mpirun -n N, srun -n N)");
      using config = typename Parallel::config;
      if constexpr (requires(config c) { c.tensor; }) count("--tensor", tensor, "ranks that divide every layer");
      if constexpr (requires(config c) { c.context; }) count("--context-ranks", context, "ranks that share rows");
      if constexpr (requires(config c) { c.expert; }) count("--expert", expert, "ranks that spread experts");
      if constexpr (requires(config c) { c.data; }) count("--data-ranks", data, "pipelines beside one another");
      if constexpr (requires(config c) { c.chunks; }) count("--chunks", chunks, "stages of a pipeline on each rank");
      if constexpr (requires(config c) { c.shards; })
        app.add_option("--shards", shards, "ranks that divide one copy of what they keep; 0: all that have the same weights")->check(whole_number())->type_name("N");
    }
  }

  template <class Config>
  [[nodiscard]] Config layout(const std::shared_ptr<xtrain::transport>& wires) const {
    Config c;
    c.ranks = wires;
    if constexpr (requires { c.tensor; }) c.tensor = tensor;
    if constexpr (requires { c.context; }) c.context = context;
    if constexpr (requires { c.expert; }) c.expert = expert;
    if constexpr (requires { c.data; }) c.data = data;
    if constexpr (requires { c.chunks; }) c.chunks = chunks;
    if constexpr (requires { c.shards; }) c.shards = shards;
    return c;
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
  using config = typename Parallel::config;
  if constexpr (!has_ranks<Parallel>) {
    run(config{}, true);
  } else {
    const auto one = [&](const std::shared_ptr<xtrain::transport>& wires) { run(flags.layout<config>(wires), wires->rank() == 0); };
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
