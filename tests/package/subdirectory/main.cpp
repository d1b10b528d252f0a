// Two translation units of one program, compiled with different flags, agree.
#include <cmath>
#include <cstdio>
#include <limits>

#include "part.hpp"

namespace {

int failures = 0;
void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  ++failures;
}

tiny::model fresh() {
  return tiny::model(
      {.vocab_size = 31, .hidden_size = 16, .num_layers = 2, .num_heads = 2, .intermediate_size = 24, .max_position_embeddings = 12});
}

}  // namespace

int main() {
  check(plain::types() == optimised::types(), "public types have one name, size and alignment");

  xtrain::array<double, 2> x({3, 5});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<double>(i);
  check(plain::doubled(x) == optimised::doubled(x), "arrays pass from one unit to the other");

  xtrain::dataset data("numbers", xtrain::sequence_layout::stream);
  std::vector<xtrain::token> tokens;
  for (xtrain::token i = 0; i < 400; ++i) tokens.push_back(i * i % 31);
  data.add(tokens);
  data.finish();

  tiny::model one = fresh(), other = fresh();
  const std::vector<double> plain_losses = plain::train(one, data), optimised_losses = optimised::train(other, data);
  check(plain_losses.size() == 5 && optimised_losses.size() == 5, "both trained five steps");
  check(!plain_losses.empty() && plain_losses.back() < plain_losses.front(), "training made the loss smaller");

  // Different optimization may add in another order. A forward is 16 products (7 per layer, embedding, head) of sums of at most 31 terms, each within eps ·
  // sqrt(31); step k sees the differences of the k steps before.
  constexpr double eps = std::numeric_limits<float>::epsilon();
  for (std::size_t k = 0; k < plain_losses.size() && k < optimised_losses.size(); ++k) {
    const double bound = static_cast<double>(k + 1) * 16 * eps * std::sqrt(31.0) * plain_losses[k];
    std::printf("step %zu: %.9f, %.9f\n", k + 1, plain_losses[k], optimised_losses[k]);
    check(std::abs(plain_losses[k] - optimised_losses[k]) <= bound, "losses agree");
  }

  // a model trained in one unit continues in the other
  const std::vector<double> more = optimised::train(one, data);
  check(!more.empty() && more.back() < plain_losses.back(), "a model goes on in the other unit");
  return failures == 0 ? 0 : 1;
}
