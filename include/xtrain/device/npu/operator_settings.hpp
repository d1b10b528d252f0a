// How kernels use CANN's operators: what a user may choose.
#pragma once

#include <cstddef>

namespace xtrain {

/// Kernels are composed of elementary operators with fp32 between them, and their temporary memory is bounded.
struct npu_operator_settings {
  bool is_fused = false;                                ///< one operator of CANN for a whole kernel where it computes the kernel's formula
  std::size_t workspace_floor = std::size_t{16} << 20;  ///< bytes that any operator may need, beside copies of its operands
  std::size_t chunk_bytes = std::size_t{256} << 20;     ///< of scores, logits, or copies of elements, that exist at the same time
};

}  // namespace xtrain
