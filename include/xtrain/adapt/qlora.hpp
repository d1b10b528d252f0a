// QLoRA: LoRA on weights quantized to four bits.                              [Dettmers et al. 2023, "QLoRA"]
#pragma once

#include <string_view>

#include <xtrain/adapt/lora.hpp>

namespace xtrain {

/// Like `lora`, with the same settings and folders. Frozen weights of linear layers, adapted or not, are quantized when initialized
/// or loaded, and dequantized for each matrix product, forward and backward; no other copy is kept. Embeddings, the head, biases and
/// norms keep the precision's dtype. Departures from the paper: optimizer states are not paged.
struct qlora : lora {
  static constexpr std::string_view name = "qlora";
  static constexpr bool quantizes_weights = true, stores_blocks = false;
};

static_assert(adapter<qlora>);

}  // namespace xtrain
