// cuDNN's attention without a GPU, on a fake CUDA runtime: computes as the reference, checks callers, with given durations and failures.
#pragma once

#include <cmath>
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
#include <xtrain/device/cuda/cudnn/library.hpp>
#include <xtrain/device/reference/attention.hpp>
#include <xtrain/testing/fake_cuda.hpp>

namespace xtrain::testing {

struct fake_attention_plan {
  double milliseconds = 0.5;
  std::size_t workspace_bytes = 256;
  std::string name{};      ///< empty: by its number
  bool is_wrong = false;   ///< without mask
  bool is_built = true;    ///< can be built
  bool fails = false;      ///< built, but does not run
};

struct fake_cudnn_config {
  std::vector<fake_attention_plan> plans{{}};  ///< in the order of proposals
  std::string version = "cuDNN 9.19.0 by cudnn-frontend 1.32.0";
};

/// One instance at a time: the table's functions find it globally.
class fake_cudnn {
 public:
  explicit fake_cudnn(fake_cuda& gpu, fake_cudnn_config settings = {}) : gpu_(gpu), settings_(std::move(settings)), table_(make_table()) { self() = this; }
  ~fake_cudnn() { self() = nullptr; }
  fake_cudnn(const fake_cudnn&) = delete;
  fake_cudnn& operator=(const fake_cudnn&) = delete;

  [[nodiscard]] const cudnn_library& library() const { return table_; }
  /// A GPU with this library; `cache` is the folder of the choices.
  [[nodiscard]] cuda_context open(const std::string& cache, int device = 0) const {
    return cuda_context(cuda_config{.device = device, .runtime = &gpu_.runtime(), .product_cache = cache, .cudnn = &table_});
  }

