// tokenizer_config.json, special_tokens_map.json, added_tokens.json. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/tokenizer_class.hpp>
#include <xtrain/text/tokenizer_json.hpp>

namespace xtrain::detail {

/// While it exists, files read by its thread may name begin and end tokens that are about to be added.
class special_tokens_to_come {
 public:
  special_tokens_to_come() { ++count(); }
  ~special_tokens_to_come() { --count(); }
  special_tokens_to_come(const special_tokens_to_come&) = delete;
  special_tokens_to_come& operator=(const special_tokens_to_come&) = delete;
  [[nodiscard]] static bool expected() { return count() > 0; }

 private:
  [[nodiscard]] static int& count() {
    thread_local int living = 0;
    return living;
  }
};

/// Reads these files; ignores keys that do not concern tokens.
class companion_files {
 public:
  /// throws file_error if a file is not JSON, config_error for invalid token settings
  explicit companion_files(const std::string& folder) : where_(folder) {
    json config, map;
    for (const char* name : {"added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"}) {
      const std::string path = folder + "/" + name;
      if (!file_exists(path)) continue;
      const mapped_file file(path);
      files_.emplace_back(name, std::string(file.text()));
      json document = parse_json(file.text(), path);
      require<config_error>(document.is_object(), path, ": must be a JSON object; it is ", document.type_name());
      if (std::string_view(name) == "added_tokens.json") read_added(document, path);
      else (std::string_view(name) == "tokenizer_config.json" ? config : map) = std::move(document);
    }
    // as in transformers: special_tokens_map.json counts, unless tokenizer_config.json lists added tokens
    const bool map_counts = !config.is_object() || !config.contains("added_tokens_decoder");
    if (!map_counts && map.is_object())
      for (const auto& [key, one] : map.items())
        if (!config.contains(key) && !one.is_null() && key.ends_with("_token")) unread_.push_back(key);
    if (config.is_object()) read_settings(config, folder + "/tokenizer_config.json", false);
    if (map_counts && map.is_object()) read_settings(map, folder + "/special_tokens_map.json", true);
    describes_ = config.is_object();
    names_class_ = !class_.empty();
    read_model_config(folder + "/config.json");
    for (const auto& [key, one] : named_) add_special(one);
    named_specials_ = specials_.size();
    const tokenizer_class& own = kind();  // the class's tokens, unless a file names another, or null
    for (const auto& [name, text] : {std::pair{"bos_token", own.bos}, {"eos_token", own.eos}, {"unk_token", own.unk}, {"pad_token", own.pad},
                                     {"cls_token", own.cls}, {"sep_token", own.sep}, {"mask_token", own.mask}})
      if (!text.empty() && named(name).empty() && !config.contains(name) && !map.contains(name)) {
        add_special({.content = std::string(text), .special = true});
        if (std::string_view(name) == "bos_token") own_bos_ = text;
        if (std::string_view(name) == "eos_token") own_eos_ = text;
      }
  }

