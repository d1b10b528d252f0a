// Attention masks and positions, computed from the tokens.
#include <doctest/doctest.h>

#include <vector>

#include <xtrain/layers/attention_mask.hpp>

using namespace xtrain;

namespace {

constexpr attention_mask prefix{.kind = attention_mask::rule::prefix, .begin = 9, .gap = 8, .word_gap = 7};
using tokens = std::vector<token>;

token_layout laid_out(const attention_mask& mask, const tokens& rows, std::size_t t, const tokens& starts = {}) {
  token_layout layout(mask, rows.size());
  layout.lay_out(rows, starts, t);
  return layout;
}

}  // namespace

TEST_CASE("a context has its own positions and sees itself; what is generated stands at the gap and is counted within it") {
  const auto layout = laid_out(prefix, {4, 8, 5, 9, 6, 6}, 6);
  CHECK(layout.positions == tokens{0, 1, 2, 1, 1, 1});
  CHECK(layout.withins == tokens{0, 0, 0, 1, 2, 3});
  CHECK(layout.ends == tokens{3, 3, 3, 4, 5, 6});
}

TEST_CASE("a gap of a word counts where there is none of a text, and the first place where there is neither") {
  CHECK(laid_out(prefix, {4, 7, 8, 9, 6}, 5).positions == tokens{0, 1, 2, 2, 2});
  CHECK(laid_out(prefix, {4, 5, 7, 9, 6}, 5).positions == tokens{0, 1, 2, 2, 2});
  CHECK(laid_out(prefix, {4, 5, 5, 9, 8}, 5).positions == tokens{0, 1, 2, 0, 0});
}

TEST_CASE("a text without a begin token has no context") {
  const auto layout = laid_out(prefix, {4, 8, 5}, 3);
  CHECK(layout.positions == tokens{0, 0, 0});
  CHECK(layout.withins == tokens{1, 2, 3});
  CHECK(layout.ends == tokens{1, 2, 3});
}

TEST_CASE("samples of a packed row and rows of a batch are laid out each for itself, ends counted from the row's beginning") {
  const auto layout = laid_out(prefix, {8, 9, 4, 8, 9, 9, 8, 4, 9, 5}, 5, {0, 0, 2, 2, 2, 0, 1, 1, 1, 1});
  CHECK(layout.positions == tokens{0, 0, 0, 1, 1, 0, 0, 1, 0, 0});
  CHECK(layout.withins == tokens{0, 1, 0, 0, 1, 1, 0, 0, 1, 2});
  CHECK(layout.ends == tokens{1, 2, 4, 4, 5, 1, 3, 3, 4, 5});
  const auto all = laid_out({.kind = attention_mask::rule::bidirectional}, {1, 2, 3, 4, 5, 6}, 3, {0, 0, 2, 0, 1, 1});
  CHECK(all.positions == tokens{0, 1, 0, 0, 0, 1});
  CHECK(all.withins.empty());
  CHECK(all.firsts == tokens{0, 3});
  CHECK(all.labels == tokens{-1, -1});
  CHECK(all.ends == tokens{2, 2, 3, 1, 3, 3});
}
