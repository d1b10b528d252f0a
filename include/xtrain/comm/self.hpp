// A single rank: collectives are copies or no-ops.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/concepts.hpp>

namespace xtrain {

/// The communicator of a single rank.
class self {
 public:
  static constexpr std::string_view name = "self";

  [[nodiscard]] std::size_t rank() const { return 0; }
  [[nodiscard]] std::size_t size() const { return 1; }

  void all_reduce(std::span<double>, reduction) {}
  void barrier() {}

  template <class Stream, class T, class Memory>
  void all_reduce(Stream&, device_span<T, Memory>, reduction) {}

  /// whole: size() parts, in rank order
  template <class Stream, class T, class Memory>
  void all_gather(Stream& stream, device_span<const T, Memory> part, device_span<T, Memory> whole) {
    copy(stream, part, whole);
  }
  template <class Stream, class T, class Memory>
  void reduce_scatter(Stream& stream, device_span<const T, Memory> whole, device_span<T, Memory> part, reduction) {
    copy(stream, whole, part);
  }
  template <class Stream, class T, class Memory>
  void broadcast(Stream&, device_span<T, Memory>, std::size_t) {}

 private:
  template <class Stream, class T, class Memory>
  static void copy(Stream& stream, device_span<const T, Memory> from, device_span<T, Memory> to) {
    require<shape_error>(from.size() == to.size(), "self: with one rank a shard is the whole array; ", from.size(), " and ", to.size(),
                         " elements");
    if (from.raw() != to.raw()) copy_within(stream, to, from);
  }
};

static_assert(communicator<self>);

}  // namespace xtrain
