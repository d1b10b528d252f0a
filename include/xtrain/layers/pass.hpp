// The state of one forward and backward pass of a batch: stream, workspace, parameters, saved activations.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/nf4.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Training saves activations for the backward and applies dropout; evaluation does neither.
enum class pass_mode : std::uint8_t { training, evaluation };

/// Key/value cache of earlier tokens, for generation. `lengths_b`: cached tokens per sequence.
template <class Device, class T>
struct cache_view {
  std::size_t capacity = 0;
  vector_view<const token, typename Device::memory> lengths_b{};
  matrix_view<T, typename Device::memory> keys{};    // [layers·b·k, capacity·d]
  matrix_view<T, typename Device::memory> values{};  // likewise
  bool is_empty = false;                             // nothing is cached yet: an adapter's prefix goes first
};

/// More experts than any published model has; a layer counts the tokens of each on the host, where a step must not allocate.
inline constexpr std::size_t max_experts = 512;

/// Load of the experts of each layer, for the load-balancing loss. Each layer writes its own row; when all have, the gradient of that loss
/// is known: it is the same for every token of the batch and every layer.
template <class Device, class T>
struct expert_load {
  matrix_view<token, typename Device::memory> count_le{};
  matrix_view<accumulate_t<T>, typename Device::memory> probability_le{};  // summed over tokens
  vector_view<accumulate_t<T>, typename Device::memory> dprobability_e{};

  [[nodiscard]] bool exists() const { return count_le.exists(); }
};

/// Memory that passes need.
struct pass_sizes {
  std::size_t layer_inputs = 0;  // bytes of checkpointed layer inputs
  std::size_t saved = 0;         // bytes of activations that blocks save for the backward
  std::size_t workspace = 0;     // bytes of everything temporary
  std::size_t layer_input_entries = 0, saved_entries = 0;
  std::size_t deferred = 0;  // bytes of the copied factors of deferred weight gradients
  std::size_t deferred_entries = 0;

  [[nodiscard]] std::size_t stash() const { return layer_inputs + saved; }
};

/// A tensor-parallel strategy may also have sequence parallelism: its state declares it.
template <class State>
inline constexpr bool has_sequence_parallel_of = [] {
  if constexpr (requires { State::has_sequence_parallel; }) return State::has_sequence_parallel;
  else return false;
}();

/// The number of ranks that shard the sequence-parallel region.
template <class State>
[[nodiscard]] std::size_t sequence_parallel_ranks([[maybe_unused]] State& state) {
  if constexpr (has_sequence_parallel_of<State>) return state.tensor().size();
  else return 1;
}

/// Rows that the ranks dispatched to one expert, in rank order; a layer works on those from `first` on.
struct rows_of_ranks {
  std::array<std::size_t, max_experts> counts{};
  std::size_t ranks = 0, rank = 0, first = 0;  // ranks = 0: rows are this rank's own
};

