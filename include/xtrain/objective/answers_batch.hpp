#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/batch.hpp>

namespace xtrain::detail {

/// One answer per sequence, and no values that the objective `who` ignores.
///   throws  data_error
inline void require_answers(std::string_view who, const batch_view& batch) {
  const std::size_t n = batch.b * batch.t;
  require<data_error>(batch.targets.size() == n, who, ": every token of a batch must have a label, or a negative one; given ", batch.targets.size(),
                      " labels for ", n, " tokens");
  require<data_error>(batch.token_weights.empty() && batch.reference_log_probs.empty(), who,
                      ": a batch must not have weights per token, or reference log-probabilities per sequence");
  for (std::size_t i = 0; i < batch.starts.size(); ++i)
    require<data_error>(batch.starts[i] == 0 || batch.targets[i] < 0, who, ": a sequence must hold one answer; sequence ", i / batch.t,
                        " holds a second one at token ", i % batch.t, ". Do not pack answers");
}

/// A finite value for every target.
///   from    what makes the values
///   throws  data_error
template <class T>
void require_token_values(std::string_view who, std::string_view what, std::string_view from, const batch_view& batch, std::span<const T> values) {
  const std::size_t n = batch.b * batch.t;
  require<data_error>(values.size() == n, who, ": ", what, " must be given for every token; given ", values.size(), " for ", n,
                      ". They are of generated answers (", from, "), a dataset has none");
  for (std::size_t i = 0; i < n; ++i)
    require<data_error>(batch.targets[i] < 0 || std::isfinite(values[i]), who, ": ", what, " must be finite; token ", i, " has ", values[i]);
}

}  // namespace xtrain::detail
