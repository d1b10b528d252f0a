// says: xtrain recipe: the optimizer's state must open on a parameter store of this device and precision
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer : xtrain::testing::bare_optimizer {
#ifdef MISTAKE
  template <class Device, class Precision>
  struct state {
    state(const config&, xtrain::execution<Device>&, const xtrain::parameter_store<Device, Precision>&) {}
  };
#endif
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
