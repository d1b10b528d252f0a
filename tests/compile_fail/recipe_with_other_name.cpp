// says: xtrain recipe: 'optimizer' is the name of the axis
// says: xtrain recipe: 'recompute' is the name of the axis
// says: xtrain recipe: must name policies; settings have no effect in it
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using optimiser = xtrain::adamw;
  using recomputation = xtrain::recompute_full;
  struct lr_schedule {};
#else
  using optimizer = xtrain::adamw;
  using recompute = xtrain::recompute_full;
#endif
};
std::string text() { return xtrain::describe<recipe>(); }
