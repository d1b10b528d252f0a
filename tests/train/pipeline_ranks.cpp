// Pipelines' checkpoints load on any number of ranks; memory, traffic, refusals.
#include <doctest/doctest.h>

#include <mutex>
#include <type_traits>

#include <xtrain/models/gpt2.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include "pipelines.hpp"
#include "scratch.hpp"

namespace {

/// `steps` steps on some ranks, with a checkpoint folder; returns the final weights.
template <class Model>
std::vector<double> run_in(const std::string& folder, std::size_t ranks, std::size_t steps, bool resumes, typename Model::options options = {}) {
  const dataset data = sentences();
  std::vector<double> weights;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options own = options;
    std::size_t data_ranks = 1;
    if constexpr (!std::is_same_v<typename Model::recipe::parallel, single>) {
      own.parallel.ranks = network;
      data_ranks = own.parallel.data_parallel_size;
    }
    Model model(layers(4, true), {}, own);
    trainer trainer(model, run_config{.max_steps = steps,
                                      .micro_batch_size = 2,
                                      .gradient_accumulation_steps = 4 / data_ranks,
                                      .learning_rate = 1e-3,
                                      .lr_schedule = lr_schedule_kind::constant});
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    if (resumes) CHECK(checkpoints.resume());
    trainer.attach(checkpoints);
    trainer.fit(data);
    trainer.save(folder + "/out");
    const std::vector<double> mine = collected(model);
    if (network->rank() == 0) weights = mine;
  });
  return weights;
}

}  // namespace

TEST_CASE("a checkpoint of a pipeline goes on with one rank, and back, and with other stages") {
  using alone = gpt2<recipe<single>>;
  using piped = gpt2<recipe<pipeline<chosen>>>;
  const scratch_folder scratch;
  const std::vector<double> one = run_in<alone>(scratch / "one", 1, 6, false);
  const auto near = [&](const std::vector<double>& other) { CHECK(difference(one, other) < 2e-5); };
  const auto is_saved = [&](const std::string& folder, const std::vector<double>& weights) {
    CHECK(collected(alone::from_pretrained(folder + "/out")) == weights);
    // every rank loads its own weights
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      const auto loaded = collected(piped::from_pretrained(folder + "/out", {}, {.parallel = {.ranks = network}}));
      if (network->rank() == 0) CHECK(loaded == weights);
    });
  };

  (void)run_in<piped>(scratch / "down", 2, 3, false);
  const auto down = run_in<alone>(scratch / "down", 1, 6, true);
  near(down);

  (void)run_in<alone>(scratch / "up", 1, 3, false);
  const auto up = run_in<piped>(scratch / "up", 2, 6, true);
  near(up);
  is_saved(scratch / "up", up);

  chosen_schedule = all_in_all_out::make;
  (void)run_in<piped>(scratch / "other", 4, 3, false);
  const auto other = run_in<piped>(scratch / "other", 4, 6, true, {.parallel = {.data_parallel_size = 2, .chunks = 2}});
  chosen_schedule = one_forward_one_backward::make;
  near(other);
  is_saved(scratch / "other", other);
}

TEST_CASE("adapters are saved from the stages they are on, and loaded there") {
  const scratch_folder scratch;
  using alone = gpt2<lora_recipe<single>>;
  using piped = gpt2<lora_recipe<pipeline<chosen>>>;
  const std::vector<double> one = run_in<alone>(scratch / "one", 1, 6, false);
  (void)run_in<piped>(scratch / "down", 2, 3, false);
  CHECK(difference(one, run_in<alone>(scratch / "down", 1, 6, true)) < 2e-5);
  (void)run_in<alone>(scratch / "up", 1, 3, false);
  CHECK(difference(one, run_in<piped>(scratch / "up", 2, 6, true)) < 2e-5);
}

namespace {

/// Memory of every rank, its plan, and its traffic between stages.
struct cost {
  std::vector<memory_count> held;
  std::vector<dry_run> plan;
  std::vector<traffic> sent;
  std::size_t allocations = 0;  // of device memory, after the first step

