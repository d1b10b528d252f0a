// says: xtrain recipe: 'offload' must be an offload policy
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using offload = xtrain::cpu;
#endif
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
