// QLoRA: LoRA on four-bit weights.                              [Dettmers et al. 2023, "QLoRA"]
#pragma once

#include <string_view>

#include <xtrain/adapt/lora.hpp>

namespace xtrain {

/// `lora` with equal settings and folders. Frozen linear weights, adapted or not, are quantized when initialized or loaded, and dequantized for each matrix
/// product; there is no other copy. Embeddings, head, biases and norms have the precision's dtype. Departure from the paper: optimizer states are not paged.
struct qlora : lora {
  static constexpr std::string_view name = "qlora";
  static constexpr bool quantizes_weights = true, stores_blocks = false;
};

static_assert(adapter<qlora>);

}  // namespace xtrain
