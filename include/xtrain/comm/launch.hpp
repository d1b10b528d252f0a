// How this process was started: alone or by a launcher, which sets environment variables.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <xtrain/core/error.hpp>
#include <xtrain/device/host_threads.hpp>

namespace xtrain {

/// A process of a launcher, and the number of its processes.
struct launched_process {
  std::string_view launcher{};                 ///< empty: none
  bool mpi = false;                            ///< processes connect through MPI
  std::size_t rank = 0, size = 1;              ///< size 0: several; only MPI knows
  std::size_t local_rank = 0, local_size = 1;  ///< on this host: selects devices or processors

  [[nodiscard]] bool alone() const { return size == 1; }
};

namespace detail {

struct launcher_variables {
  std::string_view launcher;
  bool mpi;
  const char *rank, *size, *local_rank, *local_size;
};
/// Most specific first: mpirun works under Slurm, with the variables of both. An sbatch script has SLURM_PROCID and SLURM_NTASKS but runs alone; only srun
/// starts job steps.
inline constexpr std::array<launcher_variables, 6> known_launchers{{
    {"mpirun (Open MPI)", true, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (MVAPICH)", true, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"mpiexec (PMI)", true, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", true, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"a launcher (PMIx)", true, "PMIX_RANK", nullptr, nullptr, nullptr},
    {"a launcher (RANK, WORLD_SIZE)", false, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
}};

inline std::size_t launch_number(const char* variable, std::string_view text) {
  std::size_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<config_error>(problem == std::errc{} && end == text.data() + text.size(), variable, ": must be a whole number; given '", text, "'");
  return value;
}
/// "4(x2),3": four tasks on each of two hosts, three on the next. Returns the largest count.
inline std::size_t most_on_a_host(const char* variable, std::string_view text) {
  std::size_t most = 0;
  while (!text.empty()) {
    const std::string_view host = text.substr(0, text.find(','));
    most = std::max(most, launch_number(variable, host.substr(0, host.find('('))));
    text.remove_prefix(std::min(text.size(), host.size() + 1));
  }
  return most;
}

}  // namespace detail

/// Reads launchers' variables; `value_of(name)` returns text or null.
///   throws  config_error when they are not numbers, or contradict each other
template <class ValueOf>
[[nodiscard]] launched_process launched(ValueOf&& value_of) {
  for (const detail::launcher_variables& one : detail::known_launchers) {
    const char* const rank = value_of(one.rank);
    const char* const size = one.size != nullptr ? value_of(one.size) : nullptr;
    if (rank == nullptr || (one.size != nullptr && size == nullptr)) continue;  // scripts may leave a stale one
    launched_process found{.launcher = one.launcher, .mpi = one.mpi, .rank = detail::launch_number(one.rank, rank), .size = 0};
    if (size != nullptr) {
      found.size = detail::launch_number(one.size, size);
      require<config_error>(found.rank < found.size, one.rank, ": must be below ", one.size, "; given ", found.rank, " and ", found.size);
    }
    const auto local = [&](const char* variable) -> const char* { return variable != nullptr ? value_of(variable) : nullptr; };
    if (const char* text = local(one.local_rank)) found.local_rank = detail::launch_number(one.local_rank, text);
    if (const char* text = local(one.local_size)) found.local_size = detail::most_on_a_host(one.local_size, text);
    found.local_size = std::max(found.local_size, found.local_rank + 1);
    return found;
  }
  return {};
}
[[nodiscard]] inline launched_process launched() {
  return launched([](const char* name) -> const char* { return std::getenv(name); });
}

/// Restricts this process to its share of processors when several share a host without affinity: each would start a thread per processor. Call it before
/// opening devices. Returns whether it changed the affinity.
inline bool keep_to_own_processors(const launched_process& process) {
  if (process.local_size < 2) return false;
  const cpu_set_t allowed = detail::processors_of_process();  // the calling thread may be pinned
  const auto count = static_cast<std::size_t>(CPU_COUNT(&allowed));
  if (count < 2 || static_cast<long>(count) < ::sysconf(_SC_NPROCESSORS_ONLN)) return false;  // already restricted
  const std::size_t share = std::max<std::size_t>(1, count / process.local_size), first = process.local_rank * share % count;
  cpu_set_t own;
  CPU_ZERO(&own);
  std::size_t place = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed)) continue;
    if (place >= first && place < first + share) CPU_SET(processor, &own);
    ++place;
  }
  return keep_to_processors(own);
}

}  // namespace xtrain
