// Checks of host batches: kernels do not check inputs.
#pragma once

#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/positions.hpp>
#include <xtrain/models/concepts.hpp>

namespace xtrain::detail {

/// Host batches must have positions: the model uses them and its attention mask does not give them.
template <class Model>
[[nodiscard]] bool needs_positions(const Model& model) {
  if (attention_mask_of(model).kind != attention_mask::rule::causal) return false;
  if constexpr (clause::model_has_a_family<Model>) {
    const auto& sizes = model.config();
    const position_kind kind = sizes.family->positions;
    const bool turns = kind == position_kind::rotary || kind == position_kind::rotary_2d || (kind == position_kind::rotary_or_alibi && !sizes.alibi);
    return turns || (kind == position_kind::none && !sizes.family->names().positions.empty());
  }
  return false;
}

///   who     begins the message
///   throws  shape_error when sequences exceed the model's maximum; data_error when there is no token, a token or position is out of range, or
///           positions are missing
template <class Model>
void require_batch(const Model& model, const batch_view& rows, const char* who) {
  const std::size_t vocabulary = model.config().vocab_size, context = model.config().max_position_embeddings;
  require<data_error>(rows.b > 0 && rows.t > 0, who, ": a batch must have at least one sequence of at least one token; given ", rows.b, " sequences of ",
                      rows.t);
  require<shape_error>(rows.t <= context, who, ": sequences must not be longer than the model's max_position_embeddings of ", context, " tokens; given ",
                       rows.t);
  const auto require_below = [&](std::span<const token> values, std::size_t limit, const char* what, const char* where) {
    for (std::size_t i = 0; i < values.size(); ++i)
      require<data_error>(values[i] >= 0 && static_cast<std::size_t>(values[i]) < limit, who, ": ", what, " must be in the model's ", where, " of ",
                          limit, "; given ", values[i], " at index ", i);
  };
  require<shape_error>(rows.tokens.size() == rows.b * rows.t, who, ": tokens must be ", rows.b * rows.t, ", for ", rows.b, " sequences of ", rows.t,
                       "; given ", rows.tokens.size());
  require<data_error>(!rows.positions.empty() || !needs_positions(model), who, ": positions must be given, one for each of the ", rows.b * rows.t,
                      " tokens: its index in its sample, from 0; a batch has none");
  require_below(rows.tokens, vocabulary, "tokens", "vocabulary");
  require_below(rows.positions, context, "positions", "max_position_embeddings");
  if constexpr (clause::model_checks_batches<Model>) model.require_batch(rows);
}

}  // namespace xtrain::detail
