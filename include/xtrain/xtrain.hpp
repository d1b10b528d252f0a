// All of xtrain that needs nothing but xtensor, xsimd and a C++20 compiler. What needs more libraries has headers of its
// own: <xtrain/io.hpp> (JSON), <xtrain/text.hpp> (PCRE2, utf8proc), <xtrain/mpi.hpp>,
// <xtrain/openmp.hpp>.
#pragma once

#include <xtrain/adapt/freeze.hpp>
#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/merge.hpp>
#include <xtrain/adapt/prefix_tuning.hpp>
#include <xtrain/adapt/qlora.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/eval/logits.hpp>
#include <xtrain/eval/perplexity.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/models/family_list.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/objective/distillation.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/optim/lion.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/optim/sgd.hpp>
#include <xtrain/plan/plan.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/train/history.hpp>
#include <xtrain/train/interrupt.hpp>
#include <xtrain/train/json_lines.hpp>
#include <xtrain/train/memory_statistics.hpp>
#include <xtrain/train/progress_bar.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/reference_model.hpp>
#include <xtrain/train/teacher_model.hpp>
#include <xtrain/train/tensorboard.hpp>
#include <xtrain/train/trainer.hpp>
#ifdef XTRAIN_LIBRARY
#include <xtrain/compiled.hpp>
#endif
