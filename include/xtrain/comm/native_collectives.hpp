// Interface for an accelerator's collectives (NCCL, MCCL, HCCL): a transport gives them to groups, which then queue collectives and messages of device memory
// there instead of through the host.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <xtrain/comm/concepts.hpp>

namespace xtrain {

/// Elements in device memory. dtype: dtype_traits<T>::name.
struct device_array {
  void* data = nullptr;
  std::size_t elements = 0;
  std::string_view dtype{};
};

/// A message of device memory, to or from another rank of the group.
struct device_message {
  std::size_t rank = 0;
  device_array values{};
  bool is_sent = false;  ///< otherwise received
};

/// Collectives of a group on a rank. Calls are queued and return; all ranks make them in the same order. The order of reductions should depend only on the
/// number of ranks: otherwise runs are not reproducible bit for bit.
class native_collectives {
 public:
  virtual ~native_collectives() = default;

  /// Type of the streams, which are passed by address.
  [[nodiscard]] virtual const std::type_info& stream_type() const = 0;
  virtual void all_reduce(void* stream, const device_array& values, reduction op) = 0;
  /// whole: parts in rank order; may contain `part` at its position.
  virtual void all_gather(void* stream, const void* part, const device_array& whole) = 0;
  /// part: this rank's part of the reduction; may be its position in `whole`.
  virtual void reduce_scatter(void* stream, const device_array& whole, void* part, reduction op) = 0;
  virtual void broadcast(void* stream, const device_array& values, std::size_t root) = 0;

  // ---- messages: between two ranks in queued order, with equal sizes on both ----

  /// Outside a group, holds the stream until the other rank receives.
  virtual void send(void* stream, const device_array& values, std::size_t to) = 0;
  /// Outside a group, holds the stream until the other rank has sent.
  virtual void receive(void* stream, const device_array& values, std::size_t from) = 0;
  /// Calls up to group_end() are made together: messages do not wait for each other, and a rank may send to itself. Not nested.
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  /// Sent and received together; no order between different ranks.
  inline virtual void exchange(void* stream, std::span<const device_message> messages);
  /// Part i of `from` goes to rank i, part i of `to` comes from it; equal parts.
  inline virtual void all_to_all(void* stream, const device_array& from, const device_array& to, std::size_t ranks, std::size_t element_bytes);

  void send_receive(void* stream, const device_array& from, std::size_t to_rank, const device_array& to, std::size_t from_rank) {
    const device_message both[] = {{from_rank, to, false}, {to_rank, from, true}};
    exchange(stream, both);
  }
};

/// Makes the calls of work() together.
///   throws  errors of work() or group_end(); the group is ended
template <class Work>
void in_native_group(native_collectives& calls, Work&& work) {
  calls.group_start();
  try {
    work();
  } catch (...) {
    try {
      calls.group_end();
    } catch (...) {  // work()'s exception is the cause
    }
    throw;
  }
  calls.group_end();
}

inline void native_collectives::exchange(void* stream, std::span<const device_message> messages) {
  in_native_group(*this, [&] {
    for (const device_message& one : messages) {
      if (one.is_sent) send(stream, one.values, one.rank);
      else receive(stream, one.values, one.rank);
    }
  });
}

inline void native_collectives::all_to_all(void* stream, const device_array& from, const device_array& to, std::size_t ranks, std::size_t element_bytes) {
  std::vector<device_message> all;
  const std::size_t part = from.elements / ranks;
  const auto part_of = [&](const device_array& whole, std::size_t rank) {
    return device_array{static_cast<std::byte*>(whole.data) + rank * part * element_bytes, part, whole.dtype};
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all.push_back({rank, part_of(to, rank), false});
    all.push_back({rank, part_of(from, rank), true});
  }
  exchange(stream, all);
}

}  // namespace xtrain
