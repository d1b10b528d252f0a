// Checks of batches on the host: kernels do not check their inputs.
#pragma once

#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// `rows` has t, tokens and positions (or none), and what the model itself checks; `who` begins the message.
///   throws  shape_error when sequences are longer than the model's maximum; data_error when a token is not in the vocabulary or a position
///           is out of range
template <class Model, class Rows>
void require_batch(const Model& model, const Rows& rows, const char* who) {
  const std::size_t vocabulary = model.config().vocab_size, context = model.config().max_position_embeddings;
  require<shape_error>(rows.t <= context, who, ": sequences must not be longer than the model's max_position_embeddings of ", context, " tokens; given ",
                       rows.t);
  const auto require_below = [&](std::span<const token> values, std::size_t limit, const char* what, const char* where) {
    for (std::size_t i = 0; i < values.size(); ++i)
      require<data_error>(values[i] >= 0 && static_cast<std::size_t>(values[i]) < limit, who, ": ", what, " must be in the model's ", where, " of ",
                          limit, "; given ", values[i], " at index ", i);
  };
  require_below(rows.tokens, vocabulary, "tokens", "vocabulary");
  require_below(rows.positions, context, "positions", "max_position_embeddings");
  if constexpr (requires { model.require_batch(rows); }) model.require_batch(rows);
}

}  // namespace xtrain::detail
