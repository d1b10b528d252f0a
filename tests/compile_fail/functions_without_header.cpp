// says: xtrain load_tokenizer: <xtrain/text.hpp> must be included; link xtrain::text
// says: xtrain instruct_dataset: <xtrain/io.hpp> must be included; link xtrain::io
// says: xtrain run_ranks: <xtrain/parallel.hpp> must be included
// The function's own header is enough.
#ifndef MISTAKE
#include <xtrain/comm/threads.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#endif
#include <memory>
#include <string>

#include <xtrain/xtrain.hpp>

void load(const std::string& folder) {
  const auto tokenizer = xtrain::load_tokenizer(folder);
  const auto data = xtrain::instruct_dataset(folder, xtrain::byte_tokenizer());
  xtrain::run_ranks(2, [](std::shared_ptr<xtrain::transport>) {});
}
