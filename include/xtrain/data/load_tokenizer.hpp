// A tokenizer from the files it came in. Component 'text'.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/byte_level_bpe.hpp>
#include <xtrain/data/byte_tokenizer.hpp>
#include <xtrain/data/sentencepiece_tokenizer.hpp>
#include <xtrain/data/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// The text of a token as config files give it: a string, or an object with its content.
[[nodiscard]] inline std::string token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) return value["content"].get<std::string>();
  return {};
}

[[nodiscard]] inline std::vector<std::pair<std::string, token>> read_vocabulary(const json& object, const std::string& who) {
  require<config_error>(object.is_object() && !object.empty(), who, ": the vocabulary must be an object of tokens; it is ",
                        object.is_object() ? "empty" : object.type_name());
  std::vector<std::pair<std::string, token>> all;
  for (const auto& [text, id] : object.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= (1U << 24))
      fail<config_error>(who, ": every token must be a whole number below 2^24; '", text, "' is ", id.dump());
    all.emplace_back(text, id.get<token>());
  }
  return all;
}

/// A merge is "a b", or ["a", "b"] in newer files.
[[nodiscard]] inline std::pair<std::string, std::string> read_merge(const json& value, std::size_t index, const std::string& who) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  const std::string text = value.is_string() ? value.get<std::string>() : std::string{};
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size())
    fail<config_error>(who, ": merge ", index + 1, " must be two tokens; given ", value.dump());
  return {text.substr(0, space), text.substr(space + 1)};
}

/// Whether a tokenizer.json is a byte-level BPE without further steps; if not, why.
[[nodiscard]] inline std::string not_byte_level_bpe(const json& file) {
  const auto part = [&](const char* name) -> const json& {
    static const json nothing = nullptr;
    const auto at = file.find(name);
    return at == file.end() ? nothing : *at;
  };
  const auto type = [](const json& object) {
    return object.is_object() && object.contains("type") && object["type"].is_string() ? object["type"].get<std::string>() : std::string{};
  };
  const json& model = part("model");
  if (!model.is_object() || !model.contains("vocab") || !model.contains("merges")) return "it has no BPE model";
  if (!type(model).empty() && type(model) != "BPE") return concat("its model is '", type(model), "'");
  if (!part("normalizer").is_null()) return concat("it normalises text ('", type(part("normalizer")), "')");
  if (type(part("pre_tokenizer")) != "ByteLevel") return concat("its pre-tokenizer is '", type(part("pre_tokenizer")), "'");
  for (const char* feature : {"byte_fallback", "ignore_merges", "fuse_unk"})
    if (model.contains(feature) && model[feature].is_boolean() && model[feature].get<bool>())
      return concat("its model has '", feature, "'");
  return {};
}

/// Begin and end of text, from the files beside the vocabulary; `find` gives the token of a text, or -1.
template <class Find>
[[nodiscard]] special_tokens read_special_tokens(const std::string& folder, const Find& find) {
  special_tokens special;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string path = folder + "/" + name;
    if (!file_exists(path)) continue;
    const json file = read_json(path);
    if (!file.is_object()) continue;
    const auto read = [&](const char* key, token& to) {
      if (!file.contains(key)) return;
      if (const token id = find(token_text(file[key])); id >= 0) to = id;
    };
    read("bos_token", special.bos);
    read("eos_token", special.eos);
    if (file.contains("add_bos_token") && file["add_bos_token"].is_boolean()) special.adds_bos = file["add_bos_token"].get<bool>();
  }
  const token end_of_text = find("<|endoftext|>");
  if (special.eos < 0) special.eos = end_of_text;
  if (special.bos < 0) special.bos = end_of_text;
  return special;
}

[[nodiscard]] inline tokenizer make_byte_level_bpe(byte_level_bpe_options options, const std::string& folder) {
  const auto added = options.added;
  const auto vocabulary = options.vocabulary;
  const auto find = [&](const std::string& text) -> token {
    if (text.empty()) return -1;
    for (const auto* list : {&added, &vocabulary})
      for (const auto& [known, id] : *list)
        if (known == text) return id;
    return -1;
  };
  const special_tokens special = read_special_tokens(folder, find);
  return {std::make_shared<byte_level_bpe>(std::move(options)), special};
}

}  // namespace detail

