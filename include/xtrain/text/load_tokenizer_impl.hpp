// Definitions of load_tokenizer.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/byte_level_files.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/chatglm_tokens.hpp>
#include <xtrain/text/class_steps.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/gguf_tokenizer.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include <xtrain/text/sentencepiece_tokenizer.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/tokenizer_json.hpp>
#include <xtrain/text/word_piece_files.hpp>

namespace xtrain {

XTRAIN_INLINE tokenizer load_tokenizer_json(const std::string& path) {
  const mapped_file file(path);
  const detail::companion_files beside(detail::parent_of(path));
  tokenizer_description from = describe_tokenizer(parse_json(file.text(), path), path);
  const json listed = detail::member_or_null(from.settings, "added_tokens");
  detail::complete_added_tokens(from, beside);
  const json written = from.settings;
  detail::follow_class(from, beside);
  bool changed = written["added_tokens"] != (listed.is_null() ? json::array() : listed);
  for (const char* step : {"normalizer", "pre_tokenizer", "post_processor"})
    changed = changed || detail::member_or_null(from.settings, step) != detail::member_or_null(written, step);
  const detail::post_processor post(detail::member_or_null(from.settings, "post_processor"), path);
  std::vector<std::string> notes = detail::notes_on_class(from, beside, written, {post.before_text(), post.after_text()});
  return detail::finish_tokenizer(std::move(from), {{"tokenizer.json", std::string(file.text())}}, beside, std::move(notes), changed);
}

XTRAIN_INLINE tokenizer load_sentencepiece(const std::string& path) {
  detail::companion_files beside(detail::parent_of(path));
  if (!beside.describes()) beside.forget_tokens_of_class();  // without a config: as the sentencepiece library
  const std::string& kind = beside.class_name();
  const bool chatglm = kind == "ChatGLMTokenizer";
  sentencepiece_options options{.added = beside.added(), .beside = beside.files()};
  if (beside.describes() && !chatglm) {
    options.finds_special = true;
    options.named = beside.specials();
    for (added_token& one : options.added) one.special = one.special || beside.names_special(one.content);
    const std::optional<bool> space = beside.adds_prefix_space();
    options.normalizes = beside.kind().kind == detail::class_kind::as_written;
    switch (beside.kind().kind) {
      case detail::class_kind::llama:
        options.prefix = !space.value_or(true) ? space_before::nothing : beside.legacy().value_or(true) ? space_before::every_part : space_before::text;
        break;
      case detail::class_kind::code_llama:
        options.prefix = space.value_or(true) ? space_before::every_part : space_before::nothing;
        break;
      case detail::class_kind::gemma:
        options.prefix = space_before::nothing;
        break;
      default:
        if (!beside.legacy().value_or(true)) options.prefix = space_before::text_of_model;
    }
  }
  const space_before prefix = options.prefix;
  auto model = std::make_shared<sentencepiece_model>(path, std::move(options));
  special_tokens special{.bos = model->bos(), .eos = model->eos(), .adds_bos = model->bos() >= 0};
  beside.read_special(special, [&](const std::string& text) { return model->find_token(text); });
  beside.read_adds_bos(special);
  if (chatglm) {
    detail::configure_chatglm(*model, beside, special);
    return {std::move(model), special};
  }
  text_surroundings around;
  if (special.adds_bos) around.before = {special.bos};
  if (special.eos >= 0 && (beside.adds_eos().value_or(false) || kind.starts_with("T5Tokenizer"))) around.after = {special.eos};
  around.after_second = around.after;
  if (!kind.starts_with("InternLM")) {  // InternLM joins a pair
    around.after_first = around.after;
    around.before_second = around.before;
  }
  model->surround(std::move(around));
  std::vector<std::string> notes;
  const auto note = [&](const auto&... words) { notes.push_back(concat(path, ": tokenizer_class ", kind, ": ", words...)); };
  if (beside.names_class() && !beside.adds_bos() && special.adds_bos && beside.kind().kind != detail::class_kind::code_llama)
    note("transformers 5 begins texts with ", model->token_text(special.bos),
         " only if add_bos_token of tokenizer_config.json is true; here, as in transformers 4, it is true by default");
  if (beside.names_class() && prefix == space_before::every_part && beside.kind().kind == detail::class_kind::llama)
    note("transformers 5 puts no space ", beside.legacy() ? "" : "behind a special token unless legacy of tokenizer_config.json is true, and none ",
         "in front of a space; here, as in transformers 4, every part of a text has one");
  if (beside.names_class() && beside.kind().kind == detail::class_kind::code_llama)
    note("transformers 5 puts no space behind a special token; here, as in transformers 4, there is one");
  detail::note_unread(notes, beside);
  return {std::move(model), special, std::move(notes)};
}

namespace detail {

XTRAIN_INLINE tokenizer_form form_of(std::string_view text) {
  if (text.size() > 2 && text[0] == '\n' && text[2] == '\n') return tokenizer_form::sentencepiece;  // protobuf: a list of pieces
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return tokenizer_form::unknown;
  if (text[first] == '{') {  // a vocabulary has only numbers; a tokenizer.json has none at the top level
    const std::size_t colon = text.find("\":");
    const std::size_t value = colon == std::string_view::npos ? colon : text.find_first_not_of(" \t\r\n", colon + 2);
    const bool number = value != std::string_view::npos && text[value] >= '0' && text[value] <= '9';
    return number ? tokenizer_form::vocabulary : tokenizer_form::json;
  }
  if (text.starts_with("#version")) return tokenizer_form::merges;
  const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  const std::size_t space = line.find(' ');
  if (space != std::string_view::npos && space > 0) {
    const std::string_view second = line.substr(space + 1, line.find('\r') - space - 1);
    if (second.empty() || second.find(' ') != std::string_view::npos) return tokenizer_form::unknown;
    return second.find_first_not_of("0123456789") == std::string_view::npos ? tokenizer_form::ranks : tokenizer_form::merges;
  }
  const bool has_unknown = text.starts_with("[UNK]") || text.find("\n[UNK]") != std::string_view::npos;
  return has_unknown ? tokenizer_form::word_piece : tokenizer_form::unknown;
}

/// `path` with `part` of its file name replaced.
[[nodiscard]] inline std::string beside(const std::string& path, const std::string& part, const std::string& other) {
  const std::size_t at = path.rfind(part);
  require<file_error>(at != std::string::npos, path, ": must have '", part, "' in its name, so that the file with '", other,
                      "' can be found beside it");
  return path.substr(0, at) + other + path.substr(at + part.size());
}

[[nodiscard]] inline tokenizer load_tokenizer_file(const std::string& path) {
  if (gguf_file::is_one(path)) return load_gguf_tokenizer(path);
  const tokenizer_form form = [&] {
    const mapped_file file(path);
    return form_of(file.text());
  }();
  switch (form) {
    case tokenizer_form::json:
      return load_tokenizer_json(path);
    case tokenizer_form::vocabulary:
      return load_vocabulary_and_merges(path, beside(path, "vocab.json", "merges.txt"));
    case tokenizer_form::merges:
      return load_vocabulary_and_merges(beside(path, "merges.txt", "vocab.json"), path);
    case tokenizer_form::ranks:
      return load_tiktoken(path);
    case tokenizer_form::sentencepiece:
      return load_sentencepiece(path);
    case tokenizer_form::word_piece:
      return load_word_piece(path);
    case tokenizer_form::unknown:
      break;
  }
  if (path.ends_with(".json")) return load_tokenizer_json(path);
  if (path.ends_with(".model")) return load_sentencepiece(path);
  fail<file_error>(path,
                   ": must be a tokenizer.json, a vocab.json with merges.txt, a SentencePiece model, a file of tiktoken's ranks, "
                   "BERT's vocab.txt, or a GGUF file; it is none of them");
}

/// A folder's only file with this ending; or empty.
[[nodiscard]] inline std::string only_file(const std::string& folder, std::string_view ending) {
  std::string found;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{})) {
    if (!name.ends_with(ending)) continue;
    if (!found.empty()) return {};
    found = folder + "/" + name;
  }
  return found;
}

}  // namespace detail

