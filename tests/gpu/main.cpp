// What a GPU is asked, as one program: its kernels are linked once.
//
//   gpu conformance fp32|bf16|fp16 [large]     every kernel against the reference, and against the cpu at the sizes of models
//   gpu parity GOLDEN                          fifty steps of LLaMA and GPT-2 on the GPU, captured and not, on the cpu, and in PyTorch
//   gpu speed MODEL ROWS CONTEXT STEPS [captured]
//   gpu properties                             the GPU's, as cuDNN saves them: what tests/cuda/h100.json should be
//
// Exit status: 0 all is as it should be; 1 something is not; 2 usage; 3 there is no GPU; 4 there is no cuDNN.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "gpu.hpp"

namespace {

int print_properties() {
  if (xtrain_cudnn_library == nullptr) {
    std::puts("the program is not linked with xtrain::cudnn");
    return 4;
  }
  const xtrain::cudnn_library& cudnn = *xtrain_cudnn_library();
  const xtrain::cuda_context on;  // its GPU is the thread's current device
  void* handle = nullptr;
  std::string json, why = cudnn.open(handle, on.properties().architecture);
  if (why.empty()) {
    why = cudnn.properties(handle, json);
    cudnn.close(handle);
  }
  std::puts(why.empty() ? json.c_str() : why.c_str());
  return why.empty() ? 0 : 4;
}

int run(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "", which = argc > 2 ? argv[2] : "";
  const bool large = argc > 3 && std::string_view(argv[3]) == "large";
  if (what == "conformance" && which == "bf16") return gpu::check_bf16(large);
#ifndef GPU_REHEARSAL
  if (what == "conformance" && which == "fp32") return gpu::check_fp32(large);
  if (what == "conformance" && which == "fp16") return gpu::check_fp16(large);
#endif
  if (what == "parity" && argc == 3) return gpu::compare_losses(argv[2]);
  if (what == "speed") return gpu::measure(argc, argv);
  if (what == "properties") return print_properties();
  std::fputs("gpu: must be given conformance, parity, speed or properties, with their arguments; see tests/gpu/main.cpp\n", stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
#ifdef XTRAIN_CUDA_KERNELS
  if (const std::string why = xtrain::cuda::why_unavailable(); !why.empty()) {
    std::printf("%s\n", why.c_str());
    return 3;
  }
#endif
  try {
    return run(argc, argv);
  } catch (const std::exception& problem) {
    std::printf("gpu: %s\n", problem.what());
    return 1;
  }
}
