// CANN's operators as a table of entry points, found by name at run time: in the user's CANN, or in a fake that checks every call
// (testing/fake_ascend_operators.hpp). Declarations are ours, from public documentation; the names are CANN's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/library.hpp>
#include <xtrain/device/npu/operator_settings.hpp>

// opaque
struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclBoolArray;
struct aclOpExecutor;

namespace xtrain {

/// Types of elements; the numbers are CANN's.
enum class npu_type : int { fp32 = 0, fp16 = 1, int8 = 2, int32 = 3, uint8 = 4, int64 = 9, fp64 = 11, boolean = 12, bf16 = 27 };

[[nodiscard]] constexpr std::size_t bytes_of(npu_type type) {
  switch (type) {
    case npu_type::int8:
    case npu_type::uint8:
    case npu_type::boolean: return 1;
    case npu_type::fp16:
    case npu_type::bf16: return 2;
    case npu_type::int64:
    case npu_type::fp64: return 8;
    default: return 4;
  }
}
[[nodiscard]] constexpr std::string_view name_of(npu_type type) {
  switch (type) {
    case npu_type::fp32: return "fp32";
    case npu_type::fp16: return "fp16";
    case npu_type::int8: return "int8";
    case npu_type::int32: return "int32";
    case npu_type::uint8: return "uint8";
    case npu_type::int64: return "int64";
    case npu_type::fp64: return "fp64";
    case npu_type::boolean: return "bool";
    case npu_type::bf16: return "bf16";
  }
  return "an unknown type";
}
[[nodiscard]] constexpr bool is_16_bits(npu_type type) { return type == npu_type::fp16 || type == npu_type::bf16; }

/// Of a C++ type.
template <class T>
inline constexpr npu_type npu_type_of = npu_type::fp32;
template <>
inline constexpr npu_type npu_type_of<bf16> = npu_type::bf16;
template <>
inline constexpr npu_type npu_type_of<fp16> = npu_type::fp16;
template <>
inline constexpr npu_type npu_type_of<double> = npu_type::fp64;
template <>
inline constexpr npu_type npu_type_of<std::int32_t> = npu_type::int32;
template <>
inline constexpr npu_type npu_type_of<std::uint8_t> = npu_type::uint8;

/// What the calls of an operator return; the numbers are CANN's.
namespace npu_operator_status {
inline constexpr int success = 0, null_argument = 161001, invalid_argument = 161002, runtime_failed = 361001, internal = 561000, shape = 561001,
                     tiling = 561002, no_kernel = 561003, null_executor = 561103, no_package_path = 561107, no_kernel_package = 561112;

[[nodiscard]] constexpr std::string_view text(int status) {
  switch (status) {
    case null_argument: return "an argument is null";
    case invalid_argument: return "an argument has a type, a shape or a value that the operator does not take";
    case runtime_failed: return "the runtime failed";
    case shape: return "the shape of a result cannot be inferred";
    case tiling: return "no tiling for these shapes";
    case no_kernel: return "this chip has no such operator";
    case null_executor: return "the executor is null";
    case no_package_path: return "ASCEND_OPP_PATH is not set";
    case no_kernel_package: return "the operator's package is not installed for this chip";
    default: return "see the vendor's documentation";
  }
}
}  // namespace npu_operator_status

/// Generations of chips with different operators.
enum class npu_chip : std::uint8_t {
  first,   ///< Ascend 910A: no bf16, products of fp32 in fp16, few fused operators
  second,  ///< Ascend 910B1 to 910B4, and 910C
};

/// What depends on the chip, the release of CANN and the user's choice.
struct npu_operator_rules {
  npu_chip chip = npu_chip::second;
  cann_version cann{9, 1, 0};
  npu_operator_settings settings{};

  [[nodiscard]] constexpr bool has_fused() const { return settings.is_fused && chip == npu_chip::second; }
  /// Products of 16-bit factors are added to in fp32 and rounded once.
  [[nodiscard]] constexpr bool adds_before_rounding() const {
    return chip == npu_chip::second && ((cann.major == 8 && cann.minor == 5) || widens_products());
  }
  /// Products of 16-bit factors may have an fp32 result.
  [[nodiscard]] constexpr bool widens_products() const { return cann >= cann_version{9, 1, 0} && chip == npu_chip::second; }
};

inline constexpr std::size_t npu_max_rank = 8;
/// Operands are described by an address that is a multiple of this, and an offset.
inline constexpr std::size_t npu_tensor_alignment = 32;
/// Pieces of scratch memory begin at a multiple of this.
inline constexpr std::size_t npu_piece_alignment = 64;
/// Operators may read so far behind an operand's last 32 bytes.
inline constexpr std::size_t npu_piece_tail = 32;

/// Elements in device memory as an operator sees them. Strides are in elements. Dims are given as numbers of any integer type.
struct npu_view {
  std::uintptr_t address = 0;
  npu_type type = npu_type::fp32;
  std::size_t rank = 0;
  std::array<std::int64_t, npu_max_rank> dims{}, strides{};

