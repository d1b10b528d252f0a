#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/deepspeed.hpp>

namespace xtrain {

namespace detail {

/// One object of a DeepSpeed config. finish() refuses keys that were not read.
class deepspeed_object {
 public:
  deepspeed_object(const json& values, std::string path, std::string file, run_description& run)
      : values_(values), path_(std::move(path)), file_(std::move(file)), run_(run) {
    require<config_error>(values_.is_object(), file_, ": ", path_.empty() ? "" : path_ + ": ", "must be an object; given ",
                          text_of(values_));
  }

  [[nodiscard]] bool has(const char* name) { return find(name) != nullptr; }
  [[nodiscard]] bool is_auto(const char* name) {
    const json* const value = find(name);
    return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == "auto";
  }
  /// `otherwise`: for a missing key or null.
  template <class T>
  [[nodiscard]] T get(const char* name, T otherwise) {
    const json* const value = find(name);
    if (value == nullptr || value->is_null()) return otherwise;
    if constexpr (std::is_same_v<T, bool>) {
      if (!value->is_boolean()) wrong(name, "true or false");
      return value->get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value->is_string()) wrong(name, "a string");
      return value->get<std::string>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool whole = value->is_number_float() && value->get<double>() >= 0.0 && value->get<double>() < 1e15 &&
                         std::floor(value->get<double>()) == value->get<double>();
      if (!value->is_number_unsigned() && !whole) wrong(name, "a non-negative integer");
      return value->is_number_unsigned() ? value->get<T>() : static_cast<T>(value->get<double>());
    } else {
      if (!value->is_number()) wrong(name, "a number");
      return value->get<T>();
    }
  }
  [[nodiscard]] json two_numbers(const char* name) {
    const json& value = *find(name);
    if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number()) wrong(name, "two numbers");
    return value;
  }
  [[nodiscard]] deepspeed_object part(const char* name) {
    const static json none = json::object();
    const json* const value = find(name);
    return {value == nullptr || value->is_null() ? none : *value, name_of(name), file_, run_};
  }
  [[noreturn]] void wrong(const char* name, const std::string& must_be) {
    fail<config_error>(file_, ": ", name_of(name), ": must be ", must_be, "; given ", text_of(*find(name)));
  }
  void note(const std::string& text) { run_.notes.push_back(concat(file_, ": ", path_.empty() ? "" : path_ + ": ", text)); }

  void without_effect(std::initializer_list<const char*> names, const char* why) {
    std::string given;
    for (const char* name : names)
      if (has(name)) given += concat(given.empty() ? "" : ", ", name_of(name));
    if (!given.empty()) run_.notes.push_back(concat(file_, ": ", given, ": ", why));
  }
  void must_be_off(std::initializer_list<const char*> names, const char* why) {
    for (const char* name : names) {
      const json* value = find(name);
      if (value == nullptr) continue;
      if (value->is_object()) {
        const auto enabled = value->find("enabled");
        if (value->empty() || (enabled != value->end() && (is_off(*enabled) || *enabled == "auto"))) continue;
      } else if (is_off(*value)) continue;
      wrong(name, concat("off: ", why));
    }
  }
  void must_be_on(std::initializer_list<const char*> names, const char* why) {
    for (const char* name : names)
      if (!get(name, true)) wrong(name, concat("true: ", why));
  }
  /// throws config_error with the nearest known key
  void finish() {
    for (const auto& [name, value] : values_.items()) {
      if (name.starts_with("_") || std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const std::string near = nearest_name(name, known_);
      fail<config_error>(file_, ": ", name_of(name), ": there is no such key", near.empty() ? "" : "; did you mean '" + near + "'?");
    }
  }

  [[nodiscard]] std::string name_of(std::string_view name) const { return path_.empty() ? std::string(name) : concat(path_, ".", name); }
  [[nodiscard]] static std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

 private:
  [[nodiscard]] static bool is_off(const json& value) {
    if (value.is_null()) return true;
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number()) return value.get<double>() == 0.0;
    return (value.is_array() || value.is_string()) && value.empty();
  }
  [[nodiscard]] const json* find(const char* name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
    const auto at = values_.find(name);
    return at == values_.end() ? nullptr : &*at;
  }

