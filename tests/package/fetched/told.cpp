// xtrain_add_trainer's recipe, and a use of each dependency, so that each is found and linked.
#include <cstdio>
#include <type_traits>

#include "recipe.hpp"

static_assert(std::is_same_v<recipe::precision, xtrain::fp16_mixed>);
static_assert(std::is_same_v<recipe::recompute, xtrain::recompute_full>);
static_assert(std::is_same_v<recipe::adapter, xtrain::lora>);
static_assert(std::is_same_v<recipe::optimizer, xtrain::adamw>);

int main() {
  std::printf("%s", xtrain::describe<recipe>().c_str());
  try {
    (void)xtrain::load_tokenizer("/no/such/folder");
  } catch (const xtrain::error& problem) {
    std::printf("%s\n", problem.what());
    return 0;
  }
  return 1;
}
