// Precision, optimizer, schedule and recomputation of pretraining scripts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>
#include <xtrain/front_ends/megatron_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class megatron_optimization : megatron_part {
 public:
  using megatron_part::megatron_part;

  /// global_batch  sequences of a step
  void read(std::size_t global_batch) {
    precision();
    optimizer();
    schedule(global_batch);
    recompute();
  }

 private:
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
  void schedule(std::size_t global_batch) {
    schedule_description& s = run_.schedule;
    require<config_error>(flags_.has("lr"), "--lr: must be given");
    s.learning_rate = flags_.number("lr", 0.0);
    s.min_learning_rate = flags_.number("min-lr", 0.0);
    flags_.require_that(s.min_learning_rate <= s.learning_rate, "min-lr", "must not be above --lr, ", s.learning_rate, "; given ",
                        s.min_learning_rate);
    s.kind = flags_.one_of("lr-decay-style", {"constant", "linear", "cosine", "inverse-square-root"}, "linear");
    if (s.kind == "inverse-square-root") {
      s.kind = "inverse_square_root";
      s.settings["timescale"] = flags_.has("train-samples") ? 1.0 : 1.0 / static_cast<double>(global_batch);
    }
    s.from_zero = true;
    s.settings["round_warmup"] = false;
    const bool by_samples = flags_.has("train-samples");
    if (by_samples) s.counts = "sequences";
    s.settings["counts_updates"] = true;  // a skipped iteration does not advance OptimizerParamScheduler
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
};

}  // namespace xtrain::detail
