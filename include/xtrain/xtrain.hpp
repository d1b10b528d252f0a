// All of xtrain that needs nothing but xtensor, xsimd and a C++20 compiler. What needs more libraries has headers of its
// own: <xtrain/io.hpp> (JSON), <xtrain/text.hpp> (SentencePiece, PCRE2, utf8proc), <xtrain/openmp.hpp>.
#pragma once

#include <xtrain/data/byte_tokenizer.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/optim/sgd.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/trainer.hpp>
