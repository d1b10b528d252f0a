// says: xtrain rollouts: the recipe's 'parallel' must be single, data_parallel, zero<Stage>, tensor_parallel, sequence_parallel, a pipeline, or a combination of these, without context and expert parallelism
#include <xtrain/models/llama.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/rl/rollouts.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
  using objective = xtrain::grpo;
#ifdef MISTAKE
  using parallel = xtrain::context_parallel;
#endif
};
std::size_t size() { return sizeof(xtrain::rollouts<xtrain::llama<recipe>>); }