  [[nodiscard]] const named_files& files() const { return files_; }
  /// As saved without config.json: with the class.
  [[nodiscard]] named_files files_with_class() const {
    named_files all = files_;
    if (names_class_ || class_.empty()) return all;
    const auto config = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.first == "tokenizer_config.json"; });
    json settings = config == all.end() ? json::object() : parse_json(config->second, where_);
    settings["tokenizer_class"] = class_;
    if (config == all.end()) all.emplace_back("tokenizer_config.json", settings.dump(2) + "\n");
    else config->second = settings.dump(2) + "\n";
    return all;
  }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Class of tokenizer_config.json, or of config.json, by name or model_type; else empty.
  [[nodiscard]] const std::string& class_name() const { return class_; }
  [[nodiscard]] const tokenizer_class& kind() const { return tokenizer_class_of(class_); }
  /// Forgets a class known only by model_type, for a vocabulary of another kind.
  void forget_class_of_model() {
    if (!is_of_model_) return;
    class_.clear();
    forget_tokens_of_class();
  }
  /// Forgets tokens known only by class.
  void forget_tokens_of_class() {
    specials_.erase(specials_.begin() + static_cast<std::ptrdiff_t>(named_specials_), specials_.end());
    own_bos_.clear();
    own_eos_.clear();
  }
  /// In tokenizer_config.json.
  [[nodiscard]] bool names_class() const { return names_class_; }
  /// There is a tokenizer_config.json.
  [[nodiscard]] bool describes() const { return describes_; }
  [[nodiscard]] const std::string& model_type() const { return model_type_; }
  /// BERT's keys; strip_accents: null is missing.
  [[nodiscard]] std::optional<bool> lowercase() const { return lowercase_; }
  [[nodiscard]] std::optional<bool> strips_accents() const { return strips_accents_; }
  [[nodiscard]] std::optional<bool> separates_ideographs() const { return separates_ideographs_; }
  /// LLaMA: a space before every part after a special token.
  [[nodiscard]] std::optional<bool> legacy() const { return legacy_; }
  /// Special tokens only in a special_tokens_map.json that is not read.
  [[nodiscard]] const std::vector<std::string>& unread() const { return unread_; }
  /// Replace the pattern of Mistral's early files: fix_mistral_regex, and saved by transformers before 5.
  [[nodiscard]] bool fixes_mistral_pattern() const { return fixes_mistral_.value_or(false) && early_mistral_; }
  /// Text of a named token, as "eos_token"; or empty.
  [[nodiscard]] std::string named(std::string_view name) const {
    const auto at = std::find_if(named_.begin(), named_.end(), [&](const auto& one) { return one.first == name; });
    return at == named_.end() ? std::string() : at->second.content;
  }
  /// Or empty.
  [[nodiscard]] const std::string& bos() const { return bos_; }
  [[nodiscard]] std::optional<bool> adds_bos() const { return adds_bos_; }
  [[nodiscard]] std::optional<bool> adds_eos() const { return adds_eos_; }
  /// Byte-level vocabularies: a space before a text; a tokenizer.json has it.
  [[nodiscard]] std::optional<bool> adds_prefix_space() const { return adds_prefix_space_; }
  /// ChatGLM: offset of ids; ChatGLM3: conversations name roles.
  [[nodiscard]] std::uint64_t image_tokens() const { return image_tokens_; }
  [[nodiscard]] bool has_roles() const { return has_roles_; }
  /// With explicit ids.
  [[nodiscard]] const std::vector<added_token>& added() const { return added_; }
  /// tokenizer_config.json says how the token is matched.
  [[nodiscard]] bool has_flags_of(const std::string& content) const {
    return std::find(with_flags_.begin(), with_flags_.end(), content) != with_flags_.end();
  }
  /// Named as special, without ids; in the vocabulary.
  [[nodiscard]] const std::vector<added_token>& specials() const { return specials_; }
  /// Special as bos_token or the like, without a list of added tokens.
  [[nodiscard]] bool makes_special(const std::string& content) const {
    return with_flags_.empty() && std::any_of(named_.begin(), named_.end(), [&](const auto& one) { return one.second.content == content; });
  }
  [[nodiscard]] bool names_special(const std::string& content) const {
    return std::any_of(specials_.begin(), specials_.end(), [&](const added_token& one) { return one.content == content; });
  }

  /// No begin token: null in files, or in neither files nor class.
  [[nodiscard]] bool bos_is_none() const {
    return bos_.empty() && (null_bos_ || class_ == "PreTrainedTokenizerFast" || class_ == "TokenizersBackend" || class_.starts_with("Qwen2Tokenizer"));
  }

  /// Sets bos and eos named by files; `find` returns a text's token, or a negative value.
  ///   throws  config_error for a text that is no token
  template <class Find>
  void read_special(special_tokens& special, const Find& find) const {
    const auto read = [&](const char* name, const std::string& text, token& to) {
      if (text.empty()) return;
      const token id = find(text);
      if (id < 0 && special_tokens_to_come::expected()) return;
      require<config_error>(id >= 0, where_, ": '", name, "' of tokenizer_config.json or special_tokens_map.json must be a token of the vocabulary; given '",
                            text, "', which it does not have");
      to = id;
    };
    read("bos_token", bos_, special.bos);
    read("eos_token", eos_, special.eos);
    for (const auto& [text, to] : {std::pair{&own_bos_, &special.bos}, {&own_eos_, &special.eos}})
      if (const token id = text->empty() ? -1 : find(*text); id >= 0) *to = id;
  }
  /// Sets adds_bos from files. For a tokenizer.json its post-processor decides, as in transformers 5.
  void read_adds_bos(special_tokens& special) const {
    if (adds_bos_) special.adds_bos = *adds_bos_ && special.bos >= 0;
  }

 private:
  void read_added(const json& document, const std::string& path) {
    for (const auto& [content, id] : document.items())
      add({.content = content, .id = number(id.is_number_unsigned() ? id.dump() : "", content, path), .normalized = false});
  }
  ///   in_map   whether it is special_tokens_map.json
  void read_settings(const json& document, const std::string& path, bool in_map) {
    const auto flag = [&](const char* name, std::optional<bool>& to) {
      if (document.contains(name) && document[name].is_boolean()) to = document[name].get<bool>();
    };
    flag("add_bos_token", adds_bos_);
    flag("add_eos_token", adds_eos_);
    flag("add_prefix_space", adds_prefix_space_);
    flag("do_lower_case", lowercase_);
    flag("strip_accents", strips_accents_);
    flag("tokenize_chinese_chars", separates_ideographs_);
    flag("legacy", legacy_);
    flag("fix_mistral_regex", fixes_mistral_);
    std::optional<bool> splits;  // would always encode special tokens in text as ordinary text
    flag("split_special_tokens", splits);
    require<config_error>(!splits.value_or(false), path, ": 'split_special_tokens' must be false; given true");
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
      const json& value = document[name];
      const bool is_token = value.is_string() || (value.is_object() && value.contains("content") && value["content"].is_string());
      require<config_error>(value.is_null() || is_token, path, ": '", name, "' must be a token's text, an object with its 'content', or null; given ",
                            value.dump().substr(0, 100));
      const added_token one = special_of(value, in_map);
      if (one.content.empty()) return;
      if (to != nullptr) *to = one.content;
      const auto same = std::find_if(named_.begin(), named_.end(), [&](const auto& other) { return other.first == name; });
      if (same != named_.end()) same->second = one;
      else named_.emplace_back(name, one);
    };
    named("bos_token", &bos_);
    null_bos_ = null_bos_ || (document.contains("bos_token") && document["bos_token"].is_null());
    named("eos_token", &eos_);
    for (const char* name : {"unk_token", "pad_token", "cls_token", "sep_token", "mask_token"}) named(name, nullptr);
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"})  // before and since transformers 5
      if (document.contains(name) && (document[name].is_array() || document[name].is_object()))  // a list, or an object by name
        for (const auto& [key, one] : document[name].items())
          if (const added_token token = special_of(one, in_map); !token.content.empty()) add_special(token);
    if (!document.contains("added_tokens_decoder") || !document["added_tokens_decoder"].is_object()) return;
    for (const auto& [id, one] : document["added_tokens_decoder"].items()) {
      json described = one;
      if (described.is_object()) described["id"] = number(id, token_text(one), path);
      for (const added_token& token : read_added_tokens(json::array({described}), path)) {
        with_flags_.push_back(token.content);
        add(token);
      }
    }
  }
  /// Without a class in tokenizer_config.json: as transformers finds it.
  void read_model_config(const std::string& path) {
    if (!file_exists(path)) return;
    const json config = read_json(path);
    if (!config.is_object()) return;
    const auto text = [&](const char* name) {
      const auto at = config.find(name);
      return at != config.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    model_type_ = text("model_type");
    for (const std::string_view type : {"", "mistral", "mistral3", "voxtral", "ministral", "pixtral"})
      early_mistral_ = early_mistral_ || (type == model_type_ && !text("transformers_version").starts_with("5."));
    if (class_.empty()) class_ = text("tokenizer_class");
    if (class_.empty())
      if (const std::string_view name = class_of_model_type(model_type_); !name.empty()) {
        class_ = concat(name, "Tokenizer");
        is_of_model_ = true;
      }
  }
  /// A string, or an object with content and flags.
  [[nodiscard]] static added_token special_of(const json& value, bool in_map) {
    const auto flag = [&](const char* name, bool otherwise) {
      return value.is_object() && value.contains(name) && value[name].is_boolean() ? value[name].get<bool>() : otherwise;
    };
    return {.content = token_text(value),
            .single_word = flag("single_word", false),
            .lstrip = flag("lstrip", false),
            .rstrip = flag("rstrip", false),
            .normalized = flag("normalized", value.is_object() && !in_map),
            .special = true};
  }
  void add_special(const added_token& one) {
    if (!names_special(one.content)) specials_.push_back(one);
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

  std::string where_;
  named_files files_;
  std::string class_, model_type_, bos_, eos_;
  std::string own_bos_, own_eos_;  // the class's, if files have none
  std::optional<bool> adds_bos_, adds_eos_, adds_prefix_space_, lowercase_, strips_accents_, separates_ideographs_, legacy_, fixes_mistral_;
  std::uint64_t image_tokens_ = 0;
  bool has_roles_ = false, null_bos_ = false, describes_ = false, names_class_ = false, early_mistral_ = false, is_of_model_ = false;
  std::vector<added_token> added_, specials_;
  std::size_t named_specials_ = 0;  // named by files; then the class's
  std::vector<std::pair<std::string, added_token>> named_;  // bos_token and the like
  std::vector<std::string> with_flags_, unread_;
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

/// Adds tokens with explicit ids, and marks vocabulary tokens as special.
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
    one.special = one.special || beside.names_special(one.content);
    add(one);
  }
  for (const added_token& one : beside.specials())
    if (const token id = table.find(one.content); id >= 0) add({.content = one.content, .id = id, .normalized = false, .special = true});
}

