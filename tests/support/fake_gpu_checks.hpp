// What tests on a stand-in for a GPU check in the end.
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

/// Everything that was made is gone, and nothing was called in a way that CUDA's documentation forbids.
inline void check_clean(const xtrain::testing::fake_cuda& gpu) {
  CHECK(gpu.violations() == "");
  CHECK(gpu.leaks() == "");
}

inline void check_clean(xtrain::testing::fake_cublaslt& blas) {
  CHECK(blas.violations() == "");
  CHECK(blas.leaks() == "");
}
