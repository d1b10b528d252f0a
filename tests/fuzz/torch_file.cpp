// torch.save's file: an archive, or the format before 1.6.
#include <xtrain/io/torch_file.hpp>
#include <xtrain/io/weight_file.hpp>

#include "weights.hpp"

using namespace xtrain;

namespace {

/// A PyTorch file as tensor source, for any first bytes.
struct opened : tensor_source {
  explicit opened(const std::string& path) { add_all(keep<torch_file>(path)); }
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = fuzz::folder() / "x.bin";
  put_file(path, fuzz::text_of(data, size));
  fuzz::accepted = fuzz::reads([&] { fuzz::check_tensors(opened(path), size); });
  return 0;
}
