// Parameters as tensors of a file that ranks write together.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/matrix_order.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/tensor/shard_spec.hpp>

namespace xtrain::detail {

/// A strategy that tells each rank's stored elements: ranks can write together.
template <class Strategy, class Store>
concept tells_what_is_kept = requires(Strategy& state, const Store& store, const typename Store::entry& entry) {
  { state.kept(store, entry, std::size_t{}) } -> std::same_as<stored_range>;
  state.world().network();
};

/// A parameter to be written to a file.
template <class Model, class Entry>
[[nodiscard]] tensor_to_write parameter_to_write(const Model& model, const Entry& entry, std::string name) {
  using dtype = typename Model::compute;
  tensor_to_write tensor{.name = std::move(name),
                         .dtype = std::string(safetensors_dtype_of<dtype>()),
                         .shape = entry.spec.file_shape(),
                         .bytes = sizeof(dtype)};
  for (const std::size_t dim : tensor.shape) tensor.bytes *= dim;
  tensor.produce = [&model, &entry](const std::function<void(const void*, std::size_t)>& sink) {
    const auto& store = model.parameters();
    const std::size_t size = entry.whole_size();
    const bool whole = entry.spec.transposed_in_files || entry.spec.rows_in_files || entry.spec.blocks_in_files || store.sharding().values ||
                       entry.spec.cut.exists() || !store.all_here();
    if (!whole) {
      pinned_pipe<typename Model::device> pipe(model.context());
      return pipe.to_host(model.stream(), store.value(entry), [&](std::span<const dtype> piece) { sink(piece.data(), piece.size_bytes()); });
    }
    std::vector<dtype> host(size);
    model.parallel().collect(model.stream(), store, entry, store.stored_values(), std::span<dtype>(host));
    if (entry.spec.transposed_in_files) {
      const std::size_t rows = entry.spec.whole_shape()[0], columns = entry.spec.whole_shape()[1];
      std::vector<dtype> turned(size);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) turned[j * rows + i] = host[i * columns + j];
      host = std::move(turned);
    } else if (entry.spec.rows_in_files) {
      host = reordered<dtype>(host, *entry.spec.rows_in_files, true);
    } else if (entry.spec.blocks_in_files) {
      host = blocks_to_file<dtype>(host, *entry.spec.blocks_in_files, entry.spec.shape[1]);
    }
    sink(host.data(), host.size() * sizeof(dtype));
  };
  using strategy = std::remove_cvref_t<decltype(model.parallel())>;
  if constexpr (tells_what_is_kept<strategy, typename Model::store>)
    tensor.produce_own = [&model, &entry, produce = tensor.produce](const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
      if (entry.spec.blocks_in_files) {  // small, with zeros that no rank stores: all ranks collect, the first writes
        std::vector<std::byte> all;
        produce([&](const void* data, std::size_t size) {
          const auto* bytes = static_cast<const std::byte*>(data);
          all.insert(all.end(), bytes, bytes + size);
        });
        if (model.parallel().world().rank() == 0) sink(0, all.data(), all.size());
        return;
      }
      const auto& store = model.parameters();
      const auto array = store.stored_values();
      pinned_pipe<typename Model::device> pipe(model.context());
      write_kept<dtype>(pipe, model.stream(), entry.spec, model.parallel().kept(store, entry, array.size()), array, true,
                         static_cast<std::size_t>(&entry - store.entries().data()), sink);
    };
  return tensor;
}

/// The first rank creates files; all write, or help gather, and meet in wait_for_all().
template <class Model>
class saving_ranks {
 public:
  explicit saving_ranks(const Model& model, bool one_writer = false) : model_(&model) {
    if constexpr (tells_what_is_kept<strategy, typename Model::store>) {
      if (!one_writer && model.parallel().world().size() > 1)
        together_ = std::make_unique<writers_of<std::remove_cvref_t<decltype(model.parallel().world())>>>(model.parallel().world());
    }
  }
  [[nodiscard]] bool writes() const { return model_->parallel().world().rank() == 0; }
  /// Null: the first rank writes alone.
  [[nodiscard]] file_writers* together() const { return together_.get(); }
  /// Last call of each rank, unless it threw.
  void wait_for_all() const { model_->parallel().world().barrier(); }

 private:
  using strategy = std::remove_cvref_t<decltype(std::declval<const Model&>().parallel())>;

  const Model* model_;
  std::unique_ptr<file_writers> together_;
};

}  // namespace xtrain::detail
