// Collectives on device memory by way of the host: what a device holds is copied to host memory, sent from there, and the result is copied
// back. Memory that the host can address is used in place.
#pragma once

#include <span>
#include <vector>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>

namespace xtrain::detail {

/// The host can dereference the pointers, or (in a dry run) nothing ever does.
template <class Memory>
inline constexpr bool is_staged = !(clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>);

template <class T, class Memory>
[[nodiscard]] std::span<T> host_span(device_span<T, Memory> values) {
  return {values.raw(), values.size()};
}

/// work(span) on memory that the host can read and write, after all work queued on the stream; when it `writes`, the result is copied back
/// to the device.
template <class Stream, class T, class Memory, class Work>
void on_host(Stream& stream, device_span<T, Memory> values, bool writes, Work&& work) {
  if constexpr (!is_staged<Memory>) {
    stream.synchronize();
    work(host_span(values));
  } else {
    std::vector<T> host(values.size());
    copy_to_host(stream, std::span<T>(host), values);
    stream.synchronize();
    work(std::span<T>(host));
    if (writes) {
      copy_to_device(stream, values, std::span<const T>(host));
      stream.synchronize();
    }
  }
}

/// work(from, to) on memory of the host: `from` is read, `to` written.
template <class Stream, class T, class Memory, class Work>
void on_host(Stream& stream, device_span<const T, Memory> from, device_span<T, Memory> to, Work&& work) {
  if constexpr (!is_staged<Memory>) {
    stream.synchronize();
    work(host_span(from), host_span(to));
  } else {
    std::vector<T> sent(from.size()), received(to.size());
    copy_to_host(stream, std::span<T>(sent), from);
    stream.synchronize();
    work(std::span<const T>(sent), std::span<T>(received));
    copy_to_device(stream, to, std::span<const T>(received));
    stream.synchronize();
  }
}

}  // namespace xtrain::detail
