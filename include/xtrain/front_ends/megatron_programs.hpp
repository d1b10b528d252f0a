// Scripts of Megatron-LM and AscendSpeed without training, as calls of other programs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_command.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>

namespace xtrain::detail {

/// Flags that describe model and mesh, for programs that take both from the model's folder.
inline void ignore_model_and_mesh(megatron_arguments& flags) {
  const std::string model = "the model is that of the folder of --load";
  flags.ignore({"num-layers",
                "hidden-size",
                "ffn-hidden-size",
                "num-attention-heads",
                "kv-channels",
                "group-query-attention",
                "num-query-groups",
                "max-position-embeddings",
                "position-embedding-type",
                "use-rotary-position-embeddings",
                "rotary-base",
                "rotary-percent",
                "use-rope-scaling",
                "rope-scaling-factor",
                "make-vocab-size-divisible-by",
                "pad-vocab-size-to",
                "padded-vocab-size",
                "vocab-size",
                "normalization",
                "norm-epsilon",
                "layernorm-epsilon",
                "swiglu",
                "add-gate",
                "no-add-gate",
                "openai-gelu",
                "no-bias-gelu-fusion",
                "disable-bias-linear",
                "add-bias-linear",
                "add-qkv-bias",
                "qk-layernorm",
                "untie-embeddings-and-output-weights",
                "no-untie-embeddings-and-output-weights",
                "embed-layernorm",
                "use-checkpoint-args"},
               model);
  flags.ignore({"attention-dropout", "hidden-dropout"}, "nothing is dropped outside training");
  flags.ignore({"nproc-per-node", "nnodes", "num-gpus", "num-nodes", "tensor-model-parallel-size", "pipeline-model-parallel-size",
                "context-parallel-size", "sequence-parallel", "expert-model-parallel-size", "use-distributed-optimizer", "deepspeed",
                "deepspeed-config", "zero-stage", "no-pipeline-parallel"},
               "the program runs on one rank; the result does not depend on the mesh");
  flags.ignore({"lora-r", "lora-alpha", "lora-target-modules", "lora-modules-to-save", "lora-adapter-name"},
               "they are in the adapter's adapter_config.json");
  flags.ignore({"no-load-optim", "no-load-rng", "finetune", "exit-on-missing-checkpoint"}, "weights alone are read");
  flags.ignore({"use-flash-attn", "triangle-attn"}, std::string(megatron_reason::kernels));
  flags.ignore({"data-path", "split", "eval-iters", "eval-interval", "log-interval", "global-batch-size", "train-iters", "lr",
                "is-instruction-dataset", "checkpoint-activations", "recompute-activations"},
               "nothing is trained");
}
[[nodiscard]] inline std::string tokenizer_of(megatron_arguments& flags) {
  std::string path;
  for (const char* flag : {"vocab-file", "tokenizer-model", "tokenizer-name-or-path"})
    if (flags.has(flag)) path = flags.text(flag);
  flags.ignore({"tokenizer-type", "merge-file"}, "the kind of a tokenizer follows from its files");
  return path;
}
[[nodiscard]] inline std::string model_folder_of(megatron_arguments& flags) {
  const std::string load = flags.text("load");
  require<config_error>(!load.empty(), "--load: must be given: the model's folder");
  return load;
}

/// The program for --device, which is added to its arguments: "evaluate_cuda".
[[nodiscard]] inline std::string program_on_device(megatron_arguments& flags, const std::string& name, std::vector<std::string>& arguments) {
  const std::string device = flags.one_of("device", {"cpu", "cuda", "npu"}, "cpu");
  if (device == "cpu") return name;
  arguments.insert(arguments.end(), {"--device", device});
  return name + "_" + device;
}

inline void read_inference(megatron_command& to, megatron_arguments& flags, const megatron_script& script) {
  ignore_model_and_mesh(flags);
  std::vector<std::string> common = {"--model", model_folder_of(flags)};
  const auto add = [](std::vector<std::string>& all, const char* flag, const std::string& value) {
    all.push_back(flag), all.push_back(value);
  };
  if (flags.has("lora-load")) add(common, "--adapter", flags.text("lora-load"));
  if (const std::string path = tokenizer_of(flags); !path.empty()) add(common, "--tokenizer", path);
  const std::string prompt = flags.text("prompt", "how are you?");
  if (script.family == "alpaca") add(common, "--format", "alpaca");
  add(common, "--prompt", prompt);
  const std::size_t tokens = flags.positive("max-new-tokens", 128);
  add(common, "--max-new-tokens", concat(tokens));
  flags.ignore({"max-length"}, concat("--max-new-tokens ", tokens, " comes first"));
  flags.ignore({"seq-length", "micro-batch-size"}, "a prompt is as long as it is, and there is one");
  flags.require_that(!(flags.has("fp16") && flags.has("bf16")), "fp16", "must not be given with --bf16");
  const bool is_bf16 = flags.has("bf16");
  const bool is_fp16 = flags.has("fp16");
  std::string program = program_on_device(flags, "generate", common);
  if (program == "generate" && is_bf16) program = "generate_bf16";
  const bool is_npu = program == "generate_npu";  // as AscendSpeed's commands, whose --fp16 asks for 16 bits
  flags.require_that(is_bf16 || !program.ends_with("_cuda"), "device", "must be given with --bf16 for cuda: generate_cuda computes in it; given cuda");
  flags.require_that(is_bf16 || is_fp16 || !is_npu, "device", "must be given with --bf16 or --fp16 for npu: generate_npu computes in bf16; given npu");
  if (is_fp16) flags.ignore({"fp16"}, is_npu ? "text is generated in bf16" : "text is generated in fp32; --bf16 in bf16");
  std::vector<std::string> tasks = flags.list("task");
  if (!flags.has("task")) tasks = {"1", "2", "3"};
  else flags.require_that(!tasks.empty(), "task", "must have a value: 1 (greedy), 2 (sampled, with log-probabilities)");
  const double temperature = flags.number("temperature", 0.7), top_p = flags.number("top-p", 0.95);
  if (!(top_p > 0.0 && top_p <= 1.0)) flags.wrong("top-p", "above 0, at most 1");
  const std::size_t top_k = flags.size("top-k", 50), seed = flags.size("seed", 1234);
  for (const std::string& task : tasks) {
    std::vector<std::string> all = common;
    if (task == "1") add(all, "--temperature", "0");
    else if (task == "2") {
      add(all, "--temperature", flags.has("greedy") ? "0" : concat(temperature));
      if (!flags.has("greedy")) add(all, "--top-k", concat(top_k)), add(all, "--top-p", concat(top_p));
      add(all, "--seed", concat(seed));
      all.push_back("--log-probs");
    } else if (task == "3") {
      require<config_error>(
          !flags.has("task"),
          "--task 3: is a conversation in the terminal, which this program does not have; generate --chat answers in a chat template");
      to.notes.push_back("--task 3, a conversation in the terminal, is left out; generate --chat answers in a chat template");
      continue;
    } else flags.wrong("task", "of 1 (greedy), 2 (sampled, with log-probabilities)");
    to.calls.push_back({program, std::move(all)});
  }
}

/// AscendSpeed's task, this library's task or group, names of its data folder.
struct megatron_task {
  const char* theirs;
  const char* ours;
  std::array<const char*, 3> folders;
};
inline constexpr std::array<megatron_task, 8> megatron_tasks{{{"boolq", "boolq", {"boolq", "BoolQ", "boolq"}},
                                                              {"mmlu", "mmlu", {"mmlu", "mmlu", "mmlu"}},
                                                              {"gsm8k", "gsm8k", {"gsm8k", "gsm8k", "gsm8k"}},
                                                              {"ceval", "ceval-valid", {"ceval", "ceval", "ceval"}},
                                                              {"bbh", "bbh_cot_fewshot", {"bbh", "bbh", "bbh"}},
                                                              {"agieval", "agieval", {"agieval", "agi_eval", "agieval"}},
                                                              {"agi_eval", "agieval", {"agieval", "agi_eval", "agieval"}},
                                                              {"human_eval", "humaneval", {"humaneval", "human_eval", "humaneval"}}}};

/// The folder that holds a benchmark's folder: "dataset" of "dataset/boolq/test".
[[nodiscard]] inline std::string folder_of_benchmarks(const std::string& path, const megatron_task& task) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  std::filesystem::path before;
  for (const auto& part : whole) {
    if (std::find(task.folders.begin(), task.folders.end(), part.string()) != task.folders.end())
      return before.empty() ? "." : before.string();
    before /= part;
  }
  return path;
}

