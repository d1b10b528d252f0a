// The loss of a value function.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/value_loss.hpp>

namespace xtrain {

inline void run_native(cpu_stream&, const kernel::value_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  for (std::size_t i = 0; i < k.n; ++i) {
    double loss = 0.0, dvalue = 0.0, is_clipped = 0.0;
    if (k.token_n.raw()[i] >= 0) {
      const double change = k.value_n.raw()[i] - k.old_n.raw()[i], error = k.value_n.raw()[i] - k.return_n.raw()[i];
      const double outside = std::abs(change) > k.epsilon ? change - std::copysign(k.epsilon, change) : 0.0;
      const double error_of_clipped = error - outside;
      const bool clips = std::abs(error_of_clipped) > std::abs(error);
      const double largest = clips ? error_of_clipped : error;
      loss = 0.5 * largest * largest;
      dvalue = clips ? 0.0 : error;
      is_clipped = clips ? 1.0 : 0.0;
    }
    k.loss_n.raw()[i] = loss;
    k.dvalue_n.raw()[i] = dvalue;
    k.is_clipped_n.raw()[i] = is_clipped;
  }
}

}  // namespace xtrain
