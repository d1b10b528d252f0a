// Training and generation in bf16, once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/compiled.hpp>

XTRAIN_COMPILED_TRAINING(, xtrain::bf16_mixed, xtrain::no_adapter)