  [[nodiscard]] static constexpr npu_view dense(npu_type type, std::uintptr_t address, std::initializer_list<std::size_t> dims) {
    npu_view view{.address = address, .type = type, .rank = dims.size()};
    std::int64_t stride = 1;
    for (std::size_t i = dims.size(); i-- > 0;) {
      view.dims[i] = static_cast<std::int64_t>(dims.begin()[i]);
      view.strides[i] = stride;
      stride *= view.dims[i];
    }
    return view;
  }
  [[nodiscard]] constexpr npu_view with_strides(std::initializer_list<std::size_t> all) const {
    npu_view view = *this;
    for (std::size_t i = 0; i < rank; ++i) view.strides[i] = static_cast<std::int64_t>(all.begin()[i]);
    return view;
  }
  /// The same dims, beginning so many elements later.
  [[nodiscard]] constexpr npu_view from(std::size_t element) const {
    npu_view view = *this;
    view.address += element * bytes_of(type);
    return view;
  }
  /// Of a dense view.
  [[nodiscard]] constexpr npu_view as(std::initializer_list<std::size_t> all) const { return dense(type, address, all); }
  /// `count` indices of a dim from `first` on.
  [[nodiscard]] constexpr npu_view slice(std::size_t of_dim, std::size_t first, std::size_t count) const {
    npu_view view = from(first * static_cast<std::size_t>(strides[of_dim]));
    view.dims[of_dim] = static_cast<std::int64_t>(count);
    return view;
  }
  /// With the last two dims exchanged.
  [[nodiscard]] constexpr npu_view transposed() const {
    npu_view view = *this;
    std::swap(view.dims[rank - 1], view.dims[rank - 2]);
    std::swap(view.strides[rank - 1], view.strides[rank - 2]);
    return view;
  }
  [[nodiscard]] constexpr std::size_t dim(std::size_t i) const { return static_cast<std::size_t>(dims[i]); }
  [[nodiscard]] constexpr std::size_t elements() const {
    std::size_t all = 1;
    for (std::size_t i = 0; i < rank; ++i) all *= dim(i);
    return all;
  }
  /// From the first element to behind the last one.
  [[nodiscard]] constexpr std::size_t extent() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      if (dims[i] == 0) return 0;
      last += (dim(i) - 1) * static_cast<std::size_t>(strides[i]);
    }
    return last + 1;
  }
  [[nodiscard]] constexpr bool is_dense() const {
    std::int64_t stride = 1;
    for (std::size_t i = rank; i-- > 0;) {
      if (dims[i] != 1 && strides[i] != stride) return false;
      stride *= dims[i];
    }
    return true;
  }
  /// "bf16 [2, 128]"
  [[nodiscard]] std::string text() const {
    std::string all = concat(name_of(type), " [");
    for (std::size_t i = 0; i < rank; ++i) all += concat(i == 0 ? "" : ", ", dims[i]);
    return all + "]";
  }
};

/// Without elements: an operand that is not given.
inline constexpr npu_view absent = npu_view::dense(npu_type::fp32, 0, {0});

/// An attribute that the host knows.
struct npu_scalar {
  double value = 0;
  npu_type type = npu_type::fp32;  ///< fp32, fp64, int32 or int64
};
/// No tensor, where an operator has an optional one.
struct npu_none {};
/// A list of dims.
struct npu_ints {
  std::array<std::int64_t, npu_max_rank> values{};
  std::size_t count = 0;
  constexpr npu_ints(std::initializer_list<std::int64_t> all) : count(all.size()) {
    for (std::size_t i = 0; i < count; ++i) values[i] = all.begin()[i];
  }
};
/// Which results are wanted.
struct npu_bools {
  std::array<bool, 3> values{};
};

