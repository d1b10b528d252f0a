// A tokenizer of steps: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/text/added_tokens.hpp>
#include <xtrain/text/aligned_text.hpp>
#include <xtrain/text/normalizer.hpp>
#include <xtrain/text/post_processor.hpp>
#include <xtrain/text/pre_tokenizer.hpp>
#include <xtrain/text/token_decoder.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain {

/// Missing steps do nothing.
struct tokenizer_steps {
  std::unique_ptr<detail::normalizer> normalizer{};
  std::unique_ptr<detail::pre_tokenizer> pre_tokenizer{};
  std::unique_ptr<detail::word_model> model{};
  detail::post_processor post_processor{};
  std::unique_ptr<detail::token_decoder> decoder{};
  std::vector<added_token> added{};
};

/// Name and contents of files.
using named_files = std::vector<std::pair<std::string, std::string>>;

/// Original files; a missing tokenizer.json is generated on demand.
struct saved_tokenizer {
  named_files files{};
  std::function<std::string()> tokenizer_json{};
};

/// The steps of a tokenizer.json.
class tokenizer_pipeline final : public tokenizer_model {
 public:
  /// throws config_error if steps contradict each other
  tokenizer_pipeline(tokenizer_steps steps, saved_tokenizer saved, const std::string& who)
      : steps_(std::move(steps)), saved_(std::move(saved)), added_(std::move(steps_.added), steps_.normalizer.get(), who) {
    vocabulary_ = steps_.model->vocabulary().size();
    const std::size_t most = 65536 + 16 * (vocabulary_ + added_.all().size());
    for (const added_token& one : added_.all()) {
      if (one.id < 0 || static_cast<std::size_t>(one.id) >= most)
        fail<config_error>(who, ": tokens of a vocabulary of ", vocabulary_ + added_.all().size(), " must be below ", most, "; '",
                           one.content, "' is ", one.id);
      vocabulary_ = std::max(vocabulary_, static_cast<std::size_t>(one.id) + 1);
    }
    const token largest = steps_.post_processor.largest_token();
    require<config_error>(largest < static_cast<token>(vocabulary_), who, ": special tokens must be of the vocabulary of ", vocabulary_,
                          "; the post-processor names ", largest);
  }

  /// throws data_error for 2 GiB and more, or unknown text without a token for it
  void encode(std::string_view text, std::vector<placed_token>& tokens) const override { encode_parts(text, true, tokens); }
  void encode_as_text(std::string_view text, std::vector<placed_token>& tokens) const override { encode_parts(text, false, tokens); }

  [[nodiscard]] encoding encode_whole(std::string_view text, const std::string_view* second) const override {
    std::vector<placed_token> first_tokens, second_tokens;
    encode(text, first_tokens);
    if (second != nullptr) encode(*second, second_tokens);
    return steps_.post_processor.apply(std::move(first_tokens), std::move(second_tokens), second != nullptr,
                                       [&](token id) { return text_of(id); });
  }

  /// Incomplete characters' bytes are unchanged.
  [[nodiscard]] std::string decode(std::span<const token> tokens) const override {
    std::vector<std::string> texts;
    texts.reserve(tokens.size());
    for (const token t : tokens) {
      if (const added_token* one = added_.find(t); one != nullptr) texts.push_back(added_.decoded(*one));
      else if (steps_.model->vocabulary().has(t)) texts.emplace_back(steps_.model->vocabulary().text(t));
    }
    if (steps_.decoder) steps_.decoder->apply(texts);
    std::string all;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && !steps_.decoder) all += ' ';
      all += texts[i];
    }
    return all;
  }

  [[nodiscard]] std::size_t vocab_size() const override { return vocabulary_; }
  [[nodiscard]] bool is_special(token t) const override {
    const added_token* one = added_.find(t);
    return (one != nullptr && one->special) || added_.is_special_text(one != nullptr ? added_.decoded(*one) : std::string(steps_.model->vocabulary().text(t)));
  }
  [[nodiscard]] std::string token_text(token t) const override { return std::string(text_of(t)); }
  [[nodiscard]] token find_token(const std::string& text) const override {
    const token id = added_.find(text);
    return id >= 0 ? id : steps_.model->vocabulary().find(text);
  }
  void save(const std::string& folder) const override {
    for (const auto& [name, contents] : saved_.files) write_file(folder + "/" + name, contents);
    if (saved_.tokenizer_json) write_file(folder + "/tokenizer.json", saved_.tokenizer_json());
  }

  [[nodiscard]] std::vector<token> before_text() const { return steps_.post_processor.before_text(); }
  [[nodiscard]] std::vector<token> prompt_beginning() const override { return before_text(); }
  [[nodiscard]] std::vector<token> after_text() const { return steps_.post_processor.after_text(); }

 private:
  static constexpr std::size_t largest_text = std::size_t{1} << 31;

  void encode_parts(std::string_view text, bool find_special, std::vector<placed_token>& tokens) const {
    require<data_error>(text.size() < largest_text, "tokenizer: a text must be smaller than 2 GiB; it has ", text.size(), " bytes");
    const detail::word_memories::lent memory(memories_);
    added_.for_each_part(text, false, find_special, [&](std::size_t begin, std::size_t end, token id) {
      if (id >= 0) return tokens.push_back({id, begin, end});
      detail::aligned_text part(text.substr(begin, end - begin), begin);
      if (steps_.normalizer) steps_.normalizer->apply(part);
      if (!added_.any_in_normalized_text()) return encode_words(std::move(part), *memory, tokens);
      added_.for_each_part(part.view(), true, find_special, [&](std::size_t from, std::size_t to, token added) {
        if (added < 0) return encode_words(part.part(from, to), *memory, tokens);
        const detail::byte_range place = part.place(from, to);
        tokens.push_back({added, place.begin, place.end});
      });
    });
  }

  void encode_words(detail::aligned_text part, detail::word_memory& memory, std::vector<placed_token>& tokens) const {
    detail::cut_text cut(std::move(part));
    if (steps_.pre_tokenizer) steps_.pre_tokenizer->apply(cut);
    const std::string_view view = cut.text.view();
    for (const detail::byte_range piece : cut.pieces) {
      const std::string_view word = view.substr(piece.begin, piece.end - piece.begin);
      for (std::size_t at = 0, end = 0; at < word.size(); at = end) {
        end = steps_.model->part_end(word, at);
        const std::size_t offset = piece.begin + at;
        memory.encode(*steps_.model, word.substr(at, end - at), [&](token id, std::size_t begin, std::size_t to) {
          const detail::byte_range place = cut.text.place(offset + begin, offset + to);
          tokens.push_back({id, place.begin, place.end});
        });
      }
    }
  }
  [[nodiscard]] std::string_view text_of(token t) const {
    const added_token* one = added_.find(t);
    return one != nullptr ? std::string_view(one->content) : steps_.model->vocabulary().text(t);
  }

  tokenizer_steps steps_;
  saved_tokenizer saved_;
  detail::added_tokens added_;
  std::size_t vocabulary_ = 0;
  mutable detail::word_memories memories_;
};

}  // namespace xtrain