  const json& values_;
  std::string path_, file_;
  run_description& run_;
  std::vector<std::string> known_{};
};

class deepspeed_reader {
 public:
  deepspeed_reader(run_description& run, const json& config, const std::string& file, const deepspeed_context& context)
      : run_(run), file_(file), context_(context), all_(config, "", file, run) {}

  void read() {
    run_.follows += concat(run_.follows.empty() ? "" : ", ", "DeepSpeed 0.19.8");
    batch_sizes();
    precision();
    zero();
    optimizer();
    scheduler();
    clipping();
    rest();
    all_.finish();
  }

 private:
  /// The value of a key that the run also has: "auto" is the run's.
  template <class T>
  [[nodiscard]] T agreed(deepspeed_object& object, const char* name, T of_run, const std::string& flag, bool must_agree) {
    if (object.is_auto(name)) {
      require_auto(object, name);
      return of_run;
    }
    const T value = object.get(name, of_run);
    if (value != of_run && must_agree)
      object.wrong(name, concat("that of ", flag, ", ", of_run, context_.fills_auto ? R"(, or "auto")" : ""));
    return value;
  }
  void require_auto(deepspeed_object& object, const char* name) const {
    require<config_error>(context_.fills_auto, file_, ": ", object.name_of(name),
                          R"(: must be a value; given "auto", which is transformers')");
  }

  void batch_sizes() {
    const std::size_t micro = agreed(all_, "train_micro_batch_size_per_gpu", run_.micro_batch_size, context_.micro_batch_size, true);
    const std::size_t steps =
        agreed(all_, "gradient_accumulation_steps", run_.gradient_accumulation_steps, context_.gradient_accumulation_steps, true);
    const std::size_t product = micro * steps * context_.data_parallel_ranks;
    if (all_.is_auto("train_batch_size")) return require_auto(all_, "train_batch_size");
    if (all_.get("train_batch_size", product) != product)
      all_.wrong("train_batch_size", concat("micro-batch size x gradient accumulation x data-parallel ranks = ", micro, " x ", steps, " x ",
                                            context_.data_parallel_ranks, " = ", product));
  }