/// An operator: its place in the table, its name, and the kinds of its arguments.
template <class... Argument>
struct npu_operator {
  using size_function = int (*)(Argument..., std::uint64_t* bytes, aclOpExecutor** executor);
  std::size_t index;
  std::string_view name;
};
using npu_run_function = int (*)(void* workspace, std::uint64_t bytes, aclOpExecutor* executor, void* queue);

// X(name, CANN's name, kinds of arguments): in CANN's order, without the two last ones of the first phase. in: a tensor that is read, or changed in place.
// Order and kinds are documented, or were compared with public callers; npu_op::unverified names what neither says.
#define XTRAIN_NPU_OPERATORS(X) \
  X(mm, "aclnnMm", in, in, out, std::int8_t) \
  X(addmm, "aclnnAddmm", in, in, in, number, number, out, std::int8_t) \
  X(inplace_addmm, "aclnnInplaceAddmm", in, in, in, number, number, std::int8_t) \
  X(batch_matmul, "aclnnBatchMatMul", in, in, out, std::int8_t) \
  X(reduce_sum, "aclnnReduceSum", in, ints, bool, int, out) \
  X(max_dim, "aclnnMaxDim", in, std::int64_t, bool, out, out) \
  X(log_sum_exp, "aclnnLogSumExp", in, ints, bool, out) \
  X(softmax, "aclnnSoftmax", in, std::int64_t, out) \
  X(add, "aclnnAdd", in, in, number, out) \
  X(inplace_add, "aclnnInplaceAdd", in, in, number) \
  X(sub, "aclnnSub", in, in, number, out) \
  X(inplace_sub, "aclnnInplaceSub", in, in, number) \
  X(mul, "aclnnMul", in, in, out) \
  X(inplace_mul, "aclnnInplaceMul", in, in) \
  X(muls, "aclnnMuls", in, number, out) \
  X(inplace_muls, "aclnnInplaceMuls", in, number) \
  X(adds, "aclnnAdds", in, number, number, out) \
  X(inplace_adds, "aclnnInplaceAdds", in, number, number) \
  X(div, "aclnnDiv", in, in, out) \
  X(inplace_div, "aclnnInplaceDiv", in, in) \
  X(addcmul, "aclnnAddcmul", in, in, in, number, out) \
  X(inplace_addcmul, "aclnnInplaceAddcmul", in, in, in, number) \
  X(inplace_addcdiv, "aclnnInplaceAddcdiv", in, in, in, number) \
  X(inplace_sqrt, "aclnnInplaceSqrt", in) \
  X(inplace_rsqrt, "aclnnInplaceRsqrt", in) \
  X(minimum, "aclnnMinimum", in, in, out) \
  X(exp, "aclnnExp", in, out) \
  X(log, "aclnnLog", in, out) \
  X(tanh, "aclnnTanh", in, out) \
  X(inplace_tanh, "aclnnInplaceTanh", in) \
  X(tanh_backward, "aclnnTanhBackward", in, in, out) \
  X(sigmoid, "aclnnSigmoid", in, out) \
  X(gelu, "aclnnGeluV2", in, std::int64_t, out) \
  X(gelu_backward, "aclnnGeluBackwardV2", in, in, text, out) \
  X(cast, "aclnnCast", in, int, out) \
  X(inplace_copy, "aclnnInplaceCopy", in, in) \
  X(inplace_zero, "aclnnInplaceZero", in) \
  X(inplace_fill, "aclnnInplaceFillScalar", in, number) \
  X(where, "aclnnSWhere", in, in, in, out) \
  X(clamp, "aclnnClamp", in, number, number, out) \
  X(equal, "aclnnEqTensor", in, in, out) \
  X(not_equal, "aclnnNeScalar", in, number, out) \
  X(greater, "aclnnGtTensor", in, in, out) \
  X(at_least, "aclnnGeTensor", in, in, out) \
  X(less, "aclnnLtTensor", in, in, out) \
  X(greater_than, "aclnnGtScalar", in, number, out) \
  X(at_least_number, "aclnnGeScalar", in, number, out) \
  X(less_than, "aclnnLtScalar", in, number, out) \
  X(logical_and, "aclnnLogicalAnd", in, in, out) \
  X(logical_or, "aclnnLogicalOr", in, in, out) \
  X(logical_not, "aclnnLogicalNot", in, out) \
  X(inplace_masked_fill, "aclnnInplaceMaskedFillScalar", in, in, number) \
  X(arange, "aclnnArange", number, number, number, out) \
  X(embedding, "aclnnEmbedding", in, in, out) \
  X(embedding_backward, "aclnnEmbeddingDenseBackward", in, in, std::uint64_t, std::uint64_t, bool, out) \
  X(cumsum, "aclnnCumsum", in, std::int64_t, int, out) \
  X(inplace_scatter_update, "aclnnInplaceScatterUpdate", in, in, in, std::int64_t) \
  X(grouped_matmul_add, "aclnnGroupedMatmulAdd", in, in, in, out, bool, bool, std::int64_t) \
  X(moe_permute, "aclnnMoeTokenPermute", in, in, std::int64_t, bool, out, out) \
  X(moe_permute_grad, "aclnnMoeTokenPermuteGrad", in, in, std::int64_t, bool, out) \
  X(moe_unpermute, "aclnnMoeTokenUnpermute", in, in, in, bool, ints, out) \
  X(moe_unpermute_grad, "aclnnMoeTokenUnpermuteGrad", in, in, in, in, bool, ints, out, out) \
  X(rms_norm, "aclnnRmsNorm", in, in, double, out, out) \
  X(rms_norm_grad, "aclnnRmsNormGrad", in, in, in, in, out, out) \
  X(layer_norm_backward, "aclnnLayerNormBackward", in, in, ints, in, in, in, in, bools, out, out, out) \
  X(swi_glu_grad, "aclnnSwiGluGrad", in, in, std::int64_t, out) \
  X(layer_norm, "aclnnLayerNorm", in, ints, in, in, double, out, out, out) \
  X(swi_glu, "aclnnSwiGlu", in, std::int64_t, out) \
  X(flash_attention, "aclnnFlashAttentionScoreV2", in, in, in, in, in, in, in, ints, ints, ints, double, double, std::int64_t, std::int64_t, std::int64_t, \
    text, std::int64_t, std::int64_t, std::int64_t, out, out, out, out) \
  X(flash_attention_grad, "aclnnFlashAttentionScoreGradV2", in, in, in, in, in, in, in, in, in, in, in, in, ints, ints, ints, double, double, std::int64_t, \
    std::int64_t, std::int64_t, text, std::int64_t, std::int64_t, std::int64_t, out, out, out, out)

