// Refuses batches whose targets are their own tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/objective/next_token.hpp>

namespace xtrain::detail {

/// Every target is its token, although the next token of the sample is another, and has a target, unlike padding. A sample of equal tokens is not meant. Ends
/// at the first target that is not its token: early in other batches.
[[nodiscard]] inline bool targets_are_their_tokens(const batch_view& batch) {
  if (batch.targets.size() != batch.tokens.size()) return false;
  bool is_another = false;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const token target = batch.targets[i];
    if (target < 0) continue;
    if (target != batch.tokens[i]) return false;
    const bool has_next = (i + 1) % batch.t != 0 && batch.targets[i + 1] >= 0 && (batch.starts.empty() || batch.starts[i + 1] == batch.starts[i]);
    is_another = is_another || (has_next && batch.tokens[i + 1] != target);
  }
  return is_another;
}

/// For models that predict the next token.
///   throws  data_error
template <class Model>
void require_shifted_targets(std::span<const batch_view> batches) {
  if constexpr (causal_model<Model> && std::is_same_v<typename Model::recipe::objective, next_token>)
    require<data_error>(std::none_of(batches.begin(), batches.end(), targets_are_their_tokens),
                        "trainer: a token's target must be the token after it; all targets of a micro-batch are its own tokens. Where that is meant, give "
                        "the trainer {.check_targets = false}");
}

}  // namespace xtrain::detail
