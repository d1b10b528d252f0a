#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/products.hpp>

namespace xtrain {

/// Causal attention over whole sequences, or its backward pass: all that affects speed. Rows as in kernel::attention_shape.
struct cuda_attention_shape {
  cuda_number number = cuda_number::bf16;
  bool is_backward = false;
  std::size_t b = 0, t = 0, h = 0, k = 0, d = 0;
  double scale = 1;
  friend bool operator==(const cuda_attention_shape&, const cuda_attention_shape&) = default;

  [[nodiscard]] std::size_t row() const { return (h + 2 * k) * d; }
  /// "attention bf16 4 x 1024, 12 heads of 64, 4 of keys"
  [[nodiscard]] std::string text() const {
    return concat(is_backward ? "attention_backward " : "attention ", name_of(number), " ", b, " x ", t, ", ", h, " heads of ", d,
                  k == h ? "" : concat(", ", k, " of keys"));
  }
  /// All fields, without spaces: for files.
  [[nodiscard]] std::string key() const {
    return concat(is_backward ? "attention_backward-" : "attention-", name_of(number), "-", b, "-", t, "-", h, "-", k, "-", d, "-",
                  std::bit_cast<std::uint64_t>(scale));
  }
};

/// A kernel::attention or kernel::attention_backward of a 16-bit dtype.
struct cuda_attention {
  cuda_attention_shape shape{};
  const void *qkv = nullptr, *d_o = nullptr;  ///< d_o, dqkv: of the backward pass, which reads o and lse
  void *o = nullptr, *lse = nullptr, *dqkv = nullptr;
  void* own_scratch = nullptr;
  void (*own)(cuda_stream& stream, const cuda_attention& attention) = nullptr;  ///< launches our kernel
};

/// Maximum scratch bytes of cuDNN's plans for a shape, as in versions 9.19 and 9.26. With grouped heads, a backward pass needs the key and value gradients of
/// each query head; before sm_100, a deterministic one also a 16-bit matrix of time x time per head and sequence.
///   architecture   10 · major + minor
[[nodiscard]] constexpr std::size_t cudnn_workspace_bytes(const cuda_attention_shape& shape, int architecture) {
  constexpr std::size_t least = 1024;
  if (!shape.is_backward) return least;
  const std::size_t heads = shape.b * shape.h, t = (shape.t + 127) / 128 * 128, own_keys = shape.k == shape.h ? 0 : heads * shape.t * shape.d;
  const bool is_blackwell = architecture >= 100 && architecture < 120;
  return least + 4 * heads * t + (is_blackwell ? 8 * own_keys : 4 * own_keys + 2 * heads * t * t);
}

/// Attention of an opened GPU.
class cuda_attentions {
 public:
  cuda_attentions() = default;
  cuda_attentions(const cuda_attentions&) = delete;
  cuda_attentions& operator=(const cuda_attentions&) = delete;
  virtual ~cuda_attentions() = default;
  /// Queues the attention; with only_prepare, only prepares it, on separate memory.
  ///   returns  false: launch, or prepare, our kernel
  ///   throws   cuda_error
  [[nodiscard]] virtual bool attend(cuda_stream& stream, const cuda_attention& attention, cuda_workspace workspace, bool only_prepare) = 0;
  /// The choice for each shape, a line each.
  [[nodiscard]] virtual std::string text() const = 0;
};

}  // namespace xtrain
