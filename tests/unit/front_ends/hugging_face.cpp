#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <xtrain/front_ends/hugging_face.hpp>
#include <xtrain/recipes/recipe_type.hpp>

#include "page.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// Words of a command line; "..." and '...' are one word.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  char quote = '\0';
  bool any = false;
  for (const char c : line) {
    if (quote == '\0' ? c == '"' || c == '\'' : c == quote) {
      quote = quote == '\0' ? c : '\0';
      any = true;
    } else if ((c == ' ' || c == '\n') && quote == '\0') {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}
run_description translated(const std::string& line) { return run_description::from_hugging_face(words_of(line)); }
void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void refuses(const std::string& line, const char* message) {
  CAPTURE(line);
  CHECK_THROWS_WITH_AS((void)translated(line), message, config_error);
}
const std::string alpaca = "--model_name_or_path qwen --data_path alpaca.json --output_dir out ";
const std::string glm =
    "--model_name_or_path glm --do_train --train_file train.json --prompt_column content --response_column summary --output_dir out ";

}  // namespace

TEST_CASE("Stanford Alpaca with FSDP, as the guide for the Ascend 910B runs it") {
  const run_description run = translated(
      "torchrun --nproc_per_node=8 --master_port=29001 train.py --model_name_or_path /workspace/model/Qwen1.5-7B-Chat/ --data_path ./alpaca_data_1k.json --fp16 True "
      "--output_dir /workspace/output/alpaca --num_train_epochs 1 --per_device_train_batch_size 2 --per_device_eval_batch_size 4 --gradient_accumulation_steps 8 "
      "--eval_strategy \"no\" --save_strategy \"steps\" --save_steps 2000 --save_total_limit 1 --learning_rate 2e-5 --weight_decay 0. --warmup_ratio 0.03 "
      "--lr_scheduler_type \"cosine\" --logging_steps 1 --fsdp \"full_shard auto_wrap\" --fsdp_transformer_layer_cls_to_wrap 'Qwen2DecoderLayer'");
  CHECK(run.model.folder == "/workspace/model/Qwen1.5-7B-Chat/");
  CHECK(run.precision == "fp16_mixed");
  CHECK(run.parallel.ranks == 8);
  CHECK(run.parallel.zero == 3);
  CHECK(recipe_of(run).key() == "cpu-fp16_mixed-zero.3");
  CHECK(run.epochs == 1);
  CHECK(run.micro_batch_size == 2);
  CHECK(run.gradient_accumulation_steps == 8);
  CHECK(run.seq_length == 511);
  CHECK_FALSE(run.drop_last);
  CHECK(run.data.front().kind == "alpaca");
  CHECK(run.data.front().files == std::vector<std::string>{"./alpaca_data_1k.json"});
  CHECK(run.data.front().prompt_template.ends_with("### Response:"));
  CHECK(run.data.front().prompt_template_without_input.ends_with("### Response:"));
  CHECK(run.schedule.kind == "cosine");
  CHECK(run.schedule.learning_rate == 2e-5);
  CHECK(run.schedule.warmup_ratio == 0.03);
  CHECK(run.schedule.from_zero);
  CHECK(run.schedule.settings == json{{"counts_updates", true}});
  CHECK(run.optimizer.kind == "adamw");
  CHECK(run.optimizer.settings == json{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}});
  CHECK(run.optimizer.decays == "matrices");
  CHECK(run.optimizer.max_grad_norm == 1.0);
  CHECK(run.objective.average == "step");
  CHECK(run.output.folder == "/workspace/output/alpaca");
  CHECK(run.output.save_steps == 2000);
  CHECK(run.output.save_total_limit == 1);
  CHECK(run.output.log_steps == 1);
  CHECK(run.output.log_style == "hugging_face");
  CHECK(run.loss_scale == json{{"initial", 65536.0}, {"min", 1e-30}, {"window", 2000}, {"hysteresis", 1}});
  CHECK(run.notes.size() == 2);  // master_port, per_device_eval_batch_size
  CHECK(run_description::from_json(run.to_json(false), "run") == run);
}

TEST_CASE("offloading and recomputation, without a launcher") {
  const run_description run =
      translated("--nproc_per_node 4 train.py " + alpaca +
                 "--bf16 --gradient_checkpointing True --fsdp=\"full_shard offload auto_wrap\" --save_strategy epoch --tf32 True "
                 "--report_to tensorboard");
  CHECK(run.parallel.ranks == 4);
  CHECK(run.parallel.zero == 3);
  CHECK(run.recompute == "full");
  CHECK(run.precision == "bf16_mixed");
  CHECK(run.output.save_epochs);
  CHECK(run.output.save_steps == 0);
  CHECK(run.output.tensorboard == "out/runs");
  CHECK(run.offload == "none");
  // the cpu's memory is host memory; a GPU's is not
  const run_description on_gpu = translated("--nproc_per_node 4 train.py " + alpaca + "--bf16 --fsdp=\"full_shard offload\" --device cuda");
  CHECK(recipe_of(on_gpu).offload == "offload_to_host<memory_role::optimizer>");
  CHECK(on_gpu.notes.back() == "--fsdp offload: optimizer state is in pinned memory of the host; weights stay on the device");
}

