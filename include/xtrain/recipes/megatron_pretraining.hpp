// Pretraining scripts of Megatron-LM and AscendSpeed: their flags as a run description.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/parallel/schedule/variable_micro_batch.hpp>
#include <xtrain/recipes/deepspeed.hpp>
#include <xtrain/recipes/megatron_arguments.hpp>
#include <xtrain/recipes/megatron_flags.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// The newest checkpoint of a run in a folder; empty if it has none.
[[nodiscard]] inline std::string newest_checkpoint(const std::string& folder) {
  std::string newest;
  std::size_t of = 0;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{}))
    for (const std::string_view prefix : {"checkpoint-", "iter_"}) {
      if (!name.starts_with(prefix)) continue;
      std::size_t step = 0;
      const auto [end, problem] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
      if (problem != std::errc{} || end != name.data() + name.size() || (!newest.empty() && step <= of)) continue;
      of = step;
      newest = folder + "/" + name;
    }
  return newest;
}
/// Translates a pretraining script's flags, part by part.
class megatron_pretraining {
 public:
  megatron_pretraining(megatron_arguments& flags, const megatron_script& script, bool by_deepspeed)
      : flags_(flags), script_(script), by_deepspeed_(by_deepspeed) {}

  [[nodiscard]] run_description read() {
    run_.device = flags_.one_of("device", {"cpu", "cuda", "npu", "musa"}, "cpu");
    run_.seed = flags_.size("seed", 1234);
    deepspeed_file();
    mesh();
    batches();
    pipeline();
    folders();
    model();
    tokenizer();
    precision();
    optimizer();
    schedule();
    recompute();
    adapter();
    data();
    if (deepspeed_) apply();
    flags_.ignore({"use-flash-attn", "triangle-attn"}, std::string(megatron_reason::kernels));
    flags_.finish(script_.name);
    for (std::string& note : flags_.notes()) run_.notes.push_back(std::move(note));
    return std::move(run_);
  }

 private:
  void note(const std::string& text) { run_.notes.push_back(text); }
  [[nodiscard]] bool is_gpt() const { return script_.family == "gpt"; }

  void deepspeed_file() {
    const bool asked = flags_.has("deepspeed");
    const std::string file = flags_.text("deepspeed-config");
    flags_.require_that(!asked || !file.empty(), "deepspeed", "needs --deepspeed_config, a file");
    if (asked) deepspeed_ = read_json(deepspeed_path_ = file);
    else if (!file.empty()) flags_.ignore({"deepspeed-config"}, "--deepspeed is not given");
    if (!deepspeed_) return;
    require<config_error>(deepspeed_->is_object(), file, ": must be an object");
    // the program makes the optimizer, as deepspeed.initialize(optimizer=...)
    if (deepspeed_->erase("optimizer") > 0) note(concat(file, ": optimizer: the program's own is used: --optimizer, --lr, --weight-decay"));
  }

  void mesh() {
    parallel_description& p = run_.parallel;
    p.tensor = flags_.positive("tensor-model-parallel-size", 1);
    p.pipeline = flags_.positive("pipeline-model-parallel-size", 1);
    p.context = flags_.positive("context-parallel-size", 1);
    p.expert = flags_.positive("expert-model-parallel-size", 1);
    flags_.require_that(flags_.size("expert-tensor-parallel-size", p.tensor) == p.tensor, "expert-tensor-parallel-size",
                        "must be --tensor-model-parallel-size, ", p.tensor);
    const std::string how = flags_.one_of("cp-comm-type", {"p2p", "a2a"}, "p2p");
    p.ring = p.context > 1 && how == "p2p";
    p.sequence_parallel = flags_.has("sequence-parallel");
    flags_.require_that(!p.sequence_parallel || p.tensor > 1, "sequence-parallel", "needs --tensor-model-parallel-size above 1; given ",
                        p.tensor);
    flags_.require_that(!flags_.has("no-pipeline-parallel") || p.pipeline == 1, "no-pipeline-parallel",
                        "needs --pipeline-model-parallel-size 1; given ", p.pipeline);
    const std::size_t model_ranks = p.tensor * p.pipeline * p.context;
    p.ranks = ranks(model_ranks);
    require<config_error>(
        p.ranks % model_ranks == 0, "--nproc_per_node: must be divisible by --tensor-model-parallel-size x --pipeline-model-parallel-size",
        p.context > 1 ? " x --context-parallel-size" : "", " = ", model_ranks, "; given ", p.ranks, p.ranks == 1 ? " rank" : " ranks");
    data_parallel_ = p.ranks / model_ranks;
    if (flags_.has("use-distributed-optimizer")) p.zero = 1;
    const std::optional<std::size_t> stage = flags_.size("zero-stage");
    if (stage && !deepspeed_) flags_.ignore({"zero-stage"}, "without --deepspeed it is not read; ZeRO-1 is --use-distributed-optimizer");
  }
  [[nodiscard]] std::size_t ranks(std::size_t model_ranks) {
    const std::size_t hosts = std::max(flags_.positive("nnodes", 1), flags_.positive("num-nodes", 1));
    const bool given = flags_.has_any({"nproc-per-node", "num-gpus"});
    const launched_process process = launched();
    if (process.mpi && process.size > 1) {
      require<config_error>(!given || process.size == hosts * on_host(), "--nproc_per_node: ", process.launcher,
                            " says how many ranks there are, ", process.size, "; leave it out");
      return process.size;
    }
    require<config_error>(hosts == 1, "--nnodes: must be 1: the ranks are threads of this process; several hosts are started by mpirun -n ",
                          hosts * std::max<std::size_t>(1, on_host()), " or srun, with a trainer built with MPI; given ", hosts);
    if (given) return on_host();
    if (by_deepspeed_) {
      // deepspeed without --num_gpus: as many as there are; the config's batch size says how many were meant
      const auto of = [&](const char* key) {
        return deepspeed_ && deepspeed_->contains(key) && (*deepspeed_)[key].is_number_unsigned() ? (*deepspeed_)[key].get<std::size_t>()
                                                                                                  : 0;
      };
      const std::size_t one_step = of("train_micro_batch_size_per_gpu") * of("gradient_accumulation_steps"), all = of("train_batch_size");
      if (one_step > 0 && all % one_step == 0 && all > 0) {
        note(concat("deepspeed without --num_gpus: ", all / one_step * model_ranks, " ranks, which follows from train_batch_size in ",
                    deepspeed_path_));
        return all / one_step * model_ranks;
      }
      fail<config_error>("deepspeed: --num_gpus must be given: the number of ranks, which are threads of this process");
    }
    return 1;
  }
  [[nodiscard]] std::size_t on_host() {
    return flags_.has("num-gpus") ? flags_.positive("num-gpus", 1) : flags_.positive("nproc-per-node", 1);
  }

