// Collectives on device memory through pinned host memory: copied there, sent, copied back, all queued on the stream without waiting. Host-addressable memory
// is used in place.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>

namespace xtrain::detail {

/// The host can dereference pointers, or (dry run) nothing does.
template <class Memory>
inline constexpr bool is_staged = !(clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>);

/// The stream runs host functions in order: the host need not wait.
template <class Stream>
concept runs_host_functions = requires(Stream& stream, void (*f)()) { stream.queue_host_function(f); };

/// Messages are sent when the stream reaches them: sizes may be unknown when they are queued. Also in a dry run.
template <class Device>
inline constexpr bool queues_messages = is_staged<typename Device::memory> && runs_host_functions<typename Device::stream>;
template <class Device>
inline constexpr bool queues_messages<dry<Device>> = queues_messages<Device>;

template <class T, class Memory>
[[nodiscard]] std::span<T> host_span(device_span<T, Memory> values) {
  return {values.raw(), values.size()};
}

/// Host memory that work in flight holds.
template <class T>
struct staged_span {
  std::shared_ptr<std::byte> memory{};
  std::span<T> values{};
};

/// Host memory for messages, pinned if possible, reused by a stream in turn; grows to the largest message.
class message_staging {
 public:
  ///   slot  distinct for arrays in use together; collectives use 0 and 1
  template <class T, class Stream>
  [[nodiscard]] staged_span<T> take(Stream& stream, std::size_t slot, std::size_t n) {
    slab& mine = slab_of(&stream, slot);
    if (mine.bytes < n * sizeof(T)) {
      mine.memory = allocate(stream, n * sizeof(T));
      mine.bytes = n * sizeof(T);
    }
    return {mine.memory, {reinterpret_cast<T*>(mine.memory.get()), n}};
  }

 private:
  struct slab {
    const void* stream = nullptr;
    std::size_t slot = 0, bytes = 0;
    std::shared_ptr<std::byte> memory{};
  };
  [[nodiscard]] slab& slab_of(const void* stream, std::size_t slot) {
    for (slab& one : slabs_)
      if (one.stream == stream && one.slot == slot) return one;
    return slabs_.emplace_back(slab{.stream = stream, .slot = slot});
  }
  template <class Stream>
  [[nodiscard]] static std::shared_ptr<std::byte> allocate(Stream& stream, std::size_t bytes) {
    if constexpr (requires { stream.device().allocate_pinned(bytes); }) {
      const auto device = stream.device();
      return {static_cast<std::byte*>(device.allocate_pinned(bytes)), [device](std::byte* memory) { device.release_pinned(memory); }};
    } else {
      return {static_cast<std::byte*>(::operator new(bytes)), [](std::byte* memory) { ::operator delete(memory); }};
    }
  }

  std::vector<slab> slabs_;
};

/// Runs work() on the host in stream order. Without host functions, the host waits.
///   held  memory that work in flight needs
template <class Stream, class Work, class... Held>
void in_stream_order(Stream& stream, Work work, Held... held) {
  if constexpr (runs_host_functions<Stream>) {
    stream.queue_host_function([work = std::move(work), held...] { work(); });
  } else {
    stream.synchronize();
    work();
  }
}
/// Holds memory until the stream's queued work is done.
template <class Stream, class... Held>
void hold(Stream& stream, Held... held) {
  if constexpr (runs_host_functions<Stream>) stream.queue_host_function([held...] {});
  else stream.synchronize();
}

/// work(span) on host memory, in stream order; with `writes` the result is copied back. `work` must not refer to the caller's variables: it may run later.
template <class Stream, class T, class Memory, class Work>
void on_host(Stream& stream, message_staging& staging, device_span<T, Memory> values, bool writes, Work work) {
  if constexpr (!is_staged<Memory>) {
    stream.synchronize();
    work(host_span(values));
  } else {
    const staged_span<T> host = staging.take<T>(stream, 0, values.size());
    copy_to_host(stream, host.values, values);
    in_stream_order(stream, [work = std::move(work), values = host.values]() { work(values); }, host.memory);
    if (!writes) return;
    copy_to_device(stream, values, std::span<const T>(host.values));
    hold(stream, host.memory);
  }
}

/// work(from, to) on host memory: `from` read, `to` written. After an earlier error `to` is undefined, or zero.
template <class Stream, class T, class Memory, class Work>
void on_host(Stream& stream, message_staging& staging, device_span<const T, Memory> from, device_span<T, Memory> to, Work work,
             [[maybe_unused]] bool zeros_after_errors = false) {
  if constexpr (!is_staged<Memory>) {
    stream.synchronize();
    work(host_span(from), host_span(to));
  } else {
    const staged_span<T> sent = staging.take<T>(stream, 0, from.size()), received = staging.take<T>(stream, 1, to.size());
    copy_to_host(stream, sent.values, from);
    if (zeros_after_errors) {
      fill_zero(stream, to);
      copy_to_host(stream, received.values, to);
    }
    in_stream_order(stream, [work = std::move(work), s = sent.values, r = received.values]() { work(std::span<const T>(s), r); },
                    sent.memory, received.memory);
    copy_to_device(stream, to, std::span<const T>(received.values));
    hold(stream, received.memory);
  }
}

}  // namespace xtrain::detail