/// The operators that kernels call.
namespace npu_op {

using in = const aclTensor*;
using out = aclTensor*;
using number = const aclScalar*;
using ints = const aclIntArray*;
using bools = const aclBoolArray*;
using text = char*;

enum class place : std::size_t {
#define XTRAIN_PLACE(id, name, ...) id,
  XTRAIN_NPU_OPERATORS(XTRAIN_PLACE)
#undef XTRAIN_PLACE
      count
};
#define XTRAIN_OPERATOR(id, name, ...) inline constexpr npu_operator<__VA_ARGS__> id{static_cast<std::size_t>(place::id), name};
XTRAIN_NPU_OPERATORS(XTRAIN_OPERATOR)
#undef XTRAIN_OPERATOR

inline constexpr std::size_t count = static_cast<std::size_t>(place::count);
inline constexpr std::array<std::string_view, count> names{
#define XTRAIN_NAME(id, name, ...) name,
    XTRAIN_NPU_OPERATORS(XTRAIN_NAME)
#undef XTRAIN_NAME
};

/// What kernels expect of an operator, and no documentation says.
struct expectation {
  place of;
  std::string_view what;
};
inline constexpr std::array unverified{
    expectation{place::inplace_fill, "a value that is infinite"},
    expectation{place::max_dim, "the first of equal elements (z_loss)"},
    expectation{place::cast, "fp32 to int32 drops the fraction (expert_balance)"},
    expectation{place::cast, "int8 and uint8 to fp32 and int32"},
    expectation{place::log_sum_exp, "elements of -1e30"},
    expectation{place::cumsum, "whole numbers below 2^24 in fp32 are summed exactly (slots of experts)"},
    expectation{place::embedding_backward, "a sum of one element is that element; rows of fp32 with one or two columns"},
    expectation{place::inplace_scatter_update, "a target [b, k, capacity, d], one index of int32 for each b, axis -2"},
    expectation{place::batch_matmul, "factors that are slices of dim 1"},
    expectation{place::moe_permute, "tokens of fp32 with one column; equal experts stay in the order of rows"},
    expectation{place::moe_permute_grad, "sums in fp32, rounded once"},
    expectation{place::moe_unpermute, "sums in fp32, rounded once; restoreShape [1] without padding"},
    expectation{place::moe_unpermute_grad, "sums in fp32; fp32 probs beside tokens of 16 bits"},
    expectation{place::grouped_matmul_add, "one group: a groupList [1] with the number of rows"},
    expectation{place::flash_attention, "a reserved result of shape [1]; heads as strided views of packed rows"},
    expectation{place::flash_attention_grad, "softmaxMax is lse and softmaxSum is 1; a dpse of shape [1]"},
};

}  // namespace npu_op

