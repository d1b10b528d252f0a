// Every layer's backward against central differences, in double on the reference device.
#include <doctest/doctest.h>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/dropout.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/parallel_linear.hpp>
#include <xtrain/testing/check_gradient.hpp>

using namespace xtrain;
using testing::check_gradient;
using testing::gradient_check;
using testing::gradient_recipe;
using testing::gradient_report;

namespace {

void require_good(const gradient_report& report) {
  CHECK(report.checked > 0);
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

template <class Layer>
gradient_report check_norm(std::size_t channels) {
  return check_gradient(
      {.inputs = channels, .outputs = channels}, [&](auto& build) { return Layer(build, "norm", channels, 1e-5); },
      [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y); },
      [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx); });
}

struct lora_gradient_recipe : gradient_recipe {
  using adapter = lora;
};
template <class Piece>
struct selective_gradient_recipe : gradient_recipe {
  using recompute = recompute_selective<Piece>;
};

template <class Recipe, class Positions>
gradient_report check_attention(const gradient_check& what, std::size_t heads, std::size_t kv_heads, std::size_t d, double dropout,
                                bool bias, const typename Recipe::adapter::config& adapter = {}, std::size_t rotated = 0,
                                std::size_t window = 0) {
  reference::context on;
  reference::stream stream(on);
  const Positions positions(on, stream, position_options{.max_position_embeddings = 16, .num_heads = heads, .head_dim = d, .rotary_dim = rotated});
  return check_gradient<Recipe>(
      what,
      [&](auto& build) {
        return causal_attention<Recipe, Positions>(build, {.hidden_size = what.inputs,
                                                           .num_heads = heads,
                                                           .num_kv_heads = kv_heads,
                                                           .head_dim = d,
                                                           .bias = bias,
                                                           .output_bias = bias,
                                                           .dropout = dropout,
                                                           .site = 5,
                                                           .sliding_window = window,
                                                           .qkv_names = {"q", "k", "v"},
                                                           .output_name = "o"});
      },
      [&](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, positions, x, y, ops::result::replaces); },
      [&](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, positions, x, dy, dx, ops::result::is_added); },
      adapter);
}

template <class Recipe, class Activation>
gradient_report check_feed_forward(bool bias) {
  std::vector<std::string> up = Activation::columns == 2 ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"up"};
  return check_gradient<Recipe>({.inputs = 5, .outputs = 5}, [&](auto& build) {
    return feed_forward<Recipe, Activation>(build, {.hidden_size = 5, .intermediate_size = 7, .bias = bias, .up_names = up, .down_name = "down"});
  });
}

}  // namespace

TEST_CASE("the gradients of linear layers, of one module and of several, are their difference quotients") {
  for (const bool bias : {false, true}) {
    require_good(check_gradient({.inputs = 5, .outputs = 7}, [&](auto& build) {
      return linear<gradient_recipe>(build, {{"one", 7}}, 5, {.bias = bias});
    }));
    require_good(check_gradient({.inputs = 5, .outputs = 9}, [&](auto& build) {
      return row_parallel_linear<gradient_recipe>(build, {{"a", 4}, {"b", 2}, {"c", 3}}, build.row_part(5), {.bias = bias});
    }));
  }
}

TEST_CASE("the gradients of normalisations are their difference quotients") {
  require_good(check_norm<rms_norm<gradient_recipe>>(7));
  require_good(check_norm<layer_norm<gradient_recipe>>(7));
}

TEST_CASE("the gradients of attention are their difference quotients: heads shared or not, packed or not, with dropout or without") {
  require_good(
      check_attention<gradient_recipe, no_positions<gradient_recipe>>({.b = 2, .t = 5, .inputs = 7, .outputs = 7}, 3, 3, 4, 0.0, true));
  require_good(check_attention<gradient_recipe, rotary_positions<gradient_recipe>>({.b = 2, .t = 5, .inputs = 7, .outputs = 7}, 4, 2, 6,
                                                                                   0.0, false));
  require_good(check_attention<gradient_recipe, rotary_positions<gradient_recipe>>(
      {.b = 1, .t = 6, .inputs = 7, .outputs = 7, .positions = {0, 1, 2, 0, 1, 2}, .starts = {0, 0, 0, 3, 3, 3}}, 4, 1, 2, 0.3, false));
}

