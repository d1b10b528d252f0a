// Tensor-parallel layers against the same layers on one device.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/parallel_linear.hpp>
#include <xtrain/testing/check_on_ranks.hpp>

using namespace xtrain;
using testing::check_on_ranks;
using testing::gradient_check;
using testing::gradient_recipe;
using testing::gradient_report;
using testing::recipe_of;

namespace {

void require_good(const gradient_report& report) {
  CHECK(report.checked > 0);
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

struct lora_gradient_recipe : gradient_recipe {
  using adapter = lora;
};

const gradient_check square{.b = 2, .t = 6, .inputs = 8, .outputs = 8};

template <class Recipe>
class two_layers {
 public:
  two_layers(builder<Recipe>& build, std::size_t width, std::size_t inner)
      : inner_(build.shard().of(inner, "channels").count), up_(build, {build.column_part("up", inner)}, width, {.bias = true}),
        down_(build, {{"down", width}}, build.row_part(inner), {.bias = true}) {}

  template <class X, class Y>
  void forward(pass<Recipe>& p, const X& x, const Y& y, ops::result write_mode) const {
    const auto u = p.save(p.tokens_in_layer(x.shape(0)), inner_);
    up_.forward(p, x, u);
    down_.forward(p, u, y, write_mode);
  }
  template <class X, class DY, class DX>
  void backward(pass<Recipe>& p, const X& x, const DY& dy, const DX& dx, ops::result write_mode) const {
    const auto scope = p.scope();
    const std::size_t n = p.tokens_in_layer(x.shape(0));
    const auto u = p.pop_saved(n, inner_), du = p.temporary(n, inner_);
    down_.backward(p, u, dy, du);
    up_.backward(p, x, du, dx, write_mode);
  }

 private:
  std::size_t inner_;
  column_parallel_linear<Recipe> up_;
  row_parallel_linear<Recipe> down_;
};

/// A replicated product of two thin matrices.
template <class Recipe>
class thin {
 public:
  thin(builder<Recipe>& build, std::size_t width, std::size_t rank)
      : rank_(rank), down_(build, {{"down", rank}}, width, {}), up_(build, {{"up", width}}, rank, {.bias = true}) {}

  template <class X, class Y>
  void forward(pass<Recipe>& p, const X& x, const Y& y, ops::result write_mode) const {
    const auto t = p.save(x.shape(0), rank_);
    down_.forward(p, x, t);
    up_.forward(p, t, y, write_mode);
  }
  template <class X, class DY, class DX>
  void backward(pass<Recipe>& p, const X& x, const DY& dy, const DX& dx, ops::result write_mode) const {
    const auto scope = p.scope();
    const auto t = p.pop_saved(x.shape(0), rank_), dt = p.temporary(x.shape(0), rank_);
    up_.backward(p, t, dy, dt);
    down_.backward(p, x, dt, dx, write_mode);
  }

 private:
  std::size_t rank_;
  linear<Recipe> down_, up_;
};

template <class Strategy>
void check_all(std::size_t ranks) {
  CAPTURE(Strategy::name);
  CAPTURE(ranks);
  const auto norm_forward = [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y); };
  const auto norm_backward = [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx); };
  require_good(check_on_ranks<Strategy>(
      square, ranks, [](auto& build) { return layer_norm<recipe_of<decltype(build)>>(build, "norm", 8, 1e-5); }, norm_forward, norm_backward));
  require_good(check_on_ranks<Strategy>(square, ranks, [](auto& build) { return thin<recipe_of<decltype(build)>>(build, 8, 3); }));
  require_good(check_on_ranks<Strategy>(square, ranks, [](auto& build) { return two_layers<recipe_of<decltype(build)>>(build, 8, 12); }));
  require_good(check_on_ranks<Strategy>(square, ranks, [](auto& build) {
    return feed_forward<recipe_of<decltype(build)>, swiglu_activation>(
        build, {.hidden_size = 8, .intermediate_size = 12, .bias = true, .up_names = {"gate", "up"}, .down_name = "down"});
  }));
  // adapters on sharded layers and a replicated layer
  const lora_config adapter{.rank = 2, .alpha = 3.0, .targets = {"up", "down"}};
  require_good(check_on_ranks<Strategy, lora_gradient_recipe>(
      square, ranks, [](auto& build) { return two_layers<recipe_of<decltype(build)>>(build, 8, 12); }, adapter));
  require_good(check_on_ranks<Strategy, lora_gradient_recipe>(
      square, ranks, [](auto& build) { return thin<recipe_of<decltype(build)>>(build, 8, 3); }, adapter));
  // adapters of both parts of a fused module, or one
  for (const std::vector<std::string>& parts : {std::vector<std::string>{"gate_proj", "up_proj"}, {"up_proj"}, {"gate_proj"}})
    require_good(check_on_ranks<Strategy, lora_gradient_recipe>(
        square, ranks,
        [](auto& build) {
          return feed_forward<recipe_of<decltype(build)>, swiglu_activation>(
              build, {.hidden_size = 8, .intermediate_size = 12, .up_names = {"gate_up"}, .down_name = "down"});
        },
        lora_config{.rank = 2, .alpha = 3.0, .targets = {"gate_up", "down"}, .parts = {{"gate_up", parts}}}));
}

}  // namespace

