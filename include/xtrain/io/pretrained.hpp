// Loads and saves Hugging Face folders. Model families define names of tensors and keys of config.json.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/matrix_order.hpp>
#include <xtrain/io/model_card.hpp>
#include <xtrain/io/parallel_read.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/saving_ranks.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/vocabulary_rows.hpp>
#include <xtrain/io/weight_blocks.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

/// Tag of load_pretrained's model type; declared with models.
template <class Model>
struct pretrained_tag;

/// Settings of config.json, or equivalent ones of a Meta folder or GGUF file. tie_word_embeddings is false if the weights have a head that differs from the
/// embedding, as in transformers 5.
///   throws  file_error, config_error; also for an unreadable generation_config.json
[[nodiscard]] json_settings read_config(const std::string& folder);

/// Stop tokens of generation_config.json, besides config.json's; may be empty.
///   throws  file_error if it is not JSON, config_error if they are no tokens
[[nodiscard]] std::vector<token> generation_stop_tokens(const std::string& folder);

/// Tensors of a folder (weight_folder, meta_llama_folder) or GGUF file (gguf_model).
///   throws  file_error, config_error
[[nodiscard]] std::shared_ptr<const tensor_source> open_weights(const std::string& folder);

/// A GGUF file's matrices in blocks, for model_options::blocks; a folder: empty.
///   throws  file_error, config_error
[[nodiscard]] inline weight_blocks blocks_in(const std::string& file) { return blocks_in(*open_weights(file)); }

namespace detail {

/// Rejects typos: an unread setting close to one in `asked`, whose default would be used. Also in nested objects that were read.
void require_no_misspelt(const json_settings& config, const asked_settings& all);

}  // namespace detail

namespace detail {

/// Reads a config.json of a model_type.
///   throws  config_error for another family, contradictions, a misspelled key, or quantized weights
template <class Read>
[[nodiscard]] auto sizes_read_by(const Read& read, const char* model_type, const json_settings& config) {
  const std::string type = config.text_or("", {"model_type"});
  require<config_error>(type == model_type, config.who(), ": must describe a '", model_type, "' model; its model_type is '", type, "'");
  require<config_error>(!config.has({"quantization_config"}), config.who(),
                        ": weights must not be quantized; a quantization_config is given");
  const auto asked = std::make_shared<asked_settings>();
  json_settings listened = config;
  listened.remember_names(asked);
  auto sizes = [&] {
    try {
      return read(listened);
    } catch (const config_error&) {
      require_no_misspelt(config, *asked);  // the likelier cause of a missing setting
      throw;
    }
  }();
  if constexpr (requires { sizes.eos; })  // a decoder
    require<config_error>(listened.flag_or(true, {"is_causal"}), config.who(),
                          ": is_causal must be true, because each token attends to those before it only; given false");
  require_no_misspelt(config, *asked);
  return sizes;
}

}  // namespace detail

/// A family's config.
///   throws  config_error for another family, contradictions, a misspelled key, or quantized weights
template <class Family>
[[nodiscard]] auto sizes_of(const json_settings& config) {
  const char* const type = Family::model_type != nullptr ? Family::model_type : Family::name;
  return detail::sizes_read_by([](const named_settings& s) { return Family::read(s); }, type, config);
}
/// Of a family known at run time.
template <class Info>
requires requires(const Info& family, const json_settings& config) { family.read(config); }
[[nodiscard]] auto sizes_of(const json_settings& config, const Info& family) {
  auto sizes = detail::sizes_read_by(family.read, family.model_type, config);
  if constexpr (requires { sizes.family = &family; }) sizes.family = &family;
  return sizes;
}
/// Of a folder's config.json.
template <class Family>
[[nodiscard]] auto read_sizes(const std::string& folder) {
  return sizes_of<Family>(read_config(folder));
}

namespace detail {

/// A parameter's tensor under any name, or null.
template <class Info, class Find>
[[nodiscard]] const file_tensor* find_tensor(const Info& family, const std::string& name, const Find& find) {
  if (const file_tensor* found = find(name)) return found;
  for (const std::string& other : family.other_names(name))
    if (const file_tensor* found = find(other)) return found;
  return nullptr;
}

/// Checks a tensor's shape. `any_rows`: rows may differ, unless the file transposes or reorders them.
///   throws  config_error
template <class Entry>
void require_place(const Entry& entry, const file_tensor& tensor, const std::string& where, bool any_rows = false) {
  std::vector<std::size_t> expected = entry.spec.file_shape();
  if (any_rows && !tensor.shape.empty() && !entry.spec.transposed_in_files && !entry.spec.rows_in_files) expected[0] = tensor.shape[0];
  require<config_error>(tensor.shape == expected, where, ": '", tensor.name, "' must have shape ", std::span<const std::size_t>(expected),
                        " as config.json says; the file has ", std::span<const std::size_t>(tensor.shape));
}

/// This rank's shard.
template <class Entry, class T>
[[nodiscard]] std::vector<T> part_of(const Entry& entry, std::vector<T> whole) {
  std::vector<T> part(entry.size());
  entry.spec.for_each_range([&](std::size_t here, std::size_t first, std::size_t count) {
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(first), count, part.begin() + static_cast<std::ptrdiff_t>(here));
  });
  return part;
}

