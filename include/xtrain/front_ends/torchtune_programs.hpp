// A torchtune config without training, as a call of another program: generate, evaluate, convert.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/eval/benchmark_task.hpp>
#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_sections.hpp>
#include <xtrain/front_ends/torchtune_values.hpp>
#include <xtrain/front_ends/yaml.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// Call one of its functions, once.
class tune_programs : tune_reader {
 public:
  using tune_reader::tune_reader;

  [[nodiscard]] torchtune_call generate() {
    torchtune_call call = program("generate");
    if (call.device == "cpu" && call.dtype == "bf16") call.program = "generate_bf16";
    run_description tokens;
    tokenize(tokens);
    const auto add = [&](const char* flag, const std::string& value) { call.arguments.insert(call.arguments.end(), {flag, value}); };
    if (!tokens.tokenizer.merges.empty()) note("tokenizer.merges_file", "the merges are those beside the vocabulary");
    add("--tokenizer", tokens.tokenizer.path);
    add("--log-style", "torchtune");
    call.arguments.emplace_back("--chat");
    add("--chat-template", tokens.tokenizer.chat_template);
    const yaml_value* prompt = top_.get("prompt");
    if (prompt == nullptr) top_.wrong("prompt", "must be given");
    std::string user;
    if (prompt->is_text()) {
      user = prompt->text;
    } else {
      tune_section section = top_.section("prompt");
      if (const std::string system = section.text("system"); !system.empty()) add("--system", system);
      if (const yaml_value* of = section.get("user"); of != nullptr && of->is_map()) {
        tune_section parts = section.section("user");
        if (parts.has("image")) parts.wrong("image", "must be left out: vision models are not supported");
        user = parts.required_text("text");
        parts.finish();
      } else {
        user = section.required_text("user");
      }
      section.finish();
    }
    add("--prompt", user);
    add("--max-new-tokens", concat(top_.required_positive("max_new_tokens")));
    const double temperature = top_.number("temperature", 1.0);
    if (temperature < 0.0) top_.wrong("temperature", "must not be negative");
    add("--temperature", concat(temperature));
    add("--top-k", concat(top_.count("top_k", 0)));
    if (top_.has("seed")) add("--seed", concat(top_.count("seed", 0)));
    if (name_is("dev/generate_v2_distributed")) {
      top_.asks_for({"tensor_parallel_plan"});
      if (launch_.ranks > 1)
        fail<config_error>("--nproc_per_node: must be 1 for ", recipe_.name, ": start generate itself with tensor-parallel ranks; given ", launch_.ranks);
    }
    top_.finish();
    call.notes = notes_;
    return call;
  }
  [[nodiscard]] torchtune_call evaluate() {
    torchtune_call call = program("evaluate");
    if (call.device == "cpu" && call.dtype == "bf16") note("dtype", "evaluate computes in fp32, with the bf16 weights of the folder");
    run_description tokens;
    tokenize(tokens);
    const auto add = [&](const char* flag, const std::string& value) { call.arguments.insert(call.arguments.end(), {flag, value}); };
    add("--tokenizer", tokens.tokenizer.path);
    std::string tasks;
    for (const std::string& task : top_.texts("tasks")) {
      try {
        (void)benchmark_tasks_named(task);
      } catch (const config_error& problem) {
        top_.wrong("tasks", concat("must be tasks of evaluate, which --list-tasks lists: ", problem.what()));
      }
      tasks += (tasks.empty() ? "" : ",") + task;
    }
    if (tasks.empty()) top_.wrong("tasks", "must name a task");
    add("--tasks", tasks);
    if (top_.has("limit")) add("--limit", concat(top_.positive("limit", 1)));
    add("--batch-size", concat(top_.positive("batch_size", 8)));
    if (top_.has("max_seq_length")) add("--max-length", concat(top_.positive("max_seq_length", 1)));
    if (top_.has("seed")) note("seed", "few-shot examples are drawn as the harness draws them; --fewshot-seed of evaluate changes that");
    top_.must_be_null("include_path", "tasks are those that evaluate lists; --list-tasks");
    top_.finish();
    call.notes = notes_;
    return call;
  }

