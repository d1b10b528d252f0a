// What a device is. Each folder beside this file implements one kind of hardware; no code outside this folder names hardware.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace clause {

template <class D>
concept device_has_a_name = requires {
  { D::name } -> std::convertible_to<std::string_view>;
};

template <class D>
concept device_has_typed_memory = names_a_memory<typename D::memory>;

/// What the size of a kernel's scratch memory may depend on, known without opening the device (threads, blocks, cache sizes).
template <class D>
concept device_has_properties = std::copyable<typename D::properties>;

/// An opened device: a handle that is cheap to copy.
template <class D>
concept device_opens = std::copyable<typename D::context> && std::default_initializable<typename D::context>;

/// The opened device allocates memory and counts it.
template <class D>
concept device_allocates = requires(const typename D::context& opened, void* memory, std::size_t bytes, memory_role role) {
  { opened.allocate(bytes, role) } -> std::same_as<void*>;
  opened.release(memory, bytes, role);
  { opened.memory() } -> std::same_as<memory_count>;
  { opened.memory_limit() } -> std::same_as<std::size_t>;
  { opened.properties() } -> std::convertible_to<typename D::properties>;
};

/// A queue of work, executed in order and possibly asynchronously: until synchronize() returns, nothing may be
/// assumed done.
template <class D>
concept device_orders_work_in_streams = std::constructible_from<typename D::stream, const typename D::context&>;

template <class D>
concept device_stream_moves_memory = requires(typename D::stream& stream, void* to, const void* from, std::size_t bytes) {
  stream.copy_from_host(to, from, bytes);
  stream.copy_to_host(to, from, bytes);
  stream.copy_within(to, from, bytes);
  stream.fill_zero(to, bytes);
  stream.synchronize();
};

/// An event marks a point in a stream; another stream, or the host, can wait for it.
template <class D>
concept device_has_events = requires(typename D::stream& stream) {
  { stream.record() } -> std::copyable;
  stream.wait(stream.record());
  stream.record().synchronize();
};

}  // namespace clause

/// Where memory lives and work runs. Support for each kernel is queried separately: see `runs_kernel`.
template <class D>
concept device = clause::device_has_a_name<D> && clause::device_has_typed_memory<D> && clause::device_has_properties<D> &&
    clause::device_opens<D> && clause::device_allocates<D> && clause::device_orders_work_in_streams<D> &&
    clause::device_stream_moves_memory<D> && clause::device_has_events<D>;

/// A device whose memory the host reads and writes in place.
template <class D>
concept host_addressable = device<D> && clause::memory_is_host_addressable<typename D::memory>;

/// Copies `from.size()` elements to the device. The host memory must not change until the stream is synchronized.
template <class Stream, class T, class Memory>
void copy_to_device(Stream& stream, device_span<T, Memory> to, std::span<const std::type_identity_t<T>> from) {
  stream.copy_from_host(to.raw(), from.data(), from.size_bytes());
}

/// Copies to the host. The host memory holds the values only after the stream is synchronized.
template <class Stream, class T, class Memory>
void copy_to_host(Stream& stream, std::span<std::remove_const_t<T>> to, device_span<T, Memory> from) {
  stream.copy_to_host(to.data(), from.raw(), to.size_bytes());
}

/// Queues a copy inside the device's memory.
template <class Stream, class T, class Memory>
void copy_within(Stream& stream, device_span<T, Memory> to, device_span<const std::type_identity_t<T>, Memory> from) {
  stream.copy_within(to.raw(), from.raw(), from.bytes());
}

/// Queues zeros.
template <class Stream, class T, class Memory>
void fill_zero(Stream& stream, device_span<T, Memory> to) {
  stream.fill_zero(to.raw(), to.bytes());
}

}  // namespace xtrain
