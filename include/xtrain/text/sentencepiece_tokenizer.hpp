// SentencePiece models (*.model). [Kudo & Richardson 2018] Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/text/added_tokens.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/sentencepiece_model.hpp>
#include <xtrain/text/sentencepiece_normalizer.hpp>
#include <xtrain/text/token_decoder.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/tokenizer_pipeline.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain {

/// Special tokens around texts.
struct text_surroundings {
  std::vector<token> before{}, after{};                                  ///< a text; `before` also for the first of a pair
  std::vector<token> after_first{}, before_second{}, after_second{};     ///< a pair
  std::vector<token> prompt_beginning{}, prompt_ending{};                ///< a prompt
};

/// Matched only directly after certain tokens.
struct following_token {
  std::vector<token> behind{};
  std::string content{};
  token id = -1;
};

namespace detail {

/// Writes line breaks, tabs and runs of spaces as ChatGLM-6B's pieces: <n>, <|tab|>, <|blank_2|> to <|blank_80|>.
///   origins  written: offset in `text` for every byte and the end
[[nodiscard]] inline std::string spaces_as_pieces(std::string_view text, std::vector<std::uint32_t>& origins) {
  std::string result;
  origins.clear();
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    constexpr std::size_t longest = 80;
    end = at + 1;
    while (text[at] == ' ' && end < text.size() && text[end] == ' ' && end - at < longest) ++end;
    if (text[at] == '\n') result += "<n>";
    else if (text[at] == '\t') result += "<|tab|>";
    else if (end - at > 1) result += concat("<|blank_", end - at, "|>");
    else result += text[at];
    origins.resize(result.size(), static_cast<std::uint32_t>(at));
  }
  origins.push_back(static_cast<std::uint32_t>(text.size()));
  return result;
}
/// Reverse of spaces_as_pieces.
[[nodiscard]] inline std::string pieces_as_spaces(std::string text) {
  replace_all(text, "<n>", "\n");
  replace_all(text, "<|tab|>", "\t");
  for (std::size_t count = 2; count <= 80; ++count) replace_all(text, concat("<|blank_", count, "|>"), std::string(count, ' '));
  return text;
}

}  // namespace detail

/// Where a space is added. A text's parts lie between tokens matched in it.
enum class space_before : std::uint8_t {
  as_model,       ///< every part, if the model says so
  text_of_model,  ///< the text, if the model says so
  every_part,
  text,     ///< a text that begins with neither a token nor a space
  nothing,
};

/// Settings of a model.
struct sentencepiece_options {
  std::vector<added_token> added{};  ///< beyond the model's; matched literally
  bool finds_special = false;        ///< matches control and unknown pieces in text, as transformers; else only the model splits
  std::vector<added_token> named{};  ///< further pieces to match: named as special in files
  space_before prefix = space_before::as_model;
  bool normalizes = true;  ///< false: only makes spaces visible, and matches user-defined pieces
  named_files beside{};              ///< saved with the model
};

