// The commands and configs of four published documents, on small models and small data: what is changed is paths, sizes and the device.
//   torchtune on Ascend        "Integrating Ascend Backend with Torchtune through PyTorch Multi-Device Support"
//   Stanford Alpaca on Ascend  the guide for the 910B: FSDP and DeepSpeed
//   P-tuning of ChatGLM-6B     the guide for ModelArts, whose commands are those of ptuning/
//   the MUSA demo              main_hf.py with its override_config.json
// Three trainers are compiled; commands that need another one are accepted as far as their run descriptions. What the documents run on an NPU is run on a
// stand-in for it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>

#include "npu_programs.hpp"
#include "program.hpp"
#include "scratch.hpp"

using xtrain::json;

namespace {

using words = std::vector<std::string>;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
/// Whether the parts occur in this order.
void check_order(const std::string& text, const words& parts) {
  std::size_t at = 0;
  for (const std::string& part : parts) {
    const std::size_t found = text.find(part, at);
    CHECK_MESSAGE(found != std::string::npos, part, " is not in its place in\n", text);
    if (found == std::string::npos) return;
    at = found + part.size();
  }
}
bool has_line(const std::string& text, const std::string& form) { return std::regex_search(text, std::regex("(^|\n)" + form + "(\n|$)")); }

/// A command as a shell reads it: '\' before the end of a line, quotes.
words read_words(const std::string& command) {
  words all;
  std::string word;
  bool any = false;
  char quote = 0;
  for (const char c : command) {
    if (quote != 0) {
      if (c == quote) quote = 0;
      else word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      any = true;
    } else if (c == ' ' || c == '\n' || c == '\\') {
      if (any) all.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) all.push_back(word);
  return all;
}
/// Runs one of our programs.
program_result run(const std::string& command, const std::string& programs = EXAMPLES) {
  words all = read_words(command);
  all.front().insert(0, programs + "/");
  return run_program(all);
}
program_result run_on_npu(const std::string& command) { return run(command, npu_programs(EXAMPLES)); }
/// What a command is translated into.
json description(const std::string& command) {
  const auto result = run(command + " --print-run");
  REQUIRE_MESSAGE(result.status == 0, result.err);
  return json::parse(result.out);
}
void refuses(const std::string& command, const std::string& sentence) {
  const auto result = run(command);
  CHECK(result.status == 2);
  CHECK_MESSAGE(holds(result.err, sentence), result.err);
}

/// A working folder with models and data under the names that the documents have, and a cache of trainers for all test cases.
class workplace {
 public:
  workplace() : before_(std::filesystem::current_path()) {
    const static scratch_folder cache;
    ::setenv("XTRAIN_CACHE", cache.path().c_str(), 1);
    std::filesystem::current_path(folder_.path());
    std::string text;
    for (int i = 0; i < 400; ++i) text += "one two three four five six seven eight nine ten " + std::to_string(i) + "\n";
    put_file("text.txt", text);
  }
  ~workplace() {
    std::filesystem::current_path(before_);
    ::unsetenv("XTRAIN_CACHE");
  }
  workplace(const workplace&) = delete;
  workplace& operator=(const workplace&) = delete;

  /// A model of a family, of a few thousand weights, with a tokenizer of bytes.
  void make_model(const std::string& family, const std::string& folder, const std::string& seq_length = "512") const {
    const auto made = run("pretrain --tokenizer byte --model-type " + family + " --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length " +
                          seq_length + " --data text.txt --max-steps 1 --output-dir " + folder);
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }

 private:
  scratch_folder folder_;
  std::filesystem::path before_;
};

/// Where numbers are.
const std::string number = "[0-9.e+-]+";

}  // namespace

TEST_CASE("torchtune on Ascend: the config of the document trains, and its generation config generates") {
  const workplace place;
  place.make_model("llama", "llama");
  json records = json::array();
  for (int i = 0; i < 4; ++i) records.push_back({{"input", "你是谁?" + std::to_string(i)}, {"output", "您好,我是 Torchtune Helper"}});
  put_file("ascend_dataset.json", records.dump());
  // environment and dataset are the document's; it leaves the other sections to the reader
  put_file("ascend_config.yaml", R"(# Environment
device: npu
dtype: bf16

# Dataset
dataset:
  _component_: torchtune.datasets.instruct_dataset
  source: json
  data_files: ascend_dataset.json
  train_on_input: False
  packed: False
  split: train

# Other Configs
output_dir: ascend_llama
tokenizer:
  _component_: torchtune.models.llama2.llama2_tokenizer
  path: llama/tokenizer.json
  max_seq_len: null
model:
  _component_: torchtune.models.llama2.llama2
  vocab_size: 257
  num_layers: 2
  num_heads: 2
  num_kv_heads: 2
  embed_dim: 16
  max_seq_len: 512
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: llama
  checkpoint_files: [model.safetensors]
  recipe_checkpoint: null
  output_dir: ${output_dir}
  model_type: LLAMA2
resume_from_checkpoint: False
seed: 0
shuffle: True
batch_size: 2
epochs: 10
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
max_steps_per_epoch: null
gradient_accumulation_steps: 1
optimizer_in_bwd: False
compile: False
enable_activation_checkpointing: True
metric_logger:
  _component_: torchtune.training.metric_logging.DiskLogger
  log_dir: ${output_dir}/logs
log_every_n_steps: 1
log_peak_memory_stats: True
)");
  CHECK(run("tune validate ascend_config.yaml").out == "Config is well-formed!\n");
  const std::string command = "tune run full_finetune_single_device --config ascend_config.yaml";
  CHECK(description(command).at("device") == "npu");
  refuses(command, "trainer npu-bf16_pure-recompute_full: the device npu needs CANN, whose environment must be set (source set_env.sh of the installation): ");
  refuses("tune run full_finetune_single_device --config ascend_config.yaml device=cpu dataset.data_files=none.json",
          "tune: dataset.data_files: must be a file on this machine; given 'none.json'");
  refuses("tune run full_finetune_single_device --config ascend_config.yaml device=cpu dataset.column_map.input=question "
          "dataset.column_map.output=output",
          ": dataset.data_files ascend_dataset.json: records must have a field 'question'; the first one has input, output");
  const auto result = run_on_npu(command);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  const std::string info = "INFO:torchtune.utils._logging:";
  check_order(result.err,
              {info + "Running FullFinetuneRecipeSingleDevice with resolved config:\n\n",
               "\ndataset:\n  _component_: torchtune.datasets.instruct_dataset\n  data_files: ascend_dataset.json\n  packed: false\n  source: json\n"
               "  split: train\n  train_on_input: false\ndevice: npu\ndtype: bf16\nenable_activation_checkpointing: true\nepochs: 10\n",
               "compiling the trainer npu-bf16_pure-recompute_full, once\n", info + "Model is initialized with precision torch.bfloat16.\n",
               info + "Memory stats after model init:\n\tNPU peak memory allocation: ", " GiB\n\tNPU peak memory reserved: ",
               " GiB\n\tNPU peak memory active: ", info + "Tokenizer is initialized from file.\n", info + "Optimizer is initialized.\n", info + "Loss is initialized.\n",
               " GiB saved to ascend_llama/epoch_9/model.safetensors\n", info + "Saving final epoch checkpoint.\n",
               info + "The full model checkpoint, including all weights and configurations, has been saved successfully.You can now use this "
                      "checkpoint for further training or inference.\n"});
  CHECK(has_line(result.err, info + "Model checkpoint of size [0-9]+[.][0-9]{2} GiB saved to ascend_llama/epoch_9/model.safetensors"));
  CHECK(has_line(result.err, "10[|]20[|]Loss: " + number + ": 100%[|](█){30}[|] 2/2 \\[[0-9:]+<00:00, [0-9.]+(s/it|it/s)\\]"));

  CHECK(holds(run("tune cp generation ./ascend_generation_config.yaml").out, "Copied file to ./ascend_generation_config.yaml"));
  CHECK(get_file("ascend_generation_config.yaml").size() > 100);
  put_file("ascend_generation_config.yaml", R"(# Tokenizer
output_dir: ascend_llama/epoch_9
tokenizer:
    _component_: torchtune.models.llama2.llama2_tokenizer
    path: ${output_dir}/tokenizer.json
    prompt_template: null

# Checkpointer
checkpointer:
    _component_: torchtune.training.FullModelHFCheckpointer
    checkpoint_dir: ${output_dir}
    checkpoint_files: [
        model.safetensors,
    ]
    output_dir: ${output_dir}
    model_type: LLAMA2

# Generation arguments; defaults taken from gpt-fast
prompt:
    system: null
    user: "你是谁?"

# Environment
device: npu

# Other Configs
dtype: bf16
seed: 1234
max_new_tokens: 8
temperature: 0.6
top_k: 300
enable_kv_cache: True
quantizer: null
model:
  _component_: torchtune.models.llama2.llama2
  vocab_size: 257
  num_layers: 2
  num_heads: 2
  num_kv_heads: 2
  embed_dim: 16
  max_seq_len: 512
)");
  if (!xtrain::file_exists(EXAMPLES "/generate_npu"))
    refuses("tune run generate --config ascend_generation_config.yaml", "the device npu needs generate_npu beside this program, which this build has not: ");
  if (!xtrain::file_exists(EXAMPLES "/generate_cuda"))
    refuses("tune run generate --config ascend_generation_config.yaml device=cuda",
            "the device cuda needs generate_cuda beside this program, which this build has not: -D XTRAIN_CUDA=ON, or xtrain_add_trainer(NAME generate_cuda "
            "SOURCE generate.cpp DEVICE cuda PRECISION bf16_mixed); or give the device cpu");
  refuses("tune run generate --config ascend_generation_config.yaml device=cpu checkpointer.checkpoint_files=[Hf_model_0001_0.pt,hf_model_0004_9.pt]",
          "checkpointer.checkpoint_files: Hf_model_0001_0.pt must be in ascend_llama/epoch_9; it is not");
  const auto generated = run_on_npu("tune run generate --config ascend_generation_config.yaml");
  REQUIRE_MESSAGE(generated.status == 0, generated.err);
  CHECK(generated.out.empty());
  check_order(generated.err, {info + "Running InferenceRecipe with resolved config:\n\n", info + "Model is initialized with precision torch.bfloat16.\n",
                              info + "你是谁?", info + "Time for inference: ", info + "Bandwidth achieved: ", info + "Memory used: "});
  CHECK(has_line(generated.err, info + "Time for inference: [0-9]+[.][0-9]{2} sec total, [0-9]+[.][0-9]{2} tokens/sec"));
  CHECK(has_line(generated.err, info + "Bandwidth achieved: [0-9]+[.][0-9]{2} GB/s"));
  CHECK(has_line(generated.err, info + "Memory used: [0-9]+[.][0-9]{2} GB"));
}

namespace {

/// The guide's DeepSpeed configs.
constexpr const char* ds_config_zero2 = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": true},
        "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true,
        "reduce_scatter": true, "reduce_bucket_size": 2e8, "contiguous_gradients": true
    },
    "train_batch_size": 128,
    "gradient_accumulation_steps": 8,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false
})";
constexpr const char* ds_config_zero3 = R"({
    "zero_optimization": {
        "stage": 3,
        "contiguous_gradients": true,
        "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0,
        "stage3_param_persistence_threshold": 1e2, "reduce_bucket_size": 1e2,
        "stage3_gather_16bit_weights_on_model_save": true
    },
    "fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 32, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "train_batch_size": 128,
    "gradient_accumulation_steps": 8,
    "train_micro_batch_size_per_gpu": 2,
    "wall_clock_breakdown": false
})";

}  // namespace

