// Final checks of tests on a fake GPU.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <string>

#include <xtrain/testing/fake_cublaslt.hpp>
#include <xtrain/testing/fake_cuda.hpp>

template <class F>
std::string what_is_thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

/// Every object is destroyed, and no call violated CUDA's documentation.
inline void check_clean(const xtrain::testing::fake_cuda& gpu) {
  CHECK(gpu.violations() == "");
  CHECK(gpu.leaks() == "");
}

inline void check_clean(xtrain::testing::fake_cublaslt& blas) {
  CHECK(blas.violations() == "");
  CHECK(blas.leaks() == "");
}