/// A SentencePiece model.
class sentencepiece_model final : public tokenizer_model {
 public:
  /// throws file_error if the file is not a SentencePiece model, config_error for invalid added tokens
  explicit sentencepiece_model(const std::string& path, sentencepiece_options o = {}) : sentencepiece_model(contents_of(path), path, std::move(o)) {}
  /// From a file's bytes; `path` for errors.
  sentencepiece_model(std::string bytes, const std::string& path, sentencepiece_options o)
      : path_(path), bytes_(std::move(bytes)), file_(read(bytes_, path, o.normalizes)), numbers_(file_, path),
        user_defined_(detail::user_defined_pieces(file_, path)),
        normalizer_(file_.normalization, user_defined_.empty() ? nullptr : &user_defined_, file_.whitespace_as_suffix, path),
        cutter_(detail::make_piece_cutter(file_, user_defined_, numbers_, path)), beside_(std::move(o.beside)), prefix_(o.prefix) {
    if (!file_.denormalization.charsmap.empty()) denormalizer_.emplace(file_.denormalization, nullptr, false, path);
    for (std::size_t i = 0; i < file_.pieces.size(); ++i)
      if (file_.pieces[i].kind == detail::piece_kind::byte)
        byte_pieces_[static_cast<std::size_t>(detail::byte_of_piece(file_.pieces[i].text))] = static_cast<token>(i);
    pieces_ = static_cast<token>(file_.pieces.size());
    vocabulary_ = file_.pieces.size();
    std::vector<added_token> matched;  // the model matches other pieces
    for (added_token& one : o.added)
      if (one.id >= pieces_ || (o.finds_special && one.id >= 0 && piece(one.id).text == one.content)) matched.push_back(std::move(one));
    if (o.finds_special) {
      const auto match = [&](added_token one) {
        const bool listed = std::any_of(matched.begin(), matched.end(), [&](const added_token& other) { return other.content == one.content; });
        if (!listed) matched.push_back(std::move(one));
      };
      for (added_token& one : o.named)
        if (one.id = find_token(one.content); one.id >= 0) match(std::move(one));
      for (token id = 0; id < pieces_; ++id)
        if (const auto kind = piece(id).kind; kind == detail::piece_kind::control || kind == detail::piece_kind::unknown ||
                                                 (kind == detail::piece_kind::user_defined && !o.normalizes))
          match({.content = piece(id).text, .id = id, .special = kind != detail::piece_kind::user_defined});
    }
    add(std::move(matched));
  }
  sentencepiece_model(const sentencepiece_model&) = delete;  // parts refer to one another
  sentencepiece_model& operator=(const sentencepiece_model&) = delete;

  /// Adds tokens that are matched literally.
  ///   throws  config_error for ids that are taken or far beyond the pieces
  void add(std::vector<added_token> more) {
    std::vector<added_token> all = added_.all();
    for (added_token& one : more) {
      one.normalized = false;
      require<config_error>(static_cast<std::size_t>(one.id) < file_.pieces.size() + 65536, path_, ": added tokens must follow the ", pieces_,
                            " pieces; '", one.content, "' is ", one.id);
      vocabulary_ = std::max(vocabulary_, static_cast<std::size_t>(one.id) + 1);
      all.push_back(std::move(one));
    }
    added_ = detail::added_tokens(std::move(all), nullptr, path_);
  }
  void surround(text_surroundings with) { around_ = std::move(with); }
  void add(following_token one) { following_ = std::move(one); }
  /// ChatGLM-6B: line breaks, tabs and runs of spaces are pieces.
  void write_spaces_as_pieces() { spaces_are_pieces_ = true; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// First id of an added token.
  [[nodiscard]] token pieces() const { return pieces_; }

  ///   throws  data_error for texts of 2 GiB and more
  void encode(std::string_view text, std::vector<placed_token>& tokens) const override { encode_parts(text, true, tokens); }
  void encode_as_text(std::string_view text, std::vector<placed_token>& tokens) const override { encode_parts(text, false, tokens); }

  [[nodiscard]] encoding encode_whole(std::string_view text, const std::string_view* second) const override {
    encoding whole;
    const auto put = [&](const std::vector<token>& special, std::int32_t type) {
      for (const token id : special) whole.tokens.push_back({id, 0, 0});
      whole.types.resize(whole.tokens.size(), type);
      whole.parts.resize(whole.tokens.size(), -1);
    };
    const auto put_text = [&](std::string_view part, std::int32_t type) {
      encode(part, whole.tokens);
      whole.types.resize(whole.tokens.size(), type);
      whole.parts.resize(whole.tokens.size(), static_cast<std::int8_t>(type));
    };
    put(around_.before, 0);
    put_text(text, 0);
    put(second == nullptr ? around_.after : around_.after_first, 0);
    if (second == nullptr) return whole;
    put(around_.before_second, 1);
    put_text(*second, 1);
    put(around_.after_second, 1);
    return whole;
  }
  [[nodiscard]] std::vector<token> prompt_beginning() const override { return around_.prompt_beginning; }
  [[nodiscard]] std::vector<token> prompt_ending() const override { return around_.prompt_ending; }

  /// Incomplete characters become U+FFFD, as in the library.
  [[nodiscard]] std::string decode(std::span<const token> tokens) const override {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < tokens.size(); begin = end + 1) {
      for (end = begin; end < tokens.size() && added_.find(tokens[end]) == nullptr;) ++end;
      text += decode_pieces(tokens.subspan(begin, end - begin), takes_space(begin == 0));
      if (end < tokens.size()) text += added_.find(tokens[end])->content;
    }
    return spaces_are_pieces_ ? detail::pieces_as_spaces(std::move(text)) : text;
  }
  [[nodiscard]] std::size_t vocab_size() const override { return vocabulary_; }
  void save(const std::string& folder) const override {
    write_file(folder + "/tokenizer.model", bytes_);
    for (const auto& [name, contents] : beside_) write_file(folder + "/" + name, contents);
  }

