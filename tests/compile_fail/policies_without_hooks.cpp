// says: 'optimizer' must be an optimizer policy: a name, a config, hooks (xtrain::hooks<> if it has no optional members)
// says: optimizer_lists_its_hooks
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer {
  static constexpr std::string_view name = "mine";
#ifndef MISTAKE
  using hooks = xtrain::hooks<>;
#endif
  using config = xtrain::testing::bare_optimizer::config;
  template <class Device, class Precision>
  using state = xtrain::testing::bare_optimizer::state<Device, Precision>;
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