  void precision() {
    deepspeed_object fp16 = all_.part("fp16");
    deepspeed_object bf16 = all_.part(all_.has("bfloat16") ? "bfloat16" : "bf16");
    (void)all_.has("bf16");
    const bool run_fp16 = run_.precision == "fp16_mixed", run_bf16 = run_.precision.starts_with("bf16");
    const auto enabled = [&](deepspeed_object& object, bool given, bool of_run, const std::string& flag) {
      if (object.is_auto("enabled")) {
        require_auto(object, "enabled");
        return of_run;
      }
      const bool value = object.get("enabled", given && !context_.must_agree);
      if (given && object.has("enabled") && value != of_run)
        object.wrong("enabled", concat("that of ", flag, ", ", of_run ? "true" : "false", context_.fills_auto ? R"(, or "auto")" : ""));
      return value;
    };
    const bool is_fp16 = enabled(fp16, all_.has("fp16"), run_fp16, context_.fp16);
    const bool is_bf16 = enabled(bf16, all_.has("bf16") || all_.has("bfloat16"), run_bf16, context_.bf16);
    require<config_error>(!(is_fp16 && is_bf16), file_, ": fp16.enabled: must not be true beside bf16.enabled");
    require<config_error>(is_fp16 || !run_fp16, file_, ": fp16: must be enabled, because ", context_.fp16, " is given");
    require<config_error>(is_bf16 || !run_bf16, file_, ": bf16: must be enabled, because ", context_.bf16, " is given");

    const double fixed = fp16.get("loss_scale", 0.0);
    const auto power = fp16.get("initial_scale_power", 16.0);
    const auto window = fp16.get<std::size_t>("loss_scale_window", 1000), hysteresis = fp16.get<std::size_t>("hysteresis", 2);
    const double smallest = fp16.get("min_loss_scale", 1.0);
    if (power < 0.0 || power > 64.0) fp16.wrong("initial_scale_power", "from 0 to 64");
    if (fixed < 0.0) fp16.wrong("loss_scale", "0 for a dynamic scale, or positive");
    if (fp16.get("consecutive_hysteresis", false) && hysteresis > 1)
      fp16.wrong("consecutive_hysteresis", "false with a hysteresis above 1");
    fp16.must_be_off({"fp16_master_weights_and_grads"}, "master weights are fp32");
    fp16.without_effect({"auto_cast", "opt_level"}, "norms, softmax and losses are computed in fp32 here in any case");
    if (is_fp16 && fixed > 0.0)
      run_.loss_scale = {{"initial", fixed}, {"min", fixed}, {"window", std::size_t{1} << 50U}, {"hysteresis", 1}};
    else if (is_fp16) run_.loss_scale = {{"initial", std::exp2(power)}, {"min", smallest}, {"window", window}, {"hysteresis", hysteresis}};
    bf16.must_be_off({"bf16_master_weights_and_grads", "bf16_optimizer_states"}, "master weights and the optimizer's state are fp32");
    bf16.without_effect({"immediate_grad_update", "check_grad_overflow"}, "a step whose gradients are not finite is always left out");
    bf16.must_be_off({"auto_cast"}, "not supported");
    fp16.finish(), bf16.finish();

    deepspeed_object types = all_.part("data_types");
    const std::string sums = types.get<std::string>("grad_accum_dtype", ""), sent = all_.get<std::string>("communication_data_type", "");
    if (const std::string weights = types.get<std::string>("param_dtype", ""); !weights.empty() && weights != (is_bf16 ? "bf16" : is_fp16 ? "fp16" : "fp32"))
      types.wrong("param_dtype", "the dtype that is enabled");
    types.without_effect({"buffer_dtype", "keep_in_fp32_modules"}, "positions and masks are computed in fp32 here in any case");
    types.finish();
    const auto is_fp32 = [](const std::string& name) { return name == "fp32"; };
    const auto known = [&](const std::string& name) {
      return name.empty() || is_fp32(name) || (name == "bf16" && is_bf16) || (name == "fp16" && is_fp16);
    };
    if (!known(sums)) types.wrong("grad_accum_dtype", "the dtype that is enabled, or fp32");
    if (!known(sent)) all_.wrong("communication_data_type", "the dtype that is enabled, or fp32");
    if (is_fp16 && is_fp32(sums)) types.wrong("grad_accum_dtype", "fp16: with fp16, gradients are fp16");
    if (is_fp16 && is_fp32(sent)) all_.wrong("communication_data_type", "fp16: with fp16, gradients are fp16");
    sums_in_fp32_ = is_fp32(sums) || is_fp32(sent);
    is_bf16_ = is_bf16;
    run_.precision = is_fp16 ? "fp16_mixed" : is_bf16 ? "bf16_mixed" : "fp32";
  }