TEST_CASE("a line after the first step, and torchrun's flags that threads do not need") {
  CHECK(translated(alpaca + "--logging_first_step True").output.log_first_step);
  CHECK_FALSE(translated(alpaca + "--logging_first_step False").output.log_first_step);
  const run_description run =
      translated("torchrun --nnodes 1:1 --nproc-per-node 2 --rdzv_id 7 --rdzv-backend=c10d --local-addr host -t 3 --virtual-local-rank train.py " + alpaca);
  CHECK(run.parallel.ranks == 2);
  CHECK(run.notes == std::vector<std::string>{"--local_addr, --virtual_local_rank, --rdzv_backend, --rdzv_id, --tee: ranks are threads of one process, which "
                                              "find each other without it"});
  refuses("torchrun --nproc-per-node 2 --rdzv_idd 7 train.py " + alpaca, "--rdzv_idd: there is no such flag; did you mean --rdzv_id?");
}

TEST_CASE("a length that the model has not is refused as it was given") {
  const scratch_folder f;
  write(f / "config.json", R"({"model_type": "llama", "max_position_embeddings": 128})");
  const std::string line = "--model_name_or_path " + f.path() + " --data_path a.json --output_dir out --model_max_length ";
  CHECK(translated(line + "129").seq_length == 128);
  refuses(line + "130", "--model_max_length: must be at most 129 tokens, the model's max_position_embeddings and one that is no input; given 130");
  write(f / "config.json", R"({"model_type": "chatglm", "max_sequence_length": 128})");
  const std::string tuning = "--model_name_or_path " + f.path() + " --do_train --train_file a.json --prompt_column a --response_column b --output_dir out ";
  CHECK(translated(tuning + "--max_source_length 64 --max_target_length 65").seq_length == 128);
  refuses(tuning + "--max_source_length 64 --max_target_length 66",
          "--max_source_length and --max_target_length: must together be at most 129 tokens, the model's max_sequence_length and one that is no input; given "
          "64 and 66");
  refuses(line.substr(0, line.find(" --model_max_length")),
          "--model_max_length: must be at most 129 tokens, the model's max_sequence_length and one that is no input; given 512, the default");
}

TEST_CASE("defaults of TrainingArguments") {
  const run_description run = translated(alpaca);
  CHECK(run.precision == "fp32");
  CHECK(run.micro_batch_size == 8);
  CHECK(run.gradient_accumulation_steps == 1);
  CHECK(run.epochs == 3);
  CHECK(run.schedule.learning_rate == 5e-5);
  CHECK(run.schedule.kind == "linear");
  CHECK(run.seed == 42);
  CHECK(run.output.save_steps == 500);
  CHECK(run.output.log_steps == 500);
  CHECK(run.output.eval_steps == 0);
  CHECK(recipe_of(run).key() == "cpu-fp32");
  CHECK(run.notes.empty());
}

TEST_CASE("DeepSpeed's ZeRO, as the guide for the Ascend 910B runs it") {
  const scratch_folder f;
  // duplicate keys, as in the guide's file: the last one counts
  write(f / "ds_config_zero2.json", R"({"fp16": {"enabled": "auto", "loss_scale": 0}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "reduce_bucket_size": 2e8},
    "train_batch_size": 100, "gradient_accumulation_steps": 8, "gradient_clipping": "auto", "train_batch_size": "auto"})");
  const std::string line =
      "torchrun --nproc_per_node=8 --master_port=29001 train.py --model_name_or_path /workspace/model/Qwen1.5-7B-Chat/ --data_path ./alpaca_data_1k.json --fp16 True "
      "--output_dir /workspace/output/alpaca2 --per_device_train_batch_size 2 --gradient_accumulation_steps=8 --num_train_epochs 1 --per_device_eval_batch_size 4 "
      "--eval_strategy \"no\" --save_strategy \"steps\" --save_steps 2000 --save_total_limit 1 --learning_rate 2e-5 --weight_decay 0. --warmup_ratio 0.03 "
      "--lr_scheduler_type \"cosine\" --logging_steps 1 --deepspeed " +
      (f / "ds_config_zero2.json");
  run_description run = translated(line);
  CHECK(run.parallel.zero == 2);
  CHECK(run.precision == "fp16_mixed");
  CHECK(run.loss_scale.at("hysteresis") == 2);
  CHECK(run.optimizer.decays == "all");
  CHECK(run.optimizer.max_grad_norm == 1.0);
  CHECK(run.schedule.kind == "constant");  // the config's scheduler, not the flag's
  bool twice = false;
  for (const std::string& note : run.notes) twice = twice || note.ends_with("train_batch_size: is given twice; the last one counts");
  CHECK(twice);

  write(f / "ds_config_zero3.json", R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 0, "reduce_bucket_size": 1e2,
    "stage3_gather_16bit_weights_on_model_save": true}, "fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 32,
    "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1}, "train_batch_size": 128, "gradient_accumulation_steps": 8,
    "train_micro_batch_size_per_gpu": 2, "wall_clock_breakdown": false})");
  run = translated(line.substr(0, line.rfind(' ') + 1) + (f / "ds_config_zero3.json"));
  CHECK(run.parallel.zero == 3);
  CHECK(run.loss_scale.at("initial") == 4294967296.0);
  CHECK(run.optimizer.decays == "matrices");
  CHECK(run.optimizer.max_grad_norm == 1.0);  // DeepSpeed's default
  CHECK(run.schedule.kind == "cosine");
  refuses(line + " --fsdp full_shard", ("--deepspeed: must be left out with --fsdp; given '" + (f / "ds_config_zero2.json") + "'").c_str());
}

