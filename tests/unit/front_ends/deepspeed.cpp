#include <doctest/doctest.h>

#include <string>

#include <xtrain/front_ends/deepspeed.hpp>
#include <xtrain/recipes/recipe_type.hpp>

using namespace xtrain;

namespace {

/// A run of transformers' Trainer: 8 ranks, 2 samples each, 8 micro-batches.
run_description run_of_trainer(const std::string& precision = "fp16_mixed") {
  run_description run;
  run.model.folder = "qwen";
  run.precision = precision;
  run.micro_batch_size = 2;
  run.gradient_accumulation_steps = 8;
  run.parallel.ranks = 8;
  run.optimizer.settings = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}};
  run.optimizer.max_grad_norm = 1.0;
  run.schedule = {.kind = "cosine", .learning_rate = 2e-5, .warmup_ratio = 0.03, .from_zero = true};
  return run;
}

run_description applied(const char* config, run_description run, const deepspeed_context& context = {.data_parallel_ranks = 8}) {
  apply_deepspeed(run, json::parse(config), "ds.json", context);
  return run;
}
run_description applied(const char* config) { return applied(config, run_of_trainer()); }

void refuses(const char* config, const char* message, const run_description& run = run_of_trainer(),
             const deepspeed_context& context = {.data_parallel_ranks = 8}) {
  CAPTURE(config);
  CHECK_THROWS_WITH_AS(applied(config, run, context), message, config_error);
}

/// The Ascend guide's ZeRO config, in the form of Hugging Face's documentation.
constexpr const char* zero2 = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {
    "stage": 2, "offload_optimizer": {"device": "none", "pin_memory": true}, "allgather_partitions": true, "allgather_bucket_size": 2e8,
    "overlap_comm": true, "reduce_scatter": true, "reduce_bucket_size": 2e8, "contiguous_gradients": true
  },
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 100, "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
})";

}  // namespace

TEST_CASE("the config of transformers' documentation takes the values of the command line") {
  const run_description run = applied(zero2);
  CHECK(run.parallel.zero == 2);
  CHECK(run.precision == "fp16_mixed");
  CHECK(run.loss_scale == json{{"initial", 65536.0}, {"min", 1.0}, {"window", 1000}, {"hysteresis", 2}});
  CHECK(run.optimizer.kind == "adamw");
  CHECK(run.optimizer.settings == json{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}});
  CHECK(run.optimizer.decays == "all");
  CHECK(run.optimizer.max_grad_norm == 1.0);
  CHECK(run.schedule.kind == "constant");
  CHECK(run.schedule.learning_rate == 2e-5);
  CHECK(run.schedule.warmup_ratio == 0.03);
  CHECK(run.schedule.settings == json{{"as_deepspeed", true}, {"log_warmup", true}, {"counts_updates", true}});
  CHECK(run.offload == "none");
  CHECK(recipe_of(run).parallel == "zero<2>");
  CHECK(run.notes.size() == 4);  // buffers, offload_optimizer's keys, the command line's schedule, printing
}

TEST_CASE("without an optimizer and a scheduler in the config, the run's are used") {
  const run_description run =
      applied(R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "gradient_clipping": 1.0, "train_batch_size": 128})",
              run_of_trainer("bf16_mixed"));
  CHECK(run.parallel.zero == 3);
  CHECK(run.precision == "bf16_gradients");  // DeepSpeed adds bf16 gradients in bf16 with ZeRO
  CHECK(run.optimizer.decays == "matrices");
  CHECK(run.schedule == run_of_trainer().schedule);
  CHECK(applied(R"({"bf16": {"enabled": true}})", run_of_trainer("bf16_mixed")).precision == "bf16_gradients");  // in fp32 up to 0.17.0
  CHECK(applied(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})", run_of_trainer("bf16_mixed")).precision == "bf16_mixed");
  CHECK(applied(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}})",
                run_of_trainer("bf16_mixed"))
            .precision == "bf16_mixed");
  CHECK(applied("{}", run_of_trainer("fp32")).precision == "fp32");
}

