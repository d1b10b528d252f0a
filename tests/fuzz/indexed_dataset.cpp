// A Megatron indexed dataset: two bytes for the index's size, one for a vocabulary; then the index and the tokens.
#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/loader.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

constexpr std::size_t all_tokens = std::size_t{1} << 30;

/// Whether the pair is accepted: then sequences are contiguous in the file, documents hold them all, and a written copy is equal.
bool read_pair(const std::string& prefix) {
  return fuzz::reads([&] {
    const indexed_file file(prefix);
    std::size_t begin = 0;
    for (std::size_t s = 0; s < file.sequences(); ++s) {
      fuzz::must(file.begin(s) == begin, "sequences must lie one behind the other");
      begin += file.length(s);
    }
    fuzz::must(begin == file.tokens() && begin * bytes_of(file.dtype()) == mapped_file(prefix + ".bin").size(),
               "sequences must be all there is");
    for (std::size_t i = 0; i < file.tokens(); ++i) fuzz::must(file.sequence_of(i) < file.sequences(), "a token must be of a sequence");
    for (std::size_t d = 0; d < file.documents(); ++d) {
      fuzz::must(file.document_begin(d) <= file.document_begin(d + 1) && file.document_begin(d + 1) <= file.sequences(),
                 "documents must be in order");
      for (std::size_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s)
        fuzz::must(file.document_of(s) == d, "a sequence must be of its document");
    }
    if (file.documents() == 0 || file.document_begin(file.documents()) != file.sequences())
      return;  // the writer has no sequences behind the last document
    std::vector<token> tokens;
    indexed_writer writer(prefix + "-again", file.dtype());
    if (!fuzz::reads([&] {
          for (std::size_t d = 0; d < file.documents(); ++d) {
            for (std::size_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
              tokens.resize(file.length(s));
              file.read(file.begin(s), tokens, all_tokens);
              writer.add_sequence(tokens);
            }
            writer.end_document();
          }
        })) {
      writer.discard();  // a token that is negative or too large
      return;
    }
    writer.finish();
    for (const char* end : {".bin", ".idx"})
      fuzz::must(get_file(prefix + end) == get_file(prefix + "-again" + end), "written again it must be the same");
  });
}

/// Samples of a loader have tokens of the vocabulary.
void read_samples(const std::string& prefix, std::size_t vocabulary) {
  (void)fuzz::reads([&] {
    const dataset data = gpt_dataset(prefix, {.seq_length = 4, .vocab_size = vocabulary, .samples = 12, .split = "3,1"});
    const loader rows(data, {.micro_batch_size = 4, .seq_length = 4});
    std::vector<host_batch> batches;
    for (std::size_t step = 0; step < 3; ++step) {
      rows.fill({0, step}, batches);
      fuzz::must(batches[0].target_count == 16, "every token of a sample must be a target");
      for (std::size_t i = 0; i < 16; ++i)
        for (const token t : {batches[0].tokens[i], batches[0].targets[i]})
          fuzz::must(t >= 0 && static_cast<std::size_t>(t) < vocabulary, "tokens must be of the vocabulary");
    }
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted = false;
  if (size < 3) return 0;
  const std::string all = fuzz::text_of(data + 3, size - 3), prefix = fuzz::folder() / "pair";
  const std::size_t index = std::min<std::size_t>(all.size(), data[0] + 256U * data[1]);
  put_file(prefix + ".idx", all.substr(0, index));
  put_file(prefix + ".bin", all.substr(index));
  fuzz::accepted = read_pair(prefix);
  if (fuzz::accepted) read_samples(prefix, 1U + data[2]);
  return 0;
}
