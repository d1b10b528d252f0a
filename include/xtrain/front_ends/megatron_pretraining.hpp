#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/deepspeed.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>
#include <xtrain/front_ends/megatron_folders.hpp>
#include <xtrain/front_ends/megatron_layout.hpp>
#include <xtrain/front_ends/megatron_lora.hpp>
#include <xtrain/front_ends/megatron_model.hpp>
#include <xtrain/front_ends/megatron_optimization.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class megatron_pretraining {
 public:
  megatron_pretraining(megatron_arguments& flags, const megatron_script& script, bool by_deepspeed)
      : flags_(flags), script_(script), deepspeed_{.launcher = by_deepspeed} {}

  [[nodiscard]] run_description read() {
    run_.device = flags_.one_of("device", {"cpu", "cuda", "npu", "musa"}, "cpu");
    run_.seed = flags_.size("seed", 1234);
    if (run_.seed >= std::uint64_t{1} << 32U) flags_.wrong("seed", "below 2^32, as numpy's");
    deepspeed_file();
    megatron_layout layout(flags_, script_, run_, deepspeed_);
    layout.read();
    megatron_folders(flags_, script_, run_).read();
    megatron_model(flags_, script_, run_).read();
    tokenizer();
    megatron_optimization(flags_, script_, run_).read(layout.global_batch());
    megatron_lora(flags_, script_, run_).read();
    data();
    if (deepspeed_.config) apply(layout.data_parallel());
    flags_.ignore({"use-flash-attn", "triangle-attn"}, std::string(megatron_reason::kernels));
    flags_.finish(script_.name);
    for (std::string& note : flags_.notes()) run_.notes.push_back(std::move(note));
    return std::move(run_);
  }

 private:
  void note(const std::string& text) { run_.notes.push_back(text); }

  void deepspeed_file() {
    const bool asked = flags_.has("deepspeed");
    const std::string file = flags_.text("deepspeed-config");
    flags_.require_that(!asked || !file.empty(), "deepspeed", "needs --deepspeed_config, a file");
    if (asked) deepspeed_.config = read_json(deepspeed_.path = file);
    else if (!file.empty()) flags_.ignore({"deepspeed-config"}, "--deepspeed is not given");
    if (!deepspeed_.config) return;
    require<config_error>(deepspeed_.config->is_object(), file, ": must be an object");
    // the program creates the optimizer, as deepspeed.initialize(optimizer=...)
    if (deepspeed_.config->erase("optimizer") > 0) note(concat(file, ": optimizer: the program's own is used: --optimizer, --lr, --weight-decay"));
  }

  void tokenizer() {
    run_tokenizer_description& to = run_.tokenizer;
    const std::string type = flags_.one_of("tokenizer-type",
                                           {"PretrainedFromHF", "HuggingFaceTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer",
                                            "GPTSentencePieceTokenizer", "Llama2Tokenizer", "NullTokenizer"},
                                           "");
    flags_.require_that(flags_.size("vocab-extra-ids", 0) == 0, "vocab-extra-ids", "must be 0");
    for (const char* flag : {"vocab-file", "tokenizer-model", "tokenizer-name-or-path"})
      if (flags_.has(flag)) to.path = flags_.text(flag);
    to.merges = flags_.text("merge-file");
    flags_.require_that(to.merges.empty() || flags_.has("vocab-file"), "merge-file", "needs --vocab-file");
    flags_.require_that(type != "GPT2BPETokenizer" || !to.path.empty(), "tokenizer-type",
                        "GPT2BPETokenizer needs --vocab-file and --merge-file");
    if (flags_.has_any({"tokenizer-name-or-path", "tokenizer-model"})) to.merges.clear();
    if (!to.merges.empty()) {
      constexpr std::string_view name = "vocab.json";
      flags_.require_that(to.path.ends_with(name) && to.merges == to.path.substr(0, to.path.size() - name.size()) + "merges.txt",
                          "merge-file", "must stand beside --vocab-file under its name, as gpt2-merges.txt beside gpt2-vocab.json; given ",
                          to.merges, " and ", to.path);
    }
    if (type == "NullTokenizer")
      flags_.require_that(run_.model.config.contains("vocab_size"), "tokenizer-type", "NullTokenizer needs --vocab-size");
    require<config_error>(!to.path.empty() || !run_.model.folder.empty(),
                          "--tokenizer-name-or-path: must be given, a folder or a file, or --load a model's folder",
                          type == "NullTokenizer" ? "; the tokenizer is saved beside the model" : "");
  }

  void data() {
    const std::vector<std::string> words = flags_.list("data-path");
    require<config_error>(!words.empty(), "--data-path: must be given: a prefix, or weights and prefixes");
    const bool instructions = flags_.has("is-instruction-dataset");
    (void)flags_.one_of("dataloader-type", {"single"}, "");
    if (words.size() == 1) run_.data.push_back({.files = words});
    else {
      flags_.require_that(words.size() % 2 == 0, "data-path", "must be one prefix, or a weight before each; given ", words.size(),
                          " words");
      flags_.require_that(!instructions, "data-path", "must be one prefix with --is-instruction-dataset");
      for (std::size_t i = 0; i < words.size(); i += 2) {
        double weight = 0.0;
        const auto [end, problem] = std::from_chars(words[i].data(), words[i].data() + words[i].size(), weight);
        flags_.require_that(problem == std::errc{} && end == words[i].data() + words[i].size() && weight > 0.0, "data-path",
                            "must have a positive weight before each prefix; given ", words[i], " before ", words[i + 1]);
        run_.data.push_back({.files = {words[i + 1]}, .weight = weight});
      }
    }
    for (data_description& one : run_.data) one.kind = instructions ? "indexed_instructions" : "indexed";

    std::string split = flags_.text("split", "969,30,1");
    split.erase(std::remove(split.begin(), split.end(), ' '), split.end());
    run_.split = split;
    const std::size_t first = split.find_first_of(",/");
    double held_out = 0.0;
    if (first != std::string::npos) {
      const auto [end, problem] = std::from_chars(split.data() + first + 1, split.data() + split.size(), held_out);
      if (problem != std::errc{} || (end != split.data() + split.size() && *end != ',' && *end != '/'))
        flags_.wrong("split", "numbers with commas between them");
    }
    const std::size_t iters = flags_.size("eval-iters", 100);
    run_.output.eval_steps = flags_.positive("eval-interval", 1000);
    if (held_out > 0.0) run_.eval_iters = iters;
    else if (flags_.has("eval-iters") && iters > 0) note(concat("--eval-iters: --split ", split, " has no validation part"));
    if (run_.eval_iters == 0) run_.output.eval_steps = 0;
    if (!instructions) return;
    data_description held = run_.data.front();
    run_.data.front().split = "train of " + split;
    held.split = "validation of " + split;
    if (run_.eval_iters == 0) return;
    run_.eval_data.push_back(held);
    note(concat("--eval-iters ", run_.eval_iters, ": an evaluation is of the whole validation part of the instructions"));
    run_.eval_iters = 0;
  }

  void apply(std::size_t data_parallel) {
    const deepspeed_context context{.data_parallel_ranks = data_parallel,
                                    .fills_auto = false,
                                    .must_agree = false,
                                    .micro_batch_size = "--micro-batch-size",
                                    .gradient_accumulation_steps = "--global-batch-size / --micro-batch-size / data-parallel ranks",
                                    .learning_rate = "--lr",
                                    .betas = "--adam-beta1 and --adam-beta2",
                                    .epsilon = "--adam-eps",
                                    .weight_decay = "--weight-decay",
                                    .max_grad_norm = "--clip-grad",
                                    .warmup_steps = "--lr-warmup-iters",
                                    .fp16 = "--fp16",
                                    .bf16 = "--bf16",
                                    .max_steps = "--train-iters"};
    const std::size_t zero = run_.parallel.zero;
    apply_deepspeed(run_, *deepspeed_.config, deepspeed_.path, context);
    flags_.require_that(zero == 0 || run_.parallel.zero == zero, "use-distributed-optimizer", "must not be given with ZeRO stage ",
                        run_.parallel.zero, " of ", deepspeed_.path);
    const std::size_t stage = flags_.size("zero-stage", run_.parallel.zero);
    flags_.require_that(stage == run_.parallel.zero, "zero-stage", "must be zero_optimization.stage of ", deepspeed_.path, ", ",
                        run_.parallel.zero, "; given ", stage);
    flags_.ignore({"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis", "loss-scale"},
                  "with --deepspeed the config's fp16 says it");
  }

  megatron_arguments& flags_;
  const megatron_script& script_;
  megatron_deepspeed deepspeed_;
  run_description run_{};
};

}  // namespace xtrain::detail
