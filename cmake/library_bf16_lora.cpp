// Training and generation in bf16, with a LoRA adapter, once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/compiled.hpp>

XTRAIN_COMPILED_TRAINING(, xtrain::bf16_mixed, xtrain::lora)