/// Adds missing tokens as transformers does; flags of tokenizer_config.json count if it lists the token.
inline void complete_added_tokens(tokenizer_description& to, const companion_files& beside) {
  json& list = to.settings["added_tokens"];
  if (list.is_null()) list = json::array();
  if (!list.is_array()) return;  // refused later
  std::unordered_map<std::string, std::size_t> places;
  std::unordered_set<token> taken;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) return;  // refused later
    places.emplace(token_text(list[i]), i);
    if (const auto id = list[i].find("id"); id != list[i].end() && id->is_number_unsigned()) taken.insert(id->get<token>());
  }
  std::unordered_map<std::string, token> numbers;  // missing tokens that the vocabulary has
  std::vector<added_token> missing;
  for (added_token one : beside.added()) {
    one.special = one.special || beside.names_special(one.content);
    if (!beside.has_flags_of(one.content)) one.normalized = !one.special;  // from added_tokens.json
    const auto there = places.find(one.content);
    if (there == places.end()) {
      missing.push_back(one);
    } else if (beside.has_flags_of(one.content)) {
      json described = json_of(one);
      described["id"] = list[there->second].value("id", json());
      list[there->second] = std::move(described);
    }
  }
  for (const added_token& one : beside.specials()) {
    const auto there = places.find(one.content);
    if (there == places.end()) missing.push_back(one);
    else if (beside.makes_special(one.content)) list[there->second]["special"] = true;
  }
  if (missing.empty()) return;
  for (const added_token& one : missing) numbers.emplace(one.content, one.id);
  const auto number = [&](const std::string& text, token id) {
    if (const auto wanted = numbers.find(text); wanted != numbers.end()) wanted->second = id;
    else taken.insert(id);
  };
  for (const auto& [text, id] : to.vocabulary) number(text, id);
  for (std::size_t i = 0; i < to.pieces.size(); ++i) number(to.pieces[i].first, static_cast<token>(i));
  for (added_token& one : missing) {
    one.id = numbers.at(one.content);
    if (one.id < 0 || taken.contains(one.id)) continue;  // transformers would add it after the vocabulary: the model has no such token
    if (places.emplace(one.content, list.size()).second) list.push_back(json_of(one));
  }
}

