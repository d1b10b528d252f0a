#include <cstdio>

#include <xtrain/device/cuda/cuda.hpp>

int main() {
  std::puts(xtrain::cuda::is_available() ? "a GPU" : xtrain::cuda::why_unavailable().c_str());
}
