#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/hugging_face.hpp>
#include <xtrain/front_ends/hugging_face_accepted.hpp>
#include <xtrain/front_ends/hugging_face_alpaca.hpp>
#include <xtrain/front_ends/hugging_face_chatglm.hpp>
#include <xtrain/front_ends/hugging_face_output.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/front_ends/hugging_face_sharding.hpp>
#include <xtrain/front_ends/program_flags.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

XTRAIN_INLINE std::string transformers_layer_class(const json& config) {
  const auto text = [&](const char* name) {
    return config.contains(name) && config.at(name).is_string() ? config.at(name).get<std::string>() : std::string{};
  };
  const std::string type = text("model_type");
  if (type == "baichuan") {  // 7B and 13B have different classes
    const auto layers = config.find("num_hidden_layers");
    return layers != config.end() && layers->is_number() && layers->get<double>() > 32.0 ? "BaichuanLayer" : "DecoderLayer";
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 20> classes{{{"llama", "LlamaDecoderLayer"},
                                                                                   {"mistral", "MistralDecoderLayer"},
                                                                                   {"mixtral", "MixtralDecoderLayer"},
                                                                                   {"qwen2", "Qwen2DecoderLayer"},
                                                                                   {"qwen3", "Qwen3DecoderLayer"},
                                                                                   {"gpt2", "GPT2Block"},
                                                                                   {"bloom", "BloomBlock"},
                                                                                   {"gemma", "GemmaDecoderLayer"},
                                                                                   {"gemma2", "Gemma2DecoderLayer"},
                                                                                   {"phi3", "Phi3DecoderLayer"},
                                                                                   {"internlm", "InternLMDecoderLayer"},
                                                                                   {"internlm2", "InternLM2DecoderLayer"},
                                                                                   {"chatglm", "GLMBlock"},
                                                                                   {"bert", "BertLayer"},
                                                                                   {"aquila", "AquilaDecoderLayer"},
                                                                                   {"aquila2", "AquilaDecoderLayer"},
                                                                                   {"baichuan2", "DecoderLayer"},
                                                                                   {"qwen2_moe", "Qwen2MoeDecoderLayer"},
                                                                                   {"roberta", "RobertaLayer"},
                                                                                   {"gpt_neox", "GPTNeoXLayer"}}};
  for (const auto& [name, layer] : classes)
    if (type == name) return std::string(layer);
  return {};
}

namespace detail {

/// Shared by the parts of the translation.
struct hugging_face_state {
  explicit hugging_face_state(const std::vector<std::string>& words) : launched(read_launcher(words)), flags(launched.flags) {}

  launched_script launched;
  program_flags flags;
  run_description run{};
  json config = json::object();
};

class hugging_face_reader : hugging_face_state, hugging_face_part {
 public:
  explicit hugging_face_reader(const std::vector<std::string>& words) : hugging_face_state(words), hugging_face_part(flags, run, config) {
    for (const std::string& word : words) run_.made_from += concat(run_.made_from.empty() ? "" : " ", word);
    run_.notes = launched.notes;
    run_.follows = "transformers 5.24";
    run_.parallel.ranks = launched.ranks;
  }

  [[nodiscard]] hugging_face_command read() {
    model();
    run_.device = flags_.one_of("device", "cpu", {"cpu", "cuda", "npu", "musa"});
    const auto has_any = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&](const char* name) { return flags_.has(name); });
    };
    hugging_face_chatglm chatglm(flags_, run_, config_);
    if (flags_.has("data_path")) hugging_face_alpaca(flags_, run_, config_).read();
    else if (has_any({"train_file", "do_predict", "prompt_column", "pre_seq_len", "ptuning_checkpoint"})) chatglm.read();
    else
      fail<config_error>(
          "--data_path: must be given, a JSON file of records with instruction, input and output (Stanford Alpaca's train.py), or --train_file, or ",
          "--do_predict with --test_file (ChatGLM-6B's ptuning/main.py)");
    predicts_ = chatglm.predicts();
    batches();
    precision();
    optimizer();
    schedule();
    hugging_face_output(flags_, run_, config_).read();
    hugging_face_sharding(flags_, run_, config_).read();
    hugging_face_accepted(flags_, run_, config_).read(predicts_);
    if (flags_.has("data_path"))
      flags_.finish({"train_file", "validation_file", "test_file", "prompt_column", "response_column", "source_prefix", "max_source_length",
                     "max_target_length", "val_max_target_length", "ptuning_checkpoint", "pre_seq_len", "prefix_projection", "quantization_bit",
                     "predict_with_generate", "ignore_pad_token_for_loss", "pad_to_max_length", "history_column"},
                    "it is a flag of ChatGLM-6B's ptuning/main.py; with --data_path, flags are those of Stanford Alpaca's train.py");
    else
      flags_.finish({"eval_data_path", "model_max_length"},
                    "it is a flag of Stanford Alpaca's train.py, which has --data_path; these are flags of ChatGLM-6B's ptuning/main.py");
    hugging_face_command command{.trains = !predicts_, .run = {}, .program = "", .arguments = chatglm.prediction(), .notes = {}};
    if (predicts_) command.program = run_.device == "cpu" ? "generate" : "generate_" + run_.device;
    command.notes = run_.notes;
    if (!predicts_) command.run = std::move(run_);
    return command;
  }
  /// After read().
  [[nodiscard]] std::vector<program_flags::known_flag> known() const { return flags_.known(); }

 private:
  void model() {
    run_.model.folder = flags_.text("model_name_or_path");
    require<config_error>(!run_.model.folder.empty(), "--model_name_or_path: must be given, a folder");
    for (const char* name : {"config_name", "tokenizer_name"})
      if (const std::string given = flags_.text(name, run_.model.folder); given != run_.model.folder) {
        if (std::string_view(name) == "config_name") flags_.wrong(name, "left out: the config is the model's");
        run_.tokenizer.path = given;
      }
    if (gguf_file::is_one(run_.model.folder)) config = gguf_model(run_.model.folder).config().object();
    else if (file_exists(in_model("config.json"))) config = read_json(in_model("config.json"));
  }

  void batches() {
    const bool old_name = flags_.has("per_gpu_train_batch_size") && flags_.text("per_gpu_train_batch_size") != "None";  // takes precedence
    (void)flags_.has("per_device_train_batch_size");
    run_.micro_batch_size = flags_.whole<std::size_t>(old_name ? "per_gpu_train_batch_size" : "per_device_train_batch_size", 8, 1);
    run_.gradient_accumulation_steps = flags_.whole<std::size_t>("gradient_accumulation_steps", 1, 1);
    // the last micro-batch of an epoch may be smaller; without accumulation it is a separate step
    run_.drop_last = run_.objective.average == "micro_batch" && (run_.gradient_accumulation_steps > 1 || run_.parallel.ranks > 1);
    if (flags_.is_true("dataloader_drop_last")) {
      if (run_.gradient_accumulation_steps > 1)
        flags_.wrong("dataloader_drop_last", concat("False with --gradient_accumulation_steps ", run_.gradient_accumulation_steps,
                                                    ": here whole steps are left out at the end of an epoch, not micro-batches"));
      run_.drop_last = true;
    }
    const long steps = flags_.whole<long>("max_steps", -1, -1);
    if (steps == 0) flags_.wrong("max_steps", "positive, or -1: all steps of --num_train_epochs");
    if (steps > 0) run_.max_steps = static_cast<std::size_t>(steps);
    const double epochs = flags_.number("num_train_epochs", 3.0);
    if (run_.max_steps > 0) {
      if (flags_.has("num_train_epochs")) run_.notes.emplace_back("--num_train_epochs: --max_steps is used");
    } else {
      if (epochs <= 0.0 || epochs > 1e9) flags_.wrong("num_train_epochs", "positive");
      run_.epochs = static_cast<std::size_t>(std::ceil(epochs));
      if (epochs != std::floor(epochs)) run_.partial_epochs = epochs;
    }
    run_.seed = flags_.whole<std::uint64_t>("seed", 42);
    run_.neftune_noise_alpha = flags_.not_negative("neftune_noise_alpha", 0.0);
    if (const double smoothing = flags_.not_negative("label_smoothing_factor", 0.0); smoothing > 0.0) {
      if (smoothing >= 1.0) flags_.wrong("label_smoothing_factor", "below 1");
      run_.objective.settings["label_smoothing"] = smoothing;
    }
    // the Trainer adds the model's load-balancing loss per micro-batch; its label smoother computes the loss from logits alone
    if (const auto balances = config_.find("output_router_logits"); balances != config_.end() && *balances == true)
      run_.objective.balance = run_.objective.settings.contains("label_smoothing") ? "none" : "micro_batches";
    if (flags_.is_true("gradient_checkpointing") || flags_.is_true("activation_checkpointing")) run_.recompute = "full";
    if (!flags_.is_true("average_tokens_across_devices", true) && run_.parallel.ranks > 1 && run_.objective.average == "step")
      flags_.wrong("average_tokens_across_devices", "True with several ranks: the loss is the mean over all targets of a step");
    flags_.must_be_off({"group_by_length", "auto_find_batch_size", "full_determinism"}, "not supported");
    flags_.without_effect({"data_seed"}, "the order of samples is this library's, and follows from --seed", run_.notes);
    run_.shuffle = flags_.one_of("train_sampling_strategy", "random", {"random", "sequential"}) == "random";
  }

  void precision() {
    const bool fp16 = flags_.is_true("fp16"), bf16 = flags_.is_true("bf16");
    if (fp16 && bf16) flags_.wrong("fp16", "False with --bf16 True");
    if (run_.adapter.kind == "prefix") {
      if (bf16) flags_.wrong("bf16", "False with --pre_seq_len: main.py makes the model fp16");
    } else {
      run_.precision = fp16 ? "fp16_mixed" : bf16 ? "bf16_mixed" : "fp32";
    }
    for (const char* key : {"dtype", "torch_dtype"}) {
      const auto stored = config_.find(key);
      if (!flags_.has("data_path") || stored == config_.end() || (*stored != "bfloat16" && *stored != "float16")) continue;
      run_.notes.push_back(concat("--model_name_or_path: config.json names ", stored->get<std::string>(), " weights: they become fp32, as in train.py with ",
                                  "transformers 4; with transformers 5 it would train them as they are"));
      break;
    }
    // torch's GradScaler has no minimum scale
    if (fp16) run_.loss_scale = {{"initial", 65536.0}, {"min", 1e-30}, {"window", 2000}, {"hysteresis", 1}};
    for (const char* name : {"fp16_backend", "half_precision_backend"})
      (void)flags_.one_of(name, "auto", {"auto", "amp", "cuda_amp", "cpu_amp"});
    for (const auto& [name, same] : {std::pair{"fp16_full_eval", fp16}, {"bf16_full_eval", bf16}})
      if (flags_.is_true(name) && !same && !predicts_) flags_.wrong(name, "False: evaluations are in the precision of training");
    flags_.without_effect({"tf32"}, "it is a mode of NVIDIA's GPUs; fp32 products are computed in fp32", run_.notes);
    flags_.without_effect({"fp16_opt_level"}, "it is apex's", run_.notes);
  }

  void optimizer() {
    const bool adafactor = flags_.is_true("adafactor");
    const std::string name = flags_.text("optim", adafactor ? "adafactor" : "adamw_torch");
    if (adafactor && name != "adafactor") flags_.wrong("adafactor", concat("left out with --optim ", name));
    const double decay = flags_.not_negative("weight_decay", 0.0), beta1 = flags_.not_negative("adam_beta1", 0.9),
                 beta2 = flags_.not_negative("adam_beta2", 0.999), epsilon = flags_.not_negative("adam_epsilon", 1e-8);
    for (const char* beta : {"adam_beta1", "adam_beta2"})
      if (flags_.number(beta, 0.0) >= 1.0) flags_.wrong(beta, "below 1");
    optimizer_description& o = run_.optimizer;
    const auto is_one_of = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
    };
    if (is_one_of({"adamw_torch", "adamw_hf", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_apex_fused",
                   "adamw_anyprecision", "paged_adamw_32bit", "paged_adamw"})) {
      if (name == "adamw_anyprecision") flags_.wrong("optim", "adamw_torch: the state is in fp32");
      o.kind = "adamw";
      o.settings = {{"beta1", beta1}, {"beta2", beta2}, {"epsilon", epsilon}, {"weight_decay", decay}};
    } else if (is_one_of({"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"})) {
      o.kind = "adamw_8bit";
      o.settings = {{"beta1", beta1}, {"beta2", beta2}, {"epsilon", epsilon}, {"weight_decay", decay}};
      run_.notes.emplace_back("--optim: the moments of embeddings have 8 bits, too; transformers gives them 32");
    } else if (is_one_of({"lion_32bit", "paged_lion_32bit"})) {
      o.kind = "lion";
      o.settings = {{"beta1", beta1}, {"beta2", beta2}, {"weight_decay", decay}};
    } else if (name == "adafactor") {
      o.kind = "adafactor";
      o.settings = {{"scale_parameter", false}, {"relative_step", false}, {"weight_decay", decay}};
    } else if (name == "sgd") {
      o.kind = "sgd";
      o.settings = {{"momentum", 0.0}, {"weight_decay", decay}};
    } else {
      const std::vector<std::string> known{"adamw_torch", "adamw_hf",       "adamw_torch_fused", "adamw_apex_fused", "paged_adamw_32bit",
                                           "adamw_8bit",  "adamw_bnb_8bit", "paged_adamw_8bit",  "lion_32bit",       "adafactor",
                                           "sgd"};
      (void)flags_.one_of("optim", name, known);
    }
    flags_.must_be_off({"optim_args", "optim_target_modules"}, "not supported");
    o.max_grad_norm = flags_.not_negative("max_grad_norm", 1.0);
  }

  void schedule() {
    schedule_description& s = run_.schedule;
    s.from_zero = true;
    if (run_.precision == "fp16_mixed") s.settings["counts_updates"] = true;  // steps skipped by the scaler do not advance the scheduler
    s.learning_rate = flags_.not_negative("learning_rate", 5e-5);
    const std::string kind = flags_.one_of("lr_scheduler_type", "linear",
                                           {"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
                                            "inverse_sqrt", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"});
    s.kind = kind == "constant_with_warmup" ? "constant" : kind == "cosine_with_min_lr" ? "cosine" : kind;
    // warmup_steps below 1 are a ratio; they take precedence
    const double steps = flags_.not_negative("warmup_steps", 0.0), ratio = flags_.not_negative("warmup_ratio", 0.0);
    if (ratio > 1.0) flags_.wrong("warmup_ratio", "from 0 to 1");
    if (steps > 1e9) flags_.wrong("warmup_steps", "at most 1e9");
    if (steps >= 1.0 && steps != std::floor(steps)) run_.notes.push_back(concat("--warmup_steps: is rounded down, to ", std::floor(steps)));
    if (steps >= 1.0) s.warmup_steps = static_cast<std::size_t>(steps);
    else s.warmup_ratio = steps > 0.0 ? steps : ratio;
    if (steps > 0.0 && ratio > 0.0) run_.notes.emplace_back("--warmup_ratio: --warmup_steps is used");
    if (kind == "constant" && (s.warmup_steps > 0 || s.warmup_ratio > 0.0)) {
      run_.notes.emplace_back("--lr_scheduler_type constant: has no warm-up; constant_with_warmup has");
      s.warmup_steps = 0;
      s.warmup_ratio = 0.0;
    }
    json more = json::object();
    if (flags_.has("lr_scheduler_kwargs")) more = json_of("lr_scheduler_kwargs");
    if (kind == "polynomial") s.min_learning_rate = 1e-7;
    const bool has_min = kind == "cosine_with_min_lr" || kind == "cosine_warmup_with_min_lr", has_stages = kind == "warmup_stable_decay";
    if (kind == "cosine_warmup_with_min_lr") s.from_zero = false;
    for (const auto& [name, value] : more.items()) {
      if (has_stages && (name == "warmup_type" || name == "decay_type")) {
        if (value != "linear" && value != "cosine" && value != "1-sqrt")
          flags_.wrong("lr_scheduler_kwargs", concat("an object whose ", name, " is linear, cosine or 1-sqrt"));
        s.settings[name == "warmup_type" ? "warmup_shape" : "decay_shape"] = value;
        continue;
      }
      if (!value.is_number()) flags_.wrong("lr_scheduler_kwargs", concat("an object whose ", name, " is a number"));
      const double number = value.get<double>();
      if (name == "num_cycles" && (kind.starts_with("cosine") || has_stages)) s.settings["num_cycles"] = number;
      else if (name == "power" && kind == "polynomial") s.settings["power"] = number;
      else if (name == "lr_end" && kind == "polynomial") s.min_learning_rate = number;
      else if (name == "timescale" && kind == "inverse_sqrt") s.settings["timescale"] = number;
      else if (name == "min_lr" && has_min) s.min_learning_rate = number;
      else if ((name == "min_lr_rate" && has_min) || (name == "min_lr_ratio" && has_stages)) s.min_learning_rate = number * s.learning_rate;
      else if (name == "warmup_lr_rate" && kind == "cosine_warmup_with_min_lr") {
        s.settings["warmup_init"] = number * s.learning_rate;
        s.from_zero = true;
      } else if ((name == "num_decay_steps" || name == "num_stable_steps") && has_stages) {
        if (!value.is_number_unsigned()) flags_.wrong("lr_scheduler_kwargs", concat("an object whose ", name, " is a whole number"));
        if (name == "num_decay_steps") s.settings["final_steps"] = value;
        else s.settings["stable_steps"] = number;
      } else flags_.wrong("lr_scheduler_kwargs", concat("an object of settings of ", kind), concat("; it has no ", name));
    }
    if (has_min && more.contains("min_lr") == more.contains("min_lr_rate"))
      fail<config_error>("--lr_scheduler_kwargs: must have either min_lr or min_lr_rate for --lr_scheduler_type ", kind);
    if (has_stages && !more.contains("num_decay_steps"))
      fail<config_error>("--lr_scheduler_kwargs: must have num_decay_steps for --lr_scheduler_type warmup_stable_decay");
    if (s.min_learning_rate > s.learning_rate)
      flags_.wrong("learning_rate", concat("at least the smallest learning rate, ", s.min_learning_rate));
  }

  bool predicts_ = false;
};

}  // namespace detail

XTRAIN_INLINE hugging_face_command read_hugging_face(const std::vector<std::string>& words) {
  hugging_face_command command = detail::hugging_face_reader(words).read();
  if (command.trains) command.run.check();
  return command;
}

XTRAIN_INLINE std::vector<program_flags::known_flag> known_hugging_face_flags(const std::vector<std::string>& words) {
  detail::hugging_face_reader reader(words);
  (void)reader.read();
  return reader.known();
}

XTRAIN_INLINE run_description run_description::from_hugging_face(const std::vector<std::string>& flags) {
  hugging_face_command command = read_hugging_face(flags);
  require<config_error>(command.trains, "--do_predict: must be left out where a training run is asked for: it is a call of `generate`");
  return std::move(command.run);
}

}  // namespace xtrain
