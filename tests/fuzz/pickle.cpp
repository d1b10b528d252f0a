// A bare pickle, so that fuzzing need not get through an archive. It becomes a PyTorch file with two storages.
#include <xtrain/io/pickle.hpp>
#include <xtrain/io/weight_file.hpp>

#include "pickled.hpp"
#include "weights.hpp"

using namespace xtrain;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string contents = pickled::zip({{.name = "x/data.pkl", .contents = fuzz::text_of(data, size)},
                                             {.name = "x/data/0", .contents = std::string(24, '\1')},
                                             {.name = "x/data/1", .contents = std::string(64, '\2')}});
  const std::string path = fuzz::folder() / "x.bin";
  put_file(path, contents);
  fuzz::accepted = fuzz::reads([&] {
    const weight_file file(path);
    fuzz::check_tensors(file, contents.size());
  });
  return 0;
}
