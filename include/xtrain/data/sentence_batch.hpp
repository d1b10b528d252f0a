// A micro-batch of padded sentences for bidirectional models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>

namespace xtrain {

/// Hugging Face's input_ids, token_type_ids, attention_mask and labels: b sequences of t tokens, b labels. Empty: not given.
struct sentence_rows {
  std::size_t b = 0, t = 0;
  std::span<const token> tokens{};
  std::span<const token> segments{};  // token_type_ids; not given: 0
  std::span<const token> mask{};      // attention_mask: 0 for padding, at the end; not given: no padding
  std::span<const token> targets{};   // original tokens of masked positions; negative: ignored by the loss
  std::span<const token> labels{};    // per sequence; negative: none
};

/// Every token attends to its sequence without padding.
///   throws  shape_error if an array has another size, data_error if a mask is 0 before the end of a sequence, or everywhere
[[nodiscard]] inline host_batch sentence_batch(const sentence_rows& rows, std::size_t first_sequence = 0) {
  const std::size_t n = rows.b * rows.t;
  const auto require_size = [](std::span<const token> values, std::size_t size, const char* what, bool given) {
    require<shape_error>(values.size() == size || (!given && values.empty()), "sentence_batch: ", what, " must be ", size, "; given ",
                         values.size());
  };
  require_size(rows.tokens, n, "tokens", true);
  require_size(rows.segments, n, "segments", false);
  require_size(rows.mask, n, "mask", false);
  require_size(rows.targets, n, "targets", false);
  require_size(rows.labels, rows.b, "labels", false);

  host_batch batch{.b = rows.b, .t = rows.t, .first_sequence = first_sequence};
  batch.tokens.assign(rows.tokens.begin(), rows.tokens.end());
  batch.segments.assign(rows.segments.begin(), rows.segments.end());
  batch.labels.assign(rows.labels.begin(), rows.labels.end());
  if (rows.targets.empty()) batch.targets.assign(n, -1);
  else batch.targets.assign(rows.targets.begin(), rows.targets.end());
  for (std::size_t row = 0; row < rows.b; ++row) {
    std::size_t length = rows.t;
    if (!rows.mask.empty()) {
      const auto mask = rows.mask.subspan(row * rows.t, rows.t);
      length = static_cast<std::size_t>(std::find(mask.begin(), mask.end(), 0) - mask.begin());
      require<data_error>(
          length > 0 && std::all_of(mask.begin() + static_cast<std::ptrdiff_t>(length), mask.end(), [](token m) { return m == 0; }),
          "sentence_batch: an attention mask must mask tokens at the end of a sequence, and not all; sequence ", row, " is masked from position ", length,
          " on, and not to its end");
    }
    for (std::size_t i = 0; i < rows.t; ++i) {
      batch.positions.push_back(static_cast<token>(i));
      batch.ends.push_back(static_cast<token>(length));
    }
    batch.token_count += length;
  }
  batch.target_count = static_cast<std::size_t>(std::count_if(batch.targets.begin(), batch.targets.end(), [](token t) { return t >= 0; }));
  return batch;
}

}  // namespace xtrain