  [[nodiscard]] bool is_special(token t) const override {
    if (const added_token* one = added_.find(t); one != nullptr) return one->special;
    return is(t, detail::piece_kind::control);
  }
  [[nodiscard]] std::string token_text(token t) const override {
    if (const added_token* one = added_.find(t); one != nullptr) return one->content;
    return t >= 0 && t < pieces_ ? piece(t).text : std::string{};
  }
  [[nodiscard]] token find_token(const std::string& text) const override {
    if (const token id = added_.find(text); id >= 0) return id;
    const token id = numbers_.find(text);  // the unknown token's id without such a piece
    return piece(id).text == text ? id : -1;
  }

  /// Negative: none.
  [[nodiscard]] token bos() const { return control(file_.bos_piece); }
  [[nodiscard]] token eos() const { return control(file_.eos_piece); }

 private:
  static constexpr std::size_t largest_text = std::size_t{1} << 31;

  [[nodiscard]] static std::string contents_of(const std::string& path) {
    const mapped_file file(path);
    return std::string(file.text());
  }
  [[nodiscard]] static detail::sentencepiece_file read(std::string_view bytes, const std::string& path, bool normalizes) {
    detail::sentencepiece_file file = detail::read_sentencepiece(bytes, path);
    if (!normalizes) {
      file.normalization.charsmap.clear();
      file.normalization.remove_extra_whitespaces = false;
      file.normalization.escape_whitespaces = true;
    }
    return file;
  }
  [[nodiscard]] const detail::sentence_piece& piece(token t) const { return file_.pieces[static_cast<std::size_t>(t)]; }
  [[nodiscard]] bool is(token t, detail::piece_kind kind) const { return t >= 0 && t < pieces_ && piece(t).kind == kind; }
  [[nodiscard]] token control(const std::string& text) const {
    const token id = numbers_.find(text);
    return is(id, detail::piece_kind::control) ? id : -1;
  }

  void encode_parts(std::string_view text, bool find_special, std::vector<placed_token>& tokens) const {
    require<data_error>(text.size() < largest_text, "tokenizer: a text must be smaller than 2 GiB; it has ", text.size(), " bytes");
    const detail::word_memories::lent memory(memories_);
    detail::word_scratch& work = (*memory).scratch();
    added_.for_each_part(text, false, find_special, [&](std::size_t begin, std::size_t end, token added) {
      if (added >= 0) return tokens.push_back({added, begin, end});
      if (follows(begin, text, tokens)) {
        tokens.push_back({following_.id, begin, begin + following_.content.size()});
        begin += following_.content.size();
        if (begin == end) return;
      }
      const std::string_view part = text.substr(begin, end - begin);
      if (spaces_are_pieces_) {
        std::vector<std::uint32_t> before;
        normalizer_.apply(detail::spaces_as_pieces(part, before), work.text, work.origins);
        for (std::uint32_t& origin : work.origins) origin = before[origin];
      } else {
        normalizer_.apply(part, adds_space(part, begin == 0), work.text, work.origins);
      }
      work.pieces.clear();
      cutter_->cut(work.text, *memory, work.pieces);
      add_tokens(work, begin, tokens);
    });
  }
  [[nodiscard]] bool follows(std::size_t begin, std::string_view text, const std::vector<placed_token>& tokens) const {
    const auto& behind = following_.behind;
    return !behind.empty() && !tokens.empty() && tokens.back().end == begin && text.substr(begin).starts_with(following_.content) &&
           std::find(behind.begin(), behind.end(), tokens.back().id) != behind.end();
  }
  /// Unknown pieces become byte pieces, or an unknown token per run.
  void add_tokens(const detail::word_scratch& work, std::size_t offset, std::vector<placed_token>& tokens) const {
    bool behind_unknown = false;
    for (const detail::word_token& one : work.pieces) {
      const std::size_t begin = offset + work.origins[one.begin], end = offset + work.origins[one.end];
      const bool unknown = one.id == file_.unknown;
      if (unknown && file_.byte_fallback) {  // the last byte maps to the character, others to nothing
        for (std::uint32_t i = one.begin; i < one.end; ++i)
          tokens.push_back({byte_pieces_[static_cast<unsigned char>(work.text[i])], begin, i + 1 < one.end ? begin : end});
      } else if (unknown && behind_unknown) {
        tokens.back().end = end;
      } else {
        tokens.push_back({one.id, begin, is(one.id, detail::piece_kind::control) ? begin : end});
      }
      behind_unknown = unknown;
    }
  }

