// A mixture of experts: gradients, and cases with trivial routing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/layers/experts.hpp>
#include <xtrain/testing/check_gradient.hpp>

// two cpu devices: one counts launches of grouped products, the other lacks them
namespace acme {

using xtrain::host_memory;

struct grouping : xtrain::cpu {
  static inline int grouped = 0;
  struct stream : xtrain::cpu_stream {
    using xtrain::cpu_stream::cpu_stream;
  };
};
template <class T, class C>
void run_kernel(grouping::stream& stream, const xtrain::kernel::grouped_matmul<host_memory, T, C>& k, xtrain::scratch_span<host_memory> scratch) {
  ++grouping::grouped;
  run_kernel(static_cast<xtrain::cpu_stream&>(stream), k, scratch);
}

struct looping : xtrain::cpu {
  struct stream : xtrain::cpu_stream {
    using xtrain::cpu_stream::cpu_stream;
  };
};
template <class T, class C>
void run_kernel(looping::stream&, const xtrain::kernel::grouped_matmul<host_memory, T, C>&, xtrain::scratch_span<host_memory>) = delete;

}  // namespace acme

using namespace xtrain;
using testing::check_gradient;
using testing::gradient_recipe;

namespace {

struct recomputing_recipe : gradient_recipe {
  using recompute = recompute_selective<activation_outputs>;
};
struct lora_recipe : gradient_recipe {
  using adapter = lora;
};

feed_forward_options mixture(std::size_t experts, std::size_t choices) {
  return {.hidden_size = 5,
          .intermediate_size = 7,
          .up_names = {"experts.*.gate", "experts.*.up"},
          .down_name = "experts.*.down",
          .num_experts = experts,
          .num_experts_per_token = choices,
          .router_name = "router"};
}

template <class Recipe, class Activation = swiglu_activation>
void check_mixture(const feed_forward_options& options, const typename Recipe::adapter::config& adapter = {}) {
  const auto report = check_gradient<Recipe>(
      {.b = 2, .t = 3, .inputs = 5, .outputs = 5}, [&](auto& build) { return mixture_of_experts<Recipe, Activation>(build, options); },
      adapter);
  CHECK(report.checked > 0);
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

/// Runs a layer on three tokens, parameters set by index; `copies` repeats the parameters after the first `shared`.
template <class Layer>
std::vector<double> output_of(const feed_forward_options& options, const std::vector<double>& values) {
  const reference::context on;
  reference::stream stream(on);
  parameter_store<reference, fp64> store(on);
  builder<gradient_recipe> build(store, {});
  const Layer layer(build, options);
  store.allocate();
  std::size_t next = 0;
  for (const auto& entry : store.entries())
    for (double& value : store.value(entry).host()) value = values[next++ % values.size()];
  single::state<reference> parallel{single::config{}};
  stash<reference> kept(on, 1 << 16);
  arena<reference> workspace(on, 1 << 16, memory_role::workspace);
  pass<gradient_recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
  std::vector<double> x(15), y(15);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i % 7) / 4.0 - 0.75;
  using view = matrix_view<double, host_memory>;
  layer.forward(p, view(span_of(std::span<double>(x)), {3, 5}), view(span_of(std::span<double>(y)), {3, 5}), ops::result::replaces);
  return y;
}

template <class Device, class Adapter = no_adapter, class Recompute = recompute_none>
struct recipe_on : gradient_recipe {
  using device = Device;
  using precision = fp32;
  using adapter = Adapter;
  using recompute = Recompute;
};

/// y, dx and all gradients of a layer on nine tokens.
template <class Recipe, class Activation = swiglu_activation>
std::vector<float> results_of(const feed_forward_options& options, const typename Recipe::adapter::config& adapter = {}) {
  using device = typename Recipe::device;
  const typename device::context on;
  typename device::stream stream(on);
  parameter_store<device, fp32> store(on);
  builder<Recipe> build(store, adapter);
  const mixture_of_experts<Recipe, Activation> layer(build, options);
  store.allocate();
  store.allocate_gradients();
  std::size_t drawn = 0;
  const auto draw = [&](std::span<float> values) {
    for (float& value : values) value = static_cast<float>(++drawn * 2654435761U % 1021) / 510.0f - 1.0f;
  };
  for (const auto& entry : store.entries()) draw(store.value(entry).host());
  draw(store.gradients().host());
  single::state<device> parallel{single::config{}};
  stash<device> kept(on, 1 << 16);
  arena<device> workspace(on, 1 << 20, memory_role::workspace);
  pass<Recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
  p.batch = {.b = 3, .t = 3};
  std::vector<float> x(45), dy(45), all(90);
  for (auto* values : {&x, &dy, &all}) draw(*values);
  using view = matrix_view<float, host_memory>;
  const view x_view(span_of(std::span<float>(x)), {9, 5}), y_view(span_of(all.data(), 45), {9, 5}), dx_view(span_of(all.data() + 45, 45), {9, 5});
  layer.forward(p, x_view, y_view, ops::result::replaces);
  layer.backward(p, x_view, view(span_of(std::span<float>(dy)), {9, 5}), dx_view, ops::result::is_added);
  const auto gradients = store.gradients().host();
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

/// Launches of grouped products; without them, results have the same bits.
template <class Adapter = no_adapter, class Recompute = recompute_none>
int launches_of(const feed_forward_options& options, const typename Adapter::config& adapter = {}) {
  acme::grouping::grouped = 0;
  const auto grouped = results_of<recipe_on<acme::grouping, Adapter, Recompute>>(options, adapter);
  const int count = acme::grouping::grouped;
  CHECK(grouped == results_of<recipe_on<acme::looping, Adapter, Recompute>>(options, adapter));
  return count;
}

}  // namespace

TEST_CASE("the products of all experts are one launch each, with the bits of a launch per expert") {
  CHECK(launches_of<>(mixture(4, 2)) == 6);  // up and down: forward, the gradients of x and of the weights
  CHECK(launches_of<>(mixture(40, 2)) == 6);  // most experts have no rows
  CHECK(launches_of<>(mixture(1, 1)) == 6);
  CHECK(launches_of<no_adapter, recompute_selective<activation_outputs>>(mixture(4, 2)) == 6);
  // a bias or an adapter needs a launch per expert, and so do then the products
  feed_forward_options biased = mixture(4, 2);
  biased.bias = true;
  CHECK(launches_of<>(biased) == 0);
  CHECK(launches_of<lora>(mixture(4, 2), {.rank = 2, .targets = {"up"}}) == 0);
}

TEST_CASE("the gradients of a mixture of experts are their difference quotients, also of experts that nobody chose") {
  check_mixture<gradient_recipe>(mixture(4, 2));
  check_mixture<gradient_recipe>(mixture(3, 1));   // with a single choice the weight is 1: the router gets no gradient
  check_mixture<gradient_recipe>(mixture(3, 3));   // every token goes to every expert
  check_mixture<gradient_recipe>(mixture(17, 2));  // six tokens: some experts get none
  feed_forward_options biased = mixture(4, 2);
  biased.bias = true;
  biased.up_names = {"experts.*.up"};
  check_mixture<gradient_recipe, gelu_activation>(biased);
}

TEST_CASE("a mixture of experts that is recomputed, or trained by adapters, has the same gradients") {
  check_mixture<recomputing_recipe>(mixture(4, 2));
  for (const std::vector<std::string>& targets : {std::vector<std::string>{"router"}, {"gate", "down"}, {"router", "up"}})
    check_mixture<lora_recipe>(mixture(4, 2), {.rank = 2, .targets = targets});
}

TEST_CASE("experts that are all the same are one feed-forward layer, whoever is chosen") {
  constexpr std::size_t of_one = 3 * 5 * 7;  // gate, up, down
  std::vector<double> dense(of_one), many;
  for (std::size_t i = 0; i < of_one; ++i) dense[i] = static_cast<double>((i * 37 + 11) % 29) / 14.0 - 1.0;
  for (std::size_t i = 0; i < 4 * 5; ++i) many.push_back(static_cast<double>((i * 13 + 5) % 17) / 8.0 - 1.0);  // the router
  for (int e = 0; e < 4; ++e) many.insert(many.end(), dense.begin(), dense.end());
  feed_forward_options one = mixture(0, 0);
  one.up_names = {"gate", "up"};
  one.down_name = "down";
  const auto expected = output_of<feed_forward<gradient_recipe, swiglu_activation>>(one, dense);
  for (const std::size_t choices : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
    const auto got = output_of<mixture_of_experts<gradient_recipe, swiglu_activation>>(mixture(4, choices), many);
    // weights add up to 1 up to a few roundings, values below 100
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-13));
  }
}

