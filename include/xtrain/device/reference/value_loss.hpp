#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/kernel/value_loss.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

inline void run_kernel(reference_stream&, const kernel::value_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  for (std::size_t i = 0; i < k.n; ++i) {
    k.loss_n.data()[i] = k.dvalue_n.data()[i] = k.is_clipped_n.data()[i] = 0.0;
    if (k.token_n.data()[i] < 0) continue;
    const double value = k.value_n.data()[i], old = k.old_n.data()[i], wanted = k.return_n.data()[i];
    const double clipped = std::min(std::max(value, old - k.epsilon), old + k.epsilon);
    const double plain = (value - wanted) * (value - wanted), of_clipped = (clipped - wanted) * (clipped - wanted);
    k.loss_n.data()[i] = 0.5 * std::max(plain, of_clipped);
    // forward: loss = ½ · max(plain, of_clipped); the second is constant outside its bounds
    k.dvalue_n.data()[i] = of_clipped > plain ? 0.0 : value - wanted;
    k.is_clipped_n.data()[i] = of_clipped > plain ? 1.0 : 0.0;
  }
}

}  // namespace xtrain
