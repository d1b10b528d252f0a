// Collectives on device memory by way of the host: what a device holds is copied to pinned host memory, sent from there, and the result is
// copied back. All of it is queued on the stream, and the host does not wait. Memory that the host can address is used in place.
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

/// The host can dereference the pointers, or (in a dry run) nothing ever does.
template <class Memory>
inline constexpr bool is_staged = !(clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>);

/// The stream runs functions on the host in its order, so that the host need not wait to communicate.
template <class Stream>
concept runs_host_functions = requires(Stream& stream, void (*f)()) { stream.queue_host_function(f); };

/// Messages of this device's memory are sent when its stream gets to them: their sizes need not be known when they are queued. A dry run does the same.
template <class Device>
inline constexpr bool queues_messages = is_staged<typename Device::memory> && runs_host_functions<typename Device::stream>;
template <class Device>
inline constexpr bool queues_messages<dry<Device>> = queues_messages<Device>;

template <class T, class Memory>
[[nodiscard]] std::span<T> host_span(device_span<T, Memory> values) {
  return {values.raw(), values.size()};
}

/// Host memory that work in flight holds on to.
template <class T>
struct staged_span {
  std::shared_ptr<std::byte> memory{};
  std::span<T> values{};
};

/// Host memory for messages, pinned if the device has such memory. What is queued on one stream uses the same memory in turn; it grows to
/// the largest message.
class message_staging {
 public:
  ///   slot  arrays in use at the same time have different ones; collectives use 0 and 1
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

/// Runs work() on the host after what is queued on the stream, and before what is queued later. Without host functions, the host waits.
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
/// Keeps memory until what is queued on the stream is done.
template <class Stream, class... Held>
void hold(Stream& stream, Held... held) {
  if constexpr (runs_host_functions<Stream>) stream.queue_host_function([held...] {});
  else stream.synchronize();
}

/// work(span) on memory that the host can read and write, after all work queued on the stream; when it `writes`, the result is copied back
/// to the device. `work` must not refer to variables of the caller: it may run later.
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

/// work(from, to) on memory of the host: `from` is read, `to` written. If an error before keeps work() from running, `to` has any values, or zeros.
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
