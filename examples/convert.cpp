// Converts weights between formats: Hugging Face folders, PyTorch's files, Meta's, GGUF, llm.c, llama2.c. Merges LoRA adapters into them.
//
//   convert --from stories260K.bin --to stories260K --format hf --dtype bf16
//   convert --from tuned --to tuned-int4 --quantize int4 --group-size 32
//   convert --from base --adapter lora --to merged
//   convert --from tuned --to tuned.gguf --type q8_0
//   convert --from lora --config base/config.json --to lora.gguf
//   convert --from lora.gguf --config base --to lora
//
// Tensors are read from mapped files and written one after the other: memory holds at most one of them, but the whole model in fp32 while an adapter is
// merged.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/adapt/gguf_adapter.hpp>
#include <xtrain/adapt/gguf_adapter_folder.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/io/llama2c.hpp>
#include <xtrain/io/llmc.hpp>
#include <xtrain/io/meta_llama.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/quantized_weights.hpp>
#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/models/pass_memory.hpp>

#include "command_line.hpp"
#include "readable_adapter.hpp"

namespace {

struct convert_flags {
  std::string from{}, to{}, adapter{}, format{}, dtype{}, type{}, config{}, tokenizer{}, shard_size{}, quantize{};
  std::size_t group_size = 256;
  bool packs = false;
  command_line::config_flags replaced{};

  void add(CLI::App& app) {
    app.add_option("--from", from, "folder, or a file of safetensors, PyTorch, GGUF, llm.c or llama2.c")->required()->type_name("PATH");
    app.add_option("--to", to, "folder for hf, file for the others; a name that ends in .gguf is a file of GGUF")->required()->type_name("PATH");
    app.add_option("--adapter", adapter,
                   "folder or GGUF file of a LoRA adapter, merged first into the weights of --from, its base model, as PEFT's merge_and_unload() does")
        ->type_name("PATH");
    app.add_option("--format", format,
                   "hf: config.json and safetensors; gguf: a model, or the adapter in the folder --from, for llama.cpp; llmc: GPT-2; llama2c, llama2c-v1: LLaMA; "
                   "default: hf, or gguf where --to ends in .gguf")
        ->check(command_line::one_of({"hf", "gguf", "llmc", "llama2c", "llama2c-v1"}));
    app.add_option("--dtype", dtype, "dtype of the weights: fp32, bf16 or fp16; default: unchanged, or what the format has")
        ->check(command_line::one_of({"fp32", "bf16", "fp16"}));
    app.add_option("--type", type,
                   "type of the matrices of --format gguf: f32, f16, bf16, q8_0 or q4_0; default: that of the weights, f32 if they have several or another, and for "
                   "an adapter f32")
        ->check(command_line::one_of({"f32", "f16", "bf16", "q8_0", "q4_0"}));
    app.add_option("--config", config, "config.json, for a file without one, or of the base model of an adapter")->type_name("FILE");
    app.add_option("--tokenizer", tokenizer, "folder or file of the tokenizer to copy; default: the adapter's, or else the folder's")->type_name("PATH");
    app.add_option("--max-shard-size", shard_size, "maximum size of a weight file in a folder, e.g. 2G; default: 5 GB")->type_name("SIZE");
    auto* quantized = app.add_option("--quantize", quantize,
                                     "rounds weights of linear layers as quantization-aware training does: int4 (symmetric; torchao's 8da4w), or "
                                     "int4-weight-only (scales and zero points in bf16; torchao's 4w)")
                          ->check(command_line::one_of({"int4", "int4-weight-only"}));
    app.add_option("--group-size", group_size, "inputs per scale of a weight")->check(CLI::Range(2, 1 << 20))->needs(quantized)->capture_default_str();
    app.add_flag("--packed", packs, "four bits per weight, in the format of compressed-tensors, instead of the values; for int4")->needs(quantized);
    replaced.add(app);
  }
};

/// The settings of --quantize.
struct quantization {
  xtrain::weight_quantization quantization{};
  std::vector<std::string> names{};  // sorted, as in the source
  bool transposed = false, packs = false;
  std::string head{};

