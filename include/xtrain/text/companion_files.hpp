// Files beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/tokenizer_json.hpp>

namespace xtrain::detail {

/// Reads the files beside a vocabulary. Keys that do not concern tokens are ignored: there are many.
class companion_files {
 public:
  ///   throws  file_error if an existing file is not JSON, config_error if its token settings are invalid
  explicit companion_files(const std::string& folder) {
    for (const char* name : {"added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"}) {
      const std::string path = folder + "/" + name;
      if (!file_exists(path)) continue;
      const mapped_file file(path);
      files_.emplace_back(name, std::string(file.text()));
      const json document = parse_json(file.text(), path);
      require<config_error>(document.is_object(), path, ": must be a JSON object; it is ", document.type_name());
      if (std::string_view(name) == "added_tokens.json") read_added(document, path);
      else read_settings(document, path);
    }
  }

  [[nodiscard]] const named_files& files() const { return files_; }
  [[nodiscard]] const std::string& tokenizer_class() const { return class_; }
  [[nodiscard]] std::optional<bool> lowercase() const { return lowercase_; }
  /// The begin token's text, if one is named.
  [[nodiscard]] const std::string& bos() const { return bos_; }
  [[nodiscard]] std::optional<bool> adds_bos() const { return adds_bos_; }
  [[nodiscard]] std::optional<bool> adds_eos() const { return adds_eos_; }
  /// Whether a space is put before a text, for byte-level vocabularies; a tokenizer.json says it itself.
  [[nodiscard]] std::optional<bool> adds_prefix_space() const { return adds_prefix_space_; }
  /// ChatGLM: the offset of its token ids, and whether its conversations name roles (ChatGLM3).
  [[nodiscard]] std::uint64_t image_tokens() const { return image_tokens_; }
  [[nodiscard]] bool has_roles() const { return has_roles_; }
  /// Tokens with explicit ids.
  [[nodiscard]] const std::vector<added_token>& added() const { return added_; }
  /// Texts named as special tokens; their ids are in the vocabulary.
  [[nodiscard]] const std::vector<std::string>& special_texts() const { return special_texts_; }

  /// Whether there is no begin token: the files say null, or name none where the tokenizer's class has none of its own.
  [[nodiscard]] bool bos_is_none() const {
    return bos_.empty() && (null_bos_ || class_ == "PreTrainedTokenizerFast" || class_ == "TokenizersBackend" || class_.starts_with("Qwen2Tokenizer"));
  }

  /// Sets bos and eos as far as the files name them; `find` returns the token of a text, or a negative value.
  template <class Find>
  void read_special(special_tokens& special, const Find& find) const {
    if (const token id = bos_.empty() ? -1 : find(bos_); id >= 0) special.bos = id;
    if (const token id = eos_.empty() ? -1 : find(eos_); id >= 0) special.eos = id;
  }
  /// Sets adds_bos if the files say it. Not for a tokenizer.json: its post-processor says it, as in transformers 5.
  void read_adds_bos(special_tokens& special) const {
    if (adds_bos_) special.adds_bos = *adds_bos_ && special.bos >= 0;
  }

