// says: xtrain recipe: 'recompute' must be a recompute policy
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using recompute = xtrain::norm_outputs;
#else
  using recompute = xtrain::recompute_selective<xtrain::norm_outputs>;
#endif
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
