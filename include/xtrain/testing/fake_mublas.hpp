// muBLAS without a GPU, on a fake MUSA runtime: multiplies as described and checks callers, with given numbers of enumerations, durations and failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/musa/mublas/products.hpp>
#include <xtrain/testing/fake_musa.hpp>

namespace xtrain::testing {

struct fake_mublas_config {
  mublas_numbers numbers{};
  double milliseconds = 0.5;
  bool is_wrong = false;                 ///< results of products with more than four terms
  bool has_mixed_results = true;         ///< 16-bit operands with a result in fp32
  std::vector<std::string> missing{};    ///< entries that the library lacks
};

/// One instance at a time: the table's functions find it globally.
class fake_mublas {
 public:
  explicit fake_mublas(fake_musa& gpu, fake_mublas_config settings = {}) : gpu_(gpu), settings_(std::move(settings)) {
    self() = this;
    found_ = xtrain::detail::make_mublas(
        [&](std::string_view name) -> void* {
          for (const std::string& one : settings_.missing)
            if (one == name) return nullptr;
          return entry_of(name);
        },
        "a fake");
  }
  ~fake_mublas() { self() = nullptr; }
  fake_mublas(const fake_mublas&) = delete;
  fake_mublas& operator=(const fake_mublas&) = delete;

  /// A GPU with this library; `cache` is the folder of the choices among products.
  [[nodiscard]] musa_context open(const std::string& cache, int device = 0) const {
    return musa_context(musa_config{.device = device,
                                    .runtime = &gpu_.runtime(),
                                    .product_cache = cache,
                                    .other_products = found_.library ? products_by_mublas(*found_.library) : cuda_other_products{.why = found_.why}});
  }
  /// The n-th call from now, counted from 1, returns this status, without effect unless it destroys.
  void fail_call(std::size_t n, int status) {
    gpu_.locked([&] {
      calls_ = 0;
      failing_call_ = n;
      status_ = status;
    });
  }
  [[nodiscard]] std::size_t calls() {
    return gpu_.locked([&] { return calls_; });
  }
  [[nodiscard]] std::size_t calls_of(const std::string& name) {
    return gpu_.locked([&] {
      const auto found = counts_.find(name);
      return found == counts_.end() ? std::size_t{0} : found->second;
    });
  }
  [[nodiscard]] std::string violations() {
    return gpu_.locked([&] { return violations_; });
  }
  /// Handles that were not destroyed; empty: no leaks.
  [[nodiscard]] std::string leaks() {
    return gpu_.locked([&] { return handles_.empty() ? std::string() : concat(handles_.size(), " handles; "); });
  }

 private:
  struct handle {
    int device = 0;
    cuda_queue_handle stream = nullptr;
    bool has_stream = false, adds_in_order = false;
  };
  struct matrix {
    int type = 0;
    std::size_t rows = 0, columns = 0, stride = 0;  // columns are contiguous
    [[nodiscard]] std::size_t element() const { return type == mublas_type::fp32 ? 4 : 2; }
    [[nodiscard]] std::size_t bytes() const { return ((columns - 1) * stride + rows) * element(); }
    [[nodiscard]] std::size_t place(std::size_t row, std::size_t column) const { return (column * stride + row) * element(); }
  };

  static fake_mublas*& self() {
    static fake_mublas* one = nullptr;
    return one;
  }
  int violation(int status, const std::string& what) {
    violations_ += concat(what, "\n");
    return status;
  }
  template <class F>
  static int call(const char* name, F&& f) {
    fake_mublas& all = *self();
    return all.gpu_.locked([&]() -> int {
      ++all.counts_[name];
      if (++all.calls_ == all.failing_call_) return all.status_;
      return f(all);
    });
  }
  template <class F>
  static int with_handle(const char* name, void* which, F&& f) {
    return call(name, [&](fake_mublas& all) {
      const auto found = all.handles_.find(which);
      return found == all.handles_.end() ? all.violation(mublas_status::invalid_handle, concat(name, ": there is no such handle")) : f(all, *found->second);
    });
  }
  template <class F>
  [[nodiscard]] static void* address(F* function) {
    return reinterpret_cast<void*>(function);
  }
  [[nodiscard]] static void* entry_of(std::string_view name) {
    if (name == "mublasCreate")
      return address(+[](void** result) {
        return call("mublasCreate", [&](fake_mublas& all) {
          auto fresh = std::make_unique<handle>(handle{.device = fake_cuda::current_device()});
          *result = fresh.get();
          all.handles_[*result] = std::move(fresh);
          return mublas_status::success;
        });
      });
    if (name == "mublasDestroy")
      return address(+[](void* which) {
        fake_mublas& all = *self();
        return all.gpu_.locked([&] {
          const bool fails = ++all.calls_ == all.failing_call_;
          if (all.handles_.erase(which) != 1) return all.violation(mublas_status::invalid_handle, "mublasDestroy: there is no such handle");
          return fails ? all.status_ : mublas_status::success;
        });
      });
    if (name == "mublasSetStream")
      return address(+[](void* which, cuda_queue_handle stream) {
        return with_handle("mublasSetStream", which, [&](fake_mublas&, handle& of) {
          of.stream = stream;
          of.has_stream = true;
          return mublas_status::success;
        });
      });
    if (name == "mublasSetAtomicsMode")
      return address(+[](void* which, int mode) {
        return with_handle("mublasSetAtomicsMode", which, [&](fake_mublas&, handle& of) {
          of.adds_in_order = mode == mublas_without_atomics;
          return mublas_status::success;
        });
      });
    if (name == "mublasGemmEx")
      return address(+[](void* which, int a_operation, int b_operation, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda,
                         const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute_type, int algorithm) {
        return with_handle("mublasGemmEx", which, [&](fake_mublas& all, handle& by) {
          const mublas_numbers& known = all.settings_.numbers;
          const auto is_operation = [&](int one) { return one == known.no_transpose || one == known.transpose; };
          if (!is_operation(a_operation) || !is_operation(b_operation) || compute_type != known.compute_fp32) return mublas_status::not_implemented;
          const auto size = [](int number) { return static_cast<std::size_t>(number); };
          if (m <= 0 || n <= 0 || k <= 0 || lda <= 0 || ldb <= 0 || ldc <= 0) return all.violation(mublas_status::invalid_size, "mublasGemmEx: a size");
          const bool ta = a_operation == known.transpose, tb = b_operation == known.transpose;
          const matrix of_a{a_type, size(ta ? k : m), size(ta ? m : k), size(lda)}, of_b{b_type, size(tb ? n : k), size(tb ? k : n), size(ldb)},
              of_c{c_type, size(m), size(n), size(ldc)};
          return all.multiply(by, {ta, tb, size(k)}, {of_a, of_b, of_c}, static_cast<const std::byte*>(a), static_cast<const std::byte*>(b),
                              static_cast<std::byte*>(c), *static_cast<const float*>(alpha), *static_cast<const float*>(beta), algorithm);
        });
      });
    return nullptr;
  }

