// says: xtrain recipe: 'optimizer' must be an optimizer policy
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/trainer.hpp>

struct my_optimizer : xtrain::testing::bare_optimizer {
#ifdef MISTAKE
 private:
  using xtrain::testing::bare_optimizer::name;
#endif
};
struct recipe : xtrain::defaults {
  using optimizer = my_optimizer;
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
