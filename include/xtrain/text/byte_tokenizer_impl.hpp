// Definitions of byte_tokenizer.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::string printable_byte(unsigned byte) {
  const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  unsigned code = byte;
  if (!prints) {  // non-printable bytes are 256 and up: 0 … 32, 127 … 160, 173
    code = 256 + (byte <= 32 ? byte : byte <= 160 ? 33 + (byte - 127) : 67);
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0U | (code >> 6)), static_cast<char>(0x80U | (code & 0x3FU))};
}

XTRAIN_INLINE void byte_model::encode(std::string_view text, std::vector<placed_token>& tokens) const {
  for (std::size_t i = 0; i < text.size(); ++i) tokens.push_back({static_cast<unsigned char>(text[i]), i, i + 1});
}

XTRAIN_INLINE std::string byte_model::decode(std::span<const token> tokens) const {
  std::string text;
  for (const token t : tokens)
    if (t >= 0 && t < end_of_text) text.push_back(static_cast<char>(t));
  return text;
}

XTRAIN_INLINE void byte_model::save(const std::string& folder) const {
  std::string vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string shown = printable_byte(byte);
    const std::string escaped = shown == "\"" || shown == "\\" ? concat("\\", shown) : shown;
    vocabulary += concat(byte == 0 ? "" : ", ", "\"", escaped, "\": ", byte);
  }
  vocabulary += ", \"<|endoftext|>\": 256";
  const std::string byte_level = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})";
  write_file(
      folder + "/tokenizer.json",
      concat(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 256, "content": "<|endoftext|>", )",
             R"("single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "normalizer": null, )",
             R"("pre_tokenizer": )", byte_level, R"(, "post_processor": null, "decoder": )", byte_level,
             R"(, "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, )",
             R"("end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {)", vocabulary, "}, \"merges\": []}}\n"));
  write_file(folder + "/tokenizer_config.json",
             "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"bos_token\": \"<|endoftext|>\", \"eos_token\": \"<|endoftext|>\", "
             "\"clean_up_tokenization_spaces\": false}\n");
}

}  // namespace detail

XTRAIN_INLINE tokenizer byte_tokenizer() {
  return {std::make_shared<detail::byte_model>(),
          {.bos = detail::byte_model::end_of_text, .eos = detail::byte_model::end_of_text, .adds_bos = false}};
}

}  // namespace xtrain
