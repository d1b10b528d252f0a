// The definitions of component 'recipes', once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/front_ends/deepspeed_impl.hpp>
#include <xtrain/front_ends/hugging_face_impl.hpp>
#include <xtrain/front_ends/megatron_impl.hpp>
#include <xtrain/front_ends/musa_demo_impl.hpp>
#include <xtrain/front_ends/torchtune_impl.hpp>
#include <xtrain/front_ends/yaml_impl.hpp>
#include <xtrain/recipes/recipe_type_impl.hpp>
#include <xtrain/recipes/run_description_impl.hpp>
#include <xtrain/recipes/trainer_cache_impl.hpp>
