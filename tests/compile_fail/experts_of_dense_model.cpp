// says: 'parallel' must not be expert-parallel, because the model has no experts
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
  using parallel = xtrain::expert_parallel;
};
#ifdef MISTAKE
using model = xtrain::llama<recipe>;
#else
using model = xtrain::mixtral<recipe>;
#endif
model make(const xtrain::decoder_config& sizes) { return model(sizes); }