/// What makes and destroys the arguments of operators.
struct npu_objects {
  aclTensor* (*create_tensor)(const std::int64_t* dims, std::uint64_t rank, int type, const std::int64_t* strides, std::int64_t offset, int format,
                              const std::int64_t* storage_dims, std::uint64_t storage_rank, void* data) = nullptr;
  int (*destroy_tensor)(const aclTensor*) = nullptr;
  aclScalar* (*create_scalar)(void* value, int type) = nullptr;
  int (*destroy_scalar)(const aclScalar*) = nullptr;
  aclIntArray* (*create_ints)(const std::int64_t* values, std::uint64_t count) = nullptr;
  int (*destroy_ints)(const aclIntArray*) = nullptr;
  aclBoolArray* (*create_bools)(const bool* values, std::uint64_t count) = nullptr;
  int (*destroy_bools)(const aclBoolArray*) = nullptr;
  int (*set_repeatable)(aclOpExecutor*) = nullptr;
  int (*destroy_executor)(aclOpExecutor*) = nullptr;
  const char* (*recent_error)() = nullptr;  ///< of this thread, and forgets it; may be null
};

/// Where an entry point was found.
struct npu_symbol {
  void* address = nullptr;
  std::string library{};
};

/// The table.
struct npu_operators {
  struct entry {
    void* size = nullptr;  ///< first phase
    npu_run_function run = nullptr;
    std::string library{};
  };
  std::array<entry, npu_op::count> entries{};
  npu_objects objects{};

  /// Filled by find(symbol's name), which returns an npu_symbol.
  template <class Find>
  [[nodiscard]] static npu_operators found_by(Find&& find) {
    npu_operators table;
    for (std::size_t i = 0; i < npu_op::count; ++i) {
      const std::string name(npu_op::names[i]);
      const npu_symbol size = find(name + "GetWorkspaceSize"), run = find(name);
      if (size.address == nullptr || run.address == nullptr) continue;
      table.entries[i] = {size.address, reinterpret_cast<npu_run_function>(run.address), size.library};
    }
    const auto set = [&](auto& function, const char* name) { function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(name).address); };
    set(table.objects.create_tensor, "aclCreateTensor");
    set(table.objects.destroy_tensor, "aclDestroyTensor");
    set(table.objects.create_scalar, "aclCreateScalar");
    set(table.objects.destroy_scalar, "aclDestroyScalar");
    set(table.objects.create_ints, "aclCreateIntArray");
    set(table.objects.destroy_ints, "aclDestroyIntArray");
    set(table.objects.create_bools, "aclCreateBoolArray");
    set(table.objects.destroy_bools, "aclDestroyBoolArray");
    set(table.objects.set_repeatable, "aclSetAclOpExecutorRepeatable");
    set(table.objects.destroy_executor, "aclDestroyAclOpExecutor");
    set(table.objects.recent_error, "aclGetRecentErrMsg");
    return table;
  }
  [[nodiscard]] bool is_complete() const {
    for (std::size_t i = 0; i < npu_op::count; ++i)
      if (!has(i)) return false;
    return true;
  }
  [[nodiscard]] bool has(std::size_t index) const { return entries[index].size != nullptr; }
  /// Names of operators that were not found.
  [[nodiscard]] std::vector<std::string> missing() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < npu_op::count; ++i)
      if (!has(i)) names.emplace_back(npu_op::names[i]);
    return names;
  }
  /// Which library has which operators, a line each; a line for missing ones.
  [[nodiscard]] std::string text() const {
    std::vector<std::pair<std::string, std::string>> lines;
    for (std::size_t i = 0; i < npu_op::count; ++i) {
      const std::string library = has(i) ? entries[i].library : "missing";
      auto line = lines.begin();
      while (line != lines.end() && line->first != library) ++line;
      if (line == lines.end()) line = lines.insert(lines.end(), {library, ""});
      line->second += concat(" ", npu_op::names[i]);
    }
    std::string all;
    for (const auto& [library, names] : lines) all += concat(library, ":", names, "\n");
    return all;
  }
};

}  // namespace xtrain
