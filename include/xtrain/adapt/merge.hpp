// Merges adapters into weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/arena.hpp>

namespace xtrain {

namespace detail {

/// An adapter's update of a weight [rows, columns], on the host.
template <class T>
struct low_rank_change {
  using sum = accumulate_t<T>;
  std::size_t rows = 0, columns = 0, rank = 0;
  std::vector<sum> left{};     // [rows, rank]
  std::vector<sum> right{};    // [rank, columns]
  std::vector<sum> lengths{};  // row norms after the update (DoRA); empty: unchanged
  double scale = 1.0;

  /// weight += scale · left · right, then rows scaled to `lengths`; rounded once.
  void apply(std::span<T> weight) const {
    constexpr std::size_t rows_per_part = 64;
    const auto pool = thread_pool::shared();
    const auto change_rows = [&](std::size_t part, std::size_t) {
      std::vector<sum> row(columns);
      for (std::size_t o = part * rows_per_part; o < std::min(rows, (part + 1) * rows_per_part); ++o)
        change_row(weight.subspan(o * columns, columns), o, row);
    };
    pool->run((rows + rows_per_part - 1) / rows_per_part, pool->threads(), change_rows);
  }

 private:
  void change_row(std::span<T> weight, std::size_t o, std::vector<sum>& row) const {
    std::fill(row.begin(), row.end(), sum{0});
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t i = 0; i < columns; ++i) row[i] += left[o * rank + k] * right[k * columns + i];
    double squares = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      row[i] = static_cast<sum>(weight[i]) + static_cast<sum>(scale) * row[i];
      squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    const double stretch = lengths.empty() || squares == 0 ? 1.0 : static_cast<double>(lengths[o]) / std::sqrt(squares);
    for (std::size_t i = 0; i < columns; ++i) weight[i] = static_cast<T>(row[i] * static_cast<sum>(stretch));
  }
};

template <class Model, class Entry>
void apply_change(Model& model, const Entry& entry, const low_rank_change<typename Model::compute>& change) {
  model.parameters().require_whole("lora: merging an adapter");
  std::vector<typename Model::compute> weight(entry.size());
  const auto on_device = model.parameters().value(entry);
  copy_to_host(model.stream(), std::span(weight), on_device);
  model.stream().synchronize();
  change.apply(weight);
  copy_to_device(model.stream(), on_device, weight);
  model.stream().synchronize();
}

/// A tied head would change with an adapted embedding.
template <class Model>
void require_head_apart(const Model& model, const std::string& table) {
  require<config_error>(!model.config().tie_word_embeddings || table != model.family_info().embedding_name(), "lora: an adapter of '", table,
                          "' must not be merged where the head is tied to it: the head would change too");
}

}  // namespace detail

namespace detail {

/// Calls visit(rows of the weight, first row of B, first row of A) for an adapter, or for each part of a fused module.
template <class Visit>
void for_each_part(const parameter_spec& b, Visit&& visit) {
  if (b.blocks_in_files == nullptr) return visit(row_range{0, b.shape[0]}, std::size_t{0}, std::size_t{0});
  std::size_t first_b = 0, first_a = 0;
  for (const row_range& block : b.blocks_in_files->blocks) {
    visit(block, first_b, first_a);
    first_b += block.count, first_a += b.shape[1];
  }
}

}  // namespace detail

/// Adds updates to the weights, rounded once, and reinitializes the adapters: the model's output is unchanged. The model cannot be saved then: save the
/// adapter first, and merge its folder into a plain model.
///   throws  config_error when an adapted embedding is tied to the head
template <class Model>
void merge_adapter(Model& model) requires std::is_same_v<typename Model::recipe::adapter, lora> {
  using device = typename Model::device;
  using compute = typename Model::compute;
  using matrix = matrix_view<compute, typename Model::memory>;
  using entry = typename Model::store::entry;
  auto& store = model.parameters();
  store.require_whole("merge_adapter");
  for (const auto& e : store.entries())
    require<config_error>(!e.spec.quantized, "merge_adapter: weights must be numbers; '", e.spec.name,
                          "' is stored in blocks. Save the adapter, and merge its folder into a model without one: merge_adapter(plain, folder)");
  const lora_config& c = model.settings().adapter;
  std::size_t scratch = 0, rank = c.rank;
  for (const auto& [name, r] : c.rank_pattern) rank = std::max(rank, r);
  for (const auto& e : store.entries()) {
    if (e.spec.name.ends_with(lora_names::table_a)) detail::require_head_apart(model, module_of(e.spec.name));
    if (e.spec.shape.size() != 2) continue;
    for (const bool transposed : {false, true})
      scratch = std::max(scratch, scratch_bytes(model.context().properties(),
                                                kernel::matmul<typename Model::memory, compute>{
                                                    .m = e.spec.shape[0], .n = e.spec.shape[1], .k = rank, .transpose_b = transposed}));
  }
  arena<device> workspace(model.context(), scratch + 2 * arena<device>::alignment, memory_role::workspace);
  execution<device> on{model.stream(), workspace, model.context().properties()};
  const auto view = [&](const entry& e) { return matrix(store.value(e), {e.spec.shape[0], e.spec.shape[1]}); };
  const auto numbers = [&](const entry& e) {
    std::vector<compute> host(e.size());
    copy_to_host(model.stream(), std::span(host), store.value(e));
    model.stream().synchronize();
    return std::vector<accumulate_t<compute>>(host.begin(), host.end());
  };
  for (const entry& a : store.entries()) {
    const std::string module(lora_names::module_beside(a.spec.name));
    if (a.spec.name.ends_with(lora_names::table_a)) {
      const entry& b = *store.find(concat(module, lora_names::table_b));
      ops::linear(on, view(a), view(b), {}, view(*store.find(module + ".weight")), ops::result::is_added, c.scale_of(module));
      fill_zero(on.stream, store.value(a));
    }
    if (!a.spec.name.ends_with(lora_names::a)) continue;
    const entry& b = *store.find(concat(module, lora_names::b));
    const entry& weight = *store.find(module + ".weight");
    if (const entry* m = store.find(concat(module, lora_names::magnitude)))
      detail::apply_change(model, weight,
                           {.rows = weight.spec.shape[0],
                            .columns = weight.spec.shape[1],
                            .rank = a.spec.shape[0],
                            .left = numbers(b),
                            .right = numbers(a),
                            .lengths = numbers(*m),
                            .scale = c.scale_of(module)});
    else
      detail::for_each_part(b.spec, [&](row_range of_weight, std::size_t first_b, std::size_t first_a) {
        // W [out, in] += scale · B [out, rank] · A [rank, in] is a linear layer's input gradient
        ops::linear_backward_input(on, view(b).rows(first_b, of_weight.count), view(a).rows(first_a, b.spec.shape[1]),
                                   view(weight).rows(of_weight.begin, of_weight.count), ops::result::is_added, c.scale_of(module));
      });
    fill_zero(on.stream, store.value(b));
  }
  model.stream().synchronize();
  model.on_weights_loaded();
  store.note_merged_adapter(true);
}

}  // namespace xtrain
