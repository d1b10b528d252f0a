// The entries of cuBLASLt that this library calls, as a table: of libcublasLt.so, loaded when a GPU is opened, or of a fake that checks every call
// (testing/fake_cublaslt.hpp). Not linked: a program needs neither headers nor library.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/runtime.hpp>

struct cublasLtContext;  // cublasLtHandle_t is a pointer to it

namespace xtrain {

using cublaslt_handle = cublasLtContext*;

/// Numbers are cuBLASLt's.
namespace cublaslt_status {
inline constexpr int success = 0, not_initialized = 1, alloc_failed = 3, invalid_value = 7, arch_mismatch = 8, execution_failed = 13,
                     internal_error = 14, not_supported = 15;
}
namespace cublaslt_type {
inline constexpr int fp32 = 0, fp16 = 2, bf16 = 14;
}
namespace cublaslt_compute {
inline constexpr int fp32 = 68, fp32_pedantic = 69;
}
namespace cublaslt_transpose {
inline constexpr int no = 0, yes = 1;
}
namespace cublaslt_epilogue {
inline constexpr std::uint32_t none = 1, bias = 4;
}
/// How the parts of a split sum are added.
namespace cublaslt_reduction {
inline constexpr std::uint32_t none = 0, in_place = 1, compute_type = 2, output_type = 4;
}
/// Attributes of descriptors of products, of preferences, and of algorithms.
namespace cublaslt_product {
inline constexpr int transpose_a = 3, transpose_b = 4, epilogue = 7, bias_pointer = 8;
}
namespace cublaslt_preference {
inline constexpr int workspace_bytes = 1, reduction_schemes = 3, alignment_a = 5, alignment_b = 6, alignment_c = 7, alignment_d = 8;
}
namespace cublaslt_algorithm_attribute {
inline constexpr int reduction_scheme = 3;
}

/// cublasLtMatmulAlgo_t
struct cublaslt_algorithm {
  std::uint64_t words[8] = {};
  friend bool operator==(const cublaslt_algorithm&, const cublaslt_algorithm&) = default;
};
/// cublasLtMatmulHeuristicResult_t
struct cublaslt_proposal {
  cublaslt_algorithm algorithm{};
  std::size_t workspace_bytes = 0;
  int status = 0;
  float waves = 0;
  int reserved[4] = {};
};

/// Descriptors are untyped. Every entry but two returns a status.
struct cublaslt_library {
  static constexpr std::size_t least_version = 120000;

  std::size_t (*get_version)() = nullptr;
  const char* (*get_status_string)(int status) = nullptr;
  int (*create)(cublaslt_handle* handle) = nullptr;  ///< for the thread's current device
  int (*destroy)(cublaslt_handle handle) = nullptr;
  int (*product_create)(void** product, int compute, int scale_type) = nullptr;
  int (*product_destroy)(void* product) = nullptr;
  int (*product_set)(void* product, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*layout_create)(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t stride) = nullptr;  ///< columns are contiguous
  int (*layout_destroy)(void* layout) = nullptr;
  int (*preference_create)(void** preference) = nullptr;
  int (*preference_destroy)(void* preference) = nullptr;
  int (*preference_set)(void* preference, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*propose)(cublaslt_handle handle, void* product, void* a, void* b, void* c, void* d, void* preference, int most,
                 cublaslt_proposal* proposals, int* count) = nullptr;
  int (*algorithm_get)(const cublaslt_algorithm* algorithm, int attribute, void* value, std::size_t bytes, std::size_t* written) = nullptr;
  int (*multiply)(cublaslt_handle handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                  const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const cublaslt_algorithm* algorithm,
                  void* workspace, std::size_t workspace_bytes, cuda_queue_handle stream) = nullptr;
};

namespace detail {

/// f(entry of the table, its name in the library), for each.
template <class Library, class F>
void for_each_cublaslt_entry(Library& all, F&& f) {
  f(all.get_version, "cublasLtGetVersion");
  f(all.get_status_string, "cublasLtGetStatusString");
  f(all.create, "cublasLtCreate");
  f(all.destroy, "cublasLtDestroy");
  f(all.product_create, "cublasLtMatmulDescCreate");
  f(all.product_destroy, "cublasLtMatmulDescDestroy");
  f(all.product_set, "cublasLtMatmulDescSetAttribute");
  f(all.layout_create, "cublasLtMatrixLayoutCreate");
  f(all.layout_destroy, "cublasLtMatrixLayoutDestroy");
  f(all.preference_create, "cublasLtMatmulPreferenceCreate");
  f(all.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  f(all.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  f(all.propose, "cublasLtMatmulAlgoGetHeuristic");
  f(all.algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute");
  f(all.multiply, "cublasLtMatmul");
}

[[nodiscard]] inline std::string cublaslt_version_text(std::size_t version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

/// The library, or why it is absent, as a sentence.
struct cublaslt_found {
  std::optional<cublaslt_library> library{};
  std::string why{};
};

}  // namespace detail

/// Loads cuBLASLt. It stays loaded.
///   file   of the runtime's major version: "libcublasLt.so.13"
[[nodiscard]] inline detail::cublaslt_found load_cublaslt(const std::string& file) {
  void* const loaded = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const why = ::dlerror();
    return {{},
            concat("cuBLASLt must be installed where the loader finds it (NVIDIA's package libcublas); ", file,
                   " cannot be loaded: ", why == nullptr ? "no reason given" : why)};
  }
  cublaslt_library all;
  std::string lacks;
  detail::for_each_cublaslt_entry(all, [&]<class F>(F*& entry, const char* name) {
    entry = reinterpret_cast<F*>(::dlsym(loaded, name));
    if (entry == nullptr && lacks.empty()) lacks = name;
  });
  if (!lacks.empty()) return {{}, concat("cuBLASLt must have ", lacks, "; ", file, " has not")};
  if (all.get_version() < cublaslt_library::least_version)
    return {{},
            concat("cuBLASLt must be ", detail::cublaslt_version_text(cublaslt_library::least_version), " or later; ", file, " is ",
                   detail::cublaslt_version_text(all.get_version()))};
  return {all, {}};
}

}  // namespace xtrain
