#!/bin/sh
# cuDNN 9.19.0 and 9.28.1 (with cudnn-frontend 1.32.0): a backward pass of attention that is deterministic keeps a matrix of time x time on sm_80 and sm_90.
#
# One would expect: memory linear in the length, which is what flash attention is for, whatever is asked of the order of additions.
# What happens: with set_deterministic_algorithm(true), every plan for sm_80 and sm_90 asks for a workspace of 2·b·h·t² bytes (t rounded up to a multiple of
#   128) and little more, whatever the size of a head: 1.6 GB for 64 sequences of 1024 with 12 heads, 6.4 GB for 2048. Without it, there is a plan of
#   204 MB on sm_90 and of 406 MB on sm_80 for heads of 64 (gradients in float), twice that for 2048. The deterministic plan of sm_100 asks for 3 MB.
# What it means for a user: memory that is planned by what flash attention needs does not suffice; split the batch, or take the other pass. On sm_90, cuDNN
#   9.28.1 also has a linear one (from 9.25 on, by cudnn-frontend's code, a comment of which calls it slower; its pull request 398). It must be asked for:
#   CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT in the environment, in bytes, at less than the matrix. cuDNN 9.19 ignores it, and so does sm_80.
# No GPU is needed: the plans are of device properties that are written here, and a driver that says yes to everything, also made here, stands in.
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
cat > driver.cpp << 'EOF'
#define YES(name) int name() { return 0; }
#define FIND(name) int name(const void** result) { return *result = "something", 0; }
extern "C" {
YES(cuCtxGetCurrent) YES(cuCtxGetDevice) YES(cuCtxGetLimit) YES(cuCtxPopCurrent) YES(cuCtxPushCurrent) YES(cuDeviceGet) YES(cuDeviceGetAttribute)
YES(cuDeviceGetCount) YES(cuDevicePrimaryCtxRelease) YES(cuDevicePrimaryCtxReset) YES(cuDevicePrimaryCtxRetain) YES(cuFuncGetAttribute)
YES(cuFuncSetAttribute) YES(cuKernelGetAttribute) YES(cuKernelSetAttribute) YES(cuLaunchCooperativeKernel) YES(cuLaunchKernel) YES(cuLaunchKernelEx)
YES(cuLibraryLoadFromFile) YES(cuLibraryUnload) YES(cuLinkAddData) YES(cuLinkAddData_v2) YES(cuLinkAddFile_v2) YES(cuLinkComplete) YES(cuLinkCreate)
YES(cuLinkCreate_v2) YES(cuLinkDestroy) YES(cuMemcpyDtoH_v2) YES(cuModuleGetGlobal_v2) YES(cuModuleUnload) YES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
YES(cuOccupancyMaxPotentialClusterSize) YES(cuStreamGetCtx) YES(cuStreamSynchronize) YES(cuTensorMapEncodeIm2col) YES(cuTensorMapEncodeTiled)
FIND(cuKernelGetFunction) FIND(cuLibraryGetKernel) FIND(cuLibraryLoadData) FIND(cuModuleGetFunction) FIND(cuModuleLoadData) FIND(cuModuleLoadDataEx)
FIND(cuModuleLoadFatBinary)
int cuInit(unsigned) { return 34; }  // a stub: the CUDA runtime goes no further
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char** result) { return *result = "", 0; }
int cuGetErrorString(int, const char** result) { return *result = "", 0; }
}
EOF
cat > plans.cpp << 'EOF'
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}
namespace fe = cudnn_frontend;

void check(const char* step, const fe::error_t& status) {
  if (!status.is_good()) throw std::runtime_error(std::string(step) + ": " + status.err_msg);
}

/// Of an A100, an H100 or a B200.
std::shared_ptr<fe::DeviceProperties> device(int sm) {
  const std::string own =
      sm == 80   ? R"("multiProcessorCount":108,"maxSharedMemoryPerBlockOptin":166912,"totalGlobalMem":85094825984,"smClockRateKHz":1410000,
"memClockRateKHz":1593000,"memoryBusWidth":5120,"l2CacheSize":41943040,"deviceVer":800,"deviceName":"NVIDIA A100-SXM4-80GB")"
      : sm == 90 ? R"("multiProcessorCount":132,"maxSharedMemoryPerBlockOptin":232448,"totalGlobalMem":85017755648,"smClockRateKHz":1980000,
"memClockRateKHz":2619000,"memoryBusWidth":5120,"l2CacheSize":52428800,"deviceVer":900,"deviceName":"NVIDIA H100 80GB HBM3")"
                 : R"("multiProcessorCount":148,"maxSharedMemoryPerBlockOptin":232448,"totalGlobalMem":191503138816,"smClockRateKHz":1965000,
"memClockRateKHz":3996000,"memoryBusWidth":8192,"l2CacheSize":132644864,"deviceVer":1000,"deviceName":"NVIDIA B200")";
  const std::string json = R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,"smCountOrigin":0,
"maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"oversizedSharedMemoryPerBlock":0,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"cudaDeviceId":0,"driverVer":13000,)" +
                           own + "}";
  auto result = std::make_shared<fe::DeviceProperties>();
  check("properties", result->deserialize(std::vector<std::uint8_t>(json.begin(), json.end())));
  return result;
}