inline void read_evaluation(megatron_command& to, megatron_arguments& flags) {
  ignore_model_and_mesh(flags);
  std::vector<std::string> common = {"--model", model_folder_of(flags)};
  const auto add = [](std::vector<std::string>& all, const char* flag, const std::string& value) {
    all.push_back(flag), all.push_back(value);
  };
  if (flags.has("lora-load")) add(common, "--adapter", flags.text("lora-load"));
  if (const std::string path = tokenizer_of(flags); !path.empty()) add(common, "--tokenizer", path);
  if (const std::size_t length = flags.positive("seq-length", 0); length > 0) add(common, "--max-length", concat(length));
  const char* const batch = flags.has("evaluation-batch-size") ? "evaluation-batch-size" : "micro-batch-size";
  add(common, "--batch-size", concat(flags.positive(batch, 1)));
  (void)flags.has("micro-batch-size");
  const std::string program = program_on_device(flags, "evaluate", common);
  flags.ignore({"fp16", "bf16"}, program == "evaluate" ? "benchmarks are run in fp32" : "benchmarks are run in bf16");
  flags.ignore({"temperature", "top-p", "top-k", "greedy", "max-length", "seed"},
               "answers are greedy; choices are compared by their log-likelihood");
  const std::vector<std::string> tasks = flags.list("task"), paths = flags.list("task-data-path");
  require<config_error>(!tasks.empty(), "--task: must be given: boolq, mmlu, gsm8k, ceval, bbh, agieval or human_eval");
  require<config_error>(!paths.empty(), "--task-data-path: must be given");
  const std::size_t tokens = flags.positive("max-new-tokens", 128);
  for (const std::string& name : tasks) {
    const auto task =
        std::find_if(megatron_tasks.begin(), megatron_tasks.end(), [&](const megatron_task& one) { return name == one.theirs; });
    if (task == megatron_tasks.end()) flags.wrong("task", "of boolq, mmlu, gsm8k, ceval, bbh, agieval, human_eval");
    // a path with the task's name in it, as in AscendSpeed; or the only path
    std::string path = paths.size() == 1 ? paths.front() : "";
    for (const std::string& one : paths)
      for (const char* folder : task->folders)
        if (one.find(folder) != std::string::npos) path = one;
    flags.require_that(!path.empty(), "task-data-path", "must have a folder with '", task->folders[0], "' in its name for --task ", name);
    std::vector<std::string> all = common;
    add(all, "--tasks", task->ours), add(all, "--data-dir", folder_of_benchmarks(path, *task));
    if (name == "gsm8k" || name == "bbh" || name == "human_eval") add(all, "--max-gen-toks", concat(tokens));
    if (name == "human_eval") add(all, "--output-path", "human_eval.json");
    to.calls.push_back({program, std::move(all)});
  }
  (void)flags.has("max-new-tokens");
}

