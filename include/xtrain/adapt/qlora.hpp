// QLoRA: LoRA on four-bit weights.                              [Dettmers et al. 2023, "QLoRA"]
#pragma once

#include <string_view>

#include <xtrain/adapt/lora.hpp>

namespace xtrain {

/// `lora` with equal settings and folders. Frozen linear weights, adapted or not, are quantized when initialized or loaded, and dequantized for each matrix
/// product; there is no other copy. Embeddings, head, biases and norms have the precision's dtype. Departure from the paper: optimizer states are not paged.
struct qlora : lora {
  static constexpr std::string_view name = "qlora";
  using hooks = xtrain::hooks<hook::can_be_switched_off, hook::on_weights_loaded, hook::on_table, hook::on_head, hook::drops_input, hook::works_on_rows,
                              hook::trains_bias, hook::adapts_table, hook::quantizes_weights>;
};

static_assert(adapter<qlora>);

}  // namespace xtrain
