// says: xtrain as_xtensor: the memory must be host-addressable
// A tensor that the host cannot reach is taken for an xtensor expression.
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/tensor/xtensor_face.hpp>
#include <xtrain/testing/isolated.hpp>

#ifdef MISTAKE
using device = xtrain::testing::isolated<xtrain::cpu>;
#else
using device = xtrain::cpu;
#endif

void look(xtrain::tensor<float, 2, device>& t) { (void)xtrain::as_xtensor(t); }
