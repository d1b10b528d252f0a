// Checks a tensor- or context-parallel layer against one device: y, dx and every gradient, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/testing/check_gradient.hpp>

namespace xtrain::testing {

/// A recipe that shards layers across ranks with the given strategy.
template <class Recipe, class Strategy>
struct on_ranks : Recipe {
  using parallel = Strategy;
};

/// The recipe that a layer is built for.
template <class Builder>
using recipe_of = typename std::remove_cvref_t<Builder>::recipe;

namespace detail {

struct layer_results {
  std::vector<double> y{}, dx{};
  struct gradient {
    std::vector<double> sum{};        // over ranks that hold partial sums, otherwise any rank's value
    std::vector<std::size_t> seen{};  // number of ranks that hold each element
  };
  std::map<std::string, gradient> gradients{};
  std::string problem{};
};

/// Tolerance for sums of some hundred terms near 1, in double, in a different order.
[[nodiscard]] inline bool is_near(double a, double b) { return std::abs(a - b) <= 1e-11 * (1.0 + std::abs(b)); }

/// The value at an index of a named tensor, equal on every rank.
[[nodiscard]] inline double drawn(std::string_view name, std::size_t index) {
  std::uint64_t seed = 1469598103934665603U;  // FNV-1a
  for (const char letter : name) seed = (seed ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return 2.0 * static_cast<double>(uniform_open(random_word({.seed = seed}, index))) - 1.0;
}
[[nodiscard]] inline std::vector<double> all_drawn(std::string_view name, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = drawn(name, i);
  return values;
}

/// One forward and backward pass of the layer; merges this rank's results into `all`.
template <class Recipe, class Make, class Forward, class Backward>
void run_layer(const gradient_check& what, const typename Recipe::parallel::config& ranks, const Make& make, const Forward& forward,
               const Backward& backward, const typename Recipe::adapter::config& adapter, layer_results& all, std::mutex& guard) {
  using device = typename Recipe::device;
  typename device::context on{};
  typename device::stream stream(on);
  parameter_store<device, fp64> store(on);
  typename Recipe::parallel::template state<device> parallel{ranks};
  tensor_shard shard{};
  if constexpr (has_tensor_parallel<Recipe>) shard = parallel.layers();
  builder<Recipe> build(store, adapter, shard);
  const auto layer = make(build);
  store.allocate();
  store.allocate_gradients();
  std::ranges::fill(store.gradients().host(), 0.0);
  for (const auto& entry : store.entries()) {
    std::vector<double> own(entry.size());
    entry.spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) own[here + i] = drawn(entry.spec.name, whole + i);
    });
    store.set(stream, entry, std::span<const double>(own));
  }
  stash<device> kept(on, std::size_t{1} << 22);
  arena<device> workspace(on, std::size_t{1} << 22, memory_role::workspace);
  pass<Recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
  const std::size_t n = what.b * what.t;
  std::vector<token> positions = what.positions;
  if (positions.empty())
    for (std::size_t i = 0; i < n; ++i) positions.push_back(static_cast<token>(i % what.t));
  p.batch = {.b = what.b, .t = what.t};
  p.batch.positions_n = {span_of(std::span<const token>(positions)), {n}};
  p.random = {.seed = 3, .step = 1};
  begin_sequence_parallel(p);

