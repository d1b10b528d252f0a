// SentencePiece models, by the library itself.                            [Kudo & Richardson 2018]
// Component 'text': needs SentencePiece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/data/added_tokens.hpp>
#include <xtrain/data/tokenizer.hpp>
#include <xtrain/data/tokenizer_pipeline.hpp>

namespace xtrain {

class sentencepiece_model final : public tokenizer_model {
 public:
  ///   added    tokens beyond the model's own, found in the text as they are written
  ///   beside   files that save() writes besides the model
  ///   throws   file_error when the file is missing or is no SentencePiece model, config_error for added tokens that cannot be
  explicit sentencepiece_model(const std::string& path, const std::vector<added_token>& added = {}, named_files beside = {})
      : beside_(std::move(beside)) {
    const mapped_file file(path);
    try {
      const auto status = processor_.LoadFromSerializedProto(file.text());
      require<file_error>(status.ok(), path,
                          ": must be a SentencePiece model; the library says: ", std::string_view(status.error_message()));
    } catch (const error&) {
      throw;
    } catch (const std::exception& problem) {  // it answers some models with a status, and some with an exception of its own
      fail<file_error>(path, ": must be a SentencePiece model; the library says: ", std::string_view(problem.what()));
    }
    require<file_error>(processor_.GetPieceSize() > 0, path, ": must be a SentencePiece model; it has no pieces");
    pieces_ = processor_.GetPieceSize();
    vocabulary_ = static_cast<std::size_t>(pieces_);
    std::vector<added_token> beyond;  // the others are pieces, and found where the model finds them
    for (const added_token& one : added)
      if (one.id >= pieces_) beyond.push_back(one);
    for (added_token& one : beyond) {
      one.normalized = false;
      require<config_error>(static_cast<std::size_t>(one.id) < vocabulary_ + 65536, path, ": added tokens must follow the ", pieces_,
                            " pieces; '", one.content, "' is ", one.id);
    }
    for (const added_token& one : beyond) vocabulary_ = std::max(vocabulary_, static_cast<std::size_t>(one.id) + 1);
    added_ = detail::added_tokens(std::move(beyond), nullptr, path);
  }

  void encode(std::string_view text, std::vector<placed_token>& tokens) const override {
    added_.for_each_part(text, false, true, [&](std::size_t begin, std::size_t end, token added) {
      if (added >= 0) return tokens.push_back({added, begin, end});
      const auto pieces = processor_.EncodeAsImmutableProto(text.substr(begin, end - begin));
      for (std::size_t i = 0; i < pieces.pieces_size(); ++i) {
        const auto piece = pieces.pieces(static_cast<int>(i));
        tokens.push_back({static_cast<token>(piece.id()), begin + piece.begin(), begin + piece.end()});
      }
    });
  }
  [[nodiscard]] std::string decode(std::span<const token> tokens) const override {
    std::vector<int> ids;
    std::string text;
    const auto decode_pieces = [&] {
      std::string part;
      const auto status = processor_.Decode(ids, &part);
      require<data_error>(status.ok(), "tokenizer: tokens must decode; the library says: ", std::string_view(status.error_message()));
      text += part;
      ids.clear();
    };
    for (const token t : tokens) {
      if (t >= 0 && t < pieces_) {
        ids.push_back(t);
      } else if (const added_token* one = added_.find(t); one != nullptr) {
        decode_pieces();
        text += one->content;
      }
    }
    decode_pieces();
    return text;
  }
  [[nodiscard]] std::size_t vocabulary() const override { return vocabulary_; }
  void save(const std::string& folder) const override {
    write_file(folder + "/tokenizer.model", processor_.serialized_model_proto());
    for (const auto& [name, contents] : beside_) write_file(folder + "/" + name, contents);
  }

  [[nodiscard]] bool is_special(token t) const override {
    if (const added_token* one = added_.find(t); one != nullptr) return one->special;
    return t >= 0 && t < pieces_ && processor_.IsControl(t);
  }
  [[nodiscard]] std::string token_text(token t) const override {
    if (const added_token* one = added_.find(t); one != nullptr) return one->content;
    return t >= 0 && t < pieces_ ? processor_.IdToPiece(t) : std::string{};
  }
  [[nodiscard]] token find_token(const std::string& text) const override {
    if (const token id = added_.find(text); id >= 0) return id;
    const int id = processor_.PieceToId(text);  // that of the unknown token, where there is none
    return id >= 0 && id < pieces_ && processor_.IdToPiece(id) == text ? id : -1;
  }

  [[nodiscard]] token bos() const { return processor_.bos_id(); }
  [[nodiscard]] token eos() const { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  named_files beside_;
  detail::added_tokens added_;
  token pieces_ = 0;
  std::size_t vocabulary_ = 0;
};

}  // namespace xtrain
