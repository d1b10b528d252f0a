// says: xtrain recipe: the strategy's hooks must be tags of strategies
// says: xtrain recipe: 'steps_are_queued(count)' must be both
// says: xtrain recipe: 'ranks' must be both
// says: xtrain recipe: 'adds_up' of the strategy's state is no hook; did you mean the hook 'add_up'?
#include <span>

#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_strategy : xtrain::testing::bare_strategy {
#ifdef MISTAKE
  using hooks = xtrain::hooks<xtrain::hook::ranks, xtrain::hook::upload>;
#else
  using hooks = xtrain::hooks<xtrain::hook::add_up, xtrain::hook::steps_are_queued>;
#endif
  template <class Device>
  struct state : xtrain::testing::bare_strategy::state<Device> {
    using xtrain::testing::bare_strategy::state<Device>::state;
    void steps_are_queued(std::size_t) {}  // with the mistake: not listed
#ifdef MISTAKE
    void adds_up(std::span<double>) {}  // has another name
#else
    void add_up(std::span<double>) {}
#endif
  };
};
struct recipe : xtrain::defaults {
  using parallel = my_strategy;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
