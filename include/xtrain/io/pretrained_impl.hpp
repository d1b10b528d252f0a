#pragma once

#include <algorithm>
#include <array>
#include <charconv>
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
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/meta_llama.hpp>
#include <xtrain/io/model_card.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/vocabulary_rows.hpp>
#include <xtrain/io/weight_file.hpp>
#include <xtrain/text/gguf_tokenizer_files.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/tokenizer_class.hpp>

namespace xtrain {

namespace detail {

/// Embeddings and heads in files of families that may tie them.
inline constexpr std::array<std::string_view, 6> embedding_tensors{"model.embed_tokens.weight",
                                                                    "transformer.wte.weight",
                                                                    "transformer.word_embeddings.weight",
                                                                    "model.tok_embeddings.weight",
                                                                    "transformer.embedding.word_embeddings.weight",
                                                                    "bert.embeddings.word_embeddings.weight"};
inline constexpr std::array<std::string_view, 4> head_tensors{"lm_head.weight", "output.weight", "transformer.output_layer.weight",
                                                               "cls.predictions.decoder.weight"};

/// The head differs from the embedding; false if weights cannot be read, which their reader reports.
[[nodiscard]] inline bool has_head_apart(const std::string& folder) {
  try {
    const weight_folder weights(folder);
    const auto first = [&](const auto& names) -> const file_tensor* {
      for (const std::string_view name : names) {
        if (const file_tensor* found = weights.find(name)) return found;
        if (const std::size_t dot = name.find('.'); name.find('.', dot + 1) != std::string_view::npos)  // base model alone
          if (const file_tensor* found = weights.find(name.substr(dot + 1))) return found;
      }
      return nullptr;
    };
    const file_tensor *embedding = first(embedding_tensors), *head = first(head_tensors);
    return embedding != nullptr && head != nullptr && embedding->size() != 0 && head->size() != 0 && !same_values(*head, *embedding);
  } catch (const error&) {
    return false;
  }
}

}  // namespace detail

XTRAIN_INLINE json_settings read_config(const std::string& folder) {
  if (gguf_file::is_one(folder)) return gguf_model(folder).config();
  require<file_error>(is_directory(folder), folder, ": must be a folder with a model, or a GGUF file; ",
                      file_exists(folder) ? "it is another file" : "no such folder");
  if (meta_llama_folder::is_one(folder)) return meta_llama_folder(folder).config();
  const std::string path = folder + "/config.json";
  if (!file_exists(path)) {
    require<file_error>(!file_exists(folder + "/adapter_config.json"), folder, ": must be a folder with a model; it holds an adapter (adapter_config.json): ",
                        "give the folder of its base model, and this one as the adapter");
    std::string newest;
    for (const std::string& name : names_in(folder))
      if (name.starts_with("checkpoint-") && name.find_first_not_of("0123456789", 11) == std::string::npos &&
          std::pair(name.size(), name) > std::pair(newest.size(), newest))
        newest = name;
    require<file_error>(newest.empty(), folder, ": must be a folder with a model; it holds checkpoints and no final model: resume the run, or give ",
                        folder, "/", newest);
  }
  json_settings config(read_json(path), path);
  if (const json& given = config.object(); !(given.contains("tie_word_embeddings") && given["tie_word_embeddings"] == false) && detail::has_head_apart(folder))
    config.set("tie_word_embeddings", false);
  (void)generation_stop_tokens(folder);  // find an unreadable file now, not when saving
  return config;
}

namespace detail {

/// As transformers reads it; empty if missing.
///   throws  file_error if it is not JSON, config_error if it is no object
[[nodiscard]] inline json_settings read_generation_settings(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (folder.empty() || !is_directory(folder) || !file_exists(path)) return {};
  std::vector<std::string> twice;
  return {parse_python_json(mapped_file(path).text(), path, twice), path};
}

}  // namespace detail

XTRAIN_INLINE std::vector<token> generation_stop_tokens(const std::string& folder) {
  return detail::read_generation_settings(folder).tokens({"eos_token_id"});
}

XTRAIN_INLINE std::shared_ptr<const tensor_source> open_weights(const std::string& folder) {
  if (gguf_file::is_one(folder)) return std::make_shared<const gguf_model>(folder);
  if (meta_llama_folder::is_one(folder)) return std::make_shared<const meta_llama_folder>(folder);
  return std::make_shared<const weight_folder>(folder);
}

namespace detail {

/// One letter changed, omitted, added, or swapped with the next.
[[nodiscard]] inline bool is_misspelt(std::string_view given, std::string_view meant) {
  const auto same = std::mismatch(given.begin(), given.end(), meant.begin(), meant.end());
  const std::string_view a(same.first, given.end()), b(same.second, meant.end());
  if (a.empty() && b.empty()) return false;
  const auto rest = [](std::string_view text, std::size_t skipped) { return text.substr(std::min(skipped, text.size())); };
  if (a.size() == b.size()) return rest(a, 1) == rest(b, 1) || (a.size() > 1 && a[0] == b[1] && a[1] == b[0] && rest(a, 2) == rest(b, 2));
  return a.size() + 1 == b.size() ? a == rest(b, 1) : a.size() == b.size() + 1 && rest(a, 1) == b;
}

XTRAIN_INLINE void require_no_misspelt(const json_settings& config, const asked_settings& all) {
  const auto& asked = all.names;
  const auto is_there = [&](const std::string& name) { return config.object().contains(name); };
  const auto is_asked = [&](const std::string& name) {
    return std::any_of(asked.begin(), asked.end(),
                       [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); });
  };
  for (const auto& member : config.object().items()) {
    if (is_asked(member.key())) continue;
    for (const auto& names : asked) {
      if (std::any_of(names.begin(), names.end(), is_there)) continue;
      for (const std::string& name : names)
        require<config_error>(!is_misspelt(member.key(), name), config.who(), ": '", member.key(), "' is not a setting; did you mean '", name,
                              "'?");
    }
  }
  for (const auto& [name, inside] : all.inner)
    if (const auto at = config.object().find(name); at != config.object().end() && at->is_object())
      require_no_misspelt(json_settings(*at, concat(config.who(), ", '", name, "'")), *inside);
}

}  // namespace detail

