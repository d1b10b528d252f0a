// As much of the cuda device as its kernels need to be compiled. Include paths name this folder after the library's, so that the library's own header is read
// where there is one.
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/simt/language/target.hpp>

namespace xtrain {

struct cuda_memory {
  static constexpr std::string_view name = "cuda";
  static constexpr bool host_addressable = false;
};
struct cuda_properties {};
struct cuda_launch {
  std::string_view kernel;
  const void* entry;
  simt::grid_size grid;
  int threads;
  std::size_t shared_bytes;
  const void* argument;
  std::size_t argument_bytes;
};
class cuda_stream {
 public:
  void launch(const cuda_launch& what) { last_ = what.kernel; }
  [[nodiscard]] std::string_view last_kernel() const { return last_; }

 private:
  std::string_view last_{};
};
class cuda_launcher {
 public:
  static constexpr bool launches_simt = true;
  struct properties : cuda_properties {
    static constexpr bool is_simt = true;
  };
  explicit cuda_launcher(cuda_stream& stream) : stream_(&stream) {}
  template <class Kernel>
  void launch(const Kernel& kernel, simt::grid_size grid);

 private:
  cuda_stream* stream_;
};
struct cuda_runtime {};
namespace cuda_kernels {
[[nodiscard]] inline cuda_runtime runtime() { return {}; }
}  // namespace cuda_kernels
namespace detail {
inline void require_cuda(const cuda_runtime&, int status, std::string_view call, int, std::string_view) { require<error>(status == 0, "cuda: ", call); }
}  // namespace detail

}  // namespace xtrain