  void zero() {
    deepspeed_object zero = all_.part("zero_optimization");
    run_.parallel.zero = zero.get<std::size_t>("stage", 0);
    if (run_.parallel.zero > 3) zero.wrong("stage", "0, 1, 2 or 3");
    if (is_bf16_ && !sums_in_fp32_) run_.precision = "bf16_gradients";

    const std::string optimizer = offload(zero, "offload_optimizer"), weights = offload(zero, "offload_param");
    if (!optimizer.empty() && run_.parallel.zero == 0) zero.wrong("offload_optimizer", "used with a stage of 1, 2 or 3");
    if (!weights.empty() && run_.parallel.zero != 3) zero.wrong("offload_param", "used with stage 3");
    if (optimizer == "cpu" && run_.device != "cpu" && run_.device != "npu") run_.offload = "optimizer";
    if (optimizer == "nvme" || weights == "nvme") {
      if (optimizer != "nvme") zero.wrong("offload_param", "used with offload_optimizer to nvme, too: weights alone are not offloaded to files");
      run_.offload = weights == "nvme" ? "optimizer+weights" : "optimizer";
    }
    zero.must_be_off({"cpu_offload_params"}, "it is offload_param today");
    if (run_.device != "cpu" && run_.device != "npu" && zero.get<bool>("cpu_offload", false)) run_.offload = "optimizer";
    zero.without_effect({"cpu_offload", "cpu_offload_use_pin_memory"}, run_.device == "cpu"   ? "host memory is the cpu device's own"
                                                                       : run_.device == "npu" ? "optimizer state stays on the NPU, divided among the ranks"
                                                                                              : "what is offloaded is in pinned memory of the host");
    run_.parallel.shards = zero.get<std::size_t>("mics_shard_size", 0);
    if (run_.parallel.shards > 0 && run_.parallel.zero != 3) zero.wrong("mics_shard_size", "used with stage 3");
    zero.must_be_off({"zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights"},
                     "values are not quantized on their way");
    zero.must_be_off({"zeropp_loco_param"}, "gradients are not quantized on their way");
    zero.without_effect({"zero_hpz_partition_size", "mics_hierarchical_params_gather"}, "how weights are gathered changes no result");
    all_.must_be_on({"managed_gradient_accumulation"}, "a step is made of gradient_accumulation_steps micro-batches");
    if (const std::string sum = all_.get<std::string>("gradient_allreduce_op", "mean"); sum != "mean") all_.wrong("gradient_allreduce_op", "mean");
    zero.without_effect({"compute_grad_norm", "parameter_alignment"}, "the norm of the gradients is always computed");
    zero.without_effect({"allgather_partitions",
                         "allgather_bucket_size",
                         "overlap_comm",
                         "reduce_scatter",
                         "reduce_bucket_size",
                         "contiguous_gradients",
                         "use_multi_rank_bucket_allreduce",
                         "round_robin_gradients",
                         "sub_group_size",
                         "stage3_max_live_parameters",
                         "stage3_max_reuse_distance",
                         "stage3_prefetch_bucket_size",
                         "stage3_param_persistence_threshold",
                         "stage3_model_persistence_threshold",
                         "memory_efficient_linear",
                         "module_granularity_threshold",
                         "use_all_reduce_for_fetch_params",
                         "override_module_apply",
                         "grad_hooks",
                         "legacy_stage1",
                         "log_trace_cache_warnings",
                         "stage3_allgather_sequential",
                         "leaf_module",
                         "save_muon_momentum_buffer_in_memory",
                         "allow_nccl_and_mpi"},
                        "sizes of buffers and the order of messages change no result, and are chosen here by the library");
    zero.without_effect({"stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"},
                        "the saved model is always whole");
    zero.without_effect({"elastic_checkpoint", "load_from_fp32_weights", "pipeline_loading_checkpoint"},
                        "checkpoints can always be read on another number of ranks");
    zero.without_effect({"ignore_unused_parameters"}, "every parameter has a gradient here");
    zero.finish();
  }
  [[nodiscard]] std::string offload(deepspeed_object& zero, const char* name) {
    deepspeed_object object = zero.part(name);
    std::string device = object.get<std::string>("device", "");
    if (device == "none") device.clear();
    const std::string folder = object.get<std::string>("nvme_path", "");
    if (!device.empty() && device != "cpu" && device != "nvme") object.wrong("device", "none, cpu or nvme");
    if (device == "nvme" && run_.device != "cpu") object.wrong("device", concat("none or cpu: files are for the device cpu, and the run is on ", run_.device));
    if (device == "cpu")
      object.note(run_.device == "cpu"                      ? "device cpu: the cpu device's memory is host memory"
                  : run_.device == "npu" && std::string_view(name) != "offload_param"
                      ? "device cpu: optimizer state stays on the NPU, divided among the ranks: its operators cannot address host memory"
                  : std::string_view(name) == "offload_param" ? "device cpu: weights stay on the device, sharded among the ranks"
                                                            : "device cpu: optimizer state is in pinned memory of the host");
    if (device == "nvme") {
      require<config_error>(!folder.empty(), file_, ": ", object.name_of("nvme_path"), ": must be given, a folder for the files");
      require<config_error>(run_.offload_folder.empty() || run_.offload_folder == folder, file_, ": ", object.name_of("nvme_path"),
                            ": must be one folder for all that is offloaded; given ", folder, " and ", run_.offload_folder);
      run_.offload_folder = folder;
    }
    object.without_effect({"pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "pipeline_read", "pipeline_write", "pipeline",
                           "fast_init", "ratio", "super_offload", "cpuadam_cores_perc"},
                          "buffers of offloading change no result, and are chosen here by the library");
    object.finish();
    return device;
  }

