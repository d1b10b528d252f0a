// Learning rates and loss scales, step by step.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/train/run_settings.hpp>

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

TEST_CASE("schedules of DeepSpeed: their first two steps are one") {
  // formulas of DeepSpeed 0.19, runtime/lr_schedules.py; its scheduler steps after the optimizer
  const auto rates = [](lr_schedule_kind kind, double first, double warmup, bool log_warmup, double smallest) {
    return learning_rate_schedule({.kind = kind, .peak = 0.3, .warmup = warmup, .decay_steps = 8, .min_lr = smallest, .warmup_init = first, .from_zero = true,
                                   .as_deepspeed = true, .log_warmup = log_warmup});
  };
  check_every_step(rates(lr_schedule_kind::constant, 0.1, 4, true, 0.1), {0.1, 0.1, 0.2, 0.25849625007211563, 0.3, 0.3, 0.3, 0.3});
  check_every_step(rates(lr_schedule_kind::constant, 0, 1, false, 0), {0, 0, 0.15, 0.3, 0.3});
  check_every_step(rates(lr_schedule_kind::linear, 0, 3, false, 0), {0, 0, 0.1, 0.2, 0.3, 0.24, 0.18, 0.12, 0.06, 0, 0});
  check_every_step(rates(lr_schedule_kind::linear, 0.1, 3, true, 0.1), {0.1, 0.1, 0.22618595071429148, 0.3, 0.3, 0.26, 0.22, 0.18, 0.14, 0.1, 0.1});
  check_every_step(rates(lr_schedule_kind::cosine, 0, 3, true, 0.03), {0, 0, 0.18927892607143723, 0.3, 0.27421729424061786, 0.20671729424061788,
                                                                       0.12328270575938212, 0.055782705759382115, 0.03, 0.03});
  CHECK_THROWS_AS(learning_rate_schedule({.warmup = 4, .log_warmup = true}), config_error);
  CHECK_THROWS_AS(learning_rate_schedule({.warmup = 1, .from_zero = true, .log_warmup = true}), config_error);
}

TEST_CASE("a cosine that goes on after its end rises again, as transformers' does") {
  // transformers 5.24: get_scheduler("cosine", num_warmup_steps=2, num_training_steps=5), and with 5 and 3
  const auto rates = [](double warmup, std::size_t steps) {
    return learning_rate_schedule({.peak = 0.3, .warmup = warmup, .decay_steps = steps, .from_zero = true, .continues = true});
  };
  check_every_step(rates(2, 5), {0, 0.15, 0.3, 0.225, 0.075, 0, 0.075, 0.225, 0.3, 0.225, 0.075, 0});
  check_every_step(rates(5, 3), {0, 0.06, 0.12, 0.18, 0.24, 0.3, 0, 0.3, 0});
}

