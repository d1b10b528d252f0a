// Component 'openmp': kernels run on OpenMP's team of threads instead of the library's own pool.
#pragma once

#include <xtrain/device/cpu/openmp.hpp>