  cost(std::size_t ranks, const decoder_config& shape, const run_config& run, const pipeline_ranks& how) : held(ranks), plan(ranks), sent(ranks) {
    const dataset data = [&] {
      dataset all("numbers", sequence_layout::stream);
      std::vector<token> tokens;
      for (token i = 0; i < 4000; ++i) tokens.push_back(i * i % 97);
      all.add(tokens);
      all.finish();
      return all;
    }();
    std::mutex mutex;
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const cpu::context on;
      pipeline_ranks own = how;
      own.ranks = network;
      llama<recipe<pipeline<chosen>>> model(shape, on, {.parallel = own});
      trainer trainer(model, run);
      loader rows(data, trainer.loader_settings());
      (void)trainer.step(rows.next(), 1e-3);
      const std::size_t before = on.memory().allocations;
      (void)trainer.step(rows.next(), 1e-3);
      const std::lock_guard lock(mutex);
      allocations += on.memory().allocations - before;
      held[network->rank()] = on.memory();
      plan[network->rank()] = trainer.plan();
      model.parallel().visit_traffic([&](traffic_role role, const traffic& one) {
        if (role == traffic_role::pipeline_parallel) sent[network->rank()] += one;
      });
    });
  }
  [[nodiscard]] double most(memory_role role) const {
    double all = 0;
    for (const memory_count& one : held) all = std::max(all, static_cast<double>(one.of(role)));
    return all;
  }
};

}  // namespace