  void optimizer() {
    if (!all_.has("optimizer")) return;
    deepspeed_object object = all_.part("optimizer");
    const std::string type = object.get<std::string>("type", "");
    if (type.empty()) fail<config_error>(file_, ": optimizer.type: must be given: AdamW, Adam or Lion");
    std::string name = type;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (name != "adam" && name != "adamw" && name != "lion") object.wrong("type", "AdamW, Adam or Lion");
    const bool is_lion = name == "lion";
    if (context_.must_agree && context_.fills_auto && !run_.optimizer.kind.starts_with("adamw") && run_.optimizer.kind != name)
      object.wrong("type", concat("the only optimizer: --optim asks for ", run_.optimizer.kind));
    deepspeed_object params = object.part("params");
    json& settings = run_.optimizer.settings;
    // transformers does not fill missing keys: DeepSpeed's default applies
    const auto same_without = [&](const char* key, const json& of_run, const json& theirs, const std::string& flag) {
      require<config_error>(!context_.must_agree || !context_.fills_auto || params.has(key) || of_run == theirs, file_, ": ", params.name_of(key),
                            R"(: must be given, as "auto" or )", of_run.dump(), ": without it, DeepSpeed takes ", theirs.dump(), ", not ", flag);
    };
    same_without("lr", run_.schedule.learning_rate, is_lion ? 1e-4 : 1e-3, context_.learning_rate);
    same_without("weight_decay", settings.value("weight_decay", 0.0), 0.0, context_.weight_decay);
    if (!is_lion) same_without("eps", settings.value("epsilon", 1e-8), 1e-8, context_.epsilon);
    same_without("betas", {settings.value("beta1", 0.9), settings.value("beta2", is_lion ? 0.99 : 0.999)}, {0.9, is_lion ? 0.99 : 0.999}, context_.betas);
    run_.schedule.learning_rate =
        agreed(params, "lr", context_.must_agree ? run_.schedule.learning_rate : 1e-3, context_.learning_rate, context_.must_agree);
    json betas = {settings.value("beta1", 0.9), settings.value("beta2", is_lion ? 0.99 : 0.999)};
    if (params.is_auto("betas")) require_auto(params, "betas");
    else if (params.has("betas")) {
      const json given = params.two_numbers("betas");
      if (context_.must_agree && given != betas)
        params.wrong("betas", concat("those of ", context_.betas, ", ", betas.dump(), R"(, or "auto")"));
      betas = given;
    }
    const double epsilon = agreed(params, "eps", settings.value("epsilon", 1e-8), context_.epsilon, context_.must_agree);
    const double weight_decay =
        agreed(params, "weight_decay", settings.value("weight_decay", 0.0), context_.weight_decay, context_.must_agree);
    const bool decoupled = params.get("adam_w_mode", true) || name == "adamw";
    if (!decoupled && weight_decay != 0.0) params.wrong("adam_w_mode", "true: a weight decay that is added to gradients is not supported");
    if (!params.get("bias_correction", true)) params.wrong("bias_correction", "true");
    params.must_be_off({"amsgrad"}, "not supported");
    params.without_effect({"torch_adam", "fused", "foreach", "set_grad_none", "fp32_optimizer_states"},
                          "which implementation computes an update changes no result");
    params.finish();
    object.must_be_off({"legacy_fusion"}, "not supported");
    object.finish();
    run_.optimizer.kind = is_lion ? "lion" : "adamw";
    settings = {{"beta1", betas[0]}, {"beta2", betas[1]}, {"weight_decay", weight_decay}};
    if (!is_lion) settings["epsilon"] = epsilon;
    run_.optimizer.decays = "all";
  }

