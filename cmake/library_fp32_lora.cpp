// Training and generation in fp32, with a LoRA adapter, once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/compiled.hpp>

XTRAIN_COMPILED_TRAINING(, xtrain::fp32, xtrain::lora)