  /// Before a part of a text.
  [[nodiscard]] bool adds_space(std::string_view part, bool first) const {
    const bool by_model = file_.normalization.add_dummy_prefix;
    if (prefix_ == space_before::as_model) return by_model;
    if (prefix_ == space_before::every_part || prefix_ == space_before::nothing) return prefix_ == space_before::every_part;
    if (!first || (prefix_ == space_before::text_of_model && !by_model)) return false;
    return file_.normalization.remove_extra_whitespaces || !(part.starts_with(' ') || part.starts_with(detail::visible_space));
  }
  /// Decoding drops a space before a part.
  [[nodiscard]] bool takes_space(bool first) const {
    return file_.normalization.remove_extra_whitespaces || adds_space("a", first);
  }
  /// Control pieces and invalid ids have no text.
  ///   takes_space  drop the space before them
  [[nodiscard]] std::string decode_pieces(std::span<const token> tokens, bool takes_space) const {
    std::string text, bytes;
    bool at_begin = true, space_taken = false;
    const auto end_bytes = [&] {
      for (std::size_t at = 0; at < bytes.size();) {
        const detail::character next = detail::character_at(bytes, at);
        text += next.code < 0 ? std::string_view("\xEF\xBF\xBD") : std::string_view(bytes).substr(at, next.bytes);
        at += next.bytes;
      }
      bytes.clear();
    };
    for (const token t : tokens) {
      if (t < 0 || t >= pieces_) continue;
      const detail::sentence_piece& one = piece(t);
      if (one.kind == detail::piece_kind::byte) {
        bytes.push_back(static_cast<char>(detail::byte_of_piece(one.text)));
        continue;
      }
      end_bytes();
      if (space_taken || !text.empty()) at_begin = false;
      space_taken = false;
      if (one.kind == detail::piece_kind::control) continue;
      if (one.kind == detail::piece_kind::unknown) {
        text += file_.unknown_surface;
        continue;
      }
      std::string_view written = one.text;
      if (at_begin && takes_space && written.starts_with(detail::visible_space)) {
        written.remove_prefix(detail::visible_space.size());
        space_taken = !file_.normalization.remove_extra_whitespaces;
      }
      std::string spaced(written);
      detail::replace_all(spaced, detail::visible_space, " ");
      text += spaced;
    }
    end_bytes();
    if (!denormalizer_) return text;
    std::string denormalized;
    std::vector<std::uint32_t> origins;
    denormalizer_->apply(text, denormalized, origins);
    return denormalized;
  }

  std::string path_, bytes_;
  detail::sentencepiece_file file_;
  detail::piece_numbers numbers_;
  detail::byte_trie user_defined_;
  detail::sentencepiece_normalizer normalizer_;
  std::optional<detail::sentencepiece_normalizer> denormalizer_;
  std::unique_ptr<detail::piece_cutter> cutter_;
  std::array<token, 256> byte_pieces_{};
  named_files beside_;
  detail::added_tokens added_;
  following_token following_;
  text_surroundings around_;
  bool spaces_are_pieces_ = false;
  space_before prefix_ = space_before::as_model;
  token pieces_ = 0;
  std::size_t vocabulary_ = 0;
  mutable detail::word_memories memories_;
};

}  // namespace xtrain
