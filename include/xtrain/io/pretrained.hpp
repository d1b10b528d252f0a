// Hugging Face folders: a model from one, a model into one. What is here knows names and tensors; which names, and which
// keys of config.json, each family says itself.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
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
#include <xtrain/core/json.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/model_card.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/vocabulary_rows.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

/// Marks the model type that load_pretrained is to make. (Declared with the models, floors above.)
template <class Model>
struct pretrained_tag;

/// The settings of a folder's config.json.
///   throws  file_error, config_error
[[nodiscard]] inline json_settings read_config(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with a model; there is none of that name");
  const std::string path = folder + "/config.json";
  return {read_json(path), path};
}

namespace detail {

/// The model_type of a family's folders: its name, unless it says another.
template <class Family>
[[nodiscard]] constexpr const char* model_type_of() {
  if constexpr (requires { Family::model_type; }) return Family::model_type;
  else return Family::name;
}

}  // namespace detail

namespace detail {

/// One letter was changed, left out, added, or swapped with the next.
[[nodiscard]] inline bool is_misspelt(std::string_view given, std::string_view meant) {
  const auto same = std::mismatch(given.begin(), given.end(), meant.begin(), meant.end());
  const std::string_view a(same.first, given.end()), b(same.second, meant.end());
  if (a.empty() && b.empty()) return false;
  const auto rest = [](std::string_view text, std::size_t skipped) { return text.substr(std::min(skipped, text.size())); };
  if (a.size() == b.size())
    return rest(a, 1) == rest(b, 1) || (a.size() > 1 && a[0] == b[1] && a[1] == b[0] && rest(a, 2) == rest(b, 2));
  return a.size() + 1 == b.size() ? a == rest(b, 1) : a.size() == b.size() + 1 && rest(a, 1) == b;
}

/// A setting that nobody asks for is somebody else's, or one of `asked` with a slip of the pen, which would silently take its default.
/// The same holds for objects of settings inside that were looked into.
inline void require_no_misspelt(const json_settings& config, const asked_settings& all) {
  const auto& asked = all.names;
  const auto is_there = [&](const std::string& name) { return config.object().contains(name); };
  const auto is_asked = [&](const std::string& name) {
    return std::any_of(asked.begin(), asked.end(), [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); });
  };
  for (const auto& member : config.object().items()) {
    if (is_asked(member.key())) continue;
    for (const auto& names : asked) {
      if (std::any_of(names.begin(), names.end(), is_there)) continue;
      for (const std::string& name : names)
        require<config_error>(!is_misspelt(member.key(), name), config.who(), ": '", member.key(), "' is no setting; did you mean '", name, "'?");
    }
  }
  for (const auto& [name, inside] : all.inner)
    if (const auto at = config.object().find(name); at != config.object().end() && at->is_object())
      require_no_misspelt(json_settings(*at, concat(config.who(), ", '", name, "'")), *inside);
}

}  // namespace detail

/// The sizes that a model's settings give a family.
///   throws  config_error when they describe another family, contradict themselves, have a misspelt key, or say that weights are quantised
template <class Family>
[[nodiscard]] auto sizes_of(const json_settings& config) {
  const std::string type = config.text_or("", {"model_type"});
  require<config_error>(type == detail::model_type_of<Family>(), config.who(), ": must describe a '", detail::model_type_of<Family>(),
                        "' model; its model_type is '", type, "'");
  const auto quantised = config.object().find("quantization_config");
  require<config_error>(quantised == config.object().end() || quantised->is_null(), config.who(),
                        ": weights must not be quantised; a quantization_config is given");
  const auto asked = std::make_shared<asked_settings>();
  json_settings listened = config;
  listened.remember_names(asked);
  auto sizes = Family::read(listened);
  detail::require_no_misspelt(config, *asked);
  return sizes;
}
/// The same of a folder's config.json.
template <class Family>
[[nodiscard]] auto read_sizes(const std::string& folder) {
  return sizes_of<Family>(read_config(folder));
}