TEST_CASE("a name without a place for the expert's number is refused") {
  parameter_store<reference, fp64> store{reference::context()};
  builder<gradient_recipe> build(store, {});
  feed_forward_options options = mixture(4, 2);
  options.down_name = "down";
  CHECK_THROWS_WITH_AS((mixture_of_experts<gradient_recipe, swiglu_activation>(build, options)),
                       doctest::Contains("'down' must have a '*' for the index of the expert"), config_error);
}

TEST_CASE("an activation function on some rows writes these rows of the whole result, and no others") {
  constexpr std::size_t n = 4, f = 3;
  const reference::context on;
  reference::stream stream(on);
  const auto check = [&](auto activation, const std::vector<std::size_t>& columns) {  // operands; the last is written
    std::vector<std::vector<double>> values;
    for (const std::size_t c : columns) {
      values.emplace_back(n * c);
      for (std::size_t i = 0; i < n * c; ++i) values.back()[i] = 0.1 * static_cast<double>(i) - 0.53;
    }
    std::size_t next = 0;
    kernel::for_each_operand(activation, [&](auto& operand) {
      auto& memory = values[next++];
      operand = span_of(memory.data(), memory.size());
    });
    const std::vector<double> before = values.back();
    run_kernel(stream, activation, scratch_span<host_memory>{});
    const std::vector<double> whole = values.back();
    values.back() = before;
    run_kernel(stream, activation.rows(1, 2, n), scratch_span<host_memory>{});
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::size_t row = i / columns.back();
      CHECK(values.back()[i] == (row == 1 || row == 2 ? whole[i] : before[i]));
      CHECK(whole[i] != before[i]);
    }
  };
  check(kernel::gelu_tanh<host_memory, double>{.n = n * f}, {f, f});
  check(kernel::gelu_erf<host_memory, double>{.n = n * f}, {f, f});
  check(kernel::gelu_tanh_backward<host_memory, double>{.n = n * f}, {f, f, f});
  check(kernel::gelu_erf_backward<host_memory, double>{.n = n * f}, {f, f, f});
  check(kernel::swiglu<host_memory, double>{.n = n, .f = f}, {2 * f, f});
  check(kernel::geglu<host_memory, double>{.n = n, .f = f}, {2 * f, f});
  check(kernel::swiglu_backward<host_memory, double>{.n = n, .f = f}, {2 * f, f, 2 * f});
  check(kernel::geglu_backward<host_memory, double>{.n = n, .f = f}, {2 * f, f, 2 * f});
}
