// QLoRA: LoRA beside weights that are kept in four bits.                     [Dettmers et al. 2023, "QLoRA"]
#pragma once

#include <string_view>

#include <xtrain/adapt/lora.hpp>

namespace xtrain {

/// As `lora`, with the same settings and folders. Frozen weights of linear layers, adapted or not, are quantised when they are drawn or
/// loaded and made into numbers again for each product, forth and back; nothing keeps them otherwise. Embeddings, the head, biases and
/// norms stay as the precision has them. Departures from the paper: optimizer states are not paged.
struct qlora : lora {
  static constexpr std::string_view name = "qlora";
  static constexpr bool quantises_weights = true;
};

static_assert(adapter<qlora>);

}  // namespace xtrain
