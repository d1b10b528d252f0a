// Products by cuBLASLt. Before a shape is captured, the library's proposals and our kernel are timed on separate memory; the fastest is used, and stored in a
// file per card, library and version of our kernels. Uncaptured products use the first proposal: several ranks must choose alike, because some results must
// have the same bits on all.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/cublaslt/library.hpp>
#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/cuda/trials.hpp>

namespace xtrain {

namespace detail {

/// A failed call of cuBLASLt during preparation: our kernel is used.
struct cublaslt_refusal {
  std::string why;
};

/// A product of some shape in cuBLASLt's terms. Its matrices have contiguous columns, ours contiguous rows: it computes c transposed, from b and a.
class cublaslt_problem {
 public:
  ///   throws  cublaslt_refusal
  cublaslt_problem(const cublaslt_library& library, const cuda_product_shape& shape) : library_(library) {
    const int of = type_of(shape.operands);
    // by default, tensor cores round fp32 operands
    check(library.product_create(&product_.raw,
                                 shape.operands == cuda_number::fp32 ? cublaslt_compute::fp32_pedantic : cublaslt_compute::fp32,
                                 cublaslt_type::fp32),
          "cublasLtMatmulDescCreate");
    product_.destroy = library.product_destroy;
    set(cublaslt_product::transpose_a, std::int32_t{shape.transpose_b ? cublaslt_transpose::yes : cublaslt_transpose::no});
    set(cublaslt_product::transpose_b, std::int32_t{shape.transpose_a ? cublaslt_transpose::yes : cublaslt_transpose::no});
    set(cublaslt_product::epilogue, shape.has_bias ? cublaslt_epilogue::bias : cublaslt_epilogue::none);
    layout(b_, of, shape.transpose_b ? shape.k : shape.n, shape.transpose_b ? shape.n : shape.k, shape.ldb);
    layout(a_, of, shape.transpose_a ? shape.m : shape.k, shape.transpose_a ? shape.k : shape.m, shape.lda);
    layout(c_, type_of(shape.result), shape.n, shape.m, shape.ldc);
  }