TEST_CASE("every step of a schedule from zero is that of transformers, and of torchtune") {
  using enum lr_schedule_kind;
  // transformers 5.24: get_scheduler(kind, SGD of lr 0.3, num_warmup_steps, num_training_steps, scheduler_specific_kwargs)
  const auto check = [](lr_schedule_settings with, const std::vector<double>& expected, double warmup = 3, std::size_t steps = 9) {
    CAPTURE(name_of(with.kind));
    with.peak = 0.3;
    with.warmup = warmup;
    with.decay_steps = steps;
    with.from_zero = true;
    check_every_step(learning_rate_schedule(with), expected);
  };
  check({.kind = constant}, {0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3});  // constant_with_warmup
  check({.kind = linear}, {0, 0.1, 0.2, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0, 0});
  // torchtune 0.6.1, get_cosine_schedule_with_warmup: the same
  check({.kind = cosine}, {0, 0.1, 0.2, 0.3, 0.27990381056766583, 0.225, 0.15, 0.075, 0.020096189432334193, 0, 0});
  check({.kind = cosine, .num_cycles = 0.8},
        {0, 0.1, 0.2, 0.3, 0.2503695909538287, 0.134320730509852, 0.0286474508437579, 0.0032778598899291466, 0.075, 0.1963525491562421});
  check({.kind = cosine, .min_lr = 0.03},  // cosine_with_min_lr
        {0, 0.1, 0.2, 0.3, 0.2819134295108992, 0.2325, 0.165, 0.0975, 0.048086570489100776, 0.03, 0.03});
  check({.kind = cosine, .min_lr_ratio = 0.2}, {0, 0.1, 0.2, 0.3, 0.2839230484541327, 0.24, 0.18, 0.12, 0.07607695154586736, 0.06, 0.06});
  check({.kind = cosine_with_restarts}, {0.3, 0.27990381056766583, 0.225, 0.15, 0.075, 0.020096189432334193, 0, 0}, 0, 6);
  check({.kind = cosine_with_restarts, .num_cycles = 2}, {0, 0.1, 0.2, 0.3, 0.225, 0.075, 0.3, 0.225, 0.075, 0, 0});
  check({.kind = polynomial, .min_lr = 0.03, .power = 2.0}, {0, 0.1, 0.2, 0.3, 0.2175, 0.15, 0.0975, 0.06, 0.0375, 0.03, 0.03});
  check({.kind = polynomial, .min_lr = 1e-7}, {0.3, 0.225000025, 0.15000005, 0.075000075, 1e-7, 1e-7}, 0, 4);
  check({.kind = inverse_sqrt}, {0, 0.1, 0.2, 0.3, 0.2598076211353316, 0.232379000772445, 0.21213203435596423, 0.19639610121239312,
                                 0.18371173070873834, 0.17320508075688776});
  check({.kind = inverse_sqrt, .timescale = 7}, {0, 0.1, 0.2, 0.3, 0.2806243040080456, 0.264575131106459, 0.25099800796022265, 0.2393172105652397,
                                                 0.229128784747792, 0.22013981571160285});
  check({.kind = inverse_sqrt}, {0.3, 0.2999850011249063, 0.29997000449925015, 0.29995501012246945}, 0, 3);
}

TEST_CASE("a peak that is kept, and a cosine one step ahead, are those of transformers") {
  using enum lr_schedule_kind;
  const auto check = [](double warmup, std::size_t steps, lr_schedule_settings with, const std::vector<double>& expected) {
    CAPTURE(name_of(with.kind));
    with.peak = 0.3;
    with.warmup = warmup;
    with.decay_steps = steps;
    check_every_step(learning_rate_schedule(with), expected);
  };
  const auto stages = [](double final, double stable = -1) {
    return lr_schedule_settings{.kind = warmup_stable_decay, .from_zero = true, .final_steps = final, .stable_steps = stable};
  };
  check(3, 12, stages(5), {0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.27135254915624213, 0.19635254915624212, 0.1036474508437579, 0.0286474508437579, 0, 0});
  lr_schedule_settings shaped = stages(4);
  shaped.min_lr = 0.03;
  shaped.warmup_shape = lr_shape::cosine;
  shaped.decay_shape = lr_shape::linear;
  check(3, 12, shaped, {0.03, 0.0975, 0.2325, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2325, 0.165, 0.0975, 0.03, 0.03});
  shaped.warmup_shape = shaped.decay_shape = lr_shape::one_minus_sqrt;
  check(3, 12, shaped,
        {0.03, 0.07954592314951396, 0.14411542731880103, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.165, 0.10908116907963214, 0.06617314097820158, 0.03, 0.03});
  lr_schedule_settings waves = stages(4, 3);
  waves.num_cycles = 0.8;
  check(2, 12, waves, {0, 0.15, 0.3, 0.3, 0.3, 0.3, 0.19635254915624212, 0.0286474508437579, 0.028647450843757864, 0, 0, 0, 0, 0});
  check(2, 12, stages(3, 0), {0, 0.15, 0.3, 0.225, 0.075, 0, 0, 0});
  check(4, 6, stages(4), {0, 0.075, 0.15, 0.225, 0.15, 0.04393398282201788, 0, 0});  // the decay would begin in the warm-up
  check(3, 9, {.kind = cosine_warmup_with_min_lr, .min_lr = 0.03},
        {0.1, 0.2, 0.3, 0.2819134295108992, 0.2325, 0.165, 0.0975, 0.048086570489100776, 0.03, 0.04808657048910079, 0.0975});
  check(3, 9, {.kind = cosine_warmup_with_min_lr, .min_lr = 0.03, .warmup_init = 0.06, .from_zero = true},
        {0.06, 0.18, 0.3, 0.2819134295108992, 0.2325, 0.165, 0.0975, 0.048086570489100776, 0.03, 0.04808657048910079, 0.0975});
  check(0, 6, {.kind = cosine_warmup_with_min_lr}, {0.27990381056766583, 0.225, 0.15, 0.075, 0.020096189432334193, 0, 0.02009618943233421, 0.075});
  check(1, 4, {.kind = cosine_warmup_with_min_lr, .min_lr = 0.03, .warmup_init = 0.06, .from_zero = true}, {0.06, 0.2325, 0.0975, 0.03, 0.0975, 0.2325});
  CHECK_THROWS_WITH_AS(learning_rate_schedule({.kind = warmup_stable_decay, .final_steps = 2}),
                       "lr_from_zero: must be true with warmup_stable_decay; given false", config_error);
  CHECK_THROWS_WITH_AS(learning_rate_schedule({.kind = lr_schedule_kind::cosine, .final_steps = 2}),
                       "lr_final_steps and lr_stable_steps: need warmup_stable_decay; given 2 and -1 with cosine", config_error);
}

