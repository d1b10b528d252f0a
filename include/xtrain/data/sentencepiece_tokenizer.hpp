// SentencePiece models, by the library itself.                            [Kudo & Richardson 2018]
// Component 'text': needs SentencePiece.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sentencepiece_processor.h>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/data/tokenizer.hpp>

namespace xtrain {

class sentencepiece_model final : public tokenizer_model {
 public:
  /// throws file_error when the file is missing or is no SentencePiece model
  explicit sentencepiece_model(const std::string& path) {
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
  }

  void encode(std::string_view text, std::vector<placed_token>& tokens) const override {
    const auto pieces = processor_.EncodeAsImmutableProto(text);
    for (std::size_t i = 0; i < pieces.pieces_size(); ++i) {
      const auto piece = pieces.pieces(static_cast<int>(i));
      tokens.push_back({static_cast<token>(piece.id()), piece.begin(), piece.end()});
    }
  }
  [[nodiscard]] std::string decode(std::span<const token> tokens) const override {
    std::vector<int> ids;
    for (const token t : tokens)
      if (t >= 0 && t < processor_.GetPieceSize()) ids.push_back(t);
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    require<data_error>(status.ok(), "tokenizer: tokens must decode; the library says: ", std::string_view(status.error_message()));
    return text;
  }
  [[nodiscard]] std::size_t vocabulary() const override { return static_cast<std::size_t>(processor_.GetPieceSize()); }
  void save(const std::string& folder) const override { write_file(folder + "/tokenizer.model", processor_.serialized_model_proto()); }

  [[nodiscard]] token bos() const { return processor_.bos_id(); }
  [[nodiscard]] token eos() const { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace xtrain