TEST_CASE("what a config leaves out has the default of DeepSpeed 0.19.8, and the run says so") {
  run_description given = run_of_trainer("fp32");
  given.optimizer.max_grad_norm = 0.5;
  given.follows = "transformers 5.24";
  run_description run = applied("{}", given);
  CHECK(run.optimizer.max_grad_norm == 1.0);  // up to 0.19.2: no clipping
  CHECK(run.follows == "transformers 5.24, DeepSpeed 0.19.8");
  CHECK(run.notes == std::vector<std::string>{"ds.json: gradient_clipping: is not given: 1, the default of DeepSpeed from 0.19.3 on (before, nothing was "
                                              "clipped: \"gradient_clipping\": 0.0); --max_grad_norm is not used"});
  const deepspeed_context megatron{.data_parallel_ranks = 8, .fills_auto = false, .must_agree = false, .max_grad_norm = "--clip-grad"};
  CHECK(applied("{}", given, megatron).optimizer.max_grad_norm == 1.0);
  run = applied(R"({"gradient_clipping": 0.0})", given, megatron);
  CHECK(run.optimizer.max_grad_norm == 0.0);
  CHECK(run.notes == std::vector<std::string>{"ds.json: gradient_clipping: is 0; --clip-grad is not used"});
  // new keys of 0.19
  CHECK_NOTHROW(applied(R"({"disable_python_gc": true, "log_level": "info", "managed_gradient_accumulation": true, "gradient_allreduce_op": "mean",
    "data_types": {"param_dtype": "fp32", "buffer_dtype": null, "keep_in_fp32_modules": "auto"},
    "zero_optimization": {"stage": 1, "compute_grad_norm": true, "parameter_alignment": true, "stage3_allgather_sequential": true}})",
                        given));
  refuses(R"({"managed_gradient_accumulation": false})",
          "ds.json: managed_gradient_accumulation: must be true: a step is made of gradient_accumulation_steps micro-batches; given false", given);
  refuses(R"({"gradient_allreduce_op": "sum"})", R"(ds.json: gradient_allreduce_op: must be mean; given "sum")", given);
  refuses(R"({"data_types": {"param_dtype": "bf16"}})", R"(ds.json: data_types.param_dtype: must be the dtype that is enabled; given "bf16")", given);
}

TEST_CASE("on a GPU, what is offloaded to the cpu is in pinned memory of the host, and nothing is offloaded to files") {
  run_description on_gpu = run_of_trainer();
  on_gpu.device = "cuda";
  on_gpu.precision = "fp32";
  const auto recipe_with = [&](const char* zero) { return recipe_of(applied(zero, on_gpu)).offload; };
  CHECK(recipe_with(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})") ==
        "offload_to_host<memory_role::optimizer>");
  CHECK(recipe_with(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})") == "offload_to_host<memory_role::optimizer>");
  CHECK(recipe_with(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}, "cpu_offload": false}})") == "no_offload");
  const run_description weights = applied(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})", on_gpu);
  CHECK(weights.offload == "none");
  CHECK(weights.notes.front() == "ds.json: zero_optimization.offload_param: device cpu: weights stay on the device, sharded among the ranks");
  refuses(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})",
          R"(ds.json: zero_optimization.offload_optimizer.device: must be none or cpu: files are for the device cpu, and the run is on cuda; given "nvme")", on_gpu);
}

TEST_CASE("on an NPU nothing is offloaded: notes say where the state is, and a description that asks for it is refused") {
  run_description on_npu = run_of_trainer();
  on_npu.device = "npu";
  on_npu.precision = "fp32";
  const run_description run = applied(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})", on_npu);
  CHECK(run.offload == "none");
  CHECK(run.notes.front() == "ds.json: zero_optimization.offload_optimizer: device cpu: optimizer state stays on the NPU, divided among the ranks: its "
                             "operators cannot address host memory");
  run_description asks = run;
  asks.offload = "optimizer";
  CHECK_THROWS_WITH_AS((void)recipe_of(asks), doctest::Contains("offload: must be none on npu, whose operators cannot address host memory; given optimizer"),
                       config_error);
}

