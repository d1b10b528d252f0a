#pragma once

#include <cstddef>
#include <string>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/embedding.hpp>

namespace xtrain {

/// What an adapter adds to a table; nothing without on_table.
template <class Recipe>
struct table_adapter {
  struct type {
    template <class Builder>
    void declare(Builder&, const std::string&, std::size_t, std::size_t) {}
    [[nodiscard]] static constexpr bool exists() { return false; }
    template <class Pass, class Indices, class Y>
    void forward(Pass&, const Indices&, const Y&) const {}
    template <class Pass, class Indices, class DY>
    void backward(Pass&, const Indices&, const DY&, token = -1) const {}
  };
};
template <class Recipe>
requires has_hook<typename Recipe::adapter, hook::on_table>
struct table_adapter<Recipe> {
  using type = typename Recipe::adapter::template on_table<Recipe>;
};

/// y = scale · table[tokens], plus the adapter's part, which needs scale 1; sharded by token over tensor-parallel ranks. Reduces over ranks: one has the
/// token's row. [Shoeybi et al. 2019, "Megatron-LM", section 3]
template <class Recipe>
class vocab_parallel_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    std::size_t vocab_size = 0;
    std::size_t hidden_size = 0;
    std::string name{};
    initial_values initial{};
    token padding_idx = -1;  ///< as torch.nn.Embedding: row starts at 0 and gets no gradient here; negative: none
    double scale = 1.0;
  };

  vocab_parallel_embedding(builder<Recipe>& build, const options& o)
      : padding_(o.padding_idx), scale_(static_cast<double>(static_cast<compute>(o.scale))), shard_(build.shard()),
        first_(shard_.up_to(o.vocab_size).begin),
        table_(build.matrix({build.vocabulary_part(o.name, o.vocab_size)}, o.hidden_size, initial_of(o))) {
    adapter_.declare(build, o.name, o.vocab_size, o.hidden_size);
    require<config_error>(o.scale == 1.0 || !adapter_.exists(), "adapter: an embedding whose outputs are scaled, as Gemma's, cannot have one; '", o.name,
                          "' is a target");
  }

  /// y [n, hidden_size] written; under sequence parallelism, this rank's tokens
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    look_up(p, y);
    if (!p.internal.without_adapter) adapter_.forward(p, p.batch.tokens_n, y);
  }

  /// dy [n, hidden_size] read; the table's gradient added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> dy) const {
    if (const auto d = p.matrix_gradient(table_); d.exists()) {
      const auto scope = p.scope();
      ops::embedding_backward(p, p.batch.tokens_n, gather_from_sequence_parallel_region(p, dy), d, first_, padding_, scale_);
    }
    adapter_.backward(p, p.batch.tokens_n, dy, padding_);
  }

  [[nodiscard]] parameter table() const { return table_; }

 private:
  [[nodiscard]] static initial_values initial_of(const options& o) {
    if (o.padding_idx < 0) return o.initial;
    const auto row = static_cast<std::size_t>(o.padding_idx);
    return o.initial.with_zeros(row * o.hidden_size, (row + 1) * o.hidden_size);
  }
  void look_up(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    if (p.internal.has_sequence_parallel) {
      const auto scope = p.scope();
      const auto all = p.temporary(p.batch.n(), y.shape(1));
      ops::embedding(p, p.batch.tokens_n, p.matrix(table_), all, ops::result::replaces, first_, scale_);
      return reduce_scatter_to_sequence_parallel_region(p, all, y, ops::result::replaces);
    }
    ops::embedding(p, p.batch.tokens_n, p.matrix(table_), y, ops::result::replaces, first_, scale_);
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) p.internal.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
    }
  }

  token padding_;
  double scale_;  // rounded to compute, as in PyTorch
  tensor_shard shard_;
  std::size_t first_;  // first token of this rank's shard
  parameter table_;
  typename table_adapter<Recipe>::type adapter_;
};

}  // namespace xtrain