TEST_CASE("layers that ranks divide, and layers that every rank has, make on two and four ranks what they make on one") {
  check_all<tensor_parallel>(2);
  check_all<sequence_parallel>(2);
  check_all<tensor_parallel>(4);
  check_all<sequence_parallel>(4);
}

TEST_CASE("a tensor-parallel layer is given other tokens than it takes under sequence parallelism, and says which") {
  const auto said = [](bool column) {
    std::string problem;
    try {
      (void)check_on_ranks<sequence_parallel>(
          square, 2,
          [](auto& build) {
            using recipe = recipe_of<decltype(build)>;
            return std::pair(column_parallel_linear<recipe>(build, {build.column_part("up", 8)}, 8, {}),
                             row_parallel_linear<recipe>(build, {{"down", 8}}, build.row_part(8), {}));
          },
          [&](const auto& both, auto& p, auto x, auto y) {
            if (!p.internal.has_sequence_parallel) return;
            const auto scope = p.scope();
            const std::size_t whole = p.batch.n(), own = p.sequence_parallel_tokens();
            if (column) both.first.forward(p, p.temporary(whole, 8), p.temporary(2 * whole, 4));
            else both.second.forward(p, p.temporary(own, 4), y);
            (void)x;
          },
          [](const auto&, auto&, auto, auto, auto) {});
    } catch (const shape_error& wrong) {
      problem = wrong.what();
    }
    return problem;
  };
  CHECK(
      said(true) ==
      "column_parallel_linear: x must have this rank's 6 tokens of the batch, as activations between tensor-parallel layers have under sequence "
      "parallelism; given 12 rows; see layers/README.md");
  CHECK(said(false) == "row_parallel_linear: x must have all 12 tokens of the batch, as activations within tensor-parallel layers have under sequence "
                       "parallelism; given 6 rows; see layers/README.md");
}

TEST_CASE("a layer that sums what is not divided is found") {
  // a replicated layer whose dx is wrongly reduced over ranks
  const auto report = check_on_ranks<tensor_parallel>(
      square, 2, [](auto& build) { return linear<recipe_of<decltype(build)>>(build, {{"one", 8}}, 8, {}); },
      [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y); },
      [](const auto& layer, auto& p, auto x, auto dy, auto dx) {
        layer.backward(p, x, dy, dx);
        p.internal.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
      });
  CHECK(report.problem.starts_with("dx[0] is "));
  // declared to have all tokens on every rank, but given only this rank's
  const auto wrong = check_on_ranks<sequence_parallel>(square, 2, [](auto& build) {
    return linear<recipe_of<decltype(build)>>(build, {{"one", 8}}, 8, {.bias = true, .where = region::tensor_parallel});
  });
  CHECK_MESSAGE(wrong.problem.find("differs from rank to rank") != std::string::npos, wrong.problem);
}

TEST_CASE("a layer that ranks divide is given its part, and one that they do not is given the whole") {
  const auto refused = [](const auto& make, const char* why, const gradient_check& what = square) {
    CHECK_THROWS_WITH_AS((void)check_on_ranks<tensor_parallel>(what, 2, make), doctest::Contains(why), config_error);
  };
  refused(
      [](auto& build) {
        return column_parallel_linear<recipe_of<decltype(build)>>(build, {{"one", 8}}, 8, {});
      },
      "must have a shard of the outputs of 'one'");
  refused([](auto& build) { return row_parallel_linear<recipe_of<decltype(build)>>(build, {{"one", 8}}, 8, {}); }, "must have a shard of the inputs of 'one'");
  refused([](auto& build) { return linear<recipe_of<decltype(build)>>(build, {build.column_part("one", 8)}, 8, {}); },
          "linear: 'one' must be whole on every rank");
  refused([](auto& build) { return linear<recipe_of<decltype(build)>>(build, {{"one", 8}}, build.row_part(8), {}); },
          "linear: 'one' must be whole on every rank");
  refused([](auto& build) { return linear<recipe_of<decltype(build)>>(build, {build.column_part("one", 9)}, 8, {}); },
          "9 outputs are not divisible by 2", {.b = 2, .t = 6, .inputs = 8, .outputs = 9});
}
