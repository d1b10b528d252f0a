// A file of tiktoken's ranks, and a text. The line "$bytes" stands for the 256 ranks of single bytes, which every file must
// have; "%% family" names the family.
#include <xtrain/text/byte_level_files.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 3; ++j) word = word << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? digits[word >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

std::string with_bytes(const std::string& text) {
  constexpr std::string_view mark = "$bytes";
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return text;
  std::string all;
  for (unsigned byte = 0; byte < 256; ++byte)
    all += concat(base64_of(std::string(1, static_cast<char>(byte))), " ", byte, byte < 255 ? "\n" : "");
  return text.substr(0, at) + all + text.substr(at + mark.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text = "the then th \xC3\xBC\xE4\xBD\xA0\xF0\x9F\x98\x80 \xFF\xC3 123  don't\n", family = "cl100k_base", ranks;
  for (const auto& [name, contents] : fuzz::files_of(fuzz::text_of(data, size))) {
    if (name == "text") text = contents;
    else if (name == "family") family = contents;
    else if (name == "ranks") ranks = with_bytes(contents);
  }
  put_file(fuzz::folder() / "some.tiktoken", ranks);
  fuzz::accepted = fuzz::reads([&] {
    const tokenizer loaded = load_tiktoken(fuzz::folder() / "some.tiktoken", family);
    std::size_t last = 0;
    for (const placed_token& t : loaded.encode_placed(text)) {
      fuzz::must(t.id >= 0 && static_cast<std::size_t>(t.id) < loaded.vocab_size(), "tokens must be of the vocabulary");
      fuzz::must(t.begin <= t.end && t.end <= text.size() && t.end >= last, "tokens must come from the text, one behind the other");
      last = t.end;
    }
    if (family != "qwen") fuzz::must(loaded.decode(loaded.encode(text)) == text, "what is decoded must be the text");
  });
  return 0;
}
