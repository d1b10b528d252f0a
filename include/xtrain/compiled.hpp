// What xtrain_add_library compiles of training and generation, for the recipes of models/compiled_models.hpp. Included by <xtrain/xtrain.hpp>.
#pragma once

#include <span>
#include <stop_token>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/models/any_block.hpp>
#include <xtrain/models/compiled_models.hpp>
#include <xtrain/models/decoder.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain::detail {

template <class Precision, class Adapter>
using compiled_block = any_block<common_computation<Precision, Adapter>>;
template <class Precision, class Adapter>
using compiled_parts = decoder_parts<common_computation<Precision, Adapter>, compiled_block<Precision, Adapter>>;
template <class Precision, class Adapter>
using compiled_decoder = basic_decoder<model_axes_of<common_recipe<Precision, Adapter>>, compiled_block<Precision, Adapter>>;
template <class Precision, class Adapter>
using trained_decoder = recipe_decoder<common_recipe<Precision, Adapter>, compiled_block<Precision, Adapter>>;

}  // namespace xtrain::detail

/// All instantiations of one recipe. DECLARE is `extern` in programs, and nothing in the library.
#define XTRAIN_COMPILED_TRAINING(DECLARE, PRECISION, ADAPTER)                                                                               \
  DECLARE template class xtrain::any_block<xtrain::detail::common_computation<PRECISION, ADAPTER>>;                                         \
  DECLARE template class xtrain::decoder_embedding<xtrain::detail::common_computation<PRECISION, ADAPTER>,                                  \
                                                   xtrain::any_norm<xtrain::detail::common_computation<PRECISION, ADAPTER>>>;               \
  DECLARE template class xtrain::decoder_output<xtrain::detail::common_computation<PRECISION, ADAPTER>,                                     \
                                                xtrain::any_norm<xtrain::detail::common_computation<PRECISION, ADAPTER>>>;                  \
  DECLARE template class xtrain::transformer<xtrain::model_axes_of<xtrain::detail::common_recipe<PRECISION, ADAPTER>>,                      \
                                             xtrain::detail::compiled_parts<PRECISION, ADAPTER>>;                                           \
  DECLARE template class xtrain::basic_decoder<xtrain::model_axes_of<xtrain::detail::common_recipe<PRECISION, ADAPTER>>,                    \
                                               xtrain::detail::compiled_block<PRECISION, ADAPTER>>;                                         \
  DECLARE template class xtrain::log_prob_collector<xtrain::detail::common_computation<PRECISION, ADAPTER>>;                                \
  DECLARE template class xtrain::detail::training_step<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>;                                \
  DECLARE template class xtrain::detail::decoding_memory<xtrain::detail::compiled_decoder<PRECISION, ADAPTER>>;                             \
  DECLARE template class xtrain::generator<xtrain::detail::compiled_decoder<PRECISION, ADAPTER>>;                                           \
  DECLARE template xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::trainer(                                          \
      xtrain::detail::trained_decoder<PRECISION, ADAPTER>&, xtrain::training_config<xtrain::adamw>);                                        \
  DECLARE template void xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::fit(const xtrain::dataset&, const xtrain::dataset*,\
                                                                                                   std::stop_token);                        \
  DECLARE template void xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::fit(xtrain::loader&, const xtrain::dataset*, \
                                                                                                   std::stop_token);                        \
  DECLARE template xtrain::evaluation xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::evaluate(const xtrain::dataset&);\
  DECLARE template void xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::queue_step_of(                                \
      std::span<const xtrain::batch_view>, double);                                                                                          \
  DECLARE template xtrain::step_done xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::finish_step();                   \
  DECLARE template void xtrain::trainer<xtrain::detail::trained_decoder<PRECISION, ADAPTER>>::require_finite_weights();

#if defined XTRAIN_LIBRARY && !defined XTRAIN_COMPILES_LIBRARY
XTRAIN_COMPILED_TRAINING(extern, xtrain::fp32, xtrain::no_adapter)
XTRAIN_COMPILED_TRAINING(extern, xtrain::fp32, xtrain::lora)
XTRAIN_COMPILED_TRAINING(extern, xtrain::bf16_mixed, xtrain::no_adapter)
XTRAIN_COMPILED_TRAINING(extern, xtrain::bf16_mixed, xtrain::lora)
#endif
