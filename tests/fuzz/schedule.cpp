// A pipeline schedule and changes to it, as numbers: maker, ranks, chunks, micro-batches, sequences of each; per change its kind, rank, action and a number. A
// schedule that the checker accepts must be executable.
#include <charconv>
#include <cmath>
#include <vector>

#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/paint.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

/// Longer lists would be correct, but slow.
constexpr std::size_t max_ranks = 64, max_chunks = 8, longest = 4096, max_allowed = std::size_t{1} << 22;

class number_reader {
 public:
  explicit number_reader(std::string_view text) : text_(text) {}

  /// The next number; 0 after the last.
  std::size_t next() {
    while (!text_.empty() && (text_[0] < '0' || text_[0] > '9')) text_.remove_prefix(1);
    std::size_t value = 0;
    const char* end = std::from_chars(text_.data(), text_.data() + text_.size(), value).ptr;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  [[nodiscard]] bool ended() const { return text_.empty(); }

 private:
  std::string_view text_;
};

pipeline_schedule make(std::size_t maker, std::size_t ranks, std::size_t chunks, const std::vector<std::size_t>& rows) {
  switch (maker % 6) {
    case 0:
      return gpipe_schedule(ranks, rows);
    case 1:
      return one_forward_one_backward_schedule(ranks, rows);
    case 2:
      return zero_bubble_schedule(ranks, rows);
    case 3:
      return all_in_all_out_schedule(ranks, chunks, rows);
    case 4:
      return interleaved_schedule(ranks, chunks, rows);
    default:
      return fifo_schedule(ranks, chunks, rows);
  }
}

void change(pipeline_schedule& schedule, number_reader& numbers) {
  const std::size_t what = numbers.next();
  auto& list = schedule.actions[numbers.next() % schedule.ranks()];
  const std::size_t index = numbers.next(), number = numbers.next();
  if (list.empty()) return;
  pipeline_action& action = list[index % list.size()];
  switch (what % 8) {
    case 0:
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(index % list.size()));
      break;
    case 1:
      if (list.size() < longest)
        list.push_back(action), std::rotate(list.begin() + static_cast<std::ptrdiff_t>(index % list.size()), list.end() - 1, list.end());
      break;
    case 2:
      std::swap(action, list[number % list.size()]);
      break;
    case 3:
      action.micro_batch = number;
      break;
    case 4:
      action.chunk = number;
      break;
    case 5:
      action.peer = number;
      break;
    case 6:
      action.peer_chunk = number;
      break;
    default:
      action.kind = static_cast<action_kind>(number % 256);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::text_of(data, size);
  number_reader numbers(text);
  const std::size_t maker = numbers.next(), ranks = numbers.next(), chunks = numbers.next();
  std::vector<std::size_t> rows(numbers.next() % 65);
  for (std::size_t& count : rows) count = numbers.next();
  if (ranks > max_ranks && ranks <= max_allowed) return 0;
  if (chunks > max_chunks && chunks <= max_allowed) return 0;

  fuzz::accepted = fuzz::reads([&] {
    pipeline_schedule schedule = make(maker, ranks, chunks, rows);
    while (!numbers.ended()) change(schedule, numbers);
    const schedule_report report = check_schedule(schedule);

    const pipeline_costs costs{.stages = {{.forward = {.1, 1}, .backward_input = {.2, 1}, .backward_weight = {.3, 1}, .reduce = 5}},
                               .message = {.5, .25}};
    const pipeline_timeline timeline = simulate_schedule(schedule, costs);
    for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
      fuzz::must(timeline.ranks[rank].size() == schedule.actions[rank].size(), "every action must have a time");
      fuzz::must(report.stashed[rank] > 0 && report.stashed[rank] <= schedule.chunks * schedule.micro_batches(),
                 "no rank keeps more than there is");
      fuzz::must(timeline.bubble(rank) > -1e-9 && timeline.bubble(rank) < 1, "a rank must work, and not longer than the step");
    }
    fuzz::must(paint_timeline(timeline).ends_with("</svg>\n"), "every time line must have a picture");

    const pipeline_schedule moved = with_rendezvous(schedule);
    fuzz::must(check_schedule(moved).rendezvous_safe, "moved messages must meet");
    fuzz::must(simulate_schedule(moved, costs, send_mode::rendezvous).step_time() > 0, "moved messages must take their time");
  });
  return 0;
}