TEST_CASE("the gradients of attention are their difference quotients where places see what follows them, or do not see themselves") {
  require_good(check_attention<gradient_recipe, rotary_positions<gradient_recipe>>(
      {.b = 2, .t = 5, .inputs = 7, .outputs = 7, .ends = {3, 3, 3, 4, 5, 2, 2, 2, 2, 2}}, 4, 2, 6, 0.0, false));
  require_good(check_attention<gradient_recipe, no_positions<gradient_recipe>>(
      {.b = 1, .t = 6, .inputs = 7, .outputs = 7, .starts = {0, 0, 0, 3, 3, 3}, .ends = {3, 3, 3, 5, 5, 5}}, 2, 2, 3, 0.2, true));
  require_good(check_attention<gradient_recipe, rotary_positions_2d<gradient_recipe>>(
      {.b = 1, .t = 4, .inputs = 7, .outputs = 7, .positions = {0, 1, 1, 1}, .withins = {0, 0, 1, 2}, .ends = {2, 2, 3, 4}}, 3, 3, 8, 0.0,
      true));
}

TEST_CASE("the gradients of attention are their difference quotients where positions turn a part of a head, or scores fall with distance") {
  require_good(check_attention<gradient_recipe, rotary_positions<gradient_recipe>>({.b = 2, .t = 5, .inputs = 7, .outputs = 7}, 4, 2, 6,
                                                                                   0.0, false, {}, 4));
  require_good(check_attention<gradient_recipe, alibi_positions<gradient_recipe>>({.b = 2, .t = 6, .inputs = 7, .outputs = 7}, 3, 3, 4, 0.0,
                                                                                  true, {}, 0, 3));
}

TEST_CASE("slopes halve from head to head, and lie between where heads are no power of two") {
  CHECK(alibi_slopes(8) == std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f, 0.0078125f, 0.00390625f});
  CHECK(alibi_slopes(3) == std::vector<float>{0.0625f, 0.00390625f, 0.25f});
}

TEST_CASE("the gradients of feed-forward layers are their difference quotients") {
  require_good(check_feed_forward<gradient_recipe, gelu_activation>(true));
  require_good(check_feed_forward<gradient_recipe, swiglu_activation>(false));
}

TEST_CASE("what is recomputed has the same gradients") {
  require_good(check_feed_forward<selective_gradient_recipe<activation_outputs>, gelu_activation>(true));
  require_good(check_feed_forward<selective_gradient_recipe<activation_outputs>, swiglu_activation>(false));
  using recipe = selective_gradient_recipe<attention_outputs>;
  require_good(check_attention<recipe, rotary_positions<recipe>>({.b = 2, .t = 5, .inputs = 7, .outputs = 7}, 4, 2, 6, 0.2, false));
}

TEST_CASE("the gradients of adapters are their difference quotients, and frozen weights have none") {
  for (const double dropout : {0.0, 0.4}) {
    const lora::config adapter{.rank = 2, .alpha = 6.0, .dropout = dropout, .targets = {"a", "c"}};
    require_good(check_gradient<lora_gradient_recipe>(
        {.inputs = 5, .outputs = 9},
        [&](auto& build) {
          return linear<lora_gradient_recipe>(build, {{"a", 4}, {"b", 2}, {"c", 3}}, 5, {.bias = true});
        },
        adapter));
  }
  require_good(check_attention<lora_gradient_recipe, no_positions<lora_gradient_recipe>>(
      {.b = 2, .t = 5, .inputs = 7, .outputs = 7}, 3, 3, 4, 0.0, true, {.rank = 2, .targets = {"q", "v", "o"}}));
}

TEST_CASE("the gradient of a residual branch with dropout is its difference quotient") {
  struct branch {
    residual<gradient_recipe> end{0.3, 4};
    linear<gradient_recipe> inner;
  };
  require_good(check_gradient(
      {.inputs = 5, .outputs = 5},
      [](auto& build) {
        return branch{.inner = linear<gradient_recipe>(build, {{"w", 5}}, 5, {})};
      },
      [](const branch& layer, auto& p, auto x, auto y) {
        layer.end.forward(p, x, y, [&](auto out, ops::result write_mode) { layer.inner.forward(p, x, out, write_mode); });
      },
      [](const branch& layer, auto& p, auto x, auto dy, auto dx) {
        layer.end.backward(p, dy, [&](auto dbranch) { layer.inner.backward(p, x, dbranch, dx, ops::result::is_added); });
        ops::add(p, dy, dx);
      }));
}
