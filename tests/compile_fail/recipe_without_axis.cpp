// says: xtrain recipe: must name every axis
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

#ifdef MISTAKE
struct recipe {
  using device = xtrain::cpu;
  using precision = xtrain::fp32;
  using parallel = xtrain::single;
  using recompute = xtrain::recompute_none;
  using adapter = xtrain::no_adapter;
  using optimizer = xtrain::adamw;
};
#else
struct recipe : xtrain::defaults {};
#endif
std::size_t size() { return sizeof(xtrain::trainer<xtrain::llama<recipe>>); }