TEST_CASE("P-tuning and fine-tuning of ChatGLM-6B") {
  const std::string train_sh =
      "python3 main.py --do_train --train_file AdvertiseGen/train.json --validation_file AdvertiseGen/dev.json --preprocessing_num_workers 10 --prompt_column content "
      "--response_column summary --overwrite_cache --model_name_or_path THUDM/chatglm-6b --output_dir output/adgen-chatglm-6b-pt-128-2e-2 --overwrite_output_dir "
      "--max_source_length 64 --max_target_length 64 --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --gradient_accumulation_steps 16 "
      "--predict_with_generate --max_steps 3000 --logging_steps 10 --save_steps 1000 --learning_rate 2e-2 --pre_seq_len 128";
  run_description run = translated(train_sh);
  CHECK(run.adapter.kind == "prefix");
  CHECK(run.adapter.settings == json{{"length", 128}, {"counts_in_positions", false}});
  CHECK(recipe_of(run).key() == "cpu-fp16_mixed-prefix_tuning");
  CHECK(run.loss_scale.at("initial") == 1.0);
  CHECK(run.data.front().prompt_template == "{instruction}");
  CHECK(run.data.front().columns == json{{"input", ""}, {"instruction", "content"}, {"output", "summary"}});
  CHECK(run.data.front().max_prompt_tokens == 63);
  CHECK(run.data.front().max_answer_tokens == 62);
  CHECK(run.seq_length == 127);
  CHECK(run.objective.average == "micro_batch");
  CHECK(run.max_steps == 3000);
  CHECK(run.schedule.learning_rate == 2e-2);
  CHECK(run.output.save_steps == 1000);
  // as in the script
  run = translated(train_sh + " --quantization_bit 4");
  CHECK(run.adapter.settings == json{{"length", 128}, {"counts_in_positions", false}, {"weight_bits", 4}});
  CHECK(recipe_of(run).key() == "cpu-fp16_mixed-prefix_tuning");
  CHECK(translated(train_sh + " --quantization_bit 8").adapter.settings.at("weight_bits") == 8);
  CHECK_FALSE(translated(train_sh + " --quantization_bit 0").adapter.settings.contains("weight_bits"));
  refuses(train_sh + " --quantization_bit 2", "--quantization_bit: must be 4 or 8; given '2'");

  const scratch_folder f;
  write(f / "deepspeed.json",
        R"({"train_micro_batch_size_per_gpu": "auto", "zero_allow_untested_optimizer": true, "fp16": {"enabled": "auto", "loss_scale": 0,
    "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1}, "zero_optimization": {"stage": 2, "allgather_partitions": true,
    "allgather_bucket_size": 5e8, "overlap_comm": false, "reduce_scatter": true, "reduce_bucket_size": 5e8, "contiguous_gradients" : true}})");
  run = translated(
      "deepspeed --num_gpus=4 --master_port 50003 main.py --deepspeed " + (f / "deepspeed.json") + " " + glm +
      "--max_source_length 64 --max_target_length 64 --per_device_train_batch_size 4 --max_steps 5000 --learning_rate 1e-4 --fp16");
  CHECK(run.parallel.ranks == 4);
  CHECK(run.parallel.zero == 2);
  CHECK(run.adapter.kind == "none");
  CHECK(recipe_of(run).key() == "cpu-fp16_mixed-zero.2");
  refuses("main.py --train_file a.json --model_name_or_path glm", "--do_train or --do_predict: one of them must be given");
  refuses(glm + "--quantization_bit 4",
          "--quantization_bit: must be left out: needs --pre_seq_len: weights that are trained are not integers; given '4'");
  refuses("CUDA_VISIBLE_DEVICES=0,1 deepspeed main.py --do_train", "--num_gpus: must be given: how many ranks there are");
  refuses(glm + "--split_batches True",
          "--split_batches: must be left out: it divides a batch over the ranks; divide --per_device_train_batch_size instead; given 'True'");
  refuses(glm + R"(--accelerator_config '{"split_batches":true}')",
          "--accelerator_config: must be used without split_batches, which divides a batch over the ranks; divide --per_device_train_batch_size instead; given "
          R"('{"split_batches":true}')");
  CHECK_NOTHROW((void)translated(glm + R"(--accelerator_config '{"split_batches":false,"even_batches":true}')"));
  refuses(glm + R"(--accelerator_config '{"gradient_accumulation_kwargs":{"num_steps":4}}')",
          "--accelerator_config: must be used without num_steps of gradient_accumulation_kwargs; give --gradient_accumulation_steps; given "
          R"('{"gradient_accumulation_kwargs":{"num_steps":4}}')");
  refuses("main.py --do_train --prompt_column content --model_name_or_path glm",
          "--train_file: must be given, a JSON file of records (ChatGLM-6B's ptuning/main.py)");
  refuses(
      glm + "--history_column history",
      "--history_column: must be left out: conversations are not supported here; use `finetune --format conversations`; given 'history'");
}