TEST_CASE("Stanford Alpaca on Ascend: FSDP and DeepSpeed") {
  const workplace place;
  place.make_model("qwen2", "Qwen1.5-7B-Chat");
  place.make_model("baichuan", "Baichuan2-7B-Chat");
  json records = json::array();
  for (int i = 0; i < 40; ++i)
    records.push_back({{"instruction", "Say " + std::to_string(i)}, {"input", i % 2 == 0 ? "" : "aloud"}, {"output", std::to_string(i)}});
  put_file("alpaca_data_1k.json", records.dump());
  put_file("ds_config_zero2.json", ds_config_zero2);
  put_file("ds_config_zero3.json", ds_config_zero3);
  const auto train = [](const std::string& ranks, const std::string& model, const std::string& batch, const std::string& how) {
    return "hf_train torchrun --nproc_per_node=" + ranks + " --master_port=29001 train.py --model_name_or_path " + model +
           " --data_path ./alpaca_data_1k.json --fp16 True --output_dir output/alpaca --num_train_epochs 1 --per_device_train_batch_size " + batch +
           " --per_device_eval_batch_size 4 --gradient_accumulation_steps 8 --eval_strategy \"no\" --save_strategy \"steps\" --save_steps 2000 "
           "--save_total_limit 1 --learning_rate 2e-5 --weight_decay 0. --warmup_ratio 0.03 --lr_scheduler_type \"cosine\" --logging_steps 1 " +
           how;
  };
  const auto key = [](const std::string& command) {
    const auto result = run(command + " --print-recipe");
    REQUIRE_MESSAGE(result.status == 0, result.err);
    return result.out.substr(result.out.find("NAME train-"), result.out.find(" SOURCE") - result.out.find("NAME train-"));
  };

  json all = description(train("8", "Qwen1.5-7B-Chat/", "2", R"(--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap 'Qwen2DecoderLayer')"));
  CHECK(all.at("parallel") == json{{"ranks", 8}, {"zero", 3}});
  CHECK(all.at("precision") == "fp16_mixed");
  CHECK_FALSE(all.contains("recompute"));
  const std::string offloaded = R"(--gradient_checkpointing True --fsdp "full_shard offload auto_wrap" --fsdp_transformer_layer_cls_to_wrap )";
  all = description(train("8", "Qwen1.5-7B-Chat/", "1", offloaded + "'Qwen2DecoderLayer'"));
  CHECK(all.at("recompute") == "full");
  CHECK(key(train("8", "Qwen1.5-7B-Chat/", "1", offloaded + "'Qwen2DecoderLayer'")) == "NAME train-cpu-fp16_mixed-zero.3-recompute_full");
  CHECK(key(train("8", "Baichuan2-7B-Chat/", "1", offloaded + "'DecoderLayer'")) == "NAME train-cpu-fp16_mixed-zero.3-recompute_full");
  refuses(train("8", "Qwen1.5-7B-Chat/", "1", offloaded + "'DecoderLayer'"),
          "--fsdp_transformer_layer_cls_to_wrap: must be the layer class of the model in Qwen1.5-7B-Chat/, Qwen2DecoderLayer; given 'DecoderLayer'");
  all = description(train("8", "Qwen1.5-7B-Chat/", "2", "--deepspeed ds_config_zero3.json"));
  CHECK(all.at("parallel").at("zero") == 3);
  CHECK(all.at("loss_scale").at("initial") == 4294967296.0);
  // its own sizes must be the command line's
  refuses(train("2", "Qwen1.5-7B-Chat/", "2", "--deepspeed ds_config_zero3.json"), "ds_config_zero3.json: train_batch_size: must be ");
  refuses(train("2", "Qwen1.5-7B-Chat/", "2", "--deepspeed ds_config_zero2.json --device npu"), "trainer npu-fp16_mixed-zero.2: the device npu needs CANN");
  refuses(train("2", "Qwen1.5-7B-Chat/", "2", "--deepspeed ds_config_zero2.json --resume_from_checkpoint True"),
          "--resume_from_checkpoint: there must be a checkpoint to go on from; there is no valid checkpoint in the output folder 'output/alpaca'");

  const auto result = run_on_npu(train("2", "Qwen1.5-7B-Chat/", "2", "--deepspeed ds_config_zero2.json --device npu"));
  REQUIRE_MESSAGE(result.status == 0, result.err);
  CHECK_MESSAGE(holds(result.err, "optimizer state stays on the NPU, divided among the ranks"), result.err);
  CHECK_FALSE(holds(result.err, "rehearsal: "));
  const std::string on_cpu = "note: on the cpu; --device cuda asks for an NVIDIA GPU\n";
  CHECK(holds(run(train("2", "Qwen1.5-7B-Chat/", "2", "") + " --print-run").err, on_cpu));
  CHECK_FALSE(holds(run(train("2", "Qwen1.5-7B-Chat/", "2", "--device cpu") + " --print-run").err, on_cpu));
  // 40 samples, 32 in a step
  const std::string line =
      "\\{'loss': " + number + ", 'grad_norm': " + number + ", 'learning_rate': " + number + ", 'epoch': ";
  CHECK(has_line(result.out, line + "0.8\\}"));
  CHECK(has_line(result.out, line + "1.0\\}"));
  CHECK(has_line(result.out, "\\{'train_runtime': " + number + ", 'train_samples_per_second': " + number + ", 'train_steps_per_second': " + number +
                                 ", 'train_loss': " + number + ", 'epoch': 1.0\\}"));
  CHECK(std::filesystem::exists("output/alpaca/model.safetensors"));
}

