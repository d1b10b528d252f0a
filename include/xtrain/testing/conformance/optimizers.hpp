// Conformance cases: optimizer steps.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_optimizers(Suite& suite) {
  using acc = accumulate_t<T>;
  // a step, and a skipped step
  static constexpr std::array<kernel::step_scalars, 2> all_scalars{
      {{.learning_rate = 0.01, .gradient_scale = 0.5, .update = 3, .number = 2},
       {.learning_rate = 0.01, .gradient_scale = 0.5, .update = 3, .applies = 0}}};
  for (const double update : {1.0, 3.0, 100000.0}) {
    const kernel::step_scalars scalars{.update = update};
    case_memory mem;
    suite.template check_kernel<T>(
        kernel::adam_corrections<host_memory>{.beta1 = 0.9, .beta2 = 0.999, .scalars_1 = span_of(&scalars, 1), .correction_2 = mem.numbers<double>(2)}, 8.0,
        2.0);
  }
  static constexpr std::array<double, 2> corrections{3.69, 33.67};  // about betas 0.9 and 0.99, update 3
  for (const std::size_t n : {std::size_t{1}, std::size_t{67}, std::size_t{20000}}) {
    for (const kernel::step_scalars& scalars : all_scalars) {
      for (const bool stochastic : {false, true}) {
        const random_site random{.seed = 11, .step = 3, .site = 1, .first = 6};
        const auto adamw = [&]<class G, class M, class S>(bool master) {
          case_memory mem;
          kernel::adamw<host_memory, T, G, M, S> kernel{.n = n,
                                                        .beta1 = 0.9,
                                                        .beta2 = 0.99,
                                                        .epsilon = 1e-8,
                                                        .weight_decay = 0.1,
                                                        .learning_rate_factor = 1.5,
                                                        .stochastic = stochastic,
                                                        .random = random,
                                                        .scalars_1 = span_of(&scalars, 1),
                                                        .correction_2 = span_of(corrections.data(), 2)};
          kernel.gradient_n = mem.numbers<G>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          kernel.m_n = mem.numbers<S>(n);
          kernel.v_n = mem.numbers<S>(n, 0.1, 1.0);
          suite.template check_kernel<T>(kernel, 8.0, 2.0);
        };
        const auto sgd = [&]<class G, class M, class S>(bool master, bool velocity) {
          case_memory mem;
          kernel::sgd<host_memory, T, G, M, S> kernel{
              .n = n, .momentum = 0.9, .weight_decay = 0.1, .learning_rate_factor = 1.5, .stochastic = stochastic, .random = random,
              .scalars_1 = span_of(&scalars, 1)};
          kernel.gradient_n = mem.numbers<G>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          if (velocity) kernel.velocity_n = mem.numbers<S>(n);
          suite.template check_kernel<T>(kernel, 8.0, 2.0);
        };
        const auto lion = [&]<class G, class M, class S>(bool master) {
          case_memory mem;
          // exact products with this beta1: the sign of u near zero is equal on all devices
          kernel::lion<host_memory, T, G, M, S> kernel{.n = n,
                                                       .beta1 = 0.75,
                                                       .beta2 = 0.99,
                                                       .weight_decay = 0.1,
                                                       .learning_rate_factor = 1.5,
                                                       .stochastic = stochastic,
                                                       .random = random,
                                                       .scalars_1 = span_of(&scalars, 1)};
          kernel.gradient_n = mem.numbers<G>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          kernel.m_n = mem.numbers<S>(n);
          suite.template check_kernel<T>(kernel, 8.0, 2.0);
        };
        const auto adamw_8bit = [&]<class G, class M>(bool master) {
          case_memory mem;
          kernel::adamw_8bit<host_memory, T, G, M> kernel{.n = n,
                                                          .beta1 = 0.9,
                                                          .beta2 = 0.99,
                                                          .epsilon = 1e-8,
                                                          .weight_decay = 0.1,
                                                          .stochastic = stochastic,
                                                          .random = random,
                                                          .scalars_1 = span_of(&scalars, 1),
                                                          .correction_2 = span_of(corrections.data(), 2)};
          kernel.gradient_n = mem.numbers<G>(n);
          if (master) kernel.master_n = mem.numbers<M>(n);
          kernel.parameter_n = mem.numbers<T>(n);
          kernel.m_code_n = mem.codes(n);
          kernel.v_code_n = mem.codes(n);
          kernel.m_scale_k = mem.numbers<float>(dynamic_code::blocks(n), 0.1, 1.0);
          kernel.v_scale_k = mem.numbers<float>(dynamic_code::blocks(n), 0.1, 1.0);
          suite.template check_kernel<T>(kernel, 8.0, 2.0);
        };
        adamw.template operator()<T, acc, acc>(true);
        adamw_8bit.template operator()<T, acc>(true);
        adamw_8bit.template operator()<T, T>(false);
        lion.template operator()<T, acc, acc>(true);
        sgd.template operator()<T, acc, acc>(true, true);
        adamw.template operator()<T, T, T>(false);
        sgd.template operator()<T, T, T>(false, false);
        lion.template operator()<T, T, T>(false);
        if constexpr (!std::is_same_v<T, acc>) {
          adamw.template operator()<acc, acc, acc>(true);
          sgd.template operator()<acc, acc, acc>(true, true);
          lion.template operator()<acc, acc, acc>(true);
          adamw_8bit.template operator()<acc, acc>(true);
        }
      }
    }
  }
}

}  // namespace xtrain::testing::detail
