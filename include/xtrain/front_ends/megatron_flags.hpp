// The flags of Megatron-LM, AscendSpeed and their launchers: number of values, and use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace xtrain::detail {

enum class megatron_flag_use : std::uint8_t {
  read,
  no_effect,  ///< accepted: changes no result, for the reason given
  refused     ///< for the given reason
};

struct megatron_flag {
  std::string_view name;  ///< without leading dashes, '-' for '_'
  char values;            ///< '0', '1', '+' one or more, '*' any number
  megatron_flag_use use = megatron_flag_use::read;
  std::string_view why = {};
};

namespace megatron_reason {

inline constexpr std::string_view messages = "when and how ranks send messages changes no result";
inline constexpr std::string_view one_host = "ranks are threads of one process, which need no rendezvous";
inline constexpr std::string_view kernels = "which kernel computes it changes no result; this library's are fused where that is faster";
inline constexpr std::string_view kept =
    "what is kept for the backward pass changes no result; recompute follows --checkpoint-activations and --recompute-granularity";
inline constexpr std::string_view reading = "files are mapped and read as they are needed, in the same order";
inline constexpr std::string_view logging = "it only changes what is logged; here that is the line of an iteration, and TensorBoard's scalars";
inline constexpr std::string_view always = "it is always so here";
inline constexpr std::string_view buffers = "sizes of buffers and the order of messages change no result";
inline constexpr std::string_view checkpoints = "checkpoints are this library's own, complete, and resumed on any number of ranks";
inline constexpr std::string_view watching = "it watches the run, and changes no result";
inline constexpr std::string_view packed =
    "document boundaries inside a sequence are not marked in this data; give --is-instruction-dataset data, whose samples are separate";
inline constexpr std::string_view decoder_only = "it is for models that are not decoders";
inline constexpr std::string_view other_arithmetic = "this arithmetic is not supported";

}  // namespace megatron_reason