TEST_CASE("P-tuning of ChatGLM-6B: train.sh, ds_train_finetune.sh, evaluate.sh") {
  const workplace place;
  place.make_model("chatglm1", "chatglm-6b");
  std::string records;
  for (int i = 0; i < 30; ++i) records += json{{"content", "类型#裤 " + std::to_string(i)}, {"summary", "宽松的裤子"}}.dump() + "\n";
  std::filesystem::create_directory("AdvertiseGen");
  for (const char* file : {"AdvertiseGen/train.json", "AdvertiseGen/dev.json"}) put_file(file, records);
  put_file("deepspeed.json", R"({
  "train_micro_batch_size_per_gpu": "auto",
  "zero_allow_untested_optimizer": true,
  "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
  "zero_optimization": {
    "stage": 2,
    "allgather_partitions": true, "allgather_bucket_size": 5e8, "overlap_comm": false,
    "reduce_scatter": true, "reduce_bucket_size": 5e8, "contiguous_gradients" : true
  }
})");
  const std::string p_tuning =
      "hf_train python3 main.py --do_train --train_file AdvertiseGen/train.json --validation_file AdvertiseGen/dev.json --prompt_column content "
      "--response_column summary --overwrite_cache --model_name_or_path chatglm-6b --output_dir output/adgen-chatglm-6b-pt-128-2e-2 --overwrite_output_dir "
      "--max_source_length 64 --max_target_length 64 --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --gradient_accumulation_steps 16 "
      "--predict_with_generate --max_steps 3000 --logging_steps 10 --save_steps 1000 --learning_rate 2e-2 --pre_seq_len 128";
  const json all = description(p_tuning + " --quantization_bit 4");
  CHECK(all.at("adapter") == json{{"kind", "prefix"}, {"settings", {{"length", 128}, {"counts_in_positions", false}, {"weight_bits", 4}}}});
  CHECK(all.at("max_steps") == 3000);
  CHECK(all.at("output").at("save_steps") == 1000);
  CHECK(all.at("output").at("log_steps") == 10);
  refuses(p_tuning + " --prompt_column question",
          "--train_file AdvertiseGen/train.json: records must have a field 'question'; the first one has content, summary");
  // as the script has it, but for the number of steps
  const auto tuned = run_on_npu(p_tuning + " --max_steps 4 --logging_steps 2 --save_steps 2 --quantization_bit 4 --device npu");
  REQUIRE_MESSAGE(tuned.status == 0, tuned.err);
  const std::string line = "\\{'loss': " + number + ", 'grad_norm': " + number + ", 'learning_rate': " + number + ", 'epoch': " + number + "\\}";
  CHECK(has_line(tuned.out, line + "\n" + line + "\n\\{'train_runtime': " + number + ", 'train_samples_per_second': " + number +
                                ", 'train_steps_per_second': " + number + ", 'train_loss': " + number + ", 'epoch': " + number + "\\}"));

  const std::string checkpoint = "./output/adgen-chatglm-6b-pt-128-2e-2/checkpoint-4";
  const std::string evaluate =
      "hf_train python3 main.py --do_predict --validation_file AdvertiseGen/dev.json --test_file AdvertiseGen/dev.json --overwrite_cache --prompt_column "
      "content --response_column summary --model_name_or_path chatglm-6b --ptuning_checkpoint " + checkpoint + " --output_dir output/adgen-chatglm-6b-pt-128-2e-2 "
      "--overwrite_output_dir --max_source_length 64 --max_target_length 64 --per_device_eval_batch_size 1 --predict_with_generate --pre_seq_len 128 ";
  CHECK(run(evaluate + "--quantization_bit 4 --print-run").out ==
        "generate --model chatglm-6b --adapter " + checkpoint +
            " --weight-bits 4 --prompts AdvertiseGen/dev.json --prompt-field content --answer-field summary --max-prompt-tokens 64 --max-answer-tokens 64 "
            "--max-length 512 --batch-size 1 --temperature 0.95 --top-p 0.7 --top-k 50 --seed 42 --predictions output/adgen-chatglm-6b-pt-128-2e-2\n");
  CHECK(run(evaluate + "--quantization_bit 4 --device npu --print-run").out.starts_with("generate_npu --model chatglm-6b --device npu --adapter "));
  const auto predicted = run(evaluate + "--quantization_bit 4");
  REQUIRE_MESSAGE(predicted.status == 0, predicted.err);
  CHECK(holds(predicted.err, "***** Running Prediction *****\n  Num examples = 30\n  Batch size = 1\n"));
  words metrics{"\\*\\*\\*\\*\\* predict metrics \\*\\*\\*\\*\\*\n"};
  for (const char* name :
       {"bleu-4", "character-rouge-1", "character-rouge-2", "character-rouge-l", "runtime", "samples", "samples_per_second", "steps_per_second"})
    metrics.push_back("  predict_" + std::string(name) + " += +" + (name == std::string("runtime") ? "[0-9]:[0-9]{2}:[0-9.]+" : number) + "\n");
  std::string block;
  for (const std::string& each : metrics) block += each;
  CHECK_MESSAGE(std::regex_match(predicted.out, std::regex(block)), predicted.out);
  const std::string results = "output/adgen-chatglm-6b-pt-128-2e-2/";
  const json scores = json::parse(get_file(results + "predict_results.json"));
  CHECK(scores.size() == 8);
  CHECK(scores.at("predict_samples") == 30);
  CHECK(json::parse(get_file(results + "all_results.json")).at("predict_bleu-4") == scores.at("predict_bleu-4"));
  const std::string answers = get_file(results + "generated_predictions.txt");
  CHECK(answers.starts_with("{\"labels\": \"宽松的裤子\", \"predict\": \""));
  CHECK(std::count(answers.begin(), answers.end(), '\n') == 30);
  // the same again, whatever runs together; other values of the weights, other answers
  CHECK(run(evaluate + "--quantization_bit 4 --per_device_eval_batch_size 8").status == 0);
  CHECK(get_file(results + "generated_predictions.txt") == answers);
  CHECK(run(evaluate + "--max_predict_samples 3").status == 0);
  const std::string three = get_file(results + "generated_predictions.txt");
  CHECK(std::count(three.begin(), three.end(), '\n') == 3);
  CHECK(answers.substr(0, three.size()) != three);
  refuses(evaluate + "--pre_seq_len 64", "--pre_seq_len: must be that of --ptuning_checkpoint, 128 in " + checkpoint + "/config.json; given 64");
  refuses(evaluate + "--test_file none.json", "--test_file: must be a file on this machine; given 'none.json'");
  refuses(evaluate + "--ptuning_checkpoint none", "--ptuning_checkpoint: must be a folder on this machine; given 'none'");
  const auto other_field = run(evaluate + "--prompt_column question");
  CHECK(other_field.status == 1);
  CHECK_MESSAGE(holds(other_field.err, "AdvertiseGen/dev.json: line 1: a record must have 'question'; it is missing"), other_field.err);

  const auto result = run_on_npu(
      "hf_train deepspeed --num_gpus=2 --master_port 50003 main.py --deepspeed deepspeed.json --do_train --train_file AdvertiseGen/train.json --test_file "
      "AdvertiseGen/dev.json --prompt_column content --response_column summary --overwrite_cache --model_name_or_path chatglm-6b --output_dir "
      "./output/adgen-chatglm-6b-ft-1e-4 --overwrite_output_dir --max_source_length 64 --max_target_length 64 --per_device_train_batch_size 4 "
      "--per_device_eval_batch_size 1 --gradient_accumulation_steps 1 --predict_with_generate --max_steps 20 --logging_steps 10 --save_steps 10 "
      "--learning_rate 1e-4 --fp16 --device npu");
  REQUIRE_MESSAGE(result.status == 0, result.err);
  CHECK(has_line(result.out, line + "\n" + line + "\n\\{'train_runtime': " + number + ", 'train_samples_per_second': " + number +
                                 ", 'train_steps_per_second': " + number + ", 'train_loss': " + number + ", 'epoch': " + number + "\\}"));
  CHECK(std::filesystem::exists("output/adgen-chatglm-6b-ft-1e-4/checkpoint-10"));
}

