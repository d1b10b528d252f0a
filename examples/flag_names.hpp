// What flags are called by Megatron-LM, Hugging Face (TrainingArguments, TRL), torchtune, axolotl and DeepSpeed: an unknown flag with such a name is
// answered with the program's own.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace command_line {

/// Names elsewhere, without dashes in front and with '-' for '_', and the flags here. A name may have several flags, of different programs: the first
/// that a program has is its answer.
inline constexpr auto flags_elsewhere = std::to_array<std::pair<std::string_view, std::string_view>>({
    // batches
    {"per-device-train-batch-size", "--micro-batch-size"},
    {"train-micro-batch-size-per-gpu", "--micro-batch-size"},
    {"batch-size", "--micro-batch-size"},
    {"mbs", "--micro-batch-size"},
    {"gbs", "--global-batch-size"},
    {"train-batch-size", "--global-batch-size"},
    {"grad-accum-steps", "--gradient-accumulation-steps"},
    {"accumulate-grad-batches", "--gradient-accumulation-steps"},
    {"global-batch-size", "--gradient-accumulation-steps"},
    // lengths
    {"max-seq-length", "--seq-length"},
    {"max-seq-len", "--seq-length"},
    {"max-length", "--seq-length"},
    {"seq-len", "--seq-length"},
    {"sequence-len", "--seq-length"},
    {"sequence-length", "--seq-length"},
    {"model-max-length", "--seq-length"},
    {"block-size", "--seq-length"},
    {"context-length", "--seq-length"},
    {"max-position-embeddings", "--seq-length"},
    // steps
    {"train-iters", "--max-steps"},
    {"max-iters", "--max-steps"},
    {"iterations", "--max-steps"},
    {"epochs", "--num-train-epochs"},
    {"num-epochs", "--num-train-epochs"},
    {"max-epochs", "--num-train-epochs"},
    {"eval-interval", "--eval-steps"},
    {"save-interval", "--save-steps"},
    {"checkpoint-every", "--save-steps"},
    // learning rate, optimizer
    {"lr", "--learning-rate"},
    {"lr-decay-style", "--lr-scheduler-type"},
    {"lr-scheduler", "--lr-scheduler-type"},
    {"lr-schedule", "--lr-scheduler-type"},
    {"min-lr", "--min-lr-ratio"},
    {"min-lr-rate", "--min-lr-ratio"},
    {"cosine-min-lr-ratio", "--min-lr-ratio"},
    {"lr-warmup-iters", "--warmup-steps"},
    {"lr-warmup-steps", "--warmup-steps"},
    {"num-warmup-steps", "--warmup-steps"},
    {"warmup-num-steps", "--warmup-steps"},
    {"warmup-iters", "--warmup-steps"},
    {"lr-warmup-fraction", "--warmup-ratio"},
    {"clip-grad", "--max-grad-norm"},
    {"gradient-clipping", "--max-grad-norm"},
    {"gradient-clip-val", "--max-grad-norm"},
    {"clip-grad-norm", "--max-grad-norm"},
    // the model
    {"num-hidden-layers", "--num-layers"},
    {"n-layer", "--num-layers"},
    {"n-layers", "--num-layers"},
    {"embed-dim", "--hidden-size"},
    {"n-embd", "--hidden-size"},
    {"dim", "--hidden-size"},
    {"num-heads", "--num-attention-heads"},
    {"n-head", "--num-attention-heads"},
    {"n-heads", "--num-attention-heads"},
    {"num-query-groups", "--num-key-value-heads"},
    {"num-kv-heads", "--num-key-value-heads"},
    {"n-kv-heads", "--num-key-value-heads"},
    {"ffn-hidden-size", "--intermediate-size"},
    {"intermediate-dim", "--intermediate-size"},
    {"ffn-dim", "--intermediate-size"},
    {"num-local-experts", "--num-experts"},
    {"n-routed-experts", "--num-experts"},
    {"padded-vocab-size", "--vocab-size"},
    {"untie-embeddings-and-output-weights", "--untie-word-embeddings"},
    {"hidden-dropout", "--dropout"},
    {"attention-dropout", "--dropout"},
    {"model-name-or-path", "--model"},
    {"base-model", "--model"},
    {"pretrained-checkpoint", "--model"},
    {"model", "--model-type"},
    {"config-name", "--config"},
    {"config-overrides", "--override-config"},
    {"hf-overrides", "--override-config"},
    {"torch-dtype", "--dtype"},
    {"outtype", "--dtype"},
    {"tokenizer-model", "--tokenizer"},
    {"tokenizer-name", "--tokenizer"},
    {"tokenizer-name-or-path", "--tokenizer"},
    // data and files
    {"data-path", "--data"},
    {"train-data-path", "--data"},
    {"train-file", "--data"},
    {"dataset-path", "--data"},
    {"dataset-name", "--data"},
    {"dataset", "--data"},
    {"valid-data-path", "--eval-data"},
    {"validation-file", "--eval-data"},
    {"eval-dataset", "--eval-data"},
    {"dataset-text-field", "--text-field"},
    {"text-column", "--text-field"},
    {"text-column-name", "--text-field"},
    {"label-column-name", "--label-field"},
    {"save", "--output-dir"},
    {"save-dir", "--output-dir"},
    {"output", "--output-dir"},
    {"out-dir", "--output-dir"},
    {"output", "--to"},
    {"output-dir", "--to"},
    {"load", "--resume"},
    {"resume-from-checkpoint", "--resume"},
    {"keep-last-n-checkpoints", "--save-total-limit"},
    {"logging-dir", "--tensorboard-dir"},
    {"log-dir", "--tensorboard-dir"},
    {"report-to", "--tensorboard-dir"},
    {"max-memory-mib", "--max-memory"},
    {"memory-limit", "--max-memory"},
    {"sample-packing", "--packing"},
    {"train-on-inputs", "--train-on-input"},
    {"do-whole-word-mask", "--whole-word-mask"},
    {"mask-prob", "--mlm-probability"},
    {"max-predictions-per-seq", "--mlm-probability"},
    {"pad-to-multiple-of", "--make-vocab-size-divisible-by"},
    {"pad-vocab-size-to", "--resize-token-embeddings"},
    // adapters
    {"lora-r", "--lora-rank"},
    {"r", "--lora-rank"},
    {"peft-model", "--adapter"},
    {"lora-path", "--adapter"},
    {"target-modules", "--lora-target-modules"},
    {"lora-attn-modules", "--lora-target-modules"},
    {"modules-to-save", "--lora-modules-to-save"},
    // generation
    {"max-tokens", "--max-new-tokens"},
    {"out-seq-length", "--max-new-tokens"},
    {"n-predict", "--max-new-tokens"},
    {"top-k-sampling", "--top-k"},
    {"top-p-sampling", "--top-p"},
    // parallelism
    {"tensor-model-parallel-size", "--tensor-parallel-size"},
    {"tensor-parallel-degree", "--tensor-parallel-size"},
    {"tensor-parallel-dim", "--tensor-parallel-size"},
    {"tp", "--tensor-parallel-size"},
    {"tp-size", "--tensor-parallel-size"},
    {"pipeline-model-parallel-size", "--pipeline-parallel-size"},
    {"pipeline-parallel-degree", "--pipeline-parallel-size"},
    {"pp", "--pipeline-parallel-size"},
    {"pp-size", "--pipeline-parallel-size"},
    {"context-parallel-degree", "--context-parallel-size"},
    {"ulysses-degree", "--context-parallel-size"},
    {"ds-sequence-parallel-size", "--context-parallel-size"},
    {"sequence-parallel-size", "--context-parallel-size"},
    {"cp", "--context-parallel-size"},
    {"cp-size", "--context-parallel-size"},
    {"expert-model-parallel-size", "--expert-parallel-size"},
    {"ep-size", "--expert-parallel-size"},
    {"ep", "--expert-parallel-size"},
    {"data-parallel-replicate-degree", "--data-parallel-size"},
    {"dp", "--data-parallel-size"},
    {"dp-size", "--data-parallel-size"},
    {"data-parallel-shard-degree", "--data-parallel-shard-size"},
    {"mics-shard-size", "--data-parallel-shard-size"},
    {"num-virtual-stages-per-pipeline-rank", "--virtual-pipeline-parallel-size"},
    {"virtual-pipeline-model-parallel-size", "--virtual-pipeline-parallel-size"},
    {"num-layers-per-virtual-pipeline-stage", "--virtual-pipeline-parallel-size"},
    {"num-layer-list", "--num-layers-per-stage"},
    {"pipeline-model-parallel-layout", "--num-layers-per-stage"},
    {"decoder-first-pipeline-num-layers", "--num-layers-per-stage"},
    {"manual-mbs", "--micro-batch-sizes"},
    {"world-size", "--devices"},
    {"num-gpus", "--devices"},
    {"world-size", "--ranks"},
    {"num-gpus", "--ranks"},
    {"nproc-per-node", "--ranks"},
    {"ddp-timeout", "--timeout"},
    {"distributed-timeout-minutes", "--timeout"},
    {"recompute-granularity", "--recompute"},
    {"recompute-activations", "--recompute"},
    {"gradient-checkpointing", "--recompute"},
    {"random-seed", "--seed"},
    {"data-seed", "--seed"},
});

/// The flag that is meant by a name of another system, or by one's own name with underscores.
///   known    the flags of the program
///   returns  "" when there is none
[[nodiscard]] inline std::string flag_named_elsewhere(std::string_view given, std::span<const std::string> known) {
  std::string name(given.substr(std::min(given.find_first_not_of('-'), given.size())));
  std::replace(name.begin(), name.end(), '_', '-');
  const auto has = [&](std::string_view flag) { return std::find(known.begin(), known.end(), flag) != known.end(); };
  if (const std::string own = "--" + name; has(own)) return own;
  for (const auto& [elsewhere, here] : flags_elsewhere)
    if (elsewhere == name && has(here)) return std::string(here);
  return {};
}

}  // namespace command_line
