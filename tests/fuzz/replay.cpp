// Runs a fuzz target on every file of a corpus, without libFuzzer: regression tests for earlier findings.
//   replay <target> <folder>   files named valid-* must be read, files named refused-* must not
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "fuzz.hpp"

int main(int argc, char** argv) {
  const fuzz::target one_input = argc == 3 ? fuzz::target_of(argv[1]) : nullptr;
  if (one_input == nullptr) {
    std::fprintf(stderr, "usage: %s <target> <folder of inputs>\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  bool valid = false, refused = false;
  for (const auto& path : inputs) {
    const std::string name = path.filename().string(), contents = get_file(path.string());
    std::fprintf(stderr, "%s\n", name.c_str());  // the last printed name ended the program
    // exact size: sanitizers see a read beyond the end
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[contents.size()]);
    std::copy(contents.begin(), contents.end(), exact.get());
    fuzz::accepted = false;
    one_input(exact.get(), contents.size());
    fuzz::must(!name.starts_with("valid-") || fuzz::accepted, "a valid input must be read; it was refused");
    fuzz::must(!name.starts_with("refused-") || !fuzz::accepted, "this input must be refused; it was read");
    valid = valid || name.starts_with("valid-");
    refused = refused || name.starts_with("refused-");
  }
  fuzz::must(valid && refused, "the corpus must hold inputs of both kinds, valid-* and refused-*");
  // Small files must not need much memory. Half a gibibyte leaves room for the sanitizers.
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  fuzz::must(used.ru_maxrss < 512L * 1024, "reading small files must not take more than 512 MiB");
  return 0;
}
