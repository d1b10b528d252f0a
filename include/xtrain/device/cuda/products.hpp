// Products of matrices that another library may compute: what the device's stream knows about it.
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

/// Who computes the products of matrices that are large enough to matter.
enum class cuda_product_choice : std::uint8_t {
  timed,       ///< before captures the fastest of cuBLASLt's kernels and ours, as timed on this GPU; else as `proposed`
  proposed,    ///< the kernel that cuBLASLt thinks fastest
  own_kernels  ///< ours
};

enum class cuda_number : std::uint8_t { fp32, bf16, fp16 };

[[nodiscard]] constexpr std::string_view name_of(cuda_number number) {
  return number == cuda_number::fp32 ? "fp32" : number == cuda_number::bf16 ? "bf16" : "fp16";
}
[[nodiscard]] constexpr std::size_t bytes_of(cuda_number number) { return number == cuda_number::fp32 ? 4 : 2; }

/// Of an address, at most 64: scratch memory is at a multiple of it, and no kernel asks for more.
inline constexpr unsigned cuda_most_alignment = 64;
[[nodiscard]] inline unsigned cuda_alignment_of(const void* address) {
  return 1U << std::countr_zero(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % cuda_most_alignment) |
                                cuda_most_alignment);
}

/// All of a kernel::matmul that decides how fast it is.
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
  /// All of it, without spaces: for files.
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

/// Scratch memory of a product; what the stream queues next may use it again.
struct cuda_workspace {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

/// What computes products, of an opened GPU.
class cuda_products {
 public:
  cuda_products() = default;
  cuda_products(const cuda_products&) = delete;
  cuda_products& operator=(const cuda_products&) = delete;
  virtual ~cuda_products() = default;
  /// Queues the product; or, with only_prepare, gets it ready, on memory of its own.
  ///   returns  false: our kernel is to be launched, or prepared
  ///   throws   cuda_error
  [[nodiscard]] virtual bool multiply(cuda_stream& stream, const cuda_product& product, cuda_workspace workspace, bool only_prepare) = 0;
  /// What each product was given to, a line each.
  [[nodiscard]] virtual std::string text() const = 0;
};

}  // namespace xtrain