/// A tokenizer.json whose model is a byte-level BPE (GPT-2 and its kin).
///   throws  file_error when the file is no JSON, config_error when it is another kind of tokenizer or contradicts itself
[[nodiscard]] inline tokenizer load_tokenizer_json(const std::string& path) {
  const mapped_file mapped(path);
  const json file = parse_json(mapped.text(), path);
  require<config_error>(file.is_object(), path, ": must be a JSON object");
  const std::string problem = detail::not_byte_level_bpe(file);
  require<config_error>(problem.empty(), path, ": must be a byte-level BPE; ", problem);
  byte_level_bpe_options options;
  options.who = path;
  options.files = {{"tokenizer.json", std::string(mapped.text())}};
  const json& model = file["model"];
  options.vocabulary = detail::read_vocabulary(model["vocab"], path);
  require<config_error>(model["merges"].is_array(), path, ": merges must be a list");
  for (std::size_t i = 0; i < model["merges"].size(); ++i) options.merges.push_back(detail::read_merge(model["merges"][i], i, path));
  const json& cut = file["pre_tokenizer"];
  options.add_prefix_space =
      cut.contains("add_prefix_space") && cut["add_prefix_space"].is_boolean() && cut["add_prefix_space"].get<bool>();
  if (cut.contains("use_regex") && cut["use_regex"].is_boolean() && !cut["use_regex"].get<bool>()) options.pattern.clear();
  if (file.contains("added_tokens") && file["added_tokens"].is_array()) {
    for (const json& added : file["added_tokens"]) {
      const std::string text = detail::token_text(added);
      require<config_error>(
          !text.empty() && added.contains("id") && added["id"].is_number_unsigned() && added["id"].get<std::uint64_t>() < (1U << 24), path,
          ": every added token must have content and id; given ", added.dump());
      options.added.emplace_back(text, added["id"].get<token>());
    }
  }
  return detail::make_byte_level_bpe(std::move(options), detail::parent_of(path));
}

/// GPT-2's first form: vocab.json and merges.txt.
///   throws  file_error, config_error
[[nodiscard]] inline tokenizer load_vocabulary_and_merges(const std::string& vocabulary_path, const std::string& merges_path) {
  const mapped_file vocabulary(vocabulary_path), merges(merges_path);
  byte_level_bpe_options options;
  options.who = vocabulary_path;
  options.files = {{"vocab.json", std::string(vocabulary.text())}, {"merges.txt", std::string(merges.text())}};
  options.vocabulary = detail::read_vocabulary(parse_json(vocabulary.text(), vocabulary_path), vocabulary_path);
  const std::string_view text = merges.text();
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    require<config_error>(space != std::string_view::npos && space > 0 && space + 1 < line.size(), merges_path, ": line ", line_number,
                          " must be two tokens with a space between; given '", line, "'");
    options.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  for (const auto& [known, id] : options.vocabulary)
    if (known == "<|endoftext|>") options.added.emplace_back(known, id);
  return detail::make_byte_level_bpe(std::move(options), detail::parent_of(vocabulary_path));
}

/// A SentencePiece model. Texts begin with bos, as LLaMA's do, unless a tokenizer_config.json beside it says otherwise.
///   throws  file_error
[[nodiscard]] inline tokenizer load_sentencepiece(const std::string& path) {
  auto model = std::make_shared<sentencepiece_model>(path);
  special_tokens special{.bos = model->bos(), .eos = model->eos(), .adds_bos = model->bos() >= 0};
  const std::string config = detail::parent_of(path) + "/tokenizer_config.json";
  if (file_exists(config)) {
    const json file = read_json(config);
    if (file.is_object() && file.contains("add_bos_token") && file["add_bos_token"].is_boolean())
      special.adds_bos = file["add_bos_token"].get<bool>() && special.bos >= 0;
  }
  return {std::move(model), special};
}

/// "byte", a folder with tokenizer files, or one of those files: tokenizer.json, vocab.json (merges.txt beside it), or a
/// SentencePiece *.model.
///   throws  file_error, config_error
[[nodiscard]] inline tokenizer load_tokenizer(const std::string& path) {
  if (path == "byte") return byte_tokenizer();
  require<file_error>(file_exists(path), path,
                      ": must be 'byte', a folder with tokenizer files, or such a file; there is nothing of that name");
  if (is_directory(path)) {
    const std::string from_json = path + "/tokenizer.json", model = path + "/tokenizer.model", vocabulary = path + "/vocab.json",
                      merges = path + "/merges.txt";
    if (file_exists(from_json) && (!file_exists(model) || detail::not_byte_level_bpe(read_json(from_json)).empty()))
      return load_tokenizer_json(from_json);
    if (file_exists(model)) return load_sentencepiece(model);
    if (file_exists(vocabulary) && file_exists(merges)) return load_vocabulary_and_merges(vocabulary, merges);
    fail<file_error>(path, ": must hold tokenizer.json, tokenizer.model, or vocab.json and merges.txt; it holds none of them");
  }
  if (path.ends_with(".model")) return load_sentencepiece(path);
  if (path.ends_with("vocab.json")) return load_vocabulary_and_merges(path, path.substr(0, path.size() - 10) + "merges.txt");
  return load_tokenizer_json(path);
}

}  // namespace xtrain