TEST_CASE("schedules, loss scales and offloading to files") {
  run_description run = applied(R"({"fp16": {"enabled": true, "loss_scale": 128}, "zero_optimization": {"stage": 3, "mics_shard_size": 4,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 4}, "offload_param": {"device": "nvme", "nvme_path": "/nvme"}}})");
  CHECK(run.loss_scale.at("initial") == 128.0);
  CHECK(run.loss_scale.at("min") == 128.0);
  CHECK(run.offload == "optimizer+weights");
  CHECK(run.offload_folder == "/nvme");
  CHECK(run.parallel.shards == 4);
  CHECK(recipe_of(run).offload == "offload_to_file<memory_role::optimizer, memory_role::weights>");

  run = applied(R"({"fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto", "warmup_min_lr": 1e-6, "warmup_max_lr": 2e-5,
    "warmup_type": "linear"}}})");
  CHECK(run.offload == "none");
  CHECK(run.notes.front() == "ds.json: zero_optimization.offload_optimizer: device cpu: the cpu device's memory is host memory");
  CHECK(run.schedule.kind == "linear");
  CHECK(run.schedule.min_learning_rate == 1e-6);
  CHECK(run.schedule.settings == json{{"as_deepspeed", true}, {"log_warmup", false}, {"counts_updates", true}, {"warmup_init", 1e-6}});
  run = applied(
      R"({"fp16": {"enabled": "auto"}, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 500, "warmup_num_steps": "auto"}}})");
  CHECK(run.schedule.kind == "cosine");
  CHECK(run.schedule.decay_steps == 500);
  CHECK(run.schedule.min_learning_rate == doctest::Approx(2e-9));
}

TEST_CASE("a config that does not agree with the command line is refused") {
  const char* const fp16 = R"("fp16": {"enabled": true}, )";
  const auto with = [&](const char* rest) { return std::string("{") + fp16 + rest + "}"; };
  refuses(with(R"("train_micro_batch_size_per_gpu": 4)").c_str(),
          R"(ds.json: train_micro_batch_size_per_gpu: must be that of --per_device_train_batch_size, 2, or "auto"; given 4)");
  refuses(with(R"("train_batch_size": 64)").c_str(),
          "ds.json: train_batch_size: must be micro-batch size x gradient accumulation x data-parallel ranks = 2 x 8 x 8 = 128; given 64");
  refuses(with(R"("gradient_clipping": 0.5)").c_str(),
          R"(ds.json: gradient_clipping: must be that of --max_grad_norm, 1, or "auto"; given 0.5)");
  refuses(with(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-4}})").c_str(),
          R"(ds.json: optimizer.params.lr: must be that of --learning_rate, 2e-05, or "auto"; given 0.0001)");
  refuses(with(R"("optimizer": {"type": "AdamW"})").c_str(),
          R"(ds.json: optimizer.params.lr: must be given, as "auto" or 2e-05: without it, DeepSpeed takes 0.001, not --learning_rate)");
  refuses(with(R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}})").c_str(),
          R"(ds.json: optimizer.params.betas: must be those of --adam_beta1 and --adam_beta2, [0.9,0.999], or "auto"; given [0.9,0.95])");
  refuses(R"({"fp16": {"enabled": false}})", R"(ds.json: fp16.enabled: must be that of --fp16, true, or "auto"; given false)");
  refuses("{}", "ds.json: fp16: must be enabled, because --fp16 is given");
  refuses(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})",
          R"(ds.json: bf16.enabled: must be that of --bf16, false, or "auto"; given true)");
  refuses(
      with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}})").c_str(),
      R"(ds.json: scheduler.params.warmup_num_steps: must be "auto" with a ratio of warm-up steps, whose number depends on the data; given 10)");
}