TEST_CASE("predictions of ChatGLM-6B are a call of generate") {
  const scratch_folder f;
  write(f / "config.json", R"({"pre_seq_len": 128})");
  // evaluate.sh
  const std::string start =
      "python3 main.py --do_predict --validation_file AdvertiseGen/dev.json --test_file AdvertiseGen/dev.json --overwrite_cache --prompt_column content "
      "--response_column summary --model_name_or_path THUDM/chatglm-6b ";
  const std::string end =
      "--output_dir ./output/adgen --overwrite_output_dir --max_source_length 64 --max_target_length 64 --per_device_eval_batch_size 1 "
      "--predict_with_generate ";
  const std::string prefix = "--ptuning_checkpoint " + f.path() + " --pre_seq_len 128 ";
  const auto arguments = [](const std::string& line) {
    const hugging_face_command command = read_hugging_face(words_of(line));
    CHECK_FALSE(command.trains);
    CHECK(command.program == "generate");
    return command.arguments;
  };
  const std::string after =
      " --prompts AdvertiseGen/dev.json --prompt-field content --answer-field summary --max-prompt-tokens 64 --max-answer-tokens 64 --max-length 512 "
      "--batch-size 1 --temperature 0.95 --top-p 0.7 --top-k 50 --seed 42 --predictions ./output/adgen";
  CHECK(arguments(start + prefix + end + "--quantization_bit 4") ==
        words_of("--model THUDM/chatglm-6b --adapter " + f.path() + " --weight-bits 4" + after));
  CHECK(arguments(start + prefix + end) == words_of("--model THUDM/chatglm-6b --adapter " + f.path() + after));
  // evaluate_finetune.sh
  CHECK(arguments(start + end + "--fp16_full_eval") == words_of("--model THUDM/chatglm-6b" + after));
  const auto more = arguments(start + end + "--val_max_target_length 32 --seed 7 --max_predict_samples 50 --source_prefix 问:");
  CHECK(std::find(more.begin(), more.end(), "50") - std::find(more.begin(), more.end(), "--max-samples") == 1);
  CHECK(std::find(more.begin(), more.end(), "32") - std::find(more.begin(), more.end(), "--max-answer-tokens") == 1);
  CHECK(std::find(more.begin(), more.end(), "7") - std::find(more.begin(), more.end(), "--seed") == 1);
  CHECK(std::find(more.begin(), more.end(), "--prompt-prefix=问:") != more.end());
  CHECK_FALSE(read_hugging_face(words_of(start + end)).notes.empty());

  CHECK_THROWS_WITH_AS((void)translated(start + end),
                       "--do_predict: must be left out where a training run is asked for: it is a call of `generate`", config_error);
  refuses(start + end + "--do_train", "--do_predict: must be left out with --do_train: predict with a second command, as evaluate.sh does; given no value");
  refuses(start + "--output_dir out",
          "--predict_with_generate: must be given with --do_predict: answers are generated, and compared with those of the file");
  refuses(start + end + "--pre_seq_len 128", "--ptuning_checkpoint: must be given with --pre_seq_len and --do_predict: a folder with a prefix");
  refuses(start + end + "--ptuning_checkpoint out",
          "--ptuning_checkpoint: must be left out without --pre_seq_len, the length of its prefix; given 'out'");
  refuses(start + end + "--ptuning_checkpoint " + f.path() + " --pre_seq_len 64",
          ("--pre_seq_len: must be that of --ptuning_checkpoint, 128 in " + f.path() + "/config.json; given 64").c_str());
  refuses(start + end + "--quantization_bit 4",
          "--quantization_bit: must be left out: needs --pre_seq_len: integers are supported beside a prefix; given '4'");
  refuses(start + end + "--num_beams 4", "--num_beams: must be 1: answers are sampled, as main.py does, and a beam search here does not sample; given '4'");
  refuses("torchrun --nproc_per_node=2 " + start.substr(8) + end, "--nproc_per_node: must be 1 with --do_predict; given 2");
  refuses(start + end + "--device musa",
          "--device: must be cpu, cuda or npu: the programs generate, generate_cuda and generate_npu are compiled for these; given 'musa'");
  const hugging_face_command on_npu = read_hugging_face(words_of(start + end + "--device npu"));
  CHECK(on_npu.program == "generate_npu");
  CHECK(on_npu.arguments == words_of("--model THUDM/chatglm-6b --device npu" + after));
  const hugging_face_command on_gpu = read_hugging_face(words_of(start + end + "--device cuda"));
  CHECK(on_gpu.program == "generate_cuda");
  CHECK(on_gpu.arguments == words_of("--model THUDM/chatglm-6b --device cuda" + after));
  refuses(start + end + "--max_new_tokens 5", "--max_new_tokens: there is no such flag");
  refuses(start + end + "--do_eval", "--do_eval: must be left out: to evaluate what was trained, use --do_predict alone, or `evaluate`; given no value");
}

TEST_CASE("a special token that the files leave out is what the tokenizer's class has by itself") {
  const scratch_folder f;
  write(f / "tokenizer.json", "{}");  // it is not read
  using texts = std::vector<std::string>;
  const std::string line = "--model_name_or_path " + f.path() + " --data_path a.json --output_dir out";
  const auto added = [&](const std::string& settings) {
    write(f / "tokenizer_config.json", settings);
    return translated(line).tokenizer.add_tokens;
  };
  // the generic class has no defaults: as in Llama 3's files
  CHECK(added(R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})") ==
        texts{"[PAD]", "<unk>"});
  CHECK(translated(line).tokenizer.special_tokens == json::parse(R"({"pad_token": "[PAD]", "unk_token": "<unk>"})"));
  CHECK(added(R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "e", "pad_token": "e"})") == texts{"<s>", "<unk>"});
  refuses((write(f / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), line),
          ("--model_name_or_path: must have an end-of-text token; eos_token is missing in " + (f / "tokenizer_config.json")).c_str());
  CHECK(added(R"({"tokenizer_class": "LlamaTokenizerFast"})") == texts{"[PAD]"});
  CHECK(added(R"({"tokenizer_class": "GPT2Tokenizer"})") == texts{"[PAD]"});
  CHECK(added(R"({"tokenizer_class": "Qwen2TokenizerFast"})") == texts{"<s>"});
  CHECK(added(R"({"tokenizer_class": "GemmaTokenizer"})").empty());
  CHECK(added(R"({"tokenizer_class": "GemmaTokenizer", "pad_token": null, "unk_token": null})") == texts{"[PAD]", "<unk>"});
  CHECK(added(R"({"tokenizer_class": "TheirTokenizer", "eos_token": "e"})") == texts{"[PAD]"});
  // without a class: the model type's
  write(f / "config.json", R"({"model_type": "qwen2"})");
  CHECK(added("{}") == texts{"<s>"});
  write(f / "config.json", R"({"model_type": "qwen2", "tokenizer_class": "PreTrainedTokenizerFast"})");
  CHECK(added(R"({"eos_token": "e"})") == texts{"[PAD]", "<s>", "<unk>"});
  // files older than added_tokens_decoder name them in special_tokens_map.json
  write(f / "special_tokens_map.json", R"({"unk_token": {"content": "u"}, "pad_token": "p"})");
  CHECK(added(R"({"eos_token": "e"})") == texts{"<s>"});
  CHECK(added(R"({"eos_token": "e", "added_tokens_decoder": {}})") == texts{"[PAD]", "<s>", "<unk>"});
}

