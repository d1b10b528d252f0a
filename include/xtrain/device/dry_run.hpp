// Dry runs: execute nothing and count everything, to know what a program will need before it runs. `dry<Device>` does this for any device,
// as another type, so everything templated on the device is compiled a second time. A device whose own contexts support dry runs saves
// users that cost.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <xtrain/device/concepts.hpp>

namespace xtrain {

/// Totals over all runs of one kernel.
struct kernel_count {
  std::string_view name;
  std::size_t runs = 0;
  double operations = 0;  // floating-point operations that are necessary
  double bytes = 0;       // minimum memory traffic in bytes
};

/// Of a dry run that is made to know them; see prepared_kernels.hpp.
class launched_kernels {};

/// What a program would have done.
struct dry_record {
  std::vector<kernel_count> kernels;
  std::size_t synchronisations = 0;
  double bytes_from_host = 0;
  double bytes_to_host = 0;
  launched_kernels* launched = nullptr;  // where kernels themselves are noted

  [[nodiscard]] double operations() const {
    double all = 0;
    for (const kernel_count& kernel : kernels) all += kernel.operations;
    return all;
  }
  [[nodiscard]] std::size_t runs() const {
    std::size_t all = 0;
    for (const kernel_count& kernel : kernels) all += kernel.runs;
    return all;
  }
  /// The kernel's counts; none: zeros.
  [[nodiscard]] kernel_count of(std::string_view name) const {
    for (const kernel_count& kernel : kernels)
      if (kernel.name == name) return kernel;
    return {.name = name};
  }
  /// What was counted after an earlier record of the same.
  [[nodiscard]] dry_record since(const dry_record& earlier) const {
    dry_record later{.kernels = {},
                     .synchronisations = synchronisations - earlier.synchronisations,
                     .bytes_from_host = bytes_from_host - earlier.bytes_from_host,
                     .bytes_to_host = bytes_to_host - earlier.bytes_to_host};
    for (const kernel_count& kernel : kernels) {
      const kernel_count before = earlier.of(kernel.name);
      if (kernel.runs > before.runs)
        later.kernels.push_back({kernel.name, kernel.runs - before.runs, kernel.operations - before.operations, kernel.bytes - before.bytes});
    }
    return later;
  }
  void count(std::string_view name, double operations, double bytes) {
    for (kernel_count& kernel : kernels) {
      if (kernel.name != name) continue;
      ++kernel.runs;
      kernel.operations += operations;
      kernel.bytes += bytes;
      return;
    }
    kernels.push_back({name, 1, operations, bytes});
  }
};

/// Addresses of nonexistent memory: they can be compared, never dereferenced.
class unreal_addresses {
 public:
  [[nodiscard]] void* next(std::size_t bytes) {
    const std::uintptr_t address = next_;
    next_ += (bytes + page - 1) / page * page + page;
    return reinterpret_cast<void*>(address);
  }

 private:
  static constexpr std::size_t page = 4096;
  std::uintptr_t next_ = page;
};

namespace clause {

/// Context::for_dry_run(properties) opens a context for dry runs of a device with these properties: it counts allocations and returns
/// addresses that must not be dereferenced; counts() of its streams records kernels and copies, which are not executed, and copies to the
/// host write zeros. counts() of any other stream is null.
template <class D>
concept device_has_dry_run = requires(const typename D::properties& properties, const typename D::context& opened,
                                           const typename D::stream& stream) {
  { D::context::for_dry_run(properties) } -> std::same_as<typename D::context>;
  { opened.is_dry_run() } -> std::same_as<bool>;
  { opened.record() } -> std::same_as<dry_record&>;
  { stream.counts() } -> std::same_as<dry_record*>;
};

}  // namespace clause

/// Whether this opened device is for dry runs.
template <class Context>
[[nodiscard]] constexpr bool is_dry_run(const Context& opened) {
  if constexpr (requires { opened.is_dry_run(); }) return opened.is_dry_run();
  else return false;
}

/// The record of a dry run; null on a stream that does the work.
template <class Stream>
[[nodiscard]] constexpr dry_record* counts_of(const Stream& stream) {
  if constexpr (requires { stream.counts(); }) return stream.counts();
  else return nullptr;
}

}  // namespace xtrain