/// The files of a tokenizer in a folder.
inline constexpr std::array<const char*, 9> tokenizer_files{
    "tokenizer.json",          "tokenizer_config.json", "tokenizer.model",     "vocab.json", "merges.txt",
    "special_tokens_map.json", "added_tokens.json",     "chat_template.jinja", "vocab.txt"};

namespace detail {

/// Name of a single tokenizer file in folders, by contents if its name does not tell.
[[nodiscard]] inline std::string name_in_folder(const std::string& name, std::string_view text) {
  if (name.ends_with(".model")) return "tokenizer.model";
  if (name.ends_with(".tiktoken")) return name;
  if (text.size() > 2 && text[0] == '\n' && text[2] == '\n') return "tokenizer.model";  // protobuf: a list of pieces
  if (const std::size_t first = text.find_first_not_of(" \t\r\n"); first != std::string_view::npos && text[first] == '{')
    return name.ends_with("vocab.json") ? name : "tokenizer.json";
  const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  if (const std::size_t space = line.find(' '); space != std::string_view::npos && space > 0)
    return line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos ? name + ".tiktoken" : name;  // a token and its rank
  return text.starts_with("[UNK]") || text.find("\n[UNK]") != std::string_view::npos ? "vocab.txt" : name;  // WordPiece
}

}  // namespace detail

namespace detail {

/// Names the class in the copy's tokenizer_config.json if no original file does: else the copy's config.json would decide the steps by model_type.
inline void keep_tokenizer_class(const std::string& from, const std::string& to) {
  const std::string steps_path = to + "/tokenizer.json", path = to + "/tokenizer_config.json", model_path = from + "/config.json";
  if (!file_exists(steps_path)) return;
  json config = file_exists(path) ? read_json(path) : json::object();
  if (!config.is_object() || config.contains("tokenizer_class")) return;
  const json steps = read_json(steps_path), model = file_exists(model_path) ? read_json(model_path) : json::object();
  const auto member = [](const json& of, const char* name) { return of.is_object() && of.contains(name) ? of.at(name) : json(); };
  const json cut = member(steps, "pre_tokenizer");
  const bool bytes = member(cut, "type") == "ByteLevel" && member(cut, "add_prefix_space") != false;
  const bool bert = member(member(steps, "normalizer"), "type") == "BertNormalizer";
  if (!bytes && !bert) return;  // steps that a class changes
  std::string name = member(model, "tokenizer_class").is_string() ? member(model, "tokenizer_class").get<std::string>() : std::string();
  if (const json type = member(model, "model_type"); name.empty() && type.is_string())
    if (const std::string_view own = class_of_model_type(type.get<std::string>()); !own.empty()) name = concat(own, "Tokenizer");
  config["tokenizer_class"] = name.empty() ? "PreTrainedTokenizerFast" : name;
  if (name.empty() && bytes) config["add_prefix_space"] = true;  // as transformers 4
  write_file(path, config.dump(2) + "\n");
}

}  // namespace detail

