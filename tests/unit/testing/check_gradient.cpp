// The gradient check accepts a correct backward and detects each kind of mistake, by name and index.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include <xtrain/data/loader.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/sgd.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/testing/check_gradient.hpp>
#include <xtrain/testing/check_objective.hpp>
#include <xtrain/testing/check_optimizer.hpp>

using namespace xtrain;
using testing::check_gradient;
using testing::gradient_recipe;
using testing::gradient_report;

namespace {

using layer_type = linear<gradient_recipe>;
using matrix = matrix_view<double, host_memory>;
using const_matrix = matrix_view<const double, host_memory>;
using pass_type = pass<gradient_recipe>;

/// A linear layer [7, 5] with a bias and a given backward.
template <class Backward>
gradient_report with_backward(Backward&& backward) {
  return check_gradient(
      {.inputs = 5, .outputs = 7},
      [](auto& build) {
        return layer_type(build, {{"w", 7}}, 5, {.bias = true});
      },
      [](const layer_type& layer, pass_type& p, auto x, auto y) { layer.forward(p, x, y); }, backward);
}

void right(const layer_type& layer, pass_type& p, const_matrix x, const_matrix dy, matrix dx) {
  layer.backward(p, x, dy, dx, ops::result::is_added);
}

/// The report names a mistake.
void caught(const gradient_report& report, const std::string& begin) {
  CHECK(!report);
  INFO(report.problem);
  CHECK(report.problem.starts_with(begin));
  CHECK(report.largest_error > 1e-4);  // a thousandth of a derivative near 1: the smallest of these mistakes
}

}  // namespace

TEST_CASE("a right backward passes, and every input, weight and bias is checked") {
  const gradient_report report = with_backward(right);
  CHECK_MESSAGE(bool(report), report.problem);
  CHECK(report.checked == 2 * 3 * 5 + 7 * 5 + 7);
  CHECK(report.largest_error < 1e-8);  // a linear function has no third derivative: only rounding / h
  CHECK(report.largest_error > 0.0);
}

TEST_CASE("a gradient of the input that is scaled, zero or replaced is caught") {
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           std::vector<double> twice(dy.span().host().begin(), dy.span().host().end());
           for (double& value : twice) value *= 1.001;
           layer.backward(p, x, matrix(span_of(std::span<double>(twice)), dy.shape()), dx, ops::result::is_added);
         }),
         "derivative of x[0] is ");
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           std::vector<double> elsewhere(dx.size());
           layer.backward(p, x, dy, matrix(span_of(std::span<double>(elsewhere)), dx.shape()), ops::result::is_added);
         }),
         "derivative of x[0] is 0; the difference quotient is ");
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           layer.backward(p, x, dy, dx, ops::result::replaces);  // the missing +=
         }),
         "derivative of x[0] is ");
}

TEST_CASE("a gradient of a weight that is written instead of added to is caught by the weight's name") {
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           const auto dw = p.matrix_gradient(layer.weight());
           fill_zero(p.stream, dw.span());
           layer.backward(p, x, dy, dx, ops::result::is_added);
         }),
         "derivative of w.weight[0] is ");
}

TEST_CASE("a gradient of a bias that is forgotten is caught by the bias's name, and nothing before it is blamed") {
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           ops::linear_backward_weight(p, const_matrix(dy), const_matrix(x), p.matrix_gradient(layer.weight()));
           ops::linear_backward_input(p, dy, p.matrix(layer.weight()), matrix(dx), ops::result::is_added);
         }),
         "derivative of w.bias[0] is 0; the difference quotient is ");
}

TEST_CASE("one wrong element is found where it is") {
  caught(with_backward([](const layer_type& layer, pass_type& p, auto x, auto dy, auto dx) {
           right(layer, p, x, dy, dx);
           p.matrix_gradient(layer.weight()).span().host()[4 * 5 + 3] *= 1.5;
         }),
         "derivative of w.weight[23] is ");
}

TEST_CASE("a backward that does not pop what the forward pushed is caught") {
  using norm = rms_norm<gradient_recipe>;
  const auto with = [](auto&& backward) {
    return check_gradient(
        {.inputs = 5, .outputs = 5}, [](auto& build) { return norm(build, "norm", 5, 1e-5); },
        [](const norm& layer, pass_type& p, auto x, auto y) { layer.forward(p, x, y); }, backward);
  };
  const auto usual = [](const norm& layer, pass_type& p, auto x, auto dy, auto dx) { layer.backward(p, x, dy, dx); };
  CHECK(with(usual));
  const gradient_report left = with([](const norm&, pass_type&, auto, auto, auto) {});
  CHECK(left.problem == "the backward left 1 entries of the stash that the forward pushed");
  CHECK_THROWS_WITH_AS((void)with([&](const norm& layer, pass_type& p, auto x, auto dy, auto dx) {
                         usual(layer, p, x, dy, dx);
                         (void)p.pop_saved_sums(6);
                       }),
                       doctest::Contains("nothing is left to pop"), shape_error);
}

TEST_CASE("a backward that is right for a linear loss only is caught: the check looks at the function, not at one point") {
  // y = x², backward dx += x · dy: half the derivative
  const auto square = [](double factor) {
    return check_gradient(
        {.inputs = 5, .outputs = 5}, [](auto&) { return 0; },
        [](int, pass_type&, auto x, auto y) {
          for (std::size_t i = 0; i < x.size(); ++i) y.span().host()[i] = x.span().host()[i] * x.span().host()[i];
        },
        [factor](int, pass_type&, auto x, auto dy, auto dx) {
          for (std::size_t i = 0; i < x.size(); ++i) dx.span().host()[i] += factor * x.span().host()[i] * dy.span().host()[i];
        });
  };
  CHECK(square(2.0));
  caught(square(1.0), "derivative of x[0] is ");
}