/// The host can write parameters: no copy is needed.
template <class Device>
concept host_fills_parameters = host_addressable<Device> && !clause::device_runs_host_functions<Device>;

/// Loads a tensor: checked, converted, transposed or reordered as in files. `any_rows`: more or fewer rows in the file, see resized_rows.
template <class Model, class Entry>
void load_parameter(Model& model, const Entry& entry, const file_tensor& tensor, const std::string& where, bool any_rows = false) {
  using dtype = typename Model::compute;
  require_place(entry, tensor, where, any_rows);
  if (!entry.is_here) return;
  if (entry.spec.blocks) return model.parameters().set_blocks(model.stream(), entry, blocks_of_rows(entry.spec, tensor, where));
  const resized_rows<dtype> numbers(tensor, any_rows ? entry.spec.whole_shape()[0] : 0);
  std::vector<dtype> host;
  const auto write = [&] { model.parameters().set(model.stream(), entry, std::span<const dtype>(host)); };
  if (entry.spec.transposed_in_files || entry.spec.rows_in_files || entry.spec.blocks_in_files) {
    std::vector<dtype> file(tensor.size());
    read_in_parallel<dtype>(tensor, 0, file);
    if (entry.spec.transposed_in_files) {
      host.resize(file.size());
      const std::size_t rows = entry.spec.whole_shape()[0], columns = entry.spec.whole_shape()[1];
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) host[i * columns + j] = file[j * rows + i];
    } else if (entry.spec.blocks_in_files) {
      host = blocks_from_file<dtype>(file, *entry.spec.blocks_in_files, entry.spec.shape[1], concat(where, ": '", tensor.name, "'"));
    } else {
      host = reordered<dtype>(file, *entry.spec.rows_in_files, false);
    }
    if (entry.spec.cut.exists()) host = part_of(entry, std::move(host));
    return write();
  }
  if (entry.spec.cut.exists()) {  // a rank reads its shard
    host.resize(entry.size());
    entry.spec.for_each_range(
        [&](std::size_t here, std::size_t whole, std::size_t count) { numbers.read(whole, std::span<dtype>(host).subspan(here, count)); });
    return write();
  }
  if (entry.spec.quantized) {
    host.resize(entry.size());
    numbers.read(0, host);
    return write();
  }
  if constexpr (host_fills_parameters<typename Model::device>) {
    if (!model.parameters().sharding().values) {
      model.parameters().note_change();
      model.stream().synchronize();
      return numbers.read(0, model.parameters().value(entry).host());
    }
  }
  pinned_pipe<typename Model::device> pipe(model.context());
  pipe.template to_device<dtype>(
      model.stream(), entry.size(), [&](std::size_t first, std::span<dtype> piece) { numbers.read(first, piece); },
      [&](std::size_t first, std::span<const dtype> piece) { model.parameters().write(model.stream(), entry, first, piece); });
}

/// Loads tensors in order; prefetches the next ones if this rank reads them entirely.
template <class Model, class Places, class AnyRows>
void load_places(Model& model, const Places& places, const std::string& where, const AnyRows& any_rows) {
  constexpr std::size_t bytes_ahead = std::size_t{256} << 20;
  std::size_t next = 0, on_the_way = 0;
  for (const auto& [entry, tensor] : places) {
    for (; next < places.size() && on_the_way < bytes_ahead; ++next) {
      const auto& entry_ahead = *places[next].first;
      if (entry_ahead.is_here && !entry_ahead.spec.cut.exists()) will_be_read(places[next].second->bytes);
      on_the_way += places[next].second->bytes.size();
    }
    load_parameter(model, *entry, *tensor, where, any_rows(*entry));
    on_the_way -= tensor->bytes.size();
  }
}

}  // namespace detail

namespace detail {

/// A score per sequence: Hugging Face's sequence classification with one label.
template <class Model>
inline constexpr bool has_score_head = requires { requires Model::has_score_head; };

}  // namespace detail

