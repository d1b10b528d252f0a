// says: xtrain recipe: must name every axis
#include <xtrain/train/recipe.hpp>

#ifdef MISTAKE
struct recipe {
  using device = xtrain::cpu;
  using precision = xtrain::fp32;
};
#else
struct recipe : xtrain::defaults {};
#endif
std::string text() { return xtrain::describe<recipe>(); }
