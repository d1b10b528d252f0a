// says: xtrain trainer::save: the 'io' component must be included
#ifndef MISTAKE
#include <xtrain/io.hpp>
#endif
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {};
void save(xtrain::trainer<xtrain::llama<recipe>>& trainer) { trainer.save("folder"); }
