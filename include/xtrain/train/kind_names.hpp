// Names of the kinds of objectives, optimizers and schedules, as checkpoints record them and command lines take them.
#pragma once

#include <xtrain/core/kind_names.hpp>
#include <xtrain/objective/distillation.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/grpo.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/train/config.hpp>