struct shape {
  long b, t, h, d;
};

/// Bytes of the plan that needs least.
long least(int sm, shape s, bool is_deterministic) {
  fe::graph::Graph graph;
  graph.set_device_properties(device(sm))
      .set_sm_version(sm)
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  using tensor = fe::graph::Tensor_attributes;
  const std::vector<int64_t> size{s.b, s.h, s.t, s.d}, stride{s.t * s.h * s.d, s.d, s.h * s.d, 1};
  std::shared_ptr<tensor> in[5];  // q, k, v, o, do
  for (auto& x : in) x = graph.tensor(tensor().set_dim(size).set_stride(stride));
  auto stats = graph.tensor(tensor().set_dim({s.b, s.h, s.t, 1}).set_stride({s.h * s.t, s.t, 1, 1}).set_data_type(fe::DataType_t::FLOAT));
  for (auto& x : graph.sdpa_backward(in[0], in[1], in[2], in[3], in[4], stats,
                                     fe::graph::SDPA_backward_attributes()
                                         .set_attn_scale(0.125f)
                                         .set_diagonal_band_right_bound(0)
                                         .set_deterministic_algorithm(is_deterministic)))
    x->set_output(true).set_dim(size).set_stride(stride);
  check("validate", graph.validate());
  check("build_operation_graph", graph.build_operation_graph());
  check("create_execution_plans", graph.create_execution_plans({fe::HeurMode_t::A}));
  check("check_support", graph.check_support());
  long result = -1;
  for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    int64_t bytes = 0;
    check("build_plan_at_index", graph.build_plan_at_index(i));
    check("get_workspace_size_plan_at_index", graph.get_workspace_size_plan_at_index(i, bytes));
    if (result < 0 || bytes < result) result = bytes;
  }
  return result;
}

/// plans (0 | 1): whether there is a linear one for sm_90
int main(int, char** arguments) try {
  const bool can_be_linear = arguments[1][0] == '1';
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
  if (fe::cudnn_dlhandle == nullptr) throw std::runtime_error(dlerror());
  std::printf("\ncuDNN %zu, cudnn-frontend %d.%d.%d\n", fe::detail::get_backend_version(), CUDNN_FRONTEND_MAJOR_VERSION, CUDNN_FRONTEND_MINOR_VERSION,
              CUDNN_FRONTEND_PATCH_VERSION);
  std::printf("%6s %3s %5s %3s %4s %15s %15s %15s %21s\n", "", "b", "t", "h", "d", "2·b·h·t²", "plain", "deterministic", "deterministic, limit 0");
  constexpr shape shapes[] = {{64, 1024, 12, 64}, {64, 2048, 12, 64}, {64, 1024, 12, 128}, {1, 1100, 1, 64}};
  bool is_so = true;
  for (const int sm : {80, 90, 100}) {
    long before = 0;
    for (const shape& s : shapes) {
      const long rounded = (s.t + 127) / 128 * 128, matrix = 2 * s.b * s.h * rounded * rounded, sums = 4 * s.b * s.h * s.t + 4096;
      unsetenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT");
      const long plain = least(sm, s, false), deterministic = least(sm, s, true);
      setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 1);
      const long limited = least(sm, s, true);
      std::printf("sm_%-3d %3ld %5ld %3ld %4ld %13ld %15ld %15ld %21ld\n", sm, s.b, s.t, s.h, s.d, matrix, plain, deterministic, limited);
      const auto is_matrix = [&](long bytes) { return bytes >= matrix && bytes <= matrix + sums; };
      is_so = is_so && plain <= 8 * s.b * s.h * s.t * s.d + sums;
      is_so = is_so && (sm == 100 ? deterministic <= sums : is_matrix(deterministic));
      is_so = is_so && (sm == 100                        ? limited == deterministic
                        : sm == 90 && can_be_linear ? limited <= plain + sums
                                                         : is_matrix(limited));
      if (s.t == 2048) is_so = is_so && plain <= 2 * before;  // of half the length
      before = plain;
    }
  }
  return is_so ? 0 : 1;
} catch (const std::exception& problem) {
  std::printf("%s\n", problem.what());
  return 1;
}
EOF
python3 -m venv env
packages=$(env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir driver
g++ -shared -fPIC -Wl,-soname,libcuda.so.1 driver.cpp -o driver/libcuda.so.1
for release in 9.19.0.56 9.28.1.4; do
  # without what they depend on, which plans of attention do not use: cuBLAS, and what the Python part of cudnn-frontend needs
  env/bin/pip -q install --no-deps "nvidia-cudnn-cu13==$release" nvidia-cudnn-frontend==1.32.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 \
      nvidia-cuda-nvrtc==13.0.88
  g++ -std=c++17 -isystem "$packages/include" -isystem "$packages/nvidia/cudnn/include" -isystem "$packages/nvidia/cu13/include" plans.cpp -o plans
  case $release in 9.19.*) linear=0 ;; *) linear=1 ;; esac
  LD_LIBRARY_PATH="$dir/driver:$packages/nvidia/cudnn/lib:$packages/nvidia/cu13/lib" ./plans "$linear"
done
echo "as expected by this finding"