  [[nodiscard]] torchtune_call convert() {
    torchtune_call call;
    call.program = "convert";
    const model_use model = model_at("model");
    tune_section section = top_.section("model");
    if (model.use.lora) section.wrong("_component_", "must not be a builder of LoRA: merge the adapter first");
    const checkpoint weights = checkpointer("checkpointer", *model.use.model, false);
    if (weights.output.empty()) top_.section("checkpointer").wrong("output_dir", "must be given");
    const auto from = std::filesystem::weakly_canonical(weights.folder), to = std::filesystem::weakly_canonical(weights.output);
    if (std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end())
      top_.section("checkpointer").wrong("output_dir", "must not be checkpoint_dir, or a folder in it");
    const std::string device = top_.text("device", "cpu"), dtype = top_.text("dtype", "bf16");
    if (dtype != "bf16" && dtype != "fp32") top_.wrong("dtype", "must be bf16 or fp32");
    if (device != "cpu") note("device", "weights are converted on the host");
    top_.asks_for({"output_dir", "seed", "cudnn_deterministic_mode"});
    tune_section quantizer = top_.section("quantizer");
    (void)checked_component(quantizer.values(), file_, "quantizer", true);
    const std::string component = quantizer.text("_component_");
    const bool weights_alone = component.find("Int4WeightOnly") != std::string::npos;
    const std::size_t group = quantizer.positive("groupsize", component.ends_with("Int4WeightOnlyQuantizer") ? 128 : 256);
    (void)quantizer.any("inner_k_tiles");
    for (const char* key : {"padding_allowed", "precision", "scales_precision"}) quantizer.must_be_null(key, "there is no such setting");
    quantizer.finish();
    top_.finish();
    call.arguments = {"--from", weights.folder, "--to", weights.output, "--dtype", dtype, "--quantize", weights_alone ? "int4-weight-only" : "int4",
                      "--group-size", concat(group)};
    if (weights_alone) {
      note("quantizer", "the values of rounded weights are written, not their integers");
    } else {
      call.arguments.emplace_back("--packed");
      note("quantizer",
           "integers are written in the format of compressed-tensors, which does not say that inputs are rounded; generate and evaluate read values, which "
           "convert --quantize int4 writes; integers and scales are computed in fp32, whatever dtype is");
      if (group != 32 && group != 64 && group != 128) note("quantizer", "vLLM's kernels take groups of 32, 64 and 128");
    }
    note("quantizer", "the head is not quantized");
    call.notes = notes_;
    return call;
  }

 private:
  [[nodiscard]] torchtune_call program(const std::string& name) {
    torchtune_call call;
    call.program = name;
    const model_use model = model_at("model");
    tune_section section = top_.section("model");
    if (model.use.lora) section.wrong("_component_", "must not be a builder of LoRA: merge the adapter, or call generate --adapter");
    const checkpoint weights = checkpointer("checkpointer", *model.use.model, false);
    call.device = top_.text("device", "cpu");
    const std::string kind = call.device.substr(0, call.device.find(':'));
    const bool is_card = kind == "cuda" || kind == "npu";
    if (call.device != "cpu" && !is_card)
      top_.wrong("device", concat("must be cpu, cuda or npu: the programs ", name, ", ", name, "_cuda and ", name, "_npu are compiled for these"));
    call.dtype = top_.text("dtype", "bf16");
    if (call.dtype != "bf16" && call.dtype != "fp32") top_.wrong("dtype", "must be bf16 or fp32");
    if (is_card) {
      call.program += "_" + kind;
      if (call.dtype != "bf16") top_.wrong("dtype", concat("must be bf16 on ", kind, ": ", call.program, " computes in it"));
    }
    (void)top_.any("output_dir");
    (void)top_.any("cudnn_deterministic_mode");
    (void)top_.any("log_level");
    top_.only("resume_from_checkpoint", false, "nothing is trained");
    top_.must_be_null("quantizer", "weights are not read in integers");
    if (const yaml_value* cache = top_.get("enable_kv_cache"); cache != nullptr && cache->type == yaml_value::kind::boolean && !cache->truth)
      note("enable_kv_cache", "keys and values are always kept; results are the same");
    call.arguments = {"--model", weights.folder};
    if (is_card) call.arguments.insert(call.arguments.end(), {"--device", call.device});
    call.weights = weights.folder;
    call.weight_files = weights.files;
    return call;
  }
};

}  // namespace xtrain::detail
