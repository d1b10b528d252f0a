// A SentencePiece model and a text: reading, normalization, segmentation, decoding.
#include <xtrain/text/load_tokenizer.hpp>

#include "fuzz.hpp"

using namespace xtrain;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text = "the then th \xC3\xBC\xE4\xBD\xA0\xF0\x9F\x98\x80 \xFF\xC3 123  don't\n";
  std::string model;
  for (const auto& [name, contents] : fuzz::files_of(fuzz::text_of(data, size))) {
    if (name == "text") text = contents;
    else if (name == "tokenizer.model") model = contents;
  }
  put_file(fuzz::folder() / "tokenizer.model", model);
  fuzz::accepted = fuzz::reads([&] {
    const tokenizer loaded = load_tokenizer(fuzz::folder().path());
    fuzz::must(loaded.vocab_size() > 0, "a model must have pieces");
    std::size_t last = 0;
    for (const placed_token& t : loaded.encode_placed(text)) {
      fuzz::must(t.id >= 0 && static_cast<std::size_t>(t.id) < loaded.vocab_size(), "tokens must be of the vocabulary");
      fuzz::must(t.begin <= t.end && t.end <= text.size() && t.end >= last, "tokens must come from the text, one behind the other");
      last = t.end;
    }
    (void)loaded.decode(loaded.encode(text));
    std::vector<token> all;
    for (token t = -1; t <= static_cast<token>(loaded.vocab_size()); ++t) all.push_back(t);
    (void)loaded.decode(all);
    fuzz::must(
        loaded.special().eos < static_cast<token>(loaded.vocab_size()) && loaded.special().bos < static_cast<token>(loaded.vocab_size()),
        "special tokens must be of the vocabulary");
  });
  return 0;
}
