// A step that throws halfway: one rank continues as if it had not run, several refuse to continue.
#include <doctest/doctest.h>

#include <stdexcept>

#include <xtrain/parallel/pipeline.hpp>
#include "pipelines.hpp"

namespace {

/// Where this thread's next step fails.
struct fault {
  bool is_due = false;
  std::size_t block = 0;
  block_visit visit = block_visit::forward;
};
thread_local fault next_fault;
thread_local bool optimizer_fails = false;

/// A strategy whose block hook throws on request.
template <class Of>
struct failing : Of {
  template <class Device>
  class state : public Of::template state<Device> {
    using sound = typename Of::template state<Device>;

   public:
    using sound::sound;
    template <class Stream, class Store>
    void block_begins(Stream& on, Store& store, std::size_t block, block_visit visit) {
      if (counts_of(on) == nullptr && next_fault.is_due && next_fault.block == block && next_fault.visit == visit) {
        next_fault.is_due = false;
        throw std::runtime_error("a block has failed");
      }
      sound::block_begins(on, store, block, visit);
    }
  };
};

/// AdamW that throws after its step.
struct failing_adamw : adamw {
  template <class Device, class Precision>
  class state : public adamw::state<Device, Precision> {
    using sound = adamw::state<Device, Precision>;

   public:
    using sound::sound;
    void step(execution<Device>& on, const parameter_store<Device, Precision>& store, const optimizer_step<Device>& how) {
      sound::step(on, store, how);
      if (counts_of(on.stream) == nullptr && optimizer_fails) throw std::runtime_error("the optimizer has failed");
    }
  };
};

template <class Parallel>
struct failing_recipe : recipe<failing<Parallel>> {
  using optimizer = failing_adamw;
};
using piped = pipeline<one_forward_one_backward, failing<zero<2>>>;

template <class Model>
training_config<typename Model::recipe::optimizer> settings(const Model&) {
  return {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 24};
}

std::vector<host_batch> rows() {
  host_batch one{.b = 2, .t = 24};
  for (auto* values : {&one.tokens, &one.targets, &one.positions, &one.starts}) values->assign(48, 0);
  for (std::size_t i = 0; i < 48; ++i) {
    one.tokens[i] = static_cast<token>(i * i % 97);
    one.targets[i] = static_cast<token>((i + 1) * (i + 1) % 97);
    one.positions[i] = static_cast<token>(i % 24);
  }
  one.target_count = one.token_count = 48;
  return {one, one};
}

template <class Trainer>
double step(Trainer& trainer) {
  const auto batches = rows();
  return trainer.step(std::span<const host_batch>(batches), 1e-3).loss;
}

/// A trainer whose steps fail at each point in turn gives the result of one without failures.
template <class Model>
void forgets_failures() {
  const decoder_config shape = layers(2, false);
  Model sound(shape), failed(shape);
  trainer one(sound, settings(sound)), other(failed, settings(failed));
  const dataset data = sentences();
  for (std::size_t block = 0; block < failed.parameter_blocks(); ++block) {
    for (const block_visit visit : {block_visit::forward, block_visit::backward}) {
      CAPTURE(block);
      next_fault = {true, block, visit};
      CHECK_THROWS_WITH(step(other), "a block has failed");
      CHECK(step(one) == step(other));
    }
    next_fault = {true, block, block_visit::evaluation};
    CHECK_THROWS_WITH((void)other.evaluate(data), "a block has failed");
  }
  CHECK(one.evaluate(data).loss == other.evaluate(data).loss);
  CHECK(collected(sound) == collected(failed));
}

}  // namespace

TEST_CASE("one rank forgets a step that failed in any block, forth or back") {
  forgets_failures<llama<failing_recipe<single>>>();
  forgets_failures<llama<recipe<piped>>>();
}

TEST_CASE("an optimizer that fails leaves half a step: the trainer asks for a checkpoint") {
  llama<failing_recipe<single>> model(layers(2, false));
  trainer trainer(model, settings(model));
  const training_progress before = trainer.progress();
  optimizer_fails = true;
  CHECK_THROWS_WITH(step(trainer), "the optimizer has failed");
  optimizer_fails = false;
  const char* sentence = "training: weights must be those of whole steps; the last failed while the optimizer changed them. Load the last checkpoint";
  CHECK_THROWS_WITH_AS(step(trainer), sentence, error);
  CHECK_THROWS_WITH_AS(trainer.require_finite_weights(), sentence, error);  // called before a checkpoint is written
  trainer.restore(before);
  CHECK_NOTHROW(step(trainer));
}

TEST_CASE("several ranks cannot know where the others are, and say so instead of waiting for them") {
  const dataset data = sentences();
  for (const std::size_t ranks : {2U, 4U})
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      llama<recipe<piped>> model(layers(4, false), {}, {.parallel = {.ranks = network, .data_parallel_size = 2}});
      trainer trainer(model, settings(model));
      (void)step(trainer);
      const std::size_t layer = model.parallel().blocks_of(0).last - 2;
      next_fault = {true, layer, block_visit::backward};
      CHECK_THROWS(step(trainer));  // on a rank of another stage, possibly because this one has stopped
      const char* sentence = "all ranks must finish every step together; one failed halfway, and others may be elsewhere in it. Create new ranks, and load "
                             "the last checkpoint";
      CHECK_THROWS_WITH_AS(step(trainer), doctest::Contains(sentence), comm_error);
      CHECK_THROWS_WITH_AS((void)trainer.evaluate(data), doctest::Contains(sentence), comm_error);
      CHECK_THROWS_WITH_AS(trainer.fit(data), doctest::Contains(sentence), comm_error);
      CHECK_THROWS_WITH_AS(trainer.restore({}), doctest::Contains(sentence), comm_error);
    });
}