TEST_CASE("every step of a schedule is Megatron's, which counts samples") {
  using enum lr_schedule_kind;
  // OptimizerParamScheduler.get_lr in Python, 4 samples per step: warm-up of 10 samples from 0.06, decay over 32
  const auto check = [](lr_schedule_kind kind, const std::vector<double>& expected) {
    CAPTURE(name_of(kind));
    check_every_step(
        learning_rate_schedule({.kind = kind, .peak = 0.3, .warmup = 2.5, .decay_steps = 8, .min_lr = 0.03, .warmup_init = 0.06, .from_zero = true}), expected);
  };
  check(constant, {0.06, 0.156, 0.252, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3});
  check(linear, {0.06, 0.156, 0.252, 0.27545454545454545, 0.22636363636363638, 0.17727272727272728, 0.12818181818181817, 0.07909090909090907, 0.03, 0.03,
                 0.03});
  check(cosine, {0.06, 0.156, 0.252, 0.2945315514379572, 0.2534061990826135, 0.18421250316689353, 0.10891897324474535, 0.05143077306779052, 0.03, 0.03, 0.03});
  check(inverse_square_root, {0.06, 0.156, 0.252, 0.27386127875258304, 0.23717082451262844, 0.21213203435596423, 0.19364916731037085, 0.17928429140015903,
                              0.1677050983124842, 0.03, 0.03});
  // without warm-up the divisor is the number of samples
  check_every_step(learning_rate_schedule({.kind = inverse_square_root, .peak = 0.3, .decay_steps = 8, .min_lr = 0.03, .from_zero = true, .timescale = 0.25}),
                   {0.3, 0.15, 0.10606601717798211, 0.08660254037844387, 0.075, 0.06708203932499368, 0.06123724356957946, 0.05669467095138408,
                    0.05303300858899106, 0.03, 0.03});
}