  /// The n-th call from now, counted from 1, fails, without effect.
  void fail_call(std::size_t n) {
    gpu_.locked([&] {
      calls_ = 0;
      failing_call_ = n;
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
  /// Violations by callers, a line each.
  [[nodiscard]] std::string violations() {
    return gpu_.locked([&] { return violations_; });
  }
  /// Objects that were not released; empty: no leaks.
  [[nodiscard]] std::string leaks() {
    return gpu_.locked([&] {
      return concat(handles_.empty() ? "" : concat(handles_.size(), " handles; "), proposals_.empty() ? "" : concat(proposals_.size(), " proposals; "));
    });
  }

 private:
  struct handle {
    int device = 0;
  };
  struct proposals {
    int device = 0;
    cuda_attention_shape shape{};
    std::vector<bool> built{};
  };

  static fake_cudnn*& self() {
    static fake_cudnn* one = nullptr;
    return one;
  }
  std::string violation(const std::string& what) {
    violations_ += concat(what, "\n");
    return what;
  }
  template <class F>
  static std::string call(const char* name, F&& f) {
    fake_cudnn& all = *self();
    return all.gpu_.locked([&]() -> std::string {
      ++all.counts_[name];
      if (++all.calls_ == all.failing_call_) return concat(name, " fails");
      return f(all);
    });
  }

  /// On the host, over whole sequences and causal.
  template <class T>
  static void attend(const cuda_attention& what, bool is_wrong) {
    const cuda_attention_shape& s = what.shape;
    const std::size_t rows = s.b * s.t;
    const auto place = []<class N>(N* from, std::size_t count) { return span_of<N, host_memory>(from, count); };
    const std::vector<token> all_seen(is_wrong ? rows : 0, static_cast<token>(s.t));
    reference_stream nowhere;
    const auto describe = [&](auto& k) {
      k.shape = {.b = s.b, .t = s.t, .h = s.h, .k = s.k, .d = s.d};
      k.scale = s.scale;
      k.qkv = place(static_cast<const T*>(what.qkv), rows * s.row());
      k.end_bt = place(all_seen.data(), all_seen.size());
    };
    if (s.is_backward) {
      kernel::attention_backward<host_memory, T> k;
      describe(k);
      k.o_bthd = place(static_cast<const T*>(what.o), rows * s.h * s.d);
      k.lse_bht = place(static_cast<const float*>(what.lse), rows * s.h);
      k.do_bthd = place(static_cast<const T*>(what.d_o), rows * s.h * s.d);
      k.dqkv = place(static_cast<T*>(what.dqkv), rows * s.row());
      run_kernel(nowhere, k, {});
    } else {
      kernel::attention<host_memory, T> k;
      describe(k);
      k.o_bthd = place(static_cast<T*>(what.o), rows * s.h * s.d);
      k.lse_bht = place(static_cast<float*>(what.lse), rows * s.h);
      run_kernel(nowhere, k, {});
    }
  }
  std::string run(const proposals& of, std::size_t index, const cuda_attention& what, void* workspace, cuda_queue_handle stream) {
    const fake_attention_plan& how = settings_.plans[index];
    const cuda_attention_shape& s = of.shape;
    if (of.device != fake_cuda::current_device()) return violation("run: the plan is of another device than the thread's");
    if (!(what.shape == s)) return violation("run: the plan is for another shape");
    if (how.fails) return "CUDNN_STATUS_EXECUTION_FAILED";
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 || (workspace == nullptr && how.workspace_bytes != 0))
      return violation("run: scratch memory that is not at a multiple of 256");
    const auto problem_in_memory = [this, device = of.device, what, workspace, bytes = how.workspace_bytes] {
      const cuda_attention_shape& shape = what.shape;
      const std::size_t values = shape.b * shape.t * shape.row() * 2, results = shape.b * shape.t * shape.h * shape.d * 2;
      std::string all;
      const auto look = [&](const void* at, std::size_t size, const char* as, std::uintptr_t alignment) {
        if (!all.empty()) return;
        if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0) all = concat(as, " is not at a multiple of ", alignment);
        else all = gpu_.problem_of(at, size, device, as);
      };
      look(what.qkv, values, "a read of qkv", 16);
      look(what.o, results, "o", 16);
      look(what.lse, shape.b * shape.t * shape.h * 4, "lse", 4);
      if (shape.is_backward) {
        look(what.d_o, results, "a read of do", 16);
        look(what.dqkv, values, "a write of dqkv", 16);
      }
      look(workspace, bytes, "scratch memory", 1);
      return all;
    };
    if (const std::string problem = problem_in_memory(); !problem.empty()) return violation(concat("run: ", problem));
    const std::string refused = gpu_.queue_library_work(
        stream, of.device, &how, how.milliseconds, [=, is_wrong = how.is_wrong, uses = how.workspace_bytes]() -> std::string {
          if (const std::string later = problem_in_memory(); !later.empty()) return concat("queued attention: ", later);
          if (uses != 0) std::memset(workspace, 0x5a, uses);
          if (what.shape.number == cuda_number::bf16) attend<bf16>(what, is_wrong);
          else attend<fp16>(what, is_wrong);
          return {};
        });
    return refused.empty() ? std::string() : violation(concat("run: ", refused));
  }

  [[nodiscard]] static cudnn_library make_table() {
    cudnn_library t;
    t.version = []() { return self()->settings_.version; };
    t.open = [](void*& result, int architecture) {
      return call("open", [&](fake_cudnn& all) -> std::string {
        if (architecture < 50 || architecture > 200) return all.violation(concat("open: architecture ", architecture));
        auto fresh = std::make_shared<handle>(handle{fake_cuda::current_device()});
        result = fresh.get();
        all.handles_[result] = std::move(fresh);
        return {};
      });
    };
    t.open_saved = [](void*&, const std::string&) { return std::string("the fake has no saved devices"); };
    t.properties = [](void*, std::string&) { return std::string("the fake has no properties"); };
    t.close = [](void* what) {
      self()->gpu_.locked([&] {
        if (self()->handles_.erase(what) != 1) (void)self()->violation("close: there is no such handle");
      });
    };
    t.propose = [](void* by, const cuda_attention_shape& shape, void*& result, std::size_t& count) {
      return call("propose", [&](fake_cudnn& all) -> std::string {
        const auto found = all.handles_.find(by);
        if (found == all.handles_.end()) return all.violation("propose: there is no such handle");
        if (all.gpu_.thread_captures()) return all.violation("propose in a thread that captures");
        auto fresh = std::make_shared<proposals>(proposals{found->second->device, shape, std::vector<bool>(all.settings_.plans.size())});
        result = fresh.get();
        all.proposals_[result] = std::move(fresh);
        count = all.settings_.plans.size();
        return {};
      });
    };
    t.release = [](void* what) {
      self()->gpu_.locked([&] {
        if (self()->proposals_.erase(what) != 1) (void)self()->violation("release: there are no such proposals");
      });
    };
    t.build = [](void* of, std::size_t index, cudnn_plan& plan) {
      return call("build", [&](fake_cudnn& all) -> std::string {
        const auto found = all.proposals_.find(of);
        if (found == all.proposals_.end() || index >= all.settings_.plans.size()) return all.violation("build: there is no such proposal");
        if (all.gpu_.thread_captures()) return all.violation("build in a thread that captures");
        const fake_attention_plan& how = all.settings_.plans[index];
        if (!how.is_built) return "CUDNN_STATUS_NOT_SUPPORTED";
        found->second->built[index] = true;
        plan = {how.name.empty() ? concat("engine", index) : how.name, how.workspace_bytes};
        return {};
      });
    };
    t.run = [](void* of, std::size_t index, const cuda_attention& what, void* workspace, cuda_queue_handle stream) {
      return call("run", [&](fake_cudnn& all) -> std::string {
        const auto found = all.proposals_.find(of);
        if (found == all.proposals_.end() || index >= found->second->built.size() || !found->second->built[index])
          return all.violation("run: the plan was not built");
        return all.run(*found->second, index, what, workspace, stream);
      });
    };
    return t;
  }

  fake_cuda& gpu_;
  fake_cudnn_config settings_;
  cudnn_library table_;
  std::map<const void*, std::shared_ptr<handle>> handles_{};
  std::map<const void*, std::shared_ptr<proposals>> proposals_{};
  std::map<std::string, std::size_t> counts_{};
  std::string violations_{};
  std::size_t calls_ = 0, failing_call_ = 0;
};

}  // namespace xtrain::testing