  void batches() {
    require<config_error>(flags_.has("micro-batch-size"), "--micro-batch-size: must be given");
    run_.micro_batch_size = flags_.positive("micro-batch-size", 1);
    const std::size_t one = run_.micro_batch_size * data_parallel_;
    global_batch_ = flags_.positive("global-batch-size", one);
    flags_.require_that(global_batch_ % one == 0, "global-batch-size",
                        "must be divisible by --micro-batch-size x data-parallel ranks = ", run_.micro_batch_size, " x ", data_parallel_,
                        " = ", one, "; given ", global_batch_);
    run_.gradient_accumulation_steps = global_batch_ / one;
    run_.objective.average = flags_.has("calculate-per-token-loss") ? "step" : "micro_batch";
    run_.seq_length = flags_.positive("seq-length", 0);
    require<config_error>(run_.seq_length > 0, "--seq-length: must be given");
    const std::size_t longest = flags_.positive("max-position-embeddings", run_.seq_length);
    flags_.require_that(longest >= run_.seq_length, "max-position-embeddings", "must be at least --seq-length, ", run_.seq_length,
                        "; given ", longest);

    const std::optional<std::size_t> iters = flags_.size("train-iters"), samples = flags_.size("train-samples");
    require<config_error>(iters || samples, "--train-iters: must be given, or --train-samples");
    flags_.require_that(!(iters && samples), "train-samples", "must not be given with --train-iters");
    const global_batch_sizes sizes = rampup(samples);
    run_.max_steps = iters ? *iters : sizes.whole_steps(*samples);
    if (samples) run_.samples = *samples;
    flags_.require_that(run_.max_steps > 0, samples ? "train-samples" : "train-iters", "must be at least ",
                        samples ? concat("the global batch size, ", global_batch_) : "1");
  }

  /// --rampup-batch-size START INCREMENT SAMPLES
  [[nodiscard]] global_batch_sizes rampup(const std::optional<std::size_t>& train_samples) {
    const std::size_t one = run_.micro_batch_size * data_parallel_;
    if (!flags_.has("rampup-batch-size")) return {global_batch_, {}, one};
    const char* const flag = "rampup-batch-size";
    flags_.require_that(train_samples.has_value(), flag, "needs --train-samples, not --train-iters");
    const std::vector<std::size_t> given = flags_.sizes(flag);
    flags_.require_that(given.size() == 3, flag, "must be three numbers: start, increment, samples; given ", given.size());
    flags_.require_that(given[0] > 0, flag, "must start with at least 1; given 0");
    flags_.require_that(given[2] < *train_samples, flag, "must end before --train-samples, ", *train_samples, "; given ", given[2]);
    run_.rampup_batch_size = given;
    try {
      return {global_batch_, {given[0], given[1], given[2]}, one};
    } catch (const config_error& problem) {
      fail<config_error>(flags_.typed(flag), std::string_view(problem.what()).substr(std::string_view("rampup_batch_size").size()));
    }
  }

