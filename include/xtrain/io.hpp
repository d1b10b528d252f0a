// Component 'io': safetensors, Hugging Face and PEFT folders, checkpoints, JSON data sets. Needs nlohmann-json.
#pragma once

#if defined XTRAIN_TARGET && !defined XTRAIN_TARGET_IO
#error "xtrain: a target with a source that includes <xtrain/io.hpp> must link xtrain::io: call target_link_libraries"
#elif defined XTRAIN_TARGET && defined XTRAIN_LIBRARY && !defined XTRAIN_LIBRARY_IO
#error "xtrain: xtrain_add_library() must be called after find_package(xtrain COMPONENTS io), or xtrain::library has no 'io'"
#endif

namespace xtrain::detail {

struct io_header {};  // before the headers, which call functions of elsewhere.hpp

}  // namespace xtrain::detail

#include <xtrain/adapt/gguf_adapter.hpp>
#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/prefix_folder.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/data/log_prob_file.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/override_settings.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/rewrite.hpp>
#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/train/checkpoint.hpp>
#include <xtrain/xtrain.hpp>

#ifdef XTRAIN_LIBRARY
// Folders of the models of <xtrain/compiled.hpp>, which the library reads and writes; DECLARE is `extern` in programs, and nothing in the library.
#define XTRAIN_COMPILED_LOADING(DECLARE, PRECISION, ADAPTER)                                                                                          \
  DECLARE template void xtrain::load_weights(xtrain::detail::compiled_decoder<PRECISION, ADAPTER>&, const xtrain::tensor_source&, const std::string&, \
                                             const xtrain::load_options&);                                                                            \
  DECLARE template void xtrain::load_weights(xtrain::detail::compiled_decoder<PRECISION, ADAPTER>&, const std::string&, const xtrain::load_options&);
#define XTRAIN_COMPILED_SAVING(DECLARE, PRECISION)                                                                                                    \
  DECLARE template void xtrain::save_pretrained(const xtrain::detail::compiled_decoder<PRECISION, xtrain::no_adapter>&, const std::string&,           \
                                                const xtrain::save_options&);

#ifndef XTRAIN_COMPILES_LIBRARY
XTRAIN_COMPILED_LOADING(extern, xtrain::fp32, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(extern, xtrain::fp32, xtrain::lora)
XTRAIN_COMPILED_LOADING(extern, xtrain::bf16_mixed, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(extern, xtrain::bf16_mixed, xtrain::lora)
XTRAIN_COMPILED_SAVING(extern, xtrain::fp32)
XTRAIN_COMPILED_SAVING(extern, xtrain::bf16_mixed)
#endif
#endif
