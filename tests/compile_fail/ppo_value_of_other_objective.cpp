// says: xtrain ppo_rollouts: the 'objective' of the value model's recipe must be ppo_value; see rl/README.md
#include <xtrain/models/llama.hpp>
#include <xtrain/rl/ppo_rollouts.hpp>
#include <xtrain/train/recipe.hpp>

struct policy : xtrain::defaults {
  using objective = xtrain::ppo;
};
struct value : xtrain::defaults {
#ifdef MISTAKE
  using objective = xtrain::ppo;
#else
  using objective = xtrain::ppo_value;
#endif
};
std::size_t size() { return sizeof(xtrain::ppo_rollouts<xtrain::llama<policy>, xtrain::llama<value>>); }
