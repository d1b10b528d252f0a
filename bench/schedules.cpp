// Pipeline schedules, simulated: bubbles compared with the papers' formulas, and pictures. Nothing is timed, so the numbers are the
// same on every machine. Then measured: ranks that sleep instead of computing, with real messages and real waits.
//   schedules                      the simulated tables of include/xtrain/parallel/schedule/README.md
//   schedules <folder>             and its pictures, written there
//   schedules delays [ms] [runs]   the measured ones: one unit of the other tables takes this many milliseconds (20)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/parallel/schedule/bubble.hpp>
#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/paint.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/variable_micro_batch.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>
#include <xtrain/testing/delayed_schedule.hpp>

#include "processors.hpp"

using namespace xtrain;

namespace {

/// One chunk per rank: a stage's forward takes 1, its backward 2; more chunks are proportionally shorter.
pipeline_costs model_costs(std::size_t chunks, double unit = 1.0) {
  const double part = unit / static_cast<double>(chunks);
  return {.stages = {{.forward = {part, 0}, .backward_input = {part, 0}, .backward_weight = {part, 0}}}};
}

std::string percent(double share) { return concat(fixed(100 * share, 1), " %"); }

void print_row(const pipeline_schedule& schedule, double formula) {
  const pipeline_costs costs = model_costs(schedule.chunks);
  const pipeline_timeline timeline = simulate_schedule(schedule, costs);
  const pipeline_timeline waiting = simulate_schedule(with_rendezvous(schedule), costs, send_mode::rendezvous);
  const schedule_report report = check_schedule(schedule);
  const double chunks = static_cast<double>(schedule.chunks);
  std::printf("| `%s`, %zu | %s | %s | %s | %s, %s |\n", schedule.name.c_str(), schedule.chunks, percent(timeline.bubble()).c_str(),
              percent(formula).c_str(), percent(waiting.bubble()).c_str(),
              concat(static_cast<double>(report.stashed.front()) / chunks).c_str(),
              concat(static_cast<double>(report.stashed.back()) / chunks).c_str());
}

void print_bubbles(std::size_t ranks, std::size_t count) {
  const std::vector<std::size_t> rows(count, 1);
  std::printf(
      "\n%zu ranks, %zu micro-batches:\n\n| schedule, chunks | bubble | formula | sends wait | kept by first, last rank |\n|---|---|---|---|---|\n",
      ranks, count);
  print_row(gpipe_schedule(ranks, rows), one_forward_one_backward_bubble(ranks, count));
  print_row(one_forward_one_backward_schedule(ranks, rows), one_forward_one_backward_bubble(ranks, count));
  print_row(zero_bubble_schedule(ranks, rows), zero_bubble_bubble(ranks, count, 1, 1, 1));
  for (const std::size_t chunks : {std::size_t{2}, std::size_t{4}}) {
    print_row(interleaved_schedule(ranks, chunks, rows), interleaved_bubble(ranks, chunks, count));
    print_row(all_in_all_out_schedule(ranks, chunks, rows), interleaved_bubble(ranks, chunks, count));
  }
}

/// Equal micro-batches and AscendSpeed's lists of the same sequences. `fixed_cost`: per micro-batch; a sequence costs 1.
void print_variable(std::size_t ranks, double fixed_cost) {
  const auto list = manual_micro_batches(ranks);
  const std::size_t step_rows = 4 * list.size();
  const row_cost cost{fixed_cost, 1};
  const pipeline_costs costs{.stages = {{.forward = cost, .backward_input = cost, .backward_weight = cost}}};
  const auto idle = [&](const pipeline_schedule& schedule, send_mode mode) {
    const pipeline_timeline timeline = simulate_schedule(schedule, costs, mode);
    return timeline.step_time() - timeline.work_time(0);
  };
  const pipeline_schedule equal = one_forward_one_backward_schedule(ranks, std::vector<std::size_t>(list.size(), 4));
  const pipeline_schedule variable = variable_micro_batch_schedule(ranks, list, step_rows, 4);
  const double before = idle(equal, send_mode::buffered), after = idle(variable, send_mode::buffered);
  const double waiting = idle(with_rendezvous(variable), send_mode::rendezvous);
  std::printf("| %zu, %zu rows | %s | %s | %s | -%s | -%s |\n", ranks, step_rows, concat(fixed_cost).c_str(), concat(before).c_str(),
              concat(after).c_str(), percent(1 - after / before).c_str(),
              percent(1 - waiting / idle(with_rendezvous(equal), send_mode::rendezvous)).c_str());
}

void write_picture(const std::string& folder, const pipeline_schedule& schedule, double reduce) {
  pipeline_costs costs = model_costs(schedule.chunks);
  costs.stages[0].reduce = reduce;
  const std::string picture =
      paint_timeline(simulate_schedule(schedule, costs),
                     {.title = concat(schedule.name, ": ", schedule.ranks(), " ranks, ", schedule.chunks,
                                      schedule.chunks == 1 ? " chunk, " : " chunks, ", schedule.micro_batches(), " micro-batches")});
  const std::string path = concat(folder, "/", schedule.name, ".svg");
  write_file(path, picture);
  std::printf("%s: %zu bytes\n", path.c_str(), picture.size());
}

/// Measurement of delays: seconds per unit, and the number of runs, of which the shortest counts, as other load only adds time.
struct delays {
  double unit = 0.02;
  std::size_t runs = 3;