  void scheduler() {
    if (!all_.has("scheduler")) return;
    deepspeed_object object = all_.part("scheduler");
    const std::string type = object.get<std::string>("type", "");
    if (type.empty()) fail<config_error>(file_, ": scheduler.type: must be given: WarmupLR, WarmupDecayLR or WarmupCosineLR");
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
      object.wrong("type", "WarmupLR, WarmupDecayLR or WarmupCosineLR");
    const bool is_cosine = type == "WarmupCosineLR";
    deepspeed_object params = object.part("params");
    schedule_description& schedule = run_.schedule;
    schedule_description made{.learning_rate = schedule.learning_rate, .from_zero = true};
    made.kind = type == "WarmupLR" ? "constant" : type == "WarmupDecayLR" ? "linear" : "cosine";
    made.settings = {{"as_deepspeed", true}, {"log_warmup", params.get<std::string>("warmup_type", "log") == "log"}};
    if (run_.precision == "fp16_mixed") made.settings["counts_updates"] = true;  // overflow steps do not advance DeepSpeed's scheduler
    if (const std::string shape = params.get<std::string>("warmup_type", "log"); shape != "log" && shape != "linear")
      params.wrong("warmup_type", "log or linear");

    if (params.is_auto("warmup_num_steps")) {
      require_auto(params, "warmup_num_steps");
      made.warmup_steps = schedule.warmup_steps;
      made.warmup_ratio = schedule.warmup_ratio;
    } else {
      made.warmup_steps = params.get<std::size_t>("warmup_num_steps", 1000);
      if (made.warmup_steps == 0) params.wrong("warmup_num_steps", "positive");
      if (context_.must_agree && params.has("warmup_num_steps")) {
        if (schedule.warmup_steps == 0 && schedule.warmup_ratio > 0.0)
          params.wrong("warmup_num_steps", R"("auto" with a ratio of warm-up steps, whose number depends on the data)");
        if (made.warmup_steps != std::max<std::size_t>(1, schedule.warmup_steps))
          params.wrong("warmup_num_steps",
                       concat("that of ", context_.warmup_steps, ", ", std::max<std::size_t>(1, schedule.warmup_steps), R"(, or "auto")"));
      }
    }
    if (is_cosine) {
      if (params.get("warmup_min_ratio", 0.0) != 0.0) params.wrong("warmup_min_ratio", "0");
      const double smallest = params.get("cos_min_ratio", 1e-4);
      if (smallest < 0.0 || smallest > 1.0) params.wrong("cos_min_ratio", "from 0 to 1");
      made.min_learning_rate = smallest * made.learning_rate;
    } else {
      double first = 0.0;
      if (params.is_auto("warmup_min_lr")) require_auto(params, "warmup_min_lr");
      else first = params.get("warmup_min_lr", 0.0);
      const double of_run = context_.must_agree || type == "WarmupLR" ? made.learning_rate : 1e-3;
      made.learning_rate = params.has("warmup_max_lr")
                               ? agreed(params, "warmup_max_lr", of_run, context_.learning_rate, context_.must_agree)
                               : (type == "WarmupLR" ? made.learning_rate : 1e-3);
      if (first < 0.0 || first > made.learning_rate) params.wrong("warmup_min_lr", concat("from 0 to warmup_max_lr, ", made.learning_rate));
      if (first > 0.0) made.settings["warmup_init"] = first;
      made.min_learning_rate = first;
    }
    if (type != "WarmupLR") {
      if (params.is_auto("total_num_steps")) require_auto(params, "total_num_steps");
      else {
        require<config_error>(params.has("total_num_steps"), file_, ": scheduler.params.total_num_steps: must be given",
                              context_.fills_auto ? R"(, or "auto")" : "");
        made.decay_steps = params.get<std::size_t>("total_num_steps", 0);
        if (made.decay_steps == 0) params.wrong("total_num_steps", "positive");
        if (context_.must_agree && run_.max_steps > 0 && made.decay_steps != run_.max_steps)
          params.wrong("total_num_steps", concat("that of ", context_.max_steps, ", ", run_.max_steps, R"(, or "auto")"));
      }
    } else params.without_effect({"total_num_steps"}, "WarmupLR does not end");
    params.without_effect({"last_batch_iteration"}, "a checkpoint says where a schedule goes on");
    params.finish(), object.finish();
    if (context_.must_agree && schedule.kind != made.kind)
      object.note(concat("the config's ", type, " is used, not the run's schedule '", schedule.kind, "'"));
    schedule = made;
  }

