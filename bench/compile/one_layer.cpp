// Compile time of one layer, forward and backward, for a user.
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/train/recipe.hpp>

using layer = xtrain::feed_forward<xtrain::defaults, xtrain::swiglu_activation>;
using view = xtrain::matrix_view<float, xtrain::host_memory>;
using const_view = xtrain::matrix_view<const float, xtrain::host_memory>;

void forward(const layer& l, xtrain::pass<xtrain::defaults>& p, const_view x, view y) { l.forward(p, x, y, xtrain::ops::result::is_added); }
void backward(const layer& l, xtrain::pass<xtrain::defaults>& p, const_view x, const_view dy, view dx) {
  l.backward(p, x, dy, dx, xtrain::ops::result::is_added);
}
