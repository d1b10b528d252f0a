// Text to tokens and back. A tokenizer is a handle: copies share the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/header_inline.hpp>

namespace xtrain {

/// A token and the bytes of the text it came from.
struct placed_token {
  token id = 0;
  std::size_t begin = 0, end = 0;
};

/// What a model takes as input: the tokens of one text or of a pair, with the special tokens that the tokenizer adds.
struct encoding {
  std::vector<placed_token> tokens{};  ///< added special tokens come from no bytes: 0 to 0
  std::vector<std::int32_t> types{};   ///< token type ids: 0, or what marks the second text
  std::vector<std::int8_t> parts{};    ///< of each token: 0 first text, 1 second text, -1 added

  [[nodiscard]] std::vector<token> ids() const;
};

/// Interface of a tokenizer model: the first functions must be implemented, the others may be.
class tokenizer_model {
 public:
  virtual ~tokenizer_model() = default;
  /// Appends the tokens of `text` with their byte offsets; no begin- or end-of-text tokens.
  virtual void encode(std::string_view text, std::vector<placed_token>& tokens) const = 0;
  /// The bytes that the tokens stand for. Tokens that are no text (begin of text) decode to nothing.
  [[nodiscard]] virtual std::string decode(std::span<const token> tokens) const = 0;
  [[nodiscard]] virtual std::size_t vocab_size() const = 0;
  /// Writes the files that recreate this tokenizer, as a Hugging Face folder.
  virtual void save(const std::string& folder) const = 0;

  /// The tokens of one text or a pair with the special tokens around them; by default there are none.
  [[nodiscard]] XTRAIN_HEADER_INLINE virtual encoding encode_whole(std::string_view text, const std::string_view* second) const;
  /// Appends the tokens of `text`, special tokens written in it encoded as ordinary text: untrusted text cannot end a text.
  virtual void encode_as_text(std::string_view text, std::vector<placed_token>& tokens) const { encode(text, tokens); }
  /// Whether decoding may skip this token because it is a special token.
  [[nodiscard]] virtual bool is_special(token) const { return false; }
  /// The tokens before a prompt, in place of a begin token, and the tokens after it.
  [[nodiscard]] virtual std::vector<token> prompt_beginning() const { return {}; }
  [[nodiscard]] virtual std::vector<token> prompt_ending() const { return {}; }
  /// The token's string in the vocabulary, and the token of a string: empty and -1 if the model does not know.
  [[nodiscard]] virtual std::string token_text(token) const { return {}; }
  [[nodiscard]] virtual token find_token(const std::string&) const { return -1; }
};

/// Whether decoding includes the text of special tokens.
enum class special_text : std::uint8_t { kept, left_out };

/// Begin- and end-of-text tokens.
struct special_tokens {
  token bos = -1;         ///< begin of text; negative: none
  token eos = -1;         ///< end of text; negative: none
  bool adds_bos = false;  ///< every text begins with bos
  token usual_bos = -1;   ///< where the tokenizer's files say that bos is none ("bos_token": null): the vocabulary's begin token by its usual name

  /// What begins a text that must begin with a token: bos, or else the vocabulary's usual begin token, or else eos.
  [[nodiscard]] token first() const { return bos >= 0 ? bos : usual_bos >= 0 ? usual_bos : eos; }
};

/// Text to tokens and back: a model, and the special tokens around it.
class tokenizer {
 public:
  tokenizer(std::shared_ptr<const tokenizer_model> model, special_tokens special, std::vector<std::string> notes = {})
      : model_(std::move(model)), special_(special), notes_(std::move(notes)) {}

  /// The tokens of the text alone, without added special tokens.
  [[nodiscard]] std::vector<token> encode(std::string_view text) const;
  /// As encode, but special tokens written in the text are encoded as ordinary text.
  [[nodiscard]] std::vector<token> encode_as_text(std::string_view text) const;
  /// As encode, with the byte offsets of each token.
  [[nodiscard]] std::vector<placed_token> encode_placed(std::string_view text) const;
  /// The tokens every text begins with: bos if adds_bos is set, or what the family uses instead (ChatGLM2: [gMASK] sop).
  [[nodiscard]] std::vector<token> beginning() const;
  /// The tokens between a prompt and its continuation; empty except for ChatGLM-6B: [gMASK] <sop>.
  [[nodiscard]] std::vector<token> prompt_ending() const { return model_->prompt_ending(); }
  /// The tokens of a prompt that the model is to continue, with what the model expects before and after it. An empty text is special().first()
  /// alone.
  [[nodiscard]] std::vector<token> encode_prompt(std::string_view text) const;
  /// The tokens with the special tokens that the model expects around them: [CLS] and [SEP], begin of text.
  [[nodiscard]] encoding encode_whole(std::string_view text) const { return model_->encode_whole(text, nullptr); }
  [[nodiscard]] encoding encode_whole(std::string_view text, std::string_view second) const { return model_->encode_whole(text, &second); }

  [[nodiscard]] std::string decode(std::span<const token> tokens, special_text special = special_text::kept) const;

  /// A token's string in the vocabulary; the token of such a string, or -1.
  [[nodiscard]] std::string token_text(token id) const { return model_->token_text(id); }
  [[nodiscard]] token find_token(const std::string& text) const { return model_->find_token(text); }

  [[nodiscard]] std::size_t vocab_size() const { return model_->vocab_size(); }
  [[nodiscard]] const special_tokens& special() const { return special_; }
  /// What other versions of transformers read otherwise in this tokenizer's folder, a sentence each. Programs warn of it.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  void save(const std::string& folder) const { model_->save(folder); }

 private:
  std::shared_ptr<const tokenizer_model> model_;
  special_tokens special_;
  std::vector<std::string> notes_;
};

/// Decodes tokens to text as they arrive and never emits part of a character.
class streaming_decoder {
 public:
  /// `before`: the tokens that came before (the prompt), so that the space between them and the new text is right.
  streaming_decoder(tokenizer with, std::span<const token> before);

  /// The text that this token completes; empty while a character is incomplete.
  [[nodiscard]] std::string push(token next);
  /// The remaining text, incomplete characters included.
  [[nodiscard]] std::string finish() { return take(true); }

 private:
  std::string take(bool all);
  [[nodiscard]] static bool ends_inside_a_character(std::string_view text);

  static constexpr std::size_t longest_window = 64;
  tokenizer tokenizer_;
  std::vector<token> window_;
  std::size_t given_ = 0;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/tokenizer_impl.hpp>
#endif