/// One pass of a batch: a bundle of references, created for one forward and its backward.
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
      : execution<device>(on), parameters(all_parameters), saved(save_in), parallel(strategy) {}

  const store& parameters;
  stash<device>& saved;
  parallel_state& parallel;
  device_batch<device> batch{};
  pass_mode mode = pass_mode::training;
  random_site random{};         // seed and step
  double gradient_scale = 1.0;  // of each token's loss: 1 / targets in the global batch, times the loss scale
  double label_weight = 1.0;    // weight of a sequence's label, in targets
  std::size_t number = 0;       // index among the in-flight passes
  const cache_view<device, compute>* cache = nullptr;
  expert_load<device, compute> load{};                                     // if there is a load-balancing loss
  deferred_gradients<device, compute, gradient_type>* deferred = nullptr;  // takes the deferred products of a backward in two parts
  // in the sequence-parallel region, between sharded layers, each tensor-parallel rank has a shard of the tokens
  bool has_sequence_parallel = false;
  rows_of_ranks origin{};                                                  // while an expert works on rows dispatched by other ranks

  [[nodiscard]] bool trains() const { return mode == pass_mode::training; }

  /// Temporary memory that is released at the end of the caller's scope.
  [[nodiscard]] typename arena<device>::scope scope() { return typename arena<device>::scope(this->workspace); }
  [[nodiscard]] matrix_view<compute, memory> temporary(std::size_t rows, std::size_t columns) {
    return {this->workspace.template take<compute>(rows * columns), {rows, columns}};
  }

  /// Starts sequence parallelism for this pass, if the strategy has it. Called when the batch is known.
  ///   throws  shape_error when the batch's tokens are not divisible by the ranks
  void begin_sequence_parallel() {
    if constexpr (may_be_sequence_parallel) {
      const std::size_t ranks = sequence_parallel_ranks(parallel);
      require<shape_error>(batch.n() % ranks == 0, "sequence: the ", ranks, " sequence-parallel ranks must have equal shards of the batch's tokens; given ",
                           batch.n());
      has_sequence_parallel = ranks > 1;
    }
  }
  // Tokens in the sequence-parallel region: n, or if sharded, n/ranks consecutive tokens of the batch's sequences in order.
  [[nodiscard]] std::size_t sequence_parallel_tokens() const { return has_sequence_parallel ? batch.n() / parallel.tensor().size() : batch.n(); }
  [[nodiscard]] std::size_t first_sequence_parallel_token() const { return has_sequence_parallel ? parallel.tensor().rank() * sequence_parallel_tokens() : 0; }
  /// The number of tokens within a layer, given the number `own` in the sequence-parallel region.
  [[nodiscard]] std::size_t tokens_in_layer(std::size_t own) const { return has_sequence_parallel ? own * parallel.tensor().size() : own; }
  /// All-gather of the tokens of x over the tensor-parallel ranks under sequence parallelism; temporary, or x itself.
  [[nodiscard]] matrix_view<const compute, memory> gather_sequence(matrix_view<const compute, memory> x) {
    if constexpr (may_be_sequence_parallel) {
      if (!has_sequence_parallel) return x;
      const auto whole = temporary(tokens_in_layer(x.shape(0)), x.shape(1));
      parallel.tensor().all_gather(this->stream, x.span(), whole.span());
      return whole;
    } else {
      return x;
    }
  }
  /// Reduce-scatter of x, which has all tokens: y written or added to, with this rank's tokens of the sum.
  void reduce_scatter_sequence(matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result how) {
    if constexpr (may_be_sequence_parallel) {
      const auto inner = scope();
      const auto sum = how == ops::result::replaces ? y : temporary(y.shape(0), y.shape(1));
      parallel.tensor().reduce_scatter(this->stream, x.span(), sum.span(), reduction::sum);
      if (how == ops::result::is_added) ops::add(*this, matrix_view<const compute, memory>(sum), y);
    }
  }

  /// Memory in the stash that this layer's backward will pop.
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
  /// Saves an address that this layer's backward needs before it can pop the memory.
  void save_reference(matrix_view<compute, memory> what) { saved.push_reference(what.span()); }
  [[nodiscard]] matrix_view<compute, memory> saved_reference(std::size_t rows, std::size_t columns) {
    return {saved.template pop_reference<compute>(rows * columns), {rows, columns}};
  }

  [[nodiscard]] matrix_view<const compute, memory> matrix(parameter p) const { return {parameters.value(p), matrix_shape(p)}; }
  /// The same for a matrix that may be quantized: it is dequantized into temporary memory.
  [[nodiscard]] matrix_view<const compute, memory> weight(parameter p) {
    if constexpr (quantises_weights<typename Recipe::adapter>) {
      if (parameters.is_quantised(p)) return dequantised(p);
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

  /// For a weight with forward y = x · Wᵀ: dw += dyᵀ · x, now, or deferred to the second part (W) of a split backward.
  void add_weight_gradient(parameter weight, matrix_view<const compute, memory> dy, matrix_view<const compute, memory> x) {
    const auto gradient = parameters.gradient(weight);
    if (gradient.empty()) return;
    const matrix_view<gradient_type, memory> dw{gradient, matrix_shape(weight)};
    if constexpr (splits_backwards<Recipe>) {
      if (deferred != nullptr) return deferred->defer(*this, block_of(weight), dy, x, dw);
    }
    ops::linear_backward_weight(*this, dy, x, dw);
  }

  /// The random stream of a site in the model. Element i of a sequence is the same random element in whichever micro-batch and on
  /// whichever rank the sequence is processed.
  [[nodiscard]] random_site random_at(std::uint32_t site, std::size_t elements_per_row) const {
    random_site at = random;
    at.site = site;
    at.first = batch.first_sequence * elements_per_row;
    return at;
  }
  /// y = dropout(x), or y += dropout(x), at a site in the model; x and y [n, channels]. Element i of a token draws the same random number
  /// wherever the token is processed.
  void dropout(matrix_view<const compute, memory> x, double probability, std::uint32_t site, matrix_view<compute, memory> y,
               ops::result how = ops::result::replaces) {
    const std::size_t c = x.shape(1), per_row = batch.whole_seq_length() * c;
    random_site at = random_at(site, per_row);
    if (origin.ranks > 0) return dropout_of_ranks(x, probability, at, batch.b * per_row, y, how);
    const std::size_t first = has_sequence_parallel && x.shape(0) != batch.n() ? first_sequence_parallel_token() : 0;
    if (batch.is_part()) return dropout_of_part(x, first, probability, at, y, how);
    at.first += first * c;
    ops::dropout(*this, x, probability, at, y, how);
  }

 private:
  [[nodiscard]] std::size_t block_of(parameter p) const { return parameters.entries()[p.first()].block; }
  /// Where the first part (B) of a backward adds gradients. If blocks share gradient windows, a block has one in the second part (W) only.
  [[nodiscard]] device_span<gradient_type, memory> gradient_now(parameter p) const {
    const auto span = parameters.gradient(p);
    if constexpr (splits_backwards<Recipe>) {
      if (deferred != nullptr && parameters.sharding().gradients && !span.empty()) return deferred->deferred_sum(this->stream, block_of(p), span);
    }
    return span;
  }
  /// x has consecutive tokens of this rank's, from token `first` on; they are in ranges of whole sequences.
  void dropout_of_part(matrix_view<const compute, memory> x, std::size_t first, double probability, const random_site& at,
                       matrix_view<compute, memory> y, ops::result how) {
    const std::size_t c = x.shape(1), last = first + x.shape(0);
    std::size_t begin = 0;  // of the range, among this rank's tokens
    for (std::size_t row = 0; row < batch.b; ++row) {
      for (const auto& range : batch.own_ranges) {
        const std::size_t end = begin + range.count, from = std::max(begin, first), to = std::min(end, last);
        if (from < to) {
          random_site here = at;
          here.first += (row * batch.whole_t + range.begin + from - begin) * c;
          ops::dropout(*this, x.rows(from - first, to - from), probability, here, y.rows(from - first, to - from), how);
        }
        begin = end;
      }
    }
  }
  /// Rows dispatched by each rank draw the random numbers that rank would draw. Adjacent ranks process consecutive sequences, equally many.
  void dropout_of_ranks(matrix_view<const compute, memory> x, double probability, random_site at, std::size_t elements_of_rank,
                        matrix_view<compute, memory> y, ops::result how) {
    at.first -= origin.rank * elements_of_rank;
    std::size_t begin = 0;  // of the rank's rows, among all rows of the expert
    for (std::size_t rank = 0; rank < origin.ranks; ++rank, at.first += elements_of_rank) {
      const std::size_t end = begin + origin.counts[rank];
      const std::size_t first = std::max(begin, origin.first), last = std::min(end, origin.first + x.shape(0));
      if (first < last) {
        random_site here = at;
        here.first += (first - begin) * x.shape(1);
        ops::dropout(*this, x.rows(first - origin.first, last - first), probability, here, y.rows(first - origin.first, last - first), how);
      }
      begin = end;
    }
  }
  [[nodiscard]] matrix_view<const compute, memory> dequantised(parameter p) {
    const shape_of_rank<2> shape = matrix_shape(p);
    const auto values = temporary(shape[0], shape[1]);
    std::size_t row = 0;
    for (std::uint32_t i = p.first(); i < p.first() + p.count(); ++i) {
      const auto& entry = parameters.entries()[i];
      const std::size_t rows = entry.spec.shape[0];
      ops::dequantise(*this, parameters.quantised(entry), values.rows(row, rows).template reshaped<1>({entry.size()}));
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
