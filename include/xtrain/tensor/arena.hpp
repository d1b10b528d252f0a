// Memory for a pass: a stack allocator over one allocation, sized by a dry run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// A stack allocator; on a dry-run device it has no limit and measures.
template <class Device>
class arena {
 public:
  using memory = typename Device::memory;
  static constexpr std::size_t alignment = 64;

  /// `bytes` are ignored in a dry run.
  arena(const typename Device::context& device, std::size_t bytes, memory_role role)
      : measures_(is_dry_run(device)), memory_(device, measures_ ? 0 : bytes, role), role_(role), capacity_(measures_ ? ~std::size_t{0} : bytes) {}

  /// Uninitialized elements.
  ///   throws  memory_error when the arena is too small
  template <class T>
  [[nodiscard]] device_span<T, memory> take(std::size_t n) {
    const std::size_t bytes = (n * sizeof(T) + alignment - 1) / alignment * alignment;
    if (bytes > capacity_ - used_)  // on every kernel's path: the message is built only on failure
      fail<memory_error>("arena of the ", name_of(role_), ": must be large enough for the pass; ", bytes_text(bytes), " asked, ",
                         bytes_text(used_), " of ", bytes_text(capacity_), " in use");
    T* first = static_cast<T*>(static_cast<void*>(base() + used_));
    used_ += bytes;
    if (used_ > high_water_) high_water_ = used_;
    return span_of<T, memory>(first, n);
  }

  [[nodiscard]] std::size_t used() const { return used_; }
  /// Frees everything taken since `used()` was `mark`.
  void release(std::size_t mark) { used_ = mark; }
  [[nodiscard]] std::size_t high_water() const { return high_water_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  /// Frees at its end what was taken within.
  class scope {
   public:
    explicit scope(arena& of) : arena_(&of), mark_(of.used()) {}
    ~scope() { arena_->release(mark_); }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

   private:
    arena* arena_;
    std::size_t mark_;
  };

 private:
  [[nodiscard]] std::byte* base() const {
    return measures_ ? reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40) : memory_.template as<std::byte>().raw();
  }

  bool measures_;
  buffer<Device> memory_;
  memory_role role_;
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::size_t high_water_ = 0;
};

/// Saved activations: pushed in the forward pass, popped in reverse order in the backward pass.
template <class Device>
class stash {
 public:
  using memory = typename Device::memory;

  stash(const typename Device::context& device, std::size_t bytes) : arena_(device, bytes, memory_role::stash) {}

  /// Memory for n elements, until popped.
  template <class T>
  [[nodiscard]] device_span<T, memory> push(std::size_t n) {
    const std::size_t mark = arena_.used();
    const auto span = arena_.template take<T>(n);
    pushed_.push_back({span.raw(), n * sizeof(T), mark, kind::memory});
    return span;
  }
  template <class T>
  device_span<T, memory> pop(std::size_t n) {
    const entry last = take_back(n * sizeof(T), kind::memory);
    arena_.release(last.mark);
    return span_of<T, memory>(static_cast<T*>(last.address), n);
  }

  /// Saves the address of memory with another owner (e.g. in the stash); takes no device memory.
  template <class T>
  void push_reference(device_span<T, memory> span) {
    pushed_.push_back({const_cast<std::remove_const_t<T>*>(span.raw()), span.bytes(), 0, kind::reference});
  }
  template <class T>
  [[nodiscard]] device_span<T, memory> pop_reference(std::size_t n) {
    return span_of<T, memory>(static_cast<T*>(take_back(n * sizeof(T), kind::reference).address), n);
  }

  /// Saves a number of the host; takes no device memory.
  void push_number(std::size_t number) { pushed_.push_back({nullptr, 0, number, kind::number}); }
  [[nodiscard]] std::size_t pop_number() { return take_back(0, kind::number).mark; }

  [[nodiscard]] std::size_t entries() const { return pushed_.size(); }
  /// Discards entries after the first `entries`.
  void drop(std::size_t entries) {
    for (std::size_t i = pushed_.size(); i > entries; --i)
      if (pushed_[i - 1].what == kind::memory) arena_.release(pushed_[i - 1].mark);
    pushed_.resize(std::min(entries, pushed_.size()));
  }
  [[nodiscard]] std::size_t high_water() const { return arena_.high_water(); }
  [[nodiscard]] std::size_t capacity() const { return arena_.capacity(); }
  /// Reserves host memory: steps do not allocate on the host.
  void reserve(std::size_t entries) { pushed_.reserve(entries); }
  [[nodiscard]] std::size_t reserved() const { return pushed_.capacity(); }

 private:
  enum class kind : std::uint8_t { memory, reference, number };
  struct entry {
    void* address = nullptr;
    std::size_t bytes = 0;
    std::size_t mark = 0;  // arena mark to release to, or the number
    kind what = kind::memory;
  };
  [[nodiscard]] static constexpr const char* name_of(kind what) {
    return what == kind::memory ? "memory" : what == kind::reference ? "a reference" : "a number";
  }

  entry take_back(std::size_t bytes, kind what) {
    require<shape_error>(!pushed_.empty(), "stash: the backward must pop what the forward pushed; nothing is left to pop");
    const entry last = pushed_.back();
    require<shape_error>(last.bytes == bytes && last.what == what, "stash: the backward must pop what the forward pushed, last first; ",
                         name_of(last.what), " of ", last.bytes, " bytes was pushed last, ", name_of(what), " of ", bytes,
                         " bytes is popped");
    pushed_.pop_back();
    return last;
  }

  arena<Device> arena_;
  std::vector<entry> pushed_;
};

/// Consecutive rows of a batch, known only on the device.
template <class Device>
struct confined_rows {
  device_span<const token, typename Device::memory> range_2{};  // first row, number of rows; empty: all rows
  std::size_t total = 0;                                        // rows of the batch
  std::size_t expected = 0;                                     // assumed by a dry run

  [[nodiscard]] bool exists() const { return !range_2.empty(); }
};

/// Where an operation runs, and its scratch memory.
template <class Device>
struct execution {
  typename Device::stream& stream;
  arena<Device>& workspace;
  typename Device::properties properties;
  confined_rows<Device> confined{};  // rows that kernels are confined to
  device_span<const kernel::step_inputs, typename Device::memory> inputs_1{};  // empty: the host knows the step
};

}  // namespace xtrain
