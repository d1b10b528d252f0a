// Checks a backward pass against its forward pass: compares every derivative with a central difference, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/none.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/offload.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/precision/precision.hpp>

namespace xtrain::testing {

/// The recipe for gradient checks: the reference device in double.
struct gradient_recipe {
  using device = reference;
  using precision = fp64;
  using parallel = single;
  using recompute = recompute_none;
  using offload = no_offload;
  using adapter = no_adapter;
};

/// Sizes, inputs and tolerance of a check.
struct gradient_check {
  std::size_t b = 2, t = 3;           ///< batch size and sequence length: different from each other and from every number of channels
  std::size_t inputs = 0;             ///< channels of x
  std::size_t outputs = 0;            ///< channels of y
  std::vector<token> positions = {};  ///< position ids; empty: counted within each sequence
  std::vector<token> starts = {};     ///< first position each token attends to (start of its sample); empty: 0
  std::vector<token> withins = {};    ///< second position of each token; may be empty
  std::vector<token> ends = {};       ///< one past the last position each token attends to; empty: causal
  /// Error of a difference quotient of step h: h² · f‴ / 6 + rounding / h, about 1e-10 at h = 1e-5 for values near 1; factor 1e3 for sums of many terms.
  double allowed = 1e-7;
};

/// Result of a check.
struct gradient_report {
  std::size_t checked = 0;
  double largest_error = 0;  // relative to 1 + |derivative|
  std::string problem{};     // the first wrong derivative; empty: passed

  explicit operator bool() const { return problem.empty(); }
};

/// Checks a layer. make(build) declares and returns it; forward(layer, p, x, y) writes y; backward(layer, p, x, dy, dx) adds to dx and parameter gradients.
/// Non-zero initial gradients detect overwriting.
template <class Recipe = gradient_recipe, class Make, class Forward, class Backward>
[[nodiscard]] gradient_report check_gradient(const gradient_check& what, Make&& make, Forward&& forward, Backward&& backward,
                                             const typename Recipe::adapter::config& adapter = {}) {
  using device = typename Recipe::device;
  using dtype = typename Recipe::precision::compute;
  static_assert(
      std::is_same_v<dtype, double> && host_addressable<device>,
      "xtrain check_gradient: the recipe must compute in fp64 on a host-addressable device; inherit xtrain::testing::gradient_recipe; see "
      "testing/README.md");
  typename device::context on{};
  typename device::stream stream(on);
  parameter_store<device, fp64> store(on);
  builder<Recipe> build(store, adapter);
  const auto layer = make(build);
  store.allocate();
  store.allocate_gradients();
  typename Recipe::parallel::template state<device> parallel{typename Recipe::parallel::config{}};
  stash<device> kept(on, std::size_t{1} << 24);
  arena<device> workspace(on, std::size_t{1} << 24, memory_role::workspace);
  pass<Recipe> p({stream, workspace, on.properties()}, store, kept, parallel);

  const std::size_t n = what.b * what.t;
  std::vector<token> positions = what.positions, starts = what.starts;
  if (positions.empty())
    for (std::size_t i = 0; i < n; ++i) positions.push_back(static_cast<token>(i % what.t));
  p.batch = {.b = what.b, .t = what.t};
  p.batch.positions_n = {span_of(std::span<const token>(positions)), {n}};
  if (!starts.empty()) p.batch.starts_n = {span_of(std::span<const token>(starts)), {n}};
  p.batch.is_packed = !starts.empty();
  if (!what.withins.empty()) p.batch.withins_n = {span_of(std::span<const token>(what.withins)), {n}};
  if (!what.ends.empty()) p.batch.ends_n = {span_of(std::span<const token>(what.ends)), {n}};
  p.random = {.seed = 3, .step = 1};

  std::uint64_t drawn = 0;
  const auto draw = [&] {
    return 2.0 * static_cast<double>(uniform_open(random_word({.seed = 99, .step = 0, .site = 1, .first = 0}, drawn++))) - 1.0;
  };
  std::vector<double> x(n * what.inputs), y(n * what.outputs), dy(n * what.outputs), dx(n * what.inputs);
  for (auto* values : {&x, &y, &dy, &dx})
    for (double& value : *values) value = draw();
  const auto parameters = store.trained_values().host();
  const auto gradients = store.gradients().host();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = draw();
    gradients[i] = draw();
  }
  for (const auto& entry : store.entries())  // including frozen ones: gradients flow through them
    if (!entry.spec.trainable) {
      std::vector<double> values(entry.size());
      for (double& value : values) value = draw();
      store.set(stream, entry, std::span<const double>(values));
    }
  using view = matrix_view<double, host_memory>;
  const view x_view(span_of(std::span<double>(x)), {n, what.inputs}), y_view(span_of(std::span<double>(y)), {n, what.outputs});
  const view dy_view(span_of(std::span<double>(dy)), {n, what.outputs}), dx_view(span_of(std::span<double>(dx)), {n, what.inputs});
  const auto loss = [&] {
    forward(layer, p, x_view, y_view);
    kept.drop(0);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };

  const std::vector<double> dx_before = dx, gradients_before(gradients.begin(), gradients.end());
  forward(layer, p, x_view, y_view);
  backward(layer, p, x_view, dy_view, dx_view);
  gradient_report report;
  if (kept.entries() != 0) report.problem = concat("the backward left ", kept.entries(), " entries of the stash that the forward pushed");

  const auto compare = [&](double& value, double analytic, const std::string& name, std::size_t index) {
    const double before = value, h = 1e-5 * std::max(1.0, std::abs(value));
    value = before + h;
    const double above = loss();
    value = before - h;
    const double below = loss();
    value = before;
    const double numeric = (above - below) / (2.0 * h);
    const double error = std::abs(analytic - numeric) / (1.0 + std::abs(numeric));
    ++report.checked;
    report.largest_error = std::max(report.largest_error, error);
    if (!(error <= what.allowed) && report.problem.empty())
      report.problem = concat("derivative of ", name, "[", index, "] is ", analytic, "; the difference quotient is ", numeric);
  };
  const std::vector<double> dx_after = dx;
  for (std::size_t i = 0; i < x.size(); ++i) compare(x[i], dx_after[i] - dx_before[i], "x", i);
  for (const auto& entry : store.entries()) {
    if (!entry.spec.trainable) continue;
    for (std::size_t i = entry.offset; i < entry.offset + entry.size(); ++i)
      compare(parameters[i], gradients[i] - gradients_before[i], entry.spec.name, i - entry.offset);
  }
  return report;
}

/// Checks a layer with the usual interface: forward(p, x, y, how) and backward(p, x, dy, dx, how).
template <class Recipe = gradient_recipe, class Make>
[[nodiscard]] gradient_report check_gradient(const gradient_check& what, Make&& make,
                                             const typename Recipe::adapter::config& adapter = {}) {
  return check_gradient<Recipe>(
      what, make, [](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, x, y, ops::result::replaces); },
      [](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx, ops::result::is_added); }, adapter);
}

}  // namespace xtrain::testing
