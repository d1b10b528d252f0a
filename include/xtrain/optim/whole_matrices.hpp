// What optimizers of whole matrices need from a parallel strategy: ranks step pieces of a matrix, and combine their parts.
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

namespace clause {

/// gather_pieces(stream, store, entry, array): in place, every data-parallel rank gets all elements of its (tensor-parallel) shard of a
/// parameter; `array` has the shard's size, and a rank fills store.piece_of(entry).
/// sum_pieces(stream, store, entry, array): sums an array over the data-parallel ranks with different pieces.
/// sum_tensor_shards(stream, entry, array): sums an array over the tensor-parallel ranks with different shards; equal shards count once.
/// Collective: all ranks with the parameter call them, in the same order. Queued on the stream.
template <class State, class Device, class Store>
concept combines_matrices = requires(State& state, typename Device::stream& stream, const Store& store, const typename Store::entry& entry,
                                     device_span<float, typename Device::memory> array, device_span<double, typename Device::memory> sums) {
  state.gather_pieces(stream, store, entry, array);
  state.sum_pieces(stream, store, entry, sums);
  state.sum_tensor_shards(stream, entry, array);
  state.sum_tensor_shards(stream, entry, sums);
};

}  // namespace clause

/// For a rank that has all of every matrix.
struct whole_matrices {
  template <class... Arguments>
  void gather_pieces(const Arguments&...) const {}
  template <class... Arguments>
  void sum_pieces(const Arguments&...) const {}
  template <class... Arguments>
  void sum_tensor_shards(const Arguments&...) const {}

  /// throws config_error when this rank has only shards of matrices; `who` names the optimizer
  template <class Store>
  static void require(const Store& store, std::string_view who) {
    xtrain::require<config_error>(store.sharding().parts == 1 && !store.has_tensor_shards(), who,
                                  ": the parallel strategy shards matrices, so it must combine them (gather_pieces, sum_pieces, "
                                  "sum_tensor_shards); see parallel/README.md");
  }
};

}  // namespace xtrain
