// Ranks, batches and pipeline stages of Megatron-LM's and AscendSpeed's pretraining scripts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_part.hpp>
#include <xtrain/parallel/schedule/variable_micro_batch.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

struct megatron_deepspeed {
  bool launcher = false;         ///< the program 'deepspeed' starts the script
  std::optional<json> config{};  ///< of --deepspeed_config, with --deepspeed
  std::string path{};
};

class megatron_layout : megatron_part {
 public:
  megatron_layout(megatron_arguments& flags, const megatron_script& script, run_description& run, const megatron_deepspeed& deepspeed)
      : megatron_part(flags, script, run), deepspeed_(deepspeed) {}

  void read() {
    mesh();
    batches();
    pipeline();
  }
  [[nodiscard]] std::size_t data_parallel() const { return data_parallel_; }
  [[nodiscard]] std::size_t global_batch() const { return global_batch_; }

 private:
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
    flags_.require_that(p.expert == 1 || flags_.has("num-experts"), "expert-model-parallel-size", "needs --num-experts; given ", p.expert);
    flags_.require_that(data_parallel_ % p.expert == 0, "expert-model-parallel-size", "must divide the data-parallel ranks, ", data_parallel_, "; given ",
                        p.expert);
    if (flags_.has("use-distributed-optimizer")) p.zero = 1;
    const std::optional<std::size_t> stage = flags_.size("zero-stage");
    if (stage && !deepspeed_.config) flags_.ignore({"zero-stage"}, "without --deepspeed it is not read; ZeRO-1 is --use-distributed-optimizer");
  }
  [[nodiscard]] std::size_t ranks(std::size_t model_ranks) {
    const bool is_one = flags_.text("nnodes") == "1:1";  // torchrun's minimum and maximum
    const std::size_t hosts = std::max(is_one ? 1 : flags_.positive("nnodes", 1), flags_.positive("num-nodes", 1));
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
    if (deepspeed_.launcher) {
      // deepspeed without --num_gpus uses all GPUs; the config's batch size tells how many
      const auto of = [&](const char* key) {
        return deepspeed_.config && deepspeed_.config->contains(key) && (*deepspeed_.config)[key].is_number_unsigned()
                   ? (*deepspeed_.config)[key].get<std::size_t>()
                   : 0;
      };
      // without gradient_accumulation_steps, DeepSpeed derives them from the ranks; here the ranks follow, with one micro-batch per step
      const std::size_t micro_batches = deepspeed_.config && deepspeed_.config->contains("gradient_accumulation_steps") ? of("gradient_accumulation_steps") : 1;
      const std::size_t one_step = of("train_micro_batch_size_per_gpu") * micro_batches, all = of("train_batch_size");
      if (one_step > 0 && all % one_step == 0 && all > 0) {
        note(concat("deepspeed without --num_gpus: ", all / one_step * model_ranks, " ranks, which follows from train_batch_size in ",
                    deepspeed_.path));
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
      // DeepSpeed's stages need not be equal
      require<config_error>(deepspeed_.config || layers % p.pipeline == 0, "--num-layers: must be divisible by --pipeline-model-parallel-size ",
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
    run_.objective.average = "step";  // means of unequal micro-batches would weigh tokens differently
  }

  const megatron_deepspeed& deepspeed_;
  std::size_t data_parallel_ = 1, global_batch_ = 1;
};

}  // namespace xtrain::detail