  const std::size_t first = p.first_sequence_parallel_token(), own_n = p.sequence_parallel_tokens();
  const auto own_rows = [&](std::string_view name, std::size_t width) {
    const std::vector<double> whole = all_drawn(name, n * width);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * width);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(own_n * width));
  };
  std::vector<double> x = own_rows("x", what.inputs), dx = own_rows("dx", what.inputs), dy = own_rows("dy", what.outputs), y(dy.size());
  using view = matrix_view<double, host_memory>;
  const auto rows_of = [&](std::vector<double>& values, std::size_t width) { return view(span_of(std::span<double>(values)), {own_n, width}); };
  forward(layer, p, rows_of(x, what.inputs), rows_of(y, what.outputs));
  backward(layer, p, rows_of(x, what.inputs), rows_of(dy, what.outputs), rows_of(dx, what.inputs));

  const std::lock_guard hold(guard);
  const auto put = [&](std::vector<double>& whole, const std::vector<double>& own, std::size_t width, const char* name) {
    whole.resize(n * width, std::nan(""));
    for (std::size_t i = 0; i < own.size(); ++i) {
      double& there = whole[first * width + i];
      if (!std::isnan(there) && !is_near(there, own[i]) && all.problem.empty()) all.problem = xtrain::concat(name, " differs from rank to rank");
      there = own[i];
    }
  };
  put(all.y, y, what.outputs, "y");
  put(all.dx, dx, what.inputs, "dx");
  for (const auto& entry : store.entries()) {
    if (!entry.spec.trainable) continue;
    auto& whole = all.gradients[entry.spec.name];
    whole.sum.resize(entry.whole_size());
    whole.seen.resize(entry.whole_size());
    const auto own = store.gradient(entry).host();
    entry.spec.for_each_range([&](std::size_t here, std::size_t at, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        const double g = own[here + i];
        double& there = whole.sum[at + i];
        if (entry.spec.gradients_are_parts || whole.seen[at + i] == 0) {
          there += g;
        } else if (!is_near(there, g) && all.problem.empty()) {
          all.problem = xtrain::concat("the gradient of ", entry.spec.name, "[", at + i, "] differs from rank to rank");
        }
        ++whole.seen[at + i];
      }
    });
  }
}

}  // namespace detail

/// Checks a layer on `ranks` ranks (threads) that shard it with the strategy (tensor_parallel, sequence_parallel). make(build) is called
/// for both runs' recipes and makes a layer for recipe_of<decltype(build)>; forward and backward as in check_gradient, with this rank's positions. Parameters
/// are equal on one device and on the ranks together.
///   throws  config_error when the layer cannot be sharded across so many ranks
template <class Strategy, class Recipe = gradient_recipe, class Make, class Forward, class Backward>
[[nodiscard]] gradient_report check_on_ranks(const gradient_check& what, std::size_t ranks, const Make& make, const Forward& forward,
                                             const Backward& backward, const typename Recipe::adapter::config& adapter = {}) {
  detail::layer_results one, many;
  std::mutex guard;
  detail::run_layer<on_ranks<Recipe, single>>(what, {}, make, forward, backward, adapter, one, guard);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    detail::run_layer<on_ranks<Recipe, Strategy>>(what, {.ranks = network, .tensor_parallel_size = ranks}, make, forward, backward, adapter, many, guard);
  });
  gradient_report report;
  report.problem = many.problem;
  const auto compare = [&](const std::string& name, const std::vector<double>& got, const std::vector<double>& expected) {
    if (got.size() != expected.size()) {
      if (report.problem.empty()) report.problem = xtrain::concat(name, " has ", got.size(), " numbers on ranks, ", expected.size(), " on one device");
      return;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      ++report.checked;
      report.largest_error = std::max(report.largest_error, std::abs(got[i] - expected[i]) / (1.0 + std::abs(expected[i])));
      if (!detail::is_near(got[i], expected[i]) && report.problem.empty())
        report.problem = xtrain::concat(name, "[", i, "] is ", got[i], " on ", ranks, " ranks; on one device it is ", expected[i]);
    }
  };
  compare("y", many.y, one.y);
  compare("dx", many.dx, one.dx);
  for (const auto& [name, gradient] : one.gradients) compare("the gradient of " + name, many.gradients[name].sum, gradient.sum);
  return report;
}

/// Checks a layer with the usual interface: forward(p, x, y, how) and backward(p, x, dy, dx, how).
template <class Strategy, class Recipe = gradient_recipe, class Make>
[[nodiscard]] gradient_report check_on_ranks(const gradient_check& what, std::size_t ranks, const Make& make,
                                             const typename Recipe::adapter::config& adapter = {}) {
  return check_on_ranks<Strategy, Recipe>(
      what, ranks, make, [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y, ops::result::replaces); },
      [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx, ops::result::is_added); }, adapter);
}

}  // namespace xtrain::testing