TEST_CASE("the MUSA demo, with its override_config.json") {
  const workplace place;
  place.make_model("gpt2", "gpt2", "1024");
  place.make_model("mixtral", "mixtral-8x7B-v0.1", "1024");
  std::filesystem::create_directories("wikitext/wikitext-103-raw-v1");
  const std::string text = get_file("text.txt");
  put_file("wikitext/wikitext-103-raw-v1/train.txt", text);
  put_file("wikitext/wikitext-103-raw-v1/test.txt", text.substr(0, text.find("\n", 4000) + 1));
  const auto command = [](const std::string& model, int ranks) {
    return "main_hf torchrun --nproc_per_node=" + std::to_string(ranks) + " main_hf.py --model_name_or_path " + model + " --batch_size 1";
  };
  CHECK(description(command("gpt2", 2)).at("parallel") == json{{"ranks", 2}});
  CHECK(description(command("gpt2", 2)).at("epochs") == 100);
  refuses(command("gpt2", 1) + " --device musa",
          "trainer musa-fp32: the device musa needs kernels that mcc compiled, which this build has not: xtrain_add_front_ends(DEVICES musa), with mcc and ");
  refuses(command("gpt2", 1) + " --dataset_config_name wikitext-2-raw-v1", "--dataset_name_or_path: must have files of texts whose names have train and test");

  const std::string warning = "WARNING: The chosen tokenizer supports a `model_max_length` that is longer than the default `block_size` value of 1024.";
  const std::string step = "epoch\\[0/0\\], step\\[10/[0-9]+\\]: train_loss: " + number + ", train_tokens_throughput: " + number + " tokens/s";
  const std::string evaluated = "validation in train epoch 0: eval_loss: " + number + ", val_perplexity: " + number;
  const auto trains = [&](const std::string& model, const std::string& overrides, const words& lines) {
    put_file("override_config.json", overrides);
    std::filesystem::remove_all("main_hf");
    const auto result = run(command(model, 1) + " --epochs 1");
    REQUIRE_MESSAGE(result.status == 0, result.err);
    words order = lines;
    for (const std::string& each : {warning, warning, std::string("\nseq_len = 1024\nepoch[0/0], step[0/")}) order.push_back(each);
    check_order(result.out, order);
    CHECK_MESSAGE(has_line(result.out, step), result.out);
    CHECK_MESSAGE(has_line(result.out, evaluated), result.out);
  };
  trains("gpt2", R"({"num_layers": 2})", {"WARNING: Invalid config key: num_layers and skip override it\n"});
  trains(
      "gpt2", R"({"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "summary_first_dropout": 0.0})",
      {"modify attn_pdrop: 0.0 -> 0.0\n", "modify embd_pdrop: 0.0 -> 0.0\n", "modify resid_pdrop: 0.0 -> 0.0\n", "modify summary_first_dropout: 0.1 -> 0.0\n"});
  trains("mixtral-8x7B-v0.1", R"({"num_hidden_layers": 1})", {"modify num_hidden_layers: 2 -> 1\n"});
  put_file("override_config.json", R"({"num_hidden_layers": 1.5})");
  refuses(command("mixtral-8x7B-v0.1", 1), "override_config.json: Type mismatch of num_hidden_layers: 2 vs 1.5");
  put_file("override_config.json", R"({"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0})");
  std::filesystem::create_directory("bert-base-uncased");
  put_file("bert-base-uncased/config.json", R"({"model_type": "bert", "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1})");
  refuses(command("bert-base-uncased", 2), "--model_name_or_path: must be a decoder; given 'bert-base-uncased' with model_type \"bert\"");
}
