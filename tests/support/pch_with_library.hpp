// Precompiled for most tests: what every test includes, and the library, whose parsing is otherwise half of a test's compile time. Not for
// programs with kernels of their own: g++ then warns of its own intrinsics.
#include "pch.hpp"

#include <xtrain/io.hpp>
