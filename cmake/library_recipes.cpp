// The definitions of component 'recipes', once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/recipes/deepspeed_impl.hpp>
#include <xtrain/recipes/hugging_face_impl.hpp>
#include <xtrain/recipes/megatron_impl.hpp>
#include <xtrain/recipes/musa_demo_impl.hpp>
#include <xtrain/recipes/recipe_type_impl.hpp>
#include <xtrain/recipes/run_description_impl.hpp>
#include <xtrain/recipes/torchtune_impl.hpp>
#include <xtrain/recipes/trainer_cache_impl.hpp>
#include <xtrain/recipes/yaml_impl.hpp>