namespace detail {

/// How many numbers travel at once between file and device.
inline constexpr std::size_t numbers_at_once = std::size_t{1} << 20;

/// The tensor of a parameter under any of its names; null when the file has none.
template <class Family, class Find>
[[nodiscard]] const file_tensor* find_tensor(const std::string& name, const Find& find) {
  if (const file_tensor* found = find(name)) return found;
  for (const std::string& other : Family::other_names(name))
    if (const file_tensor* found = find(other)) return found;
  return nullptr;
}

/// A family may have parameters that files of its relations lack: a head of its own.
template <class Family>
[[nodiscard]] bool may_be_missing(const std::string& name) {
  if constexpr (requires { Family::may_be_missing(name); }) return Family::may_be_missing(name);
  else return false;
}

/// The tensor of a file has the shape that the model's parameter has, but for its rows if any number of them will do: not where the file
/// holds it transposed, or its rows in another order.
///   throws  config_error
template <class Entry>
void require_place(const Entry& entry, const file_tensor& tensor, const std::string& where, bool any_rows = false) {
  std::vector<std::size_t> expected = entry.spec.whole_shape();
  if (entry.spec.transposed_in_files) std::swap(expected[0], expected[1]);
  if (any_rows && !tensor.shape.empty() && !entry.spec.transposed_in_files && !entry.spec.rows_in_files) expected[0] = tensor.shape[0];
  require<config_error>(tensor.shape == expected, where, ": '", tensor.name, "' must have shape ", std::span<const std::size_t>(expected),
                        " as config.json says; the file has ", std::span<const std::size_t>(tensor.shape));
}

/// A parameter's numbers from a file whose rows lie in another order, or back into one.
template <class T>
[[nodiscard]] std::vector<T> reordered(std::span<const T> from, const std::vector<std::uint32_t>& order, bool into_file) {
  std::vector<T> to(from.size());
  const std::size_t columns = from.size() / order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t source = into_file ? i : order[i], target = into_file ? order[i] : i;
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source * columns), columns,
                to.begin() + static_cast<std::ptrdiff_t>(target * columns));
  }
  return to;
}

/// Of a whole parameter, the part that this rank has.
template <class Entry, class T>
[[nodiscard]] std::vector<T> part_of(const Entry& entry, std::vector<T> whole) {
  std::vector<T> part(entry.size());
  entry.spec.for_each_range([&](std::size_t here, std::size_t first, std::size_t count) {
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(first), count, part.begin() + static_cast<std::ptrdiff_t>(here));
  });
  return part;
}

/// Copies a tensor into a parameter: checked, converted, transposed or its rows put in order where the files hold it otherwise. With
/// `any_rows` the file may have more rows or fewer; see resized_rows.
template <class Model, class Entry>
void load_parameter(Model& model, const Entry& entry, const file_tensor& tensor, const std::string& where, bool any_rows = false) {
  using number = typename Model::compute;
  require_place(entry, tensor, where, any_rows);
  if (!entry.is_here) return;
  const resized_rows<number> numbers(tensor, any_rows ? entry.spec.whole_shape()[0] : 0);
  std::vector<number> host;
  const auto write = [&] { model.parameters().set(model.work(), entry, std::span<const number>(host)); };
  if (entry.spec.transposed_in_files || entry.spec.rows_in_files) {
    std::vector<number> file(entry.whole_size());
    read_numbers<number>(tensor, 0, file);
    if (entry.spec.transposed_in_files) {
      host.resize(file.size());
      const std::size_t rows = entry.spec.whole_shape()[0], columns = entry.spec.whole_shape()[1];
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) host[i * columns + j] = file[j * rows + i];
    } else {
      host = reordered<number>(file, *entry.spec.rows_in_files, false);
    }
    if (entry.spec.cut.exists()) host = part_of(entry, std::move(host));
    return write();
  }
  if (entry.spec.cut.exists()) {  // a rank reads its part only
    host.resize(entry.size());
    entry.spec.for_each_range(
        [&](std::size_t here, std::size_t whole, std::size_t count) { numbers.read(whole, std::span<number>(host).subspan(here, count)); });
    return write();
  }
  if (entry.spec.quantised) {
    host.resize(entry.size());
    numbers.read(0, host);
    return write();
  }
  for (std::size_t first = 0; first < entry.size(); first += numbers_at_once) {
    host.resize(std::min(numbers_at_once, entry.size() - first));
    numbers.read(first, host);
    model.parameters().write(model.work(), entry, first, host);
    model.work().synchronize();
  }
}

/// A strategy of several ranks may say what each of them keeps: then they can write a file together.
template <class Strategy, class Store>
concept tells_what_is_kept = requires(Strategy& state, const Store& store, const typename Store::entry& entry) {
  { state.kept(store, entry, std::size_t{}) } -> std::same_as<kept_numbers>;
  state.everyone().wires();
};