/// Allowed differences of files from the model.
struct load_options {
  /// Vocabulary sizes may differ: new rows of embedding and untied head are the mean of the old, extra rows are dropped.
  bool resize_vocabulary = false;
  /// Layers of files after the model's last are ignored, as in transformers with a lower num_hidden_layers.
  bool fewer_layers = false;
};

namespace detail {

/// First-layer name of a tensor of a layer after the model's last; empty for others.
[[nodiscard]] inline std::string name_in_first_layer(const std::string& name, std::size_t num_layers) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    std::size_t number = 0;
    if (const auto [stop, problem] = std::from_chars(part.data(), part.data() + part.size(), number);
        problem == std::errc{} && stop == part.data() + part.size())
      return number < num_layers ? std::string() : concat(name.substr(0, begin), "0", name.substr(end));
    begin = end + 1;
  }
  return {};
}

}  // namespace detail

namespace detail {

/// Tensors of all parameters except an adapter's.
///   throws  as load_weights
template <class Model>
[[nodiscard]] auto places_of(const Model& model, const tensor_source& weights, const std::string& where, const load_options& options) {
  const auto& family = model.family_info();
  const auto find = [&](const std::string& name) { return weights.find(name); };
  require_numbers(weights, where);
  std::vector<std::pair<const typename Model::store::entry*, const file_tensor*>> places;
  std::vector<const file_tensor*> used;
  for (const auto& entry : model.parameters().entries()) {
    if (Model::recipe::adapter::freezes_weights && Model::recipe::adapter::is_own(entry.spec.name)) continue;  // in a separate folder
    const file_tensor* tensor = find_tensor(family, entry.spec.name, find);
    if (tensor == nullptr)  // a file may hold only the head, to which the embedding is tied
      for (const auto& [name, copy] : weights.tensors())
        if (model.copied_by(name) == entry.spec.name) tensor = copy;
    if (tensor == nullptr && (family.may_be_missing(entry.spec.name) || model.may_be_missing(entry.spec.name))) continue;  // keeps initial values
    require<config_error>(tensor != nullptr, where, ": must hold '", entry.spec.name, "', because config.json asks for it; it is missing");
    require_place(entry, *tensor, where, options.resize_vocabulary && model.has_row_per_token(entry.spec.name));
    places.emplace_back(&entry, tensor);
    used.push_back(tensor);
  }
  std::sort(used.begin(), used.end());
  for (const auto& [name, tensor] : weights.tensors()) {
    if (std::binary_search(used.begin(), used.end(), tensor)) continue;
    if (const std::string original = model.copied_by(name); !original.empty())
      if (const file_tensor* found = find_tensor(family, original, find)) require_tied(*tensor, *found, where);
    if (family.may_be_ignored(name, model.config()) || model.may_be_ignored(name)) continue;
    const std::string first = options.fewer_layers ? name_in_first_layer(name, model.config().num_layers) : std::string();
    if (!first.empty() && (std::binary_search(used.begin(), used.end(), weights.find(first)) || family.may_be_ignored(first, model.config()))) continue;
    fail<config_error>(where, ": holds '", name, "', which has no counterpart in the model that config.json describes (", model.config().num_layers,
                       " layers, hidden_size ", model.config().hidden_size, ")");
  }
  return places;
}

}  // namespace detail

/// Throws what load_weights would; also for a dry model (make_dry_model).
template <class Model>
void require_weights(const Model& model, const tensor_source& weights, const std::string& where, const load_options& options = {}) {
  (void)detail::places_of(model, weights, where, options);
}

/// Loads all parameters except an adapter's; `where`: for errors.
///   throws  config_error when a tensor is missing, has another shape or is no parameter, or a tied head is not the embedding; file_error
template <class Model>
void load_weights(Model& model, const tensor_source& weights, const std::string& where, const load_options& options = {}) {
  const auto any_rows = [&](const auto& entry) { return options.resize_vocabulary && model.has_row_per_token(entry.spec.name); };
  detail::load_places(model, detail::places_of(model, weights, where, options), where, any_rows);
  model.parallel().weights_changed(model.stream(), model.parameters());  // gathered weights are stale
  model.on_weights_loaded();
  model.parameters().note_merged_adapter(false);
}
/// From a folder or GGUF file: weight_folder, meta_llama_folder, gguf_model.
template <class Model>
void load_weights(Model& model, const std::string& folder, const load_options& options = {}) {
  load_weights(model, *open_weights(folder), folder, options);
}

