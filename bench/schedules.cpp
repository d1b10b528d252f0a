// Pipeline schedules, simulated: bubbles beside what papers say of them, and pictures. Nothing is timed, so the numbers are the
// same on every machine.
//   schedules             the tables of include/xtrain/parallel/schedule/README.md
//   schedules <folder>    and its pictures, written there
#include <cstdio>
#include <exception>
#include <string>
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

using namespace xtrain;

namespace {

/// A model whose forward takes 1 on each of one chunk per rank, and its backward 2; with more chunks, each is so much shorter.
pipeline_costs model_costs(std::size_t chunks) {
  const double part = 1.0 / static_cast<double>(chunks);
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

/// The same rows in equal micro-batches and in AscendSpeed's lists. `fixed` is what a micro-batch takes beside its rows, a row being 1.
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

}  // namespace

int main(int argc, char** argv) try {
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