/// Megatron-LM's tasks/main.py: LAMBADA and WIKITEXT103, for models that generate.
inline void read_task(megatron_command& to, megatron_arguments& flags) {
  ignore_model_and_mesh(flags);
  std::vector<std::string> all = {"--model", model_folder_of(flags)};
  const auto add = [&](const char* flag, const std::string& value) { all.push_back(flag), all.push_back(value); };
  const std::string tokenizer_type = flags.text("tokenizer-type");
  if (const std::string path = tokenizer_of(flags); !path.empty()) add("--tokenizer", path);
  if (const std::size_t length = flags.positive("seq-length", 0); length > 0) add("--max-length", concat(length));
  add("--batch-size", concat(flags.positive("micro-batch-size", 1)));
  const std::string program = program_on_device(flags, "evaluate", all);
  flags.ignore({"fp16", "bf16"}, program == "evaluate" ? "benchmarks are run in fp32" : "benchmarks are run in bf16");
  flags.ignore({"seed"}, "nothing is drawn");
  const std::vector<std::string> tasks = flags.list("task"), data = flags.list("valid-data");
  flags.require_that(tasks.size() == 1 && (tasks.front() == "LAMBADA" || tasks.front() == "WIKITEXT103"), "task",
                     "must be LAMBADA or WIKITEXT103: others are for models that are not decoders; given ", tasks.empty() ? "none" : tasks.front());
  if (tasks.front() == "WIKITEXT103") {
    flags.require_that(data.size() == 1 && data.front().find("wiki") != std::string::npos && data.front().find("ptb") == std::string::npos, "valid-data",
                       "must be one file with 'wiki' in its path, and not 'ptb', which says how it is detokenized there; given ",
                       data.empty() ? "none" : data.front());
    flags.ignore({"strict-lambada"}, "it is for --task LAMBADA");
    add("--wikitext103", data.front());
    add("--overlapping-eval", concat(flags.positive("overlapping-eval", 32)));
    // as preprocess_data: these put no token before a text
    if (tokenizer_type == "GPT2BPETokenizer" || tokenizer_type == "SentencePieceTokenizer" || tokenizer_type == "GPTSentencePieceTokenizer")
      all.emplace_back("--no-bos");
    to.calls.push_back({program, std::move(all)});
    return;
  }
  flags.ignore({"overlapping-eval"}, "it is for --task WIKITEXT103");
  require<config_error>(flags.has("strict-lambada"), "--strict-lambada: must be given: the last word is to be predicted, not its last token");
  const std::filesystem::path file = data.size() == 1 ? std::filesystem::path(data.front()).lexically_normal() : std::filesystem::path();
  flags.require_that((file.filename() == "test.jsonl" || file.filename() == "lambada_test_en.jsonl") && file.parent_path().filename() == "lambada",
                     "valid-data", "must be one file, test.jsonl or lambada_test_en.jsonl in a folder lambada; given ",
                     data.empty() ? "none" : data.front());
  flags.require_that(file.filename() != "test.jsonl" || !file_exists((file.parent_path() / "lambada_test_en.jsonl").string()), "valid-data",
                     "must be lambada_test_en.jsonl where the folder has it, because evaluate reads that; given ", data.front());
  const std::filesystem::path folder = file.parent_path().parent_path();
  add("--tasks", "lambada_openai"), add("--data-dir", folder.empty() ? "." : folder.string());
  to.calls.push_back({program, std::move(all)});
}