/// All known flags; others are errors.
inline constexpr auto megatron_flags = [] {
  using enum megatron_flag_use;
  namespace why = megatron_reason;
  return std::to_array<megatron_flag>({
      // launchers: torch.distributed.launch, torchrun, deepspeed
      {"nproc-per-node", '1'}, {"nnodes", '1'}, {"num-gpus", '1'}, {"num-nodes", '1'}, {"node-rank", '1', no_effect, why::one_host},
      {"master-addr", '1', no_effect, why::one_host}, {"master-port", '1', no_effect, why::one_host},
      {"rdzv-endpoint", '1', no_effect, why::one_host}, {"rdzv-backend", '1', no_effect, why::one_host}, {"rdzv-id", '1', no_effect, why::one_host},
      {"rdzv-conf", '1', no_effect, why::one_host}, {"standalone", '0', no_effect, why::one_host}, {"local-addr", '1', no_effect, why::one_host},
      {"start-method", '1', no_effect, why::one_host}, {"use-env", '0', no_effect, why::one_host}, {"local-rank", '1', no_effect, why::one_host},
      {"no-local-rank", '0', no_effect, why::one_host}, {"launcher", '1', no_effect, why::one_host}, {"force-multi", '0', no_effect, why::one_host},
      {"max-restarts", '1', no_effect, "a failed run is not restarted; the same command with --load resumes it"},
      {"monitor-interval", '1', no_effect, why::watching}, {"role", '1', no_effect, why::watching}, {"tee", '1', no_effect, why::logging},
      {"redirects", '1', no_effect, why::logging}, {"log-dir", '1', no_effect, why::logging},
      {"hostfile", '1', refused, "several hosts are started by mpirun or srun, with a trainer built with MPI"},
      {"include", '1', refused, "give --num_gpus: the number of ranks"}, {"exclude", '1', refused, "give --num_gpus: the number of ranks"},
      // this library's flags
      {"device", '1'}, {"prompt", '1'},
      // sizes
      {"num-layers", '1'}, {"hidden-size", '1'}, {"ffn-hidden-size", '1'}, {"num-attention-heads", '1'}, {"kv-channels", '1'},
      {"group-query-attention", '0'}, {"num-query-groups", '1'}, {"max-position-embeddings", '1'}, {"position-embedding-type", '1'},
      {"use-rotary-position-embeddings", '0'}, {"rotary-base", '1'}, {"rotary-percent", '1'}, {"use-rope-scaling", '0'}, {"rope-scaling-factor", '1'},
      {"make-vocab-size-divisible-by", '1'}, {"pad-vocab-size-to", '1'}, {"padded-vocab-size", '1'}, {"vocab-size", '1'}, {"normalization", '1'},
      {"norm-epsilon", '1'}, {"layernorm-epsilon", '1'}, {"swiglu", '0'}, {"add-gate", '0'}, {"no-add-gate", '0'}, {"openai-gelu", '0'},
      {"no-bias-gelu-fusion", '0'}, {"disable-bias-linear", '0'}, {"add-bias-linear", '0'}, {"add-qkv-bias", '0'}, {"qk-layernorm", '0'},
      {"untie-embeddings-and-output-weights", '0'}, {"no-untie-embeddings-and-output-weights", '0'}, {"embed-layernorm", '0'}, {"num-experts", '+'},
      {"moe-router-topk", '1'}, {"moe-ffn-hidden-size", '1'}, {"moe-aux-loss-coeff", '1'}, {"moe-router-load-balancing-type", '1'},
      {"init-method-std", '1'}, {"moe-grouped-gemm", '0', no_effect, why::kernels}, {"moe-use-legacy-grouped-gemm", '0', no_effect, why::kernels},
      {"moe-permute-fusion", '0', no_effect, why::kernels}, {"moe-router-fusion", '0', no_effect, why::kernels},
      {"moe-token-dispatcher-type", '1', no_effect, why::messages}, {"moe-per-layer-logging", '0', no_effect, why::logging},
      {"moe-expert-capacity-factor", '1', refused, "no token is dropped here"},
      {"moe-pad-expert-input-to-capacity", '0', refused, "no token is dropped here"}, {"moe-z-loss-coeff", '1', refused, why::other_arithmetic},
      {"moe-input-jitter-eps", '1', refused, why::other_arithmetic}, {"moe-router-pre-softmax", '0', refused, why::other_arithmetic},
      {"moe-shared-expert-intermediate-size", '1', refused, why::other_arithmetic}, {"moe-layer-freq", '1', refused, "every layer has experts here"},
      {"expert-interval", '1', refused, "every layer has experts here"}, {"mlp-type", '1', refused, why::other_arithmetic},
      {"topk", '1', refused, "it is DeepSpeed's gating; give --moe-router-topk"},
      {"moe-loss-coeff", '1', refused, "it is DeepSpeed's gating; give --moe-aux-loss-coeff"},
      {"moe-expert-parallel-size", '1', refused, "give --expert-model-parallel-size"},
      {"multi-latent-attention", '0', refused, why::other_arithmetic}, {"mtp-num-layers", '1', refused, why::other_arithmetic},
      {"q-lora-rank", '1', refused, why::other_arithmetic}, {"kv-lora-rank", '1', refused, why::other_arithmetic},
      {"qk-head-dim", '1', refused, why::other_arithmetic}, {"qk-pos-emb-head-dim", '1', refused, why::other_arithmetic},
      {"v-head-dim", '1', refused, why::other_arithmetic}, {"rotary-scaling-factor", '1', refused, why::other_arithmetic},
      {"mscale", '1', refused, why::other_arithmetic}, {"mscale-all-dim", '1', refused, why::other_arithmetic},
      {"moe-router-score-function", '1', refused, why::other_arithmetic}, {"moe-router-enable-expert-bias", '0', refused, why::other_arithmetic},
      {"moe-router-bias-update-rate", '1', refused, why::other_arithmetic}, {"moe-router-num-groups", '1', refused, why::other_arithmetic},
      {"moe-router-group-topk", '1', refused, why::other_arithmetic}, {"moe-router-topk-scaling-factor", '1', refused, why::other_arithmetic},
      {"mtp-loss-scaling-factor", '1', refused, why::other_arithmetic},
      {"squared-relu", '0', refused, why::other_arithmetic}, {"quick-geglu", '0', refused, why::other_arithmetic},
      {"rotary-interleaved", '0', refused, "RoPE rotates halves of a head here"},
      {"rotary-seq-len-interpolation-factor", '1', refused, why::other_arithmetic},
      {"no-position-embedding", '0', refused, "give --position-embedding-type"}, {"window-size", '1', refused, why::other_arithmetic},
      {"apply-residual-connection-post-layernorm", '0', refused, why::other_arithmetic}, {"apply-layernorm-1p", '0', refused, why::other_arithmetic},
      {"init-method-xavier-uniform", '0', refused, "initial weights are normally distributed here: --init-method-std"},
      {"fp32-residual-connection", '0', refused, "residuals have the precision of activations here"},
      {"fp16-lm-cross-entropy", '0', refused, "the loss is always computed in fp32"}, {"spec", '+', refused, "models are this library's"},
      {"encoder-seq-length", '1', refused, why::decoder_only}, {"decoder-seq-length", '1', refused, why::decoder_only},
      {"encoder-num-layers", '1', refused, why::decoder_only}, {"decoder-num-layers", '1', refused, why::decoder_only},
      {"pipeline-model-parallel-split-rank", '1', refused, why::decoder_only}, {"bert-no-binary-head", '0', no_effect, why::decoder_only},
      {"clone-scatter-output-in-embedding", '0', no_effect, why::kernels}, {"onnx-safe", '1', no_effect, why::kernels},
      // kernels
      {"use-flash-attn", '0'}, {"triangle-attn", '0'}, {"use-flash-attn-v1", '0', no_effect, why::kernels},
      {"use-flash-attn-v2", '0', no_effect, why::kernels}, {"use-flash-attn-triton", '0', no_effect, why::kernels},
      {"attention-backend", '1', no_effect, why::kernels}, {"shape-order", '1', no_effect, why::kernels},
      {"mlp-layer-fusion", '0', no_effect, "gate and up projections are one matrix product here in any case"},
      {"use-fused-rotary-pos-emb", '0', no_effect, why::kernels}, {"use-fused-rmsnorm", '0', no_effect, why::kernels},
      {"use-fused-swiglu", '0', no_effect, why::kernels}, {"use-rotary-embedding-v2", '0', no_effect, why::kernels},
      {"no-masked-softmax-fusion", '0', no_effect, why::kernels}, {"no-bias-swiglu-fusion", '0', no_effect, why::kernels},
      {"no-bias-dropout-fusion", '0', no_effect, why::kernels}, {"no-rope-fusion", '0', no_effect, why::kernels},
      {"apply-rope-fusion", '0', no_effect, why::kernels}, {"no-gradient-accumulation-fusion", '0', no_effect, why::kernels},
      {"gradient-accumulation-fusion", '0', no_effect, why::kernels}, {"cross-entropy-loss-fusion", '0', no_effect, why::kernels},
      {"cross-entropy-fusion-impl", '1', no_effect, why::kernels}, {"transformer-impl", '1', no_effect, why::kernels},
      {"use-mcore-models", '0', no_effect, why::kernels}, {"use-legacy-models", '0', no_effect, why::kernels},
      {"use-te", '0', no_effect, why::kernels}, {"no-persist-layer-norm", '0', no_effect, why::kernels},
      {"memory-efficient-layer-norm", '0', no_effect, why::kernels}, {"lora-fusion", '0', no_effect, why::kernels},
      {"enable-cuda-graph", '0', no_effect, why::kernels}, {"external-cuda-graph", '0', no_effect, why::kernels},
      {"disable-jit-fuser", '0', no_effect, why::kernels}, {"deterministic-mode", '0', no_effect, "results do not depend on timing here"},
      {"attention-softmax-in-fp32", '0', no_effect, why::always},
      {"no-attention-softmax-in-fp32", '0', no_effect, "softmax is computed in fp32, which is more exact"},
      {"apply-query-key-layer-scaling", '0', no_effect, "a factor that is taken out again; scores are fp32 here, which cannot overflow"},
      {"query-key-layer-scaling", '0', no_effect, "a factor that is taken out again; scores are fp32 here, which cannot overflow"},
      {"no-query-key-layer-scaling", '0', no_effect, why::always}, {"fp8-format", '1', refused, "fp8 is not supported"},
      {"fp8-hybrid", '0', refused, "fp8 is not supported"}, {"fp8-e4m3", '0', refused, "fp8 is not supported"},
      {"fp8-margin", '1', refused, "fp8 is not supported"}, {"fp8-interval", '1', refused, "fp8 is not supported"},
      {"fp8-amax-history-len", '1', refused, "fp8 is not supported"}, {"fp8-amax-compute-algo", '1', refused, "fp8 is not supported"},
      {"no-fp8-wgrad", '0', refused, "fp8 is not supported"}, {"fp8-param-gather", '0', refused, "fp8 is not supported"},
      {"fp8-recipe", '1', refused, "fp8 is not supported"},
      // mesh
      {"tensor-model-parallel-size", '1'}, {"pipeline-model-parallel-size", '1'}, {"context-parallel-size", '1'}, {"cp-comm-type", '+'},
      {"expert-model-parallel-size", '1'}, {"expert-tensor-parallel-size", '1'}, {"sequence-parallel", '0'},
      {"num-layers-per-virtual-pipeline-stage", '1'}, {"num-virtual-stages-per-pipeline-rank", '1'}, {"use-distributed-optimizer", '0'},
      {"optimized-pipeline", '0'}, {"manual-mbs", '1'}, {"fold-mode", '1'}, {"foldx-mode", '1'}, {"use-manual-layer-allocation", '0'},
      {"manual-layers", '1'}, {"deepspeed", '0'}, {"deepspeed-config", '1'}, {"zero-stage", '1'}, {"no-pipeline-parallel", '0'},
      {"decoder-first-pipeline-num-layers", '1', refused, "give --use-manual-layer-allocation --manual-layers"},
      {"decoder-last-pipeline-num-layers", '1', refused, "give --use-manual-layer-allocation --manual-layers"},
      {"pipeline-model-parallel-layout", '1', refused, "give --use-manual-layer-allocation --manual-layers"},
      {"enable-expert-tensor-parallelism", '0', refused, "give --expert-model-parallel-size"},
      {"model-parallel-size", '1', refused, "it is --tensor-model-parallel-size today"},
      {"use-torch-fsdp2", '0', refused, "give --use-distributed-optimizer"},
      {"data-parallel-sharding-strategy", '1', refused, "give --use-distributed-optimizer"}, {"deepspeed-mpi", '0', no_effect, why::one_host},
      {"deepscale", '0', no_effect, "--deepspeed is read"}, {"deepscale-config", '1', refused, "give --deepspeed_config"},
      {"zero-reduce-scatter", '0', no_effect, why::buffers}, {"zero-contigious-gradients", '0', no_effect, why::buffers},
      {"zero-reduce-bucket-size", '1', no_effect, why::buffers}, {"zero-allgather-bucket-size", '1', no_effect, why::buffers},
      {"remote-device", '1', no_effect, "where initial weights are made changes no result; offloading follows --deepspeed_config"},
      {"use-pin-memory", '0', no_effect, why::buffers}, {"scattered-embeddings", '0', no_effect, why::kept},
      {"split-transformers", '0', no_effect, why::kept}, {"memory-centric-tiled-linear", '0', no_effect, why::kernels},
      {"tile-factor", '1', no_effect, why::kernels}, {"distributed-backend", '1', no_effect, why::messages},
      {"ddp-impl", '1', no_effect, why::messages}, {"no-contiguous-buffers-in-local-ddp", '0', no_effect, why::messages},
      {"use-contiguous-buffers-in-ddp", '0', no_effect, why::messages}, {"use-contiguous-buffers-in-local-ddp", '0', no_effect, why::messages},
      {"no-scatter-gather-tensors-in-pipeline", '0', no_effect, why::messages}, {"overlap-grad-reduce", '0', no_effect, why::messages},
      {"overlap-param-gather", '0', no_effect, why::messages}, {"overlap-param-gather-with-optimizer-step", '0', no_effect, why::messages},
      {"no-delay-grad-reduce", '0', no_effect, why::messages}, {"no-align-grad-reduce", '0', no_effect, why::messages},
      {"no-align-param-gather", '0', no_effect, why::messages}, {"ddp-bucket-size", '1', no_effect, why::messages},
      {"ddp-num-buckets", '1', no_effect, why::messages}, {"ddp-average-in-collective", '0', no_effect, why::messages},
      {"no-overlap-p2p-communication", '0', no_effect, why::messages}, {"overlap-p2p-communication-warmup-flush", '0', no_effect, why::messages},
      {"microbatch-group-size-per-virtual-pipeline-stage", '1', no_effect, why::messages},
      {"no-async-tensor-model-parallel-allreduce", '0', no_effect, why::messages}, {"tp-comm-overlap", '0', no_effect, why::messages},
      {"tp-comm-overlap-cfg", '1', no_effect, why::messages}, {"disable-tp-comm-overlap-ag", '0', no_effect, why::messages},
      {"disable-tp-comm-overlap-rs", '0', no_effect, why::messages}, {"disable-tp-comm-split-ag", '0', no_effect, why::messages},
      {"disable-tp-comm-split-rs", '0', no_effect, why::messages}, {"use-ring-exchange-p2p", '0', no_effect, why::messages},
      {"nccl-communicator-config-path", '1', no_effect, why::messages},
      {"moe-shared-expert-overlap", '0', no_effect, why::messages}, {"overlap-moe-expert-parallel-comm", '0', no_effect, why::messages},
      {"tp-comm-bootstrap-backend", '1', no_effect, why::messages}, {"use-nccl-ub", '0', no_effect, why::messages},
      {"num-distributed-optimizer-instances", '1', no_effect, why::messages}, {"use-sharp", '0', no_effect, why::messages},
      {"delay-wgrad-compute", '0', no_effect, why::messages},
      {"use-tp-pp-dp-mapping", '0', no_effect, "which rank has which coordinates changes no result"},
      {"distributed-timeout-minutes", '1', no_effect, "a rank waits 600 seconds for another one"},
      {"high-priority-stream-groups", '+', no_effect, why::messages}, {"lazy-mpu-init", '1', no_effect, why::messages},
      {"use-cpu-initialization", '0', no_effect, "initial weights depend on the seed alone"},
      {"no-initialization", '0', no_effect, "initial weights depend on the seed alone"},
      // recompute
      {"checkpoint-activations", '0'}, {"checkpoint-policy", '1'}, {"checkpoint-block-layer", '1'}, {"recompute-activations", '0'},
      {"recompute-granularity", '1'}, {"recompute-method", '1'}, {"recompute-num-layers", '1'},
      {"recompute-modules", '+', refused, "give --recompute-granularity full or selective"}, {"deepspeed-activation-checkpointing", '0'},
      {"recomputation-layer-num", '+', no_effect, why::kept}, {"auto-recompute-device-size", '1', no_effect, why::kept},
      {"auto-recompute-profiling-step", '1', no_effect, why::kept}, {"distribute-checkpointed-activations", '0', no_effect, why::kept},
      {"distribute-saved-activations", '0', no_effect, why::kept}, {"checkpoint-num-layers", '1', no_effect, why::kept},
      {"partition-activations", '0', no_effect, why::kept}, {"contigious-checkpointing", '0', no_effect, why::kept},
      {"checkpoint-in-cpu", '0', no_effect, why::kept}, {"synchronize-each-layer", '0', no_effect, why::kept},
      {"profile-backward", '0', no_effect, why::kept},
      // precision
      {"fp16", '0'}, {"bf16", '0'}, {"loss-scale", '1'}, {"initial-loss-scale", '1'}, {"min-loss-scale", '1'}, {"loss-scale-window", '1'},
      {"hysteresis", '1'}, {"accumulate-allreduce-grads-in-fp32", '0'}, {"grad-reduce-in-bf16", '0'},
      {"main-grads-dtype", '1', refused, "the precision follows --fp16 and --bf16"},
      {"main-params-dtype", '1', refused, "the precision follows --fp16 and --bf16"},
      {"exp-avg-dtype", '1', refused, "the optimizer's state is fp32"}, {"exp-avg-sq-dtype", '1', refused, "the optimizer's state is fp32"},
      {"use-precision-aware-optimizer", '0', refused, "the optimizer's state is fp32"}, {"release-fp32-grad", '0', no_effect, why::kept},
      // batches and steps
      {"micro-batch-size", '1'}, {"global-batch-size", '1'}, {"train-iters", '1'}, {"train-samples", '1'}, {"seq-length", '1'}, {"seed", '1'},
      {"calculate-per-token-loss", '0'},
      {"rampup-batch-size", '*'},
      {"batch-size", '1', refused, "it is --micro-batch-size today"}, {"train-tokens", '1', refused, "give --train-iters or --train-samples"},
      {"train-sync-interval", '1', no_effect, why::messages},
      {"data-parallel-random-init", '0', refused, "data-parallel ranks begin with the same weights"},
      {"exit-interval", '1', refused, "give --train-iters; a run that is stopped by SIGTERM leaves a checkpoint"},
      {"exit-duration-in-mins", '1', refused, "send SIGTERM (timeout 60m ...): the run finishes its step and leaves a checkpoint"},
      {"exit-signal-handler", '0', no_effect, why::always}, {"iteration", '1', refused, "a checkpoint says which iteration it is of"},
      {"reset-iteration", '0', refused, "convert the checkpoint to a model folder, and give that to --load"},
      {"skip-train", '0', refused, "evaluate evaluates"}, {"random-ltd", '0', refused, why::other_arithmetic},
      {"data-efficiency-curriculum-learning", '0', refused, why::other_arithmetic}, {"curriculum-learning", '0', refused, why::other_arithmetic},
      {"kd", '0', refused, "distillation is an objective of finetune, not of this program"},
      {"load-teacher", '1', refused, "distillation is an objective of finetune, not of this program"}, {"mos", '0', refused, why::other_arithmetic},
      {"inference", '0', refused, "generate and evaluate run models without training"}, {"ds-inference", '0', no_effect, why::kernels},
      // optimizer and schedule
      {"optimizer", '1'}, {"lr", '1'}, {"min-lr", '1'}, {"lr-decay-style", '1'}, {"lr-decay-iters", '1'}, {"lr-decay-samples", '1'},
      {"lr-warmup-iters", '1'}, {"lr-warmup-samples", '1'}, {"lr-warmup-fraction", '1'}, {"lr-warmup-init", '1'}, {"weight-decay", '1'},
      {"start-weight-decay", '1'}, {"end-weight-decay", '1'}, {"weight-decay-incr-style", '1'}, {"adam-beta1", '1'}, {"adam-beta2", '1'},
      {"adam-eps", '1'}, {"sgd-momentum", '1'}, {"clip-grad", '1'}, {"attention-dropout", '1'}, {"hidden-dropout", '1'},
      {"override-lr-scheduler", '0', no_effect, "settings are always those of the command line"},
      {"override-opt-param-scheduler", '0', no_effect, "settings are always those of the command line"}, {"use-checkpoint-lr-scheduler", '0'},
      {"use-checkpoint-opt-param-scheduler", '0'}, {"warmup", '1', refused, "it is --lr-warmup-fraction today"},
      {"lr-decay-tokens", '1', refused, "give --lr-decay-iters or --lr-decay-samples"},
      {"lr-warmup-tokens", '1', refused, "give --lr-warmup-iters or --lr-warmup-samples"},
      {"lr-wsd-decay-style", '1', refused, "this schedule is not supported"}, {"lr-wsd-decay-iters", '1', refused, "this schedule is not supported"},
      {"lr-wsd-decay-samples", '1', refused, "this schedule is not supported"}, {"decoupled-lr", '1', refused, "all parameters have one rate"},
      {"decoupled-min-lr", '1', refused, "all parameters have one rate"}, {"head-lr-mult", '1', refused, "all parameters have one rate"},
      {"cpu-optimizer", '0', no_effect, "where the update is computed changes no result"},
      {"cpu-torch-adam", '0', no_effect, "where the update is computed changes no result"},
      {"optimizer-cpu-offload", '0', no_effect, "where the update is computed changes no result"},
      {"optimizer-offload-fraction", '1', no_effect, "where the update is computed changes no result"},
      {"create-moe-param-group", '0', no_effect, why::always},
      // data and tokenizer
      {"data-path", '+'}, {"split", '1'}, {"is-instruction-dataset", '0'}, {"tokenizer-type", '1'}, {"tokenizer-name-or-path", '1'},
      {"tokenizer-model", '1'}, {"vocab-file", '1'}, {"merge-file", '1'}, {"dataloader-type", '1'}, {"vocab-extra-ids", '1'},
      {"mock-data", '0', refused, "give --data-path"}, {"tokenizer-not-use-fast", '0', no_effect, "there is one implementation of each tokenizer"},
      {"tokenizer-padding-side", '1', no_effect, "padding has no loss and is not attended to"},
      {"variable-seq-lengths", '0', no_effect, "sequences of instructions always have their own lengths"},
      {"padded-samples", '0', refused, "an epoch is not filled up with samples"}, {"data-impl", '1', no_effect, why::reading},
      {"num-workers", '1', no_effect, why::reading}, {"mmap-warmup", '0', no_effect, why::reading},
      {"no-mmap-bin-files", '0', no_effect, why::reading}, {"data-cache-path", '1', no_effect, why::reading},
      {"num-dataset-builder-threads", '1', no_effect, why::reading}, {"no-create-attention-mask-in-dataloader", '0', no_effect, why::kernels},
      {"create-attention-mask-in-dataloader", '0', no_effect, why::kernels}, {"train-data-path", '*', refused, "give --data-path and --split"},
      {"valid-data-path", '*', refused, "give --data-path and --split"}, {"test-data-path", '*', refused, "give --data-path and --split"},
      {"train-weighted-split-paths", '*', refused, "give --data-path and --split"},
      {"valid-weighted-split-paths", '*', refused, "give --data-path and --split"},
      {"test-weighted-split-paths", '*', refused, "give --data-path and --split"},
      {"train-weighted-split-paths-path", '1', refused, "give --data-path and --split"},
      {"valid-weighted-split-paths-path", '1', refused, "give --data-path and --split"},
      {"test-weighted-split-paths-path", '1', refused, "give --data-path and --split"}, {"data-args-path", '1', refused, "give --data-path"},
      {"reset-position-ids", '0', refused, why::packed}, {"reset-attention-mask", '0', refused, why::packed},
      {"eod-mask-loss", '0', refused, why::packed},
      {"loss-on-targets-only", '0', refused, "give --is-instruction-dataset, whose labels say what is learned"},
      {"sample-rate", '1', refused, "all samples are used"}, {"train-data-exact-num-epochs", '1', refused, "give --train-samples"},
      {"return-data-index", '0', no_effect, why::logging}, {"fim-data", '0', refused, why::other_arithmetic},
      // output
      {"save", '1'}, {"save-interval", '1'}, {"load", '1'}, {"finetune", '0'}, {"no-load-optim", '0'}, {"no-load-rng", '0'},
      {"no-load-lr-state", '0'}, {"log-interval", '1'}, {"eval-interval", '1'}, {"eval-iters", '1'}, {"tensorboard-dir", '1'},
      {"use-checkpoint-args", '0'}, {"no-save-optim", '0', no_effect, why::checkpoints}, {"no-save-rng", '0', no_effect, why::checkpoints},
      {"ckpt-format", '1', no_effect, why::checkpoints}, {"use-dist-ckpt", '0', no_effect, why::checkpoints},
      {"dist-ckpt-format", '1', no_effect, why::checkpoints}, {"async-save", '0', no_effect, why::checkpoints},
      {"auto-detect-ckpt-format", '0', no_effect, why::checkpoints}, {"ckpt-fully-parallel-save", '0', no_effect, why::checkpoints},
      {"ckpt-fully-parallel-load", '0', no_effect, why::checkpoints}, {"no-ckpt-fully-parallel-save", '0', no_effect, why::checkpoints},
      {"ckpt-assume-constant-structure", '0', no_effect, why::checkpoints}, {"exit-on-missing-checkpoint", '0'},
      {"dist-ckpt-strictness", '1', no_effect, why::checkpoints}, {"ckpt-step", '1', refused, "give the folder of the checkpoint to --load"},
      {"pretrained-checkpoint", '1', refused, "give the model's folder to --load"},
      {"non-persistent-save-interval", '1', refused, "give --save-interval"}, {"log-throughput", '0', no_effect, why::logging},
      {"log-params-norm", '0', no_effect, why::logging}, {"log-num-zeros-in-grad", '0', no_effect, why::logging},
      {"log-progress", '0', no_effect, why::logging}, {"timing-log-level", '1', no_effect, why::logging},
      {"timing-log-option", '1', no_effect, why::logging}, {"no-barrier-with-level-1-timing", '0', no_effect, why::logging},
      {"tensorboard-log-interval", '1', no_effect, why::logging}, {"tensorboard-queue-size", '1', no_effect, why::logging},
      {"log-timers-to-tensorboard", '0', no_effect, why::logging}, {"log-batch-size-to-tensorboard", '0', no_effect, why::logging},
      {"log-learning-rate-to-tensorboard", '0', no_effect, why::logging}, {"no-log-learnig-rate-to-tensorboard", '0', no_effect, why::logging},
      {"no-log-learning-rate-to-tensorboard", '0', no_effect, why::logging}, {"no-log-loss-scale-to-tensorboard", '0', no_effect, why::logging},
      {"log-loss-scale-to-tensorboard", '0', no_effect, why::logging}, {"log-validation-ppl-to-tensorboard", '0', no_effect, why::logging},
      {"log-optimizer-states-to-tensorboard", '0', no_effect, why::logging}, {"log-memory-to-tensorboard", '0', no_effect, why::logging},
      {"log-world-size-to-tensorboard", '0', no_effect, why::logging}, {"wandb-project", '1', no_effect, why::logging},
      {"wandb-exp-name", '1', no_effect, why::logging}, {"wandb-save-dir", '1', no_effect, why::logging},
      {"wandb-entity", '1', no_effect, why::logging}, {"logging-level", '1', no_effect, why::logging},
      {"enable-one-logger", '0', no_effect, why::logging}, {"no-one-logger", '0', no_effect, why::logging},
      {"profile", '0', no_effect, why::watching}, {"profile-step-start", '1', no_effect, why::watching},
      {"profile-step-end", '1', no_effect, why::watching}, {"profile-ranks", '+', no_effect, why::watching},
      {"use-pytorch-profiler", '0', no_effect, why::watching}, {"log-straggler", '0', no_effect, why::watching},
      {"disable-straggler-on-startup", '0', no_effect, why::watching}, {"straggler-ctrlr-port", '1', no_effect, why::watching},
      {"straggler-minmax-count", '1', no_effect, why::watching}, {"check-weight-hash-across-dp-replicas-interval", '1', no_effect, why::watching},
      {"rerun-mode", '1', no_effect, why::watching},
      {"no-check-for-nan-in-loss-and-grad", '0', no_effect, "a step whose gradients are not finite is always left out"},
      {"check-for-nan-in-loss-and-grad", '0', no_effect, "a step whose gradients are not finite is always left out"},
      {"check-for-spiky-loss", '0', no_effect, why::watching}, {"check-for-large-grads", '0', no_effect, why::watching},
      {"manual-gc", '0', no_effect, why::watching}, {"manual-gc-interval", '1', no_effect, why::watching},
      {"no-manual-gc-eval", '0', no_effect, why::watching}, {"empty-unused-memory-level", '1', no_effect, why::watching},
      {"adlr-autoresume", '0', no_effect, why::always}, {"adlr-autoresume-interval", '1', no_effect, why::always},
      {"test-mode", '0', no_effect, why::logging}, {"codecarbon-dir", '1', no_effect, why::logging}, {"log-path", '1', no_effect, why::logging},
      {"log-level", '1', no_effect, why::logging}, {"log-level-replica", '1', no_effect, why::logging},
      {"universal-checkpoint", '0', no_effect, why::checkpoints}, {"valid-num-workers", '1', no_effect, why::reading},
      {"abort-on-unmet-fused-kernel-constraints", '0', no_effect, why::kernels},
      {"sync-tp-duplicated-parameters", '0', no_effect, why::always},
      {"account-for-embedding-in-pipeline-split", '0', no_effect, "which layers a stage has changes no result; --manual-layers chooses them"},
      {"account-for-loss-in-pipeline-split", '0', no_effect, "which layers a stage has changes no result; --manual-layers chooses them"},
      {"pp-partition-method", '1', no_effect, "which layers a stage has changes no result; --manual-layers chooses them"},
      {"kill-switch-path", '1', refused, "send SIGTERM: the run finishes its step and leaves a checkpoint"},
      {"eval-only", '1', refused, "evaluate evaluates"}, {"skip-train-iteration-range", '+', refused, "all samples are used"},
      {"glu-activation", '1', refused, why::other_arithmetic}, {"use-bnb-optimizer", '0', refused, "give --optimizer adam"},
      // LoRA
      {"lora-target-modules", '+'}, {"lora-load", '1'}, {"lora-r", '1'}, {"lora-alpha", '1'}, {"lora-modules-to-save", '+'},
      {"lora-adapter-name", '1'}, {"lora-register-forward-hook", '+', no_effect, "gradients reach every pipeline stage in any case"},
      // inference and evaluation
      {"task", '*'}, {"task-data-path", '*'}, {"max-new-tokens", '1'}, {"temperature", '1'}, {"top-k", '1'}, {"top-p", '1'}, {"greedy", '0'},
      {"max-length", '1'}, {"evaluation-batch-size", '1'}, {"valid-data", '+'}, {"strict-lambada", '0'},
      {"overlapping-eval", '1'},
      {"instruction-template", '1', refused, "give --prompt to this library's program, with the template around it"},
  });
}();

}  // namespace xtrain::detail
