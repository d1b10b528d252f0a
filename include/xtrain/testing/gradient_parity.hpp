// A model's gradients of one step on two devices, per parameter. The backward runs from last layer to first: a difference begins at the last parameter that
// differs by more than rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain::testing {

/// Of one parameter.
struct parameter_parity {
  std::string name{};
  double size = 0;   ///< Euclidean norm of the reference gradient
  double error = 0;  ///< norm of the difference
  [[nodiscard]] double relative() const { return size > 0 ? error / size : error; }
};

/// In the order of the model's parameters.
struct gradient_parity {
  double loss = 0, right_loss = 0;
  std::vector<parameter_parity> parameters{};

  /// The largest relative error; NaN if any is NaN.
  [[nodiscard]] double largest() const {
    double most = 0;
    for (const parameter_parity& one : parameters) {
      if (std::isnan(one.relative())) return one.relative();
      most = std::max(most, one.relative());
    }
    return most;
  }
  /// A line for the loss and one per parameter; marks errors above `mark`.
  [[nodiscard]] std::string text(double mark) const {
    std::string all = concat("loss ", loss, ", right ", right_loss, "\n");
    for (const parameter_parity& one : parameters)
      all += concat(one.relative() <= mark ? "      " : "  !!! ", one.name, ": gradient ", one.size, ", relative error ", one.relative(), "\n");
    return all;
  }
};

namespace detail {

template <class Model>
[[nodiscard]] double step_of(Model& model, const host_batch& rows, std::vector<std::vector<float>>& gradients) {
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = rows.b, .gradient_accumulation_steps = 1, .seq_length = rows.t, .max_grad_norm = 0.0});
  const double loss = trainer.step(std::span<const host_batch>(&rows, 1), 0.0).loss;
  for (const auto& entry : model.parameters().entries()) {
    const auto there = model.parameters().gradient(entry);
    using value = std::remove_const_t<typename decltype(there)::element_type>;
    std::vector<value> here(there.size());
    copy_to_host(model.stream(), std::span<value>(here), there);
    model.stream().synchronize();
    gradients.emplace_back(here.begin(), here.end());
  }
  return loss;
}

}  // namespace detail

/// Both models must have the same weights: the same seed, or the same folder.
template <class Model, class Right>
[[nodiscard]] gradient_parity compare_gradients(Model& model, Right& right, const host_batch& rows) {
  std::vector<std::vector<float>> got, expected;
  gradient_parity found;
  found.loss = detail::step_of(model, rows, got);
  found.right_loss = detail::step_of(right, rows, expected);
  const auto& entries = model.parameters().entries();
  for (std::size_t p = 0; p < got.size(); ++p) {
    double size = 0, error = 0;
    for (std::size_t i = 0; i < got[p].size(); ++i) {
      const double r = expected[p][i], d = static_cast<double>(got[p][i]) - r;
      size += r * r;
      error += d * d;
    }
    found.parameters.push_back({entries[p].spec.name, std::sqrt(size), std::sqrt(error)});
  }
  return found;
}

}  // namespace xtrain::testing
