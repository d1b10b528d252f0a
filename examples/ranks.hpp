// The ranks of a run: threads of this process, or processes started by a launcher.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/data/once_per_host.hpp>
#include <xtrain/parallel.hpp>

#include "command_line.hpp"

namespace command_line {

/// The strategy supports several ranks.
template <class Parallel>
concept has_ranks = requires(typename Parallel::config layout) { layout.ranks; };

struct rank_flags {
  std::size_t ranks = 1, tensor_parallel_size = 1, context_parallel_size = 1, expert_parallel_size = 1, shards = 0, data_parallel_size = 1,
              chunks = 1, ranks_every = 0;
  double timeout = 600.0;
  std::string collectives = "auto";
  std::vector<std::size_t> stage_layers{}, micro_batch_sizes{};

  /// Adds the flags that the strategy supports.
  template <class Parallel>
  void add(CLI::App& app) {
    if constexpr (has_ranks<Parallel>) {
      const auto count = [&](const char* flag, std::size_t& to, const char* help) {
        app.add_option(flag, to, help)->check(positive_whole_number())->type_name("N")->capture_default_str();
      };
      count("--ranks", ranks, "ranks, as threads of this process; processes are started by a launcher (mpirun -n N, srun -n N)");
      app.add_option("--timeout", timeout, "seconds that a rank waits for another one; then the run fails and names it")
          ->check(number_from<double>(0.1, 1e9, "a number of seconds from 0.1 to 1e9"))
          ->type_name("SECONDS")
          ->capture_default_str();
      app.add_option("--collectives", collectives,
                     "what moves data between devices: nccl, the library of NVIDIA; hccl, of Ascend; host, messages by way of the host; auto: the device's, where it "
                     "is installed")
          ->check(one_of({"auto", "nccl", "hccl", "host"}))
          ->capture_default_str();
      ranks_every = 10;
      app.add_option("--rank-logging-steps", ranks_every, "steps between records of every rank in --metrics; 0: never")
          ->check(whole_number())
          ->type_name("N")
          ->capture_default_str();
      using config = typename Parallel::config;
      if constexpr (requires(config c) { c.tensor_parallel_size; }) count("--tensor-parallel-size", tensor_parallel_size, "tensor-parallel ranks");
      if constexpr (requires(config c) { c.context_parallel_size; }) count("--context-parallel-size", context_parallel_size, "context-parallel ranks");
      if constexpr (requires(config c) { c.expert_parallel_size; }) count("--expert-parallel-size", expert_parallel_size, "expert-parallel ranks");
      if constexpr (requires(config c) { c.data_parallel_size; })
        count("--data-parallel-size", data_parallel_size, "data-parallel size: number of pipelines, each on its own data");
      if constexpr (requires(config c) { c.chunks; })
        count("--virtual-pipeline-parallel-size", chunks, "virtual pipeline stages on each rank (interleaved schedules)");
      const auto list = [&](const char* flag, std::vector<std::size_t>& to, const char* help) {
        app.add_option(flag, to, help)->delimiter(',')->check(whole_number())->type_name("N,N,...");
      };
      if constexpr (requires(config c) { c.stage_layers; })
        list("--num-layers-per-stage", stage_layers, "layers of each pipeline stage, from first to last; default: balanced");
      if constexpr (requires(config c) { c.micro_batch_sizes; })
        list("--micro-batch-sizes", micro_batch_sizes,
             "sequences of each of --gradient-accumulation-steps micro-batches, --micro-batch-size on average; "
             "default: all equal");
      if constexpr (requires(config c) { c.shards; })
        app.add_option("--data-parallel-shard-size", shards, "data-parallel ranks that shard one copy of the ZeRO state; 0: all of them")
            ->check(whole_number())
            ->type_name("N");
    }
  }

