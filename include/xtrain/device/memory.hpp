// Typed memory. The type of a device_ptr says which memory it points into; dereferencing compiles only where the host can
// access that memory.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace xtrain {

/// Memory that host code reads and writes directly.
struct host_memory {
  static constexpr std::string_view name = "host";
  static constexpr bool host_addressable = true;
};

namespace clause {

template <class Memory>
concept names_a_memory = requires {
  { Memory::name } -> std::convertible_to<std::string_view>;
  { Memory::host_addressable } -> std::convertible_to<bool>;
};

template <class Memory>
concept memory_is_host_addressable = names_a_memory<Memory> && Memory::host_addressable;

}  // namespace clause

/// An address in Memory. `raw()` is for passing on to that memory's device; host code can dereference the pointer only where
/// Memory is host-addressable.
template <class T, class Memory>
class device_ptr {
 public:
  using element_type = T;

  constexpr device_ptr() = default;
  constexpr explicit device_ptr(T* raw) : raw_(raw) {}
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_const_v<U>) constexpr device_ptr(device_ptr<U, Memory> other) : raw_(other.raw()) {}

  [[nodiscard]] constexpr T* raw() const { return raw_; }
  [[nodiscard]] constexpr device_ptr operator+(std::size_t elements) const { return device_ptr(raw_ + elements); }
  [[nodiscard]] constexpr explicit operator bool() const { return raw_ != nullptr; }

  [[nodiscard]] constexpr T& operator*() const requires clause::memory_is_host_addressable<Memory> { return *raw_; }
  [[nodiscard]] constexpr T& operator[](std::size_t i) const requires clause::memory_is_host_addressable<Memory> { return raw_[i]; }

 private:
  T* raw_ = nullptr;
};

/// `size` contiguous elements of Memory. Non-owning.
template <class T, class Memory>
class device_span {
 public:
  using element_type = T;
  using memory = Memory;

  constexpr device_span() = default;
  constexpr device_span(device_ptr<T, Memory> data, std::size_t size) : data_(data), size_(size) {}
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_const_v<U>) constexpr device_span(device_span<U, Memory> other) : data_(other.data()), size_(other.size()) {}

  [[nodiscard]] constexpr device_ptr<T, Memory> data() const { return data_; }
  [[nodiscard]] constexpr T* raw() const { return data_.raw(); }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr std::size_t bytes() const { return size_ * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr device_span subspan(std::size_t offset, std::size_t count) const { return {data_ + offset, count}; }

  /// The same elements as a span that host code can use.
  [[nodiscard]] constexpr std::span<T> host() const requires clause::memory_is_host_addressable<Memory> { return {data_.raw(), size_}; }

 private:
  device_ptr<T, Memory> data_{};
  std::size_t size_ = 0;
};

/// A span over raw memory, or over host memory.
template <class T, class Memory = host_memory>
[[nodiscard]] constexpr device_span<T, Memory> span_of(T* raw, std::size_t size) {
  return {device_ptr<T, Memory>(raw), size};
}
template <class T, std::size_t N>
[[nodiscard]] constexpr device_span<T, host_memory> span_of(std::span<T, N> host) {
  return {device_ptr<T, host_memory>(host.data()), host.size()};
}

/// What a block of device memory is used for. Memory is counted, planned and reported by role.
enum class memory_role : std::uint8_t { weights, gradients, optimizer, stash, workspace, batch, cache, other };

/// The number of memory roles.
inline constexpr std::size_t memory_roles = 8;

[[nodiscard]] constexpr std::string_view name_of(memory_role role) {
  constexpr std::array<std::string_view, memory_roles> names{"weights",   "gradients", "optimizer", "stash",
                                                             "workspace", "batch",     "cache",     "other"};
  return names[static_cast<std::size_t>(role)];
}

/// A set of roles.
class memory_role_set {
 public:
  constexpr memory_role_set() = default;
  constexpr memory_role_set(std::initializer_list<memory_role> roles) {
    for (const memory_role role : roles) bits_ |= bit(role);
  }
  [[nodiscard]] constexpr bool has(memory_role role) const { return (bits_ & bit(role)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }

 private:
  static constexpr unsigned bit(memory_role role) { return 1U << static_cast<unsigned>(role); }
  unsigned bits_ = 0;
};

/// Bytes by role, and the number of allocations. A plain value: a snapshot of a tally.
struct memory_count {
  std::array<std::size_t, memory_roles> now{};
  std::array<std::size_t, memory_roles> peak{};  // of each role separately
  std::size_t total_now = 0;
  std::size_t total_peak = 0;
  std::size_t allocations = 0;

