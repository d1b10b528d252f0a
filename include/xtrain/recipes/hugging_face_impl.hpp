// Definitions of hugging_face.hpp.
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
#include <xtrain/io/gguf.hpp>
#include <xtrain/recipes/deepspeed.hpp>
#include <xtrain/recipes/hugging_face.hpp>
#include <xtrain/recipes/program_flags.hpp>
#include <xtrain/recipes/run_description_impl.hpp>
#include <xtrain/text/tokenizer_class.hpp>

namespace xtrain {

XTRAIN_INLINE std::string transformers_layer_class(const json& config) {
  const auto text = [&](const char* name) {
    return config.contains(name) && config.at(name).is_string() ? config.at(name).get<std::string>() : std::string{};
  };
  const std::string type = text("model_type");
  if (type == "baichuan") {  // the files of 7B and 13B have classes of their own
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

/// Translates one command line.
class hugging_face_reader {
 public:
  explicit hugging_face_reader(const std::vector<std::string>& words) : launched_(read_launcher(words)), flags_(launched_.flags) {
    for (const std::string& word : words) run_.made_from += concat(run_.made_from.empty() ? "" : " ", word);
    run_.notes = launched_.notes;
    run_.follows = "transformers 5.24";
    run_.parallel.ranks = launched_.ranks;
  }

  [[nodiscard]] hugging_face_command read() {
    model();
    run_.device = flags_.one_of("device", "cpu", {"cpu", "cuda", "npu", "musa"});
    const auto has_any = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&](const char* name) { return flags_.has(name); });
    };
    if (flags_.has("data_path")) alpaca();
    else if (has_any({"train_file", "do_predict", "prompt_column", "pre_seq_len", "ptuning_checkpoint"})) chatglm();
    else
      fail<config_error>(
          "--data_path: must be given, a JSON file of records with instruction, input and output (Stanford Alpaca's train.py), or --train_file, or ",
          "--do_predict with --test_file (ChatGLM-6B's ptuning/main.py)");
    batches();
    precision();
    optimizer();
    schedule();
    output();
    sharding();
    accepted();
    if (flags_.has("data_path"))
      flags_.finish({"train_file", "validation_file", "test_file", "prompt_column", "response_column", "source_prefix", "max_source_length",
                     "max_target_length", "val_max_target_length", "ptuning_checkpoint", "pre_seq_len", "prefix_projection", "quantization_bit",
                     "predict_with_generate", "ignore_pad_token_for_loss", "pad_to_max_length", "history_column"},
                    "it is a flag of ChatGLM-6B's ptuning/main.py; with --data_path, flags are those of Stanford Alpaca's train.py");
    else
      flags_.finish({"eval_data_path", "model_max_length"},
                    "it is a flag of Stanford Alpaca's train.py, which has --data_path; these are flags of ChatGLM-6B's ptuning/main.py");
    hugging_face_command command{.trains = !predicts_, .run = {}, .program = "", .arguments = std::move(prediction_), .notes = {}};
    if (predicts_) command.program = run_.device == "cpu" ? "generate" : "generate_cuda";
    command.notes = run_.notes;
    if (!predicts_) command.run = std::move(run_);
    return command;
  }
  /// After read().
  [[nodiscard]] std::vector<program_flags::known_flag> known() const { return flags_.known(); }

 private:
  [[nodiscard]] std::string in_model(const char* file) const {
    return concat(run_.model.folder, run_.model.folder.ends_with('/') ? "" : "/", file);
  }

  void model() {
    run_.model.folder = flags_.text("model_name_or_path");
    require<config_error>(!run_.model.folder.empty(), "--model_name_or_path: must be given, a folder");
    for (const char* name : {"config_name", "tokenizer_name"})
      if (const std::string given = flags_.text(name, run_.model.folder); given != run_.model.folder) {
        if (std::string_view(name) == "config_name") flags_.wrong(name, "left out: the config is the model's");
        run_.tokenizer.path = given;
      }
    if (gguf_file::is_one(run_.model.folder)) config_ = gguf_model(run_.model.folder).config().object();
    else if (file_exists(in_model("config.json"))) config_ = read_json(in_model("config.json"));
  }

