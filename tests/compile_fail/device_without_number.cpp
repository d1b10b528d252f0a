// says: xtrain recipe: the device must multiply matrices of the precision's compute type
// A device without a single kernel, and no fallback.
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/train/recipe.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using device = xtrain::testing::bare_device;
#else
  using device = xtrain::with_host_fallback<xtrain::testing::bare_device>;
#endif
};
std::size_t size() { return sizeof(xtrain::llama<recipe>); }
