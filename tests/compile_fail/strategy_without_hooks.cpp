// says: xtrain recipe: 'parallel' must be a parallel strategy for this device
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_strategy : xtrain::testing::bare_strategy {
#ifdef MISTAKE
  template <class Device>
  struct state {
    explicit state(const config&) {}
    xtrain::testing::bare_communicator& data() { return communicator; }
    xtrain::testing::bare_communicator& tensor() { return communicator; }
    xtrain::testing::bare_communicator communicator;
  };
#endif
};
struct recipe : xtrain::defaults {
  using parallel = my_strategy;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
