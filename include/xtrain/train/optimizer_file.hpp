// The optimizer state in a file: every array split by parameter name, so that runs with other layouts and numbers of ranks can read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/write_together.hpp>

namespace xtrain {

namespace detail {

/// Calls visit(name in the file, array, entry) for every optimizer array and every trainable parameter.
template <class Trainer, class Visit>
void for_each_optimizer_array(Trainer& trainer, Visit&& visit) {
  trainer.visit_optimizer([&](std::string_view array, auto span) {
    for (const auto& entry : trainer.model().parameters().entries())
      if (entry.spec.trainable) visit(concat(array, ".", entry.spec.name), span, entry);
  });
}

/// One parameter's part of one optimizer array, to be written.
template <class Model, class Span, class Entry>
[[nodiscard]] tensor_to_write optimizer_array_to_write(Model& model, std::string name, Span span, const Entry& entry) {
  using value = typename Span::element_type;
  tensor_to_write tensor{.name = std::move(name),
                         .dtype = std::string(safetensors_dtype_of<value>()),
                         .shape = entry.spec.whole_shape(),
                         .bytes = entry.whole_size() * sizeof(value)};
  tensor.produce = [&model, &entry, span](const std::function<void(const void*, std::size_t)>& sink) {
    // if this rank has all of it, it is written in chunks
    const bool whole = model.parameters().sharding().parts > 1 || entry.spec.cut.exists() || !model.parameters().all_here();
    const std::size_t size = entry.whole_size();
    std::vector<value> host(whole ? size : std::min(size, numbers_at_once));
    for (std::size_t first = 0; first < size; first += host.size()) {
      const std::span<value> piece(host.data(), std::min(host.size(), size - first));
      if (whole) {
        model.parallel().collect(model.stream(), model.parameters(), entry, span, piece);
      } else {
        copy_to_host(model.stream(), piece, span.subspan(entry.offset + first, piece.size()));
        model.stream().synchronize();
      }
      sink(piece.data(), piece.size_bytes());
    }
  };
  if constexpr (tells_what_is_kept<std::remove_cvref_t<decltype(model.parallel())>, typename Model::store>)
    tensor.produce_own = [&model, &entry, span](const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
      const auto& store = model.parameters();
      write_kept<value>(model.stream(), entry.spec, model.parallel().kept(store, entry, span.size()), span, false,
                        static_cast<std::size_t>(&entry - store.entries().data()), sink);
    };
  return tensor;
}

}  // namespace detail

/// Writes a trainer's optimizer state. All ranks call it; if `together` is null, only the first writes.
///   returns how many ranks wrote
///   throws  file_error
template <class Trainer>
std::size_t write_optimizer(Trainer& trainer, const std::string& path, file_writers* together) {
  std::vector<tensor_to_write> tensors;
  detail::for_each_optimizer_array(trainer, [&](std::string name, auto span, const auto& entry) {
    tensors.push_back(detail::optimizer_array_to_write(trainer.model(), std::move(name), span, entry));
  });
  const bool first = trainer.model().parallel().everyone().rank() == 0;
  return first ? detail::write_safetensors_with(together, path, std::move(tensors)) : detail::follow_safetensors_with(together, std::move(tensors));
}

/// Reads a trainer's optimizer state: each rank reads its shard.
///   throws  file_error, config_error when the file is of another optimizer, precision or model
template <class Trainer>
void read_optimizer(Trainer& trainer, const std::string& path) {
  const safetensors_file file(path);
  auto& stream = trainer.model().stream();
  const auto& store = trainer.model().parameters();
  detail::for_each_optimizer_array(trainer, [&](const std::string& name, auto span, const auto& entry) {
    const std::vector<std::size_t>& shape = entry.spec.whole_shape();
    using value = typename decltype(span)::element_type;
    const file_tensor* tensor = file.find(name);
    require<config_error>(tensor != nullptr, path, ": must hold '", name,
                          "'; it is missing. Was the run made with another optimizer or precision?");
    require<config_error>(tensor->shape == shape && tensor->dtype == safetensors_dtype_of<value>(), path, ": '", name, "' must be ",
                          safetensors_dtype_of<value>(), " of shape ", std::span<const std::size_t>(shape), "; the file has ", tensor->dtype,
                          " of ", std::span<const std::size_t>(tensor->shape));
    const auto own = store.piece_of(entry);
    std::vector<value> host(entry.spec.cut.exists() ? entry.size() : own.count);
    if (entry.spec.cut.exists())
      entry.spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t count) {
        read_numbers<value>(*tensor, whole, std::span<value>(host).subspan(here, count));
      });
    else read_numbers<value>(*tensor, own.first, host);
    const auto piece = std::span<const value>(host).subspan(entry.spec.cut.exists() ? own.first : 0, own.count);
    copy_to_device(stream, span.subspan(own.kept, own.count), piece);
    stream.synchronize();
  });
}

}  // namespace xtrain