namespace {

host_batch two_sequences() {
  return {.b = 2, .t = 3, .tokens = {1, 2, 3, 4, 5, 6}, .targets = {2, 3, -1, 5, 6, 7}, .positions = {0, 1, 2, 0, 1, 2}, .target_count = 5, .token_count = 6};
}

/// Cross-entropy, with mistakes.
enum class mistake { none, installs_nothing, wrong_factor, saves_more, counts_padding };
template <mistake M>
struct own_objective : next_token {
  static constexpr std::string_view name = "own";
  using hooks = xtrain::hooks<>;
  struct config {};
  [[nodiscard]] static double count_losses(const batch_view& batch) { return M == mistake::counts_padding ? 1.0 : next_token::count_losses(batch); }
  static void require_batch(const config&, const batch_view&) {}
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }
  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    template <class Context>
    state(const config&, const Context&, const objective_sizes&) {}
    void prepare(pass<Recipe>& p, std::size_t) {
      if (M != mistake::installs_nothing) p.internal.objective = this;
    }
    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      using sums = typename head_pass<Recipe>::sums;
      if (!p.trains()) return head.cross_entropy(p, loss_n);
      const auto dx = head.save_input_gradient(p);
      if (M == mistake::saves_more) (void)p.save(1, 1);
      const auto scope = p.scope();
      const sums weight_n{p.workspace.template take<double>(loss_n.shape(0)), {loss_n.shape(0)}};
      for (double& weight : weight_n.span().host()) weight = M == mistake::wrong_factor ? 2.0 : 1.0;
      head.gradient(p, weight_n, loss_n, dx);
      if (M == mistake::wrong_factor) head.cross_entropy(p, loss_n);
    }
  };
};
template <mistake M>
std::string problem_of() {
  const host_batch rows = two_sequences();
  return testing::check_objective<own_objective<M>>(batch_view(rows)).problem;
}

/// SGD, with mistakes of users' kernels.
enum class slip { forgets_state, ignores_skips, ignores_scale, ignores_rate };
template <slip S>
struct own_optimizer : sgd {
  static constexpr std::string_view name = "own";
  template <class Device, class Precision>
  class state : public sgd::state<Device, Precision> {
   public:
    using base = sgd::state<Device, Precision>;
    using base::base;
    void step(execution<Device>& on, const parameter_store<Device, Precision>& store, const optimizer_step<Device>& how) {
      kernel::step_scalars scalars = *how.scalars.raw();
      if (S == slip::ignores_skips) scalars.applies = 1;
      if (S == slip::ignores_scale) scalars.gradient_scale = 1;
      if (S == slip::ignores_rate) scalars.learning_rate = 0.5;
      if (S == slip::forgets_state) scalars.learning_rate *= 1.0 + ++steps_;
      optimizer_step<Device> own = how;
      own.scalars = span_of(std::span<const kernel::step_scalars>(&scalars, 1));
      base::step(on, store, own);
    }

   private:
    int steps_ = 0;
  };
};
template <slip S>
std::string slip_of() {
  return testing::check_optimizer<own_optimizer<S>>().problem;
}

}  // namespace

TEST_CASE("objectives that ship pass the check of objectives, and each mistake of another is named") {
  const host_batch rows = two_sequences();
  const auto plain = testing::check_objective<next_token>(batch_view(rows), {.label_smoothing = 0.1, .z_loss = 1e-2});
  CHECK(plain.problem == "");
  CHECK(plain.checked == 6 * 5 + 11 * 5);
  CHECK(testing::check_objective<dpo>(batch_view(rows), {.beta = 0.3, .reference_free = true}).problem == "");
  CHECK(problem_of<mistake::none>() == "");
  CHECK(problem_of<mistake::installs_nothing>() == "own: prepare(pass, micro_batch) of its state must set pass.internal.objective; it has not");
  CHECK(problem_of<mistake::wrong_factor>().starts_with("own: derivative of the hidden states[0] is "));
  CHECK(problem_of<mistake::saves_more>().find("of the stash") != std::string::npos);
  CHECK(problem_of<mistake::counts_padding>().starts_with("own: count_losses must be 0 for a batch without targets"));
}

TEST_CASE("optimizers that ship pass the check of optimizers, and each mistake of another is named") {
  CHECK(testing::check_optimizer<adamw>().problem == "");
  CHECK(testing::check_optimizer<adamw, bf16_mixed>({.weight_decay = 0.1}).problem == "");
  CHECK(testing::check_optimizer<sgd>({.momentum = 0.9}).problem == "");
  CHECK(slip_of<slip::forgets_state>().starts_with("own: a run that is resumed from the arrays of visit() must continue bit for bit"));
  CHECK(slip_of<slip::ignores_skips>().starts_with("own: a step must change neither weights nor state where `applies`"));
  CHECK(slip_of<slip::ignores_scale>().starts_with("own: gradients must be multiplied by `gradient_scale`"));
  CHECK(slip_of<slip::ignores_rate>().starts_with("own: the learning rate must be `learning_rate` of the step's scalars"));
}
