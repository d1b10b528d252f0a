// says: xtrain recipe: 'layout_alignment' is the name of the optimizer's optional member
// says: xtrain recipe: 'has_learning_rate_factors' is the name of the optimizer's optional member
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer : xtrain::testing::bare_optimizer {
#ifdef MISTAKE
  static constexpr std::size_t alignment = 64;
  static constexpr bool has_lr_factors = true;
#else
  static constexpr std::size_t layout_alignment = 64;
  static constexpr bool has_learning_rate_factors = true;
#endif
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