  void pipeline() {
    parallel_description& p = run_.parallel;
    const std::size_t layers = flags_.positive("num-layers", 0);
    for (const char* flag : {"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"}) {
      if (!flags_.has(flag)) continue;
      const std::size_t given = flags_.positive(flag, 1);
      flags_.require_that(p.pipeline > 1, flag, "needs --pipeline-model-parallel-size above 1; given ", p.pipeline);
      require<config_error>(layers > 0, "--num-layers: must be given with ", flags_.typed(flag));
      flags_.require_that(layers % (p.pipeline * given) == 0, flag,
                          "times --pipeline-model-parallel-size must divide --num-layers: ", given, " x ", p.pipeline, " does not divide ",
                          layers);
      const bool by_layers = flag == std::string_view("num-layers-per-virtual-pipeline-stage");
      p.virtual_stages = by_layers ? layers / p.pipeline / given : given;
      if (p.virtual_stages > 1) p.schedule = "interleaved";
    }
    if (flags_.has("use-manual-layer-allocation")) {
      flags_.require_that(flags_.has("manual-layers"), "use-manual-layer-allocation", "needs --manual-layers");
      p.stage_layers = whole_numbers(flags_, "manual-layers");
      flags_.require_that(p.stage_layers.size() == p.pipeline, "manual-layers", "must be one number for each pipeline stage, ", p.pipeline,
                          "; given ", p.stage_layers.size());
      std::size_t sum = 0;
      for (const std::size_t one : p.stage_layers) sum += one;
      flags_.require_that(layers == 0 || sum == layers, "manual-layers", "must be ", layers, " layers together, --num-layers; given ", sum);
      flags_.require_that(p.virtual_stages == 1, "use-manual-layer-allocation", "must not be given with virtual pipeline stages");
    } else {
      flags_.ignore({"manual-layers"}, "--use-manual-layer-allocation is not given");
      // DeepSpeed's stages need not be equal; nor are they here
      require<config_error>(deepspeed_ || layers % p.pipeline == 0, "--num-layers: must be divisible by --pipeline-model-parallel-size ",
                            p.pipeline, ", or --manual-layers given; given ", layers);
    }
    const char* const fold = flags_.has("foldx-mode") ? "foldx-mode" : "fold-mode";
    if (flags_.has(fold)) {
      const std::string mode = flags_.one_of(fold, {"aiao", "fifo"});
      flags_.require_that(p.virtual_stages > 1, fold, mode, " needs virtual pipeline stages: --num-layers-per-virtual-pipeline-stage");
      p.schedule = mode == "aiao" ? "aiao" : "interleaved";
      if (mode == "fifo") note(flags_.typed(fold) + " fifo: is the interleaved schedule");
    }
    const std::size_t steps = run_.gradient_accumulation_steps;
    require<config_error>(p.virtual_stages == 1 || steps % p.pipeline == 0,
                          "--global-batch-size: the micro-batches of a step must be divisible by --pipeline-model-parallel-size ",
                          p.pipeline, " with virtual pipeline stages; there are ", steps);
    if (!run_.rampup_batch_size.empty()) {
      const std::size_t one = run_.micro_batch_size * data_parallel_;
      for (const std::size_t size : {run_.rampup_batch_size[0], run_.rampup_batch_size[1]})
        flags_.require_that(p.virtual_stages == 1 || size / one % p.pipeline == 0, "rampup-batch-size",
                            "start and increment must be divisible by --micro-batch-size x data-parallel ranks x --pipeline-model-parallel-size = ",
                            one * p.pipeline, " with virtual pipeline stages; given ", size);
      flags_.require_that(!flags_.has("optimized-pipeline"), "rampup-batch-size",
                          "must not be given with --optimized-pipeline, whose micro-batches are those of a step");
    }
    if (!flags_.has("optimized-pipeline")) {
      flags_.ignore({"manual-mbs"}, "--optimized-pipeline is not given");
      return;
    }
    flags_.require_that(p.pipeline > 1, "optimized-pipeline", "needs --pipeline-model-parallel-size above 1; given ", p.pipeline);
    flags_.require_that(p.virtual_stages == 1, "optimized-pipeline", "must not be given with virtual pipeline stages");
    flags_.require_that(flags_.has("manual-mbs"), "optimized-pipeline",
                        "needs --manual-mbs: sizes of the micro-batches, example-config-1 or example-config-2");
    const std::string given = flags_.text("manual-mbs");
    for (const auto& [name, stages] : {std::pair{"example-config-1", std::size_t{4}}, {"example-config-2", std::size_t{8}}})
      if (given == name) {
        flags_.require_that(p.pipeline == stages, "manual-mbs", name, " is for --pipeline-model-parallel-size ", stages, "; given ",
                            p.pipeline);
        p.micro_batch_sizes = manual_micro_batches(stages);
      }
    if (p.micro_batch_sizes.empty()) p.micro_batch_sizes = whole_numbers(flags_, "manual-mbs");
    std::size_t sum = 0;
    for (const std::size_t one : p.micro_batch_sizes) sum += one;
    flags_.require_that(p.micro_batch_sizes.size() == steps && sum * data_parallel_ == global_batch_, "manual-mbs",
                        "must be --global-batch-size ", global_batch_, " / data-parallel ranks ", data_parallel_, " / --micro-batch-size ",
                        run_.micro_batch_size, " = ", steps, " numbers with the sum ", global_batch_ / data_parallel_, "; given ",
                        p.micro_batch_sizes.size(), " with the sum ", sum);
    run_.objective.average = "step";  // means of micro-batches of different sizes would weigh their tokens differently
  }

  void folders() {
    output_description& out = run_.output;
    out.folder = flags_.text("save");
    out.save_steps = flags_.size("save-interval", 0);
    if (out.folder.empty()) {
      out.folder = std::string(script_.name) + "_output";
      out.save_steps = 0;
      note(concat("--save is not given: the trained model is written to ", out.folder, "; there are no checkpoints"));
    }
    out.log_steps = flags_.positive("log-interval", 100);
    out.log_style = out.checkpoint_style = "megatron";
    out.tensorboard = flags_.text("tensorboard-dir");
    const std::string load = flags_.text("load");
    const bool weights_only = flags_.has_any({"finetune", "no-load-optim"}), has_model = file_exists(load + "/config.json");
    const std::string newest = load.empty() ? "" : newest_checkpoint(load);
    if (load.empty()) {
      // random weights
    } else if (is_same_folder(load, out.folder)) {
      flags_.require_that(!has_model || !newest.empty(), "save",
                          "must not be the folder of --load, whose model would be overwritten: ", out.folder);
      flags_.require_that(!weights_only || newest.empty(), flags_.has("finetune") ? "finetune" : "no-load-optim",
                          "needs a model's folder (config.json) as --load, not that of --save; ", load,
                          " has checkpoints of a run, which is resumed with all that it has");
      out.resume = "latest";
    } else if (file_exists(load + "/trainer_state.json") && !weights_only) {
      out.resume = load;  // a checkpoint itself
    } else if (has_model) {
      flags_.require_that(newest.empty() || weights_only, "load", load,
                          " holds a model and checkpoints of its run; give --finetune for the model, or the folder of a checkpoint, ",
                          newest);
      run_.model.folder = load;
    } else {
      flags_.require_that(
          !newest.empty(), "load",
          "must be a model's folder (config.json, as convert_weights_from_huggingface writes it), hold checkpoints, or be --save; ", load,
          is_directory(load) ? " has neither" : " does not exist");
      flags_.require_that(!weights_only, "load", "must be a model's folder (config.json) with --finetune or --no-load-optim; ", load,
                          " has checkpoints of a run");
      out.resume = newest;
    }
    // what the flags do not say (epsilon, a tied head, a vocabulary that is not padded) is as in the run that goes on
    const std::string checkpoint = out.resume == "latest" ? newest : out.resume;
    if (!checkpoint.empty() && file_exists(checkpoint + "/config.json")) run_.model.folder = checkpoint;
    if (flags_.has("exit-on-missing-checkpoint"))
      flags_.require_that(load.empty() || !newest.empty() || out.resume != "latest", "exit-on-missing-checkpoint", "there is no checkpoint in --load, ", load);
    flags_.ignore({"finetune", "no-load-optim", "no-load-rng", "no-load-lr-state"},
                  "--load of a model's folder reads weights alone; a resumed run reads all");
    if (out.resume.empty())
      flags_.ignore({"use-checkpoint-lr-scheduler", "use-checkpoint-opt-param-scheduler"}, "no checkpoint is resumed");
    else
      for (const char* flag : {"use-checkpoint-lr-scheduler", "use-checkpoint-opt-param-scheduler"})
        flags_.require_that(!flags_.has(flag), flag, "is not supported: settings of a resumed run are those of the command line");
    if (run_.model.folder.empty())
      flags_.require_that(!flags_.has("use-checkpoint-args"), "use-checkpoint-args", "needs a model's folder as --load");
    else flags_.ignore({"use-checkpoint-args"}, "sizes that are not given are always those of the model's folder");
  }

