// Learning rates and loss scales, step by step.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>

using namespace xtrain;

namespace {

void check_every_step(const learning_rate_schedule& rates, const std::vector<double>& expected) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(std::abs(rates.at(step) - expected[step]) < 1e-15);  // numbers up to 2, four roundings
  }
}

}  // namespace

TEST_CASE("every step of every schedule is PyTorch's") {
  // torch 2.15: SequentialLR of LinearLR(start_factor = 1/3, end_factor = 1, total_iters = 2) and, from step 3 on, LinearLR(1, 0.1, 8),
  // CosineAnnealingLR(T_max = 8, eta_min = 0.03) or ConstantLR(1), in fp64
  check_every_step({lr_schedule_kind::cosine, 0.3, 3, 12, 0.1},
                   {0.1, 0.2, 0.3, 0.3, 0.28972373688902375, 0.26045941546018392, 0.21666226336928715, 0.165, 0.11333773663071289,
                    0.069540584539816097, 0.04027626311097629, 0.03, 0.03, 0.03});
  check_every_step({lr_schedule_kind::linear, 0.3, 3, 12, 0.1},
                   {0.1, 0.2, 0.3, 0.3, 0.26625, 0.2325, 0.19875, 0.165, 0.13125, 0.0975, 0.06375, 0.03, 0.03, 0.03});
  check_every_step({lr_schedule_kind::constant, 0.3, 3, 12, 0.1}, {0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3});
  // CosineAnnealingLR(T_max = 6) alone
  check_every_step({lr_schedule_kind::cosine, 2.0, 0, 7, 0.0},
                   {2, 1.8660254037844388, 1.5, 1, 0.50000000000000022, 0.13397459621556129, 0, 0, 0});
}

TEST_CASE("the shortest ways down: none, one step, two") {
  for (const lr_schedule_kind shape : {lr_schedule_kind::linear, lr_schedule_kind::cosine}) {
    CAPTURE(name_of(shape));
    check_every_step({shape, 1.0, 3, 3, 0.5}, {1.0 / 3, 2.0 / 3, 1.0, 1.0, 0.5});  // warm-up only; steps beyond the end use the minimum
    check_every_step({shape, 1.0, 2, 3, 0.5}, {0.5, 1.0, 1.0, 0.5});
    check_every_step({shape, 1.0, 2, 4, 0.5}, {0.5, 1.0, 1.0, 0.5, 0.5});
    check_every_step({shape, 1.0, 2, 5, 0.5}, {0.5, 1.0, 1.0, 0.75, 0.5});
    check_every_step({shape, 1.0, 5, 3, 0.5}, {0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 0.5});  // warm-up longer than the run
    check_every_step({shape, 1.0, 0, 0, 0.5}, {1.0, 0.5});
    check_every_step({shape, 1.0, 0, 2, 1.0}, {1.0, 1.0, 1.0});
    check_every_step({shape, 0.0, 1, 4, 0.5}, {0.0, 0.0, 0.0, 0.0});
  }
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(learning_rate_schedule(lr_schedule_kind::linear, infinite, 0, 1, 0.0), config_error);
  CHECK_THROWS_AS(learning_rate_schedule(lr_schedule_kind::linear, -1e-9, 0, 1, 0.0), config_error);
  CHECK_THROWS_AS(learning_rate_schedule(lr_schedule_kind::linear, 1.0, 0, 1, -0.1), config_error);
  CHECK(lr_schedule_named("constant") == lr_schedule_kind::constant);
  CHECK(lr_schedule_named("cosine") == lr_schedule_kind::cosine);
}

TEST_CASE("a loss scale after every step of a run with overflows") {
  struct step {
    bool fits;
    double scale;
    std::size_t good, overflows_left;
  };
  dynamic_loss_scale scale({.start = 16.0, .growth_window = 3, .hysteresis = 2, .min_scale = 2.0});
  const std::vector<step> run{
      {true, 16, 1, 2}, {true, 16, 2, 2},  {false, 16, 0, 1},                                      // tolerated, but counting restarts
      {true, 16, 1, 1}, {true, 16, 2, 1},  {true, 32, 0, 2},                                       // growth restores the hysteresis
      {true, 32, 1, 2}, {false, 32, 0, 1}, {false, 16, 0, 0}, {false, 8, 0, 0},  {false, 4, 0, 0},  // then each overflow halves
      {true, 4, 1, 0},  {true, 4, 2, 0},   {true, 8, 0, 2},   {false, 8, 0, 1},  {false, 4, 0, 0}, {false, 2, 0, 0}, {false, 2, 0, 0}};
  for (std::size_t i = 0; i < run.size(); ++i) {
    CAPTURE(i);
    if (run[i].fits) scale.fitted();
    else scale.overflowed();
    const auto now = scale.save();
    CHECK(now.scale == run[i].scale);
    CHECK(scale.scale() == run[i].scale);
    CHECK(now.good == run[i].good);
    CHECK(now.overflows_left == run[i].overflows_left);
    CHECK(scale.at_min_scale() == (run[i].scale == 2.0));

    // one restored at this point continues identically
    dynamic_loss_scale other({.start = 1024.0, .growth_window = 3, .hysteresis = 2, .min_scale = 2.0});
    other.restore(now);
    for (std::size_t j = i + 1; j < run.size(); ++j) {
      if (run[j].fits) other.fitted();
      else other.overflowed();
      CHECK(other.scale() == run[j].scale);
    }
  }
}

TEST_CASE("a loss scale begins as its settings say") {
  dynamic_loss_scale scale({});
  CHECK(scale.scale() == 65536.0);
  scale.overflowed();
  CHECK(scale.scale() == 65536.0);
  scale.overflowed();
  CHECK(scale.scale() == 32768.0);
  for (int i = 0; i < 999; ++i) scale.fitted();
  CHECK(scale.scale() == 32768.0);
  scale.fitted();
  CHECK(scale.scale() == 65536.0);
  for (int i = 0; i < 40; ++i) scale.overflowed();
  CHECK(scale.scale() == 1.0);
  CHECK_FALSE(dynamic_loss_scale({.start = 4.0, .min_scale = 2.0}).at_min_scale());
  CHECK(dynamic_loss_scale({.start = 2.0, .min_scale = 2.0}).at_min_scale());
  CHECK_NOTHROW(dynamic_loss_scale({.start = 0.5, .growth_window = 1, .hysteresis = 1, .min_scale = 0.5}));
  CHECK_THROWS_AS(dynamic_loss_scale({.start = 1.0, .min_scale = 0.0}), config_error);
  CHECK_THROWS_AS(dynamic_loss_scale({.hysteresis = 0}), config_error);
}