  [[nodiscard]] pipeline_timeline shortest(const pipeline_schedule& schedule, const pipeline_costs& costs, send_mode mode) const {
    std::vector<pipeline_timeline> lines;
    for (std::size_t i = 0; i < runs; ++i) lines.push_back(testing::run_on_delays(schedule, costs, mode));
    std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.step_time() < b.step_time(); });
    return lines.front();
  }
};

void print_delayed(const delays& how, const pipeline_schedule& schedule, double formula) {
  const pipeline_costs costs = model_costs(schedule.chunks, how.unit);
  const pipeline_timeline said = simulate_schedule(schedule, costs), seen = how.shortest(schedule, costs, send_mode::buffered);
  std::printf("| %zu, %zu | `%s`, %zu | %s | %s | %s | %s s | %s s |\n", schedule.ranks(), schedule.micro_batches(), schedule.name.c_str(), schedule.chunks,
              percent(formula).c_str(), percent(said.bubble()).c_str(), percent(seen.bubble()).c_str(), fixed(said.step_time(), 3).c_str(),
              fixed(seen.step_time(), 3).c_str());
  std::fflush(stdout);
}

void print_delayed_bubbles(const delays& how, std::size_t ranks, std::size_t count) {
  const std::vector<std::size_t> rows(count, 1);
  print_delayed(how, gpipe_schedule(ranks, rows), one_forward_one_backward_bubble(ranks, count));
  print_delayed(how, one_forward_one_backward_schedule(ranks, rows), one_forward_one_backward_bubble(ranks, count));
  print_delayed(how, zero_bubble_schedule(ranks, rows), zero_bubble_bubble(ranks, count, 1, 1, 1));
  print_delayed(how, interleaved_schedule(ranks, 2, rows), interleaved_bubble(ranks, 2, count));
  print_delayed(how, fifo_schedule(ranks, 2, rows), interleaved_bubble(ranks, 2, count));
  print_delayed(how, all_in_all_out_schedule(ranks, 2, rows), interleaved_bubble(ranks, 2, count));
}

/// Equal micro-batches and AscendSpeed's lists of the same sequences: a sequence takes a fifth of a unit.
void print_delayed_lists(const delays& how, std::size_t ranks, send_mode mode) {
  const auto list = manual_micro_batches(ranks);
  const row_cost cost{0, how.unit / 5};
  const pipeline_costs costs{.stages = {{.forward = cost, .backward_input = cost, .backward_weight = cost}}};
  pipeline_schedule equal = one_forward_one_backward_schedule(ranks, std::vector<std::size_t>(list.size(), 4));
  pipeline_schedule variable = variable_micro_batch_schedule(ranks, list, 4 * list.size(), 4);
  if (mode == send_mode::rendezvous) equal = with_rendezvous(equal), variable = with_rendezvous(variable);
  const auto idle = [](const pipeline_timeline& line) { return line.step_time() - line.work_time(0); };
  const pipeline_timeline equal_said = simulate_schedule(equal, costs, mode), said = simulate_schedule(variable, costs, mode);
  const pipeline_timeline equal_seen = how.shortest(equal, costs, mode), seen = how.shortest(variable, costs, mode);
  std::printf("| %zu, %s | %s, %s | %s, %s | %s | %s |\n", ranks, mode == send_mode::buffered ? "buffered" : "wait", percent(equal_said.bubble()).c_str(),
              percent(said.bubble()).c_str(), percent(equal_seen.bubble()).c_str(), percent(seen.bubble()).c_str(),
              percent(idle(said) / idle(equal_said) - 1).c_str(), percent(idle(seen) / idle(equal_seen) - 1).c_str());
  std::fflush(stdout);
}

int measure(const delays& how) {
  std::printf(
      "| ranks, micro-batches | schedule, chunks | formula | simulated | measured | step, simulated | step, measured |\n|---|---|---|---|---|---|---|\n");
  print_delayed_bubbles(how, 4, 8);
  print_delayed_bubbles(how, 8, 32);
  std::printf("\n| ranks, sends | bubble of equal, list: simulated | measured | idle, simulated | idle, measured |\n|---|---|---|---|---|\n");
  for (const std::size_t ranks : {std::size_t{4}, std::size_t{8}})
    for (const send_mode mode : {send_mode::buffered, send_mode::rendezvous}) print_delayed_lists(how, ranks, mode);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  if (argc > 1 && std::string_view(argv[1]) == "delays")
    return measure({.unit = argc > 2 ? std::strtod(argv[2], nullptr) / 1000 : 0.02, .runs = argc > 3 ? std::max(1UL, std::strtoul(argv[3], nullptr, 10)) : 3});
  print_bubbles(4, 8);
  print_bubbles(8, 32);
  std::printf("\n| ranks, rows | fixed | idle, equal | idle, list | less | less, sends wait |\n|---|---|---|---|---|---|\n");
  for (const std::size_t ranks : {std::size_t{4}, std::size_t{8}})
    for (const double fixed_cost : {0.0, 1.0}) print_variable(ranks, fixed_cost);
  if (argc < 2) return 0;
  write_picture(argv[1], zero_bubble_schedule(4, std::vector<std::size_t>(8, 1)), 0);
  write_picture(argv[1], all_in_all_out_schedule(4, 2, std::vector<std::size_t>(8, 1)), 3);
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "schedules: %s\n", problem.what());
  return 1;
}
