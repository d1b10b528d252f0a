// The cpu device: vectors by xsimd, threads by an executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cpu/instructions.hpp>
#include <xtrain/device/cpu/step_scalars.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/host_threads.hpp>
#if !defined(XTRAIN_CPU_LEVELS) && !defined(XTRAIN_CPU_KERNELS)
#include <xtrain/device/cpu/kernels.hpp>
#include <xtrain/device/cpu/tile_registers.hpp>
#endif

namespace xtrain {

struct cpu {
  static constexpr std::string_view name = "cpu";
  using memory = host_memory;
  using properties = cpu_properties;
  using stream = cpu_stream;

  struct config {
    std::size_t threads = 0;                               ///< 0: every processor of the process
    std::size_t memory_limit = 0;                          ///< bytes; 0: the machine's or control group's
    std::shared_ptr<xtrain::executor> executor = nullptr;  ///< null: the process-wide thread pool
  };

  /// Vector instructions of the kernels, at the chosen level if there are several.
  [[nodiscard]] static std::string instructions() {
#ifdef XTRAIN_CPU_LEVELS
    return cpu_levels::instructions();
#elif defined(XTRAIN_CPU_KERNELS)
    return cpu_kernels::compiled_instructions();
#else
    return cpu_kernels::instructions();
#endif
  }

  class context : public host_context {
   public:
    /// throws config_error when the program's sources differ in instructions
    explicit context(const config& settings)
        : host_context(settings.memory_limit), executor_(settings.executor ? settings.executor : thread_pool::shared()) {
      detail::require_same_instructions();
      threads_ = settings.threads == 0 ? executor_->threads() : std::min(settings.threads, executor_->threads());
    }
    context() : context(config{}) {}
    [[nodiscard]] static context for_dry_run(const cpu::properties& like) { return context(dry_run_t{}, like.threads); }

    [[nodiscard]] const std::shared_ptr<xtrain::executor>& executor() const { return executor_; }
    [[nodiscard]] cpu::properties properties() const { return {threads_}; }
    /// "cpu, avx512bw, 2 threads"
    [[nodiscard]] std::string description() const {
      return concat(name, ", ", instructions(), ", ", threads_, threads_ == 1 ? " thread" : " threads");
    }

   private:
    context(dry_run_t nothing_real, std::size_t threads) : host_context(nothing_real), threads_(threads) {}

    std::shared_ptr<xtrain::executor> executor_{};
    std::size_t threads_ = 1;
  };
};

static_assert(device<cpu> && clause::device_has_dry_run<cpu>);

}  // namespace xtrain
