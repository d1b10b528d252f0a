// Precompiled for most tests: common test headers and the library, otherwise half of a test's compile time. Not for programs with their own kernels: g++ then
// warns of its own intrinsics.
#include "pch.hpp"

#include <xtrain/device/cpu/kernels.hpp>  // fp64 is not in the compiled library
#include <xtrain/io.hpp>
