// Optimizer state in a file: every array split by parameter name, so that other layouts and numbers of ranks can read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
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
#include <xtrain/optim/state_part.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/tensor/shard_spec.hpp>

namespace xtrain {

namespace detail {

/// Calls visit(name in the file, array, entry, part) for every optimizer array and every trainable parameter in it; `part`: a state_part, or nullptr for an
/// array with one element per weight that this rank steps.
template <class Trainer, class Visit>
void for_each_optimizer_array(Trainer& trainer, Visit&& visit) {
  trainer.visit_optimizer([&](std::string_view array, auto span, const auto&... part_of) {
    for (const auto& entry : trainer.model().parameters().entries()) {
      if (!entry.spec.trainable) continue;
      const std::string name = concat(array, ".", entry.spec.name);
      if constexpr (sizeof...(part_of) == 0) visit(name, span, entry, nullptr);
      else if (const state_part part = (part_of(entry), ...); !part.shape.empty()) visit(name, span, entry, part);
    }
  });
}

/// Gathers an optimizer array on the first rank: one element per weight, from index `at`, or the parameter's index.
///   throws  config_error when the strategy cannot gather arrays that leave parameters out
template <class Model, class Span, class Entry, class Value>
void collect_optimizer_array(Model& model, Span span, const Entry& entry, std::optional<std::size_t> at, std::span<Value> whole) {
  auto& ranks = model.parallel();
  if (!at) return ranks.collect(model.stream(), model.parameters(), entry, span, whole);
  if constexpr (has_hook<typename Model::recipe::parallel, hook::collects_with_index>)
    ranks.collect(model.stream(), model.parameters(), entry, span, whole, at);
  else
    fail<config_error>("checkpoint: the parallel strategy shards optimizer state of '", entry.spec.name,
                       "', so its collect() must take an index in the array; see parallel/README.md");
}
/// For an array of any shape; this rank has elements first … first + own.size() - 1.
///   throws  config_error when the strategy cannot gather them
template <class Model, class Span, class Entry, class Value>
void collect_optimizer_state(Model& model, std::size_t first, Span own, const Entry& entry, std::span<Value> whole) {
  auto& ranks = model.parallel();
  if constexpr (has_hook<typename Model::recipe::parallel, hook::collect_state>) {
    ranks.collect_state(model.stream(), model.parameters(), entry, first, own, whole);
  } else {
    require<config_error>(own.size() == whole.size(), "checkpoint: the parallel strategy shards optimizer state of '", entry.spec.name,
                          "', so it must gather it (collect_state); see parallel/README.md");
    copy_in_pieces<typename Model::device>(model.context(), model.stream(), whole, own);
  }
}

template <class Model, class Span, class Entry>
[[nodiscard]] tensor_to_write optimizer_array_to_write(Model& model, std::string name, Span span, const Entry& entry,
                                                       std::optional<std::size_t> at = std::nullopt) {
  using value = typename Span::element_type;
  tensor_to_write tensor{.name = std::move(name),
                         .dtype = std::string(safetensors_dtype_of<value>()),
                         .shape = entry.spec.whole_shape(),
                         .bytes = entry.whole_size() * sizeof(value)};
  tensor.produce = [&model, &entry, span, at](const std::function<void(const void*, std::size_t)>& sink) {
    const bool whole = model.parameters().sharding().parts > 1 || entry.spec.cut.exists() || !model.parameters().all_here();
    const std::size_t size = entry.whole_size();
    if (!whole) {
      pinned_pipe<typename Model::device> pipe(model.context());
      return pipe.to_host(model.stream(), span.subspan(at.value_or(entry.offset), size),
                          [&](std::span<const value> piece) { sink(piece.data(), piece.size_bytes()); });
    }
    std::vector<value> host(size);
    collect_optimizer_array(model, span, entry, at, std::span<value>(host));
    sink(host.data(), host.size() * sizeof(value));
  };
  if constexpr (tells_what_is_kept<std::remove_cvref_t<decltype(model.parallel())>, typename Model::store>)
    tensor.produce_own = [&model, &entry, span, at](const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
      const auto& store = model.parameters();
      stored_range kept = model.parallel().kept(store, entry, at ? store.stepped() : span.size());
      kept.at = at.value_or(kept.at);
      pinned_pipe<typename Model::device> pipe(model.context());
      write_kept<value>(pipe, model.stream(), entry.spec, kept, span, false, static_cast<std::size_t>(&entry - store.entries().data()), sink);
    };
  return tensor;
}
template <class Model, class Span, class Entry>
[[nodiscard]] tensor_to_write optimizer_array_to_write(Model& model, std::string name, Span span, const Entry& entry, std::nullptr_t) {
  return optimizer_array_to_write(model, std::move(name), span, entry);
}

/// For an array whose shape is not the parameter's.
template <class Model, class Span, class Entry>
[[nodiscard]] tensor_to_write optimizer_array_to_write(Model& model, std::string name, Span span, const Entry& entry, const state_part& part) {
  if (part.is == state_part::kind::weights) return optimizer_array_to_write(model, std::move(name), span, entry, std::optional(part.at));
  using value = typename Span::element_type;
  const bool is_sharded = part.is == state_part::kind::shards;
  tensor_to_write tensor{.name = std::move(name),
                         .dtype = std::string(safetensors_dtype_of<value>()),
                         .shape = part.shape,
                         .bytes = part.whole_size() * sizeof(value)};
  tensor.produce = [&model, &entry, span, part, is_sharded](const std::function<void(const void*, std::size_t)>& sink) {
    std::vector<value> host(part.whole_size());
    const bool gives = is_sharded || model.parameters().sharding().part == 0;
    const std::size_t skipped = is_sharded ? part.skipped : 0;
    const auto own = gives ? span.subspan(part.at + skipped, part.count - skipped) : Span{};
    collect_optimizer_state(model, part.first + skipped, own, entry, std::span<value>(host));
    sink(host.data(), host.size() * sizeof(value));
  };
  using strategy = std::remove_cvref_t<decltype(model.parallel())>;
  if constexpr (tells_what_is_kept<strategy, typename Model::store>)
    tensor.produce_own = [&model, &entry, span, part, is_sharded](const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
      static_assert(requires(const strategy& ranks) { ranks.writes_state(entry, true); },
                    "xtrain checkpoint: a strategy that tells what it keeps must also tell which rank writes optimizer state that is not one "
                    "element per weight (writes_state); see parallel/README.md");
      const std::size_t skipped = is_sharded ? part.skipped : 0;
      if (!model.parallel().writes_state(entry, is_sharded) || part.count == skipped) return;
      std::vector<value> host(part.count - skipped);
      copy_in_pieces<typename Model::device>(model.context(), model.stream(), std::span<value>(host), span.subspan(part.at + skipped, host.size()));
      sink((part.first + skipped) * sizeof(value), host.data(), host.size() * sizeof(value));
    };
  return tensor;
}

/// What this rank reads of one optimizer array: elements first … first + count - 1, of the parameter's shard if `like_weight`, to index `at`.
struct state_to_read {
  const std::vector<std::size_t>& shape;
  bool like_weight = true;
  std::size_t first = 0, at = 0, count = 0;
};
template <class Store, class Entry>
[[nodiscard]] state_to_read state_read_from(const Store& store, const Entry& entry, std::nullptr_t) {
  const auto own = store.piece_of(entry);
  return {entry.spec.whole_shape(), true, own.first, own.kept, own.count};
}
template <class Store, class Entry>
[[nodiscard]] state_to_read state_read_from(const Store&, const Entry&, const state_part& part) {
  return {part.shape, part.is == state_part::kind::weights, part.first, part.at, part.count};
}

}  // namespace detail

/// Writes a trainer's optimizer state. All ranks call it; if `together` is null, only the first writes.
///   returns number of ranks that wrote
///   throws  file_error
template <class Trainer>
std::size_t write_optimizer(Trainer& trainer, const std::string& path, file_writers* together) {
  std::vector<tensor_to_write> tensors;
  detail::for_each_optimizer_array(trainer, [&](std::string name, auto span, const auto& entry, const auto& part) {
    tensors.push_back(detail::optimizer_array_to_write(trainer.model(), std::move(name), span, entry, part));
  });
  const bool first = trainer.model().parallel().world().rank() == 0;
  return first ? detail::write_safetensors_with(together, path, std::move(tensors)) : detail::follow_safetensors_with(together, std::move(tensors));
}

/// Reads a trainer's optimizer state: each rank reads its shard.
///   throws  file_error, config_error when the file is of another optimizer, precision or model
template <class Trainer>
void read_optimizer(Trainer& trainer, const std::string& path) {
  const safetensors_file file(path);
  auto& stream = trainer.model().stream();
  const auto& store = trainer.model().parameters();
  pinned_pipe<typename std::remove_cvref_t<decltype(trainer.model())>::device> pipe(trainer.model().context());
  detail::for_each_optimizer_array(trainer, [&](const std::string& name, auto span, const auto& entry, const auto& part) {
    const detail::state_to_read own = detail::state_read_from(store, entry, part);
    using value = typename decltype(span)::element_type;
    const file_tensor* tensor = file.find(name);
    require<config_error>(tensor != nullptr, path, ": must hold '", name,
                          "'; it is missing. Was the run made with another optimizer or precision?");
    require<config_error>(tensor->shape == own.shape && tensor->dtype == safetensors_dtype_of<value>(), path, ": '", name, "' must be ",
                          safetensors_dtype_of<value>(), " of shape ", std::span<const std::size_t>(own.shape), "; the file has ", tensor->dtype,
                          " of ", std::span<const std::size_t>(tensor->shape));
    const auto to = span.subspan(own.at, own.count);
    if (own.like_weight && entry.spec.cut.exists()) {
      std::vector<value> shard(entry.size());
      entry.spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t count) {
        read_elements(*tensor, whole, std::as_writable_bytes(std::span<value>(shard).subspan(here, count)));
      });
      pipe.to_device(stream, to, std::span<const value>(shard).subspan(own.first, own.count));
    } else {
      pipe.template to_device<value>(
          stream, own.count,
          [&](std::size_t first, std::span<value> piece) { read_elements(*tensor, own.first + first, std::as_writable_bytes(piece)); },
          [&](std::size_t first, std::span<const value> piece) { copy_to_device(stream, to.subspan(first, piece.size()), piece); });
    }
  });
}

}  // namespace xtrain
