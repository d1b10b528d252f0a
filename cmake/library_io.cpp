// The definitions of component 'io', once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/adapt/peft_config_impl.hpp>
#include <xtrain/adapt/peft_impl.hpp>
#include <xtrain/adapt/prefix_folder_impl.hpp>
#include <xtrain/chat/chat_template_impl.hpp>
#include <xtrain/chat/chat_templates_impl.hpp>
#include <xtrain/chat/jinja/from_json_impl.hpp>
#include <xtrain/chat/jinja/template_impl.hpp>
#include <xtrain/chat/jinja/value_impl.hpp>
#include <xtrain/data/chat_dataset_impl.hpp>
#include <xtrain/data/grouped_text_dataset_impl.hpp>
#include <xtrain/data/json_dataset_impl.hpp>
#include <xtrain/data/labelled_dataset_impl.hpp>
#include <xtrain/data/log_prob_file_impl.hpp>
#include <xtrain/data/preference_dataset_impl.hpp>
#include <xtrain/data/preprocess_impl.hpp>
#include <xtrain/data/record_handler_impl.hpp>
#include <xtrain/data/record_source_impl.hpp>
#include <xtrain/eval/benchmark_impl.hpp>
#include <xtrain/eval/benchmark_task_impl.hpp>
#include <xtrain/eval/wikitext103_impl.hpp>
#include <xtrain/io/folder_impl.hpp>
#include <xtrain/io/folder_lock_impl.hpp>
#include <xtrain/io/model_card_impl.hpp>
#include <xtrain/io/override_settings_impl.hpp>
#include <xtrain/io/pretrained_impl.hpp>
#include <xtrain/io/quantized_weights_impl.hpp>
#include <xtrain/io/rewrite_impl.hpp>
#include <xtrain/io/safetensors_impl.hpp>
#include <xtrain/io/settings_impl.hpp>
#include <xtrain/io/special_token_ids_impl.hpp>
#include <xtrain/io/weight_file_impl.hpp>
#include <xtrain/io/write_together_impl.hpp>
#include <xtrain/plan/machine_file_impl.hpp>
#include <xtrain/report/report_page_impl.hpp>
#include <xtrain/report/run_log_impl.hpp>
#include <xtrain/train/checkpoint_state_impl.hpp>
#include <xtrain/io.hpp>

XTRAIN_COMPILED_LOADING(, xtrain::fp32, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(, xtrain::fp32, xtrain::lora)
XTRAIN_COMPILED_LOADING(, xtrain::bf16_mixed, xtrain::no_adapter)
XTRAIN_COMPILED_LOADING(, xtrain::bf16_mixed, xtrain::lora)
XTRAIN_COMPILED_SAVING(, xtrain::fp32)
XTRAIN_COMPILED_SAVING(, xtrain::bf16_mixed)