TEST_CASE("what is unknown, of another type, or not there is refused with its path") {
  const run_description plain = run_of_trainer("fp32");
  refuses(R"({"zero_optimisation": {"stage": 2}})", "ds.json: zero_optimisation: there is no such key; did you mean 'zero_optimization'?",
          plain);
  refuses(R"({"zero_optimization": {"stages": 2}})", "ds.json: zero_optimization.stages: there is no such key; did you mean 'stage'?",
          plain);
  refuses(R"({"zero_optimization": {"stage": 4}})", "ds.json: zero_optimization.stage: must be 0, 1, 2 or 3; given 4", plain);
  refuses(R"({"zero_optimization": {"stage": "2"}})",
          "ds.json: zero_optimization.stage: must be a non-negative integer; given \"2\"", plain);
  refuses(R"({"zero_optimization": []})", "ds.json: zero_optimization: must be an object; given []", plain);
  refuses(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
          "ds.json: zero_optimization.offload_param: must be used with stage 3; given {\"device\":\"cpu\"}", plain);
  refuses(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}})",
          "ds.json: zero_optimization.offload_optimizer.nvme_path: must be given, a folder for the files", plain);
  refuses(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})",
          "ds.json: zero_optimization.zero_quantized_weights: must be off: values are not quantized on their way; given true", plain);
  refuses(R"({"optimizer": {"type": "OneBitAdam"}})", "ds.json: optimizer.type: must be AdamW, Adam or Lion; given \"OneBitAdam\"", plain);
  refuses(R"({"optimizer": {"type": "Adam", "params": {"lr": "auto", "adam_w_mode": false, "weight_decay": 0.1}}})",
          R"(ds.json: optimizer.params.weight_decay: must be that of --weight_decay, 0, or "auto"; given 0.1)", plain);
  refuses(R"({"scheduler": {"type": "OneCycle"}})",
          "ds.json: scheduler.type: must be WarmupLR, WarmupDecayLR or WarmupCosineLR; given \"OneCycle\"", plain);
  refuses(R"({"sequence_parallel_size": 2})", "ds.json: sequence_parallel_size: must be 1; given 2", plain);
  CHECK_NOTHROW(applied(R"({"sequence_parallel_size": 1})", plain));
  refuses(R"({"elasticity": {"enabled": true}})", "ds.json: elasticity: must be off: not supported; given {\"enabled\":true}", plain);
  refuses(R"({"amp": {"enabled": true}})", "ds.json: amp: must be off: not supported; given {\"enabled\":true}", plain);
  refuses(R"({"torch_autocast": {"enabled": true, "dtype": "bfloat16"}})",
          "ds.json: torch_autocast: must be off: fp16 and bf16 say what is computed in 16 bits; given {\"dtype\":\"bfloat16\",\"enabled\":true}", plain);
  refuses(R"({"zenflow": {"topk_ratio": 0.05}})", "ds.json: zenflow: must be off: not supported; given {\"topk_ratio\":0.05}", plain);
  CHECK_NOTHROW(applied(R"({"torch_autocast": {"enabled": false}})", plain));
  CHECK_NOTHROW(applied(R"({"amp": {"enabled": "auto", "opt_level": "auto"}, "_comment": "x", "elasticity": {"enabled": false}})", plain));
}

TEST_CASE("Megatron's use of a config: nothing is automatic, and the config decides") {
  const deepspeed_context megatron{
      .data_parallel_ranks = 8, .fills_auto = false, .must_agree = false, .micro_batch_size = "--micro-batch-size"};
  const run_description run =
      applied(R"({"train_batch_size": 128, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5, "fp16": {"enabled": true},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}})",
              run_of_trainer(), megatron);
  CHECK(run.optimizer.max_grad_norm == 0.5);
  CHECK(run.schedule.learning_rate == 1e-4);
  CHECK(run.optimizer.settings.at("beta2") == 0.95);
  refuses(R"({"train_batch_size": "auto", "fp16": {"enabled": true}})",
          "ds.json: train_batch_size: must be a value; given \"auto\", which is transformers'", run_of_trainer(), megatron);
  refuses(R"({"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}})",
          "ds.json: train_micro_batch_size_per_gpu: must be that of --micro-batch-size, 2; given 4", run_of_trainer(), megatron);
  refuses(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}, "fp16": {"enabled": true}})",
          "ds.json: optimizer.params.adam_w_mode: must be true: a weight decay that is added to gradients is not supported; given false",
          run_of_trainer(), megatron);
}
