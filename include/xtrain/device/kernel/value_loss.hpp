// The loss of a value function with clipped changes.
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// For each of n tokens with a value v, with clipped = clip(v, old − epsilon, old + epsilon):
///   loss   = ½ · max((v − return)², (clipped − return)²)                     [Schulman et al. 2017; OpenAI baselines, ppo2; trl; torchtune: PPOLoss]
///   dvalue = v − return; 0 where the second is larger and clipped is not v
///   value_n, old_n, return_n   read
///   token_n                    read      negative: no value; loss, dvalue and is_clipped are 0
///   loss_n, dvalue_n           written
///   is_clipped_n               written   1 where the second is larger
///   rounding                   double
template <class Memory>
struct value_loss {
  static constexpr std::string_view name = "value_loss";
  template <class M>
  using on = value_loss<M>;

  std::size_t n = 0;
  double epsilon = 0.2;
  read<double, Memory> value_n{}, old_n{}, return_n{};
  read<token, Memory> token_n{};
  written<double, Memory> loss_n{}, dvalue_n{}, is_clipped_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.epsilon, s.value_n, s.old_n, s.return_n, s.token_n, s.loss_n, s.dvalue_n, s.is_clipped_n);
  }
  [[nodiscard]] constexpr double operations() const { return 10.0 * static_cast<double>(n); }
};

}  // namespace xtrain::kernel
