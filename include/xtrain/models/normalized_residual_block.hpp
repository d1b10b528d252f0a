// A block with a normalized residual stream (ChatGLM-6B).            [Zeng et al. 2023, section 2.1]
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/models/decoder_block.hpp>

namespace xtrain {

/// The residual branch is the normalized, scaled input:  y = α n + feed_forward(n), n = norm(m);  m = α n' + attention(n'), n' = norm(x),
/// α = √(2 · num_layers).                         [Zeng et al. 2023, section 2.1; α from Wang et al. 2022, section 2]
template <class Recipe, class Norm, class Positions, class FeedForward>
class normalized_residual_block : public decoder_block<Recipe, Norm, Positions, FeedForward> {
  using base = decoder_block<Recipe, Norm, Positions, FeedForward>;

 public:
  using compute = typename base::compute;
  using memory = typename base::memory;
  using positions = typename base::positions;
  using base::recomputes_norms;

  normalized_residual_block(builder<Recipe>& build, const decoder_config& c, const decoder_names& names, std::size_t index)
      : base(build, c, names, index), alpha_(std::sqrt(2.0 * static_cast<double>(c.num_layers))) {}

  void forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto attention_input = saves_attention_input() ? p.save(n, c) : p.temporary(n, c);
    const auto middle = p.save(n, c);
    const auto feed_forward_input = saves_feed_forward_input() ? p.save(n, c) : p.temporary(n, c);

    this->attention_norm_.forward(p, x, attention_input);
    scale(p, attention_input, middle);
    this->attention_.forward(p, at, attention_input, middle, ops::result::is_added);
    this->feed_forward_norm_.forward(p, middle, feed_forward_input);
    scale(p, feed_forward_input, y);
    this->feed_forward_.forward(p, feed_forward_input, y, ops::result::is_added);

    p.save_reference(attention_input);
    p.save_reference(middle);
    p.save_reference(feed_forward_input);
  }

  /// d [n, hidden_size]: dy on entry, dx on return
  void backward(pass<Recipe>& p, const positions& at, matrix_view<const compute, memory> x, matrix_view<compute, memory> d) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    auto feed_forward_input = p.saved_reference(n, c);
    const auto middle = p.saved_reference(n, c);
    auto attention_input = p.saved_reference(n, c);
    const auto dinput = p.temporary(n, c);
    if (recomputes_norms) {
      feed_forward_input = attention_input = p.temporary(n, c);  // used in turn
      if (this->feed_forward_.needs_input()) this->feed_forward_norm_.recompute(p, middle, feed_forward_input);
    }

    // forward: y = α n + feed_forward(n), n = norm(middle)
    scale(p, d, dinput);
    this->feed_forward_.backward(p, feed_forward_input, d, dinput, ops::result::is_added);
    fill_zero(p.stream, d.span());
    this->feed_forward_norm_.backward(p, middle, dinput, d);
    // forward: middle = α n + attention(n), n = norm(x)
    if (recomputes_norms && this->attention_.needs_input()) this->attention_norm_.recompute(p, x, attention_input);
    scale(p, d, dinput);
    this->attention_.backward(p, at, attention_input, d, dinput, ops::result::is_added);
    fill_zero(p.stream, d.span());
    this->attention_norm_.backward(p, x, dinput, d);

    if (saves_feed_forward_input()) p.pop_saved(n, c);
    p.pop_saved(n, c);
    if (saves_attention_input()) p.pop_saved(n, c);
  }

 private:
  [[nodiscard]] bool saves_attention_input() const { return !recomputes_norms && this->attention_.needs_input(); }
  [[nodiscard]] bool saves_feed_forward_input() const { return !recomputes_norms && this->feed_forward_.needs_input(); }

  /// to = α from
  void scale(pass<Recipe>& p, matrix_view<const compute, memory> from, matrix_view<compute, memory> to) const {
    fill_zero(p.stream, to.span());
    ops::add(p, from, to, alpha_);
  }

  double alpha_;
};

}  // namespace xtrain
