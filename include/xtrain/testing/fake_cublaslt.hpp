// cuBLASLt without a GPU, on a fake CUDA runtime: multiplies as described, checks callers against the library's documentation, with given durations and
// failures.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/cublaslt/library.hpp>
#include <xtrain/testing/fake_cuda.hpp>

namespace xtrain::testing {

struct fake_algorithm {
  double milliseconds = 0.5;
  std::uint32_t reduction = cublaslt_reduction::none;
  std::size_t workspace_bytes = 0;
  unsigned alignment = 2;  ///< of every matrix
  bool is_wrong = false;   ///< wrong results
  bool fails = false;      ///< proposed, but does not run
  bool adds_in_fp32 = false;  ///< the last term first; otherwise in fp64
};

struct fake_cublaslt_config {
  std::vector<fake_algorithm> algorithms{{}};  ///< in the order of proposals
  std::size_t version = 130100;
};

/// One instance at a time: the table's functions find it globally.
class fake_cublaslt {
 public:
  explicit fake_cublaslt(fake_cuda& gpu, fake_cublaslt_config settings = {})
      : gpu_(gpu), settings_(std::move(settings)), table_(make_table()) {
    self() = this;
  }
  ~fake_cublaslt() { self() = nullptr; }
  fake_cublaslt(const fake_cublaslt&) = delete;
  fake_cublaslt& operator=(const fake_cublaslt&) = delete;

