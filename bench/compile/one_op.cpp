// Compile time of one operation on the cpu device, for a user.
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/ops/norm.hpp>

void normalise(xtrain::execution<xtrain::cpu>& on, xtrain::matrix_view<const float, xtrain::host_memory> x,
               xtrain::vector_view<const float, xtrain::host_memory> weight, xtrain::matrix_view<float, xtrain::host_memory> y,
               xtrain::vector_view<float, xtrain::host_memory> rstd) {
  xtrain::ops::rms_norm(on, x, weight, 1e-5, y, rstd);
}
