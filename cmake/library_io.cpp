// The definitions of component 'io', once: files of weights, and loading and saving. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/adapt/gguf_adapter_folder_impl.hpp>
#include <xtrain/adapt/gguf_adapter_impl.hpp>
#include <xtrain/adapt/peft_config_impl.hpp>
#include <xtrain/adapt/peft_impl.hpp>
#include <xtrain/adapt/prefix_folder_impl.hpp>
#include <xtrain/io/block_dtypes_impl.hpp>
#include <xtrain/io/folder_impl.hpp>
#include <xtrain/io/folder_lock_impl.hpp>
#include <xtrain/io/gguf_impl.hpp>
#include <xtrain/io/gguf_save_impl.hpp>
#include <xtrain/io/gguf_tensors_impl.hpp>
#include <xtrain/io/model_card_impl.hpp>
#include <xtrain/io/override_settings_impl.hpp>
#include <xtrain/io/pretrained_impl.hpp>
#include <xtrain/io/quantized_weights_impl.hpp>
#include <xtrain/io/rewrite_impl.hpp>
#include <xtrain/io/safetensors_impl.hpp>
#include <xtrain/io/setting_values_impl.hpp>
#include <xtrain/io/settings_impl.hpp>
#include <xtrain/io/special_token_ids_impl.hpp>
#include <xtrain/io/weight_file_impl.hpp>
#include <xtrain/io/write_together_impl.hpp>
#include <xtrain/plan/machine_file_impl.hpp>
#include <xtrain/text/gguf_tokenizer_files_impl.hpp>
#include <xtrain/text/gguf_tokenizer_writer_impl.hpp>
#include <xtrain/train/checkpoint_state_impl.hpp>
#include <xtrain/io.hpp>

XTRAIN_COMPILED_LOADING(, xtrain::fp32, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(, xtrain::fp32, xtrain::lora)
XTRAIN_COMPILED_LOADING(, xtrain::bf16_mixed, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(, xtrain::bf16_mixed, xtrain::lora)
XTRAIN_COMPILED_SAVING(, xtrain::fp32)
XTRAIN_COMPILED_SAVING(, xtrain::bf16_mixed)
