// Speed of preprocess_data against encode_batch on the same texts in memory: cost of reading, parsing and writing.
//
//   preprocess TOKENIZER FILE [THREADS...]
//
// The file is split at line breaks into documents of about 4 KiB, written as JSON Lines repeatedly up to 24 MiB: the time of syncing files to disk hardly
// depends on size.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/preprocess.hpp>
#include <xtrain/text/encode_batch.hpp>
#include <xtrain/text/load_tokenizer.hpp>

#include "processors.hpp"

namespace {

/// Median time of three or more calls, for about a second.
template <class Work>
double seconds_of(Work&& work) {
  std::vector<double> times;
  for (double all = 0; all < 1.0 || times.size() < 3; all += times.back()) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  if (argc < 3) {
    std::fprintf(stderr, "preprocess TOKENIZER FILE [THREADS...]\n");
    return 2;
  }
  const xtrain::tokenizer tokenizer = xtrain::load_tokenizer(argv[1]);
  const xtrain::mapped_file file(argv[2]);
  const std::string folder = (std::filesystem::temp_directory_path() / xtrain::concat("xtrain-bench-", ::getpid())).string();
  std::filesystem::create_directories(folder);
  std::vector<std::string> documents;
  std::string lines;
  const std::string_view text = file.text();
  for (std::size_t begin = 0; !text.empty() && lines.size() < std::size_t{24} << 20;) {
    const std::size_t wanted = std::min(begin + 4096, text.size());
    const std::size_t end = wanted == text.size() ? wanted : std::min(text.find('\n', wanted), text.size() - 1) + 1;
    documents.emplace_back(text.substr(begin, end - begin));
    lines += xtrain::json{{"text", documents.back()}}.dump() + "\n";
    begin = end == text.size() ? 0 : end;
  }
  const std::string input = folder + "/texts.jsonl";
  xtrain::write_file(input, lines);
  std::vector<std::size_t> threads;
  for (int i = 3; i < argc; ++i) threads.push_back(static_cast<std::size_t>(std::strtoul(argv[i], nullptr, 10)));
  if (threads.empty()) threads = {1, 2};
  const auto handler = xtrain::make_record_handler("GeneralPretrain", tokenizer);
  for (const std::size_t t : threads) {
    std::size_t tokens = 0;
    const double encoded = seconds_of([&] {
      tokens = 0;
      for (const auto& ids : xtrain::encode_batch(tokenizer, documents, t)) tokens += ids.size();
    });
    const double written =
        seconds_of([&] { (void)preprocess_data({input}, tokenizer, *handler, {.output_prefix = folder + "/out", .workers = t}); });
    const double million = static_cast<double>(tokens) / 1e6;
    std::printf("%zu threads  encode_batch %.2f M tokens/s  preprocess_data %.2f M tokens/s  ratio %.2f\n", t, million / encoded,
                million / written, encoded / written);
  }
  std::filesystem::remove_all(folder);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "preprocess: %s\n", problem.what());
  return 1;
}