TEST_CASE("a rank holds its part, as planned, and sends one boundary forth and one back for every cut and micro-batch") {
  decoder_config shape = layers(8, false);
  shape.hidden_size = 32;
  shape.vocab_size = 97;
  shape.intermediate_size = 96;
  const run_config run{.max_steps = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8, .learning_rate = 1e-3};
  const cost whole(1, shape, run, {}), two(2, shape, run, {}), four(4, shape, run, {});
  for (const memory_role role : {memory_role::weights, memory_role::gradients, memory_role::optimizer}) {
    CHECK(two.most(role) < 0.55 * whole.most(role));  // a half, plus the embedding or the head
    CHECK(four.most(role) < 0.33 * whole.most(role));
  }
  for (const cost* one : {&whole, &two, &four}) {
    CHECK(one->allocations == 0);
    for (std::size_t rank = 0; rank < one->held.size(); ++rank)
      for (std::size_t role = 0; role < memory_roles; ++role) {
        CAPTURE(name_of(static_cast<memory_role>(role)));
        CHECK(one->held[rank].now[role] == one->plan[rank].bytes[role]);
      }
  }
  const std::size_t boundary = 2 * shape.max_position_embeddings * shape.hidden_size * sizeof(float), micro_batches = 2 * 8;
  const auto bytes = [](const cost& of) {
    std::size_t all = 0;
    for (const traffic& one : of.sent) all += one.bytes;
    return all;
  };
  CHECK(whole.sent[0].bytes == 0);
  CHECK(bytes(two) == 2 * boundary * micro_batches);
  CHECK(bytes(four) == 3 * 2 * boundary * micro_batches);
  CHECK(four.sent[0].bytes == boundary * micro_batches);
  CHECK(four.sent[1].messages == 2 * micro_batches);
  chosen_schedule = interleaved::make;
  CHECK(bytes(cost(2, shape, run, {.chunks = 4})) == 7 * 2 * boundary * micro_batches);
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("messages that are late, each by another time, change nothing, and nobody waits for ever") {
  const dataset data = sentences();
  const run_config run{.max_steps = 2, .micro_batch_size = 1, .gradient_accumulation_steps = 8, .learning_rate = 1e-3};
  using piped = llama<recipe<pipeline<chosen>>>;
  const auto on_network = [&](std::size_t chunks, double seconds) {
    std::vector<double> weights;
    run_ranks(4, [&](const std::shared_ptr<transport>& network) {
      const auto late = std::make_shared<testing::slow_transport>(network, testing::slow_network{.jitter = std::chrono::duration<double>(seconds)});
      const auto mine = run_here<piped>(data, layers(8, false), run, {.parallel = {.ranks = late, .chunks = chunks}});
      if (network->rank() == 0) weights = mine.weights;
    });
    return weights;
  };
  for (const auto& [make, chunks] : {std::pair<make_schedule, std::size_t>{gpipe::make, 1}, {one_forward_one_backward::make, 1},
                                     {interleaved::make, 2}, {all_in_all_out::make, 2}}) {
    chosen_schedule = make;
    CHECK(on_network(chunks, 0.0) == on_network(chunks, 0.003));
  }
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("any rank of any pipeline is planned on one machine, without the others") {
  using piped = llama<recipe<pipeline<chosen>>>;
  const auto planned = [](std::size_t rank) {
    return trainer<piped>::run_dry(layers(64, false), {.parallel = {.ranks = std::make_shared<dry_transport>(rank, 64), .data_parallel_size = 2}},
                                    run_config{.micro_batch_size = 2, .gradient_accumulation_steps = 64}, cpu::context{}.properties());
  };
  const dry_run first = planned(0), last = planned(63);
  CHECK(first.of(memory_role::weights) < first.parameters * sizeof(float) / 8);
  CHECK(first.of(memory_role::stash) > 16 * last.of(memory_role::stash));  // 32 micro-batches in flight, or one
}

TEST_CASE("schedules keep as many micro-batches as they promise") {
  const auto kept = [](const pipeline_schedule& schedule, std::size_t rank) { return memory_of(with_rendezvous(schedule).actions[rank]).saved; };
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(kept(gpipe_schedule(4, std::vector<std::size_t>(8, 1)), rank) == 8);
    CHECK(kept(one_forward_one_backward_schedule(4, std::vector<std::size_t>(8, 1)), rank) == 4 - rank);
  }
  CHECK(kept(all_in_all_out_schedule(4, 2, std::vector<std::size_t>(8, 1)), 0) == 16);
}

TEST_CASE("numbers that contradict one another are refused, and said") {
  const auto refused = [](std::size_t ranks, const decoder_config& shape, const run_config& run, const pipeline_ranks& how, const char* sentence) {
    CAPTURE(sentence);
    std::vector<std::string> said(ranks);
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      try {
        pipeline_ranks own = how;
        own.ranks = network;
        llama<recipe<pipeline<chosen>>> model(shape, {}, {.parallel = own});
        trainer trainer(model, run);
      } catch (const config_error& error) {
        said[network->rank()] = error.what();
      }
    });
    for (const std::string& one : said) CHECK(one == sentence);
  };
  const run_config run{.max_steps = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 3};
  const decoder_config shape = layers(4, false);
  refused(2, layers(1, false), run, {}, "pipeline: every stage must have a layer; given 1 layers for 2 stages");
  refused(3, shape, run, {.data_parallel_size = 2},
          "pipeline: ranks must be a multiple of data x tensor x context; given 3 ranks, data 2, tensor 1 and context 1");
  refused(2, shape, run, {.data_parallel_size = ~std::size_t{0}},
          "pipeline: ranks must be a multiple of data x tensor x context; given 2 ranks, data 18446744073709551615, tensor 1 and context 1");
  refused(2, shape, run, {.chunks = 0}, "pipeline: a rank must have between 1 and 4096 stages; given chunks 0");
  refused(2, shape, run, {.chunks = 5}, "pipeline: every stage must have a layer; given 4 layers for 10 stages");
  refused(2, shape, run, {.stage_layers = {4}}, "pipeline: layers must be given for each of 2 stages (ranks x chunks); given for 1");
  refused(2, shape, run, {.stage_layers = {2, 1}}, "pipeline: layers of all stages must be the model's 4; given 3");
  refused(2, shape, run, {.stage_layers = {2, ~std::size_t{0}}}, "pipeline: layers of all stages must be the model's 4; the first 2 stages have more");
  refused(3, shape, run, {.stage_layers = {2, 0, 2}}, "pipeline: a stage between the first and the last must have a layer; stage 1 of 3 has none");
  refused(2, shape, run, {.chunks = 2},
          "one_forward_one_backward: a rank must have one stage; given 2 chunks. Schedules with more are interleaved and all_in_all_out");
  refused(2, shape, run, {.micro_batch_sizes = {3, 3}},
          "pipeline: micro-batch sizes must be given for 3 micro-batches (gradient_accumulation_steps) of 6 sequences together (micro_batch_size x "
          "gradient_accumulation_steps); given 2 with 6");
  refused(2, shape, run, {.micro_batch_sizes = {3, 3, 0}},
          "pipeline: micro-batch sizes must be given for 3 micro-batches of 6 sequences together, at least one each; given 0 after 6");
  chosen_schedule = interleaved::make;
  refused(2, shape, run, {.chunks = 2}, "interleaved: micro-batches (3) must be divisible by ranks (2)");
  chosen_schedule = zero_bubble::make;
  refused(2, shape, run, {},
          "zero_bubble: backwards in two parts must be those of a schedule that says splits_backwards = true; given backward_input of "
          "micro-batch 0 on chunk 0");
  chosen_schedule = one_forward_one_backward::make;

  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<pipeline<chosen>>> model(shape, {}, {.parallel = {.ranks = network}});
    CHECK_THROWS_WITH_AS((void)model.parameter<2>(network->rank() == 0 ? "lm_head.weight" : "model.embed_tokens.weight"),
                         doctest::Contains("must be on this rank"), config_error);
    trainer trainer(model, run);
    host_batch one;
    one.b = 1, one.t = 2, one.tokens = {1, 2}, one.targets = {2, 3}, one.positions = {0, 1}, one.starts = {0, 0}, one.target_count = 2;
    const std::vector<host_batch> two(2, one);
    CHECK_THROWS_WITH_AS(trainer.step(std::span<const host_batch>(two), 0.0), doctest::Contains("a step must have the 3 micro-batches"),
                         config_error);
    CHECK_THROWS_WITH_AS(model.parameters().require_whole("merging"), doctest::Contains("its strategy gives ranks different layers"), config_error);
  });
}
