// Schedules executed by threads, one per rank, have the gradients of a single rank, bit for bit.
#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

using namespace xtrain;

namespace {

/// Messages from one rank to another, in order and without tags.
class channel {
 public:
  void send(double value, send_mode mode) {
    std::unique_lock lock(mutex_);
    values_.push_back(value);
    const std::size_t own = ++sent_;
    changed_.notify_all();
    if (mode == send_mode::rendezvous) wait(lock, [&] { return received_ >= own; });
  }
  double receive() {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return !values_.empty(); });
    const double value = values_.front();
    values_.pop_front();
    ++received_;
    changed_.notify_all();
    return value;
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition&& holds) {
    if (!changed_.wait_for(lock, std::chrono::seconds(60), holds)) throw std::runtime_error("a rank waits for ever");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<double> values_;
  std::size_t sent_ = 0, received_ = 0;
};

/// y = weight · x + 0.1; every summation order of gradients rounds differently.
struct stage {
  double weight = 1, gradient = 0;
  std::vector<double> x, y, dx, dy;

  stage(std::size_t number, std::size_t micro_batches)
      : weight(1.0 + 0.3 / static_cast<double>(number + 1)), x(micro_batches), y(x), dx(x), dy(x) {}
  void forward(std::size_t i) { y[i] = weight * x[i] + 0.1; }
  void backward_input(std::size_t i) { dx[i] = weight * dy[i]; }
  void backward_weight(std::size_t i) { gradient += x[i] * dy[i]; }
};

double sample(std::size_t i) { return 1.0 / static_cast<double>(3 * i + 7); }

/// Executes a rank's list. On a single rank, adjacent stages pass values directly.
void run_rank(const pipeline_schedule& schedule, std::size_t rank, std::vector<stage>& stages, std::vector<channel>& channels,
              send_mode mode) {
  using enum action_kind;
  const bool alone = schedule.ranks() == 1;
  for (const pipeline_action& action : schedule.actions[rank]) {
    const std::size_t i = action.micro_batch, at = schedule.stage_of(rank, action.chunk);
    stage& own = stages[at];
    channel* out = is_send(action.kind) ? &channels[channel_of(schedule, rank, action.peer)] : nullptr;
    channel* in = is_receive(action.kind) ? &channels[channel_of(schedule, action.peer, rank)] : nullptr;
    const bool first = at == 0, last = at + 1 == schedule.stages();
    if (action.kind == forward && (first || alone)) own.x[i] = first ? sample(i) : stages[at - 1].y[i];
    if (makes_input_gradient(action.kind) && (last || alone)) own.dy[i] = last ? own.y[i] : stages[at + 1].dx[i];
    switch (action.kind) {
      case forward:
        own.forward(i);
        break;
      case backward:
        own.backward_input(i);
        own.backward_weight(i);
        break;
      case backward_input:
        own.backward_input(i);
        break;
      case backward_weight:
        own.backward_weight(i);
        break;
      case send_forward:
        out->send(own.y[i], mode);
        break;
      case send_backward:
        out->send(own.dx[i], mode);
        break;
      case receive_forward:
        own.x[i] = in->receive();
        break;
      case receive_backward:
        own.dy[i] = in->receive();
        break;
      case reduce:
        break;
    }
  }
}

/// Gradients of all stages, one thread per rank.
std::vector<double> gradients_by(const pipeline_schedule& schedule, send_mode mode) {
  std::vector<stage> stages;
  for (std::size_t s = 0; s < schedule.stages(); ++s) stages.emplace_back(s, schedule.micro_batches());
  std::vector<channel> channels(2 * schedule.ranks());
  std::vector<std::string> problems(schedule.ranks());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        run_rank(schedule, rank, stages, channels, mode);
      } catch (const std::exception& problem) {
        problems[rank] = problem.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) REQUIRE(problem == "");
  std::vector<double> gradients;
  for (const stage& one : stages) gradients.push_back(one.gradient);
  return gradients;
}

/// Without a schedule: each micro-batch forward and backward through all stages, then the next.
std::vector<double> gradients_of_a_loop(std::size_t count, std::size_t micro_batches) {
  std::vector<stage> stages;
  for (std::size_t s = 0; s < count; ++s) stages.emplace_back(s, micro_batches);
  for (std::size_t i = 0; i < micro_batches; ++i) {
    for (std::size_t s = 0; s < count; ++s) {
      stages[s].x[i] = s == 0 ? sample(i) : stages[s - 1].y[i];
      stages[s].forward(i);
    }
    for (std::size_t s = count; s-- > 0;) {
      stages[s].dy[i] = s + 1 == count ? stages[s].y[i] : stages[s + 1].dx[i];
      stages[s].backward_input(i);
      stages[s].backward_weight(i);
    }
  }
  std::vector<double> gradients;
  for (const stage& one : stages) gradients.push_back(one.gradient);
  return gradients;
}

}  // namespace

TEST_CASE("threads that carry out a schedule make the gradients of one rank, bit for bit, whether sends wait or not") {
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    const std::vector<std::size_t> rows(3 * ranks, 1);
    for (const pipeline_schedule& schedule :
         {gpipe_schedule(ranks, rows), one_forward_one_backward_schedule(ranks, rows), zero_bubble_schedule(ranks, rows),
          interleaved_schedule(ranks, 2, rows), interleaved_schedule(ranks, 3, rows), all_in_all_out_schedule(ranks, 2, rows)}) {
      CAPTURE(concat(schedule.name, " on ", ranks, " ranks, ", schedule.chunks, " chunks"));
      const std::vector<double> expected = gradients_of_a_loop(schedule.stages(), schedule.micro_batches());
      REQUIRE(gradients_by(schedule, send_mode::buffered) == expected);
      REQUIRE(gradients_by(with_rendezvous(schedule), send_mode::rendezvous) == expected);
    }
  }
}

TEST_CASE("in another order the same gradients are rounded differently") {  // otherwise the test above could not fail
  pipeline_schedule work = empty_schedule("reversed", 2, 1, std::vector<std::size_t>(6, 1));
  for (auto& list : work.actions) {
    for (std::size_t i = 0; i < 6; ++i) list.push_back({action_kind::forward, i});
    for (std::size_t i = 6; i-- > 0;) list.push_back({action_kind::backward, i});
  }
  CHECK(gradients_by(with_messages(work), send_mode::buffered) != gradients_of_a_loop(2, 6));
}