  // ---- the model ----

  struct model_flags {
    std::string positions{}, norm{};
    bool gated = false, biases = true, qkv_bias = false, head_norm = false, tied = true;
    std::size_t groups = 0, experts = 0;
  };

  void model() {
    model_flags m;
    m.positions = flags_.one_of("position-embedding-type", {"learned", "learned_absolute", "absolute", "rope", "rotary", "alibi"}, "");
    if (m.positions == "learned_absolute" || m.positions == "absolute") m.positions = "learned";
    if (m.positions == "rotary") m.positions = "rope";
    if (flags_.has("use-rotary-position-embeddings")) m.positions = "rope";
    m.norm = flags_.one_of("normalization", {"LayerNorm", "RMSNorm"}, "");
    flags_.require_that(!(flags_.has("untie-embeddings-and-output-weights") && flags_.has("no-untie-embeddings-and-output-weights")),
                        "untie-embeddings-and-output-weights", "must not be given with --no-untie-embeddings-and-output-weights");
    m.experts = experts();
    if (flags_.has("group-query-attention")) m.groups = flags_.positive("num-query-groups", 1);
    else flags_.require_that(flags_.size("num-query-groups", 1) == 1, "num-query-groups", "needs --group-query-attention");
    flags_.require_that(flags_.number("rotary-percent", 1.0) == 1.0, "rotary-percent", "must be 1");
    m.qkv_bias = flags_.has("add-qkv-bias");
    m.head_norm = flags_.has("qk-layernorm");
    flags_.require_that(!(flags_.has("disable-bias-linear") && flags_.has("add-bias-linear")), "add-bias-linear",
                        "must not be given with --disable-bias-linear");

    std::string family(script_.family);
    if (family == "gpt") family = gpt_family(m);
    else if (family == "bloom") bloom(m);
    else llama_like(m);
    run_.model.family = family;
    sizes(family, m);
    dropouts(family);
  }
  /// The number of experts; 0: none.
  [[nodiscard]] std::size_t experts() {
    const std::vector<std::string> all = flags_.list("num-experts");
    if (all.size() > 1) flags_.wrong("num-experts", "one number: every layer has as many");
    const std::size_t number = flags_.positive("num-experts", 1);
    return number > 1 ? number : 0;
  }

  [[nodiscard]] std::string gpt_family(model_flags& m) {
    if (m.positions.empty()) m.positions = "learned";
    if (m.norm.empty()) m.norm = "LayerNorm";
    m.gated = flags_.has_any({"swiglu", "add-gate"});
    (void)flags_.has_any({"no-add-gate", "add-bias-linear"});
    m.biases = !flags_.has("disable-bias-linear");
    m.tied = !flags_.has("untie-embeddings-and-output-weights");
    (void)flags_.has("no-untie-embeddings-and-output-weights");
    const bool embedding_norm = flags_.has("embed-layernorm");
    const bool plain = m.norm == "LayerNorm" && !m.gated && m.biases && m.groups == 0 && m.experts == 0 && !m.head_norm;
    if (plain && m.positions == "learned" && !embedding_norm) return tanh_gelu(), "gpt2";
    if (plain && m.positions == "alibi" && embedding_norm) return tanh_gelu(), "bloom";
    if (m.positions == "rope" && m.norm == "RMSNorm" && m.gated && !embedding_norm) {
      (void)flags_.has("no-bias-gelu-fusion");
      if (m.experts > 0 && !m.biases && !m.qkv_bias && !m.head_norm) return "mixtral";
      if (m.experts == 0 && m.head_norm && !m.biases && !m.qkv_bias) return "qwen3";
      if (m.experts == 0 && m.qkv_bias && !m.biases && !m.head_norm) return "qwen2";
      if (m.experts == 0 && !m.qkv_bias && !m.head_norm) return "llama";
    }
    fail<config_error>(
        "pretrain_gpt: must be a model that the library has: GPT-2 (learned positions, LayerNorm, no --swiglu), BLOOM (alibi, --embed-layernorm), or with "
        "--position-embedding-type rope --normalization RMSNorm --swiglu: LLaMA; --disable-bias-linear --add-qkv-bias: Qwen2; --disable-bias-linear "
        "--qk-layernorm: Qwen3; --disable-bias-linear --num-experts: Mixtral; given are ",
        m.positions, " positions, ", m.norm, m.gated ? ", --swiglu" : "", m.biases ? "" : ", --disable-bias-linear",
        m.qkv_bias ? ", --add-qkv-bias" : "", m.head_norm ? ", --qk-layernorm" : "", embedding_norm ? ", --embed-layernorm" : "",
        m.experts > 0 ? ", --num-experts" : "", m.groups > 0 ? ", --group-query-attention" : "");
  }
  void tanh_gelu() {
    const bool exact = flags_.has("openai-gelu");
    flags_.require_that(!flags_.has("no-bias-gelu-fusion") || exact, "no-bias-gelu-fusion",
                        "computes GELU by erf, which this model does not have; leave it out, or give --openai-gelu");
  }
  void bloom(model_flags& m) {
    if (m.positions.empty()) m.positions = "alibi";
    flags_.require_that(m.positions == "alibi", "position-embedding-type", "must be alibi for BLOOM");
    flags_.require_that(m.norm != "RMSNorm", "normalization", "must be LayerNorm for BLOOM");
    for (const char* flag : {"swiglu", "add-gate", "disable-bias-linear", "untie-embeddings-and-output-weights", "group-query-attention",
                             "num-experts", "qk-layernorm"})
      flags_.require_that(!flags_.has(flag), flag, "must not be given for BLOOM");
    (void)flags_.has_any({"embed-layernorm", "no-add-gate", "add-bias-linear", "no-untie-embeddings-and-output-weights"});
    tanh_gelu();
  }
  /// LLaMA and families that differ from it in biases or positions.
  void llama_like(model_flags& m) {
    const std::string who = std::string(script_.name);
    const bool may_be_alibi = script_.family == "baichuan";
    if (m.positions.empty()) m.positions = "rope";
    flags_.require_that(m.positions == "rope" || (may_be_alibi && m.positions == "alibi"), "position-embedding-type", "must be rope",
                        may_be_alibi ? " or alibi" : "", " for ", who, "; given ", m.positions);
    flags_.require_that(m.norm != "LayerNorm", "normalization", "must be RMSNorm for ", who);
    for (const char* flag : {"no-add-gate", "add-bias-linear", "embed-layernorm", "num-experts", "qk-layernorm", "add-qkv-bias"})
      flags_.require_that(!flags_.has(flag), flag, "must not be given for ", who);
    flags_.require_that(m.groups == 0 || !may_be_alibi, "group-query-attention", "must not be given for ", who);
    flags_.ignore({"no-bias-gelu-fusion", "openai-gelu"}, "the activation is SwiGLU");
    (void)flags_.has_any({"swiglu", "add-gate", "disable-bias-linear", "untie-embeddings-and-output-weights"});
    m.gated = true;
    m.biases = false;
    m.tied = flags_.has("no-untie-embeddings-and-output-weights");
  }

