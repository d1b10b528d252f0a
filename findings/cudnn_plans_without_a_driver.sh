#!/bin/sh
# cuDNN 9.19.0 and 9.28.1 (with cudnn-frontend 1.32.0): "deviceless" plans need a driver, and the one of attention a device.
#
# One would expect: with Graph::set_device_properties, of properties that were saved, the machine that makes a plan needs no GPU, and hence no driver. The
#   manual says of this step that it does not require the device.
# What happens:
#   - Without Graph::set_sm_version, cudnn-frontend asks the thread's current device all the same: validate() for attention, check_support() for a convolution.
#   - Without a driver, 9.19 has plans for a convolution and none for attention: "No valid engine configs for ___". Only the lines behind that one say why,
#     "this->libcuda == nullptr". With 9.28.1 the saved properties cannot be read: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, as a library is linked with libcuda.
#   - With a driver that loads no kernel (a stand-in, which answers as one that finds no device), attention has plans, and none can be built: building calls
#     cuLibraryLoadData. The message names the driver only by the plan, with build_plan_at_index.
#   - 9.28.1 refuses properties that 9.19 reads, as it wants more of them (smCountOrigin, memoryBusWidth); the message names none.
# What it means for a user: call set_sm_version too; read all of the message; save the properties again with each cuDNN; and make plans of attention where
#   there is a GPU, or, to look at them only, with a libcuda.so.1 that says yes to everything, as here.
# The properties are written here, in the form in which cuDNN saves them. Where there is a driver, an empty file hides it.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
cat > driver.cpp << 'EOF'
#include <cstdio>

#define YES(name) int name() { return 0; }
#define FIND(name) int name(const void** result) { return *result = "something", 0; }
extern "C" {
YES(cuCtxGetCurrent) YES(cuCtxGetDevice) YES(cuCtxGetLimit) YES(cuCtxPopCurrent) YES(cuCtxPushCurrent) YES(cuDeviceGet) YES(cuDeviceGetAttribute)
YES(cuDeviceGetCount) YES(cuDevicePrimaryCtxRelease) YES(cuDevicePrimaryCtxReset) YES(cuDevicePrimaryCtxRetain) YES(cuFuncGetAttribute)
YES(cuFuncSetAttribute) YES(cuKernelGetAttribute) YES(cuKernelSetAttribute) YES(cuLaunchCooperativeKernel) YES(cuLaunchKernel) YES(cuLaunchKernelEx)
YES(cuLibraryLoadFromFile) YES(cuLibraryUnload) YES(cuLinkAddData) YES(cuLinkAddData_v2) YES(cuLinkAddFile_v2) YES(cuLinkComplete) YES(cuLinkCreate)
YES(cuLinkCreate_v2) YES(cuLinkDestroy) YES(cuMemcpyDtoH_v2) YES(cuModuleGetGlobal_v2) YES(cuModuleUnload) YES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
YES(cuOccupancyMaxPotentialClusterSize) YES(cuStreamGetCtx) YES(cuStreamSynchronize) YES(cuTensorMapEncodeIm2col) YES(cuTensorMapEncodeTiled)
FIND(cuKernelGetFunction) FIND(cuLibraryGetKernel) FIND(cuModuleGetFunction) FIND(cuModuleLoadData) FIND(cuModuleLoadDataEx) FIND(cuModuleLoadFatBinary)
int cuInit(unsigned) { return 100; }  // there is no device
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char** result) { return *result = "", 0; }
int cuGetErrorString(int, const char** result) { return *result = "not initialized", 0; }
int cuLibraryLoadData(const void** result) {
#ifdef LOADS
  std::puts("  the driver is to load a kernel");
  return *result = "something", 0;
#else
  return 3;  // not initialized
#endif
}
}
EOF
cat > plans.cpp << 'EOF'
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}
namespace fe = cudnn_frontend;

/// Says where it ended, to a file too.
int end(const std::string& step, const std::string& message) {
  const std::string libcuda = message.find("this->libcuda == nullptr") == std::string::npos ? "" : "\n    and, in lines behind it: this->libcuda == nullptr";
  std::printf("  %s%s%s%s\n", step.c_str(), message.empty() ? "" : ": ", message.substr(0, message.find('\n')).c_str(), libcuda.c_str());
  std::ofstream("end") << step;
  return 0;
}

