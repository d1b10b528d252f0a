// says: xtrain recipe: 'precision' must be a precision policy
// Gradients in fp16 underflow unless the loss is scaled.
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

struct my_precision : xtrain::fp16_mixed {
#ifdef MISTAKE
  static constexpr bool scales_loss = false;
#endif
};
struct recipe : xtrain::defaults {
  using precision = my_precision;
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
