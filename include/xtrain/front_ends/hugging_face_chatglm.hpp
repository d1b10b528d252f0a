// ChatGLM-6B's ptuning/main.py: training, or a call of `generate` equivalent to --do_predict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class hugging_face_chatglm : hugging_face_part {
 public:
  using hugging_face_part::hugging_face_part;

  void read() {
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
    run_.seq_length = data.max_prompt_tokens + data.max_answer_tokens + 3 - 1;  // of [gMASK] <sop> <eop>; the last token is no input
    require_positions("--max_source_length and --max_target_length: must together be", run_.seq_length + 1,
                      concat(data.max_prompt_tokens + 1, " and ", data.max_answer_tokens + 2));
    run_.data.push_back(data);
    if (!flags_.is_true("ignore_pad_token_for_loss", true)) flags_.wrong("ignore_pad_token_for_loss", "True");
    flags_.must_be_off({"max_train_samples"}, "shorten the file");
    flags_.without_effect({"validation_file", "test_file", "predict_with_generate", "val_max_target_length", "num_beams", "generation_max_length",
                           "generation_num_beams", "max_eval_samples", "max_predict_samples", "sortish_sampler"},
                          "only --do_eval and --do_predict read it", run_.notes);
    flags_.without_effect({"pad_to_max_length"}, "the loss does not count padding", run_.notes);
    run_.objective.average = "micro_batch";  // the model's loss is a mean
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
  /// Whether the command is a call of `generate` instead of a run.
  [[nodiscard]] bool predicts() const { return predicts_; }
  [[nodiscard]] const std::vector<std::string>& prediction() const { return prediction_; }

 private:
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
  [[nodiscard]] std::size_t quantization_bit() {
    const std::string bits = flags_.text("quantization_bit", "0");
    if (bits == "0" || bits == "None") return 0;
    if (bits != "4" && bits != "8") flags_.wrong("quantization_bit", "4 or 8");
    return bits == "4" ? 4 : 8;
  }

  /// Equivalent of --do_predict.
  void predict() {
    predicts_ = true;
    if (flags_.is_true("do_train")) flags_.wrong("do_predict", "left out with --do_train: predict with a second command, as evaluate.sh does");
    if (!flags_.is_true("predict_with_generate"))
      fail<config_error>("--predict_with_generate: must be given with --do_predict: answers are generated, and compared with those of the file");
    require<config_error>(run_.parallel.ranks == 1, "--nproc_per_node: must be 1 with --do_predict; given ", run_.parallel.ranks);
    if (run_.device != "cpu" && run_.device != "cuda" && run_.device != "npu")
      flags_.wrong("device", "cpu, cuda or npu: the programs generate, generate_cuda and generate_npu are compiled for these");
    for (const char* beams : {"num_beams", "generation_num_beams"})
      if (flags_.whole<std::size_t>(beams, 1, 1) != 1) flags_.wrong(beams, "1: answers are sampled, as main.py does, and a beam search here does not sample");
    require<config_error>(flags_.has("test_file"), "--test_file: must be given with --do_predict, a file of records");
    prediction_ = {"--model", run_.model.folder};
    if (run_.device != "cpu") prediction_.insert(prediction_.end(), {"--device", run_.device});
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
    (void)flags_.is_true("prefix_projection");  // determined by the saved prefix
    pass("--prompts", flags_.text("test_file"));
    for (const auto& [flag, to] : {std::pair{"prompt_column", "--prompt-field"}, {"response_column", "--answer-field"}}) {
      require<config_error>(flags_.has(flag), "--", flag, ": must be given: a field of the records");
      pass(to, flags_.text(flag));
    }
    if (const std::string before = flags_.text("source_prefix"); !before.empty())
      prediction_.push_back(concat("--prompt-prefix=", before));  // may begin with a dash
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

  bool predicts_ = false;
  std::vector<std::string> prediction_{};
};

}  // namespace xtrain::detail