  [[nodiscard]] const cublaslt_library& library() const { return table_; }
  /// A GPU with this library; `cache` is the folder of the choices among products.
  [[nodiscard]] cuda_context open(const std::string& cache, int device = 0) const {
    return cuda_context(
        cuda_config{.device = device, .runtime = &gpu_.runtime(), .cublaslt = &table_, .product_cache = cache, .product_workspace = 4096});
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
  /// Violations of the library's documentation by callers, a line each.
  [[nodiscard]] std::string violations() {
    return gpu_.locked([&] { return violations_; });
  }
  /// Objects that were not destroyed; empty: no leaks.
  [[nodiscard]] std::string leaks() {
    return gpu_.locked([&] {
      std::string all;
      const auto add = [&](std::size_t n, const char* what) {
        if (n != 0) all += concat(n, " ", what, "; ");
      };
      add(handles_.size(), "handles");
      add(products_.size(), "descriptors of products");
      add(layouts_.size(), "layouts");
      add(preferences_.size(), "preferences");
      return all;
    });
  }

 private:
  struct handle {
    int device = 0;
  };
  struct product {
    int compute = 0, scale = 0;
    std::int32_t transpose_a = 0, transpose_b = 0;
    std::uint32_t epilogue = cublaslt_epilogue::none;
    const void* bias = nullptr;
  };
  struct layout {
    int type = 0;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t stride = 0;
    [[nodiscard]] std::size_t element() const { return type == cublaslt_type::fp32 ? 4 : 2; }
    [[nodiscard]] std::size_t bytes() const { return ((columns - 1) * static_cast<std::size_t>(stride) + rows) * element(); }
    friend bool operator==(const layout&, const layout&) = default;
  };
  struct preference {
    std::uint64_t workspace_bytes = 0;
    std::uint32_t reductions = 7, alignments[4] = {256, 256, 256, 256};
  };
  static constexpr std::uint64_t mark = 0x78747261696e4c74;

  static fake_cublaslt*& self() {
    static fake_cublaslt* one = nullptr;
    return one;
  }
  int violation(int status, const std::string& what) {
    violations_ += concat(what, "\n");
    return status;
  }
  /// f(fake) under the lock of the GPU, unless the call fails.
  template <class F>
  static int call(const char* name, F&& f) {
    fake_cublaslt& all = *self();
    return all.gpu_.locked([&]() -> int {
      ++all.counts_[name];
      if (++all.calls_ == all.failing_call_) return all.status_;
      return f(all);
    });
  }
  /// Releases something, even if the call fails.
  template <class Map>
  static int destroy(const char* name, Map fake_cublaslt::*made, const void* what) {
    fake_cublaslt& all = *self();
    return all.gpu_.locked([&]() -> int {
      ++all.counts_[name];
      const bool fails = ++all.calls_ == all.failing_call_;
      if ((all.*made).erase(what) != 1) return all.violation(cublaslt_status::invalid_value, concat(name, ": there is no such object"));
      return fails ? all.status_ : cublaslt_status::success;
    });
  }
  template <class Map>
  static int create(const char* name, Map fake_cublaslt::*made, void** result, typename Map::mapped_type::element_type value) {
    return call(name, [&](fake_cublaslt& all) {
      auto fresh = std::make_shared<typename Map::mapped_type::element_type>(std::move(value));
      *result = fresh.get();
      (all.*made)[fresh.get()] = std::move(fresh);
      return cublaslt_status::success;
    });
  }
  template <class Map>
  [[nodiscard]] auto find(const Map& made, const void* what, const char* name) {
    const auto found = made.find(what);
    if (found == made.end()) (void)violation(0, concat(name, ": there is no such object"));
    return found == made.end() ? nullptr : found->second.get();
  }
  template <class T>
  int assign(T& to, const void* value, std::size_t bytes, const char* name) {
    if (bytes != sizeof to)
      return violation(cublaslt_status::invalid_value, concat(name, ": ", bytes, " bytes for an attribute of ", sizeof to));
    std::memcpy(&to, value, bytes);
    return cublaslt_status::success;
  }
  /// Identifies a problem: an algorithm belongs to one.
  [[nodiscard]] static std::uint64_t problem_of(const product& p, const layout& a, const layout& b, const layout& c) {
    std::uint64_t all = 14695981039346656037U;
    for (const std::uint64_t part : {std::uint64_t(p.compute), std::uint64_t(p.transpose_a), std::uint64_t(p.transpose_b),
                                     std::uint64_t(p.epilogue), std::uint64_t(a.type), a.rows, a.columns, std::uint64_t(a.stride), b.rows,
                                     b.columns, std::uint64_t(b.stride), std::uint64_t(c.type), c.rows, c.columns, std::uint64_t(c.stride)})
      all = (all ^ part) * 1099511628211U;
    return all;
  }
  [[nodiscard]] std::string problem_with(const product& p, const layout& a, const layout& b, const layout& c, const layout& d) const {
    const bool ta = p.transpose_a != 0, tb = p.transpose_b != 0;
    for (const layout* const one : {&a, &b, &c, &d})
      if (one->rows == 0 || one->columns == 0 || one->stride < static_cast<std::int64_t>(one->rows))
        return "a layout whose columns overlap";
    if ((ta ? a.columns : a.rows) != d.rows || (tb ? b.rows : b.columns) != d.columns ||
        (ta ? a.rows : a.columns) != (tb ? b.columns : b.rows) || c.rows != d.rows || c.columns != d.columns)
      return "layouts that do not fit together";
    if (a.type != b.type || c.type != d.type || (d.type != a.type && d.type != cublaslt_type::fp32)) return "types that are not supported";
    if (p.scale != cublaslt_type::fp32) return "scales that are not fp32";
    if (p.compute != (a.type == cublaslt_type::fp32 ? cublaslt_compute::fp32_pedantic : cublaslt_compute::fp32))
      return "sums that may be rounded";
    if (p.epilogue == cublaslt_epilogue::bias && p.bias == nullptr) return "a bias without an address";
    return {};
  }

  [[nodiscard]] static float load(int type, const std::byte* at) {
    if (type == cublaslt_type::fp32) {
      float value = 0;
      std::memcpy(&value, at, 4);
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, 2);
    return type == cublaslt_type::bf16 ? static_cast<float>(bf16::from_bits(bits)) : static_cast<float>(fp16::from_bits(bits));
  }
  static void store(int type, std::byte* at, double value) {
    if (type == cublaslt_type::fp32) {
      const auto rounded = static_cast<float>(value);
      std::memcpy(at, &rounded, 4);
      return;
    }
    const std::uint16_t bits = type == cublaslt_type::bf16 ? bf16(value).bits : fp16(value).bits;
    std::memcpy(at, &bits, 2);
  }
  struct operands {
    const std::byte *a, *b, *c, *bias;
    std::byte* d;
    float alpha, beta;
  };
  /// d = alpha · op(a) · op(b) + beta · c + bias, column by column
  static void compute(const product& p, const layout& a, const layout& b, const layout& d, const operands& at, const fake_algorithm& how) {
    const std::size_t depth = p.transpose_a != 0 ? a.rows : a.columns;
    const auto place = [](const layout& of, std::size_t row, std::size_t column) {
      return (column * static_cast<std::size_t>(of.stride) + row) * of.element();
    };
    for (std::size_t j = 0; j < d.columns; ++j)
      for (std::size_t i = 0; i < d.rows; ++i) {
        double sum = how.is_wrong ? 1 : 0;
        for (std::size_t term = 0; term < depth; ++term) {
          const std::size_t l = how.adds_in_fp32 ? depth - 1 - term : term;
          sum += static_cast<double>(load(a.type, at.a + (p.transpose_a != 0 ? place(a, l, i) : place(a, i, l)))) *
                 static_cast<double>(load(b.type, at.b + (p.transpose_b != 0 ? place(b, j, l) : place(b, l, j))));
          if (how.adds_in_fp32) sum = static_cast<float>(sum);
        }
        sum *= at.alpha;
        if (at.beta != 0) sum += static_cast<double>(at.beta) * static_cast<double>(load(d.type, at.c + place(d, i, j)));
        if (p.epilogue == cublaslt_epilogue::bias) sum += static_cast<double>(load(d.type, at.bias + i * d.element()));
        store(d.type, at.d + place(d, i, j), sum);
      }
  }
  int multiply(cublaslt_handle by, const void* what, const operands& at, const void* a_layout, const void* b_layout, const void* c_layout,
               const void* d_layout, const cublaslt_algorithm& algorithm, void* workspace, std::size_t workspace_bytes,
               cuda_queue_handle stream) {
    const char* const name = "cublasLtMatmul";
    const handle* const h = find(handles_, by, name);
    const product* const p = find(products_, what, name);
    const layout *const a = find(layouts_, a_layout, name), *const b = find(layouts_, b_layout, name),
                        *const c = find(layouts_, c_layout, name), *const d = find(layouts_, d_layout, name);
    if (h == nullptr || p == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) return cublaslt_status::invalid_value;
    const auto wrong = [&](const std::string& why) { return violation(cublaslt_status::invalid_value, concat(name, ": ", why)); };
    if (h->device != fake_cuda::current_device()) return wrong("the handle is of another device than the thread's");
    if (const std::string problem = problem_with(*p, *a, *b, *c, *d); !problem.empty()) return wrong(problem);
    if (algorithm.words[0] != mark || algorithm.words[1] >= settings_.algorithms.size())
      return wrong("the library proposed no such algorithm");
    if (algorithm.words[2] != problem_of(*p, *a, *b, *d)) return wrong("the algorithm is for another product");
    const fake_algorithm& how = settings_.algorithms[algorithm.words[1]];
    if (how.fails) return cublaslt_status::not_supported;
    if (how.workspace_bytes > workspace_bytes) return wrong("the algorithm needs more scratch memory");
    if (at.c != at.d || !(*c == *d)) return wrong("c and d are not the same");
    if (reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0) return wrong("scratch memory that is not at a multiple of 16");
    for (const void* const one : {static_cast<const void*>(at.a), static_cast<const void*>(at.b), static_cast<const void*>(at.d)})
      if (reinterpret_cast<std::uintptr_t>(one) % how.alignment != 0) return wrong("a matrix is not aligned as was said");
    const auto problem_in_memory = [this, device = h->device, at, a = *a, b = *b, d = *d, workspace, workspace_bytes,
                                    epilogue = p->epilogue] {
      std::string all;
      const auto look = [&](const void* from, std::size_t bytes, const char* of) {
        if (all.empty()) all = gpu_.problem_of(from, bytes, device, of);
      };
      look(at.a, a.bytes(), "a read of a");
      look(at.b, b.bytes(), "a read of b");
      look(at.d, d.bytes(), "a write of d");
      if (epilogue == cublaslt_epilogue::bias) look(at.bias, d.rows * d.element(), "a read of the bias");
      look(workspace, workspace_bytes, "scratch memory");
      return all;
    };
    if (const std::string problem = problem_in_memory(); !problem.empty()) return wrong(problem);
    const std::string refused =
        gpu_.queue_library_work(stream, h->device, &how, how.milliseconds,
                                [=, p = *p, a = *a, b = *b, d = *d]() -> std::string {
                                  if (const std::string later = problem_in_memory(); !later.empty())
                                    return concat("a queued product: ", later);
                                  if (how.workspace_bytes != 0) std::memset(workspace, 0x5a, how.workspace_bytes);
                                  compute(p, a, b, d, at, how);
                                  return {};
                                });
    return refused.empty() ? cublaslt_status::success : wrong(refused);
  }

  [[nodiscard]] static cublaslt_library make_table() {
    cublaslt_library t;
    t.get_version = []() -> std::size_t { return self()->settings_.version; };
    t.get_status_string = [](int status) {
      switch (status) {
        case cublaslt_status::success:
          return "CUBLAS_STATUS_SUCCESS";
        case cublaslt_status::alloc_failed:
          return "CUBLAS_STATUS_ALLOC_FAILED";
        case cublaslt_status::not_supported:
          return "CUBLAS_STATUS_NOT_SUPPORTED";
        case cublaslt_status::execution_failed:
          return "CUBLAS_STATUS_EXECUTION_FAILED";
        default:
          return "CUBLAS_STATUS_INVALID_VALUE";
      }
    };
    t.create = [](cublaslt_handle* result) {
      void* made = nullptr;
      const int status = create("cublasLtCreate", &fake_cublaslt::handles_, &made, handle{fake_cuda::current_device()});
      *result = static_cast<cublaslt_handle>(made);
      return status;
    };
    t.destroy = [](cublaslt_handle what) { return destroy("cublasLtDestroy", &fake_cublaslt::handles_, what); };
    t.product_create = [](void** result, int compute, int scale) {
      return create("cublasLtMatmulDescCreate", &fake_cublaslt::products_, result, product{.compute = compute, .scale = scale});
    };
    t.product_destroy = [](void* what) { return destroy("cublasLtMatmulDescDestroy", &fake_cublaslt::products_, what); };
    t.product_set = [](void* what, int attribute, const void* value, std::size_t bytes) {
      const char* const name = "cublasLtMatmulDescSetAttribute";
      return call(name, [&](fake_cublaslt& all) {
        product* const p = all.find(all.products_, what, name);
        if (p == nullptr) return cublaslt_status::invalid_value;
        switch (attribute) {
          case cublaslt_product::transpose_a:
            return all.assign(p->transpose_a, value, bytes, name);
          case cublaslt_product::transpose_b:
            return all.assign(p->transpose_b, value, bytes, name);
          case cublaslt_product::epilogue:
            return all.assign(p->epilogue, value, bytes, name);
          case cublaslt_product::bias_pointer:
            return all.assign(p->bias, value, bytes, name);
          default:
            return all.violation(cublaslt_status::invalid_value, concat(name, ": attribute ", attribute));
        }
      });
    };
    t.layout_create = [](void** result, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
      return create("cublasLtMatrixLayoutCreate", &fake_cublaslt::layouts_, result, layout{type, rows, columns, stride});
    };
    t.layout_destroy = [](void* what) { return destroy("cublasLtMatrixLayoutDestroy", &fake_cublaslt::layouts_, what); };
    t.preference_create = [](void** result) {
      return create("cublasLtMatmulPreferenceCreate", &fake_cublaslt::preferences_, result, preference{});
    };
    t.preference_destroy = [](void* what) { return destroy("cublasLtMatmulPreferenceDestroy", &fake_cublaslt::preferences_, what); };
    t.preference_set = [](void* what, int attribute, const void* value, std::size_t bytes) {
      const char* const name = "cublasLtMatmulPreferenceSetAttribute";
      return call(name, [&](fake_cublaslt& all) {
        preference* const p = all.find(all.preferences_, what, name);
        if (p == nullptr) return cublaslt_status::invalid_value;
        if (attribute == cublaslt_preference::workspace_bytes) return all.assign(p->workspace_bytes, value, bytes, name);
        if (attribute == cublaslt_preference::reduction_schemes) return all.assign(p->reductions, value, bytes, name);
        if (attribute < cublaslt_preference::alignment_a || attribute > cublaslt_preference::alignment_d)
          return all.violation(cublaslt_status::invalid_value, concat(name, ": attribute ", attribute));
        return all.assign(p->alignments[attribute - cublaslt_preference::alignment_a], value, bytes, name);
      });
    };
    t.propose = [](cublaslt_handle by, void* what, void* a_layout, void* b_layout, void* c_layout, void* d_layout, void* prefer, int most,
                   cublaslt_proposal* proposals, int* count) {
      const char* const name = "cublasLtMatmulAlgoGetHeuristic";
      return call(name, [&](fake_cublaslt& all) -> int {
        const handle* const h = all.find(all.handles_, by, name);
        const product* const p = all.find(all.products_, what, name);
        const layout *const a = all.find(all.layouts_, a_layout, name), *const b = all.find(all.layouts_, b_layout, name),
                            *const c = all.find(all.layouts_, c_layout, name), *const d = all.find(all.layouts_, d_layout, name);
        const preference* const wants = all.find(all.preferences_, prefer, name);
        if (h == nullptr || p == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr || wants == nullptr || most <= 0)
          return cublaslt_status::invalid_value;
        if (all.gpu_.thread_captures()) return all.violation(cublaslt_status::invalid_value, concat(name, " in a thread that captures"));
        if (const std::string problem = all.problem_with(*p, *a, *b, *c, *d); !problem.empty())
          return all.violation(cublaslt_status::invalid_value, concat(name, ": ", problem));
        *count = 0;
        for (std::size_t i = 0; i < all.settings_.algorithms.size() && *count < most; ++i) {
          const fake_algorithm& one = all.settings_.algorithms[i];
          const bool is_allowed = one.reduction == cublaslt_reduction::none || (one.reduction & wants->reductions) != 0;
          const bool fits =
              std::all_of(std::begin(wants->alignments), std::end(wants->alignments), [&](unsigned has) { return has >= one.alignment; });
          if (!is_allowed || !fits || one.workspace_bytes > wants->workspace_bytes) continue;
          proposals[*count] = {};
          proposals[*count].algorithm.words[0] = mark;
          proposals[*count].algorithm.words[1] = i;
          proposals[*count].algorithm.words[2] = problem_of(*p, *a, *b, *d);
          proposals[*count].workspace_bytes = one.workspace_bytes;
          ++*count;
        }
        return *count == 0 ? cublaslt_status::not_supported : cublaslt_status::success;
      });
    };
    t.algorithm_get = [](const cublaslt_algorithm* algorithm, int attribute, void* value, std::size_t bytes, std::size_t* written) {
      const char* const name = "cublasLtMatmulAlgoConfigGetAttribute";
      return call(name, [&](fake_cublaslt& all) -> int {
        if (attribute != cublaslt_algorithm_attribute::reduction_scheme || bytes != 4 || algorithm->words[0] != mark)
          return all.violation(cublaslt_status::invalid_value, concat(name, ": attribute ", attribute));
        std::memcpy(value, &all.settings_.algorithms.at(algorithm->words[1]).reduction, 4);
        *written = 4;
        return cublaslt_status::success;
      });
    };
    t.multiply = [](cublaslt_handle by, void* what, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                    const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const cublaslt_algorithm* algorithm,
                    void* workspace, std::size_t workspace_bytes, cuda_queue_handle stream) {
      return call("cublasLtMatmul", [&](fake_cublaslt& all) -> int {
        const product* const p = all.find(all.products_, what, "cublasLtMatmul");
        if (p == nullptr) return cublaslt_status::invalid_value;
        const operands at{static_cast<const std::byte*>(a),       static_cast<const std::byte*>(b), static_cast<const std::byte*>(c),
                          static_cast<const std::byte*>(p->bias), static_cast<std::byte*>(d),       *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta)};
        return all.multiply(by, what, at, a_layout, b_layout, c_layout, d_layout, *algorithm, workspace, workspace_bytes, stream);
      });
    };
    return t;
  }

  fake_cuda& gpu_;
  fake_cublaslt_config settings_;
  cublaslt_library table_;
  std::map<const void*, std::shared_ptr<handle>> handles_{};
  std::map<const void*, std::shared_ptr<product>> products_{};
  std::map<const void*, std::shared_ptr<layout>> layouts_{};
  std::map<const void*, std::shared_ptr<preference>> preferences_{};
  std::map<std::string, std::size_t> counts_{};
  std::string violations_{};
  std::size_t calls_ = 0, failing_call_ = 0;
  int status_ = 0;
};

}  // namespace xtrain::testing
