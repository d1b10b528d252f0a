// Precompiled for most tests: what every test includes, and the library, whose parsing is otherwise half of a test's compile time. Not for
// programs with kernels of their own: g++ then warns of its own intrinsics.
#include "pch.hpp"

#include <xtrain/device/cpu/kernels.hpp>  // also in fp64, which the library compiled once does not have
#include <xtrain/io.hpp>
