// Tensor-parallel linear layers with communication: column parallel (outputs sharded), row parallel (inputs sharded).
// [Shoeybi et al. 2019, "Megatron-LM", section 3]
//
// A column parallel layer, an elementwise function and a row parallel layer: x and y are replicated, the rest is sharded. Under sequence parallelism x and y
// have this rank's tokens [Korthikanti et al. 2022, section 4.2.2].
#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/sequence_parallel.hpp>

namespace xtrain {

/// A rank has rows of W and computes columns of y. Reduces dx over ranks.
template <class Recipe>
class column_parallel_linear {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    bool bias = false;
    initial_values initial = initial_values::normal(0.02);
    bool transposed_in_files = false;
    bool communicates = true;  ///< false: the caller passes all tokens and reduces dx
  };

  /// `parts`: builder::column_part, or other row ranges.
  ///   throws  config_error when layers are sharded and a part is not
  column_parallel_linear(builder<Recipe>& build, const std::vector<module_part>& parts, const input_part& inputs, const options& o)
      : communicates_(o.communicates),
        local_(build, parts, inputs, {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files, .where = region::tensor_parallel}) {
    for (const module_part& part : parts)
      require<config_error>(!build.shard().is_sharded() || part.whole_outputs != 0, "column_parallel_linear: must have a shard of the outputs of '", part.name,
                            "' (builder::column_part); all of them were given");
  }

  [[nodiscard]] bool needs_input() const { return local_.needs_input(); }
  [[nodiscard]] bool drops_input() const { return local_.drops_input(); }
  [[nodiscard]] bool works_on_rows() const { return local_.works_on_rows(); }
  /// As linear; only without communication.
  [[nodiscard]] bool is_product() const { return local_.is_product(); }
  [[nodiscard]] parameter weight() const { return local_.weight(); }

  /// x [n or this rank's tokens, in] read, y [n, this rank's outputs] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result write_mode = ops::result::replaces) const {
    const auto scope = p.scope();
    if (!communicates_) return local_.forward(p, x, y, write_mode);
    require_layout(p, x.shape(0), token_layout_kind::sequence_sharded, "column_parallel_linear: x");
    local_.forward(p, gather_from_sequence_parallel_region(p, x), y, write_mode);
  }

  /// dx [as x, in] written or added to; gradients of trainable parameters added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode = ops::result::replaces) const {
    const auto scope = p.scope();
    if (!communicates_) return local_.backward(p, x, dy, dx, write_mode);
    if (p.internal.has_sequence_parallel) {
      const auto part = p.temporary(dy.shape(0), dx.shape(1));
      local_.backward(p, needs_input() ? gather_from_sequence_parallel_region(p, x) : part, dy, part);
      return reduce_scatter_to_sequence_parallel_region(p, part, dx, write_mode);
    }
    // the previous dx counts once in the sum over ranks
    local_.backward(p, x, dy, dx, p.internal.parallel.tensor().rank() == 0 ? write_mode : ops::result::replaces);
    p.internal.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }

 private:
  bool communicates_;
  linear<Recipe> local_;
};

/// A rank has columns of W and computes a partial sum of y. Reduces y over ranks; the bias is added once.
template <class Recipe>
class row_parallel_linear {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    bool bias = false;
    initial_values initial = initial_values::normal(0.02);
    bool transposed_in_files = false;
    bool communicates = true;  ///< false: the caller reduces y and passes dy of all tokens
  };

  /// `inputs`: builder::row_part.
  ///   throws  config_error when layers are sharded and the inputs are not
  row_parallel_linear(builder<Recipe>& build, const std::vector<module_part>& parts, const input_part& inputs, const options& o)
      : communicates_(o.communicates),
        local_(build, parts, inputs, {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files, .where = region::tensor_parallel}) {
    require<config_error>(!build.shard().is_sharded() || inputs.whole != 0, "row_parallel_linear: must have a shard of the inputs of '", parts.front().name,
                          "' (builder::row_part); all of them were given");
  }

  [[nodiscard]] bool needs_input() const { return local_.needs_input(); }
  [[nodiscard]] bool drops_input() const { return local_.drops_input(); }
  [[nodiscard]] bool works_on_rows() const { return local_.works_on_rows(); }
  /// As linear; only without communication.
  [[nodiscard]] bool is_product() const { return local_.is_product(); }
  [[nodiscard]] parameter weight() const { return local_.weight(); }

  /// x [n, this rank's inputs] read, y [n or this rank's tokens, out] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result write_mode = ops::result::replaces) const {
    const auto scope = p.scope();
    const bool first = p.internal.parallel.tensor().rank() == 0;
    const auto bias = first ? p.vector(local_.bias_) : p.vector(parameter{});
    if (!communicates_) return local_.multiply(p, x, y, write_mode, bias);
    require_layout(p, x.shape(0), token_layout_kind::whole, "row_parallel_linear: x");
    if (p.internal.has_sequence_parallel) {
      const auto part = p.temporary(x.shape(0), y.shape(1));
      local_.multiply(p, x, part, ops::result::replaces, bias);
      return reduce_scatter_to_sequence_parallel_region(p, part, y, write_mode);
    }
    // the previous y counts once in the sum over ranks
    local_.multiply(p, x, y, first ? write_mode : ops::result::replaces, bias);
    p.internal.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
  }

  /// dx [n, this rank's inputs] written or added to; gradients of trainable parameters added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode = ops::result::replaces) const {
    const auto scope = p.scope();
    local_.backward(p, x, communicates_ ? gather_from_sequence_parallel_region(p, dy) : dy, dx, write_mode);
  }

 private:
  bool communicates_;
  linear<Recipe> local_;
};

}  // namespace xtrain
