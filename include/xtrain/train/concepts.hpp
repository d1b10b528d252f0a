#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/parallel/traffic.hpp>

namespace xtrain {

template <class Model>
class trainer;  // trainer.hpp

/// A further consumer of memory: a reference model, a teacher, a value model with its trainer, a generator.
struct planned_beside {
  std::string name{};
  planned_memory memory{};
};

/// What a run needs, from a dry run of one step. `bytes` and `of` cover the trained model and its trainer; totals include `beside`.
/// `host`: batches of two steps, scratch memory of collectives, a parameter gathered for saving.
struct dry_run : planned_memory {
  std::vector<planned_beside> beside{};
  pass_sizes passes{};
  std::size_t parameters = 0, trained = 0;
  std::size_t num_tokens = 0;  ///< tokens of a full step
  dry_record record{};         ///< of one step
  dry_record update{};         ///< of the optimizer's part: runs once, for any number of micro-batches
  step_traffic sent{};         ///< by this rank in one step

  [[nodiscard]] std::size_t total() const {
    std::size_t all = planned_memory::total();
    for (const planned_beside& one : beside) all += one.memory.total();
    return all;
  }
  [[nodiscard]] std::size_t total_in_files() const {
    std::size_t all = planned_memory::total_in_files();
    for (const planned_beside& one : beside) all += one.memory.total_in_files();
    return all;
  }
  [[nodiscard]] std::size_t total_of(memory_role role) const {
    std::size_t all = of(role);
    for (const planned_beside& one : beside) all += one.memory.of(role);
    return all;
  }
  [[nodiscard]] std::size_t total_host() const {
    std::size_t all = host + (is_on_host ? planned_memory::total_in_files() : 0);
    for (const planned_beside& one : beside) all += one.memory.host + (one.memory.is_on_host ? one.memory.total_in_files() : 0);
    return all;
  }
  /// Adds a consumer, or replaces one of this name.
  void set_beside(std::string_view name, const planned_memory& memory) {
    for (planned_beside& one : beside)
      if (one.name == name) {
        one.memory = memory;
        return;
      }
    beside.push_back({std::string(name), memory});
  }

  /// Extrapolates to more micro-batches: adds `more` times the difference to `without`, which has one micro-batch less, or as many less as a pipeline has
  /// stages.
  [[nodiscard]] dry_run with_more_micro_batches(const dry_run& without, std::size_t more) const {
    dry_run all = *this;
    const auto times = static_cast<double>(more);
    all.num_tokens += (num_tokens - without.num_tokens) * more;
    for (std::size_t r = 0; r < memory_roles; ++r)
      if (bytes[r] > without.bytes[r]) all.bytes[r] += (bytes[r] - without.bytes[r]) * more;
    if (host > without.host) all.host += (host - without.host) * more;
    for (kernel_count& kernel : all.record.kernels) {
      kernel_count before{.name = kernel.name};
      for (const kernel_count& one : without.record.kernels)
        if (one.name == kernel.name) before = one;
      kernel.runs += (kernel.runs - before.runs) * more;
      kernel.operations += (kernel.operations - before.operations) * times;
      kernel.bytes += (kernel.bytes - before.bytes) * times;
    }
    all.record.synchronisations += (record.synchronisations - without.record.synchronisations) * more;
    all.record.bytes_from_host += (record.bytes_from_host - without.record.bytes_from_host) * times;
    all.record.bytes_to_host += (record.bytes_to_host - without.record.bytes_to_host) * times;
    for (std::size_t r = 0; r < traffic_roles; ++r) all.sent.sent[r] += sent.sent[r].since(without.sent.sent[r]).times(more);
    return all;
  }
};

/// Checks host memory; where the device uses host memory, together with the device's needs.
///   used    bytes of device memory in use already
///   throws  memory_error
template <class Device>
void require_host_fit(const dry_run& plan, std::size_t used = 0, std::size_t available = detail::host_memory_available()) {
  constexpr bool is_same = clause::memory_is_host_addressable<typename Device::memory>;
  const std::size_t there = is_same ? plan.total() + used : 0;
  const std::size_t host = plan.total_host();
  require<memory_error>(host <= available && there <= available - host, "memory: the run must fit the host's ",
                        bytes_text(available), "; batches of two steps and messages need ", bytes_text(host), " of it",
                        is_same ? concat(", weights and passes ", bytes_text(there)) : std::string(),
                        ". Lower micro_batch_size, gradient_accumulation_steps or seq_length");
}

namespace clause {

/// A second model: reference_model, teacher_model, reward_scorer.
template <class T>
concept second_model_has_dry_run = requires(const typename T::model_type::config_type& sizes, const typename T::model_type::options& options,
                                            const typename T::config& settings, const typename T::device::properties& properties) {
  { T::run_dry(sizes, options, settings, properties) } -> std::same_as<planned_memory>;
};

template <class T>
concept trainer_has_dry_run = requires(const typename T::model_type::config_type& sizes, const typename T::model_type::options& options,
                                            const typename T::config& settings, const typename T::device::properties& properties) {
  { T::run_dry(sizes, options, settings, properties) } -> std::same_as<dry_run>;
};

}  // namespace clause

/// A trainer with a dry run.
template <class T>
concept trainer_with_dry_run = clause::trainer_has_dry_run<T>;
/// A second model with a dry run.
template <class T>
concept second_model_with_dry_run = clause::second_model_has_dry_run<T>;

}  // namespace xtrain
