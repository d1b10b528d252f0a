// Text to tokens and back.
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

/// A token and its bytes in the text.
struct placed_token {
  token id = 0;
  std::size_t begin = 0, end = 0;
};

/// A model's input: tokens of a text or a pair, with added special tokens.
struct encoding {
  std::vector<placed_token> tokens{};  ///< added tokens: bytes 0 to 0
  std::vector<std::int32_t> types{};   ///< token type ids
  std::vector<std::int8_t> parts{};    ///< per token: 0 first text, 1 second, -1 added

  [[nodiscard]] std::vector<token> ids() const;
};

/// Interface; pure functions are required.
class tokenizer_model {
 public:
  virtual ~tokenizer_model() = default;
  /// Appends tokens with byte offsets, without begin or end of text.
  virtual void encode(std::string_view text, std::vector<placed_token>& tokens) const = 0;
  /// The tokens' bytes; nothing for tokens without text.
  [[nodiscard]] virtual std::string decode(std::span<const token> tokens) const = 0;
  [[nodiscard]] virtual std::size_t vocab_size() const = 0;
  /// Writes a Hugging Face folder of this tokenizer.
  virtual void save(const std::string& folder) const = 0;

  /// A text or a pair with special tokens; default: none.
  [[nodiscard]] XTRAIN_HEADER_INLINE virtual encoding encode_whole(std::string_view text, const std::string_view* second) const;
  /// Special tokens written in `text` are ordinary text: for untrusted text.
  virtual void encode_as_text(std::string_view text, std::vector<placed_token>& tokens) const { encode(text, tokens); }
  /// Decoding may skip it.
  [[nodiscard]] virtual bool is_special(token) const { return false; }
  /// Tokens before a prompt, in place of bos, and after it.
  [[nodiscard]] virtual std::vector<token> prompt_beginning() const { return {}; }
  [[nodiscard]] virtual std::vector<token> prompt_ending() const { return {}; }
  /// A token's string and its inverse; empty and -1 if unknown.
  [[nodiscard]] virtual std::string token_text(token) const { return {}; }
  [[nodiscard]] virtual token find_token(const std::string&) const { return -1; }
};

/// Text of special tokens when decoding.
enum class special_text : std::uint8_t { kept, left_out };

/// Begin- and end-of-text tokens.
struct special_tokens {
  token bos = -1;         ///< begin of text; negative: none
  token eos = -1;         ///< end of text; negative: none
  bool adds_bos = false;  ///< bos begins every text
  token usual_bos = -1;   ///< if files say "bos_token": null: the vocabulary's begin token by its usual name

  /// For texts that must begin with a token.
  [[nodiscard]] token first() const { return bos >= 0 ? bos : usual_bos >= 0 ? usual_bos : eos; }
};

/// A model and its special tokens; copies share the vocabulary.
class tokenizer {
 public:
  tokenizer(std::shared_ptr<const tokenizer_model> model, special_tokens special, std::vector<std::string> notes = {})
      : model_(std::move(model)), special_(special), notes_(std::move(notes)) {}

  /// Without added special tokens.
  [[nodiscard]] std::vector<token> encode(std::string_view text) const;
  /// Special tokens written in the text are ordinary text.
  [[nodiscard]] std::vector<token> encode_as_text(std::string_view text) const;
  /// With byte offsets.
  [[nodiscard]] std::vector<placed_token> encode_placed(std::string_view text) const;
  /// Begins every text: bos if adds_bos, or the family's tokens (ChatGLM2: [gMASK] sop).
  [[nodiscard]] std::vector<token> beginning() const;
  /// Between a prompt and its continuation: ChatGLM-6B's [gMASK] <sop>; else empty.
  [[nodiscard]] std::vector<token> prompt_ending() const { return model_->prompt_ending(); }
  /// A prompt with the tokens that the model expects. Empty text: special().first() alone.
  [[nodiscard]] std::vector<token> encode_prompt(std::string_view text) const;
  /// With special tokens, as [CLS] and [SEP].
  [[nodiscard]] encoding encode_whole(std::string_view text) const { return model_->encode_whole(text, nullptr); }
  [[nodiscard]] encoding encode_whole(std::string_view text, std::string_view second) const { return model_->encode_whole(text, &second); }

  [[nodiscard]] std::string decode(std::span<const token> tokens, special_text special = special_text::kept) const;

  /// A token's string; its inverse, or -1.
  [[nodiscard]] std::string token_text(token id) const { return model_->token_text(id); }
  [[nodiscard]] token find_token(const std::string& text) const { return model_->find_token(text); }

  [[nodiscard]] std::size_t vocab_size() const { return model_->vocab_size(); }
  [[nodiscard]] const special_tokens& special() const { return special_; }
  /// Differences from versions of transformers, a sentence each; programs warn of them.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  void save(const std::string& folder) const { model_->save(folder); }

 private:
  std::shared_ptr<const tokenizer_model> model_;
  special_tokens special_;
  std::vector<std::string> notes_;
};

/// Decodes tokens as they arrive; never emits part of a character.
class streaming_decoder {
 public:
  /// `before`: the prompt, for the space after it.
  streaming_decoder(tokenizer with, std::span<const token> before);

  /// Completed text; empty while a character is incomplete.
  [[nodiscard]] std::string push(token next);
  /// The rest, with incomplete characters.
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