/// A model with this config and a folder's weights, converted one by one; files are memory-mapped.
///   throws  file_error, config_error for weights that do not match, memory_error
template <class Model>
[[nodiscard]] Model load_as(const std::string& folder, const typename Model::config_type& sizes,
                            const typename Model::context_type& on = typename Model::context_type{}, const typename Model::options& options = {},
                            const load_options& how = {}) {
  Model model(typename Model::uninitialised_t{}, sizes, on, options);
  model.initialise_adapter();
  load_weights<computed_model<Model>>(model, folder, how);
  return model;
}

/// A model with config and weights of a folder or GGUF file.
///   throws  file_error, config_error, memory_error
template <class Model>
[[nodiscard]] Model load_pretrained(pretrained_tag<Model>, const std::string& folder,
                                    const typename Model::context_type& on = typename Model::context_type{},
                                    const typename Model::options& options = {}) {
  const json_settings config = read_config(folder);
  return load_as<Model>(folder, sizes_of(config, Model::family_of(config)), on, options);
}

/// A model of a GGUF, llm.c or llama2.c file, with its config.
///   throws  file_error, config_error, memory_error
template <class Model>
[[nodiscard]] Model load_model_file(const std::string& path, const typename Model::context_type& on = typename Model::context_type{},
                                    const typename Model::options& options = {}) {
  const weight_file file(path);
  require<config_error>(file.config().has_value(), path, ": must be a file of GGUF, llm.c or llama2.c, which hold a model's sizes; it is a ",
                        name_of(file.format()), " file. Load the folder it is in");
  Model model(typename Model::uninitialised_t{}, sizes_of(*file.config(), Model::family_of(*file.config())), on, options);
  model.initialise_adapter();
  load_weights<computed_model<Model>>(model, file, path);
  return model;
}

/// Settings that tell a folder's family; found by tag from load_model.
///   throws  file_error, config_error
template <class Any>
[[nodiscard]] json_settings pretrained_settings(pretrained_tag<Any>, const std::string& folder) {
  return read_config(folder);
}

/// Options of save_pretrained.
struct save_options {
  std::size_t shard_bytes = 5'000'000'000;  ///< maximum per file
  /// Source of tokenizer files; begin, end and padding tokens in config.json and generation_config.json follow it: align_special_tokens.
  std::string tokenizer_from{};
  /// Folder or name of the original model, for the model card; a folder gives generation settings and decides absent special tokens. Empty: generation
  /// settings come from the tokenizer's folder.
  std::string base_model{};
  /// The first rank writes all, others send. false: ranks write their parts if they share a file system.
  bool one_writer = false;
};

/// Copies a folder's tokenizer files, or one file (renamed as in folders) with files next to it that name tokens, or files for a GGUF file's tokenizer
/// (write_gguf_tokenizer). The copy loads as the original.
void copy_tokenizer(const std::string& from, const std::string& to);

namespace detail {

/// Before saving: the tokenizer's tokens are in the vocabulary, except added ones (LLaMA 2's <pad> is published beyond it). Unreadable files are copied
/// unchecked.
///   throws  config_error
void require_tokenizer_fits(const std::string& folder, const std::string& tokenizer_from, std::size_t vocab_size);
/// Before saving: a readable config.json of the folder has the same family.
///   model_type  empty: no entire model is saved, and none may be there
///   throws      config_error
void require_same_family(const std::string& folder, std::string_view model_type);

/// generation_config.json; empty if missing or malformed.
[[nodiscard]] json_settings generation_settings(const std::string& folder);

/// Sets special tokens, unless the folder's config.json has the same: generation_config.json then stays, as with further stop tokens.
void set_generation_token(json_settings& generation, const char* key, const std::vector<token>& own, const std::string& folder);

/// generation_config.json: sampling settings of the original folder, if any, and the model's special tokens.
template <class Sizes>
[[nodiscard]] std::string generation_text(const Sizes& sizes, const std::string& from) {
  json_settings generation = generation_settings(from);
  using tokens = std::vector<token>;
  set_generation_token(generation, "bos_token_id", sizes.bos >= 0 ? tokens{sizes.bos} : tokens{}, from);
  set_generation_token(generation, "eos_token_id", sizes.eos, from);
  set_generation_token(generation, "pad_token_id", sizes.pad_token_id ? tokens{*sizes.pad_token_id} : tokens{}, from);
  return generation.text();
}

/// Makes both texts agree with the folder's tokenizer. Empty texts stay empty.
void align_texts(const std::string& folder, std::string& config, std::string& generation);

/// Erases null special tokens that the folder's config.json lacks.
void leave_out_absent_tokens(json_settings& config, const std::string& folder);

}  // namespace detail

