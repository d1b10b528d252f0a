// says: xtrain recipe: 'device' must be a device
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  struct device {};
#endif
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