 private:
  void read_added(const json& document, const std::string& path) {
    for (const auto& [content, id] : document.items())
      add({.content = content, .id = number(id.is_number_unsigned() ? id.dump() : "", content, path), .normalized = false});
  }
  void read_settings(const json& document, const std::string& path) {
    const auto flag = [&](const char* name, std::optional<bool>& to) {
      if (document.contains(name) && document[name].is_boolean()) to = document[name].get<bool>();
    };
    flag("add_bos_token", adds_bos_);
    flag("add_eos_token", adds_eos_);
    flag("add_prefix_space", adds_prefix_space_);
    flag("do_lower_case", lowercase_);
    if (document.contains("num_image_tokens") && document["num_image_tokens"].is_number_unsigned())
      image_tokens_ = document["num_image_tokens"].get<std::uint64_t>();
    for (const char* name : {"chat_template", "name_or_path"})
      if (document.contains(name) && document[name].is_string()) {
        const auto text = document[name].get<std::string>();
        has_roles_ = has_roles_ || text.find("<|") != std::string::npos || text.find("chatglm3") != std::string::npos;
      }
    if (document.contains("tokenizer_class") && document["tokenizer_class"].is_string())
      class_ = document["tokenizer_class"].get<std::string>();
    const auto named = [&](const char* name, std::string* to) {
      if (!document.contains(name)) return;
      const std::string text = token_text(document[name]);
      if (text.empty()) return;
      if (to != nullptr) *to = text;
      special_texts_.push_back(text);
    };
    named("bos_token", &bos_);
    null_bos_ = null_bos_ || (document.contains("bos_token") && document["bos_token"].is_null());
    named("eos_token", &eos_);
    for (const char* name : {"unk_token", "pad_token", "cls_token", "sep_token", "mask_token"}) named(name, nullptr);
    if (document.contains("additional_special_tokens") && document["additional_special_tokens"].is_array())
      for (const json& one : document["additional_special_tokens"])
        if (const std::string text = token_text(one); !text.empty()) special_texts_.push_back(text);
    if (!document.contains("added_tokens_decoder") || !document["added_tokens_decoder"].is_object()) return;
    for (const auto& [id, one] : document["added_tokens_decoder"].items()) {
      json described = one;
      if (described.is_object()) described["id"] = number(id, token_text(one), path);
      for (const added_token& token : read_added_tokens(json::array({described}), path)) add(token);
    }
  }
  void add(added_token one) {
    const auto same = std::find_if(added_.begin(), added_.end(), [&](const added_token& other) { return other.content == one.content; });
    if (same != added_.end()) *same = std::move(one);
    else added_.push_back(std::move(one));
  }
  [[nodiscard]] static token number(const std::string& digits, const std::string& content, const std::string& path) {
    const bool good = !digits.empty() && digits.size() <= 8 && digits.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long value = good ? std::stoul(digits) : 0;
    require<config_error>(good && value < (1UL << 24) && !content.empty(), path,
                          ": every added token must have a text and an id below 2^24; '", content, "' has '", digits, "'");
    return static_cast<token>(value);
  }

  named_files files_;
  std::string class_, bos_, eos_;
  std::optional<bool> adds_bos_, adds_eos_, adds_prefix_space_, lowercase_;
  std::uint64_t image_tokens_ = 0;
  bool has_roles_ = false, null_bos_ = false;
  std::vector<added_token> added_;
  std::vector<std::string> special_texts_;
};

[[nodiscard]] inline json json_of(const added_token& one) {
  json result = json::object();
  result["id"] = static_cast<std::uint64_t>(one.id);
  result["content"] = one.content;
  result["single_word"] = one.single_word;
  result["lstrip"] = one.lstrip;
  result["rstrip"] = one.rstrip;
  result["normalized"] = one.normalized;
  result["special"] = one.special;
  return result;
}

/// Adds the tokens of the companion files to a description: tokens with explicit ids, and vocabulary tokens
/// named as special.
inline void describe_added_tokens(tokenizer_description& to, const companion_files& beside) {
  json& list = to.settings["added_tokens"];
  if (list.is_null()) list = json::array();
  const vocabulary_table table(to.vocabulary, to.who);
  const auto add = [&](const added_token& one) {
    for (const json& known : list)
      if (known.is_object() && token_text(known) == one.content) return;
    list.push_back(json_of(one));
  };
  for (added_token one : beside.added()) {
    const auto& texts = beside.special_texts();
    one.special = one.special || std::find(texts.begin(), texts.end(), one.content) != texts.end();
    add(one);
  }
  for (const std::string& text : beside.special_texts())
    if (const token id = table.find(text); id >= 0) add({.content = text, .id = id, .normalized = false, .special = true});
}

/// Builds the tokenizer of a description with bos and eos from the companion files, or else from the description,
/// or else by their usual names, unless the files say that bos is none.
[[nodiscard]] inline tokenizer finish_tokenizer(tokenizer_description from, named_files files, const companion_files& beside) {
  const bool is_whole = !files.empty() && files.front().first == "tokenizer.json";
  files.insert(files.end(), beside.files().begin(), beside.files().end());
  const auto model = make_tokenizer(std::move(from), std::move(files));
  special_tokens special;
  const std::vector<token> before = model->before_text(), after = model->after_text();
  if (!before.empty()) special = {.bos = before.front(), .eos = -1, .adds_bos = true};
  if (!after.empty()) special.eos = after.back();
  beside.read_special(special, [&](const std::string& text) { return model->find_token(text); });
  if (!is_whole) beside.read_adds_bos(special);
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const token id = model->find_token(name); id >= 0 && (model->is_special(id) || std::string_view(name) == "<|endoftext|>"))
        return id;
    return token{-1};
  };
  if (special.eos < 0) special.eos = first_of({"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"});
  token& bos = beside.bos_is_none() ? special.usual_bos : special.bos;
  if (special.bos < 0) bos = first_of({"<|endoftext|>", "<s>", "<|begin_of_text|>", "<bos>"});
  return {model, special};
}

}  // namespace xtrain::detail
