#include <xtrain/text.hpp>
#include <cstdio>
int main(int, char** argv) {
  const auto tokenizer = xtrain::load_tokenizer(argv[1]);
  std::printf("%zu\n", (std::size_t)tokenizer.vocab_size());
}
