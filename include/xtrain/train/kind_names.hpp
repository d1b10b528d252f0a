// Names of objectives, optimizers and schedules in checkpoints and on command lines.
#pragma once

#include <xtrain/core/kind_names.hpp>
#include <xtrain/objective/distillation.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/grpo.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/train/config.hpp>
