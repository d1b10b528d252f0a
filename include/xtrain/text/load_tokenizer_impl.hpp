// Definitions of load_tokenizer.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/byte_level_files.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/chatglm_tokens.hpp>
#include <xtrain/text/companion_files.hpp>
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
  detail::complete_added_tokens(from, beside);
  return detail::finish_tokenizer(std::move(from), {{"tokenizer.json", std::string(file.text())}}, beside);
}

XTRAIN_INLINE tokenizer load_sentencepiece(const std::string& path) {
  const detail::companion_files beside(detail::parent_of(path));
  auto model = std::make_shared<sentencepiece_model>(path, sentencepiece_options{.added = beside.added(), .beside = beside.files()});
  special_tokens special{.bos = model->bos(), .eos = model->eos(), .adds_bos = model->bos() >= 0};
  beside.read_special(special, [&](const std::string& text) { return model->find_token(text); });
  beside.read_adds_bos(special);
  const std::string& kind = beside.tokenizer_class();
  if (kind == "ChatGLMTokenizer") {
    detail::be_chatglm(*model, beside, special);
    return {std::move(model), special};
  }
  text_surroundings around;
  if (special.adds_bos) around.before = {special.bos};
  if (special.eos >= 0 && beside.adds_eos().value_or(kind.starts_with("T5Tokenizer"))) around.after = {special.eos};
  around.after_second = around.after;
  if (!kind.starts_with("InternLM")) {  // InternLM joins a pair into one text
    around.after_first = around.after;
    around.before_second = around.before;
  }
  model->surround(std::move(around));
  return {std::move(model), special};
}

namespace detail {

XTRAIN_INLINE tokenizer_form form_of(std::string_view text) {
  if (text.size() > 2 && text[0] == '\n' && text[2] == '\n') return tokenizer_form::sentencepiece;  // protobuf: a list of pieces
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return tokenizer_form::unknown;
  if (text[first] == '{') {  // a vocabulary has only numbers as values; a tokenizer.json has none at the top level
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

/// The path of the file beside `path` with `part` of its name replaced by `other`.
[[nodiscard]] inline std::string beside(const std::string& path, const std::string& part, const std::string& other) {
  const std::size_t at = path.rfind(part);
  require<file_error>(at != std::string::npos, path, ": must have '", part, "' in its name, so that the file with '", other,
                      "' can be found beside it");
  return path.substr(0, at) + other + path.substr(at + part.size());
}

[[nodiscard]] inline tokenizer load_tokenizer_file(const std::string& path) {
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
                   ": must be a tokenizer.json, a vocab.json with merges.txt, a SentencePiece model, a file of tiktoken's ranks, or "
                   "BERT's vocab.txt; it is none of them");
}

/// The only file of a folder whose name ends in `ending`; empty if there is none or more than one.
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
    } catch (const config_error&) {  // unsupported tokenizer.json; fall back to the model it was converted from
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
