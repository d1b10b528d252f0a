// Converts weights between formats: Hugging Face folders, PyTorch's files, Meta's, llm.c, llama2.c.
//
//   convert --from stories260K.bin --to stories260K --format hf --dtype bf16
//
// Tensors are read from mapped files and written one after the other: memory holds at most one of them.
#include <memory>
#include <optional>

#include <xtrain/core/json.hpp>
#include <xtrain/io/llama2c.hpp>
#include <xtrain/io/llmc.hpp>
#include <xtrain/io/meta_llama.hpp>

#include "command_line.hpp"

namespace {

struct convert_flags {
  std::string from{}, to{}, format = "hf", dtype{}, config{}, tokenizer{}, shard_size{};
  command_line::config_flags replaced{};

  void add(CLI::App& app) {
    app.add_option("--from", from, "folder, or a file of safetensors, PyTorch, llm.c or llama2.c")->required()->type_name("PATH");
    app.add_option("--to", to, "folder for hf, file for the others")->required()->type_name("PATH");
    app.add_option("--format", format, "hf: config.json and safetensors; llmc: GPT-2; llama2c, llama2c-v1: LLaMA")
        ->check(command_line::one_of({"hf", "llmc", "llama2c", "llama2c-v1"}))
        ->capture_default_str();
    app.add_option("--dtype", dtype, "dtype of the weights: fp32, bf16 or fp16; default: unchanged, or what the format has")
        ->check(command_line::one_of({"fp32", "bf16", "fp16"}));
    app.add_option("--config", config, "config.json, for a file without one")->type_name("FILE");
    app.add_option("--tokenizer", tokenizer, "folder or file of the tokenizer to copy; default: the folder's")->type_name("PATH");
    app.add_option("--max-shard-size", shard_size, "maximum size of a weight file in a folder, e.g. 2G; default: 5 GB")->type_name("SIZE");
    replaced.add(app);
  }
};

/// What is converted: tensors, and the settings of their model.
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

/// The dtype of the converted tensors, as named in files; empty: each tensor keeps its own.
std::string number_for(const convert_flags& flags, const xtrain::tensor_source& weights) {
  const std::string asked = flags.dtype == "fp32" ? "F32" : flags.dtype == "bf16" ? "BF16" : flags.dtype == "fp16" ? "F16" : "";
  const auto only = [&](bool can, const char* types) {
    xtrain::require<command_line::usage_error>(can, "--dtype ", flags.dtype, ": must be ", types, " for --format ", flags.format);
  };
  if (flags.format == "hf") return asked;
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

/// Writes a Hugging Face folder, the weights last.
void write_folder(const convert_flags& flags, const model_source& source, const std::string& dtype) {
  xtrain::require<command_line::usage_error>(source.config.has_value(), "--config: must be given: a ", source.kind, " holds no sizes");
  const std::size_t shard_bytes =
      flags.shard_size.empty()
          ? xtrain::save_options{}.shard_bytes
          : command_line::for_flag("--max-shard-size", flags.shard_size, [&] { return command_line::bytes_of(flags.shard_size); });
  xtrain::make_folder(flags.to);
  xtrain::copy_tokenizer(!flags.tokenizer.empty() ? flags.tokenizer : xtrain::is_directory(flags.from) ? flags.from : "", flags.to);
  xtrain::json config = source.config->object(), generation = xtrain::json::object();
  if (!dtype.empty())
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype == "F32" ? "float32" : dtype == "BF16" ? "bfloat16" : "float16";
  const std::string generation_file = flags.from + "/generation_config.json";
  if (xtrain::file_exists(generation_file)) generation = xtrain::read_json(generation_file);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (!generation.contains(key) && config.contains(key)) generation[key] = config[key];
  xtrain::write_file(flags.to + "/generation_config.json", generation.dump(2) + "\n");
  xtrain::write_file(flags.to + "/config.json", config.dump(2) + "\n");
  std::vector<xtrain::tensor_to_write> tensors;
  for (const auto& [name, tensor] : source.weights->tensors())
    tensors.push_back(rewritten(*tensor, dtype.empty() ? std::string_view(tensor->dtype) : std::string_view(dtype)));
  write_weights(flags.to, std::move(tensors), shard_bytes);
}

/// Writes the requested format; returns the names of tensors that were left out.
std::vector<std::string> write(const convert_flags& flags, const model_source& source, const std::string& dtype) {
  if (flags.format == "hf") {
    write_folder(flags, source, dtype);
    return {};
  }
  xtrain::require<command_line::usage_error>(source.config.has_value(), "--config: must be given: a ", source.kind, " holds no sizes");
  if (flags.format == "llmc")
    return dtype == "BF16" ? xtrain::write_llmc<xtrain::bf16>(flags.to, *source.weights, *source.config)
                            : xtrain::write_llmc<float>(flags.to, *source.weights, *source.config);
  return xtrain::write_llama2c(flags.to, *source.weights, *source.config,
                               flags.format == "llama2c" ? xtrain::llama2c_version::legacy : xtrain::llama2c_version::v1);
}

void convert(const convert_flags& flags) {
  const auto source = command_line::for_flag("--from", flags.from, [&] { return open(flags); });
  const std::string dtype = number_for(flags, *source.weights);

  // the rounding error is reported before anything is written
  std::map<std::string, std::size_t> converted;
  xtrain::rounding_error error;
  std::size_t numbers = 0, bytes = 0;
  for (const auto& entry : source.weights->tensors()) {
    const xtrain::file_tensor& tensor = *entry.second;
    numbers += tensor.size();
    bytes += tensor.size() * xtrain::bits_of(tensor.dtype) / 8;
    if (dtype.empty() || tensor.dtype == dtype || !xtrain::is_floating(tensor.dtype)) continue;
    command_line::for_flag("--from", flags.from, [&] { measure_rounding(tensor, dtype, error); });
    ++converted[tensor.dtype];
  }
  const auto left_out = command_line::for_flag("--from", flags.from, [&] { return write(flags, source, dtype); });

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
  std::printf("wrote      %s, %zu tensors\n", flags.to.c_str(), source.weights->tensors().size() - left_out.size());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Converts weights from one format to another.", "convert");
  convert_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] { convert(flags); });
}
