// says: xtrain recipe: 'optimizer' is the name of the axis
// says: xtrain recipe: 'recompute' is the name of the axis
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using optimiser = xtrain::adamw;
  using recomputation = xtrain::recompute_full;
#endif
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }  // around the library, its trainer knows another recipe