/// A parameter on its way into a file.
template <class Model, class Entry>
[[nodiscard]] tensor_to_write parameter_to_write(const Model& model, const Entry& entry, std::string name) {
  using number = typename Model::compute;
  tensor_to_write tensor{.name = std::move(name),
                         .number = std::string(file_number_of<number>()),
                         .shape = entry.spec.whole_shape(),
                         .bytes = entry.whole_size() * sizeof(number)};
  if (entry.spec.transposed_in_files) std::swap(tensor.shape[0], tensor.shape[1]);
  tensor.produce = [&model, &entry](const std::function<void(const void*, std::size_t)>& sink) {
    const auto& store = model.parameters();
    const std::size_t size = entry.whole_size();
    const bool whole = entry.spec.transposed_in_files || entry.spec.rows_in_files || store.divided().values || entry.spec.cut.exists() ||
                       !store.all_here();
    std::vector<number> host(whole ? size : std::min(size, numbers_at_once));
    for (std::size_t first = 0; first < size; first += host.size()) {
      const std::span<number> piece(host.data(), std::min(host.size(), size - first));
      if (whole) {
        model.parallel().collect(model.work(), store, entry, store.kept_values(), piece);
      } else {
        copy_to_host(model.work(), piece, store.value(entry).subspan(first, piece.size()));
        model.work().synchronize();
      }
      if (entry.spec.transposed_in_files) {
        const std::size_t rows = entry.spec.whole_shape()[0], columns = entry.spec.whole_shape()[1];
        std::vector<number> turned(size);
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < columns; ++j) turned[j * rows + i] = piece[i * columns + j];
        sink(turned.data(), turned.size() * sizeof(number));
      } else if (entry.spec.rows_in_files) {
        const std::vector<number> sorted = reordered<number>(piece, *entry.spec.rows_in_files, true);
        sink(sorted.data(), sorted.size() * sizeof(number));
      } else {
        sink(piece.data(), piece.size_bytes());
      }
    }
  };
  using strategy = std::remove_cvref_t<decltype(model.parallel())>;
  if constexpr (tells_what_is_kept<strategy, typename Model::store>)
    tensor.produce_own = [&model, &entry](const std::function<void(std::size_t, const void*, std::size_t)>& sink) {
      const auto& store = model.parameters();
      const auto array = store.kept_values();
      write_kept<number>(model.work(), entry.spec, model.parallel().kept(store, entry, array.size()), array, true,
                         static_cast<std::size_t>(&entry - store.entries().data()), sink);
    };
  return tensor;
}

/// Loads tensors into their parameters, one after the other. Those that follow come from the disk meanwhile, if this rank reads the whole
/// of them.
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

/// How files may differ from the model that they are read into.
struct load_options {
  /// The model may have more words than the files, or fewer. New words begin as the mean of the old ones, in the embedding and in a head
  /// of its own; words beyond the model's are left out.
  bool resize_vocabulary = false;
};

/// Loads every parameter of the model that is not an adapter's from whatever files the weights are in; `where` names them in errors.
///   throws  config_error when a tensor is missing, has another shape, or does not belong to the model; file_error
template <class Model>
void load_weights(Model& model, const tensor_source& weights, const std::string& where, const load_options& how = {}) {
  using family = typename Model::family;
  const auto find = [&](const std::string& name) { return weights.find(name); };
  const auto any_rows = [&](const auto& entry) { return how.resize_vocabulary && Model::has_row_per_word(entry.spec.name); };
  std::vector<std::pair<const typename Model::store::entry*, const file_tensor*>> places;
  std::vector<const file_tensor*> used;
  for (const auto& entry : model.parameters().entries()) {
    if (Model::recipe::adapter::freezes_weights && Model::recipe::adapter::is_own(entry.spec.name)) continue;  // in a folder of its own
    const file_tensor* tensor = detail::find_tensor<family>(entry.spec.name, find);
    if (tensor == nullptr && detail::may_be_missing<family>(entry.spec.name)) continue;  // it is as it was made
    require<config_error>(tensor != nullptr, where, ": must hold '", entry.spec.name, "', because config.json asks for it; it is missing");
    detail::require_place(entry, *tensor, where, any_rows(entry));
    places.emplace_back(&entry, tensor);
    used.push_back(tensor);
  }
  std::sort(used.begin(), used.end());
  for (const auto& [name, tensor] : weights.tensors()) {
    if (std::binary_search(used.begin(), used.end(), tensor) || family::may_be_ignored(name, model.sizes())) continue;
    fail<config_error>(where, ": holds '", name, "', which has no place in the model that config.json describes (", model.sizes().layers,
                       " layers, width ", model.sizes().width, ")");
  }
  detail::load_places(model, places, where, any_rows);
  model.parallel().weights_changed(model.work(), model.parameters());  // what ranks gathered before is of other weights
  if constexpr (requires { model.meet_weights(); }) model.meet_weights();
}
/// The same from a folder: see weight_folder for what it may hold.
template <class Model>
void load_weights(Model& model, const std::string& folder, const load_options& how = {}) {
  load_weights(model, weight_folder(folder), folder, how);
}

