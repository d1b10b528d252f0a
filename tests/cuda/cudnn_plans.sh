#!/bin/sh
# cuDNN plans attention for an H100 and a B200 without one. Its engines compile kernels and load them through the driver when planning, also from saved
# properties: a fake driver with the names of the toolkit's stub accepts everything.
#
# The program belongs to a project with xtrain_add_cuda_kernels(CUDNN).
#
#   cudnn_plans.sh <checkout> <folder for results> <C++ compiler> <folder of cudnn_frontend.h> <libcudnn.so.9> <the toolkit's stub of libcuda.so>
set -eu
rm -rf "$2"
mkdir -p "$2/driver"
nm -D --defined-only "$6" | awk '$2 == "T" { print $3 }' > "$2/names"
own='cuInit|cuGetExportTable|cuDriverGetVersion|cuGetErrorString|cuGetErrorName|cuLibraryLoadData|cuLibraryGetKernel|cuKernelGetFunction'
own="$own|cuModuleLoadData|cuModuleLoadDataEx|cuModuleGetFunction"
{
  grep -E -v "^($own)\$" "$2/names" | sed 's/.*/extern "C" int &() { return 0; }/'
  cat << 'END'
namespace {
int thing;
int find(void** result) { return *result = &thing, 0; }
int name(const char** result) { return *result = "a fake driver", 0; }
}  // namespace
extern "C" {
int cuInit() { return 34; }  // the runtime, which asks for more, finds a stub
int cuGetExportTable() { return 34; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorString(int, const char** result) { return name(result); }
int cuGetErrorName(int, const char** result) { return name(result); }
int cuLibraryLoadData(void** result) { return find(result); }
int cuLibraryGetKernel(void** result) { return find(result); }
int cuKernelGetFunction(void** result) { return find(result); }
int cuModuleLoadData(void** result) { return find(result); }
int cuModuleLoadDataEx(void** result) { return find(result); }
int cuModuleGetFunction(void** result) { return find(result); }
}
END
} > "$2/driver.cpp"
"$3" -w -shared -fPIC -Wl,-soname,libcuda.so.1 "$2/driver.cpp" -o "$2/driver/libcuda.so.1"
cmake -G Ninja -S "$1/tests/cuda/cudnn" -B "$2/build" -D XTRAIN_SOURCE="$1" -D CMAKE_CXX_COMPILER="$3" -D XTRAIN_CUDNN_FRONTEND="$4" \
    -D CMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Wshadow -Werror" > "$2/log" 2>&1 || { cat "$2/log" >&2; exit 1; }
cmake --build "$2/build" --target cudnn_plans > "$2/log" 2>&1 || { cat "$2/log" >&2; exit 1; }
LD_LIBRARY_PATH="$2/driver:$(dirname "$5")" "$2/build/cudnn_plans" 90 "$1/tests/cuda/h100.json" 100 "$1/tests/cuda/b200.json"
