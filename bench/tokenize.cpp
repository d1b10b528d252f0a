// Tokenization speed, on one thread and on several.
//
//   tokenize TOKENIZER FILE [THREADS...]
//
// The file is split at line breaks into documents of about 4 KiB, which are encoded as a batch, repeatedly for one second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/text/encode_batch.hpp>
#include <xtrain/text/load_tokenizer.hpp>

#include "processors.hpp"

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string> documents_of(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t wanted = std::min(begin + 4096, text.size());
    const std::size_t end = wanted == text.size() ? wanted : std::min(text.find('\n', wanted), text.size() - 1) + 1;
    all.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  if (argc < 3) {
    std::fprintf(stderr, "tokenize TOKENIZER FILE [THREADS...]\n");
    return 2;
  }
  const auto began = std::chrono::steady_clock::now();
  const xtrain::tokenizer tokenizer = xtrain::load_tokenizer(argv[1]);
  std::printf("loaded in %.2f s\n", seconds_since(began));
  const xtrain::mapped_file file(argv[2]);
  const std::vector<std::string> documents = documents_of(file.text());
  std::vector<std::size_t> threads;
  for (int i = 3; i < argc; ++i) threads.push_back(static_cast<std::size_t>(std::strtoul(argv[i], nullptr, 10)));
  if (threads.empty()) threads = {1, 2};
  for (const std::size_t t : threads) {
    std::vector<double> times;
    std::size_t tokens = 0, sum = 0;
    for (double all = 0; all < 1.0 || times.size() < 3; all += times.back()) {
      const auto begin = std::chrono::steady_clock::now();
      const auto results = xtrain::encode_batch(tokenizer, documents, t);
      times.push_back(seconds_since(begin));
      tokens = sum = 0;
      for (const auto& ids : results)
        for (const xtrain::token id : ids) {
          ++tokens;
          sum = (sum * 31 + static_cast<std::size_t>(id)) % 1000000007;
        }
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    std::printf("xtrain      %zut  %7.2f MB/s  %zu tokens  check %zu\n", t, static_cast<double>(file.size()) / median / 1e6, tokens, sum);
  }
} catch (const std::exception& problem) {
  std::fprintf(stderr, "tokenize: %s\n", problem.what());
  return 1;
}
