#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/random.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/layers/pass_internal.hpp>
#include <xtrain/layers/token_dropout.hpp>
#include <xtrain/ops/blocks.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/nf4.hpp>
#include <xtrain/ops/row_integers.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain {

/// Only training saves activations and applies dropout.
enum class pass_mode : std::uint8_t { training, evaluation };

/// References for one forward and its backward.
template <class Recipe>
class pass : public execution<typename Recipe::device> {
 public:
  using device = typename Recipe::device;
  using memory = typename device::memory;
  using compute = typename Recipe::precision::compute;
  using gradient_type = typename Recipe::precision::gradient;
  using store = parameter_store<device, typename Recipe::precision>;
  using parallel_state = typename Recipe::parallel::template state<device>;
  static constexpr bool may_be_sequence_parallel = has_sequence_parallel_of<parallel_state>;

  pass(execution<device> on, const store& all_parameters, stash<device>& save_in, parallel_state& strategy)
      : execution<device>(on), parameters(all_parameters), saved(save_in), internal{.parallel = strategy} {}

  const store& parameters;
  stash<device>& saved;
  device_batch<device> batch{};
  pass_mode mode = pass_mode::training;
  random_site random{};         // seed and step
  kernel::scalar<memory> gradient_scale{};  // per token's loss: loss scale / targets in the global batch; on the device
  double label_weight = 1.0;    // of a sequence's label, in targets
  pass_internal<Recipe> internal;

  [[nodiscard]] bool trains() const { return mode == pass_mode::training; }

  /// Temporary memory is released at the end of the scope.
  [[nodiscard]] typename arena<device>::scope scope() { return typename arena<device>::scope(this->workspace); }
  [[nodiscard]] matrix_view<compute, memory> temporary(std::size_t rows, std::size_t columns) {
    return {this->workspace.template take<compute>(rows * columns), {rows, columns}};
  }

  // Tokens in the sequence-parallel region: n, or n/ranks consecutive tokens if sharded.
  [[nodiscard]] std::size_t sequence_parallel_tokens() const {
    return internal.has_sequence_parallel ? batch.n() / internal.parallel.tensor().size() : batch.n();
  }
  [[nodiscard]] std::size_t first_sequence_parallel_token() const {
    return internal.has_sequence_parallel ? internal.parallel.tensor().rank() * sequence_parallel_tokens() : 0;
  }
  /// Tokens in a tensor-parallel layer for `own` tokens in the sequence-parallel region.
  [[nodiscard]] std::size_t tokens_in_layer(std::size_t own) const {
    return internal.has_sequence_parallel ? own * internal.parallel.tensor().size() : own;
  }

  /// Stash memory, popped by this layer's backward.
  [[nodiscard]] matrix_view<compute, memory> save(std::size_t rows, std::size_t columns) {
    return {saved.template push<compute>(rows * columns), {rows, columns}};
  }
  [[nodiscard]] vector_view<accumulate_t<compute>, memory> save_sums(std::size_t n) {
    return {saved.template push<accumulate_t<compute>>(n), {n}};
  }
  [[nodiscard]] vector_view<token, memory> save_tokens(std::size_t n) { return {saved.template push<token>(n), {n}}; }
  matrix_view<compute, memory> pop_saved(std::size_t rows, std::size_t columns) {
    return {saved.template pop<compute>(rows * columns), {rows, columns}};
  }
  [[nodiscard]] vector_view<accumulate_t<compute>, memory> pop_saved_sums(std::size_t n) {
    return {saved.template pop<accumulate_t<compute>>(n), {n}};
  }
  [[nodiscard]] vector_view<token, memory> pop_saved_tokens(std::size_t n) { return {saved.template pop<token>(n), {n}}; }
  /// Saves an address that the backward needs before the memory is popped.
  void save_reference(matrix_view<compute, memory> what) { saved.push_reference(what.span()); }
  [[nodiscard]] matrix_view<compute, memory> saved_reference(std::size_t rows, std::size_t columns) {
    return {saved.template pop_reference<compute>(rows * columns), {rows, columns}};
  }

  [[nodiscard]] matrix_view<const compute, memory> matrix(parameter p) const { return {parameters.value(p), matrix_shape(p)}; }
  /// A quantized matrix is dequantized into temporary memory.
  [[nodiscard]] matrix_view<const compute, memory> weight(parameter p) {
    if constexpr (quantizes_weights<typename Recipe::adapter> || stores_blocks<typename Recipe::adapter>) {
      if (parameters.is_quantized(p)) return dequantized(p);
    }
    return matrix(p);
  }
  [[nodiscard]] vector_view<const compute, memory> vector(parameter p) const {
    if (!p.exists()) return {};
    return {parameters.value(p), {parameters.size(p)}};
  }
  /// Empty if the parameter is frozen.
  [[nodiscard]] matrix_view<gradient_type, memory> matrix_gradient(parameter p) const {
    const auto span = gradient_now(p);
    if (span.empty()) return {};
    return {span, matrix_shape(p)};
  }
  [[nodiscard]] vector_view<gradient_type, memory> vector_gradient(parameter p) const {
    const auto span = gradient_now(p);
    if (span.empty()) return {};
    return {span, {span.size()}};
  }