TEST_CASE("the model's folder decides about layer classes and special tokens") {
  const scratch_folder f;
  write(f / "config.json", R"({"model_type": "qwen2", "hidden_size": 8})");
  write(
      f / "tokenizer_config.json",
      R"({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": null, "unk_token": null})");
  const std::string line =
      "--model_name_or_path " + f.path() + " --data_path a.json --output_dir out --fsdp full_shard --fsdp_transformer_layer_cls_to_wrap ";
  CHECK(translated(line + "Qwen2DecoderLayer").tokenizer.add_tokens == std::vector<std::string>{"<s>", "<unk>"});
  refuses(line + "LlamaDecoderLayer", ("--fsdp_transformer_layer_cls_to_wrap: must be the layer class of the model in " + f.path() +
                                       ", Qwen2DecoderLayer; given 'LlamaDecoderLayer'")
                                          .c_str());
  write(f / "tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "eos_token": {"content": "</s>"}, "bos_token": "<s>", "unk_token": "<unk>"})");
  CHECK(translated(line + "Qwen2DecoderLayer").tokenizer.add_tokens == std::vector<std::string>{"[PAD]"});
  CHECK(translated(line + "Qwen2DecoderLayer").tokenizer.special_tokens == json::parse(R"({"pad_token": "[PAD]"})"));
  refuses("--model_name_or_path " + f.path() + " --do_train --train_file a.json --prompt_column a --response_column b --output_dir out",
          ("--model_name_or_path: must be a ChatGLM model for ptuning/main.py; " + (f / "config.json") + " has model_type \"qwen2\"").c_str());
  CHECK(transformers_layer_class(json{{"model_type", "baichuan"}, {"num_hidden_layers", 32}}) == "DecoderLayer");
  CHECK(transformers_layer_class(json{{"model_type", "baichuan"}, {"num_hidden_layers", 40}}) == "BaichuanLayer");
}

TEST_CASE("the device is the recipe's") {
  CHECK(recipe_of(translated(alpaca + "--device npu --bf16 True")).key() == "npu-bf16_mixed");
  CHECK(recipe_of(translated(alpaca + "--use_cpu True")).key() == "cpu-fp32");
  refuses(alpaca + "--device nvidia", "--device: must be one of cpu, cuda, npu, musa; given 'nvidia'");
  refuses(alpaca + "--device musa --no_cuda", "--no_cuda: must be False with --device musa; given no value");
  refuses(alpaca + "--use_mps_device True", "--use_mps_device: must be left out: the device is what --device says: cpu, cuda, npu or musa; given 'True'");
}

TEST_CASE("schedules and optimizers") {
  run_description run = translated(alpaca + "--lr_scheduler_type constant --warmup_steps 10");
  CHECK(run.schedule.warmup_steps == 0);
  CHECK(run.notes.size() == 1);
  run = translated(alpaca + "--lr_scheduler_type constant_with_warmup --warmup_steps 10 --warmup_ratio 0.5");
  CHECK(run.schedule.kind == "constant");
  CHECK(run.schedule.warmup_steps == 10);
  run = translated(alpaca + "--warmup-steps=0.1");
  CHECK(run.schedule.warmup_ratio == 0.1);
  run =
      run_description::from_hugging_face({"--model_name_or_path", "qwen", "--data_path", "a.json", "--output_dir", "out",
                                          "--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs", R"({"min_lr_rate": 0.1})"});
  CHECK(run.schedule.min_learning_rate == doctest::Approx(5e-6));
  CHECK(translated(alpaca + "--lr_scheduler_type polynomial").schedule.min_learning_rate == 1e-7);
  CHECK(translated(alpaca + "--optim adafactor").optimizer.settings ==
        json{{"scale_parameter", false}, {"relative_step", false}, {"weight_decay", 0.0}});
  CHECK(translated(alpaca + "--adafactor True").optimizer.kind == "adafactor");
  refuses(alpaca + "--optim adamw_torch --adafactor True", "--adafactor: must be left out with --optim adamw_torch; given 'True'");
  CHECK(translated(alpaca + "--save_strategy epoch --save_steps 20 --eval_steps 10").notes ==
        std::vector<std::string>{"--save_steps: is used with --save_strategy steps; it is epoch",
                                 "--eval_steps: is used with --eval_strategy steps; it is no"});
  CHECK(translated(alpaca + "--optim adamw_bnb_8bit").optimizer.kind == "adamw_8bit");
  CHECK(translated(alpaca + "--max_steps 10").max_steps == 10);
  CHECK(translated(alpaca + "--resume_from_checkpoint True").output.resume == "latest");
  CHECK(translated(alpaca + "--resume_from_checkpoint out/checkpoint-5").output.resume == "out/checkpoint-5");
  CHECK(translated(alpaca + "--overwrite_output_dir").output.overwrite);
  CHECK_FALSE(translated(alpaca + "--overwrite_output_dir False").output.overwrite);
  CHECK_FALSE(translated(alpaca + "--overwrite_output_dir --resume_from_checkpoint True").output.overwrite);  // the run goes on
  const run_description logs = translated(alpaca + "--logging_dir logs");
  CHECK(std::count_if(logs.notes.begin(), logs.notes.end(), [](const std::string& note) { return note.find("logging_dir") != std::string::npos; }) == 1);
  run = translated(alpaca + "--loss_average micro_batch");
  CHECK(run.objective.average == "micro_batch");
  CHECK_FALSE(run.drop_last);  // the last batch of an epoch is a step, smaller or not
  CHECK(translated(alpaca + "--loss_average micro_batch --gradient_accumulation_steps 2").drop_last);
}

