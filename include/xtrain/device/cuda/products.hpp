#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/core/text.hpp>

namespace xtrain {

class cuda_launcher;
class cuda_stream;

/// What computes large enough products.
enum class cuda_product_choice : std::uint8_t {
  timed,       ///< before captures the fastest of cuBLASLt's kernels and ours, timed on this GPU; else as `proposed`
  proposed,    ///< cuBLASLt's first proposal
  own_kernels
};

enum class cuda_number : std::uint8_t { fp32, bf16, fp16 };

[[nodiscard]] constexpr std::string_view name_of(cuda_number number) {
  return number == cuda_number::fp32 ? "fp32" : number == cuda_number::bf16 ? "bf16" : "fp16";
}
[[nodiscard]] constexpr std::size_t bytes_of(cuda_number number) { return number == cuda_number::fp32 ? 4 : 2; }

/// Alignment of an address, at most 64: scratch memory is aligned so, and kernels need no more.
inline constexpr unsigned cuda_most_alignment = 64;
[[nodiscard]] inline unsigned cuda_alignment_of(const void* address) {
  return 1U << std::countr_zero(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % cuda_most_alignment) |
                                cuda_most_alignment);
}

/// All fields of a kernel::matmul that affect speed.
struct cuda_product_shape {
  cuda_number operands = cuda_number::fp32, result = cuda_number::fp32;
  bool transpose_a = false, transpose_b = false, accumulate = false, has_bias = false;
  std::size_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  unsigned a_alignment = cuda_most_alignment, b_alignment = cuda_most_alignment, c_alignment = cuda_most_alignment,
           bias_alignment = cuda_most_alignment;
  friend bool operator==(const cuda_product_shape&, const cuda_product_shape&) = default;

  /// "bf16 4096 x 1536 x 8960, b transposed"
  [[nodiscard]] std::string text() const {
    return concat(name_of(operands), result == operands ? "" : concat(" to ", name_of(result)), " ", m, " x ", n, " x ", k,
                  transpose_a ? ", a transposed" : "", transpose_b ? ", b transposed" : "", accumulate ? ", added" : "",
                  has_bias ? ", bias" : "");
  }
  /// All fields, without spaces: for files.
  [[nodiscard]] std::string key() const {
    return concat(name_of(operands), "-", name_of(result), "-", transpose_a ? "t" : "n", transpose_b ? "t" : "n", accumulate ? "a" : "w",
                  has_bias ? "b" : "-", "-", m, "-", n, "-", k, "-", lda, "-", ldb, "-", ldc, "-", a_alignment, "-", b_alignment, "-",
                  c_alignment, "-", has_bias ? bias_alignment : 0U);
  }
};

/// A kernel::matmul of any dtype.
struct cuda_product {
  cuda_product_shape shape{};
  double alpha = 1;
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* c = nullptr;
  void (*own)(cuda_stream& stream, const cuda_product& product) = nullptr;  ///< launches our kernel
};

/// Scratch memory of a product; later work on the stream may reuse it.
struct cuda_workspace {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

/// Products of an opened GPU.
class cuda_products {
 public:
  cuda_products() = default;
  cuda_products(const cuda_products&) = delete;
  cuda_products& operator=(const cuda_products&) = delete;
  virtual ~cuda_products() = default;
  /// Queues the product; with only_prepare, only prepares it, on separate memory.
  ///   returns  false: launch, or prepare, our kernel
  ///   throws   cuda_error
  [[nodiscard]] virtual bool multiply(cuda_stream& stream, const cuda_product& product, cuda_workspace workspace, bool only_prepare) = 0;
  /// The choice for each product, a line each.
  [[nodiscard]] virtual std::string text() const = 0;
};

}  // namespace xtrain