  /// Forward y = x · Wᵀ: dw += dyᵀ · x, at once or in the second part (W) of a split backward.
  void add_weight_gradient(parameter weight, matrix_view<const compute, memory> dy, matrix_view<const compute, memory> x) {
    const auto gradient = parameters.gradient(weight);
    if (gradient.empty()) return;
    const matrix_view<gradient_type, memory> dw{gradient, matrix_shape(weight)};
    if constexpr (splits_backwards<Recipe>) {
      if (internal.deferred != nullptr) return internal.deferred->defer(*this, block_of(weight), dy, x, dw);
    }
    ops::linear_backward_weight(*this, dy, x, dw);
  }

  /// A site's random numbers: a function of the sequence and element, not of micro-batch or rank.
  [[nodiscard]] random_site random_at(std::uint32_t site, std::size_t elements_per_row) const {
    random_site at = random;
    at.site = site;
    at.first = batch.first_sequence * elements_per_row;
    return at;
  }
  /// y = dropout(x), or y += dropout(x), at a site; x, y [n, channels]. Random numbers depend on token and element only.
  ///   first_channel, whole_channels   sharded channels: first of x, number over all ranks; 0: x has all
  void dropout(matrix_view<const compute, memory> x, double probability, std::uint32_t site, matrix_view<compute, memory> y,
               ops::result write_mode = ops::result::replaces, std::size_t first_channel = 0, std::size_t whole_channels = 0) {
    const std::size_t c = whole_channels == 0 ? x.shape(1) : whole_channels;
    if (internal.rows_are_sequences) return ops::dropout(*this, x, probability, random_at(site, c), y, write_mode);
    const std::size_t per_row = batch.whole_seq_length() * c;
    random_site at = random_at(site, per_row);
    at.first += first_channel;
    if (internal.origin.ranks > 0) return detail::dropout_of_dispatched(*this, internal.origin, x, probability, at, batch.b * per_row, y, write_mode);
    const std::size_t first = internal.has_sequence_parallel && x.shape(0) == sequence_parallel_tokens() ? first_sequence_parallel_token() : 0;
    if (batch.is_part()) return detail::dropout_of_ranges(*this, batch, x, first, probability, at, y, write_mode, whole_channels);
    at.first += first * c;
    ops::dropout(*this, x, probability, at, y, write_mode, whole_channels);
  }

 private:
  [[nodiscard]] std::size_t block_of(parameter p) const { return parameters.entries()[p.first()].block; }
  /// Where the first part (B) of a backward adds gradients. Shared gradient windows hold a block only in the second part (W).
  [[nodiscard]] device_span<gradient_type, memory> gradient_now(parameter p) const {
    const auto span = parameters.gradient(p);
    if constexpr (splits_backwards<Recipe>) {
      if (internal.deferred != nullptr && parameters.sharding().gradients && !span.empty())
        return internal.deferred->deferred_sum(this->stream, block_of(p), span);
    }
    return span;
  }
  [[nodiscard]] matrix_view<const compute, memory> dequantized(parameter p) {
    const shape_of_rank<2> shape = matrix_shape(p);
    const auto values = temporary(shape[0], shape[1]);
    std::size_t row = 0;
    for (std::uint32_t i = p.first(); i < p.first() + p.count(); ++i) {
      const auto& entry = parameters.entries()[i];
      const std::size_t rows = entry.spec.shape[0];
      const auto to = values.rows(row, rows).template reshaped<1>({entry.size()});
      if constexpr (stores_blocks<typename Recipe::adapter>) ops::dequantize(*this, parameters.in_blocks(entry), to);
      else if constexpr (has_hook<typename Recipe::adapter, hook::weight_bits>) ops::dequantize(*this, parameters.integers(entry), to);
      else ops::dequantize(*this, parameters.quantized(entry), to);
      row += rows;
    }
    return values;
  }
  [[nodiscard]] shape_of_rank<2> matrix_shape(parameter p) const {
    const std::size_t columns = parameters.entries()[p.first()].spec.shape[1];
    return {parameters.size(p) / columns, columns};
  }
};

}  // namespace xtrain
