// Learning rates and loss scales, step by step.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
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
  const std::vector<step> run{
      {true, 16, 1, 2}, {true, 16, 2, 2},  {false, 16, 0, 1},                                      // tolerated, but counting restarts
      {true, 16, 1, 1}, {true, 16, 2, 1},  {true, 32, 0, 2},                                       // growth restores the hysteresis
      {true, 32, 1, 2}, {false, 32, 0, 1}, {false, 16, 0, 0}, {false, 8, 0, 0},  {false, 4, 0, 0},  // then each overflow halves
      {true, 4, 1, 0},  {true, 4, 2, 0},   {true, 8, 0, 2},   {false, 8, 0, 1},  {false, 4, 0, 0}, {false, 2, 0, 0}, {false, 2, 0, 0}};
  // by the kernel that decides it, on the reference and on the cpu: gradients are finite or not
  const auto follow = [&]<class Device>(Device) {
    const typename Device::context on;
    typename Device::stream stream(on);
    const buffer<Device> memory(on, 1024, memory_role::other);
    const auto at = [&]<class T>(std::size_t offset, T) { return span_of<T, host_memory>(reinterpret_cast<T*>(memory.template as<std::byte>().raw() + offset), 1); };
    const kernel::update_step_scalars<host_memory> k{
        .learning_rate = 0.5,
        .targets = 2,
        .max_grad_norm = 1,
        .rule = dynamic_loss_scale::rule({.start = 16.0, .growth_window = 3, .hysteresis = 2, .min_scale = 2.0}, true),
        .loss_1 = at(0, double{}),
        .squares_1 = at(8, double{}),
        .state_1 = at(64, kernel::step_state{}),
        .scalars_1 = at(192, kernel::step_scalars{}),
        .report_1 = at(256, kernel::step_report{})};
    kernel::step_state& state = k.state_1.raw()[0];
    state = {.loss_scale = 16, .good_steps = 0, .overflows_left = 2, .updates = 7};
    double updates = 7;
    at(0, double{}).raw()[0] = 3.0;
    for (std::size_t i = 0; i < run.size(); ++i) {
      CAPTURE(i);
      const double before = state.loss_scale;
      at(8, double{}).raw()[0] = run[i].fits ? 16.0 * before * before : std::numeric_limits<double>::infinity();
      run_kernel(stream, k, scratch_span<host_memory>{});
      const kernel::step_report& report = k.report_1.raw()[0];
      const kernel::step_scalars& scalars = k.scalars_1.raw()[0];
      updates += run[i].fits ? 1 : 0;
      CHECK(state.loss_scale == run[i].scale);
      CHECK(state.good_steps == static_cast<double>(run[i].good));
      CHECK(state.overflows_left == static_cast<double>(run[i].overflows_left));
      CHECK(state.updates == updates);
      CHECK(report.loss == 1.5);
      CHECK(report.loss_scale == before);
      CHECK(report.is_skipped == (run[i].fits ? 0.0 : 1.0));
      CHECK(report.is_overflow == (run[i].fits || before == 2.0 ? 0.0 : 1.0));  // at the minimum it is a bad step
      CHECK(scalars.applies == (run[i].fits ? 1.0 : 0.0));
      if (!run[i].fits) continue;
      CHECK(report.gradient_norm == 4.0);
      CHECK(scalars.gradient_scale == doctest::Approx(0.25 / before).epsilon(1e-6));
      CHECK(scalars.update == updates);
      CHECK(scalars.learning_rate == 0.5);
    }
  };
  follow(reference{});
  follow(cpu{});
}

TEST_CASE("a loss scale begins as its settings say") {
  CHECK(dynamic_loss_scale::initial({}).scale == 65536.0);
  CHECK(dynamic_loss_scale::initial({}).overflows_left == 2);
  CHECK(dynamic_loss_scale::rule({}, true).growth_window == 1000);
  CHECK_NOTHROW((void)dynamic_loss_scale::rule({.start = 0.5, .growth_window = 1, .hysteresis = 1, .min_scale = 0.5}, true));
  CHECK_THROWS_AS((void)dynamic_loss_scale::rule({.start = 1.0, .min_scale = 0.0}, true), config_error);
  CHECK_THROWS_AS((void)dynamic_loss_scale::rule({.start = 1.0, .min_scale = 2.0}, true), config_error);
  CHECK_THROWS_AS((void)dynamic_loss_scale::rule({.hysteresis = 0}, true), config_error);
  CHECK_THROWS_AS((void)dynamic_loss_scale::rule({.growth_window = 0}, true), config_error);
}
