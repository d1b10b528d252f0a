// Cases of the conformance suite: optimizer steps.
#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_optimizers(Suite& suite) {
  using acc = accumulate_t<T>;
  for (const std::size_t n : {std::size_t{1}, std::size_t{67}, std::size_t{20000}}) {
    for (const bool stochastic : {false, true}) {
      const random_site random{.seed = 11, .step = 3, .site = 1, .first = 6};
      const auto adamw = [&]<class G, class M, class S>(bool master) {
        case_memory mem;
        kernel::adamw<host_memory, T, G, M, S> kernel{.n = n,
                                                      .learning_rate = 0.01,
                                                      .beta1 = 0.9,
                                                      .beta2 = 0.99,
                                                      .epsilon = 1e-8,
                                                      .weight_decay = 0.1,
                                                      .correction1 = 1.5,
                                                      .correction2 = 2.5,
                                                      .gradient_scale = 0.5,
                                                      .stochastic = stochastic,
                                                      .random = random};
        kernel.gradient_n = mem.numbers<G>(n);
        if (master) kernel.master_n = mem.numbers<M>(n);
        kernel.parameter_n = mem.numbers<T>(n);
        kernel.m_n = mem.numbers<S>(n);
        kernel.v_n = mem.numbers<S>(n, 0.1, 1.0);
        suite.template check_kernel<T>(kernel, 8.0, 2.0);
      };
      const auto sgd = [&]<class G, class M, class S>(bool master, bool velocity) {
        case_memory mem;
        kernel::sgd<host_memory, T, G, M, S> kernel{.n = n,
                                                    .learning_rate = 0.01,
                                                    .momentum = 0.9,
                                                    .weight_decay = 0.1,
                                                    .gradient_scale = 0.5,
                                                    .stochastic = stochastic,
                                                    .random = random};
        kernel.gradient_n = mem.numbers<G>(n);
        if (master) kernel.master_n = mem.numbers<M>(n);
        kernel.parameter_n = mem.numbers<T>(n);
        if (velocity) kernel.velocity_n = mem.numbers<S>(n);
        suite.template check_kernel<T>(kernel, 8.0, 2.0);
      };
      adamw.template operator()<T, acc, acc>(true);
      sgd.template operator()<T, acc, acc>(true, true);
      adamw.template operator()<T, T, T>(false);
      sgd.template operator()<T, T, T>(false, false);
      if constexpr (!std::is_same_v<T, acc>) {
        adamw.template operator()<acc, acc, acc>(true);
        sgd.template operator()<acc, acc, acc>(true, true);
      }
    }
  }
}

}  // namespace xtrain::testing::detail
