// Where the collectives of an accelerator's own library (NCCL, MCCL, HCCL) plug in: a transport gives them to groups, and a group then queues its
// collectives on device memory there instead of sending messages by way of the host.
#pragma once

#include <cstddef>
#include <string_view>
#include <typeinfo>

#include <xtrain/comm/concepts.hpp>

namespace xtrain {

/// Elements in device memory. dtype: dtype_traits<T>::name.
struct device_array {
  void* data = nullptr;
  std::size_t elements = 0;
  std::string_view dtype{};
};

/// The collectives of one group on one rank. Calls are queued on the stream and return; all ranks of the group make the same calls in the same
/// order. Reductions should be in an order that depends on the number of ranks alone: otherwise runs are not reproducible bit for bit.
class native_collectives {
 public:
  virtual ~native_collectives() = default;

  /// The type of the streams that calls are queued on, which are passed by address.
  [[nodiscard]] virtual const std::type_info& stream_type() const = 0;
  virtual void all_reduce(void* stream, const device_array& values, reduction how) = 0;
  /// whole: the parts of all ranks, in rank order. `part` may be its position in `whole`.
  virtual void all_gather(void* stream, const void* part, const device_array& whole) = 0;
  /// part: this rank's part of the reduction; it may be its position in `whole`.
  virtual void reduce_scatter(void* stream, const device_array& whole, void* part, reduction how) = 0;
  virtual void broadcast(void* stream, const device_array& values, std::size_t root) = 0;
};

}  // namespace xtrain
