// Runs with random delays of ranks and messages: no deadlock, same results.
//
//   equality.late [runs] [seed]
//
// Drawn runs: collectives on all axes of a mesh while a background thread communicates, a schedule that ranks execute, or a training of two steps, with the
// bits of a run without delays. A rank that waits longer than two minutes (the timeout) ends the program.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/mesh.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include "draw.hpp"

namespace {

using namespace equality;
using network = std::shared_ptr<transport>;
using std::chrono::microseconds;

/// Pauses before some messages, like work of random duration.
class dawdling_transport final : public transport {
 public:
  dawdling_transport(network of, std::uint64_t seed) : of_(std::move(of)), seed_(seed) {}

  [[nodiscard]] std::string_view name() const override { return "dawdling"; }
  [[nodiscard]] std::size_t rank() const override { return of_->rank(); }
  [[nodiscard]] std::size_t size() const override { return of_->size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    dawdle();
    return of_->send(to, channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    dawdle();
    return of_->receive(from, channel, bytes);
  }

 private:
  void dawdle() {
    std::uint32_t random = 0;
    {
      const std::lock_guard lock(mutex_);
      random = random_word({.seed = seed_, .step = static_cast<std::uint32_t>(rank()), .site = 1, .first = 0}, messages_++);
    }
    if (random % 8 == 0) std::this_thread::sleep_for(microseconds(random / 8 % 500));
  }

  network of_;
  std::uint64_t seed_;
  std::mutex mutex_;
  std::uint64_t messages_ = 0;
};

/// Calls work(network) on threads with random delays of messages and ranks; seed 0: without delays.
template <class Work>
void on_late_ranks(std::size_t ranks, std::uint64_t seed, Work&& work) {
  const thread_ranks_options options{.timeout = std::chrono::minutes(2)};
  const auto late = [&](const network& of) -> network {
    if (seed == 0) return of;
    const testing::slow_network how{.jitter = microseconds(400), .seed = seed};
    return std::make_shared<dawdling_transport>(std::make_shared<testing::slow_transport>(of, how), seed);
  };
  run_ranks(ranks, [&](const network& of) { work(late(of)); }, options);
}

void require_that(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

/// Collectives in the same order on all ranks, on groups along any axis; meanwhile a background thread all-reduces over all ranks.
void exchange_on_mesh(dice throws, std::uint64_t late) {
  mesh_sizes sizes;
  std::size_t* const axes[] = {&sizes.data_parallel_size, &sizes.tensor_parallel_size, &sizes.pipeline_parallel_size, &sizes.context_parallel_size,
                               &sizes.expert_parallel_size};
  for (std::size_t i = 0; i < 3; ++i) *axes[throws.below(5)] *= 2;
  on_late_ranks(sizes.ranks(), late, [&](const network& all) {
    dice same = throws;  // the same draws on all ranks
    const mesh ranks(all, sizes);
    std::vector<group> along;
    for (std::size_t a = 0; a < mesh_axes; ++a) along.push_back(ranks.along(static_cast<axis>(a)));
    group beside = ranks.all(1);
    const double everyone = static_cast<double>(all->size() * (all->size() - 1)) / 2;
    background behind;
    for (int i = 0; i < 5; ++i)
      behind.begin([&, n = std::size_t{1} << (3 * i)] {
        std::vector<double> values(n, static_cast<double>(all->rank()));
        beside.all_reduce(std::span<double>(values), reduction::sum);
        require_that(values.front() == everyone && values.back() == everyone, "a sum beside others must be that of all ranks");
      });
    for (int i = 0; i < 12; ++i) {
      group& some = along[same.below(along.size())];
      const std::size_t part = same.one_in(3) ? 1000 : 1 + same.below(7);
      std::vector<double> members(some.size() * part), mine(part, static_cast<double>(all->rank()));
      some.all_gather(std::span<const double>(mine), std::span<double>(members));
      double sum = 0;
      for (std::size_t m = 0; m < some.size(); ++m) sum += members[m * part];
      std::vector<double> values = mine;
      switch (same.below(4)) {
        case 0: some.all_reduce(std::span<double>(values), reduction::sum); break;
        case 1: {
          std::vector<double> whole(part * some.size(), mine.front());
          some.reduce_scatter(std::span<const double>(whole), std::span<double>(values), reduction::sum);
          break;
        }
        case 2:
          some.broadcast(std::span<double>(values), some.size() - 1);
          sum = members.back();
          break;
        default: {
          std::vector<double> from(part * some.size(), mine.front()), to(from.size());
          some.all_to_all(std::span<const double>(from), std::span<double>(to));
          values.assign(1, std::accumulate(to.begin(), to.end(), 0.0) / static_cast<double>(part));
        }
      }
      require_that(values.front() == sum && values.back() == sum, "a collective must come to what members' ranks say");
    }
    behind.finish();
  });
}

/// Every stage adds one in the forward and in the backward, and sums the returned values. Sends wait for their receives, as the runner's may.
void carry_out_lists(dice throws, std::uint64_t late) {
  const std::size_t ranks = 2 + throws.below(5), groups = 1 + throws.below(3);
  const std::vector<std::size_t> rows(ranks * groups, 1);
  pipeline_schedule lists;
  switch (throws.below(5)) {
    case 0: lists = gpipe::make(ranks, 1, rows); break;
    case 1: lists = one_forward_one_backward::make(ranks, 1, rows); break;
    case 2: lists = interleaved::make(ranks, 1 + throws.below(3), rows); break;
    case 3: lists = all_in_all_out::make(ranks, 1 + throws.below(3), rows); break;
    default: lists = zero_bubble::make(ranks, 1, rows);
  }
  lists = with_rendezvous(std::move(lists));
  std::vector<double> seen(lists.stages());
  on_late_ranks(ranks, late, [&](const network& all) {
    group between(all, 1);
    const std::size_t mine = all->rank();
    std::vector<std::vector<double>> at(lists.chunks, std::vector<double>(rows.size())), back = at;
    for (const pipeline_action& action : lists.actions[mine]) {
      const std::size_t stage = lists.stage_of(mine, action.chunk);
      double& forth = at[action.chunk][action.micro_batch];
      double& returned = back[action.chunk][action.micro_batch];
      const bool goes_forth = action.kind == action_kind::send_forward || action.kind == action_kind::receive_forward;
      const std::span<double> value(goes_forth ? &forth : &returned, 1);
      if (is_send(action.kind)) between.send(action.peer, std::span<const double>(value));
      if (is_receive(action.kind)) between.receive(action.peer, value);
      if (action.kind == action_kind::forward) forth = (stage == 0 ? static_cast<double>(action.micro_batch) : forth) + 1;
      if (makes_input_gradient(action.kind)) returned = (stage + 1 == lists.stages() ? forth : returned) + 1;
      if (makes_weight_gradient(action.kind)) seen[stage] += returned;
    }
  });
  // after all forwards: micro-batch + stages; backward adds one for every stage from the last down to this one
  for (std::size_t stage = 0; stage < seen.size(); ++stage) {
    double expected = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) expected += static_cast<double>(i + seen.size() + (seen.size() - stage));
    require_that(seen[stage] == expected, "a schedule's messages must reach the stages they are for");
  }
}

std::size_t chosen_schedule = 0;
struct chosen {
  static constexpr std::string_view name = "chosen";
  static constexpr bool splits_backwards = true;
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    switch (chosen_schedule) {
      case 0: return gpipe::make(ranks, chunks, std::move(rows));
      case 1: return one_forward_one_backward::make(ranks, chunks, std::move(rows));
      case 2: return interleaved::make(ranks, chunks, std::move(rows));
      case 3: return all_in_all_out::make(ranks, chunks, std::move(rows));
      default: return zero_bubble::make(ranks, chunks, std::move(rows));
    }
  }
};

/// A few trainings: results without delays are computed once each.
template <class Model>
void train_late(dice throws, std::uint64_t late) {
  using config = typename Model::recipe::parallel::config;
  drawn_run run;
  run.shape = {.vocab_size = 97,
               .hidden_size = 16,
               .num_layers = 2,
               .num_heads = 4,
               .intermediate_size = 24,
               .max_position_embeddings = 24,
               .tie_word_embeddings = false,
               .residual_dropout = 0.1};
  run.settings = {.max_steps = 2, .micro_batch_size = 1, .gradient_accumulation_steps = 2, .learning_rate = 1e-3};
  const std::size_t ranks = throws.one_in(2) ? 4 : 8, choice = throws.below(5);
  config layout;
  if constexpr (requires { layout.chunks; }) {
    chosen_schedule = choice;
    layout.data_parallel_size = 2;
    layout.chunks = ranks == 4 && (choice == 2 || choice == 3) ? 2 : 1;
    run.shape.num_layers = 4;
    run.settings.gradient_accumulation_steps = 4;
  } else if constexpr (requires { requires Model::recipe::parallel::has_expert_parallel; }) {
    layout.expert_parallel_size = choice < 2 ? 2 : 4;
    run.shape.num_experts = 4;
    run.shape.num_experts_per_token = 2;
  } else {
    layout.tensor_parallel_size = layout.context_parallel_size = 2;
    layout.shards = choice < 2 ? 0 : 2;
  }
  const auto all_of = [&](std::uint64_t seed) {
    std::vector<outcome> found(ranks);
    on_late_ranks(ranks, seed, [&](const network& all) {
      config own = layout;
      own.ranks = all;
      found[all->rank()] = train<Model>(run, run.settings, {.parallel = own});
    });
    return found;
  };
  static std::map<std::size_t, std::vector<outcome>> in_time;
  const std::size_t key = 10 * ranks + choice;
  if (in_time.count(key) == 0) in_time[key] = all_of(0);
  const std::vector<outcome> found = all_of(late);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const outcome &one = in_time[key][rank], &other = found[rank];
    require_that(one.losses == other.losses && one.norms == other.norms && one.weights == other.weights && one.held_out == other.held_out,
                 "delays must change nothing");
  }
}

