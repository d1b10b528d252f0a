// A step's scalars, on one thread.
#pragma once

#include <cstddef>

#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain {

template <class T>
void run_native(cpu_stream&, const kernel::sum<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  double sum = 0.0;
  for (std::size_t i = 0; i < k.n; ++i) sum += static_cast<double>(k.x_n.raw()[i]);
  k.sum_1.raw()[0] += sum;
}

inline void run_native(cpu_stream&, const kernel::update_step_scalars<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  k.compute(k.loss_1.raw()[0], k.squares_1.raw()[0], k.statistics_s.raw(), k.inputs_1.raw(), k.state_1.raw()[0], k.scalars_1.raw()[0], k.report_1.raw()[0]);
}

inline void run_native(cpu_stream&, const kernel::step_gradient_scale<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  k.gradient_scale_1.raw()[0] = k.compute(k.inputs_1.raw()[0], k.state_1.raw()[0]);
}

inline void run_native(cpu_stream&, const kernel::adam_corrections<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  k.compute(*k.scalars_1.raw(), k.correction_2.raw());
}

}  // namespace xtrain
