// The gradient check itself: it accepts a correct backward pass and detects each kind of mistake, by name and index.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/testing/check_gradient.hpp>

using namespace xtrain;
using testing::check_gradient;
using testing::gradient_recipe;
using testing::gradient_report;

namespace {

using layer_type = linear<gradient_recipe>;
using matrix = matrix_view<double, host_memory>;
using const_matrix = matrix_view<const double, host_memory>;
using pass_type = pass<gradient_recipe>;

/// A linear layer [7, 5] with a bias, and whatever is given as its backward.
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

/// What a report must say: something is wrong, and with what.
void caught(const gradient_report& report, const std::string& begin) {
  CHECK(!report);
  INFO(report.problem);
  CHECK(report.problem.starts_with(begin));
  CHECK(report.largest_error > 1e-4);  // a thousandth of a derivative near 1, as the smallest of these mistakes
}

}  // namespace

TEST_CASE("a right backward passes, and every input, weight and bias is checked") {
  const gradient_report report = with_backward(right);
  CHECK_MESSAGE(bool(report), report.problem);
  CHECK(report.checked == 2 * 3 * 5 + 7 * 5 + 7);
  CHECK(report.largest_error < 1e-8);  // a linear function has no third derivative: what is left is rounding / h
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
  // y = x², backward dx += x · dy: half of what it must be
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