/// Notes special tokens that are not read.
inline void note_unread(std::vector<std::string>& notes, const companion_files& beside) {
  if (beside.unread().empty()) return;
  std::string names;
  for (const std::string& name : beside.unread()) names += concat(names.empty() ? "" : ", ", name);
  notes.push_back(concat(beside.where(), ": ", names, " of special_tokens_map.json: not read, as in transformers, because tokenizer_config.json has ",
                         "added_tokens_decoder"));
}

/// Builds a tokenizer; bos and eos: of the files, else the description, else by usual names; unless the files say that bos is none.
///   saves_class  save() names the class from config.json
[[nodiscard]] inline tokenizer finish_tokenizer(tokenizer_description from, named_files files, const companion_files& beside,
                                                std::vector<std::string> notes = {}, bool saves_class = false) {
  const bool is_whole = !files.empty() && files.front().first == "tokenizer.json";
  for (auto& file : saves_class ? beside.files_with_class() : beside.files()) files.push_back(std::move(file));
  const auto model = make_tokenizer(std::move(from), std::move(files));
  special_tokens special;
  const std::vector<token> before = model->before_text(), after = model->after_text();
  if (!before.empty()) special = {.bos = before.front(), .eos = -1, .adds_bos = true};
  if (!after.empty()) special.eos = after.back();
  beside.read_special(special, [&](const std::string& text) { return model->find_token(text); });
  // as in transformers, texts begin with the post-processor's tokens, whatever bos the files name
  special.adds_bos = special.adds_bos && before == std::vector<token>{special.bos};
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
  note_unread(notes, beside);
  return {model, special, std::move(notes)};
}

}  // namespace xtrain::detail