/// A model of the given sizes, with a folder's weights. Tensors are converted to the recipe's precision one after the other; the files
/// are mapped, not read into memory.
///   throws  file_error, config_error when the weights are of other sizes, memory_error
template <class Model>
[[nodiscard]] Model load_as(const std::string& folder, const typename Model::config& sizes,
                            const typename Model::context& on = typename Model::context{}, const typename Model::options& options = {},
                            const load_options& how = {}) {
  Model model(typename Model::uninitialised_t{}, sizes, on, options);
  model.initialise_adapter();
  load_weights(model, folder, how);
  return model;
}

/// A model from a Hugging Face folder: of the sizes that its config.json says.
///   throws  file_error, config_error, memory_error
template <class Model>
[[nodiscard]] Model load_pretrained(pretrained_tag<Model>, const std::string& folder,
                                    const typename Model::context& on = typename Model::context{},
                                    const typename Model::options& options = {}) {
  return load_as<Model>(folder, read_sizes<typename Model::family>(folder), on, options);
}

/// A model from one file of llm.c or llama2.c: these hold the sizes as well.
///   throws  file_error, config_error, memory_error
template <class Model>
[[nodiscard]] Model load_model_file(const std::string& path, const typename Model::context& on = typename Model::context{},
                                    const typename Model::options& options = {}) {
  const weight_file file(path);
  require<config_error>(file.config().has_value(), path, ": must be a file of llm.c or llama2.c, which hold a model's sizes; it is a ",
                        name_of(file.format()), " file. Load the folder it is in");
  Model model(typename Model::uninitialised_t{}, sizes_of<typename Model::family>(*file.config()), on, options);
  model.initialise_adapter();
  load_weights(model, file, path);
  return model;
}

/// The settings that say which family a folder holds. (load_model finds this by the tag.)
///   throws  file_error, config_error
template <class Any>
[[nodiscard]] json_settings pretrained_settings(pretrained_tag<Any>, const std::string& folder) {
  return read_config(folder);
}

/// How a folder is written.
struct save_options {
  std::size_t shard_bytes = 5'000'000'000;  ///< largest weight file
  std::string tokenizer_from{};             ///< folder or file whose tokenizer files are copied along
  /// Folder or name of the model that this one was trained from: the model card names it, and from a folder come how texts are sampled and which
  /// special tokens config.json says nothing of. Empty: how texts are sampled comes from the tokenizer's folder.
  std::string base_model{};
  /// Where several ranks train the model, the first writes all of it, and the others send it their parts. Otherwise each writes its own if
  /// all see one file system.
  bool one_writer = false;
};

/// Files that make a tokenizer, as folders hold them.
inline constexpr std::array<const char*, 9> tokenizer_files{
    "tokenizer.json",          "tokenizer_config.json", "tokenizer.model",     "vocab.json", "merges.txt",
    "special_tokens_map.json", "added_tokens.json",     "chat_template.jinja", "vocab.txt"};

/// Copies a tokenizer's files: all of a folder's, or the one file that is given (under the name folders give it).
inline void copy_tokenizer(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code same;
  if (from.empty() || fs::equivalent(from, to, same)) return;
  const auto copy = [&](const std::string& source, const std::string& name) { write_file(to + "/" + name, mapped_file(source).text()); };
  if (!is_directory(from)) {
    const std::string name = fs::path(from).filename().string();
    return copy(from, name.ends_with(".model") ? "tokenizer.model" : name);
  }
  for (const char* name : tokenizer_files)
    if (file_exists(from + "/" + name)) copy(from + "/" + name, name);
  for (const auto& entry : fs::directory_iterator(from))  // files of ranks have names of their own
    if (entry.path().extension() == ".tiktoken") copy(entry.path().string(), entry.path().filename().string());
}

namespace detail {

/// The generation_config.json of a model: how its texts are sampled (do_sample, temperature, ...) as in the folder it comes from, if there is one,
/// and its own special tokens.
template <class Sizes>
[[nodiscard]] std::string generation_text(const Sizes& sizes, const std::string& from) {
  json_settings generation;
  const std::string path = from + "/generation_config.json";
  if (!from.empty() && is_directory(from) && file_exists(path)) {
    json earlier = json::parse(mapped_file(path).text(), nullptr, false);  // of one that is no JSON nothing can be kept
    if (earlier.is_object()) generation = json_settings(std::move(earlier), path);
  }
  if (sizes.bos >= 0) generation.set("bos_token_id", sizes.bos);
  if (!sizes.eos.empty()) generation.set_tokens("eos_token_id", sizes.eos);
  if (sizes.padding) generation.set_token("pad_token_id", sizes.padding);
  return generation.object().dump(2) + "\n";
}

}  // namespace detail

