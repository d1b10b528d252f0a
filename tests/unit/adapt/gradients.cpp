// Gradients of adapters with more than two matrices, or of embeddings, against difference quotients.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/layers/embedding.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/testing/check_gradient.hpp>

using namespace xtrain;
using testing::check_gradient;
using testing::gradient_report;

namespace {

struct lora_gradient_recipe : testing::gradient_recipe {
  using adapter = lora;
};
using lora_linear = linear<lora_gradient_recipe>;

void require_good(const gradient_report& report) {
  CHECK(report.checked > 0);
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

template <class Pass>
std::vector<double> numbers(const Pass& p, const std::string& name) {
  const auto* entry = p.parameters.find(name);
  REQUIRE_MESSAGE(entry != nullptr, name);
  const auto values = p.parameters.value(*entry).host();
  return {values.begin(), values.end()};
}

/// y = x · Wᵀ + bias + dropout(x) · (m · V / |V| − W)ᵀ for one module, with |V| from the first call: the
/// backward pass treats it as a constant.
struct by_hand {
  std::string module;
  std::size_t column, outputs, rank;
  double scale, dropout;
  std::vector<double> lengths = {};

  template <class Pass, class X, class Y>
  void write(Pass& p, const X& x, const Y& y, bool adapted) {
    const std::size_t n = x.shape(0), in = x.shape(1);
    const auto w = numbers(p, module + ".weight"), bias = numbers(p, module + ".bias");
    std::vector<double> a, b, m;
    if (adapted) {
      a = numbers(p, module + ".lora_A.weight");
      b = numbers(p, module + ".lora_B.weight");
      m = numbers(p, module + ".lora_magnitude_vector");
    }
    const auto scope = p.scope();
    const auto dropped = p.temporary(n, in);
    ops::dropout(p, x, dropout, p.random_at(site_of_name(module), p.batch.t * in), dropped);
    const auto x_host = x.span().host(), dropped_host = dropped.span().host(), y_host = y.span().host();
    for (std::size_t o = 0; o < outputs; ++o) {
      std::vector<double> v(w.begin() + static_cast<std::ptrdiff_t>(o * in), w.begin() + static_cast<std::ptrdiff_t>((o + 1) * in));
      double squares = 0;
      for (std::size_t i = 0; i < in; ++i) {
        for (std::size_t r = 0; adapted && r < rank; ++r) v[i] += scale * b[o * rank + r] * a[r * in + i];
        squares += v[i] * v[i];
      }
      if (lengths.size() == o) lengths.push_back(std::sqrt(squares));
      for (std::size_t row = 0; row < n; ++row) {
        double sum = bias[o];
        for (std::size_t i = 0; i < in; ++i) {
          sum += x_host[row * in + i] * w[o * in + i];
          if (adapted) sum += dropped_host[row * in + i] * (m[o] / lengths[o] * v[i] - w[o * in + i]);
        }
        y_host[row * y.shape(1) + column + o] = sum;
      }
    }
  }
};

}  // namespace

TEST_CASE("the gradients of DoRA, of its lengths too, are difference quotients with the norm held still") {
  for (const double dropout : {0.0, 0.4}) {
    CAPTURE(dropout);
    const lora::config adapter{.rank = 2,
                               .alpha = 6.0,
                               .dropout = dropout,
                               .targets = {"a", "c"},
                               .rank_pattern = {{"c", 3}},
                               .rank_stabilised = true,
                               .dora = true};
    by_hand a{"a", 0, 4, 2, 6.0 / std::sqrt(2.0), dropout}, b{"b", 4, 2, 0, 0.0, 0.0}, c{"c", 6, 3, 3, 6.0 / std::sqrt(3.0), dropout};
    bool first = true;
    require_good(check_gradient<lora_gradient_recipe>(
        {.inputs = 5, .outputs = 9},
        [&](auto& build) {
          return lora_linear(build, {{"a", 4}, {"b", 2}, {"c", 3}}, 5, {.bias = true});
        },
        [&](const auto& layer, auto& p, auto x, auto y) {
          a.write(p, x, y, true);
          b.write(p, x, y, false);
          c.write(p, x, y, true);
          if (!first) return;
          first = false;
          const auto scope = p.scope();
          const auto computed = p.temporary(y.shape(0), y.shape(1));
          layer.forward(p, x, computed);
          // sums of some 30 products below 10, in double
          for (std::size_t i = 0; i < y.size(); ++i) CHECK(computed.span().host()[i] == doctest::Approx(y.span().host()[i]).epsilon(1e-12));
        },
        [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx, ops::result::is_added); }, adapter));
  }
}

TEST_CASE("the gradients of LoRA with a rank and a scale for each module are difference quotients") {
  const lora::config adapter{.rank = 2, .alpha = 6.0, .targets = {"a", "c"}, .rank_pattern = {{"c", 3}}, .alpha_pattern = {{"a", 5.0}}};
  require_good(check_gradient<lora_gradient_recipe>(
      {.inputs = 5, .outputs = 9},
      [&](auto& build) {
        return lora_linear(build, {{"a", 4}, {"b", 2}, {"c", 3}}, 5, {.bias = true});
      },
      adapter));
}

