// A step calls the hooks of its parallel strategy in order, once each. What recipes share.
#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

std::vector<std::string>& calls() {
  static std::vector<std::string> all;
  return all;
}

struct counting_communicator : testing::bare_communicator {
  std::string axis;
  std::size_t device_reductions = 0;
  std::size_t host_reductions = 0;
  using testing::bare_communicator::all_reduce;
  void all_reduce(std::span<double>, reduction) { ++host_reductions; }
  template <class Stream, class T, class Memory>
  void all_reduce(Stream&, device_span<T, Memory>, reduction) {
    ++device_reductions;
  }
};

struct watched {
  static constexpr std::string_view name = "watched";
  using hooks = xtrain::hooks<>;
  struct config {};
  template <class Device>
  struct state {
    explicit state(const config&) {}
    counting_communicator& data() { return data_; }
    counting_communicator& tensor() { return tensor_; }
    counting_communicator& world() { return data_; }
    template <class Stream, class Store>
    void block_begins(Stream&, Store&, std::size_t block, block_visit) {
      calls().push_back(concat("begin ", block));
    }
    template <class Stream, class Store>
    void block_ends(Stream&, Store&, std::size_t block, block_visit) {
      calls().push_back(concat("end ", block));
    }
    template <class Stream, class Store>
    void gradients_ready(Stream&, Store&, std::size_t block, bool last_of_step) {
      calls().push_back(concat(last_of_step ? "ready " : "made ", block));
    }
    template <class Stream, class Store>
    void finish_gradients(Stream&, Store&) {
      calls().push_back("finish");
    }
    template <class Stream, class Sums>
    void reduce_losses(Stream&, Sums) {
      calls().push_back("losses");
    }
    template <class Stream, class Store, class Squares, class Sum>
    void gradient_squares(Stream&, Store& store, Squares squares, Sum sum) {
      calls().push_back("squares");
      const auto all = store.gradients();
      squares(std::span(&all, 1), sum);
    }
    template <class Stream, class Store>
    void weights_changed(Stream&, Store&) {
      calls().push_back("changed");
    }
    template <class Stream, class Store, class Entry, class Span, class T>
    void collect(Stream&, const Store&, const Entry&, Span, std::span<T>) {}
    [[nodiscard]] shard_spec sharding() const { return {}; }
    counting_communicator data_, tensor_;
  };
};

struct recipe : defaults {
  using parallel = watched;
};
struct bare_recipe : defaults {
  using parallel = testing::bare_strategy;
  using optimizer = testing::bare_optimizer;
  using precision = testing::bare_precision;
};

static_assert(parallel_strategy<single> && parallel_strategy<watched>);

// equal computations are compiled once
struct otherwise_trained : defaults {
  using optimizer = testing::bare_optimizer;
};
struct sharded : defaults {
  using parallel = tensor_parallel;
};
static_assert(std::is_same_v<llama<recipe>::computation, llama<defaults>::computation>);
static_assert(std::is_same_v<computed_model<llama<otherwise_trained>>, computed_model<llama<defaults>>>);
static_assert(!std::is_same_v<llama<sharded>::computation, llama<defaults>::computation>);
static_assert(std::is_same_v<computation_of<computation_of<sharded>>, computation_of<sharded>>);
static_assert(parallel_strategy_for<single, cpu, parameter_store<cpu, fp32>>);
struct without_hooks {
  [[maybe_unused]] static constexpr std::string_view name = "x";
  struct config {};
  template <class Device>
  struct state {
    explicit state(const config&) {}
    self& data() { return self_; }
    self& tensor() { return self_; }
    self& world() { return self_; }
    self self_;
  };
};
struct without_communicators {
  [[maybe_unused]] static constexpr std::string_view name = "x";
  struct config {};
  template <class Device>
  struct state {
    explicit state(const config&) {}
  };
};
static_assert(!clause::strategy_hooks_into_a_step<without_hooks, cpu, parameter_store<cpu, fp32>>);
static_assert(!clause::strategy_has_communicators<without_communicators, cpu, float>);

host_batch rows(std::size_t first_sequence) {
  host_batch batch{.b = 1,
                   .t = 4,
                   .tokens = {1, 2, 3, 4},
                   .targets = {2, 3, 4, 5},
                   .positions = {0, 1, 2, 3},
                   .starts = {0, 0, 0, 0},
                   .target_count = 4,
                   .token_count = 4,
                   .first_sequence = first_sequence};
  return batch;
}

}  // namespace

TEST_CASE("hooks surround every block forth and back; gradients are ready once, in the order of the backward") {
  llama<recipe> model({.vocab_size = 9, .hidden_size = 8, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 4});
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = 1, .gradient_accumulation_steps = 2});
  calls().clear();
  const std::vector<host_batch> two{rows(0), rows(1)};
  (void)trainer.step(std::span<const host_batch>(two), 1e-3);
  std::vector<std::string> expected;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (int block = 0; block < 4; ++block)
      for (const char* what : {"begin ", "end "}) expected.push_back(concat(what, block));
    for (int block = 3; block >= 0; --block) {
      for (const char* what : {"begin ", "end "}) expected.push_back(concat(what, block));
      expected.push_back(concat(micro_batch == 1 ? "ready " : "made ", block));
    }
  }
  for (const char* what : {"finish", "losses", "squares", "changed"}) expected.push_back(what);
  CHECK(calls() == expected);
  CHECK(model.parallel().tensor().device_reductions == 0);  // shards no layer: its state has no layers()
  CHECK(model.parallel().data().host_reductions == 1);  // target counts
}

TEST_CASE("hooks surround every block of a pass that is only read from, the head included") {
  llama<recipe> model({.vocab_size = 9, .hidden_size = 8, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 4});
  const array<token, 2> tokens{{1, 2, 3, 4}};
  calls().clear();
  (void)logits(model, tokens);
  // the pass begins with a dry run: the same calls, twice
  std::vector<std::string> expected;
  for (int pass = 0; pass < 2; ++pass)
    for (int block = 0; block < 4; ++block)
      for (const char* what : {"begin ", "end "}) expected.push_back(concat(what, block));
  CHECK(calls() == expected);
}

TEST_CASE("archetypes carry a whole run: no room asks for more than its concepts say") {
  llama<bare_recipe> model({.vocab_size = 9, .hidden_size = 8, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 4});
  trainer trainer(model, {.max_steps = 2, .micro_batch_size = 1});
  const std::vector<host_batch> one{rows(0)};
  const double first = trainer.step(std::span<const host_batch>(one), 1.0).loss;
  CHECK(trainer.step(std::span<const host_batch>(one), 1.0).loss == first);  // the bare optimizer changes nothing
}

TEST_CASE("a recipe describes itself") {
  const std::string text = describe<recipe>();
  CHECK(text.find("parallel   watched\n") != std::string::npos);
  CHECK(text.find("precision  fp32 (parameter fp32, gradient fp32, master fp32, state fp32, updates rounded to nearest)\n") !=
        std::string::npos);
}
