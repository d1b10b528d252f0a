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
  using hooks = xtrain::hooks<hook::can_be_switched_off, hook::on_weights_loaded, hook::on_table, hook::on_head, hook::drops_input, hook::works_on_rows,
                              hook::trains_bias, hook::adapts_table, hook::quantizes_weights>;
};

static_assert(adapter<qlora>);

}  // namespace xtrain