  [[nodiscard]] std::size_t of(memory_role role) const { return now[static_cast<std::size_t>(role)]; }
  [[nodiscard]] std::size_t peak_of(memory_role role) const { return peak[static_cast<std::size_t>(role)]; }
};

/// Bytes of memory that something will need, by role, before it is allocated.
struct planned_memory {
  std::array<std::size_t, memory_roles> bytes{};
  memory_role_set in_files{};  ///< roles that are offloaded to files, or to pinned host memory
  bool is_on_host = false;     ///< to pinned host memory
  std::size_t host = 0;        ///< bytes of host memory in addition

  /// Bytes of device memory.
  [[nodiscard]] std::size_t total() const { return sum(false); }
  [[nodiscard]] std::size_t total_in_files() const { return sum(true); }
  [[nodiscard]] std::size_t of(memory_role role) const { return bytes[static_cast<std::size_t>(role)]; }
  void add(memory_role role, std::size_t more) { bytes[static_cast<std::size_t>(role)] += more; }

 private:
  [[nodiscard]] std::size_t sum(bool files) const {
    std::size_t all = 0;
    for (std::size_t r = 0; r < memory_roles; ++r)
      if (in_files.has(static_cast<memory_role>(r)) == files) all += bytes[r];
    return all;
  }
};

/// Counts the memory that one opened device has allocated. Thread-safe.
class memory_tally {
 public:
  void add(memory_role role, std::size_t bytes) {
    const auto r = static_cast<std::size_t>(role);
    raise(peak_[r], now_[r].fetch_add(bytes, std::memory_order_relaxed) + bytes);
    raise(total_peak_, total_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
    allocations_.fetch_add(1, std::memory_order_relaxed);
  }
  void remove(memory_role role, std::size_t bytes) {
    now_[static_cast<std::size_t>(role)].fetch_sub(bytes, std::memory_order_relaxed);
    total_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t total() const { return total_.load(std::memory_order_relaxed); }
  [[nodiscard]] memory_count count() const {
    memory_count seen;
    for (std::size_t r = 0; r < memory_roles; ++r) {
      seen.now[r] = now_[r].load(std::memory_order_relaxed);
      seen.peak[r] = peak_[r].load(std::memory_order_relaxed);
    }
    seen.total_now = total_.load(std::memory_order_relaxed);
    seen.total_peak = total_peak_.load(std::memory_order_relaxed);
    seen.allocations = allocations_.load(std::memory_order_relaxed);
    return seen;
  }

 private:
  static void raise(std::atomic<std::size_t>& peak, std::size_t seen) {
    std::size_t known = peak.load(std::memory_order_relaxed);
    while (known < seen && !peak.compare_exchange_weak(known, seen, std::memory_order_relaxed)) {
    }
  }

  std::array<std::atomic<std::size_t>, memory_roles> now_{};
  std::array<std::atomic<std::size_t>, memory_roles> peak_{};
  std::atomic<std::size_t> total_{0};
  std::atomic<std::size_t> total_peak_{0};
  std::atomic<std::size_t> allocations_{0};
};

/// Owned device memory. Move-only; keeps the device open while it exists.
template <class Device>
class buffer {
 public:
  using memory = typename Device::memory;
  using context = typename Device::context;

  /// throws memory_error when the device does not have, or may not allocate, `bytes` more
  buffer(const context& device, std::size_t bytes, memory_role role)
      : device_(device), raw_(bytes == 0 ? nullptr : device_.allocate(bytes, role)), bytes_(bytes), role_(role) {}
  buffer(buffer&& from) noexcept
      : device_(from.device_), raw_(std::exchange(from.raw_, nullptr)), bytes_(std::exchange(from.bytes_, 0)), role_(from.role_) {}
  buffer& operator=(buffer&& from) noexcept {
    buffer old(std::move(*this));
    device_ = from.device_;
    raw_ = std::exchange(from.raw_, nullptr);
    bytes_ = std::exchange(from.bytes_, 0);
    role_ = from.role_;
    return *this;
  }
  ~buffer() {
    if (raw_ != nullptr) device_.release(raw_, bytes_, role_);
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const context& device() const { return device_; }
  template <class T>
  [[nodiscard]] device_span<T, memory> as() const {
    return {device_ptr<T, memory>(static_cast<T*>(raw_)), bytes_ / sizeof(T)};
  }

 private:
  context device_;
  void* raw_ = nullptr;
  std::size_t bytes_ = 0;
  memory_role role_ = memory_role::other;
};

}  // namespace xtrain