  /// The library's proposals, ordered by expected speed, that round sums once and fit the scratch memory.
  ///   bias   an address with the real alignment
  ///   throws  cublaslt_refusal
  [[nodiscard]] std::vector<cublaslt_proposal> proposals(cublaslt_handle handle, const cuda_product_shape& shape, const void* bias,
                                                         std::size_t workspace) {
    set_bias(shape, bias);
    owned preference;
    check(library_.preference_create(&preference.raw), "cublasLtMatmulPreferenceCreate");
    preference.destroy = library_.preference_destroy;
    const auto prefer = [&](int attribute, auto value) {
      check(library_.preference_set(preference.raw, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(cublaslt_preference::workspace_bytes, std::uint64_t{workspace});
    prefer(cublaslt_preference::reduction_schemes, cublaslt_reduction::compute_type);  // or `none`
    prefer(cublaslt_preference::alignment_a, std::uint32_t{shape.b_alignment});
    prefer(cublaslt_preference::alignment_b, std::uint32_t{shape.a_alignment});
    prefer(cublaslt_preference::alignment_c, std::uint32_t{shape.c_alignment});
    prefer(cublaslt_preference::alignment_d, std::uint32_t{shape.c_alignment});
    std::vector<cublaslt_proposal> all(most_proposals);
    int count = 0;
    check(library_.propose(handle, product_.raw, b_.raw, a_.raw, c_.raw, c_.raw, preference.raw, static_cast<int>(most_proposals),
                           all.data(), &count),
          "cublasLtMatmulAlgoGetHeuristic");
    all.resize(static_cast<std::size_t>(std::clamp(count, 0, static_cast<int>(most_proposals))));
    std::erase_if(all, [&](const cublaslt_proposal& one) {
      return one.status != cublaslt_status::success || one.workspace_bytes > workspace || !rounds_once(one.algorithm);
    });
    return all;
  }
  /// Queues c = alpha · a · b, with bias, or added to c.
  ///   returns  a status
  [[nodiscard]] int multiply(cublaslt_handle handle, const cublaslt_algorithm& algorithm, const cuda_product& what,
                             cuda_workspace workspace, cuda_queue_handle stream) {
    if (what.shape.has_bias)
      if (const int status = library_.product_set(product_.raw, cublaslt_product::bias_pointer, &what.bias, sizeof what.bias))
        return status;
    const float alpha = static_cast<float>(what.alpha), beta = what.shape.accumulate ? 1.0F : 0.0F;
    return library_.multiply(handle, product_.raw, &alpha, what.b, b_.raw, what.a, a_.raw, &beta, what.c, c_.raw, what.c, c_.raw,
                             &algorithm, workspace.memory, workspace.bytes, stream);
  }

 private:
  static constexpr std::size_t most_proposals = 8;
  struct owned {
    owned() = default;
    owned(const owned&) = delete;
    owned& operator=(const owned&) = delete;
    ~owned() {
      if (raw != nullptr) (void)destroy(raw);
    }
    void* raw = nullptr;
    int (*destroy)(void*) = nullptr;
  };

  [[nodiscard]] static int type_of(cuda_number number) {
    return number == cuda_number::fp32 ? cublaslt_type::fp32 : number == cuda_number::bf16 ? cublaslt_type::bf16 : cublaslt_type::fp16;
  }
  void check(int status, const char* call) const {
    if (status != cublaslt_status::success) throw cublaslt_refusal{concat(call, ": ", library_.get_status_string(status))};
  }
  template <class T>
  void set(int attribute, const T& value) {
    check(library_.product_set(product_.raw, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  void set_bias(const cuda_product_shape& shape, const void* bias) {
    if (shape.has_bias) set(cublaslt_product::bias_pointer, bias);
  }
  void layout(owned& made, int type, std::size_t rows, std::size_t columns, std::size_t stride) {
    check(library_.layout_create(&made.raw, type, rows, columns, static_cast<std::int64_t>(stride)), "cublasLtMatrixLayoutCreate");
    made.destroy = library_.layout_destroy;
  }
  /// Sums are not rounded to 16 bits, and are deterministic.
  [[nodiscard]] bool rounds_once(const cublaslt_algorithm& algorithm) const {
    std::uint32_t scheme = 0;
    std::size_t written = 0;
    check(library_.algorithm_get(&algorithm, cublaslt_algorithm_attribute::reduction_scheme, &scheme, sizeof scheme, &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
    return written == sizeof scheme && (scheme == cublaslt_reduction::none || scheme == cublaslt_reduction::compute_type);
  }

  const cublaslt_library& library_;
  owned product_{}, a_{}, b_{}, c_{};
};

/// Memory for timing products: operands with the real alignments, numbers between -2 and 2.
class cublaslt_trial {
 public:
  /// `memory` has bytes() bytes, at a multiple of 256.
  cublaslt_trial(const cuda_product& real, std::byte* memory, std::size_t workspace) : product_(real) {
    const cuda_product_shape& shape = real.shape;
    std::size_t at = 0;
    const auto place = [&](std::size_t rows, std::size_t stride, std::size_t columns, std::size_t element, unsigned alignment) {
      std::byte* const begin = memory + at + (alignment < cuda_most_alignment ? alignment : 0);
      at += (((rows - 1) * stride + columns) * element + 256 + 255) / 256 * 256;
      return begin;
    };
    const std::size_t of = bytes_of(shape.operands), result = bytes_of(shape.result);
    product_.a = place(shape.transpose_a ? shape.k : shape.m, shape.lda, shape.transpose_a ? shape.m : shape.k, of, shape.a_alignment);
    product_.b = place(shape.transpose_b ? shape.n : shape.k, shape.ldb, shape.transpose_b ? shape.k : shape.n, of, shape.b_alignment);
    if (shape.has_bias) product_.bias = place(1, 0, shape.n, of, shape.bias_alignment);
    inputs_ = at;
    c_elements_ = (shape.m - 1) * shape.ldc + shape.n;
    product_.c = place(shape.m, shape.ldc, shape.n, result, shape.c_alignment);
    memory_ = memory;
    workspace_ = {memory + at, workspace};
    bytes_ = at + workspace;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const cuda_product& product() const { return product_; }
  [[nodiscard]] cuda_workspace workspace() const { return workspace_; }

  void fill(cuda_stream& stream, std::span<std::byte> pinned) {
    fill_trial(stream, memory_, static_cast<std::size_t>(static_cast<std::byte*>(workspace_.memory) - memory_), pinned);
  }
  void refill_c(cuda_stream& stream) {
    const std::size_t all = static_cast<std::size_t>(static_cast<std::byte*>(workspace_.memory) - memory_) - inputs_;
    for (std::size_t done = 0; done < all; done += std::min(inputs_, all - done))
      stream.copy_within(memory_ + inputs_ + done, memory_, std::min(inputs_, all - done));
  }
  /// First, middle and last elements of c, as floats.
  [[nodiscard]] std::vector<float> fetch_c(cuda_stream& stream, std::span<std::byte> pinned) {
    const std::size_t element = bytes_of(product_.shape.result), piece = std::min(c_elements_, pinned.size() / element);
    std::vector<float> some;
    for (const std::size_t first : {std::size_t{0}, (c_elements_ - piece) / 2, c_elements_ - piece}) {
      stream.copy_to_host(pinned.data(), static_cast<const std::byte*>(product_.c) + first * element, piece * element);
      stream.synchronize();
      for (std::size_t i = 0; i < piece; ++i) some.push_back(trial_value(product_.shape.result, pinned.data() + i * element));
    }
    return some;
  }

 private:
  cuda_product product_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0, inputs_ = 0, c_elements_ = 0;
  cuda_workspace workspace_{};
};

/// Of a trial's results: both add k products of numbers below 2, in any order; then each rounds once.
[[nodiscard]] inline bool products_agree(const std::vector<float>& got, const std::vector<float>& right, const cuda_product& product) {
  const double unit = product.shape.result == cuda_number::fp32 ? 0x1p-24 : product.shape.result == cuda_number::bf16 ? 0x1p-8 : 0x1p-11;
  const double sum = (4.0 * static_cast<double>(product.shape.k) * std::abs(product.alpha) + 4.0) * 0x1p-22;
  for (std::size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(got[i] - right[i]) <= sum + 2 * unit * std::abs(right[i])) &&
        std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(right[i]))
      return false;
  return true;
}

/// Of one GPU. In a capture, products of a shape that was neither prepared nor queued before use our kernel. Failures before a product is queued: our kernel;
/// of the queueing call: cuda_error.
class cublaslt_products final : public cuda_products {
 public:
  cublaslt_products(cuda_state& state, const cublaslt_library& library, const std::string& folder)
      : state_(state), library_(library), is_timed_(state.product_choice() == cuda_product_choice::timed),
        choices_(cuda_choices_file(state, folder, concat("cublaslt-", library.get_version()))) {
    state.enter();
    if (const int status = library.create(&handle_); status != cublaslt_status::success)
      refused_ = concat("cublasLtCreate: ", library.get_status_string(status));
  }
  ~cublaslt_products() override {
    known_.clear();
    if (handle_ != nullptr && refused_.empty()) (void)library_.destroy(handle_);
  }

  [[nodiscard]] bool multiply(cuda_stream& stream, const cuda_product& product, cuda_workspace workspace, bool only_prepare) override {
    if (!refused_.empty() || !is_possible(product.shape)) return false;
    const std::lock_guard lock(mutex_);
    choice* const known = choice_of(stream, product, only_prepare);
    if (known == nullptr || !known->algorithm ||
        known->workspace_bytes > (only_prepare ? state_.properties().product_workspace : workspace.bytes))
      return false;
    if (only_prepare) return true;
    state_.enter();
    const int status = known->problem->multiply(handle_, *known->algorithm, product, workspace, stream.raw());
    if (status == cublaslt_status::success) return true;
    stream.cancel_capture();
    (void)state_.runtime().last_error();
    fail<cuda_error>("cuda: cublasLtMatmul of ", product.shape.text(), " on device ", state_.ordinal(),
                     " failed: ", library_.get_status_string(status));
  }
  [[nodiscard]] std::string text() const override {
    const std::lock_guard lock(mutex_);
    std::string all = concat("cuBLASLt ", cublaslt_version_text(library_.get_version()),
                             refused_.empty() ? "" : concat(" is not used: ", refused_), "\n");
    for (const choice& one : known_) all += concat("product ", one.shape.text(), ": ", one.text, "\n");
    if (unprepared_ != 0) all += concat(unprepared_, " captured products were not prepared: our kernel\n");
    return all;
  }

 private:
  struct choice {
    cuda_product_shape shape{};
    bool is_prepared = false;
    std::unique_ptr<cublaslt_problem> problem{};
    std::optional<cublaslt_algorithm> algorithm{};  // empty: our kernel
    std::size_t workspace_bytes = 0;
    std::string text{};
  };

  [[nodiscard]] static std::string text_of(const cublaslt_algorithm& algorithm) {
    std::string all;
    for (const std::uint64_t word : algorithm.words)
      for (int digit = 15; digit >= 0; --digit) all += "0123456789abcdef"[word >> (4 * digit) & 15U];
    return all;
  }
  [[nodiscard]] static bool is_possible(const cuda_product_shape& shape) {
    const auto fits = [](std::size_t n) { return n > 0 && n < std::size_t{1} << 31; };
    return fits(shape.m) && fits(shape.n) && fits(shape.k) && shape.lda >= (shape.transpose_a ? shape.m : shape.k) &&
           shape.ldb >= (shape.transpose_b ? shape.k : shape.n) && shape.ldc >= shape.n &&
           (!shape.has_bias || shape.operands == shape.result);
  }
  /// Null: a capture has not prepared it.
  [[nodiscard]] choice* choice_of(cuda_stream& stream, const cuda_product& product, bool only_prepare) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const choice& one) { return one.shape == product.shape; });
    if (known != known_.end() && (known->is_prepared || !only_prepare)) return &*known;
    if (stream.is_capturing()) {
      ++unprepared_;
      return nullptr;
    }
    choice made{.shape = product.shape, .is_prepared = only_prepare};
    try {
      decide(stream, product, only_prepare, made);
    } catch (const cublaslt_refusal& refusal) {
      made.text = concat("our kernel; ", refusal.why);
      made.algorithm.reset();
    } catch (const memory_error&) {
      made.text = "our kernel; there is no memory to time it";
      made.algorithm.reset();
    }
    if (known != known_.end()) return &(*known = std::move(made));
    known_.push_back(std::move(made));
    return &known_.back();
  }
  void decide(cuda_stream& stream, const cuda_product& product, bool only_prepare, choice& made) {
    const std::size_t workspace = state_.properties().product_workspace;
    state_.enter();
    made.problem = std::make_unique<cublaslt_problem>(library_, product.shape);
    const std::vector<cublaslt_proposal> proposals = made.problem->proposals(handle_, product.shape, product.bias, workspace);
    if (proposals.empty()) return void(made.text = "our kernel; cuBLASLt proposes none");
    const auto take = [&](std::size_t index) {
      made.algorithm = proposals[index].algorithm;
      made.workspace_bytes = proposals[index].workspace_bytes;
    };
    if (!only_prepare) {
      take(0);
      return void(made.text = concat("cuBLASLt's proposal 1 of ", proposals.size()));
    }
    const std::string key = product.shape.key(), earlier = is_timed_ ? choices_.of(key) : text_of(proposals[0].algorithm);
    if (earlier == "own") return void(made.text = "our kernel; known from an earlier run");
    const auto same = std::find_if(proposals.begin(), proposals.end(),
                                   [&](const cublaslt_proposal& one) { return text_of(one.algorithm) == earlier; });

    cublaslt_trial trial(product, reinterpret_cast<std::byte*>(std::uintptr_t{256}), workspace);
    const cuda_trial_memory memory(state_, trial.bytes());
    trial = cublaslt_trial(product, memory.raw, workspace);
    const std::shared_ptr<void> pinned(state_.allocate_pinned(cuda_trial_pattern), [this](void* raw) { state_.release_pinned(raw); });
    const std::span<std::byte> staging(static_cast<std::byte*>(pinned.get()), cuda_trial_pattern);
    cuda_stream beside(stream.device());  // ends before its memory
    trial.fill(beside, staging);
    trial.refill_c(beside);
    const auto run = [&](std::size_t candidate) {
      if (candidate == 0) {
        trial.product().own(beside, trial.product());
        return true;
      }
      return made.problem->multiply(handle_, proposals[candidate - 1].algorithm, trial.product(), trial.workspace(), beside.raw()) ==
             cublaslt_status::success;
    };
    if (same != proposals.end()) {  // loads its code
      const auto index = static_cast<std::size_t>(same - proposals.begin());
      const bool runs = run(index + 1);
      beside.synchronize();
      if (runs) {
        take(index);
        return void(made.text = concat("cuBLASLt's proposal ", index + 1, " of ", proposals.size(),
                                       is_timed_ ? "; known from an earlier run" : ""));
      }
      if (!is_timed_) return void(made.text = "our kernel; cuBLASLt's proposal 1 does not run");
    }
    wait_a_little(stream);
    (void)run(0);
    const std::vector<float> right = trial.fetch_c(beside, staging);
    double best_ms = timed_on_gpu(state_, beside, [&] { return run(0); });
    const double own_ms = best_ms;
    std::size_t best = 0, wrong = 0;
    for (std::size_t candidate = 1; candidate <= proposals.size(); ++candidate) {
      trial.refill_c(beside);
      if (!run(candidate)) continue;
      if (!products_agree(trial.fetch_c(beside, staging), right, product)) {
        ++wrong;
        continue;
      }
      const double ms = timed_on_gpu(state_, beside, [&] { return run(candidate); });
      if (ms < cuda_clearly_faster * best_ms) best = candidate, best_ms = ms;
    }
    const std::string failures = wrong == 0 ? std::string() : concat("; ", wrong, " of ", proposals.size(), " proposals are wrong");
    if (best == 0) {
      made.text = concat("our kernel, ", milliseconds_text(own_ms), failures);
    } else {
      take(best - 1);
      made.text = concat("cuBLASLt's proposal ", best, " of ", proposals.size(), ", ", milliseconds_text(best_ms), "; our kernel ",
                         milliseconds_text(own_ms), failures);
    }
    choices_.add(key, best == 0 ? std::string("own") : text_of(*made.algorithm));
  }

  cuda_state& state_;
  const cublaslt_library& library_;
  bool is_timed_;
  cuda_choices choices_;
  cublaslt_handle handle_ = nullptr;
  std::string refused_{};
  mutable std::mutex mutex_{};
  std::deque<choice> known_{};
  std::size_t unprepared_ = 0;
};

/// Of a stream's GPU; null: our kernels compute all products.
[[nodiscard]] inline cuda_products* products_of(const cuda_stream& stream) {
  cuda_state& state = *stream.device().state();
  return state.products([&](const cublaslt_library& library, const std::string& folder) {
    return std::make_unique<cublaslt_products>(state, library, folder.empty() ? cuda_choices::folder_of_user() : folder);
  });
}

}  // namespace detail

}  // namespace xtrain
