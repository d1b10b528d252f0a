// Component 'io': safetensors, Hugging Face and PEFT folders, checkpoints, JSON data sets. Needs nlohmann-json.
#pragma once

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/prefix_folder.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/io/override_settings.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/rewrite.hpp>
#include <xtrain/train/checkpoint.hpp>
#include <xtrain/xtrain.hpp>