XTRAIN_INLINE tokenizer load_tokenizer(const std::string& path) {
  if (path == "byte") return byte_tokenizer();
  require<file_error>(file_exists(path), path,
                      ": must be 'byte', a folder with tokenizer files, or such a file; no such file or folder");
  if (!is_directory(path)) return detail::load_tokenizer_file(path);
  const auto in = [&](const char* name) { return path + "/" + name; };
  const std::string model = in("tokenizer.model");
  if (file_exists(in("tokenizer.json"))) {
    if (!file_exists(model)) return load_tokenizer_json(in("tokenizer.json"));
    try {
      return load_tokenizer_json(in("tokenizer.json"));
    } catch (const config_error&) {  // unsupported tokenizer.json: load the model that it was converted from
      return detail::load_tokenizer_file(model);
    }
  }
  if (file_exists(model)) return detail::load_tokenizer_file(model);
  if (file_exists(in("vocab.json")) && file_exists(in("merges.txt"))) return load_vocabulary_and_merges(in("vocab.json"), in("merges.txt"));
  if (file_exists(in("vocab.txt"))) return load_word_piece(in("vocab.txt"));
  for (const char* ending : {".tiktoken", ".model"})
    if (const std::string only = detail::only_file(path, ending); !only.empty()) return detail::load_tokenizer_file(only);
  fail<file_error>(path,
                   ": must hold tokenizer.json, tokenizer.model, vocab.json and merges.txt, vocab.txt, or one *.tiktoken or *.model; "
                   "it holds none of them");
}

}  // namespace xtrain