  [[nodiscard]] std::chrono::milliseconds timeout_duration() const { return std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000.0)); }
  template <class Config>
  [[nodiscard]] Config layout(const std::shared_ptr<xtrain::transport>& network) const {
    Config c;
    c.ranks = network;
    if constexpr (requires { c.tensor_parallel_size; }) c.tensor_parallel_size = tensor_parallel_size;
    if constexpr (requires { c.context_parallel_size; }) c.context_parallel_size = context_parallel_size;
    if constexpr (requires { c.expert_parallel_size; }) c.expert_parallel_size = expert_parallel_size;
    if constexpr (requires { c.data_parallel_size; }) c.data_parallel_size = data_parallel_size;
    if constexpr (requires { c.chunks; }) c.chunks = chunks;
    if constexpr (requires { c.shards; }) c.shards = shards;
    if constexpr (requires { c.stage_layers; }) c.stage_layers = stage_layers;
    if constexpr (requires { c.micro_batch_sizes; }) c.micro_batch_sizes = micro_batch_sizes;
    return c;
  }
};

/// Checks that a launcher's processes become the ranks of one run, not several runs that write into the same folder.
///   has_ranks  the strategy supports several ranks
///   connects   the program is built with MPI
///   ranks      --ranks; 1 if not given
inline void require_one_run(const xtrain::launched_process& process, bool has_ranks, bool connects, std::size_t ranks) {
  if (process.alone()) return;
  const std::string who = process.size == 0 ? xtrain::concat("launch: ", process.launcher, " has started this process as one of several")
                                            : xtrain::concat("launch: ", process.launcher, " has started this process as one of ", process.size);
  const std::string count = process.size == 0 ? "N" : xtrain::concat(process.size);
  xtrain::require<usage_error>(has_ranks, who, ", but this trainer's strategy has one rank: each would train the same model into one folder. Start it once, "
                                        "or make a trainer with ranks: xtrain_add_trainer(... PARALLEL data_parallel MPI)");
  xtrain::require<usage_error>(connects, who, ", but this trainer is made without MPI: each would train the same model into one folder. Say MPI to "
                                        "xtrain_add_trainer, or start it once, with --ranks ", count);
  xtrain::require<usage_error>(process.mpi, who, ", but does not connect them; use mpirun -n ", count, " or srun -n ", count);
  xtrain::require<usage_error>(ranks == 1 || ranks == process.size, "--ranks ", ranks, ": the launcher says how many there are, ", count,
                                        "; leave it out");
}

/// Calls run(layout, whether this is the first rank) on every rank. `Processes`: xtrain::mpi_session, or void in a program without MPI.
///   throws  usage_error when a launcher's processes would not be ranks of one run
template <class Parallel, class Processes, class Run>
void on_ranks(const rank_flags& flags, Run&& run) {
  using config = typename Parallel::config;
  const xtrain::launched_process process = xtrain::launched();
  require_one_run(process, has_ranks<Parallel>, !std::is_void_v<Processes>, flags.ranks);
  if constexpr (!has_ranks<Parallel>) {
    run(config{}, true);
  } else {
    const auto one = [&](const std::shared_ptr<xtrain::transport>& network) { run(flags.layout<config>(network), network->rank() == 0); };
    if constexpr (!std::is_void_v<Processes>) {
      if (!process.alone()) {
        xtrain::keep_to_own_processors(process);
        Processes session({.timeout = flags.timeout_duration()});
        // an MPI without support for this launcher makes every process a run
        const bool all_here = process.size == 0 ? process.rank < session.size() : process.size == session.size();
        xtrain::require<usage_error>(all_here, "launch: ", process.launcher, " has started ", process.size == 0 ? "several" : xtrain::concat(process.size),
                                              " processes, and MPI knows of ", session.size(),
                                              ": the launcher must be of the MPI that this program is made with (srun --mpi=list says what it knows)");
        session.run(one);
        return;
      }
    }
    xtrain::run_ranks(flags.ranks, one, {.timeout = flags.timeout_duration()});
  }
}

