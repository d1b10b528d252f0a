// says: xtrain recipe: 'adapter' must be an adapter policy
#include <xtrain/adapt/lora.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using adapter = xtrain::lora::config;
#else
  using adapter = xtrain::lora;
#endif
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
