// says: xtrain recipe: 'adapter' is the name of the axis
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using adapters = xtrain::no_adapter;
#endif
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
