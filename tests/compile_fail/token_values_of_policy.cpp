// says: xtrain trainer::token_values: the recipe's 'objective' must be ppo_value; see rl/README.md
#include <vector>

#include <xtrain/data/loader.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/objective/ppo_value.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {
  using objective = xtrain::ppo_value;
};
struct policy : xtrain::defaults {
  using objective = xtrain::ppo;
};
#ifdef MISTAKE
using trained = policy;
#else
using trained = recipe;
#endif
std::vector<float> values(xtrain::trainer<xtrain::llama<trained>>& trainer, const xtrain::host_batch& batch) { return trainer.token_values(batch); }
