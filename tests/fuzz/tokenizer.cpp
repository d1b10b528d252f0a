// A folder of tokenizer files (several in one input: see fuzz.hpp), and a text to encode. "$bytes" stands for the 256 single-byte tokens, which every such
// vocabulary needs.
#include <xtrain/core/json.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/load_tokenizer.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

constexpr std::array<const char*, 7> names{
    "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};

std::string with_bytes(const std::string& text) {
  static const std::string all = [] {
    json vocabulary = json::object();
    for (unsigned byte = 0; byte < 256; ++byte) vocabulary[detail::printable_byte(byte)] = byte;
    const std::string object = vocabulary.dump();
    return object.substr(1, object.size() - 2);
  }();
  constexpr std::string_view mark = "$bytes";
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? text : text.substr(0, at) + all + text.substr(at + mark.size());
}

/// Properties of any tokenizer. A byte-level vocabulary without further steps is lossless.
void check_text(const tokenizer& with, const std::string& text, bool gives_back) {
  const auto placed = with.encode_placed(text);
  std::size_t last = 0;
  for (const placed_token& t : placed) {
    fuzz::must(t.id >= 0 && static_cast<std::size_t>(t.id) < with.vocab_size(), "tokens must be of the vocabulary");
    fuzz::must(t.begin <= t.end && t.end <= text.size(), "tokens must come from the text");
    fuzz::must(!gives_back || t.begin == last, "tokens must come from the text, one behind the other");
    last = t.end;
  }
  fuzz::must(!gives_back || last == text.size(), "the whole text must be encoded");
  const std::string decoded = with.decode(with.encode(text));
  fuzz::must(!gives_back || decoded == text, "what is decoded must be the text");
  fuzz::must(with.encode(text) == with.encode(text), "a text must have the same tokens again");
  const encoding whole = with.encode_whole(text, "the second");
  fuzz::must(whole.types.size() == whole.tokens.size() && whole.parts.size() == whole.tokens.size(),
             "every token must have a type and a part");
  for (const placed_token& t : whole.tokens) {
    fuzz::must(t.id >= 0 && static_cast<std::size_t>(t.id) < with.vocab_size(), "tokens around a text must be of the vocabulary");
    (void)with.token_text(t.id);
  }
  streaming_decoder stream(with, {});
  std::string streamed;
  for (const placed_token& t : placed) streamed += stream.push(t.id);
  streamed += stream.finish();
  fuzz::must(!gives_back || streamed == decoded, "a text must be the same when it is decoded piece by piece");
  const bool prompted = fuzz::reads([&] { (void)with.encode_prompt(text); });
  fuzz::must(prompted || placed.empty(), "a prompt that is not empty must be encoded");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::error_code ignored;
  for (const char* name : names) std::filesystem::remove(fuzz::folder() / name, ignored);
  std::string text = "the then th \xC3\xBC\xE4\xBD\xA0\xF0\x9F\x98\x80 \xFF\xC3 123  don't\n";
  bool plain = true;
  for (const auto& [name, contents] : fuzz::files_of(fuzz::text_of(data, size))) {
    plain = plain && (name == "text" || name == "vocab.json" || name == "merges.txt");
    if (name == "text") text = contents;
    else if (std::find(names.begin(), names.end(), name) != names.end()) put_file(fuzz::folder() / name, with_bytes(contents));
  }
  fuzz::accepted = fuzz::reads([&] {
    const tokenizer loaded = load_tokenizer(fuzz::folder().path());
    check_text(loaded, text, plain);
    check_text(loaded, "", plain);
    fuzz::must(
        loaded.special().eos < static_cast<token>(loaded.vocab_size()) && loaded.special().bos < static_cast<token>(loaded.vocab_size()),
        "special tokens must be of the vocabulary");
  });
  return 0;
}