XTRAIN_INLINE void copy_tokenizer(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code same;
  if (from.empty() || fs::equivalent(from, to, same)) return;
  if (gguf_file::is_one(from)) {
    if (gguf_file(from).has("tokenizer.ggml.tokens")) write_gguf_tokenizer(from, to);
    return;
  }
  const auto copy = [&](const std::string& source, const std::string& name) { write_file(to + "/" + name, mapped_file(source).text()); };
  if (!is_directory(from)) {
    const std::string folder = fs::path(from).parent_path().string();
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
      if (const std::string path = folder.empty() ? name : folder + "/" + name; file_exists(path)) copy(path, name);
    for (const std::string_view given : {"vocab.json", "merges.txt"}) {  // gpt2-vocab.json and gpt2-merges.txt
      if (!from.ends_with(given)) continue;
      const std::string_view other = given == "vocab.json" ? "merges.txt" : "vocab.json";
      const std::string path = from.substr(0, from.size() - given.size()) + std::string(other);
      if (!file_exists(path)) continue;
      copy(from, std::string(given));
      return copy(path, std::string(other));
    }
    return copy(from, detail::name_in_folder(fs::path(from).filename().string(), mapped_file(from).text()));
  }
  for (const char* name : tokenizer_files)
    if (file_exists(from + "/" + name)) copy(from + "/" + name, name);
  // further chat templates, which transformers writes next to chat_template.jinja
  if (const std::string more = "additional_chat_templates"; is_directory(concat(from, "/", more)))
    for (const std::string& name : names_in(concat(from, "/", more)))
      if (name.ends_with(".jinja")) {
        fs::create_directories(concat(to, "/", more), same);  // the next line reports a failure
        copy(concat(from, "/", more, "/", name), concat(more, "/", name));
      }
  for (const std::string& name : names_in(from))  // files of ranks and SentencePiece models have various names
    if (name.ends_with(".tiktoken") || (name.ends_with(".model") && name != "tokenizer.model")) copy(from + "/" + name, name);
  detail::keep_tokenizer_class(from, to);
}

