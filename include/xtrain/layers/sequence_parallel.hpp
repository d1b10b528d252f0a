// Sequence parallelism of the library's layers and models: token shards between tensor-parallel layers.
// [Korthikanti et al. 2022, "Reducing activation recomputation", section 4.2.2]
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Starts sequence parallelism if the strategy has it; called with the batch known.
///   throws  shape_error when tokens are not divisible by ranks
template <class Recipe>
void begin_sequence_parallel([[maybe_unused]] pass<Recipe>& p) {
  if constexpr (pass<Recipe>::may_be_sequence_parallel) {
    const std::size_t ranks = sequence_parallel_ranks(p.internal.parallel);
    require<shape_error>(p.batch.n() % ranks == 0, "sequence: the ", ranks, " sequence-parallel ranks must have equal shards of the batch's tokens; given ",
                         p.batch.n());
    p.internal.has_sequence_parallel = ranks > 1;
  }
}

/// All-gather of x's tokens over tensor-parallel ranks; temporary, or x itself.
template <class Recipe>
[[nodiscard]] matrix_view<const typename pass<Recipe>::compute, typename pass<Recipe>::memory> gather_from_sequence_parallel_region(
    [[maybe_unused]] pass<Recipe>& p, matrix_view<const typename pass<Recipe>::compute, typename pass<Recipe>::memory> x) {
  if constexpr (pass<Recipe>::may_be_sequence_parallel) {
    if (!p.internal.has_sequence_parallel) return x;
    const auto whole = p.temporary(p.tokens_in_layer(x.shape(0)), x.shape(1));
    p.internal.parallel.tensor().all_gather(p.stream, x.span(), whole.span());
    return whole;
  } else {
    return x;
  }
}

/// Reduce-scatter of x (all tokens): y (this rank's tokens) written or added to.
template <class Recipe>
void reduce_scatter_to_sequence_parallel_region([[maybe_unused]] pass<Recipe>& p,
                                                [[maybe_unused]] matrix_view<const typename pass<Recipe>::compute, typename pass<Recipe>::memory> x,
                                                [[maybe_unused]] matrix_view<typename pass<Recipe>::compute, typename pass<Recipe>::memory> y,
                                                [[maybe_unused]] ops::result write_mode) {
  if constexpr (pass<Recipe>::may_be_sequence_parallel) {
    const auto scope = p.scope();
    const auto sum = write_mode == ops::result::replaces ? y : p.temporary(y.shape(0), y.shape(1));
    p.internal.parallel.tensor().reduce_scatter(p.stream, x.span(), sum.span(), reduction::sum);
    if (write_mode == ops::result::is_added) ops::add(p, matrix_view<const typename pass<Recipe>::compute, typename pass<Recipe>::memory>(sum), y);
  }
}

/// Sums x over ranks; rows of other ranks' tokens are 0. Nothing without sequence parallelism.
template <class Recipe>
void sum_over_sequence_parallel_region([[maybe_unused]] pass<Recipe>& p,
                                       [[maybe_unused]] matrix_view<typename pass<Recipe>::compute, typename pass<Recipe>::memory> x) {
  if constexpr (pass<Recipe>::may_be_sequence_parallel) {
    if (p.internal.has_sequence_parallel) p.internal.parallel.tensor().all_reduce(p.stream, x.span(), reduction::sum);
  }
}

/// Tokens of an activation under sequence parallelism.
enum class token_layout_kind : std::uint8_t {
  sequence_sharded,  ///< this rank's: between tensor-parallel layers
  whole,             ///< all: within tensor-parallel layers
};

/// Checks the layout of a tensor-parallel layer's argument, in the dry run too.
///   throws  shape_error
template <class Recipe>
void require_layout(const pass<Recipe>& p, std::size_t rows, token_layout_kind layout, const char* what) {
  if constexpr (pass<Recipe>::may_be_sequence_parallel) {
    if (!p.internal.has_sequence_parallel) return;
    const bool sharded = layout == token_layout_kind::sequence_sharded;
    const std::size_t tokens = sharded ? p.sequence_parallel_tokens() : p.batch.n();
    require<shape_error>(rows == tokens, what, " must have ", sharded ? "this rank's " : "all ", tokens, " tokens of the batch, as activations ",
                         sharded ? "between" : "within", " tensor-parallel layers have under sequence parallelism; given ", rows,
                         " rows; see layers/README.md");
  }
}

}  // namespace xtrain
