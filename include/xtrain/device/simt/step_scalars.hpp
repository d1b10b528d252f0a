// A step's scalars, a thread each.
#pragma once

#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/two_stage_sum.hpp>

namespace xtrain {

namespace simt {

template <class T>
struct value_of {
  const T* x;
  XTRAIN_SIMT_FN double at(std::size_t i) const { return static_cast<double>(x[i]); }
  template <int N>
  XTRAIN_SIMT_FN double of(std::size_t i) const {
    const auto x_n = load<N>(x + i);
    double sum = 0;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) sum += static_cast<double>(x_n.v[e]);
    return sum;
  }
};

template <class Work>
struct one_thread {
  static constexpr int threads = warp_width;
  struct shared {};
  Work work;
  XTRAIN_SIMT_FN void operator()(shared&) const {
    if (thread() == 0) work();
  }
};

template <class M>
struct gradient_scale_work {
  kernel::step_gradient_scale<M> kernel;
  XTRAIN_SIMT_FN void operator()() const { *kernel.gradient_scale_1.raw() = kernel.compute(*kernel.inputs_1.raw(), *kernel.state_1.raw()); }
};

template <class M>
struct step_scalars_work {
  kernel::update_step_scalars<M> kernel;
  XTRAIN_SIMT_FN void operator()() const {
    kernel.compute(*kernel.loss_1.raw(), *kernel.squares_1.raw(), kernel.statistics_s.raw(), kernel.inputs_1.raw(), *kernel.state_1.raw(),
                   *kernel.scalars_1.raw(), *kernel.report_1.raw());
  }
};

template <class M>
struct adam_corrections_work {
  kernel::adam_corrections<M> kernel;
  XTRAIN_SIMT_FN void operator()() const { kernel.compute(*kernel.scalars_1.raw(), kernel.correction_2.raw()); }
};

}  // namespace simt

template <simt::launches S, class M, class T>
void run_kernel(S& stream, const kernel::sum<M, T>& k, scratch_span<M> scratch) {
  kernel::check_arity<3>(k);
  constexpr int width = simt::elements_of<T>;
  simt::launch_sum<width>(stream, simt::value_of<T>{k.x_n.raw()}, k.n, simt::is_aligned(k.x_n.raw()), k.sum_1.raw(), true, scratch.raw());
}
template <simt::of_simt_device P, class M, class T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::sum<M, T>&) {
  return simt::sum_scratch_bytes;
}

template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::step_gradient_scale<M>& k, scratch_span<M>) {
  kernel::check_arity<3>(k);
  stream.launch(simt::one_thread<simt::gradient_scale_work<M>>{{k}}, {1, 1, 1});
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::update_step_scalars<M>& k, scratch_span<M>) {
  kernel::check_arity<12>(k);
  stream.launch(simt::one_thread<simt::step_scalars_work<M>>{{k}}, {1, 1, 1});
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::adam_corrections<M>& k, scratch_span<M>) {
  kernel::check_arity<4>(k);
  stream.launch(simt::one_thread<simt::adam_corrections_work<M>>{{k}}, {1, 1, 1});
}

}  // namespace xtrain