inline constexpr auto conversion_flags = [] {
  using enum megatron_flag_use;
  return std::to_array<megatron_flag>(
      {{"input-model-dir", '1'},
       {"output-model-dir", '1'},
       {"tensor-model-parallel-size", '1'},
       {"pipeline-model-parallel-size", '1'},
       {"src-tensor-model-parallel-size", '1'},
       {"src-pipeline-model-parallel-size", '1'},
       {"tgt-tensor-model-parallel-size", '1'},
       {"tgt-pipeline-model-parallel-size", '1'},
       {"type", '1'},
       {"num-layers", '1'},
       {"num-heads", '1'},
       {"num-kv-heads", '1'},
       {"hidden-size", '1'},
       {"bias", '0'},
       {"pse", '0'},
       {"added-token-num", '1'},
       {"make-vocab-size-divisible-by", '1', no_effect, "a folder keeps its vocabulary; a new model's is padded when it is made"},
       {"deepspeed", '0', no_effect, "a folder holds whole tensors, for training with and without ZeRO"},
       {"merge-mlp", '0', no_effect, "tensors keep the names and the shapes of Hugging Face's"},
       {"use-wpack-rotray", '0', no_effect, "tensors keep the names and the shapes of Hugging Face's"},
       {"load-weight-map", '0', no_effect, "files are found with and without an index"},
       {"partition-layers", '1', no_effect, "stages are chosen when the model is trained: --manual-layers"}});
}();