namespace detail {

/// Greatest id + 1; 0: unknown.
struct token_counts {
  std::size_t vocabulary = 0;  ///< without added tokens
  std::size_t all = 0;
};
[[nodiscard]] inline token_counts token_counts_of(const std::string& from) {
  std::size_t count = 0, added = 0;
  const auto add = [&](std::size_t id) { count = std::max(count, id + 1); };
  const auto add_number = [&](const json& id) {
    if (id.is_number_unsigned()) add(id.get<std::size_t>());
  };
  const auto add_ids = [&](const json& texts) {  // {text: id}, or a list of pieces
    if (texts.is_array() && !texts.empty()) add(texts.size() - 1);
    if (texts.is_object())
      for (const auto& one : texts.items()) add_number(one.value());
  };
  const auto add_lines = [&](std::string_view text, bool ranks) {  // WordPiece: a token; ranks: a token and its id
    for (std::size_t line = 0; !text.empty(); ++line) {
      const std::string_view one = text.substr(0, text.find('\n'));
      std::size_t id = line;
      if (ranks) {
        const std::size_t space = one.find(' ');
        const std::string_view digits = space == std::string_view::npos ? std::string_view() : one.substr(space + 1);
        if (std::from_chars(digits.data(), digits.data() + digits.size(), id).ec == std::errc{}) add(id);
      } else {
        add(id);
      }
      text.remove_prefix(std::min(one.size() + 1, text.size()));
    }
  };
  const auto document = [](const std::string& path) { return file_exists(path) ? lenient_json(mapped_file(path).text()) : json(); };
  const auto member = [](const json& of, const char* name) -> const json& {
    static const json none;
    return of.is_object() && of.contains(name) ? of.at(name) : none;
  };
  const std::string folder = is_directory(from) ? from : std::filesystem::path(from).parent_path().string();
  const auto in_folder = [&](const char* name) { return folder.empty() ? std::string(name) : concat(folder, "/", name); };
  const json settings = document(in_folder("tokenizer_config.json"));
  const auto add_file = [&](const std::string& path, const std::string& kind) {
    if (kind == "tokenizer.json") {
      const json whole = document(path);
      add_ids(member(member(whole, "model"), "vocab"));
      for (const json& one : member(whole, "added_tokens"))
        if (const json& id = member(one, "id"); id.is_number_unsigned()) added = std::max(added, id.get<std::size_t>() + 1);
    } else if (kind.ends_with("vocab.json")) {
      add_ids(document(path));
    } else if (kind == "vocab.txt") {
      add_lines(mapped_file(path).text(), false);
    } else if (kind.ends_with(".tiktoken")) {
      add_lines(mapped_file(path).text(), true);
    } else if (const json& images = member(settings, "num_image_tokens"); kind == "tokenizer.model" && (images.is_null() || images == 0)) {
      try {
        if (const std::size_t pieces = read_sentencepiece(mapped_file(path).text(), path).pieces.size(); pieces > 0) add(pieces - 1);
      } catch (const error&) {  // ranks, or damaged
        add_lines(mapped_file(path).text(), true);
      }
    }
  };
  if (is_directory(from)) {
    for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model"})
      if (count == 0 && file_exists(in_folder(name))) add_file(in_folder(name), name);
    if (count == 0)
      for (const std::string& name : names_in(from))
        if (name.ends_with(".tiktoken") || name.ends_with(".model")) add_file(in_folder(name.c_str()), name.ends_with(".model") ? "tokenizer.model" : name);
  } else if (from.ends_with("merges.txt")) {  // gpt2-merges.txt has gpt2-vocab.json
    if (const std::string path = from.substr(0, from.size() - std::string_view("merges.txt").size()) + "vocab.json"; file_exists(path))
      add_file(path, "vocab.json");
  } else {
    add_file(from, name_in_folder(std::filesystem::path(from).filename().string(), mapped_file(from).text()));
  }
  if (count == 0) return {};
  token_counts counts{.vocabulary = count, .all = 0};
  add(added > 0 ? added - 1 : 0);
  add_ids(document(in_folder("added_tokens.json")));
  if (const json& listed = member(settings, "added_tokens_decoder"); listed.is_object())
    for (const auto& one : listed.items()) {
      std::size_t id = 0;
      if (std::from_chars(one.key().data(), one.key().data() + one.key().size(), id).ec == std::errc{}) add(id);
    }
  counts.all = count;
  return counts;
}

XTRAIN_INLINE void require_tokenizer_fits(const std::string& folder, const std::string& tokenizer_from, std::size_t vocab_size) {
  if (tokenizer_from.empty()) return;
  token_counts counts;
  try {
    if (!gguf_file::is_one(tokenizer_from)) counts = token_counts_of(tokenizer_from);
    else if (const gguf_file file(tokenizer_from); file.has("tokenizer.ggml.tokens"))
      counts.vocabulary = counts.all = file.texts("tokenizer.ggml.tokens").size();
  } catch (const error&) {
  }
  require<config_error>(counts.vocabulary <= vocab_size, folder, ": the tokenizer of '", tokenizer_from, "' must fit the model's vocabulary of ", vocab_size,
                        " tokens; it has ", counts.all, ". Give the model a larger vocabulary (load_options::resize_vocabulary), or take the tokenizer that it was "
                        "trained with; nothing has been written. See io/README.md");
}

XTRAIN_INLINE void require_same_family(const std::string& folder, std::string_view model_type) {
  const std::string path = folder + "/config.json";
  if (!file_exists(path)) return;
  const json config = lenient_json(mapped_file(path).text());
  if (!config.is_object() || !config.contains("model_type") || !config.at("model_type").is_string()) return;
  const std::string there = config.at("model_type").get<std::string>();
  require<config_error>(there == model_type, folder, ": must not hold a model of another family, whose files would stay beside the new ones; its config.json "
                        "has model_type '", there, "', and ", model_type.empty() ? std::string("a prefix is saved") : concat("the model saved is '", model_type, "'"),
                        ". Save into another folder, or remove this one first; nothing has been written. See io/README.md");
}

XTRAIN_INLINE json_settings generation_settings(const std::string& folder) {
  try {
    return read_generation_settings(folder);
  } catch (const error&) {
    return {};
  }
}

/// Null if missing or malformed: saving goes on.
[[nodiscard]] inline json base_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (folder.empty() || !file_exists(path)) return {};
  try {
    return read_json(path);
  } catch (const error&) {
    return {};
  }
}

XTRAIN_INLINE void set_generation_token(json_settings& generation, const char* key, const std::vector<token>& own, const std::string& folder) {
  if (own.empty()) return;
  if (generation.has({key})) {
    const json base = base_config(folder);
    const json before = base.is_object() && base.contains(key) ? base.at(key) : json();
    if (before == json(own) || (own.size() == 1 && before == json(own.front()))) return;
  }
  generation.set_tokens(key, own);
}

XTRAIN_INLINE void align_texts(const std::string& folder, std::string& config, std::string& generation) {
  json all = parse_json(config, "config.json"), generates = generation.empty() ? json() : parse_json(generation, "generation_config.json");
  const json before = all, generated_before = generates;
  align_special_tokens(special_token_ids_of(folder), all, generation.empty() ? nullptr : &generates);
  if (all != before) config = all.dump(2) + "\n";
  if (generates != generated_before) generation = generates.dump(2) + "\n";
}

XTRAIN_INLINE void leave_out_absent_tokens(json_settings& config, const std::string& folder) {
  const json base = base_config(folder);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (base.is_object() && !base.contains(key) && config.object().contains(key) && config.object().at(key).is_null()) config.erase({key});
}

}  // namespace detail

}  // namespace xtrain
