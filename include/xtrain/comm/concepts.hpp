// The communicator concept: a process group and its collectives.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace xtrain {

/// Combines values of several ranks.
enum class reduction : std::uint8_t { sum, largest };

namespace clause {

template <class C>
concept communicator_knows_its_ranks = requires(const C& comm) {
  { comm.rank() } -> std::same_as<std::size_t>;
  { comm.size() } -> std::same_as<std::size_t>;
};

/// For decisions on the host: token counts, evaluation losses, whether to stop.
template <class C>
concept communicator_reduces_host_numbers = requires(C& comm, std::span<double> values) {
  comm.all_reduce(values, reduction::sum);
  comm.barrier();
};

/// Collectives on device memory are queued on a stream, in equal order on every rank.
template <class C, class Stream, class Span, class ConstSpan>
concept communicator_moves_device_memory = requires(C& comm, Stream& stream, Span to, ConstSpan from, std::size_t rank) {
  comm.all_reduce(stream, to, reduction::sum);
  comm.all_gather(stream, from, to);
  comm.reduce_scatter(stream, from, to, reduction::sum);
  comm.broadcast(stream, to, rank);
};

/// Optional: gather(own, all, root), of numbers on the host.
template <class C>
concept communicator_gathers = requires(C& comm, std::span<const double> own, std::span<double> all) { comm.gather(own, all, std::size_t{0}); };

/// Optional, queued on a stream: all-to-all; send and receive.
template <class C, class Stream, class Span, class ConstSpan>
concept communicator_has_all_to_all = requires(C& comm, Stream& stream, Span to, ConstSpan from) { comm.all_to_all(stream, from, to); };
template <class C, class Stream, class Span, class ConstSpan>
concept communicator_has_send_receive = requires(C& comm, Stream& stream, Span to, ConstSpan from, std::size_t rank) {
  comm.send_receive(stream, from, rank, to, rank);
};

}  // namespace clause

/// What layers and strategies require of a group of ranks.
template <class C>
concept communicator = clause::communicator_knows_its_ranks<C> && clause::communicator_reduces_host_numbers<C>;

}  // namespace xtrain