  [[nodiscard]] bool has(const std::string& name) const { return std::binary_search(names.begin(), names.end(), name); }
};

/// The tensors to convert, and their model's settings.
struct model_source {
  std::shared_ptr<const xtrain::tensor_source> weights{};
  std::optional<xtrain::json_settings> config{};
  std::string kind = "folder";
};

model_source open(const convert_flags& flags) {
  model_source source;
  if (xtrain::meta_llama_folder::is_one(flags.from)) {
    const auto folder = std::make_shared<xtrain::meta_llama_folder>(flags.from);
    source.weights = folder;
    if (flags.config.empty()) source.config = folder->config();
    source.kind = "folder of Meta's";
  } else if (xtrain::is_directory(flags.from)) {
    source.weights = std::make_shared<xtrain::weight_folder>(flags.from);
    if (flags.config.empty()) source.config = xtrain::read_config(flags.from);
  } else {
    const auto file = std::make_shared<xtrain::weight_file>(flags.from);
    source.weights = file;
    source.config = file->config();
    source.kind = xtrain::concat(name_of(file->format()), " file");
  }
  if (!flags.config.empty()) source.config = xtrain::read_settings(flags.config);
  if (source.config) source.config = flags.replaced.apply(*source.config);
  return source;
}

struct recipe : xtrain::defaults {};

/// The base model with the adapter merged into it, in fp32, in a temporary folder next to the output.
class merged_folder {
 public:
  explicit merged_folder(const convert_flags& flags) : merged_folder(free_path(flags)) {  // from here on the destructor runs
    auto model = load(flags);
    command_line::for_flag("--adapter", flags.adapter, [&] { merge_adapter(model, flags.adapter); });
    command_line::for_flag("--to", flags.to, [&] { save_pretrained(model, path_, xtrain::save_options{.base_model = flags.from}); });
  }
  ~merged_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  merged_folder(const merged_folder&) = delete;
  merged_folder& operator=(const merged_folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit merged_folder(std::string path) : path_(std::move(path)) {}

  /// The base model, with the vocabulary that the adapter was trained with.
  [[nodiscard]] static xtrain::any_decoder<recipe> load(const convert_flags& flags) {
    const xtrain::decoder_family_info* family = nullptr;
    auto sizes = command_line::for_flag("--from", flags.from, [&] {
      const xtrain::json_settings config = xtrain::read_config(flags.from);
      family = &xtrain::all_families::of<>(config);
      return xtrain::sizes_of(config, *family);
    });
    const std::size_t before = sizes.vocab_size;
    sizes.vocab_size = command_line::for_flag("--adapter", flags.adapter, [&] { return xtrain::adapter_vocabulary(flags.adapter, *family, sizes); });
    return command_line::for_flag("--from", flags.from, [&] {
      return xtrain::load_as<xtrain::any_decoder<recipe>>(flags.from, sizes, {}, {}, {.resize_vocabulary = sizes.vocab_size != before});
    });
  }

  [[nodiscard]] static std::string free_path(const convert_flags& flags) {
    using xtrain::require, command_line::usage_error;
    require<usage_error>((xtrain::is_directory(flags.from) || xtrain::gguf_file::is_one(flags.from)) && flags.config.empty(),
                         "--adapter: must be given with a folder of a model, or a GGUF file, as --from; given ", flags.from, flags.config.empty() ? "" : " with --config");
    std::string to = flags.to;
    while (to.size() > 1 && to.ends_with('/')) to.pop_back();
    const std::string path = to + ".merging";
    require<usage_error>(!std::filesystem::exists(path), "--to: ", path, " must not exist: the merged model is written there first. If it is left of a run ",
                         "that was stopped, it can be removed");
    return path;
  }

  std::string path_;
};

/// The dtype of the converted tensors, as named in files; empty: each tensor keeps its own.
std::string number_for(const convert_flags& flags, const xtrain::tensor_source& weights) {
  const std::string asked = flags.dtype == "fp32" ? "F32" : flags.dtype == "bf16" ? "BF16" : flags.dtype == "fp16" ? "F16" : "";
  const auto only = [&](bool can, const char* types) {
    xtrain::require<command_line::usage_error>(can, "--dtype ", flags.dtype, ": must be ", types, " for --format ", flags.format);
  };
  if (flags.format == "hf") return asked;
  if (flags.format == "gguf") {
    only(asked.empty(), "left out: --type says it");
    return asked;
  }
  if (flags.format != "llmc") {
    only(asked.empty() || asked == "F32", "fp32");
    return "F32";
  }
  only(asked != "F16", "fp32 or bf16");
  if (!asked.empty()) return asked;
  for (const auto& [name, tensor] : weights.tensors())
    if (tensor->dtype != "BF16") return "F32";
  return "BF16";
}

quantization quantization_for(const convert_flags& flags, const model_source& source) {
  quantization q;
  if (flags.quantize.empty()) return q;
  xtrain::require<command_line::usage_error>(flags.format == "hf", "--quantize: must be used with --format hf; given ", flags.format);
  xtrain::require<command_line::usage_error>(!flags.packs || flags.quantize == "int4", "--packed: must be used with --quantize int4; given ", flags.quantize);
  xtrain::require<command_line::usage_error>(source.config.has_value(), "--config: must be given: a ", source.kind, " holds no sizes");
  xtrain::require<command_line::usage_error>(source.config->object().find("quantization_config") == source.config->object().end(), "--quantize ",
                                             flags.quantize, ": weights must not be quantized; config.json has a quantization_config");
  const xtrain::decoder_family_info& family = xtrain::all_families::of<>(*source.config);
  q.quantization.group_size = flags.group_size;
  if (flags.quantize == "int4-weight-only") q.quantization.format.zeros = xtrain::zero_points::floating;
  q.transposed = family.transposed_in_files;
  q.packs = flags.packs;
  q.head = family.head_name();
  xtrain::require<command_line::usage_error>(!q.packs || !q.transposed, "--packed: must be used with a family whose files hold [out, in]; ", family.name,
                                             " holds [in, out]");
  command_line::for_flag("--group-size", std::to_string(flags.group_size), [&] {
    q.names = quantized_weights(*source.weights, q.transposed, q.quantization);
    for (const std::string& name : q.names)
      if (q.packs) (void)packed_in_four_bits(*source.weights->find(name), q.quantization);  // refuses before anything is written
  });
  return q;
}

/// The dtype in which a tensor is written: without --dtype its own, but fp32 for GGUF blocks.
std::string_view stored_as(const xtrain::file_tensor& tensor, const std::string& dtype) {
  if (!dtype.empty()) return dtype;
  return xtrain::find_block_dtype(tensor.dtype) == nullptr ? std::string_view(tensor.dtype) : "F32";
}

/// Writes a Hugging Face folder, the weights last.
void write_folder(const convert_flags& flags, const model_source& source, const std::string& dtype, const quantization& q) {
  xtrain::require<command_line::usage_error>(source.config.has_value(), "--config: must be given: a ", source.kind, " holds no sizes");
  const std::size_t shard_bytes =
      flags.shard_size.empty()
          ? xtrain::save_options{}.shard_bytes
          : command_line::for_flag("--max-shard-size", flags.shard_size, [&] { return command_line::bytes_of(flags.shard_size); });
  xtrain::make_folder(flags.to);
  const bool has_tokenizer = xtrain::is_directory(flags.from) || xtrain::gguf_file::is_one(flags.from);
  xtrain::copy_tokenizer(!flags.tokenizer.empty() ? flags.tokenizer : has_tokenizer ? flags.from : "", flags.to);
  xtrain::json config = source.config->object(), generation = xtrain::json::object();
  if (!dtype.empty())
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype == "F32" ? "float32" : dtype == "BF16" ? "bfloat16" : "float16";
  if (q.packs) config["quantization_config"] = packed_settings(q.quantization, q.head);
  const std::string generation_file = flags.from + "/generation_config.json";
  if (xtrain::file_exists(generation_file)) generation = xtrain::read_json(generation_file);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (!generation.contains(key) && config.contains(key)) generation[key] = config[key];
  xtrain::write_file(flags.to + "/generation_config.json", generation.dump(2) + "\n");
  xtrain::write_file(flags.to + "/config.json", config.dump(2) + "\n");
  if (!flags.adapter.empty()) xtrain::align_special_tokens(flags.to);  // the adapter may have been trained with more tokens
  std::vector<xtrain::tensor_to_write> tensors;
  for (const auto& [name, tensor] : source.weights->tensors()) {
    const std::string_view to = stored_as(*tensor, dtype);
    if (!q.has(name)) tensors.push_back(rewritten(*tensor, to));
    else if (!q.packs) tensors.push_back(with_quantized_values(*tensor, q.transposed, q.quantization, to));
    else
      for (xtrain::tensor_to_write& part : packed_in_four_bits(*tensor, q.quantization)) tensors.push_back(std::move(part));
  }
  write_weights(flags.to, std::move(tensors), shard_bytes);
}

/// The type of a GGUF file's matrices: --type, or the weights' only type, if it is F16 or BF16.
xtrain::gguf_type gguf_type_for(const convert_flags& flags, const xtrain::tensor_source& weights) {
  if (!flags.type.empty()) return *xtrain::gguf_type_named(flags.type);
  std::string only;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (tensor->shape.size() < 2) continue;
    if (!only.empty() && only != tensor->dtype) return xtrain::gguf_type::f32;
    only = tensor->dtype;
  }
  return only == "F16" ? xtrain::gguf_type::f16 : only == "BF16" ? xtrain::gguf_type::bf16 : xtrain::gguf_type::f32;
}

/// Writes a GGUF file.
void write_gguf_file(const convert_flags& flags, const model_source& source) {
  const xtrain::decoder_family_info& family = xtrain::all_families::of<>(*source.config);
  const bool has_tokenizer = xtrain::is_directory(flags.from) || xtrain::gguf_file::is_one(flags.from);
  xtrain::write_gguf(flags.to, xtrain::gguf_config_of(xtrain::sizes_of(*source.config, family), family), *source.weights,
                     {.type = gguf_type_for(flags, *source.weights),
                      .tokenizer_from = !flags.tokenizer.empty() ? flags.tokenizer : has_tokenizer ? flags.from : ""});
}

/// Whether this is a GGUF file of an adapter, or a folder with an adapter and no model.
bool is_adapter(const std::string& folder) {
  if (xtrain::gguf_file::is_one(folder)) return xtrain::gguf_file(folder).text("general.type") == "adapter";
  return xtrain::file_exists(folder + "/adapter_config.json") && !xtrain::file_exists(folder + "/config.json");
}

/// Writes an adapter as a GGUF file, or such a file as a folder.
void convert_adapter(const convert_flags& flags) {
  using xtrain::require, command_line::usage_error;
  const bool is_file = xtrain::gguf_file::is_one(flags.from);
  require<usage_error>(is_file || flags.format == "gguf", "--format: must be gguf for the folder of an adapter as --from; given ", flags.format);
  require<usage_error>(!is_file || flags.format == "hf", "--format: must be hf for the GGUF file of an adapter as --from; given ", flags.format);
  require<usage_error>(flags.adapter.empty() && flags.dtype.empty() && flags.quantize.empty(), "--from: must be a model, not the folder of an adapter, for ",
                       !flags.adapter.empty() ? "--adapter" : !flags.dtype.empty() ? "--dtype" : "--quantize");
  for (const auto& [flag, given] : {std::pair{"--tokenizer", flags.tokenizer}, {"--max-shard-size", flags.shard_size},
                                    {"--override-config", flags.replaced.override_config}})
    require<usage_error>(given.empty(), flag, ": must be used with a model as --from, not an adapter; given ", given);
  std::string base = flags.config;
  require<usage_error>(!is_file || !base.empty(), "--config: must be given, the model or config.json that the adapter is for: its GGUF file does not say");
  if (base.empty()) {
    const xtrain::json settings = xtrain::read_json(flags.from + "/adapter_config.json");
    const auto named = settings.find("base_model_name_or_path");
    if (named != settings.end() && named->is_string()) base = named->get<std::string>();
    require<usage_error>(xtrain::file_exists(base + "/config.json") || xtrain::gguf_file::is_one(base),
                         "--config: must be given, the config.json of the adapter's base model; the base model that it names is ", base.empty() ? "none" : base);
  }
  const xtrain::json_settings config = command_line::for_flag("--config", base, [&] {
    return xtrain::is_directory(base) || xtrain::gguf_file::is_one(base) ? xtrain::read_config(base) : xtrain::read_settings(base);
  });
  const xtrain::decoder_family_info& family = command_line::for_flag("--config", base, [&]() -> const auto& { return xtrain::all_families::of<>(config); });
  if (is_file) {
    command_line::for_flag("--from", flags.from, [&] {
      xtrain::write_adapter_folder(flags.to, flags.from, xtrain::gguf_config_of(xtrain::sizes_of(config, family), family), base);
    });
    const xtrain::weight_file written(flags.to + "/adapter_model.safetensors");
    std::printf("wrote      %s, an adapter with %zu tensors\n", flags.to.c_str(), written.tensors().size());
    return;
  }
  const xtrain::gguf_type type = flags.type.empty() ? xtrain::gguf_type::f32 : *xtrain::gguf_type_named(flags.type);
  command_line::for_flag("--from", flags.from, [&] {
    xtrain::write_gguf_adapter(flags.to, flags.from, xtrain::gguf_config_of(xtrain::sizes_of(config, family), family), type);
  });
  std::printf("wrote      %s, %zu tensors of an adapter\n", flags.to.c_str(), xtrain::gguf_file(flags.to).tensors().size());
}

/// Writes the requested format; returns the names of tensors that were left out.
std::vector<std::string> write(const convert_flags& flags, const model_source& source, const std::string& dtype, const quantization& q) {
  if (flags.format == "hf") {
    write_folder(flags, source, dtype, q);
    return {};
  }
  xtrain::require<command_line::usage_error>(source.config.has_value(), "--config: must be given: a ", source.kind, " holds no sizes");
  if (flags.format == "gguf") {
    write_gguf_file(flags, source);
    return {};
  }
  if (flags.format == "llmc")
    return dtype == "BF16" ? xtrain::write_llmc<xtrain::bf16>(flags.to, *source.weights, *source.config)
                            : xtrain::write_llmc<float>(flags.to, *source.weights, *source.config);
  return xtrain::write_llama2c(flags.to, *source.weights, *source.config,
                               flags.format == "llama2c" ? xtrain::llama2c_version::legacy : xtrain::llama2c_version::v1);
}

/// Whether the output would overwrite the weights that are read.
bool loses_source(const convert_flags& flags) {
  namespace fs = std::filesystem;
  const bool changes = !flags.dtype.empty() || !flags.quantize.empty() || !flags.adapter.empty();
  const fs::path from = flags.from, to = flags.to;
  std::error_code ignored;
  if (flags.format != "hf") {
    const std::string name = to.filename().string();
    const bool holds_weights = name.ends_with(".safetensors") || name.starts_with("pytorch_model") || name.starts_with("consolidated.");
    return fs::equivalent(from, to, ignored) || (holds_weights && fs::equivalent(from / name, to, ignored));
  }
  return changes && (fs::equivalent(from, to, ignored) || fs::equivalent(from, to / "model.safetensors", ignored));
}

/// Warns of a folder that the loader would reject, with the loader's reason. Compares only decoders of this library with a language model's head.
void warn_of_other_tensors(const convert_flags& flags, const model_source& source) {
  if (flags.format != "hf" || !source.config) return;
  const xtrain::json& config = source.config->object();
  if (config.contains("quantization_config") || config.value("architectures", xtrain::json()).dump().find("ForSequenceClassification") != std::string::npos)
    return;
  const xtrain::decoder_family_info* family = nullptr;
  try {
    family = &xtrain::all_families::of<>(*source.config);
  } catch (const xtrain::config_error&) {
    return;  // another program's model
  }
  try {
    using model = xtrain::any_decoder<recipe>;
    const auto like = xtrain::make_dry_model<model>(xtrain::sizes_of(*source.config, *family), {}, xtrain::cpu::context().properties());
    xtrain::require_weights(like, *source.weights, flags.from);
  } catch (const xtrain::error& problem) {
    std::fprintf(stderr, "warning: xtrain would not load what is written: %s\n", xtrain::printable(problem.what()).c_str());
  }
}

/// The dtype of a folder's matrices, as --dtype names it. Vectors do not count: some, as RoPE's frequencies, are computed.
std::string dtype_of(const std::string& folder) {
  std::string only;
  const auto weights = xtrain::open_weights(folder);
  for (const auto& [name, tensor] : weights->tensors()) {
    if (xtrain::find_block_dtype(tensor->dtype) != nullptr) return "fp32";
    if (!xtrain::is_floating(tensor->dtype) || tensor->shape.size() < 2) continue;
    xtrain::require<command_line::usage_error>(only.empty() || only == tensor->dtype, "--dtype: must be given with --adapter: the weights of ", folder,
                                               " are of ", only, " and of ", tensor->dtype);
    only = tensor->dtype;
  }
  return only == "BF16" ? "bf16" : only == "F16" ? "fp16" : "fp32";
}

void convert(convert_flags flags) {
  if (flags.format.empty()) flags.format = flags.to.ends_with(".gguf") ? "gguf" : "hf";
  xtrain::require<command_line::usage_error>(flags.type.empty() || flags.format == "gguf", "--type: must be used with --format gguf; given ", flags.format);
  xtrain::require<command_line::usage_error>(flags.format != "hf" || !flags.to.ends_with(".gguf"), "--to: must be a folder for --format hf; given ", flags.to);
  xtrain::require<command_line::usage_error>(!loses_source(flags), "--to: must not be --from, whose weights would be lost; given ", flags.to);
  if (command_line::for_flag("--from", flags.from, [&] { return is_adapter(flags.from); })) return convert_adapter(flags);
  std::optional<merged_folder> merged;
  if (!flags.adapter.empty()) {
    std::error_code ignored;
    xtrain::require<command_line::usage_error>(!std::filesystem::equivalent(flags.adapter, flags.to, ignored),
                                               "--to: must not be the adapter's folder; given ", flags.to);
    flags.tokenizer = command_line::tokenizer_place_of(flags.tokenizer, flags.adapter, flags.from).path;
    const bool is_model = xtrain::is_directory(flags.from) || xtrain::gguf_file::is_one(flags.from);
    const bool keeps_dtype = flags.dtype.empty() && (flags.format == "hf" || flags.format == "llmc") && is_model;
    if (keeps_dtype) flags.dtype = command_line::for_flag("--from", flags.from, [&] { return dtype_of(flags.from); });
    if (flags.format == "gguf" && flags.type.empty() && is_model) {  // the merged weights are fp32
      const std::string kept = command_line::for_flag("--from", flags.from, [&] { return dtype_of(flags.from); });
      flags.type = kept == "bf16" ? "bf16" : kept == "fp16" ? "f16" : "f32";
    }
    const command_line::readable_adapter adapter(flags.adapter, [&] { return xtrain::read_config(flags.from); });
    convert_flags readable = flags;
    readable.adapter = adapter.path();
    merged.emplace(readable);
    flags.from = merged->path();
  }
  const auto source = command_line::for_flag("--from", flags.from, [&] {
    model_source opened = open(flags);
    xtrain::require<xtrain::file_error>(!opened.weights->tensors().empty(), flags.from, ": must hold tensors; it holds none");
    require_numbers(*opened.weights, flags.from);
    return opened;
  });
  const std::string dtype = number_for(flags, *source.weights);
  const quantization q = quantization_for(flags, source);

  // the rounding error is reported before anything is written
  std::map<std::string, std::size_t> converted;
  xtrain::rounding_error error;
  xtrain::quantization_error lost;
  std::size_t numbers = 0, bytes = 0;
  for (const auto& entry : source.weights->tensors()) {
    const xtrain::file_tensor& tensor = *entry.second;
    numbers += tensor.size();
    bytes += xtrain::bits_of(tensor.dtype) == 0 ? tensor.bytes.size() : tensor.size() * xtrain::bits_of(tensor.dtype) / 8;
    if (q.has(entry.first))
      command_line::for_flag("--from", flags.from,
                             [&] { measure_quantization(tensor, q.transposed, q.quantization, q.packs ? "F32" : stored_as(tensor, dtype), lost); });
    if (dtype.empty() || tensor.dtype == dtype || !xtrain::is_floating(tensor.dtype)) continue;
    command_line::for_flag("--from", flags.from, [&] { measure_rounding(tensor, dtype, error); });
    ++converted[tensor.dtype];
  }
  warn_of_other_tensors(flags, source);
  const auto left_out = command_line::for_flag("--from", flags.from, [&] { return write(flags, source, dtype, q); });

  std::printf("read       %zu tensors, %s numbers, %s from a %s\n", source.weights->tensors().size(),
              xtrain::count_text(static_cast<double>(numbers)).c_str(), xtrain::bytes_text(bytes).c_str(), source.kind.c_str());
  if (source.kind == "llm.c file" || source.kind == "llama2.c file")
    std::printf("renamed    all: such a file has no names, and its tensors get Hugging Face's\n");
  if (source.kind == "folder of Meta's") std::printf("renamed    all: its tensors get Hugging Face's names and order of rows\n");
  for (const std::string& name : left_out) std::printf("left out   %s\n", name.c_str());
  for (const auto& [from, count] : converted) std::printf("converted  %zu tensors from %s to %s\n", count, from.c_str(), dtype.c_str());
  if (!converted.empty() && error.largest == 0) std::printf("rounding   none: every number is the same\n");
  if (error.largest > 0)
    std::printf("rounding   at most %.3g: %.9g became %.9g in %s\n", error.largest, error.before, error.after, error.tensor.c_str());
  if (!q.names.empty())
    std::printf("quantized  %zu weights of linear layers to %s in groups of %zu%s; they change by %.2g of their root mean square\n", q.names.size(),
                flags.quantize.c_str(), q.quantization.group_size, q.packs ? ", four bits each" : ", stored as the values that the integers stand for",
                lost.of_squares > 0 ? std::sqrt(lost.squares / lost.of_squares) : 0.0);
  if (flags.format == "hf") command_line::warn_of_other_weights(flags.to);
  if (flags.format == "gguf") {
    const xtrain::gguf_file file(flags.to);
    std::map<std::string_view, std::size_t> types;
    for (const xtrain::gguf_tensor& tensor : file.tensors()) ++types[tensor.type];
    for (const auto& [type, count] : types) std::printf("stored     %zu tensors in %s\n", count, std::string(type).c_str());
    std::printf("wrote      %s, %zu tensors\n", flags.to.c_str(), file.tensors().size());
    return;
  }
  std::printf("wrote      %s, %zu tensors\n", flags.to.c_str(), source.weights->tensors().size() - left_out.size() + (q.packs ? 2 * q.names.size() : 0));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Converts weights from one format to another.", "convert");
  convert_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] { convert(std::move(flags)); });
}