  struct operations {
    bool transpose_a, transpose_b;
    std::size_t terms;
  };
  struct matrices {
    matrix a, b, c;
  };
  [[nodiscard]] int multiply(const handle& by, const operations& how, const matrices& of, const std::byte* a, const std::byte* b, std::byte* c, float alpha,
                             float beta, int algorithm) {
    const auto wrong = [&](const std::string& why) { return violation(mublas_status::invalid_pointer, concat("mublasGemmEx: ", why)); };
    for (const matrix* const one : {&of.a, &of.b, &of.c})
      if (one->stride < one->rows) return violation(mublas_status::invalid_size, "mublasGemmEx: a matrix whose columns overlap");
    const auto is_type = [](int type) { return type == mublas_type::fp32 || type == mublas_type::fp16 || type == mublas_type::bf16; };
    if (of.a.type != of.b.type || !is_type(of.a.type) || (of.c.type != of.a.type && of.c.type != mublas_type::fp32)) return wrong("types");
    if (of.c.type != of.a.type && !settings_.has_mixed_results) return mublas_status::not_implemented;
    if (algorithm != mublas_default_algorithm) return wrong("an algorithm that is not known");
    if (!by.has_stream) return wrong("the handle has no stream of the caller's");
    if (!by.adds_in_order) return wrong("sums may depend on the order of blocks");
    if (by.device != fake_cuda::current_device()) return wrong("the handle is of another device than the thread's");
    const auto problem_in_memory = [this, device = by.device, of, a, b, c] {
      std::string all = gpu_.problem_of(a, of.a.bytes(), device, "a read of a");
      if (all.empty()) all = gpu_.problem_of(b, of.b.bytes(), device, "a read of b");
      return all.empty() ? gpu_.problem_of(c, of.c.bytes(), device, "a write of c") : all;
    };
    if (const std::string problem = problem_in_memory(); !problem.empty()) return wrong(problem);
    const std::string refused = gpu_.queue_library_work(by.stream, by.device, this, settings_.milliseconds, [=, this]() -> std::string {
      if (const std::string later = problem_in_memory(); !later.empty()) return concat("a queued product: ", later);
      for (std::size_t j = 0; j < of.c.columns; ++j)
        for (std::size_t i = 0; i < of.c.rows; ++i) {
          double sum = settings_.is_wrong && how.terms > 4 ? 1 : 0;
          for (std::size_t l = 0; l < how.terms; ++l)
            sum += load(of.a.type, a + (how.transpose_a ? of.a.place(l, i) : of.a.place(i, l))) *
                   load(of.b.type, b + (how.transpose_b ? of.b.place(j, l) : of.b.place(l, j)));
          sum *= static_cast<double>(alpha);
          std::byte* const at = c + of.c.place(i, j);
          if (beta != 0) sum += static_cast<double>(beta) * load(of.c.type, at);
          store(of.c.type, at, sum);
        }
      return {};
    });
    return refused.empty() ? mublas_status::success : wrong(refused);
  }
  [[nodiscard]] static double load(int type, const std::byte* at) {
    if (type == mublas_type::fp32) {
      float value = 0;
      std::memcpy(&value, at, 4);
      return static_cast<double>(value);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, 2);
    return static_cast<double>(type == mublas_type::bf16 ? static_cast<float>(bf16::from_bits(bits)) : static_cast<float>(fp16::from_bits(bits)));
  }
  static void store(int type, std::byte* at, double value) {
    if (type == mublas_type::fp32) {
      const auto rounded = static_cast<float>(value);
      std::memcpy(at, &rounded, 4);
      return;
    }
    const std::uint16_t bits = type == mublas_type::bf16 ? bf16(value).bits : fp16(value).bits;
    std::memcpy(at, &bits, 2);
  }

  fake_musa& gpu_;
  fake_mublas_config settings_;
  xtrain::detail::mublas_found found_{};
  std::map<void*, std::unique_ptr<handle>> handles_{};
  std::map<std::string, std::size_t> counts_{};
  std::size_t calls_ = 0, failing_call_ = 0;
  int status_ = 0;
  std::string violations_{};
};

}  // namespace xtrain::testing