/// Layers, hidden size and heads of AscendSpeed's --type.
struct megatron_model_size {
  std::string_view name;
  bool is_bloom;
  std::size_t layers, hidden, heads;
};
inline constexpr std::array<megatron_model_size, 6> megatron_model_sizes{{{"7B", false, 32, 4096, 32},
                                                                          {"13B", false, 40, 5120, 40},
                                                                          {"30B", false, 60, 6656, 52},
                                                                          {"65B", false, 80, 8192, 64},
                                                                          {"7B", true, 30, 4096, 32},
                                                                          {"176B", true, 70, 14336, 112}}};

inline void read_conversion(megatron_command& to, megatron_arguments& flags, bool reshards) {
  const std::string from = flags.text("input-model-dir"), into = flags.text("output-model-dir");
  require<config_error>(!from.empty(), "--input-model-dir: must be given");
  require<config_error>(!into.empty(), "--output-model-dir: must be given");
  flags.require_that(!is_same_folder(from, into), "output-model-dir", "must not be --input-model-dir");
  flags.require_that(file_exists(from + "/config.json"), "input-model-dir", "must be a Hugging Face folder, with config.json; ", from,
                     is_directory(from) ? " has none" : " does not exist");
  flags.require_that(flags.size("added-token-num", 0) == 0, "added-token-num",
                     "is not supported: add tokens when the model is trained: finetune --add-tokens");
  const json config = read_json(from + "/config.json");
  const auto size_of = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (config.contains(key) && config[key].is_number_unsigned()) return config[key].get<std::size_t>();
    return std::size_t{0};
  };
  const std::size_t layers = size_of({"num_hidden_layers", "n_layer", "num_layers"}),
                    hidden = size_of({"hidden_size", "n_embed", "n_embd"}), heads = size_of({"num_attention_heads", "n_head"});
  const std::string family = config.value("model_type", std::string());
  const auto agrees = [&](const std::string& flag, const char* what, std::size_t said, std::size_t there) {
    flags.require_that(said == there, flag, "says ", said, " ", what, "; ", from, " has ", there);
  };
  if (!reshards) {
    // default without a size: 7B
    const std::string type = flags.text("type", flags.has_any({"num-layers", "hidden-size", "num-heads"}) ? "" : "7B");
    const bool is_bloom = family == "bloom";
    const auto known = std::find_if(megatron_model_sizes.begin(), megatron_model_sizes.end(),
                                    [&](const megatron_model_size& one) { return one.name == type && one.is_bloom == is_bloom; });
    if (known != megatron_model_sizes.end()) {
      const std::string given =
          flags.has("type") ? concat(flags.typed("type"), " ", type, ": is ") : concat("--type: is ", type, " where no size is given: ");
      require<config_error>(known->layers == layers && known->hidden == hidden && known->heads == heads, given, known->layers,
                            " layers, a hidden size of ", known->hidden, " and ", known->heads, " heads; ", from, " has ", layers, ", ", hidden, " and ", heads);
      flags.ignore({"num-layers", "hidden-size", "num-heads"}, concat("--type ", type, " says it"));
    } else {
      if (flags.has("num-layers")) agrees("num-layers", "layers", flags.size("num-layers", 0), layers);
      if (flags.has("hidden-size")) agrees("hidden-size", "as the hidden size", flags.size("hidden-size", 0), hidden);
      if (flags.has("num-heads")) agrees("num-heads", "heads", flags.size("num-heads", 0), heads);
    }
    if (flags.has("num-kv-heads"))
      agrees("num-kv-heads", "key and value heads", flags.size("num-kv-heads", 0), size_of({"num_key_value_heads", "num_attention_heads"}));
    flags.require_that(!flags.has("pse") || family == "baichuan", "pse", "is for Baichuan's W_pack; ", from, " is ", family);
    const bool has_biases = family == "internlm" ? config.value("bias", true) : family == "qwen2" || config.value("attention_bias", false);
    flags.require_that(!flags.has("bias") || has_biases, "bias", "needs a model with biases of queries, keys and values (InternLM); ", from,
                       " is ", family, " without");
  }
  const bool two = reshards && flags.has("tgt-tensor-model-parallel-size");
  const std::string tensor_flag = two ? "tgt-tensor-model-parallel-size" : "tensor-model-parallel-size";
  const std::string pipeline_flag = two ? "tgt-pipeline-model-parallel-size" : "pipeline-model-parallel-size";
  const std::size_t tensor = flags.positive(tensor_flag, 1), pipeline = flags.positive(pipeline_flag, 1);
  flags.require_that(heads % tensor == 0, tensor_flag, "must divide the model's ", heads, " heads; given ", tensor);
  flags.require_that(layers % pipeline == 0, pipeline_flag, "must divide the model's ", layers, " layers; given ", pipeline);
  flags.ignore({"src-tensor-model-parallel-size", "src-pipeline-model-parallel-size"}, "a folder holds whole tensors");
  const std::initializer_list<const char*> of_model = {"type", "num-layers", "num-heads", "num-kv-heads", "hidden-size", "bias", "pse"};
  if (reshards) flags.ignore(of_model, "the folder's config.json says what the model is");
  else (void)flags.has_any(of_model);
  to.notes.push_back(concat(into, ": holds whole tensors, which every mesh loads, not only ", tensor, " x ", pipeline,
                            ": nothing is to be converted again when it changes"));
  to.calls.push_back({"convert", {"--from", from, "--to", into, "--format", "hf"}});
}

