// Component 'openmp': kernels run on OpenMP threads instead of the library's own thread pool.
#pragma once

#include <xtrain/device/cpu/openmp.hpp>
