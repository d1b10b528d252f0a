// says: xtrain from_pretrained: the 'io' component must be included
#ifndef MISTAKE
#include <xtrain/io.hpp>
#endif
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {};
auto load() { return xtrain::llama<recipe>::from_pretrained("folder"); }
