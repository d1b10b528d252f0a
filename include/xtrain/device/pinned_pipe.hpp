// Large copies between host and device in pieces: the host fills or empties one buffer of pinned memory while the device copies the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/pinned_memory.hpp>

namespace xtrain {

/// Two buffers of `piece_bytes` at most, allocated at the first use. Pinned memory is asked for once per transfer: a device whose system is slow to
/// give it keeps what is released.
template <class Device>
class pinned_pipe {
 public:
  using stream = typename Device::stream;

  /// What stays in a processor's cache, where a copy is the host's own work.
  static constexpr std::size_t piece_bytes = host_addressable<Device> ? std::size_t{4} << 20 : std::size_t{32} << 20;

  explicit pinned_pipe(const typename Device::context& device) : device_(device) {}
  pinned_pipe(const pinned_pipe&) = delete;
  pinned_pipe& operator=(const pinned_pipe&) = delete;
  /// Waits for copies that are in flight, after an error.
  ~pinned_pipe() {
    for (half& one : halves_) {
      try {
        one.wait();
      } catch (...) {  // reported by the stream's next synchronize()
      }
    }
  }

  /// Elements of one copy.
  struct piece {
    std::size_t first = 0, count = 0;
  };

  /// Copies `size` elements to the device; returns when they are there.
  ///   fill(first, elements)   writes elements first … in host memory
  ///   copy(first, elements)   queues their copy
  ///   throws  what these and the stream throw
  template <class T, class Fill, class Copy>
  void to_device(stream& on, std::size_t size, Fill&& fill, Copy&& copy) {
    for (std::size_t first = 0; first < size; first += elements_at_once<T>) {
      half& one = next(std::min(elements_at_once<T>, size) * sizeof(T));
      const auto elements = one.memory->template as<T>().first(std::min(elements_at_once<T>, size - first));
      fill(first, elements);
      copy(first, std::span<const T>(elements));
      one.copied = on.record();
    }
    for (half& one : halves_) one.wait();
  }
  /// The same of elements in host memory, to `to`.
  template <class T>
  void to_device(stream& on, device_span<T, typename Device::memory> to, std::span<const T> from) {
    to_device<T>(
        on, to.size(),
        [&](std::size_t first, std::span<T> elements) {
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), elements.size(), elements.begin());
        },
        [&](std::size_t first, std::span<const T> elements) { copy_to_device(on, to.subspan(first, elements.size()), elements); });
  }

  /// Copies these elements to the host, one piece after the other; a piece is on its way while the host has the one before.
  ///   from(piece)             the elements in device memory
  ///   take(piece, elements)   has them
  ///   throws  what these and the stream throw
  template <class T, class From, class Take>
  void to_host(stream& on, std::span<const piece> pieces, From&& from, Take&& take) {
    std::size_t most = 0;
    for (const piece& one : pieces) most = std::max(most, one.count);
    const auto queue = [&](const piece& one) {
      half& to = next(most * sizeof(T));
      copy_to_host(on, to.memory->template as<T>().first(one.count), from(one));
      to.copied = on.record();
    };
    if (!pieces.empty()) queue(pieces[0]);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      half& current = halves_[at_];
      if (i + 1 < pieces.size()) queue(pieces[i + 1]);
      current.wait();
      take(pieces[i], std::span<const T>(current.memory->template as<T>().first(pieces[i].count)));
    }
  }
  /// The same of adjacent elements.
  template <class T, class M, class Take>
  void to_host(stream& on, device_span<T, M> from, Take&& take) {
    using value = std::remove_const_t<T>;
    std::vector<piece> pieces;
    for (std::size_t first = 0; first < from.size(); first += elements_at_once<value>)
      pieces.push_back({first, std::min(elements_at_once<value>, from.size() - first)});
    to_host<value>(
        on, std::span<const piece>(pieces), [&](const piece& one) { return from.subspan(one.first, one.count); },
        [&](const piece&, std::span<const value> elements) { take(elements); });
  }

 private:
  template <class T>
  static constexpr std::size_t elements_at_once = piece_bytes / sizeof(T);

  struct half {
    std::optional<pinned_memory<Device>> memory{};
    std::optional<decltype(std::declval<stream&>().record())> copied{};

    void wait() {
      if (const auto queued = std::exchange(copied, std::nullopt)) queued->synchronize();
    }
  };

  /// The other half, with as many bytes at least, when its last copy is done.
  [[nodiscard]] half& next(std::size_t bytes) {
    at_ = 1 - at_;
    half& one = halves_[at_];
    one.wait();
    if (!one.memory || one.memory->bytes() < bytes) {
      one.memory.reset();
      one.memory.emplace(device_, bytes);
    }
    return one;
  }

  typename Device::context device_;
  std::array<half, 2> halves_{};
  std::size_t at_ = 1;
};

/// Copies elements to ordinary host memory; returns when they are there.
template <class Device, class T, class M>
void copy_in_pieces(const typename Device::context& device, typename Device::stream& on, std::span<std::remove_const_t<T>> to, device_span<T, M> from) {
  if constexpr (host_addressable<Device>) {
    copy_to_host(on, to, from);
    on.synchronize();
  } else {
    pinned_pipe<Device> pipe(device);
    auto at = to.begin();
    pipe.to_host(on, from, [&](std::span<const std::remove_const_t<T>> piece) { at = std::copy(piece.begin(), piece.end(), at); });
  }
}

}  // namespace xtrain
