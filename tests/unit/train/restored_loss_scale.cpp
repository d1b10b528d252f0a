// A run with loss scaling, interrupted and resumed: the scale continues from its saved state.
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <xtrain/io.hpp>
#include "scratch.hpp"
#include "small_run.hpp"

using namespace xtrain;

namespace {

struct half_recipe : defaults {
  using precision = fp16_mixed;
};

/// Overflows at first, then doubles every three good steps: the entire state changes.
training_config<adamw> scaled(std::size_t steps) {
  auto settings = small_run::settings(steps);
  settings.loss_scale = {.start = 268435456.0, .growth_window = 3, .hysteresis = 2};
  settings.warmup_steps = 5;
  settings.lr_from_zero = true;
  settings.lr_counts_updates = true;
  return settings;
}

struct scales final : observer {
  std::vector<double> of_steps, losses, rates;
  using observer::on;
  void on(const step_done& done) override {
    of_steps.push_back(done.loss_scale);
    losses.push_back(done.loss);
    rates.push_back(done.learning_rate);
  }
};

}  // namespace

TEST_CASE("a restored run has the loss scale of the interrupted one, and every scale after it") {
  const std::size_t steps = 24;
  scales whole;
  training_progress end{};
  {
    llama<half_recipe> model(small_run::sizes());
    trainer all(model, scaled(steps));
    all.attach(whole);
    all.fit(small_run::data());
    end = all.progress();
  }
  REQUIRE(end.skipped > 2);
  REQUIRE(end.skipped < steps - 6);
  // skipped steps did not advance the schedule
  const learning_rate_schedule schedule = detail::lr_schedule_for(scaled(steps), steps);
  REQUIRE(whole.rates.size() == steps - end.skipped);
  for (std::size_t update = 0; update < whole.rates.size(); ++update) CHECK(whole.rates[update] == schedule.at(update));
  for (const std::size_t stop_at : {std::size_t{9}, std::size_t{14}, std::size_t{17}}) {
    CAPTURE(stop_at);
    const scratch_folder folder;
    scales seen;
    training_progress before{};
    {
      llama<half_recipe> model(small_run::sizes());
      trainer first(model, scaled(steps));
      checkpoint_folder files(first, folder.path());
      std::stop_source stop;
      struct stopper final : observer {
        std::stop_source& source;
        std::size_t at;
        stopper(std::stop_source& s, std::size_t a) : source(s), at(a) {}
        using observer::on;
        void on(const step_done& done) override {
          if (done.step >= at) source.request_stop();
        }
      } watcher(stop, stop_at);
      first.attach(watcher);
      first.attach(seen);
      first.attach(files);
      first.fit(small_run::data(), nullptr, stop.get_token());
      before = first.progress();
    }
    llama<half_recipe> model(small_run::sizes());
    trainer second(model, scaled(steps));
    checkpoint_folder files(second, folder.path());
    REQUIRE(files.resume());
    CHECK(second.progress().loss_scale.scale == before.loss_scale.scale);
    CHECK(second.progress().loss_scale.good == before.loss_scale.good);
    CHECK(second.progress().loss_scale.overflows_left == before.loss_scale.overflows_left);
    CHECK(second.progress().step == before.step);
    CHECK(second.progress().updates == before.updates);
    CHECK(second.progress().skipped == before.skipped);
    second.attach(seen);
    second.fit(small_run::data());
    CHECK(seen.of_steps == whole.of_steps);
    CHECK(seen.losses == whole.losses);
    CHECK(seen.rates == whole.rates);
    CHECK(second.progress().loss_scale.scale == end.loss_scale.scale);
    CHECK(second.progress().loss_scale.good == end.loss_scale.good);
    CHECK(second.progress().loss_scale.overflows_left == end.loss_scale.overflows_left);
    CHECK(second.progress().skipped == end.skipped);
  }
}
