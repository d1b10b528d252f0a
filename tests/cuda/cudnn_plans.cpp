// cuDNN's plans for attention, made for a GPU that is not here: that there are some, and that they need no more scratch memory than is planned.
//
//   cudnn_plans (<architecture> <file>)...   a device: 10 · major + minor, and its properties, as cuDNN saves them
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/cudnn/library.hpp>

namespace {

using namespace xtrain;

constexpr cuda_attention_shape shapes[] = {
    {.b = 4, .t = 1024, .h = 12, .k = 12, .d = 64},  // GPT-2
    {.b = 1, .t = 1100, .h = 4, .k = 4, .d = 128},
    {.b = 2, .t = 2048, .h = 12, .k = 2, .d = 128},  // Qwen2.5-1.5B
    {.b = 2, .t = 2048, .h = 14, .k = 2, .d = 64},  // Qwen2.5-0.5B
    {.number = cuda_number::fp16, .b = 1, .t = 1000, .h = 32, .k = 8, .d = 128},  // an odd length
    {.b = 1, .t = 2, .h = 1, .k = 1, .d = 8},  // cuDNN has no backward pass of one position
    {.b = 2, .t = 333, .h = 8, .k = 4, .d = 80},  // heads that are no power of two
};

int failures = 0;
void require(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("  FAILED: %s\n", what.c_str());
}

void check(const cudnn_library& library, void* handle, cuda_attention_shape shape, int architecture) {
  for (const bool is_backward : {false, true}) {
    shape.is_backward = is_backward;
    shape.scale = 0.125;
    const std::size_t planned = cudnn_workspace_bytes(shape, architecture);
    void* proposals = nullptr;
    std::size_t count = 0, built = 0;
    const std::string why = library.propose(handle, shape, proposals, count);
    std::printf("%s: %zu plans%s%s\n", shape.text().c_str(), count, why.empty() ? "" : ": ", why.c_str());
    require(why.empty() && count > 0, "cuDNN must have a plan");
    if (!why.empty()) continue;
    const std::shared_ptr<void> owned(proposals, library.release);
    for (std::size_t index = 0; index < count; ++index) {
      cudnn_plan plan;
      if (const std::string refused = library.build(proposals, index, plan); !refused.empty()) {
        std::printf("  %zu: %s\n", index, refused.c_str());
        continue;
      }
      ++built;
      std::printf("  %zu: %s, %zu bytes of %zu\n", index, plan.name.c_str(), plan.workspace_bytes, planned);
      require(!plan.name.empty() && plan.name.find_first_of(" \n") == std::string::npos, "a plan's name is written to a file of words");
      require(plan.workspace_bytes <= planned, "a plan must need no more scratch memory than is planned");
    }
    require(built > 0, "a plan must be built");
    require(library.run(proposals, 0, {.shape = shape}, nullptr, nullptr) == "the device is a saved one", "a saved device runs nothing");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const cudnn_library& library = *xtrain_cudnn_library();
  for (int i = 2; i < count; i += 2) {
    const int architecture = std::atoi(arguments[i - 1]);
    std::ifstream from(arguments[i]);
    const std::string properties(std::istreambuf_iterator<char>(from), {});
    void* handle = nullptr;
    const std::string why = library.open_saved(handle, properties);
    require(why.empty(), why);
    if (!why.empty()) continue;
    std::printf("%s, %s\n", library.version().c_str(), arguments[i]);
    for (const cuda_attention_shape& shape : shapes) check(library, handle, shape, architecture);
    library.close(handle);
  }
  void* none = nullptr;
  require(!library.open_saved(none, "{\"deviceVer\":900}").empty() && none == nullptr, "properties that are not complete must be refused");
  return failures == 0 ? 0 : 1;
}