/// Opens this rank's device, and gives the layout's ranks NCCL if --collectives asks for it.
///   first_rank  prints why messages between GPUs pass through the host
///   throws      usage_error, config_error when a GPU, or NCCL, cannot be used
template <class Device, class Layout>
[[nodiscard]] typename Device::context open_device(const device_flags& flags, const rank_flags& ranks, Layout& layout, bool first_rank,
                                                   bool only_plan = false) {
  std::size_t rank = 0, size = 1;
  if constexpr (requires { layout.ranks; }) {
    if (layout.ranks) rank = layout.ranks->rank(), size = layout.ranks->size();
  }
  const bool are_threads = size > 1 && xtrain::launched().alone();
  const auto on = flags.open<Device>(only_plan, are_threads && !only_plan && has_numbered_devices<Device> ? std::optional(rank) : std::nullopt);
  xtrain::require<usage_error>(ranks.collectives != "hccl" || Device::name == "npu",
                               "--collectives hccl: needs ranks on Ascend NPUs; this program's device is ", Device::name);
  if constexpr (requires { with_hccl(layout.ranks, on); }) {
    if (size == 1 || only_plan || ranks.collectives == "host") return on;
    try {
#ifdef XTRAIN_NPU_REHEARSAL
      xtrain::require<xtrain::config_error>(are_threads, "--collectives: must be host or auto: what stands in for HCCL connects threads of one process");
#endif
      layout.ranks = with_hccl(layout.ranks, on);
    } catch (const xtrain::config_error& problem) {
      if (ranks.collectives == "hccl") throw;
      if (first_rank) std::fprintf(stderr, "note: messages between NPUs go by way of the host, which is slow; %s\n", problem.what());
    }
  }
  constexpr bool can = requires { with_nccl(layout.ranks, on); };
  xtrain::require<usage_error>(can || ranks.collectives != "nccl", "--collectives nccl: needs ranks on NVIDIA GPUs; this program's device is ", Device::name);
  if constexpr (can) {
    if (size == 1 || only_plan || ranks.collectives == "host") return on;
    try {
#ifdef XTRAIN_GPU_REHEARSAL
      xtrain::require<xtrain::config_error>(are_threads, "--collectives: must be host or auto: what stands in for NCCL connects threads of one process");
      layout.ranks = with_nccl(layout.ranks, on, {.library = &gpu_rehearsal::here().nccl.library()});
#else
      layout.ranks = with_nccl(layout.ranks, on);
#endif
    } catch (const xtrain::config_error& problem) {
      if (ranks.collectives == "nccl") throw;
      if (first_rank) std::fprintf(stderr, "note: messages between GPUs go by way of the host, which is slow; %s\n", problem.what());
    }
  }
  return on;
}

/// A value for all ranks of a process (a tokenizer), made by the first rank that asks. The others wait.
template <class Value>
class made_once {
 public:
  /// throws what make() throws, on every rank
  template <class Make>
  const Value& get(Make&& make) {
    const std::lock_guard hold(guard_);
    if (problem_) std::rethrow_exception(problem_);
    try {
      if (!value_) value_.emplace(make());
    } catch (...) {
      problem_ = std::current_exception();
      throw;
    }
    return *value_;
  }

 private:
  std::mutex guard_;
  std::optional<Value> value_;
  std::exception_ptr problem_;
};

/// A dataset that is tokenized once per host, whether ranks are threads or processes.
template <class Config, class Make>
[[nodiscard]] auto read_once(const Config& layout, const rank_flags& flags, Make&& make) {
  if constexpr (requires { layout.ranks; }) {
    const auto beat = std::clamp<std::chrono::milliseconds>(flags.timeout_duration() / 4, std::chrono::milliseconds(1), std::chrono::seconds(1));
    if (layout.ranks) return xtrain::once_per_host(*layout.ranks, make, beat);
  }
  return make();
}

/// The first rank's answer, on all ranks: hosts may see different files.
template <class Config, class Ask>
[[nodiscard]] std::uint8_t answer_of_first_rank(const Config& layout, Ask&& ask) {
  if constexpr (requires { layout.ranks; }) {
    if (layout.ranks && layout.ranks->size() > 1) {
      constexpr std::uint32_t channel = 34;
      std::array<std::uint8_t, 1> answer{};
      xtrain::transport& ranks = *layout.ranks;
      if (ranks.rank() != 0) {
        ranks.receive(0, channel, std::as_writable_bytes(std::span(answer)))->wait();
        return answer[0];
      }
      answer[0] = ask();
      for (std::size_t r = 1; r < ranks.size(); ++r) ranks.send(r, channel, std::as_bytes(std::span(answer)))->wait();
      return answer[0];
    }
  }
  return ask();
}

/// The first rank does the work; the others wait.
template <class Config, class Work>
void on_first_rank(const Config& layout, Work&& work) {
  (void)answer_of_first_rank(layout, [&] {
    work();
    return std::uint8_t{0};
  });
}

}  // namespace command_line