  void sizes(const std::string& family, const model_flags& m) {
    json& config = run_.model.config;
    const bool has_folder = !run_.model.folder.empty();
    const auto take = [&](const char* flag, std::initializer_list<const char*> keys) {
      const std::optional<std::size_t> given = flags_.size(flag);
      if (given && *given == 0) flags_.wrong(flag, "positive");
      require<config_error>(given || has_folder, "--", flag, ": must be given");
      if (!given) return std::size_t{0};
      for (const char* key : keys) {
        config[key] = *given;
        if (!has_folder) break;  // the other names are for the folder's config.json
      }
      return *given;
    };
    const bool is_gpt2 = family == "gpt2", is_bloom = family == "bloom";
    const std::size_t layers =
        is_gpt2 || is_bloom ? take("num-layers", {"n_layer", "num_hidden_layers"}) : take("num-layers", {"num_hidden_layers"});
    const std::size_t hidden = is_gpt2    ? take("hidden-size", {"n_embd", "hidden_size"})
                               : is_bloom ? take("hidden-size", {"hidden_size", "n_embed"})
                                          : take("hidden-size", {"hidden_size"});
    const std::size_t heads = is_gpt2 || is_bloom ? take("num-attention-heads", {"n_head", "num_attention_heads"})
                                                  : take("num-attention-heads", {"num_attention_heads"});
    (void)layers;
    const std::size_t channels = flags_.positive("kv-channels", 0);
    require<config_error>(channels > 0 || heads == 0 || hidden % heads == 0, "--hidden-size: must be divisible by --num-attention-heads ",
                          heads, "; given ", hidden);
    if (channels > 0 && channels * heads != hidden) {
      flags_.require_that(family == "llama" || family.starts_with("qwen"), "kv-channels",
                          "must be --hidden-size / --num-attention-heads for ", family, "; given ", channels);
      config["head_dim"] = channels;
    } else if (family == "qwen3" && !has_folder) config["head_dim"] = hidden / heads;
    flags_.require_that(heads == 0 || heads % run_.parallel.tensor == 0, "num-attention-heads",
                        "must be divisible by --tensor-model-parallel-size ", run_.parallel.tensor, "; given ", heads);

    const char* const experts_flag = m.experts > 0 && flags_.has("moe-ffn-hidden-size") ? "moe-ffn-hidden-size" : "ffn-hidden-size";
    const std::size_t wide = flags_.positive(experts_flag, 0);
    (void)flags_.has_any({"ffn-hidden-size"});
    if (is_bloom) {
      flags_.require_that(wide == 0 || wide == 4 * hidden, "ffn-hidden-size", "must be 4 x --hidden-size for BLOOM; given ", wide);
    } else if (wide > 0 || !has_folder) {
      config[is_gpt2 ? "n_inner" : "intermediate_size"] = wide > 0 ? wide : 4 * hidden;
    }
    if (!is_gpt2 && !is_bloom && family != "baichuan") {
      if (m.groups > 0) {
        require<config_error>(heads == 0 || heads % m.groups == 0, "--num-query-groups: must divide --num-attention-heads ", heads,
                              "; given ", m.groups);
        config["num_key_value_heads"] = m.groups;
      } else if (heads > 0) config["num_key_value_heads"] = heads;
    }
    vocabulary();
    if (m.experts > 0) mixture(m.experts);
    else
      flags_.ignore({"moe-router-topk", "moe-ffn-hidden-size", "moe-aux-loss-coeff", "moe-router-load-balancing-type"},
                    "--num-experts is not given");

    // what config.json calls the values below
    json& rest = has_folder ? run_.model.override_config : config;
    const auto set = [&](const char* key, bool is_given, const json& value) {
      if (is_given || !has_folder) rest[key] = value;
    };
    const char* const epsilon = flags_.has("norm-epsilon") ? "norm-epsilon" : "layernorm-epsilon";
    (void)flags_.has("layernorm-epsilon");
    set(is_gpt2 || is_bloom ? "layer_norm_epsilon" : "rms_norm_eps", flags_.has(epsilon), flags_.number(epsilon, 1e-5));
    if (m.positions == "rope") set("rope_theta", flags_.has("rotary-base"), flags_.number("rotary-base", 10000.0));
    else flags_.require_that(!flags_.has("rotary-base"), "rotary-base", "needs --position-embedding-type rope");
    rope_scaling(m, rest);
    if (has_folder) {
      if (family == "llama" && m.biases) config["attention_bias"] = config["mlp_bias"] = true;
      flags_.ignore({"init-method-std"}, "weights are those of --load");
      flags_.ignore({"max-position-embeddings"}, "how long sequences may be is said by the config.json of --load");
      if (flags_.has_any({"untie-embeddings-and-output-weights", "no-untie-embeddings-and-output-weights"})) config["tie_word_embeddings"] = m.tied;
      return;
    }
    config["initializer_range"] = flags_.number("init-method-std", 0.02);
    config["tie_word_embeddings"] = m.tied;
    const std::size_t longest = flags_.positive("max-position-embeddings", 0);
    require<config_error>(longest > 0, "--max-position-embeddings: must be given");
    config[is_gpt2                                          ? "n_positions"
           : is_bloom                                       ? "seq_length"
           : family == "baichuan" && m.positions == "alibi" ? "model_max_length"
                                                            : "max_position_embeddings"] = longest;
    if (family == "llama" && m.biases) config["attention_bias"] = config["mlp_bias"] = true;
    if (family == "internlm") config["bias"] = true;
  }
  void vocabulary() {
    std::size_t given = 0;
    for (const char* flag : {"pad-vocab-size-to", "padded-vocab-size"})
      if (flags_.has(flag)) given = flags_.positive(flag, 1);
    const std::size_t multiple = flags_.positive("make-vocab-size-divisible-by", 128) * run_.parallel.tensor;
    const std::size_t tokens = flags_.positive("vocab-size", 0);
    if (tokens > 0 && given == 0) {
      const bool has_end = flags_.text("tokenizer-type") == "NullTokenizer";  // whose end-of-document token comes behind the others
      given = (tokens + (has_end ? 1 : 0) + multiple - 1) / multiple * multiple;
    }
    if (!run_.model.folder.empty()) {
      if (given > 0) run_.model.config["vocab_size"] = given;
      flags_.ignore({"make-vocab-size-divisible-by"}, "the vocabulary of a model that is loaded is its folder's");
    } else if (given > 0) run_.model.config["vocab_size"] = given;
    else run_.model.vocab_multiple = multiple;
  }
  void mixture(std::size_t experts) {
    json& config = run_.model.config;
    config["num_local_experts"] = experts;
    const std::size_t top = flags_.positive("moe-router-topk", 2);
    flags_.require_that(top <= experts, "moe-router-topk", "must not be above --num-experts ", experts, "; given ", top);
    config["num_experts_per_tok"] = top;
    const std::string balance = flags_.one_of("moe-router-load-balancing-type", {"aux_loss", "none"}, "aux_loss");
    const double weight = flags_.number("moe-aux-loss-coeff", 0.0);
    const bool balances = balance == "aux_loss" && weight > 0.0;
    json& rest = run_.model.folder.empty() ? config : run_.model.override_config;
    rest["output_router_logits"] = balances;
    if (balances) rest["router_aux_loss_coef"] = weight;
    require<config_error>(experts % run_.parallel.expert == 0, "--num-experts: must be divisible by --expert-model-parallel-size ",
                          run_.parallel.expert, "; given ", experts);
  }
  void rope_scaling(const model_flags& m, json& rest) {
    if (!flags_.has("use-rope-scaling")) {
      flags_.ignore({"rope-scaling-factor"}, "--use-rope-scaling is not given");
      return;
    }
    flags_.require_that(m.positions == "rope", "use-rope-scaling", "needs --position-embedding-type rope");
    rest["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", flags_.number("rope-scaling-factor", 8.0)},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", std::size_t{8192}}};
  }
  void dropouts(const std::string& family) {
    json& rest = run_.model.folder.empty() ? run_.model.config : run_.model.override_config;
    const double attention = flags_.number("attention-dropout", 0.1), hidden = flags_.number("hidden-dropout", 0.1);
    if (attention >= 1.0) flags_.wrong("attention-dropout", "below 1");
    if (hidden >= 1.0) flags_.wrong("hidden-dropout", "below 1");
    if (family == "gpt2") {
      rest["attn_pdrop"] = attention;
      rest["resid_pdrop"] = rest["embd_pdrop"] = hidden;
    } else if (family == "bloom") {
      rest["attention_dropout"] = attention;
      rest["hidden_dropout"] = hidden;
      if (hidden > 0.0)
        note(concat("--hidden-dropout ", hidden, ": BLOOM has no dropout behind its embedding here, as in Hugging Face's; Megatron has"));
    } else if (is_gpt()) {
      require<config_error>(hidden == 0.0,
                            "--hidden-dropout: must be given as 0 for a model with RMSNorm and SwiGLU, which has none; it is ", hidden,
                            flags_.has("hidden-dropout") ? "" : ", Megatron's default");
      rest["attention_dropout"] = attention;
    } else {  // AscendSpeed's own models have no dropout, whatever the defaults of its flags
      flags_.require_that(!flags_.has("hidden-dropout") || hidden == 0.0, "hidden-dropout", "must be 0 for ", script_.name,
                          ", whose model has none; given ", hidden);
      if (flags_.has("attention-dropout")) rest["attention_dropout"] = attention;
    }
    flags_.require_that(family != "baichuan" || !flags_.has("attention-dropout") || attention == 0.0, "attention-dropout", "must be 0 for ",
                        script_.name, "; given ", attention);
    if (family == "baichuan") rest.erase("attention_dropout");
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

  void precision() {
    const bool fp16 = flags_.has("fp16"), bf16 = flags_.has("bf16"), sums = flags_.has("accumulate-allreduce-grads-in-fp32");
    flags_.require_that(!(fp16 && bf16), "fp16", "must not be given with --bf16");
    run_.precision = fp16 ? "fp16_mixed" : bf16 ? "bf16_mixed" : "fp32";
    if (flags_.has("grad-reduce-in-bf16")) {
      flags_.require_that(bf16, "grad-reduce-in-bf16", "needs --bf16");
      flags_.require_that(!sums, "grad-reduce-in-bf16", "must not be given with --accumulate-allreduce-grads-in-fp32");
      run_.precision = "bf16_gradients";
    }
    flags_.require_that(!(fp16 && sums), "accumulate-allreduce-grads-in-fp32",
                        "is not supported with --fp16, whose gradients are fp16; use --bf16");
    if (sums) flags_.ignore({"accumulate-allreduce-grads-in-fp32"}, std::string(megatron_reason::always));
    if (!fp16) {
      flags_.ignore({"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"},
                    "the loss is scaled with --fp16 only");
      return;
    }
    if (const std::optional<double> fixed = flags_.number("loss-scale"); fixed && *fixed > 0.0) {
      run_.loss_scale = {{"initial", *fixed}, {"min", *fixed}, {"window", std::size_t{1} << 50U}, {"hysteresis", std::size_t{1}}};
      flags_.ignore({"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}, "--loss-scale is fixed");
      return;
    }
    const double initial = flags_.number("initial-loss-scale", 4294967296.0), smallest = flags_.number("min-loss-scale", 1.0);
    if (smallest <= 0.0) flags_.wrong("min-loss-scale", "positive");
    flags_.require_that(initial >= smallest, "initial-loss-scale", "must be at least --min-loss-scale, ", smallest, "; given ", initial);
    run_.loss_scale = {{"initial", initial},
                       {"min", smallest},
                       {"window", flags_.positive("loss-scale-window", 1000)},
                       {"hysteresis", flags_.positive("hysteresis", 2)}};
  }

  void optimizer() {
    optimizer_description& o = run_.optimizer;
    const std::string kind = flags_.one_of("optimizer", {"adam", "fused_adam", "sgd"}, "adam");
    const double decay = flags_.number("weight-decay", 0.01);
    const std::string growth = flags_.text("weight-decay-incr-style", "constant");
    if (growth != "constant") flags_.wrong("weight-decay-incr-style", "constant: weight decay does not change during a run");
    for (const char* flag : {"start-weight-decay", "end-weight-decay"})
      flags_.require_that(flags_.number(flag, decay) == decay, flag, "must be --weight-decay, ", decay,
                          ": weight decay does not change during a run");
    o.max_grad_norm = flags_.number("clip-grad", 1.0);
    o.decays = "matrices";
    if (kind == "sgd") {
      flags_.require_that(decay == 0.0, "optimizer",
                          "sgd needs --weight-decay 0: PyTorch adds the decay to the gradient, this library's sgd does not; it is ", decay);
      o.kind = "sgd";
      o.settings = {{"momentum", flags_.number("sgd-momentum", 0.9)}, {"weight_decay", 0.0}};
      flags_.ignore({"adam-beta1", "adam-beta2", "adam-eps"}, "--optimizer is sgd");
      return;
    }
    o.kind = "adamw";
    const auto share = [&](const char* flag, double otherwise) {
      const double given = flags_.number(flag, otherwise);
      if (given >= 1.0) flags_.wrong(flag, "below 1");
      return given;
    };
    o.settings = {{"beta1", share("adam-beta1", 0.9)},
                  {"beta2", share("adam-beta2", 0.999)},
                  {"epsilon", flags_.number("adam-eps", 1e-8)},
                  {"weight_decay", decay}};
    flags_.ignore({"sgd-momentum"}, "--optimizer is adam");
  }

  /// Megatron counts samples: with --train-iters, steps of --global-batch-size samples.
  void schedule() {
    schedule_description& s = run_.schedule;
    require<config_error>(flags_.has("lr"), "--lr: must be given");
    s.learning_rate = flags_.number("lr", 0.0);
    s.min_learning_rate = flags_.number("min-lr", 0.0);
    flags_.require_that(s.min_learning_rate <= s.learning_rate, "min-lr", "must not be above --lr, ", s.learning_rate, "; given ",
                        s.min_learning_rate);
    s.kind = flags_.one_of("lr-decay-style", {"constant", "linear", "cosine", "inverse-square-root"}, "linear");
    if (s.kind == "inverse-square-root") {
      s.kind = "inverse_square_root";
      s.settings["timescale"] = flags_.has("train-samples") ? 1.0 : 1.0 / static_cast<double>(global_batch_);
    }
    s.starts_at_zero = true;
    s.settings["round_warmup"] = false;
    const bool by_samples = flags_.has("train-samples");
    if (by_samples) s.counts = "sequences";
    s.settings["counts_updates"] = true;  // an iteration that is skipped does not advance OptimizerParamScheduler
    for (const char* flag : {"lr-decay-iters", "lr-warmup-iters"})
      flags_.require_that(!by_samples || flags_.size(flag, 0) == 0, flag, "must not be given with --train-samples");
    for (const char* flag : {"lr-decay-samples", "lr-warmup-samples"})
      flags_.require_that(by_samples || flags_.size(flag, 0) == 0, flag, "must not be given with --train-iters");
    s.decay_steps = by_samples ? flags_.positive("lr-decay-samples", *flags_.size("train-samples")) : flags_.positive("lr-decay-iters", run_.max_steps);
    const double decay = static_cast<double>(s.decay_steps);
    const std::optional<double> fraction = flags_.number("lr-warmup-fraction");
    const char* const unit = by_samples ? "lr-warmup-samples" : "lr-warmup-iters";
    s.warmup_steps = flags_.size(unit, 0);
    double warmup = static_cast<double>(s.warmup_steps);
    if (fraction) {
      flags_.require_that(s.warmup_steps == 0, "lr-warmup-fraction", "must not be given with --lr-warmup-iters or --lr-warmup-samples");
      warmup = *fraction * decay;
      s.warmup_ratio = *fraction;
    }
    flags_.require_that(warmup < decay, fraction ? "lr-warmup-fraction" : unit, "must be shorter than the decay, ", s.decay_steps,
                        by_samples ? " samples; given " : " steps; given ", warmup);
    const double first = flags_.number("lr-warmup-init", 0.0);
    flags_.require_that(first <= s.learning_rate, "lr-warmup-init", "must not be above --lr, ", s.learning_rate, "; given ", first);
    if (first > 0.0) s.settings["warmup_init"] = first;
  }

  void recompute() {
    const std::string granularity = flags_.one_of("recompute-granularity", {"full", "selective"}, "");
    const std::string policy = flags_.one_of("checkpoint-policy", {"full", "block", "custom"}, "");
    const bool asked = flags_.has_any({"checkpoint-activations", "deepspeed-activation-checkpointing"});
    flags_.require_that(!(asked && granularity == "selective"), "recompute-granularity",
                        "selective must not be given with --checkpoint-activations");
    if (flags_.has("recompute-activations") || granularity == "selective") run_.recompute = "selective";
    if (granularity == "full" || asked || !policy.empty()) run_.recompute = "full";
    if (policy == "custom") run_.recompute = "selective";
    const std::size_t layers = flags_.positive("checkpoint-block-layer", 25);
    if (policy == "block")
      note(concat("--checkpoint_policy block: all layers are recomputed, not ", layers,
                  " of each stage: more work, less memory, the same results"));
    else flags_.ignore({"checkpoint-block-layer"}, "--checkpoint_policy is not block");
    const std::string method = flags_.one_of("recompute-method", {"uniform", "block", "custom"}, "");
    if (run_.recompute == "full" && (method == "custom" || (flags_.has("recompute-num-layers") && method == "block")))
      note(concat("--recompute-method ", method, ": all layers are recomputed: more work, less memory, the same results"));
    flags_.ignore({"recompute-num-layers", "recompute-method"}, std::string(megatron_reason::kept));
  }

  /// Their modules, by ours. A module that is several of ours becomes all of them.
  [[nodiscard]] std::vector<std::string> modules_of(const std::string& flag, const std::string& name) {
    const std::string& family = run_.model.family;
    const bool gpt2 = family == "gpt2", bloom = family == "bloom", mixtral = family == "mixtral";
    using names = std::vector<std::string>;
    const auto as = [&](std::initializer_list<std::string_view> theirs) {
      return std::find(theirs.begin(), theirs.end(), name) != theirs.end();
    };
    if (as({"query_key_value", "linear_qkv"}))
      return gpt2                   ? names{"c_attn"}
             : bloom                ? names{"query_key_value"}
             : family == "baichuan" ? names{"W_pack"}
                                    : names{"q_proj", "k_proj", "v_proj"};
    if (as({"dense", "linear_proj"})) return gpt2 ? names{"attn.c_proj"} : bloom ? names{"self_attention.dense"} : names{"o_proj"};
    if (as({"gate_proj"}) && !gpt2 && !bloom) return mixtral ? names{"w1"} : names{"gate_proj"};
    if (as({"up_proj"}) && !gpt2 && !bloom) return mixtral ? names{"w3"} : names{"up_proj"};
    if (as({"proj", "linear_fc1"}))
      return gpt2 ? names{"c_fc"} : bloom ? names{"dense_h_to_4h"} : mixtral ? names{"w1", "w3"} : names{"gate_proj", "up_proj"};
    if (as({"dense_h_to_4h"})) return gpt2 ? names{"c_fc"} : bloom ? names{"dense_h_to_4h"} : mixtral ? names{"w3"} : names{"up_proj"};
    if (as({"dense_4h_to_h", "down_proj", "linear_fc2"}))
      return gpt2 ? names{"mlp.c_proj"} : bloom ? names{"dense_4h_to_h"} : mixtral ? names{"w2"} : names{"down_proj"};
    if (as({"word_embeddings", "embedding"})) return gpt2 ? names{"wte"} : bloom ? names{"word_embeddings"} : names{"embed_tokens"};
    if (as({"lm_head.lm_head", "lm_head", "output_layer"})) {
      flags_.require_that(!gpt2 && !bloom, flag, name, ": the head of ", family, " is its embedding; give word_embeddings");
      return {"lm_head"};
    }
    fail<config_error>(flags_.typed(flag), ": must be modules of ", family, ": query_key_value, dense, ",
                       gpt2 || bloom ? "" : "gate_proj, up_proj, down_proj, ", "dense_h_to_4h, dense_4h_to_h, word_embeddings",
                       gpt2 || bloom ? "" : ", lm_head.lm_head", "; given ", name);
  }
  void adapter() {
    adapter_description& a = run_.adapter;
    const std::vector<std::string> targets = flags_.list("lora-target-modules");
    if (targets.empty()) {
      flags_.require_that(!flags_.has("lora-load"), "lora-load", "needs --lora-target-modules");
      flags_.ignore({"lora-r", "lora-alpha", "lora-modules-to-save", "lora-adapter-name"}, "--lora-target-modules is not given");
      return;
    }
    const auto take = [&](const char* flag, std::vector<std::string>& to) {
      for (const std::string& name : flags_.list(flag))
        for (std::string& one : modules_of(flag, name))
          if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(std::move(one));
    };
    a.kind = "lora";
    a.rank = flags_.positive("lora-r", 16);
    a.alpha = flags_.number("lora-alpha", 32.0);
    take("lora-target-modules", a.targets);
    take("lora-modules-to-save", a.modules_to_save);
    flags_.ignore({"lora-adapter-name"}, "an adapter's folder holds one adapter");
    if (std::find(a.targets.begin(), a.targets.end(), "q_proj") != a.targets.end())
      note(
          "--lora-target-modules query_key_value: q_proj, k_proj and v_proj get an adapter each, as Hugging Face's; AscendSpeed's has one");
    flags_.require_that(!run_.model.folder.empty(), "lora-target-modules", "needs a model's folder as --load: its weights are not trained");
    const std::string load = flags_.text("lora-load");
    if (load.empty()) return;
    if (file_exists(load + "/adapter_config.json") && !is_same_folder(load, run_.output.folder)) run_.model.adapter = load;
    else if (is_same_folder(load, run_.output.folder)) run_.output.resume = "latest";
    else {
      run_.output.resume = newest_checkpoint(load);
      flags_.require_that(!run_.output.resume.empty(), "lora-load",
                          "must be an adapter's folder (adapter_config.json), hold checkpoints, or be --save; ", load,
                          is_directory(load) ? " has neither" : " does not exist");
    }
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

  void apply() {
    const deepspeed_context context{.data_parallel_ranks = data_parallel_,
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
    apply_deepspeed(run_, *deepspeed_, deepspeed_path_, context);
    flags_.require_that(zero == 0 || run_.parallel.zero == zero, "use-distributed-optimizer", "must not be given with ZeRO stage ",
                        run_.parallel.zero, " of ", deepspeed_path_);
    const std::size_t stage = flags_.size("zero-stage", run_.parallel.zero);
    flags_.require_that(stage == run_.parallel.zero, "zero-stage", "must be zero_optimization.stage of ", deepspeed_path_, ", ",
                        run_.parallel.zero, "; given ", stage);
    flags_.ignore({"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis", "loss-scale"},
                  "with --deepspeed the config's fp16 says it");
  }

  megatron_arguments& flags_;
  const megatron_script& script_;
  bool by_deepspeed_;
  run_description run_{};
  std::optional<json> deepspeed_{};
  std::string deepspeed_path_{};
  std::size_t data_parallel_ = 1, global_batch_ = 1;
};

}  // namespace xtrain::detail
