#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/neftune.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/vocab_parallel_embedding.hpp>
#include <xtrain/ops/embedding.hpp>

namespace xtrain {

/// y = dropout(token embedding (+ position embedding) + adapter + noise (neftune.hpp)).
template <class Recipe>
class token_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    std::size_t vocab_size = 0;
    std::size_t hidden_size = 0;
    std::string name{};
    std::string position_name{};  // empty: none
    std::size_t positions = 0;
    double dropout = 0.0;
    std::uint32_t site = 0;
    initial_values initial{};
    token padding_idx = -1;  ///< see vocab_parallel_embedding
    double scale = 1.0;
  };

  token_embedding(builder<Recipe>& build, const options& o)
      : dropout_(o.dropout), site_(o.site),
        tokens_(build, {.vocab_size = o.vocab_size, .hidden_size = o.hidden_size, .name = o.name, .initial = o.initial, .padding_idx = o.padding_idx,
                        .scale = o.scale}) {
    if (o.position_name.empty()) return;
    positions_ = build.matrix({{o.position_name, o.positions}}, o.hidden_size, o.initial);
    position_adapter_.declare(build, o.position_name, o.positions, o.hidden_size);
  }

  /// y [n, hidden_size] written; under sequence parallelism, this rank's tokens
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    tokens_.forward(p, y);
    if (positions_.exists()) {
      ops::embedding(p, own_positions(p), p.matrix(positions_), y, ops::result::is_added);
      if (!p.internal.without_adapter) position_adapter_.forward(p, p.batch.positions_n, y);
    }
    if (p.internal.neftune_noise_alpha > 0.0) detail::add_neftune_noise(p, y);
    if (drops(p)) p.dropout(y, dropout_, site_, y);
  }

  /// dy [n, hidden_size] is overwritten
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dy) const {
    if (drops(p)) p.dropout(dy, dropout_, site_, dy);
    tokens_.backward(p, dy);
    if (!positions_.exists()) return;
    if (const auto d = p.matrix_gradient(positions_); d.exists()) ops::embedding_backward(p, own_positions(p), dy, d);
    position_adapter_.backward(p, p.batch.positions_n, dy);
  }

  /// The token table, for tied embeddings.
  [[nodiscard]] parameter table() const { return tokens_.table(); }

 private:
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }
  [[nodiscard]] static vector_view<const token, memory> own_positions(const pass<Recipe>& p) {
    return p.batch.positions_n.rows(p.first_sequence_parallel_token(), p.sequence_parallel_tokens());
  }

  double dropout_;
  std::uint32_t site_;
  vocab_parallel_embedding<Recipe> tokens_;
  parameter positions_;
  typename table_adapter<Recipe>::type position_adapter_;
};

}  // namespace xtrain