TEST_CASE("evaluation data is used where a strategy asks for it") {
  CHECK(translated(alpaca + "--eval_data_path e.json").eval_data.empty());
  const run_description run = translated(alpaca + "--eval_data_path e.json --eval_strategy steps --eval_steps 20");
  CHECK(run.eval_data.front().files == std::vector<std::string>{"e.json"});
  CHECK(run.output.eval_steps == 20);
  CHECK(translated(alpaca + "--eval_data_path e.json --evaluation_strategy epoch").output.eval_epochs);
  // default of --eval_steps: logging_steps, even without a log
  const std::string every_log = alpaca + "--eval_data_path e.json --eval_strategy steps --logging_steps 6";
  CHECK(translated(every_log).output.eval_steps == 6);
  CHECK(translated(every_log + " --logging_strategy no").output.eval_steps == 6);
  CHECK(translated(every_log + " --metric_for_best_model loss").output.save_total_limit == 0);
  refuses(every_log + " --metric_for_best_model loss --save_total_limit 2",
          "--metric_for_best_model: must be left out with --save_total_limit: the best checkpoint is not kept longer than others; given 'loss'");
}

TEST_CASE("parts of epochs, and intervals that are fractions of all steps") {
  run_description run = translated(alpaca + "--num_train_epochs 2.5 --save_steps 0.2 --logging_steps 0.05");
  CHECK(run.epochs == 3);
  CHECK(run.partial_epochs == 2.5);
  CHECK(run.output.save_ratio == 0.2);
  CHECK(run.output.save_steps == 0);
  CHECK(run.output.log_ratio == 0.05);
  CHECK(run.output.log_steps == 1);
  run = translated(alpaca + "--num_train_epochs 0.5");
  CHECK(run.epochs == 1);
  CHECK(run.partial_epochs == 0.5);
  CHECK(translated(alpaca + "--num_train_epochs 2.0").partial_epochs == 0.0);
  // with --max_steps they are step counts already: of 25 steps, ceil(2.5) and ceil(5)
  run = translated(alpaca + "--max_steps 25 --num_train_epochs 2.5 --logging_steps 0.1 --save_steps 0.2");
  CHECK(run.partial_epochs == 0.0);
  CHECK(run.output.log_steps == 3);
  CHECK(run.output.save_steps == 5);
  CHECK(run.output.save_ratio == 0.0);
  const std::string evaluates = alpaca + "--eval_data_path e.json --eval_strategy steps ";
  CHECK(translated(evaluates + "--eval_steps 0.5").output.eval_ratio == 0.5);
  CHECK(translated(evaluates + "--logging_steps 0.25").output.eval_ratio == 0.25);  // logging_steps
  CHECK(translated(evaluates + "--logging_steps 0.25 --eval_steps 0").output.eval_ratio == 0.25);
  CHECK(translated(evaluates + "--logging_steps 0.25 --eval_steps 1").output.eval_steps == 1);
  run = translated(alpaca + "--logging_strategy epoch --logging_steps 2.5");  // which is not read
  CHECK(run.output.log_epochs);
  CHECK(run.output.log_steps == 1);
  CHECK(run.output.log_ratio == 0.0);
  CHECK(translated(alpaca + "--save_steps 0").output.save_steps > 1'000'000'000);  // only after the last step
  refuses(alpaca + "--logging_steps 0", "--logging_steps: must be a positive number of steps, or a fraction of all steps below 1; given '0'");
  refuses(alpaca + "--save_steps 2.5", "--save_steps: must be a whole number of steps, or a fraction of all steps below 1; given '2.5'");
  CHECK_FALSE(translated(alpaca + "--train_sampling_strategy sequential").shuffle);
}

TEST_CASE("a warm-up of 2.7 steps, and schedules with settings of their own") {
  run_description run = translated(alpaca + "--warmup_steps 2.7");
  CHECK(run.schedule.warmup_steps == 2);
  CHECK(run.notes == std::vector<std::string>{"--warmup_steps: is rounded down, to 2"});
  const auto with = [](const std::string& kind, const std::string& settings) {
    std::vector<std::string> words = words_of(alpaca + "--learning_rate 0.5 --warmup_steps 2 --lr_scheduler_type " + kind);
    words.insert(words.end(), {"--lr_scheduler_kwargs", settings});
    return run_description::from_hugging_face(words).schedule;
  };
  schedule_description schedule =
      with("warmup_stable_decay", R"({"num_decay_steps": 5, "min_lr_ratio": 0.1, "warmup_type": "cosine", "decay_type": "1-sqrt"})");
  CHECK(schedule.kind == "warmup_stable_decay");
  CHECK(schedule.min_learning_rate == 0.05);
  CHECK(schedule.from_zero);
  CHECK(schedule.settings == json{{"final_steps", 5}, {"warmup_shape", "cosine"}, {"decay_shape", "1-sqrt"}});
  CHECK(with("warmup_stable_decay", R"({"num_decay_steps": 5, "num_stable_steps": 0})").settings == json{{"final_steps", 5}, {"stable_steps", 0.0}});
  schedule = with("cosine_warmup_with_min_lr", R"({"min_lr_rate": 0.1})");
  CHECK_FALSE(schedule.from_zero);
  CHECK(schedule.min_learning_rate == 0.05);
  schedule = with("cosine_warmup_with_min_lr", R"({"min_lr": 0.05, "warmup_lr_rate": 0.2})");
  CHECK(schedule.from_zero);
  CHECK(schedule.settings == json{{"warmup_init", 0.1}});
  CHECK(with("cosine_with_min_lr", R"({"min_lr": 0})").min_learning_rate == 0.0);
  const auto refused = [&](const std::string& kind, const std::string& settings, const std::string& message) {
    CAPTURE(settings);
    CHECK_THROWS_WITH_AS((void)with(kind, settings), message.c_str(), config_error);
  };
  refused("warmup_stable_decay", "{}", "--lr_scheduler_kwargs: must have num_decay_steps for --lr_scheduler_type warmup_stable_decay");
  refused("warmup_stable_decay", R"({"num_decay_steps":2.5})",
          "--lr_scheduler_kwargs: must be an object whose num_decay_steps is a whole number; given '{\"num_decay_steps\":2.5}'");
  refused("warmup_stable_decay", R"({"decay_type":"exp"})",
          "--lr_scheduler_kwargs: must be an object whose decay_type is linear, cosine or 1-sqrt; given '{\"decay_type\":\"exp\"}'");
  refused("cosine_with_min_lr", R"({"min_lr":0.1,"min_lr_rate":0.1})",
          "--lr_scheduler_kwargs: must have either min_lr or min_lr_rate for --lr_scheduler_type cosine_with_min_lr");
}

TEST_CASE("the load-balancing loss of experts is added as the Trainer adds it") {
  const scratch_folder f;
  write(f / "config.json", R"({"model_type": "mixtral", "output_router_logits": true})");
  const std::string line = "--model_name_or_path " + f.path() + " --data_path a.json --output_dir out ";
  CHECK(translated(line).objective.balance == "micro_batches");
  CHECK(translated(line + "--label_smoothing_factor 0.1").objective.balance == "none");
  write(f / "config.json", R"({"model_type": "mixtral", "torch_dtype": "bfloat16"})");
  CHECK(translated(line).objective.balance == "targets");
  CHECK(translated(line).notes == std::vector<std::string>{"--model_name_or_path: config.json names bfloat16 weights: they become fp32, as in train.py with "
                                                           "transformers 4; with transformers 5 it would train them as they are"});
  CHECK(translated(line).follows == "transformers 5.24");
}

TEST_CASE("what cannot be honoured is refused by its name") {
  refuses("--data_path a.json", "--model_name_or_path: must be given, a folder");
  refuses("--model_name_or_path m --output_dir out",
          "--data_path: must be given, a JSON file of records with instruction, input and output (Stanford Alpaca's train.py), or "
          "--train_file, or --do_predict with --test_file (ChatGLM-6B's ptuning/main.py)");
  refuses(alpaca + "--train_file train.json",
          "--train_file: must be left out: it is a flag of ChatGLM-6B's ptuning/main.py; with --data_path, flags are those of Stanford Alpaca's train.py");
  refuses(alpaca + "--do_eval True", "--do_eval: must be left out: --eval_data_path and --eval_strategy say what is evaluated, and when; given 'True'");
  refuses(glm + "--model_max_length 512",
          "--model_max_length: must be left out: it is a flag of Stanford Alpaca's train.py, which has --data_path; these are flags of ChatGLM-6B's "
          "ptuning/main.py");
  refuses(alpaca + "--learning-rte 1e-5", "--learning_rte: there is no such flag; did you mean --learning_rate?");
  refuses(alpaca + "--learning_rate fast", "--learning_rate: must be a number; given 'fast'");
  refuses(alpaca + "--bf16 maybe", "--bf16: must be True or False; given 'maybe'");
  refuses(alpaca + "--bf16 True --fp16 True", "--fp16: must be False with --bf16 True; given 'True'");
  refuses(alpaca + "--num_train_epochs 0", "--num_train_epochs: must be positive; given '0'");
  refuses(alpaca + "--max_steps 0", "--max_steps: must be positive, or -1: all steps of --num_train_epochs; given '0'");
  refuses(alpaca + "--per_device_train_batch_size 0", "--per_device_train_batch_size: must be a whole number of at least 1; given '0'");
  refuses(
      alpaca + "--optim lamb",
      "--optim: must be one of adamw_torch, adamw_hf, adamw_torch_fused, adamw_apex_fused, paged_adamw_32bit, adamw_8bit, adamw_bnb_8bit, "
      "paged_adamw_8bit, lion_32bit, adafactor, sgd; given 'lamb'");
  refuses(alpaca + "--lr_scheduler_type cosin",
          "--lr_scheduler_type: must be one of linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, "
          "inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay; given 'cosin'; did you mean 'cosine'?");
  refuses(alpaca + "--evaluation_strategy epoch",
          "--evaluation_strategy: must be no: there is no evaluation data; --eval_data_path names some; given 'epoch'");
  refuses(alpaca + "--push_to_hub", "--push_to_hub: must be left out: not supported; given no value");
  refuses(
      alpaca + "--fsdp sharded",
      "--fsdp: must be full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard, with offload and auto_wrap if wanted; given "
      "'sharded'");
  refuses(
      alpaca + "--local_rank 1",
      "--local_rank: must be left out: ranks are threads of one process (--nproc_per_node N before the flags), or processes of mpirun or srun; "
      "given '1'");
  refuses("torchrun --nnodes=2 --nproc_per_node=8 train.py " + alpaca,
          "--nnodes: must be 1: the ranks of several nodes are processes that mpirun or srun starts, as in "
          "`mpirun -n 16 hf_train ...`; given '2'");
  const scratch_folder f;
  write(f / "deep.json", "{\"fp16\": " + std::string(1000000, '[') + std::string(1000000, ']') + "}");
  CHECK_THROWS_WITH_AS((void)translated(alpaca + "--deepspeed " + (f / "deep.json")),
                       doctest::Contains("deep.json: must be JSON; line 1: nested deeper than 128"), config_error);
  const std::string deep = "{\"fp16\":" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  std::vector<std::string> words = words_of(alpaca);
  words.insert(words.end(), {"--deepspeed", deep});
  CHECK_THROWS_WITH_AS((void)run_description::from_hugging_face(words), doctest::Contains("--deepspeed: must be JSON; line 1: nested deeper than 128"),
                       config_error);
  CHECK(translated(alpaca + "--label_smoothing_factor 0.1").notes.empty());
  CHECK(translated(alpaca + "--label_smoothing_factor 0.1 --eval_data_path b.json --eval_strategy epoch").notes ==
        std::vector<std::string>{"--label_smoothing_factor: is left out of eval_loss, where the Trainer has it"});
  refuses("accelerate launch --num_processes 4 train.py " + alpaca,
          "accelerate: must be torchrun --nproc_per_node N: what accelerate is configured with is not read; give the program's own flags");
  CHECK(translated("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py " + alpaca).parallel.ranks == 2);
  CHECK(translated("python3 -u train.py " + alpaca).notes.empty());
  refuses(alpaca + "--bf16 --no_bf16", "--no_bf16: must be left out with --bf16; given no value");
  write(f / "fsdp.json", R"({"xla": false, "activation_checkpointing": true})");
  CHECK(translated(alpaca + "--fsdp full_shard --fsdp_config " + (f / "fsdp.json")).recompute == "full");
  write(f / "xla.json", R"({"xla": true})");
  refuses(alpaca + "--fsdp full_shard --fsdp_config " + (f / "xla.json"),
          ("--fsdp_config: must be a config without xla; given '" + (f / "xla.json") + "'").c_str());
  refuses(alpaca + "--report_to wandb,tensorboard",
          "--report_to: must be tensorboard, none, all, or names of other programs with blanks between them, of which nothing is written; given "
          "'wandb,tensorboard'");
  refuses(alpaca + "--eval_strategy no --evaluation_strategy steps",
          "--evaluation_strategy: must be left out: it is the older name of --eval_strategy; given 'steps'");
  CHECK(translated(alpaca + "--eval_strategy no --evaluation_strategy no --per_gpu_train_batch_size 4").micro_batch_size == 4);
  refuses(alpaca + "--tp_size 2",
          "--tp_size: must be left out: ranks are data-parallel ranks, with --fsdp or --deepspeed if weights are divided; given '2'");
  refuses("train.py " + alpaca + "--nproc-per-node 2", "--nproc_per_node: must stand before the script and its flags: it is a flag of the launcher");
  refuses(alpaca + "--nnodes=1", "--nnodes: must stand before the script and its flags: it is a flag of the launcher");
  refuses("train.py alpaca.json " + alpaca, "'alpaca.json': must come after a flag; it is the first argument");
  refuses(
      alpaca + "--dataloader_drop_last True --gradient_accumulation_steps 2",
      "--dataloader_drop_last: must be False with --gradient_accumulation_steps 2: here whole steps are left out at the end of an epoch, not micro-batches; given 'True'");
}

TEST_CASE("the page lists every flag, with what becomes of it") {
  using use = program_flags::use;
  // a flag may be read by one script, and refused or ignored by another
  std::map<std::string, std::set<std::pair<use, std::string>>> known;
  const std::string predicting =
      "--model_name_or_path glm --do_predict --predict_with_generate --test_file dev.json --prompt_column content --response_column summary --output_dir out";
  for (const std::string& line : {alpaca, alpaca + "--report_to tensorboard", glm, glm + "--pre_seq_len 8", predicting})
    for (const program_flags::known_flag& flag : known_hugging_face_flags(words_of(line))) {
      std::string name = flag.name;
      std::replace(name.begin(), name.end(), '_', '-');
      known[name].emplace(flag.use, flag.why);
    }
  const std::string page = XTRAIN_SOURCE "/examples/hugging_face.md";
  std::set<std::string> listed;
  std::string table;
  for (const page_row& row : rows_of_page(page)) {
    if (row.section != "Flags of `hf_train`") continue;
    if (!row.cells.front().starts_with("`--") && (row.cells.size() < 2 || flags_in(row.cells[1]).empty())) {
      table = row.cells.front();
      continue;
    }
    const use what = table == "read" ? use::read : table == "flags" ? use::must_be_off : use::no_effect;
    for (const std::string& flag : flags_in(row.cells.at(what == use::read ? 1 : 0))) {
      CAPTURE(flag);
      listed.insert(flag);
      CHECK_MESSAGE(known[flag].contains({what, what == use::read ? "" : row.cells.at(1)}), "it is not so with any of the scripts");
    }
  }
  for (const auto& one : known) CHECK_MESSAGE(listed.contains(one.first), "--", one.first, " is not on the page");
}
