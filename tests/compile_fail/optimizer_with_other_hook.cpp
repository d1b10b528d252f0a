// says: xtrain recipe: the optimizer's hooks must be tags of optimizers
// says: xtrain recipe: 'has_learning_rate_factors' must be a tag
// says: xtrain recipe: 'layout_alignment' must be both
// says: xtrain recipe: 'step(execution, store, step, strategy)' must be both
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer : xtrain::testing::bare_optimizer {
#ifdef MISTAKE
  using hooks = xtrain::hooks<xtrain::hook::upload, xtrain::hook::layout_alignment, xtrain::hook::steps_with_strategy>;
  static constexpr std::size_t alignment = 64;             // listed, and has another name
  static constexpr bool has_learning_rate_factors = true;  // a tag
#else
  using hooks = xtrain::hooks<xtrain::hook::layout_alignment, xtrain::hook::has_learning_rate_factors>;
  static constexpr std::size_t layout_alignment = 64;
#endif
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