TEST_CASE("decays that end before the run or after it, and settings out of range") {
  const training_config<adamw> run{.learning_rate = 1.0, .warmup_ratio = 0.15, .lr_schedule = lr_schedule_kind::linear};
  auto other = run;
  other.lr_decay_steps = 10;  // of 20
  const learning_rate_schedule all = detail::lr_schedule_for(run, 20), half = detail::lr_schedule_for(other, 20);
  check_every_step(half, {0.5, 1, 1, 6.0 / 7, 5.0 / 7, 4.0 / 7, 3.0 / 7, 2.0 / 7, 1.0 / 7, 0, 0});  // warm-up of 1.5 steps rounds to 2
  CHECK(all.at(2) == 1.0);
  CHECK(all.at(10) == doctest::Approx(9.0 / 16));  // warm-up of 3 steps, decay of 16
  other.lr_from_zero = true;
  other.round_warmup = false;
  check_every_step(detail::lr_schedule_for(other, 20), {0, 2.0 / 3, 8.0 / 8.5, 7.0 / 8.5});
  other.warmup_steps = 10;
  CHECK_THROWS_WITH_AS((void)detail::lr_schedule_for(other, 20), "lr_decay_steps: must be greater than the warm-up of 10 steps, which it includes; given 10",
                       config_error);
  other.lr_schedule = lr_schedule_kind::inverse_sqrt;  // has no end
  CHECK(detail::lr_schedule_for(other, 20).at(40) == 0.5);
  using settings = lr_schedule_settings;
  const auto refused = [](const settings& s, const char* said) { CHECK_THROWS_WITH_AS(learning_rate_schedule{s}, said, config_error); };
  refused({.peak = 0.5, .min_lr = 0.75}, "min_lr: must be in [0, 0.5], up to the learning_rate; given 0.75");
  refused({.peak = 0.5, .warmup_init = 0.75}, "lr_warmup_init: must be in [0, 0.5], up to the learning_rate; given 0.75");
  refused({.warmup = -1}, "warmup: must be non-negative; given -1");
  refused({.num_cycles = -1}, "lr_num_cycles: must be non-negative; given -1");
  refused({.power = 0}, "lr_power: must be positive; given 0");
  refused({.timescale = -2}, "lr_timescale: must be non-negative; given -2");
  for (const auto& [kind, name] : detail::lr_schedule_names) {
    CHECK(name_of(kind) == name);
    CHECK(lr_schedule_named(name) == kind);
  }
  CHECK(lr_schedule_named("constant_with_warmup") == lr_schedule_kind::constant);
  CHECK(lr_schedule_named("cosine_with_min_lr") == lr_schedule_kind::cosine);
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
  // the kernel's decision on the reference and on the cpu
  const auto follow = [&]<class Device>(Device) {
    const typename Device::context on;
    typename Device::stream stream(on);
    const buffer<Device> memory(on, 1024, memory_role::other);
    const auto at = [&]<class T>(std::size_t offset, T) {
      return span_of<T, host_memory>(reinterpret_cast<T*>(memory.template as<std::byte>().raw() + offset), 1);
    };
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
    // learning rate, targets and number of the step in device memory
    CHECK(k.scalars_1.raw()[0].number == 0.0);
    auto known = k;
    known.learning_rate = known.targets = -1;
    known.inputs_1 = at(512, kernel::step_inputs{});
    at(512, kernel::step_inputs{}).raw()[0] = {.learning_rate = 0.25, .targets = 4, .number = 9};
    state.loss_scale = 8;
    at(8, double{}).raw()[0] = 16.0;
    run_kernel(stream, known, scratch_span<host_memory>{});
    CHECK(known.report_1.raw()[0].loss == 0.75);
    CHECK(known.scalars_1.raw()[0].learning_rate == 0.25);
    CHECK(known.scalars_1.raw()[0].number == 9.0);
    const kernel::step_gradient_scale<host_memory> gradient{
        .inputs_1 = known.inputs_1, .state_1 = known.state_1, .gradient_scale_1 = at(16, double{})};
    run_kernel(stream, gradient, scratch_span<host_memory>{});
    CHECK(at(16, double{}).raw()[0] == 0.25 * state.loss_scale);
    at(512, kernel::step_inputs{}).raw()[0].targets = 0;
    run_kernel(stream, gradient, scratch_span<host_memory>{});
    CHECK(at(16, double{}).raw()[0] == 0.0);
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

TEST_CASE("settings of a run are checked against the ranges of their descriptions, by full name") {
  const auto refused = [](const training_config<adamw>& settings, const char* message) {
    CHECK_THROWS_WITH_AS((void)detail::complete_config(settings, 64, 1, 1), message, config_error);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  CHECK(detail::complete_config(training_config<adamw>{.max_grad_norm = 0.0}, 64, 1, 1).seq_length == 64);
  refused({.micro_batch_size = 0}, "micro_batch_size: must be positive; given 0");
  refused({.gradient_accumulation_steps = 0}, "gradient_accumulation_steps: must be positive; given 0");
  refused({.learning_rate = infinity}, "learning_rate: must be finite; given inf");
  refused({.warmup_ratio = 1.5}, "warmup_ratio: must be in [0, 1]; given 1.5");
  refused({.min_lr_ratio = nan}, "min_lr_ratio: must be in [0, 1]; given nan");
  refused({.lr_warmup_init = -1}, "lr_warmup_init: must be non-negative; given -1");
  refused({.lr_power = 0}, "lr_power: must be positive; given 0");
  refused({.max_grad_norm = -1}, "max_grad_norm: must be non-negative; given -1");
  refused({.loraplus_lr_ratio = nan}, "loraplus_lr_ratio: must be non-negative; given nan");
  refused({.neftune_noise_alpha = -0.5}, "neftune_noise_alpha: must be non-negative; given -0.5");
}
