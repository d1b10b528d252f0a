// The device `simt`: GPU kernels on the host. Like a GPU's, its memory cannot be dereferenced by host code.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/simt/kernels.hpp>
#include <xtrain/device/simt/language/host_runner.hpp>

namespace xtrain {

/// `seed` orders blocks and threads; results do not depend on it.
struct simt_config {
  std::size_t memory_limit = std::size_t{16} << 30;
  std::uint64_t seed = 1;
};

/// Host memory in place of a GPU's.
struct simt_memory {
  static constexpr std::string_view name = "simt";
  static constexpr bool host_addressable = false;
  static constexpr bool lies_on_host = true;  // testing::isolated may run it late
};
/// Kernels of device/simt run on it.
struct simt_properties {
  static constexpr bool is_simt = true;
};

/// An opened simt_device.
class simt_context {
 public:
  explicit simt_context(simt_config settings = {}) : state_(std::make_shared<state>()) { state_->settings = settings; }

  /// Memory is NaN until written.
  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const {
    const std::size_t used = memory().total_now;
    require<memory_error>(bytes <= state_->settings.memory_limit && used <= state_->settings.memory_limit - bytes, "simt: ", name_of(role),
                          " needs ", bytes_text(bytes), "; in use are ", bytes_text(used), " of ",
                          bytes_text(state_->settings.memory_limit));
    void* fresh = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (fresh == nullptr) throw std::bad_alloc();
    std::memset(fresh, 0xff, bytes);
    state_->tally.add(role, bytes);
    return fresh;
  }
  void release(void* memory, std::size_t bytes, memory_role role) const {
    std::free(memory);
    state_->tally.remove(role, bytes);
  }
  [[nodiscard]] memory_count memory() const { return state_->tally.count(); }
  [[nodiscard]] std::size_t memory_limit() const { return state_->settings.memory_limit; }
  [[nodiscard]] simt_properties properties() const { return {}; }
  /// For the next launch.
  [[nodiscard]] std::uint64_t next_seed() const { return state_->settings.seed + state_->launches++; }

 private:
  struct state {
    simt_config settings{};
    memory_tally tally{};
    std::atomic<std::uint64_t> launches{0};  // streams may be on several threads
  };
  std::shared_ptr<state> state_;
};

/// Runs a kernel when it is queued.
class simt_stream {
 public:
  static constexpr bool launches_simt = true;
  struct event {
    void synchronize() const {}
  };

  explicit simt_stream(const simt_context& device) : device_(device) {}

  void copy_from_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
  void copy_within(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes); }
  void fill_zero(void* to, std::size_t bytes) {
    if (bytes != 0) std::memset(to, 0, bytes);
  }
  void synchronize() {}
  [[nodiscard]] event record() { return {}; }
  void wait(const event&) {}

  ///   throws  simt::fault
  template <class Kernel>
  void launch(const Kernel& kernel, simt::grid_size grid) {
    simt::host::runner::here().run(kernel, grid, device_.next_seed());
  }

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memmove(to, from, bytes);
  }
  simt_context device_;
};

/// For `using device`.
struct simt_device {
  static constexpr std::string_view name = "simt";
  using memory = simt_memory;
  using properties = simt_properties;
  using context = simt_context;
  using stream = simt_stream;
};

static_assert(device<simt_device>);

}  // namespace xtrain