  /// Default: 1.0 from DeepSpeed 0.19.3 on; earlier, no clipping.            [DeepSpeed 0.19.8, runtime/constants.py: GRADIENT_CLIPPING_DEFAULT]
  void clipping() {
    double& of_run = run_.optimizer.max_grad_norm;
    const bool given = all_.has("gradient_clipping");
    if (context_.must_agree && given) of_run = agreed(all_, "gradient_clipping", of_run, context_.max_grad_norm, true);
    else {
      const double norm = all_.get("gradient_clipping", 1.0);
      const bool differs = of_run > 0.0 && norm != of_run;
      if (!given)
        run_.notes.push_back(concat(file_, ": gradient_clipping: is not given: 1, the default of DeepSpeed from 0.19.3 on (before, nothing was clipped: ",
                                    "\"gradient_clipping\": 0.0)", differs ? concat("; ", context_.max_grad_norm, " is not used") : std::string()));
      else if (differs) run_.notes.push_back(concat(file_, ": gradient_clipping: is ", norm, "; ", context_.max_grad_norm, " is not used"));
      of_run = norm;
    }
    if (of_run < 0.0) all_.wrong("gradient_clipping", "not negative");
  }

  void rest() {
    all_.without_effect(
        {"steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "flops_profiler", "comms_logger", "timers"},
        "what is printed beside the run's own lines changes no result");
    all_.without_effect({"activation_checkpointing"},
                        "it configures DeepSpeed's own function, which changes no result; recompute follows the program's flag");
    all_.without_effect(
        {"zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients", "gradient_predivide_factor",
         "disable_allgather", "seq_parallel_communication_data_type", "aio", "compile", "hybrid_engine", "nebula", "use_node_local_storage",
         "graph_harvesting", "use_data_before_expert_parallel_", "dataloader_drop_last", "disable_python_gc", "log_level"},
        "it changes no result");
    all_.must_be_off({"sparse_gradients", "sparse_attention", "amp", "elasticity", "autotuning", "curriculum_learning", "data_efficiency",
                      "progressive_layer_drop", "eigenvalue", "quantize_training", "compression_training", "weight_quantization",
                      "tensor_parallel", "zenflow", "expert_parallel"},
                     "not supported");
    if (all_.get<std::size_t>("sequence_parallel_size", 1) > 1) all_.wrong("sequence_parallel_size", "1");
    all_.must_be_off({"torch_autocast"}, "fp16 and bf16 say what is computed in 16 bits");
    for (const char* name : {"wandb", "csv_monitor", "comet", "monitor_config", "trackio"})
      all_.must_be_off({name}, "only tensorboard is written");
    if (all_.has("pipeline")) all_.must_be_off({"pipeline"}, "pipeline stages are the program's flag");
    deepspeed_object tensorboard = all_.part("tensorboard");
    const std::string folder = tensorboard.get<std::string>("output_path", ""),
                      job = tensorboard.get<std::string>("job_name", "DeepSpeedJobName");
    if (tensorboard.get("enabled", false))
      run_.output.tensorboard = concat(folder, folder.empty() || folder.ends_with('/') ? "" : "/", job);
    tensorboard.finish();
    deepspeed_object checkpoint = all_.part("checkpoint");
    checkpoint.without_effect({"tag_validation", "load_universal", "use_node_local_storage", "parallel_write", "writer"},
                              "checkpoints are this library's, and can be read on another number of ranks");
    checkpoint.finish();
  }

  run_description& run_;
  const std::string& file_;
  const deepspeed_context& context_;
  deepspeed_object all_;
  bool sums_in_fp32_ = false, is_bf16_ = false;
};

}  // namespace detail

XTRAIN_INLINE void apply_deepspeed(run_description& run, const json& config, const std::string& file, const deepspeed_context& context) {
  detail::deepspeed_reader(run, config, file, context).read();
}

}  // namespace xtrain