/// The config.json of a model. A special token that the model lacks is null, so that nobody takes a default for it; but where the folder it was trained
/// from (`base_model`) does not have the key, it is left out here too.
template <class Model>
[[nodiscard]] std::string config_text(const Model& model, const std::string& base_model = {}) {
  using family = typename Model::family;
  json_settings config;
  config.set("architectures", json::array({family::architecture}));
  config.set("model_type", detail::model_type_of<family>());
  family::write(model.sizes(), config);
  using number = typename Model::compute;
  config.set("torch_dtype", std::is_same_v<number, bf16>     ? "bfloat16"
                            : std::is_same_v<number, fp16>   ? "float16"
                            : std::is_same_v<number, double> ? "float64"
                                                             : "float32");
  if (!base_model.empty() && file_exists(base_model + "/config.json")) {
    const json base = json::parse(mapped_file(base_model + "/config.json").text(), nullptr, false);
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (base.is_object() && !base.contains(key) && config.object().contains(key) && config.object().at(key).is_null()) config.erase({key});
  }
  return config.object().dump(2) + "\n";
}

namespace detail {

/// What the Hub offers to do with a model: what is known of one that generates.
template <class Model>
[[nodiscard]] constexpr const char* pipeline_of() {
  return requires(const Model& model) { model.sizes().eos; } ? "text-generation" : "";
}

/// Where several ranks train one model, the first makes its files; all write them, or the first does and the others help. They go on when
/// all have come to wait_for_all().
template <class Model>
class saving_ranks {
 public:
  explicit saving_ranks(const Model& model, bool one_writer = false) : model_(&model) {
    if constexpr (tells_what_is_kept<strategy, typename Model::store>) {
      if (!one_writer && model.parallel().everyone().size() > 1)
        together_ = std::make_unique<writers_of<std::remove_cvref_t<decltype(model.parallel().everyone())>>>(model.parallel().everyone());
    }
  }
  [[nodiscard]] bool writes() const { return model_->parallel().everyone().rank() == 0; }
  /// Null: the first rank writes alone.
  [[nodiscard]] file_writers* together() const { return together_.get(); }
  /// The last thing each rank does, unless something was thrown before.
  void wait_for_all() const { model_->parallel().everyone().barrier(); }

 private:
  using strategy = std::remove_cvref_t<decltype(std::declval<const Model&>().parallel())>;

  const Model* model_;
  std::unique_ptr<file_writers> together_;
};

}  // namespace detail

/// Writes a Hugging Face folder: config.json, weights, generation_config.json, tokenizer files, and a model card (README.md) if there is none. Every file is replaced in one
/// rename, the weights last and all at once; checkpoints, which are whole folders, are what survives a kill at any instant.
///   throws  file_error
template <class Model>
requires(!Model::recipe::adapter::freezes_weights) void save_pretrained(const Model& model, const std::string& folder,
                                                                        const save_options& options = {}) {
  std::vector<tensor_to_write> tensors;
  for (const auto& entry : model.parameters().entries()) tensors.push_back(detail::parameter_to_write(model, entry, entry.spec.name));
  const detail::saving_ranks ranks(model, options.one_writer);
  if (!ranks.writes()) {
    detail::follow_weights(std::move(tensors), options.shard_bytes, ranks.together());
    return ranks.wait_for_all();
  }
  make_folder(folder);
  copy_tokenizer(options.tokenizer_from, folder);
  if constexpr (requires { model.sizes().eos; })  // it generates
    write_file(folder + "/generation_config.json", detail::generation_text(model.sizes(), options.base_model.empty() ? options.tokenizer_from : options.base_model));
  write_file(folder + "/config.json", config_text(model, options.base_model));
  write_model_card(folder, {.base_model = options.base_model,
                            .pipeline = detail::pipeline_of<Model>(),
                            .tags = {detail::model_type_of<typename Model::family>()},
                            .description = options.base_model.empty() ? "This model was trained from scratch." : concat("This model is a fine-tuned version of ", options.base_model, ".")});
  write_weights(folder, std::move(tensors), options.shard_bytes, "model", ranks.together());
  ranks.wait_for_all();
}

}  // namespace xtrain