/// plans (attention | convolution) (sm | current) (old | new): of which version the properties are
int main(int, char** arguments) {
  const bool is_attention = arguments[1][0] == 'a', has_sm = arguments[2][0] == 's', is_new = arguments[3][0] == 'n';
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
  if (fe::cudnn_dlhandle == nullptr) return end("dlopen", dlerror());
  const std::string json = R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,
"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"oversizedSharedMemoryPerBlock":0,
"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,
"totalGlobalMem":85017755648,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceVer":900,
"driverVer":13000,)" + std::string(is_new ? R"("smCountOrigin":0,"memoryBusWidth":5120,)" : "") + R"("deviceName":"NVIDIA H100 80GB HBM3"})";
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto status = properties->deserialize(std::vector<std::uint8_t>(json.begin(), json.end())); !status.is_good()) return end("properties", status.err_msg);

  fe::graph::Graph graph;
  graph.set_device_properties(properties)
      .set_io_data_type(fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (has_sm) graph.set_sm_version(90);
  const auto tensor = [&](std::vector<int64_t> size, std::vector<int64_t> stride) {
    return graph.tensor(fe::graph::Tensor_attributes().set_dim(size).set_stride(stride));
  };
  if (is_attention) {
    const std::vector<int64_t> size{4, 12, 1024, 64}, stride{1024 * 768, 64, 768, 1};
    auto q = tensor(size, stride), k = tensor(size, stride), v = tensor(size, stride);
    auto result = graph.sdpa(q, k, v, fe::graph::SDPA_attributes().set_generate_stats(false).set_attn_scale(0.125f));
    result[0]->set_output(true).set_dim(size).set_stride(stride);
  } else {
    auto x = tensor({16, 128, 64, 64}, {524288, 1, 8192, 128}), w = tensor({256, 128, 3, 3}, {1152, 1, 384, 128});
    graph.conv_fprop(x, w, fe::graph::Conv_fprop_attributes().set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}))->set_output(true);
  }
  if (auto status = graph.validate(); !status.is_good()) return end("validate", status.err_msg);
  if (auto status = graph.build_operation_graph(); !status.is_good()) return end("build_operation_graph", status.err_msg);
  if (auto status = graph.create_execution_plans({fe::HeurMode_t::A}); !status.is_good()) return end("create_execution_plans", status.err_msg);
  if (auto status = graph.check_support(); !status.is_good()) return end("check_support", status.err_msg);
  if (auto status = graph.build_plans(); !status.is_good()) return end("build_plans", status.err_msg);
  return end("built", "");
}
EOF
python3 -m venv env
packages=$(env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir none refuses loads
: > none/libcuda.so.1
g++ -shared -fPIC -Wl,-soname,libcuda.so.1 driver.cpp -o refuses/libcuda.so.1
g++ -shared -fPIC -Wl,-soname,libcuda.so.1 -DLOADS driver.cpp -o loads/libcuda.so.1
ends=""
for release in 9.19.0.56 9.28.1.4; do
  # without what they depend on, which these plans do not use: cuBLAS, and what the Python part of cudnn-frontend needs
  env/bin/pip -q install --no-deps "nvidia-cudnn-cu13==$release" nvidia-cudnn-frontend==1.32.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 \
      nvidia-cuda-nvrtc==13.0.88
  g++ -std=c++17 -isystem "$packages/include" -isystem "$packages/nvidia/cudnn/include" -isystem "$packages/nvidia/cu13/include" plans.cpp -o plans
  case $release in 9.19.*) kind=old ;; *) kind=new ;; esac
  make() {  # make <driver> <operation> <whose architecture> <properties>
    echo "cuDNN $release, driver: $1, $2, architecture: $3, properties: $4"
    rm -f end
    LD_LIBRARY_PATH="$dir/$1:$packages/nvidia/cudnn/lib:$packages/nvidia/cu13/lib" ./plans "$2" "$3" "$4" 2> errors || { cat errors; exit 1; }
    ends="$ends $(cat end)"
  }
  ends="$ends |"
  for operation in convolution attention; do make none "$operation" current $kind; make none "$operation" sm $kind; done
  ends="$ends |"
  for operation in convolution attention; do make refuses "$operation" current $kind; make refuses "$operation" sm $kind; done
  ends="$ends |"
  make loads attention sm $kind
  make loads attention sm old
done
echo "$ends"
[ "$ends" = "$(printf %s \
    " | check_support built validate create_execution_plans" \
    " | check_support built validate build_plans" \
    " | built built" \
    " | properties properties properties properties" \
    " | check_support built validate build_plans" \
    " | built properties")" ]
echo "as expected by this finding"