/// config.json. A missing special token is null, so that readers use no default; absent if the original folder (`base_model`) lacks the key.
template <class Model>
[[nodiscard]] std::string config_text(const Model& model, const std::string& base_model = {}) {
  const auto& family = model.family_info();
  json_settings config;
  if constexpr (requires { model.architecture(); }) config.set("architectures", std::vector<std::string>{model.architecture()});
  else config.set("architectures", std::vector<std::string>{family.architecture});
  config.set("model_type", family.model_type);
  family.write(model.config(), config);
  if constexpr (detail::has_score_head<Model>) {  // with one label
    const auto names = config.new_object(), numbers = config.new_object();
    names->set("0", "LABEL_0");
    numbers->set("LABEL_0", std::size_t{0});
    config.set_object("id2label", *names);
    config.set_object("label2id", *numbers);
  }
  using dtype = typename Model::compute;
  config.set("torch_dtype", std::is_same_v<dtype, bf16>     ? "bfloat16"
                            : std::is_same_v<dtype, fp16>   ? "float16"
                            : std::is_same_v<dtype, double> ? "float64"
                                                             : "float32");
  if constexpr (requires { model.config().bos; })
    if (model.config().bos < 0) config.set_null("bos_token_id");
  if (!base_model.empty()) detail::leave_out_absent_tokens(config, base_model);
  return config.text();
}

namespace detail {

/// Hub tag, for generating models.
template <class Model>
[[nodiscard]] constexpr const char* pipeline_of() {
  return has_score_head<Model> ? "text-classification" : requires(const Model& model) { model.config().eos; } ? "text-generation" : "";
}

}  // namespace detail

namespace detail {

/// Saves to a GGUF file.
[[nodiscard]] inline bool is_gguf_path(std::string_view path) { return path.ends_with(".gguf"); }

/// Saves a model or adapter as GGUF in its dtype.
///   throws  config_error for a model without such files; as save_gguf
template <class Model>
void save_to_gguf(const Model& model, const std::string& path, const std::string& tokenizer_from) {
  using dtype = typename Model::compute;
  if constexpr (requires { save_gguf_as(model, path, tokenizer_from, dtype{}); }) return save_gguf_as(model, path, tokenizer_from, dtype{});
  else fail<config_error>(path, ": a GGUF file must hold a decoder or its LoRA adapter; a model of ", model.family_info().name, " is given");
}

}  // namespace detail

/// Writes a Hugging Face folder, or a GGUF file for a name that ends in .gguf (save_gguf); see io/README.md. Each file is replaced by one rename, weights last
/// and together. Checkpoints survive a kill at any instant; this does not.
///   throws  config_error before writing when the folder has another family's model or the vocabulary lacks tokens; file_error
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) void save_pretrained(const Model& model, const std::string& folder,
                                                                        const save_options& options = {}) {
  if (detail::is_gguf_path(folder)) return detail::save_to_gguf(model, folder, options.tokenizer_from);
  detail::require_same_family(folder, model.family_info().model_type);
  detail::require_tokenizer_fits(folder, options.tokenizer_from, model.config().vocab_size);
  std::vector<tensor_to_write> tensors;
  for (const auto& entry : model.parameters().entries()) tensors.push_back(detail::parameter_to_write(model, entry, entry.spec.name));
  const detail::saving_ranks ranks(model, options.one_writer);
  if (!ranks.writes()) {
    detail::follow_weights(std::move(tensors), options.shard_bytes, ranks.together());
    return ranks.wait_for_all();
  }
  make_folder(folder);
  copy_tokenizer(options.tokenizer_from, folder);
  std::string config = config_text(model, options.base_model), generation;
  if constexpr (requires { model.config().eos; } && !detail::has_score_head<Model>)  // generating models
    generation = detail::generation_text(model.config(), options.base_model.empty() ? options.tokenizer_from : options.base_model);
  if (!options.tokenizer_from.empty()) detail::align_texts(folder, config, generation);
  if (!generation.empty()) write_file(folder + "/generation_config.json", generation);
  write_file(folder + "/config.json", config);
  write_model_card(folder,
                   {.base_model = options.base_model,
                    .pipeline = detail::pipeline_of<Model>(),
                    .tags = {model.family_info().model_type},
                    .description = options.base_model.empty() ? "This model was trained from scratch."
                                                              : concat("This model is a fine-tuned version of ", options.base_model, ".")});
  write_weights(folder, std::move(tensors), options.shard_bytes, "model", ranks.together());
  ranks.wait_for_all();
}

}  // namespace xtrain

#include <xtrain/io/gguf_save.hpp>

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/pretrained_impl.hpp>
#endif
