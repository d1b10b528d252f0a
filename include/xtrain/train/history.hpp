#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/train/events.hpp>

namespace xtrain {

/// Losses, learning rates and gradient norms of every step; as_xtensor(history.losses()) is an xtensor expression.
class history final : public observer {
 public:
  using observer::on;
  void on(const run_began& run) override {
    const std::size_t steps = run.max_steps > run.first_step ? run.max_steps - run.first_step : 0;  // 0: resumed after its end
    for (std::vector<double>* values : {&losses_, &rates_, &norms_}) values->reserve(values->size() + steps);
  }
  void on(const step_done& done) override {
    losses_.push_back(done.loss);
    rates_.push_back(done.learning_rate);
    norms_.push_back(done.gradient_norm);
  }
  void on(const evaluation_done& done) override { evaluations_.push_back(done); }

  [[nodiscard]] std::span<const double> losses() const { return losses_; }
  [[nodiscard]] std::span<const double> learning_rates() const { return rates_; }
  [[nodiscard]] std::span<const double> gradient_norms() const { return norms_; }
  [[nodiscard]] const std::vector<evaluation_done>& evaluations() const { return evaluations_; }

 private:
  std::vector<double> losses_, rates_, norms_;
  std::vector<evaluation_done> evaluations_;
};

}  // namespace xtrain