TEST_CASE("the gradients of LoRA of some parts of a fused module are difference quotients, and each part drops other inputs") {
  for (const double dropout : {0.0, 0.4}) {
    CAPTURE(dropout);
    const lora::config adapter{.rank = 2, .alpha = 6.0, .dropout = dropout, .targets = {"qkv_proj"}, .parts = {{"qkv_proj", {"v_proj", "q_proj"}}}};
    by_hand q{"m.q_proj", 0, 4, 2, 3.0, dropout}, v{"m.v_proj", 6, 3, 2, 3.0, dropout};
    bool first = true;
    const auto report = check_gradient<lora_gradient_recipe>(
        {.inputs = 5, .outputs = 9},
        [&](auto& build) {
          const std::vector<fused_part> fused{{"q_proj", {0, 4}, {0, 4}}, {"k_proj", {4, 2}, {4, 2}}, {"v_proj", {6, 3}, {6, 3}}};
          return lora_linear(build, {{.name = "m.qkv_proj", .outputs = 9, .fused = fused}}, 5, {});
        },
        [&](const auto& layer, auto& p, auto x, auto y) {
          layer.forward(p, x, y);
          if (!first) return;
          first = false;
          // x · Wᵀ, plus the adapters' parts
          const auto w = numbers(p, "m.qkv_proj.weight"), a = numbers(p, "m.qkv_proj.lora_A.weight"), b = numbers(p, "m.qkv_proj.lora_B.weight");
          CHECK(a.size() == 2 * 2 * 5);
          CHECK(b.size() == (4 + 3) * 2);
          const auto scope = p.scope();
          for (const by_hand* part : {&q, &v}) {
            const std::size_t n = x.shape(0), row_a = part == &q ? 0 : 2, row_b = part == &q ? 0 : 4;
            const auto dropped = p.temporary(n, 5);
            ops::dropout(p, x, dropout, p.random_at(site_of_name(part->module), p.batch.t * 5), dropped);
            const auto x_host = x.span().host(), dropped_host = dropped.span().host(), y_host = y.span().host();
            for (std::size_t i = 0; i < n; ++i)
              for (std::size_t o = 0; o < part->outputs; ++o) {
                double sum = 0;
                for (std::size_t k = 0; k < 5; ++k) {
                  sum += x_host[i * 5 + k] * w[(part->column + o) * 5 + k];
                  for (std::size_t r = 0; r < 2; ++r) sum += 3.0 * dropped_host[i * 5 + k] * a[(row_a + r) * 5 + k] * b[(row_b + o) * 2 + r];
                }
                CHECK(y_host[i * 9 + part->column + o] == doctest::Approx(sum).epsilon(1e-12));
              }
          }
        },
        [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx, ops::result::is_added); }, adapter);
    require_good(report);
    CHECK(report.checked == 2 * 3 * 5 + 2 * 2 * 5 + (4 + 3) * 2);  // x, A, B
  }
}

TEST_CASE("biases are trained beside frozen weights, and their gradients are difference quotients") {
  for (const trained_biases bias : {trained_biases::all, trained_biases::adapted}) {
    const lora::config adapter{.rank = 2, .targets = {"a"}, .bias = bias};
    const auto report = check_gradient<lora_gradient_recipe>(
        {.inputs = 5, .outputs = 4},
        [&](auto& build) {
          return lora_linear(build, {{"a", 4}}, 5, {.bias = true});
        },
        adapter);
    require_good(report);
    CHECK(report.checked == 2 * 3 * 5 + 2 * 5 + 4 * 2 + 4);  // x, A, B, bias
  }
}

TEST_CASE("the gradients of adapters on embeddings, of tokens and of positions, are difference quotients") {
  const std::vector<token> tokens{3, 1, 3, 0, 4, 3};  // one token occurs several times
  const lora::config adapter{.rank = 2, .alpha = 3.0, .targets = {"words", "places"}};
  const auto give_tokens = [&](auto& p) { p.batch.tokens_n = {span_of(std::span<const token>(tokens)), {tokens.size()}}; };
  const auto report = check_gradient<lora_gradient_recipe>(
      {.b = 2, .t = 3, .inputs = 1, .outputs = 7},
      [](auto& build) {
        return token_embedding<lora_gradient_recipe>(
            build, {.vocab_size = 5, .hidden_size = 7, .name = "words", .position_name = "places", .positions = 3, .dropout = 0.3});
      },
      [&](const auto& layer, auto& p, auto, auto y) {
        give_tokens(p);
        layer.forward(p, y);
      },
      [&](const auto& layer, auto& p, auto, auto dy, auto) {
        give_tokens(p);
        const auto scope = p.scope();
        const auto used_up = p.temporary(dy.shape(0), dy.shape(1));
        ops::copy(p, dy, used_up);
        layer.backward(p, used_up);
      },
      adapter);
  require_good(report);
  CHECK(report.checked == 6 + 2 * (5 + 7) + 2 * (3 + 7));  // x (without effect), A and B of both tables
}