/// Same flags as preprocess_data; datasets' parameters become files.
inline void read_preprocessing(megatron_command& to, std::vector<std::string> words) {
  std::vector<std::string> all;
  std::string parameters;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = is_flag(words[i]) ? flag_name(words[i]) : "";
    const auto value = [&]() -> std::string {
      if (const std::size_t at = words[i].find('='); at != std::string::npos) return words[i].substr(at + 1);
      require<config_error>(i + 1 < words.size(), words[i], ": must have a value");
      return words[++i];
    };
    if (name == "hf-datasets-params") parameters = value();
    else if (name == "pad-vocab-size-to")
      to.notes.push_back(concat("--pad-vocab-size-to ", value(), ": a vocabulary is padded when a model is made"));
    else all.push_back(words[i]);
  }
  if (!parameters.empty()) {
    const json of = read_json(parameters);
    require<config_error>(of.is_object() && of.contains("path") && of["path"].is_string(), parameters, ": must be an object with 'path'");
    const auto text = [&](const char* key) { return of.contains(key) && of[key].is_string() ? of[key].get<std::string>() : std::string(); };
    std::string folder = text("path");
    require<config_error>(file_exists(folder) || is_directory(folder), parameters,
                          ": path: must be a folder or a file on this machine: datasets are not downloaded; given ", folder);
    if (const std::string name = text("name"); !name.empty() && is_directory(folder + "/" + name)) folder += "/" + name;
    const std::string split = text("split");
    require<config_error>(split.empty() || split == "train", parameters, ": split: must be train; given ", split);
    for (const auto& [key, ignored] : of.items())
      require<config_error>(key == "path" || key == "name" || key == "split" || key == "streaming", parameters, ": ", key,
                            ": is not supported");
    std::vector<std::string> rest;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_flag(all[i]) || flag_name(all[i]) != "input") rest.push_back(all[i]);
      else if (all[i].find('=') == std::string::npos)
        while (i + 1 < all.size() && !is_flag(all[i + 1])) ++i;
    }
    rest.insert(rest.begin(), {"--input", folder});
    all = std::move(rest);
    to.notes.push_back(concat("--hf-datasets-params ", parameters, ": reads the files in ", folder, "; --input is ignored, as there"));
  }
  to.calls.push_back({"preprocess_data", std::move(all)});
}

}  // namespace xtrain::detail
