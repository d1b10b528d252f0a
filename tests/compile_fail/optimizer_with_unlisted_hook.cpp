// says: xtrain recipe: 'layout_alignment' must be both
// says: xtrain recipe: 'layout_align' of the optimizer is no hook; did you mean the hook 'layout_alignment'?
// says: xtrain recipe: 'step_with_strategy' of the optimizer's state is no hook; did you mean the hook 'steps_with_strategy', a tag, for the member 'step'?
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer : xtrain::testing::bare_optimizer {  // lists no hook
  template <class Device, class Precision>
  struct state final : xtrain::testing::bare_optimizer::state<Device, Precision> {
    using xtrain::testing::bare_optimizer::state<Device, Precision>::state;
#ifdef MISTAKE
    template <class On, class Store, class Step, class Strategy>
    void step_with_strategy(On&, const Store&, const Step&, Strategy&) {}
#endif
  };
#ifdef MISTAKE
  static constexpr std::size_t layout_align = 64;
  static std::size_t layout_alignment(std::size_t elements) { return elements; }  // takes something
#endif
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
