// The entries of muBLAS that this library calls, as a table: of libmublas.so, loaded when a GPU is opened, or of a fake that checks every call
// (testing/fake_mublas.hpp). The declarations are ours, from call sites in public programs. Not run: no library was at hand.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/runtime.hpp>

namespace xtrain {

/// MUBLAS_STATUS_NAMES have rocBLAS's order, as far as call sites show; only success is relied on.
namespace mublas_status {
inline constexpr int success = 0, invalid_handle = 1, not_implemented = 2, invalid_pointer = 3, invalid_size = 4;
}
/// musaDataType_t is numbered as cudaDataType_t.
namespace mublas_type {
inline constexpr int fp32 = 0, fp16 = 2, bf16 = 14;
}
/// MUBLAS_GEMM_DEFAULT, MUBLAS_ATOMICS_NOT_ALLOWED
inline constexpr int mublas_default_algorithm = 0, mublas_without_atomics = 0;

/// The numbers of MUBLAS_OP_N, MUBLAS_OP_T and MUBLAS_COMPUTE_32F.
struct mublas_numbers {
  int no_transpose = 111, transpose = 112, compute_fp32 = 68;
  friend bool operator==(const mublas_numbers&, const mublas_numbers&) = default;
};
/// As a public program calls 1.10.6; with cuBLAS's operations; with the data type that older versions take for the compute type. A product with a known
/// result says which hold.
inline constexpr mublas_numbers mublas_known_numbers[] = {{}, {.no_transpose = 0, .transpose = 1}, {.compute_fp32 = mublas_type::fp32}};

/// Columns are contiguous; alpha and beta are in host memory, of the compute type. Every entry returns a status.
struct mublas_library {
  int (*create)(void** handle) = nullptr;  ///< for the thread's current device
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, cuda_queue_handle stream) = nullptr;
  int (*set_atomics_mode)(void* handle, int mode) = nullptr;
  int (*gemm_ex)(void* handle, int a_operation, int b_operation, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda, const void* b,
                 int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute_type, int algorithm) = nullptr;
};

namespace detail {

/// f(entry of the table, its name in the library), for each.
template <class F>
void for_each_mublas_entry(mublas_library& all, F&& f) {
  f(all.create, "mublasCreate");
  f(all.destroy, "mublasDestroy");
  f(all.set_stream, "mublasSetStream");
  f(all.set_atomics_mode, "mublasSetAtomicsMode");
  f(all.gemm_ex, "mublasGemmEx");
}

/// The library, or why it is absent, as a sentence.
struct mublas_found {
  std::optional<mublas_library> library{};
  std::string why{};
};

/// The table over entries that find(name) gives, or null.
template <class Find>
[[nodiscard]] mublas_found make_mublas(Find&& find, const std::string& file) {
  mublas_library all;
  std::string lacks;
  for_each_mublas_entry(all, [&]<class F>(F*& entry, const char* name) {
    entry = reinterpret_cast<F*>(find(name));
    if (entry == nullptr) lacks += concat(lacks.empty() ? "" : ", ", name);
  });
  if (!lacks.empty()) return {{}, concat("muBLAS must have the entries that are called; ", file, " lacks ", lacks)};
  return {all, {}};
}

}  // namespace detail

/// Loads muBLAS. It stays loaded.
[[nodiscard]] inline detail::mublas_found load_mublas() {
  std::string why;
  for (const char* const file : {"libmublas.so", "libmublas.so.1"}) {
    if (void* const loaded = ::dlopen(file, RTLD_NOW | RTLD_LOCAL); loaded != nullptr)
      return detail::make_mublas([loaded](const char* name) { return ::dlsym(loaded, name); }, file);
    const char* const problem = ::dlerror();
    if (why.empty() && problem != nullptr) why = problem;
  }
  return {{}, concat("muBLAS must be installed where the loader finds it (libmublas.so or .so.1): ", why)};
}

}  // namespace xtrain
