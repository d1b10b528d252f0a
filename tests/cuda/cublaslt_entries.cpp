// The library's declarations of cuBLASLt against <cublasLt.h>: compiled, not run.
#include <cstddef>
#include <type_traits>
#include <utility>

#include <cublasLt.h>

#include <xtrain/device/cuda/cublaslt/library.hpp>

namespace {

/// The library's declarations.
template <class T>
struct ours {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <class T>
inline constexpr bool is_descriptor = std::is_same_v<T, cublasLtMatmulDesc_t> || std::is_same_v<T, cublasLtMatrixLayout_t> ||
                                      std::is_same_v<T, cublasLtMatmulPreference_t>;
template <class T>
requires is_descriptor<T>
struct ours<T> {
  using type = void*;
};
template <class T>
requires is_descriptor<T>
struct ours<T*> {
  using type = void**;
};
template <>
struct ours<const cublasLtMatmulAlgo_t*> {
  using type = const xtrain::cublaslt_algorithm*;
};
template <>
struct ours<cublasLtMatmulHeuristicResult_t*> {
  using type = xtrain::cublaslt_proposal*;
};
template <class Entry, class Theirs>
inline constexpr bool agrees = false;
template <class Entry, class R, class... Of>
inline constexpr bool agrees<Entry, R(Of...)> = std::is_same_v<Entry, typename ours<R>::type (*)(typename ours<Of>::type...)>;

template <auto Entry, class Theirs>
constexpr bool is_declared(Theirs&) {
  return agrees<std::remove_cvref_t<decltype(std::declval<xtrain::cublaslt_library>().*Entry)>, Theirs>;
}
using table = xtrain::cublaslt_library;

static_assert(is_declared<&table::get_version>(cublasLtGetVersion));
static_assert(is_declared<&table::get_status_string>(cublasLtGetStatusString));
static_assert(is_declared<&table::create>(cublasLtCreate));
static_assert(is_declared<&table::destroy>(cublasLtDestroy));
static_assert(is_declared<&table::product_create>(cublasLtMatmulDescCreate));
static_assert(is_declared<&table::product_destroy>(cublasLtMatmulDescDestroy));
static_assert(is_declared<&table::product_set>(cublasLtMatmulDescSetAttribute));
static_assert(is_declared<&table::layout_create>(cublasLtMatrixLayoutCreate));
static_assert(is_declared<&table::layout_destroy>(cublasLtMatrixLayoutDestroy));
static_assert(is_declared<&table::preference_create>(cublasLtMatmulPreferenceCreate));
static_assert(is_declared<&table::preference_destroy>(cublasLtMatmulPreferenceDestroy));
static_assert(is_declared<&table::preference_set>(cublasLtMatmulPreferenceSetAttribute));
static_assert(is_declared<&table::propose>(cublasLtMatmulAlgoGetHeuristic));
static_assert(is_declared<&table::algorithm_get>(cublasLtMatmulAlgoConfigGetAttribute));
static_assert(is_declared<&table::multiply>(cublasLtMatmul));

using proposal = xtrain::cublaslt_proposal;
static_assert(sizeof(xtrain::cublaslt_algorithm) == sizeof(cublasLtMatmulAlgo_t) && alignof(xtrain::cublaslt_algorithm) == alignof(cublasLtMatmulAlgo_t));
static_assert(sizeof(proposal) == sizeof(cublasLtMatmulHeuristicResult_t) && alignof(proposal) == alignof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(proposal, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo) &&
              offsetof(proposal, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(proposal, status) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(proposal, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
// attributes: types passed by products.hpp
static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int) && sizeof(cublasComputeType_t) == sizeof(int) &&
              sizeof(cublasLtMatmulDescAttributes_t) == sizeof(int) && sizeof(cublasLtMatmulPreferenceAttributes_t) == sizeof(int) &&
              sizeof(cublasLtMatmulAlgoConfigAttributes_t) == sizeof(int) && std::is_same_v<cudaStream_t, xtrain::cuda_queue_handle>);

namespace status = xtrain::cublaslt_status;
static_assert(status::success == CUBLAS_STATUS_SUCCESS && status::not_initialized == CUBLAS_STATUS_NOT_INITIALIZED &&
              status::alloc_failed == CUBLAS_STATUS_ALLOC_FAILED && status::invalid_value == CUBLAS_STATUS_INVALID_VALUE &&
              status::arch_mismatch == CUBLAS_STATUS_ARCH_MISMATCH && status::execution_failed == CUBLAS_STATUS_EXECUTION_FAILED &&
              status::internal_error == CUBLAS_STATUS_INTERNAL_ERROR && status::not_supported == CUBLAS_STATUS_NOT_SUPPORTED);
namespace type = xtrain::cublaslt_type;
static_assert(type::fp32 == CUDA_R_32F && type::fp16 == CUDA_R_16F && type::bf16 == CUDA_R_16BF);
static_assert(xtrain::cublaslt_compute::fp32 == CUBLAS_COMPUTE_32F && xtrain::cublaslt_compute::fp32_pedantic == CUBLAS_COMPUTE_32F_PEDANTIC);
static_assert(xtrain::cublaslt_transpose::no == CUBLAS_OP_N && xtrain::cublaslt_transpose::yes == CUBLAS_OP_T);
static_assert(xtrain::cublaslt_epilogue::none == CUBLASLT_EPILOGUE_DEFAULT && xtrain::cublaslt_epilogue::bias == CUBLASLT_EPILOGUE_BIAS);
namespace reduction = xtrain::cublaslt_reduction;
static_assert(reduction::none == CUBLASLT_REDUCTION_SCHEME_NONE && reduction::in_place == CUBLASLT_REDUCTION_SCHEME_INPLACE &&
              reduction::compute_type == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE && reduction::output_type == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
namespace product = xtrain::cublaslt_product;
static_assert(product::transpose_a == CUBLASLT_MATMUL_DESC_TRANSA && product::transpose_b == CUBLASLT_MATMUL_DESC_TRANSB &&
              product::epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE && product::bias_pointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
namespace preference = xtrain::cublaslt_preference;
static_assert(preference::workspace_bytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              preference::reduction_schemes == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              preference::alignment_a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && preference::alignment_b == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              preference::alignment_c == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES && preference::alignment_d == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(xtrain::cublaslt_algorithm_attribute::reduction_scheme == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);

}  // namespace