  void alpaca() {
    data_description data{.kind = "alpaca", .files = {flags_.text("data_path")}, .when_too_long = "truncate"};
    // the answer follows the colon without a line break
    data.prompt_template =
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:";
    data.prompt_template_without_input =
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Response:";
    run_.data.push_back(data);
    if (flags_.has("eval_data_path")) {
      data.files = {flags_.text("eval_data_path")};
      run_.eval_data.push_back(data);
    }
    const auto length = flags_.whole<std::size_t>("model_max_length", 512, 2);
    run_.seq_length = length - 1;  // the last token is no input
    require_positions("--model_max_length: must be", length, concat(length, flags_.has("model_max_length") ? "" : ", the default"));
    missing_special_tokens();
    run_.tokenizer.saved_settings = {{"model_max_length", length}, {"padding_side", "right"}};
    run_.objective.average = flags_.one_of("loss_average", "step", {"step", "micro_batch"});
    flags_.must_be_off({"lazy_preprocess"}, "samples are tokenized once");
  }
  /// Refuses samples that are longer than the model's config allows, in the words of the command line. The last token of a sample is no input.
  void require_positions(const char* flag_must, std::size_t length, const std::string& given) const {
    for (const char* key : {"n_positions", "max_position_embeddings", "max_sequence_length", "seq_length"}) {  // the last two are ChatGLM's
      const auto at = config_.find(key);
      if (at == config_.end() || !at->is_number_unsigned()) continue;
      const auto positions = at->get<std::size_t>();
      require<config_error>(length - 1 <= positions, flag_must, " at most ", positions + 1, " tokens, the model's ", key,
                            " and one that is no input; given ", given);
      return;
    }
  }
  /// Alpaca's train.py adds the special tokens that are None, of which [PAD] is the usual one. One that the files do not mention is what the class of
  /// the tokenizer has by itself, which for the generic classes is None too.
  void missing_special_tokens() {
    require<config_error>(!gguf_file::is_one(run_.model.folder), "--model_name_or_path: must be a folder for train.py, which adds special tokens that its ",
                          "tokenizer's files lack; given the GGUF file ", run_.model.folder, ". Convert it to a folder first");
    const std::string file = in_model("tokenizer_config.json"), map = in_model("special_tokens_map.json");
    const auto has = [&](const char* name) { return file_exists(in_model(name)); };
    if (!file_exists(file) && !has("tokenizer.json") && !has("tokenizer.model") && !has("vocab.json")) return;
    json settings = file_exists(file) ? read_json(file) : json::object();
    require<config_error>(settings.is_object(), file, ": must be a JSON object; it is ", settings.type_name());
    if (!settings.contains("added_tokens_decoder") && file_exists(map))  // an older folder: transformers reads them there
      if (const json named = read_json(map); named.is_object())
        for (const auto& one : named.items())
          if (!one.value().is_null()) settings[one.key()] = one.value();
    const tokenizer_class& own = class_of(settings);
    const bool other = own.name.empty();  // such as a class of the folder's own: taken to have all but padding
    const auto none = [&](const char* name, bool has_by_itself) { return settings.contains(name) ? settings.at(name).is_null() : !has_by_itself; };
    require<config_error>(!none("eos_token", other || !own.eos.empty()), "--model_name_or_path: must have an end-of-text token; eos_token is ",
                          settings.contains("eos_token") ? "null" : "missing", " in ", file_exists(file) ? file : run_.model.folder);
    const auto add = [&](const char* name, bool has_by_itself, const char* text) {
      if (!none(name, has_by_itself)) return;
      run_.tokenizer.add_tokens.emplace_back(text);
      run_.tokenizer.special_tokens[name] = text;
    };
    add("pad_token", !own.pad.empty(), "[PAD]");
    add("bos_token", other || !own.bos.empty(), "<s>");
    add("unk_token", other || !own.unk.empty(), "<unk>");
  }
  [[nodiscard]] const tokenizer_class& class_of(const json& settings) const {
    const auto text = [](const json& from, const char* key) {
      const auto at = from.find(key);
      return at != from.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    std::string name = text(settings, "tokenizer_class");
    if (name.empty() && config_.is_object()) {
      name = text(config_, "tokenizer_class");
      if (name.empty()) name = class_of_model_type(text(config_, "model_type"));
    }
    return tokenizer_class_of(name);
  }

  void chatglm() {
    flags_.must_be_off({"do_eval"}, "to evaluate what was trained, use --do_predict alone, or `evaluate`");
    check_chatglm();
    if (flags_.is_true("do_predict")) return predict();
    if (!flags_.is_true("do_train")) fail<config_error>("--do_train or --do_predict: one of them must be given");
    require<config_error>(flags_.has("train_file"), "--train_file: must be given, a JSON file of records (ChatGLM-6B's ptuning/main.py)");
    data_description data{.kind = "alpaca", .files = {flags_.text("train_file")}, .when_too_long = "truncate"};
    data.prompt_template = concat(flags_.text("source_prefix"), "{instruction}");
    for (const auto& [flag, field] : {std::pair{"prompt_column", "instruction"}, {"response_column", "output"}}) {
      require<config_error>(flags_.has(flag), "--", flag, ": must be given: a field of the records");
      data.columns[field] = flags_.text(flag);
    }
    data.columns["input"] = "";  // records have no input
    data.skips_empty = true;
    data.learns_prompt_ending = true;
    data.max_prompt_tokens = flags_.whole<std::size_t>("max_source_length", 1024, 2) - 1;
    data.max_answer_tokens = flags_.whole<std::size_t>("max_target_length", 128, 3) - 2;
    run_.seq_length = data.max_prompt_tokens + data.max_answer_tokens + 3 - 1;  // of [gMASK] <sop> <eop>; the last one is no input
    require_positions("--max_source_length and --max_target_length: must together be", run_.seq_length + 1,
                      concat(data.max_prompt_tokens + 1, " and ", data.max_answer_tokens + 2));
    run_.data.push_back(data);
    if (!flags_.is_true("ignore_pad_token_for_loss", true)) flags_.wrong("ignore_pad_token_for_loss", "True");
    flags_.must_be_off({"max_train_samples"}, "shorten the file");
    flags_.without_effect({"validation_file", "test_file", "predict_with_generate", "val_max_target_length", "num_beams", "generation_max_length",
                           "generation_num_beams", "max_eval_samples", "max_predict_samples", "sortish_sampler"},
                          "only --do_eval and --do_predict read it", run_.notes);
    flags_.without_effect({"pad_to_max_length"}, "the loss does not count padding", run_.notes);
    run_.objective.average = "micro_batch";  // the model's own loss is a mean
    run_.model.adapter = flags_.text("ptuning_checkpoint");
    if (const auto length = flags_.whole<std::size_t>("pre_seq_len", 0); length > 0) {
      run_.adapter.kind = "prefix";
      run_.adapter.settings = {{"length", length}, {"counts_in_positions", false}};
      if (const std::size_t bits = quantization_bit(); bits > 0) run_.adapter.settings["weight_bits"] = bits;
      if (flags_.is_true("prefix_projection")) {
        const auto hidden = config_.find("hidden_size");
        require<config_error>(hidden != config_.end() && hidden->is_number_unsigned(), "--prefix_projection: needs hidden_size of ",
                              in_model("config.json"));
        run_.adapter.settings["projection"] = hidden->get<std::size_t>();
      }
      // main.py makes the model fp16, without a loss scale
      run_.precision = "fp16_mixed";
      run_.loss_scale = unscaled();
    } else {
      flags_.must_be_off({"prefix_projection"}, "needs --pre_seq_len");
      flags_.must_be_off({"quantization_bit"}, "needs --pre_seq_len: weights that are trained are not integers");
    }
  }
  /// What training and predicting have in common.
  void check_chatglm() {
    if (!config_.empty()) {
      const auto type = config_.find("model_type");
      require<config_error>(type != config_.end() && *type == "chatglm", "--model_name_or_path: must be a ChatGLM model for ptuning/main.py; ",
                            in_model("config.json"), " has model_type ", type == config_.end() ? std::string("none") : type->dump());
    }
    flags_.must_be_off({"history_column"}, "conversations are not supported here; use `finetune --format conversations`");
    flags_.must_be_off({"resize_position_embeddings", "forced_bos_token", "lang"}, "not supported");
    flags_.must_be_off({"dataset_name", "dataset_config_name"}, "datasets are not downloaded; give --train_file");
    flags_.without_effect({"overwrite_cache", "preprocessing_num_workers"}, "tokens are not cached in files", run_.notes);
    flags_.without_effect({"use_fast_tokenizer", "use_auth_token"}, "nothing is downloaded", run_.notes);
  }
  /// 0: none.
  [[nodiscard]] std::size_t quantization_bit() {
    const std::string bits = flags_.text("quantization_bit", "0");
    if (bits == "0" || bits == "None") return 0;
    if (bits != "4" && bits != "8") flags_.wrong("quantization_bit", "4 or 8");
    return bits == "4" ? 4 : 8;
  }

  /// The call of `generate` that does what --do_predict does.
  void predict() {
    predicts_ = true;
    if (flags_.is_true("do_train")) flags_.wrong("do_predict", "left out with --do_train: predict with a second command, as evaluate.sh does");
    if (!flags_.is_true("predict_with_generate"))
      fail<config_error>("--predict_with_generate: must be given with --do_predict: answers are generated, and compared with those of the file");
    require<config_error>(run_.parallel.ranks == 1, "--nproc_per_node: must be 1 with --do_predict; given ", run_.parallel.ranks);
    if (run_.device != "cpu" && run_.device != "cuda")
      flags_.wrong("device", "cpu or cuda: the programs generate and generate_cuda are compiled for these");
    for (const char* beams : {"num_beams", "generation_num_beams"})
      if (flags_.whole<std::size_t>(beams, 1, 1) != 1) flags_.wrong(beams, "1: answers are sampled, as main.py does, and a beam search here does not sample");
    require<config_error>(flags_.has("test_file"), "--test_file: must be given with --do_predict, a file of records");
    prediction_ = {"--model", run_.model.folder};
    if (run_.device == "cuda") prediction_.insert(prediction_.end(), {"--device", "cuda"});
    const auto pass = [&](const char* name, const std::string& value) { prediction_.insert(prediction_.end(), {name, value}); };
    if (!run_.tokenizer.path.empty()) pass("--tokenizer", run_.tokenizer.path);
    const auto length = flags_.whole<std::size_t>("pre_seq_len", 0);
    const std::string prefix = flags_.text("ptuning_checkpoint");
    if (length > 0) {
      require<config_error>(!prefix.empty(), "--ptuning_checkpoint: must be given with --pre_seq_len and --do_predict: a folder with a prefix");
      const std::string saved = concat(prefix, "/config.json");
      if (const json config = file_exists(saved) ? read_json(saved) : json::object(); config.is_object() && config.contains("pre_seq_len"))
        require<config_error>(config.at("pre_seq_len") == length, "--pre_seq_len: must be that of --ptuning_checkpoint, ",
                              config.at("pre_seq_len").dump(), " in ", saved, "; given ", length);
      pass("--adapter", prefix);
      if (const std::size_t bits = quantization_bit(); bits > 0) pass("--weight-bits", concat(bits));
    } else {
      if (!prefix.empty()) flags_.wrong("ptuning_checkpoint", "left out without --pre_seq_len, the length of its prefix");
      flags_.must_be_off({"quantization_bit"}, "needs --pre_seq_len: integers are supported beside a prefix");
    }
    (void)flags_.is_true("prefix_projection");  // the prefix that it has made is read
    pass("--prompts", flags_.text("test_file"));
    for (const auto& [flag, to] : {std::pair{"prompt_column", "--prompt-field"}, {"response_column", "--answer-field"}}) {
      require<config_error>(flags_.has(flag), "--", flag, ": must be given: a field of the records");
      pass(to, flags_.text(flag));
    }
    if (const std::string before = flags_.text("source_prefix"); !before.empty())
      prediction_.push_back(concat("--prompt-prefix=", before));  // which may begin with a dash
    const auto source = flags_.whole<std::size_t>("max_source_length", 1024, 3), target = flags_.whole<std::size_t>("max_target_length", 128, 3);
    pass("--max-prompt-tokens", concat(source));
    pass("--max-answer-tokens", concat(flags_.whole<std::size_t>("val_max_target_length", target, 3)));
    pass("--max-length", "512");
    if (const auto samples = flags_.whole<std::size_t>("max_predict_samples", 0, 1); samples > 0) pass("--max-samples", concat(samples));
    pass("--batch-size", concat(flags_.whole<std::size_t>("per_device_eval_batch_size", 8, 1)));
    pass("--temperature", "0.95");
    pass("--top-p", "0.7");
    pass("--top-k", "50");  // transformers' default
    pass("--seed", concat(flags_.whole<std::uint64_t>("seed", 42)));
    pass("--predictions", flags_.text("output_dir"));
    flags_.without_effect({"validation_file", "train_file", "max_train_samples", "max_eval_samples"}, "--do_predict reads --test_file", run_.notes);
    flags_.without_effect({"generation_max_length"}, "a prompt and its answer have at most 512 tokens, as main.py says", run_.notes);
    flags_.without_effect({"pad_to_max_length", "ignore_pad_token_for_loss", "sortish_sampler"}, "no loss is computed", run_.notes);
    flags_.without_effect({"fp16_full_eval", "bf16_full_eval", "fp16", "bf16"}, "the precision is that of the program generate", run_.notes);
  }
  [[nodiscard]] static json unscaled() { return {{"initial", 1.0}, {"min", 1.0}, {"window", std::size_t{1} << 50U}, {"hysteresis", 1}}; }

  void batches() {
    const bool old_name = flags_.has("per_gpu_train_batch_size") && flags_.text("per_gpu_train_batch_size") != "None";  // where given, it is used
    (void)flags_.has("per_device_train_batch_size");
    run_.micro_batch_size = flags_.whole<std::size_t>(old_name ? "per_gpu_train_batch_size" : "per_device_train_batch_size", 8, 1);
    run_.gradient_accumulation_steps = flags_.whole<std::size_t>("gradient_accumulation_steps", 1, 1);
    // the last micro-batch of an epoch may be smaller; without accumulation it is a step of its own
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
    // the Trainer adds the model's load-balancing loss once for each micro-batch; its label smoother computes the loss from the logits alone
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
    // torch's GradScaler, which has no smallest scale
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
    s.starts_at_zero = true;
    if (run_.precision == "fp16_mixed") s.settings["counts_updates"] = true;  // a step that the scaler skips does not advance the scheduler
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
    if (kind == "cosine_warmup_with_min_lr") s.starts_at_zero = false;
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
        s.starts_at_zero = true;
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

  void output() {
    output_description& o = run_.output;
    o.folder = flags_.text("output_dir");
    require<config_error>(!o.folder.empty(), "--output_dir: must be given: where the model is saved");
    o.log_style = "hugging_face";
    o.checkpoint_style = "hugging_face";
    const auto strategy = [&](const char* name, const char* other, const std::string& otherwise) {
      return flags_.one_of(flags_.has(name) ? name : other, otherwise, {"no", "steps", "epoch"});
    };
    // a number of steps, or below 1 a fraction of all steps, which is rounded up; read where the strategy is steps
    struct interval {
      std::size_t steps = 0;
      double ratio = 0.0;
    };
    const auto every = [&](const char* name, double otherwise, const std::string& unit, bool may_be_none = false) -> interval {
      const double value = flags_.number(name, otherwise);
      if (unit != "steps") return {};
      if ((value <= 0.0 && !may_be_none) || value > 1e9) flags_.wrong(name, "a positive number of steps, or a fraction of all steps below 1");
      if (value > 1.0 && value != std::floor(value)) flags_.wrong(name, "a whole number of steps, or a fraction of all steps below 1");
      return value >= 1.0 ? interval{.steps = static_cast<std::size_t>(value)} : interval{.ratio = std::max(value, 0.0)};
    };
    constexpr std::size_t never = static_cast<std::size_t>(1) << 40U;
    const auto in_steps = [&](interval of) {  // where the number of all steps is known
      if (of.ratio > 0.0 && run_.max_steps > 0) return interval{.steps = static_cast<std::size_t>(std::ceil(static_cast<double>(run_.max_steps) * of.ratio))};
      return of;
    };
    const std::string logging = strategy("logging_strategy", "logging_strategy", "steps");
    const double log_steps = flags_.number("logging_steps", 500);  // of evaluations, too, whatever the strategy of logging is
    const interval lines = in_steps(every("logging_steps", 500, logging));
    o.log_steps = logging == "no" ? never : std::max<std::size_t>(lines.steps, 1);
    o.log_ratio = lines.ratio;
    o.log_epochs = logging == "epoch";
    o.log_first_step = flags_.is_true("logging_first_step");

    const std::string saving = strategy("save_strategy", "save_strategy", "steps");
    const interval checkpoints = in_steps(every("save_steps", 500, saving, true));
    o.save_steps = checkpoints.steps;
    o.save_ratio = checkpoints.ratio;
    if (saving == "steps" && checkpoints.steps == 0 && checkpoints.ratio == 0.0) o.save_steps = never;  // one at the end alone
    if (saving != "steps" && flags_.has("save_steps")) run_.notes.push_back(concat("--save_steps: is used with --save_strategy steps; it is ", saving));
    o.save_epochs = saving == "epoch";
    o.save_total_limit = flags_.whole<std::size_t>("save_total_limit", 0);
    if (flags_.has("evaluation_strategy") && flags_.has("eval_strategy") && flags_.text("evaluation_strategy") != flags_.text("eval_strategy"))
      flags_.wrong("evaluation_strategy", "left out: it is the older name of --eval_strategy");
    const std::string evaluation = strategy("eval_strategy", "evaluation_strategy", "no");
    const bool from_logging = flags_.number("eval_steps", 0.0) == 0.0;
    const interval evaluations = in_steps(every(from_logging ? "logging_steps" : "eval_steps", log_steps, evaluation));
    o.eval_steps = evaluations.steps;
    o.eval_ratio = evaluations.ratio;
    if (evaluation != "no" && run_.eval_data.empty())
      flags_.wrong(flags_.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy",
                   "no: there is no evaluation data; --eval_data_path names some");
    if (evaluation == "no" && !run_.eval_data.empty()) {
      run_.eval_data.clear();
      run_.notes.emplace_back("--eval_data_path: is used with --eval_strategy steps or epoch");
    }
    if (!run_.eval_data.empty() && run_.objective.settings.contains("label_smoothing"))
      run_.notes.emplace_back("--label_smoothing_factor: is left out of eval_loss, where the Trainer has it");
    if (o.save_total_limit > 0 && saving != "no" && !run_.eval_data.empty() && flags_.text("metric_for_best_model", "None") != "None")
      flags_.wrong("metric_for_best_model", "left out with --save_total_limit: the best checkpoint is not kept longer than others");
    if (evaluation != "steps" && flags_.has("eval_steps")) run_.notes.push_back(concat("--eval_steps: is used with --eval_strategy steps; it is ", evaluation));
    o.eval_epochs = evaluation == "epoch";

    if (flags_.has("resume_from_checkpoint")) {
      const std::string from = flags_.words("resume_from_checkpoint");
      if (from.empty() || from == "True" || from == "true") o.resume = "latest";
      else if (from != "False" && from != "false" && from != "None") o.resume = from;
    }
    constexpr std::array<std::string_view, 13> reporters{"none",   "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive",
                                                         "flyte", "mlflow",   "neptune", "swanlab",    "trackio",  "wandb"};
    for (const std::string& target : split_list(flags_.words("report_to", "none"), ' ')) {
      if (target == "tensorboard" || target == "all") o.tensorboard = flags_.text("logging_dir", concat(o.folder, "/runs"));
      else if (std::find(reporters.begin(), reporters.end(), target) == reporters.end())
        flags_.wrong("report_to", "tensorboard, none, all, or names of other programs with blanks between them, of which nothing is written");
      else if (target != "none") run_.notes.push_back(concat("--report_to ", target, ": only tensorboard is written"));
    }
    if (o.tensorboard.empty()) flags_.without_effect({"logging_dir"}, "is used with --report_to tensorboard", run_.notes);
    else (void)flags_.has("logging_dir");
    flags_.must_be_off({"load_best_model_at_end", "push_to_hub", "eval_on_start", "batch_eval_metrics", "ignore_data_skip", "eval_delay"},
                       "not supported");
    if (flags_.is_true("overwrite_output_dir")) {
      o.overwrite = o.resume.empty();
      if (!o.overwrite) run_.notes.emplace_back("--overwrite_output_dir: --resume_from_checkpoint is used");
    }
  }

  /// FSDP's CPUOffload. Its gathered weights are on the device in either case.
  void offload_of_fsdp() {
    if (run_.device == "cpu") return void(run_.notes.emplace_back("--fsdp offload: the cpu device's memory is host memory"));
    run_.offload = "optimizer";
    run_.notes.emplace_back("--fsdp offload: optimizer state is in pinned memory of the host; weights stay on the device");
  }
  void sharding() {
    const std::string fsdp = flags_.words("fsdp");
    const bool has_fsdp = !fsdp.empty() && fsdp != "False" && fsdp != "None";
    std::string wrapped = flags_.text("fsdp_transformer_layer_cls_to_wrap");
    if (flags_.has("fsdp_config")) fsdp_config(wrapped);
    if (has_fsdp) {
      std::string options = fsdp;
      std::replace(options.begin(), options.end(), ',', ' ');
      std::size_t kinds = 0;
      for (const std::string& word : split_list(options, ' ')) {
        if (word == "full_shard" || word == "hybrid_shard" || word == "True" || word == "true") run_.parallel.zero = 3, ++kinds;
        else if (word == "shard_grad_op" || word == "hybrid_shard_zero2") run_.parallel.zero = 2, ++kinds;
        else if (word == "no_shard") ++kinds;
        else if (word == "offload")
          offload_of_fsdp();
        else if (word != "auto_wrap" && word != "size_based_auto_wrap")
          flags_.wrong("fsdp",
                       "full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard, with offload and auto_wrap if wanted");
        if (word.starts_with("hybrid"))
          run_.notes.push_back(concat("--fsdp ", word, ": all ranks of this process are one host's, within which everything is sharded"));
      }
      if (kinds != 1) flags_.wrong("fsdp", "one of full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 and no_shard");
    }
    if (const std::string known = transformers_layer_class(config_); !wrapped.empty() && !known.empty()) {
      std::replace(wrapped.begin(), wrapped.end(), ',', ' ');
      bool found = false;
      for (const std::string& word : split_list(wrapped, ' ')) found = found || word == known;
      require<config_error>(found, "--fsdp_transformer_layer_cls_to_wrap: must be the layer class of the model in ", run_.model.folder,
                            ", ", known, "; given '", wrapped, "'");
    }
    flags_.without_effect({"fsdp_min_num_params"}, "every block is gathered by itself", run_.notes);

    const std::string file = flags_.text("deepspeed");
    if (file.empty()) return;
    if (has_fsdp) flags_.wrong("deepspeed", "left out with --fsdp");
    if (run_.precision == "fp16_mixed") run_.loss_scale = json::object();
    const bool made_fp16 = run_.adapter.kind == "prefix" && !flags_.is_true("fp16");
    if (made_fp16) run_.precision = "fp32";  // the config alone says what DeepSpeed does
    apply_deepspeed(run_, file.starts_with("{") ? json_of("deepspeed") : python_json(file), file.starts_with("{") ? "--deepspeed" : file,
                    {.data_parallel_ranks = run_.parallel.ranks});
    if (made_fp16 && run_.precision == "fp32") {
      run_.precision = "fp16_mixed";
      run_.loss_scale = unscaled();
    }
  }
  /// As Python's json.load reads a text: of a key that an object has twice, the last value counts.
  [[nodiscard]] json python_json(std::string_view text, const std::string& who) {
    std::vector<std::string> twice;
    json all = parse_python_json<config_error>(text, who, twice);
    for (const std::string& key : twice) run_.notes.push_back(concat(who, ": ", key, ": is given twice; the last one counts"));
    return all;
  }
  [[nodiscard]] json python_json(const std::string& file) { return python_json(mapped_file(file).text(), file); }
  [[nodiscard]] json json_of(const char* name) {
    json value = python_json(flags_.text(name), concat("--", name));
    if (!value.is_object()) flags_.wrong(name, "a JSON object");
    return value;
  }
  void fsdp_config(std::string& wrapped) {
    const std::string given = flags_.text("fsdp_config");
    const json settings = given.starts_with("{") ? json_of("fsdp_config") : read_json(given);
    if (!settings.is_object()) flags_.wrong("fsdp_config", "a JSON object, or a file of one");
    std::string ignored;
    for (const auto& [key, value] : settings.items()) {
      const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
      if (name == "transformer_layer_cls_to_wrap") {
        if (value.is_string()) wrapped = value.get<std::string>();
        else if (value.is_array())
          for (const json& one : value)
            if (one.is_string()) wrapped += concat(wrapped.empty() ? "" : ",", one.get<std::string>());
      } else if (name == "activation_checkpointing") {
        if (!value.is_boolean()) flags_.wrong("fsdp_config", "a config whose activation_checkpointing is true or false");
        if (value.get<bool>()) run_.recompute = "full";
      } else if (name.starts_with("xla")) {
        if (!(value.is_null() || value.empty() || value == false)) flags_.wrong("fsdp_config", concat("a config without ", key));
      } else {
        const std::vector<std::string> known{"min_num_params",
                                             "backward_prefetch",
                                             "forward_prefetch",
                                             "limit_all_gathers",
                                             "use_orig_params",
                                             "sync_module_states",
                                             "cpu_ram_efficient_loading",
                                             "state_dict_type",
                                             "auto_wrap_policy",
                                             "reshard_after_forward",
                                             "version",
                                             "transformer_layer_cls_to_wrap",
                                             "activation_checkpointing"};
        if (std::find(known.begin(), known.end(), name) == known.end()) {
          const std::string near = nearest_name(name, known);
          fail<config_error>("--fsdp_config: ", key, ": there is no such key", near.empty() ? "" : concat("; did you mean '", near, "'?"));
        }
        ignored += concat(ignored.empty() ? "" : ", ", key);
      }
    }
    if (!ignored.empty()) run_.notes.push_back(concat("--fsdp_config: ", ignored, ": when weights are gathered changes no result"));
  }

  /// What changes no result.
  void accepted() {
    flags_.without_effect(
        {"cache_dir", "use_fast", "trust_remote_code", "model_revision", "hub_model_id", "hub_token", "hub_strategy", "hub_private_repo",
         "hub_always_push", "hub_revision", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token"},
        "nothing is downloaded or uploaded, and no code of a model's folder is run", run_.notes);
    if (!predicts_) flags_.without_effect({"per_device_eval_batch_size"}, "an evaluation is the mean over all targets, whatever its batches are", run_.notes);
    flags_.without_effect({"eval_accumulation_steps", "prediction_loss_only", "include_inputs_for_metrics",
                           "include_for_metrics", "eval_do_concat_batches", "eval_use_gather_object", "per_gpu_eval_batch_size"},
                          "an evaluation is the mean over all targets, whatever its batches are", run_.notes);
    flags_.without_effect({"dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor",
                           "dataloader_in_order", "dataloader_multiprocessing_context", "remove_unused_columns", "label_names",
                           "length_column_name", "accelerator_config", "dispatch_batches"},
                          "how batches are prepared changes no result", run_.notes);
    flags_.without_effect({"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "torch_compile", "torch_compile_backend",
                           "torch_compile_mode", "torchdynamo", "jit_mode_eval", "use_ipex", "use_liger_kernel", "liger_kernel_config",
                           "torch_empty_cache_steps", "use_cache", "ray_scope"},
                          "how a step is computed changes no result", run_.notes);
    flags_.without_effect({"ddp_backend", "ddp_timeout", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_broadcast_buffers",
                           "ddp_static_graph", "xpu_backend", "tpu_num_cores", "tpu_metrics_debug", "mp_parameters", "sharded_ddp"},
                          "how ranks exchange messages changes no result", run_.notes);
    flags_.without_effect({"log_level", "log_level_replica", "log_on_each_node", "logging_nan_inf_filter", "disable_tqdm", "run_name",
                           "debug", "skip_memory_metrics", "include_tokens_per_second", "include_num_input_tokens_seen", "past_index",
                           "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"},
                          "what is printed changes no result", run_.notes);
    flags_.without_effect({"save_safetensors", "save_on_each_node", "save_only_model", "enable_jit_checkpoint",
                           "restore_callback_states_from_checkpoint"},
                          "checkpoints are this library's: safetensors, the optimizer's state, and the state of the run", run_.notes);
    flags_.without_effect({"metric_for_best_model", "greater_is_better"}, "no checkpoint is looked for as the best one", run_.notes);
    for (const char* name : {"no_cuda", "use_cpu"})
      if (flags_.is_true(name) && run_.device != "cpu") flags_.wrong(name, concat("False with --device ", run_.device));
    flags_.must_be_off({"parallelism_config", "tp_size"}, "ranks are data-parallel ranks, with --fsdp or --deepspeed if weights are divided");
    flags_.must_be_off({"split_batches"}, "it divides a batch over the ranks; divide --per_device_train_batch_size instead");
    if (const std::string given = flags_.text("accelerator_config"); !given.empty() && given != "None") {
      const json settings = given.starts_with("{") ? json_of("accelerator_config") : read_json(given);
      if (!settings.is_object()) flags_.wrong("accelerator_config", "a JSON object, or a file of one");
      if (settings.contains("split_batches") && settings.at("split_batches") != false)
        flags_.wrong("accelerator_config", "used without split_batches, which divides a batch over the ranks; divide --per_device_train_batch_size instead");
      if (const auto kwargs = settings.find("gradient_accumulation_kwargs"); kwargs != settings.end() && kwargs->is_object() && kwargs->contains("num_steps"))
        flags_.wrong("accelerator_config", "used without num_steps of gradient_accumulation_kwargs; give --gradient_accumulation_steps");
    }
    flags_.must_be_off({"use_mps_device"}, "the device is what --device says: cpu, cuda, npu or musa");
    if (flags_.has("data_path")) {
      if (flags_.has("do_train") && !flags_.is_true("do_train")) flags_.wrong("do_train", "True");
      flags_.must_be_off({"do_eval"}, "--eval_data_path and --eval_strategy say what is evaluated, and when");
      flags_.must_be_off({"do_predict"}, "this program trains");
    }
    if (const long rank = flags_.whole<long>("local_rank", -1, -1); rank > 0)
      flags_.wrong("local_rank",
                   "left out: ranks are threads of one process (--nproc_per_node N before the flags), or processes of mpirun or srun");
  }

  bool predicts_ = false;
  std::vector<std::string> prediction_{};  ///< what `generate` is given
  launched_script launched_;
  program_flags flags_;
  run_description run_{};
  json config_ = json::object();
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