using staged = llama<plain_recipe<pipeline<chosen, zero<3>>>>;
using divided = llama<plain_recipe<parallel<zero<3>, tensor_parallel, context_parallel>>>;
using spread = mixtral<plain_recipe<parallel<zero<2>, expert_parallel>>>;

struct scenario {
  const char* name;
  void (*run)(dice, std::uint64_t);
  std::size_t done = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  scenario all[] = {{"collectives", exchange_on_mesh},
                    {"lists", carry_out_lists},
                    {"pipeline", train_late<staged>},
                    {"zero<3> x tensor x context", train_late<divided>},
                    {"zero<2> x expert", train_late<spread>}};
  double slowest = 0;
  for (std::size_t i = 0; i < runs; ++i) {
    scenario& next = all[i % std::size(all)];
    const auto began = std::chrono::steady_clock::now();
    try {
      next.run(dice(seed, i), 1 + seed * 1000003 + i);
    } catch (const std::exception& problem) {
      std::printf("run %zu of seed %llu, %s: %s\n", i, static_cast<unsigned long long>(seed), next.name, problem.what());
      return EXIT_FAILURE;
    }
    ++next.done;
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  std::printf("%zu runs, the slowest %.0f ms:", runs, 1e3 * slowest);
  for (const scenario& one : all) std::printf(" %zu %s%s", one.done, one.name, &one == std::end(all) - 1 ? "\n" : ",");
  return EXIT_SUCCESS;
}
