// Products by muBLAS, where it gives our kernel's result. Before a shape is captured it is timed next to our kernel on separate memory; the faster one is used,
// and stored as cuBLASLt's choices are. Products that were not prepared are muBLAS's if it is right: several ranks must choose alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/cublaslt/products.hpp>
#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/cuda/trials.hpp>
#include <xtrain/device/musa/mublas/library.hpp>

namespace xtrain {

namespace detail {

/// A failed call of muBLAS during preparation: our kernel is used.
struct mublas_refusal {
  std::string why;
};

/// Of one GPU. A handle per stream: what a handle allocates may be in use by the stream's work. In a capture, products of a shape, or on a stream, without
/// an earlier product outside captures use our kernel; so do products with a bias, which GemmEx does not have.
class mublas_products final : public cuda_products {
 public:
  mublas_products(cuda_state& state, const mublas_library& library, const std::string& folder)
      : state_(state), library_(library), is_timed_(state.product_choice() == cuda_product_choice::timed),
        choices_(cuda_choices_file(state, folder, "mublas")) {
    constexpr int first_with_products = 22;
    if (state.properties().architecture < first_with_products)
      refused_ = concat("the GPU must be mp_22 (S4000) or newer; it is ", state.architecture());
  }
  ~mublas_products() override {
    for (const auto& [stream, handle] : handles_) (void)library_.destroy(handle);
  }

  [[nodiscard]] bool multiply(cuda_stream& stream, const cuda_product& product, cuda_workspace, bool only_prepare) override {
    const std::lock_guard lock(mutex_);
    if (!refused_.empty() || !is_possible(product.shape)) return false;
    const choice* const known = choice_of(stream, product, only_prepare);
    if (known == nullptr || !known->is_mublas) return false;
    if (only_prepare) return true;
    const auto handle = handles_.find(stream.raw());
    if (handle == handles_.end()) {  // another stream has prepared the shape
      ++unprepared_;
      return false;
    }
    state_.enter();
    const int bound = library_.set_stream(handle->second, stream.raw());
    const int status = bound == mublas_status::success ? queue(handle->second, numbers_, product) : bound;
    if (status == mublas_status::success) return true;
    stream.cancel_capture();
    (void)state_.runtime().last_error();
    fail<cuda_error>("musa: mublasGemmEx of ", product.shape.text(), " on device ", state_.ordinal(), " failed with status ", status);
  }
  [[nodiscard]] std::string text() const override {
    const std::lock_guard lock(mutex_);
    std::string all = refused_.empty() ? "muBLAS\n" : concat("muBLAS is not used: ", refused_, "\n");
    for (const choice& one : known_) all += concat("product ", one.shape.text(), ": ", one.text, "\n");
    if (unprepared_ != 0) all += concat(unprepared_, " captured products were not prepared: our kernel\n");
    return all;
  }

 private:
  struct choice {
    cuda_product_shape shape{};
    bool is_prepared = false, is_mublas = false;
    std::string text{};
  };

  [[nodiscard]] static bool is_possible(const cuda_product_shape& shape) {
    const auto fits = [](std::size_t n) { return n > 0 && n < std::size_t{1} << 31; };
    return fits(shape.m) && fits(shape.n) && fits(shape.k) && fits(shape.lda) && fits(shape.ldb) && fits(shape.ldc) &&
           shape.lda >= (shape.transpose_a ? shape.m : shape.k) && shape.ldb >= (shape.transpose_b ? shape.k : shape.n) && shape.ldc >= shape.n &&
           !shape.has_bias;
  }
  [[nodiscard]] static int type_of(cuda_number number) {
    return number == cuda_number::fp32 ? mublas_type::fp32 : number == cuda_number::bf16 ? mublas_type::bf16 : mublas_type::fp16;
  }
  static void check(int status, const char* call) {
    if (status != mublas_status::success) throw mublas_refusal{concat(call, ": status ", status)};
  }
  /// muBLAS's matrices have contiguous columns, ours contiguous rows: it computes c transposed, from b and a.
  ///   returns  a status
  [[nodiscard]] int queue(void* handle, const mublas_numbers& with, const cuda_product& what) const {
    const cuda_product_shape& shape = what.shape;
    const float alpha = static_cast<float>(what.alpha), beta = shape.accumulate ? 1.0F : 0.0F;
    const auto operation = [&](bool transposed) { return transposed ? with.transpose : with.no_transpose; };
    const int of = type_of(shape.operands);
    return library_.gemm_ex(handle, operation(shape.transpose_b), operation(shape.transpose_a), static_cast<int>(shape.n), static_cast<int>(shape.m),
                            static_cast<int>(shape.k), &alpha, what.b, of, static_cast<int>(shape.ldb), what.a, of, static_cast<int>(shape.lda), &beta,
                            what.c, type_of(shape.result), static_cast<int>(shape.ldc), with.compute_fp32, mublas_default_algorithm);
  }

  /// Of a stream; outside captures.
  ///   throws  mublas_refusal
  [[nodiscard]] void* handle_of(cuda_stream& stream) {
    if (const auto known = handles_.find(stream.raw()); known != handles_.end()) return known->second;
    void* handle = nullptr;
    state_.enter();
    check(library_.create(&handle), "mublasCreate");
    handles_[stream.raw()] = handle;
    try {
      // sums must not depend on the order in which blocks end
      check(library_.set_atomics_mode(handle, mublas_without_atomics), "mublasSetAtomicsMode");
      if (!knows_numbers_) find_numbers(stream, handle);
    } catch (...) {
      handles_.erase(stream.raw());
      (void)library_.destroy(handle);
      throw;
    }
    return handle;
  }
  /// 2 x 3 = 2 x 4 by the transpose of 3 x 4, of small whole numbers: no other operations give the result.
  void find_numbers(cuda_stream& stream, void* handle) {
    constexpr std::size_t m = 2, n = 3, k = 4;
    constexpr std::size_t place = 256;
    const cuda_trial_memory memory(state_, 3 * place);
    const std::shared_ptr<void> pinned(state_.allocate_pinned(place), [this](void* raw) { state_.release_pinned(raw); });
    const std::span<float> host(static_cast<float*>(pinned.get()), place / sizeof(float));
    const auto a = [](std::size_t i, std::size_t l) { return static_cast<float>(3 * i + l * l + 1); };
    const auto b = [](std::size_t j, std::size_t l) { return static_cast<float>(5 * j * l + j + 2); };
    cuda_product product{.shape = {.transpose_b = true, .m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n},
                         .a = memory.raw,
                         .b = memory.raw + place,
                         .c = memory.raw + 2 * place};
    cuda_stream beside(stream.device());  // ends before its memory
    const auto bring = [&](std::size_t at, std::size_t rows, auto&& value) {
      for (std::size_t i = 0; i < rows * k; ++i) host[i] = value(i / k, i % k);
      beside.copy_from_host(memory.raw + at, host.data(), rows * k * sizeof(float));
      beside.synchronize();
    };
    bring(0, m, a);
    bring(place, n, b);
    check(library_.set_stream(handle, beside.raw()), "mublasSetStream");
    std::string statuses;
    for (const mublas_numbers& with : mublas_known_numbers) {
      beside.fill_zero(product.c, place);
      const int status = queue(handle, with, product);
      beside.copy_to_host(host.data(), product.c, m * n * sizeof(float));
      beside.synchronize();
      bool is_right = status == mublas_status::success;
      for (std::size_t i = 0; i < m && is_right; ++i)
        for (std::size_t j = 0; j < n && is_right; ++j) {
          float sum = 0;
          for (std::size_t l = 0; l < k; ++l) sum += a(i, l) * b(j, l);
          is_right = host[i * n + j] == sum;
        }
      if (!is_right) {
        if (status != mublas_status::success) (void)state_.runtime().last_error();
        statuses += concat(statuses.empty() ? "" : ", ", status == mublas_status::success ? "a wrong result" : concat("status ", status));
        continue;
      }
      numbers_ = with;
      knows_numbers_ = true;
      return;
    }
    refused_ = concat("mublasGemmEx does not multiply with any numbers of its enumerations that are known: ", statuses);
    throw mublas_refusal{refused_};
  }

  /// Null: a capture has not prepared it.
  [[nodiscard]] const choice* choice_of(cuda_stream& stream, const cuda_product& product, bool only_prepare) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const choice& one) { return one.shape == product.shape; });
    const bool has_handle = handles_.contains(stream.raw());
    if (known != known_.end() && (known->is_prepared || !only_prepare) && (has_handle || !known->is_mublas || stream.is_capturing())) return &*known;
    if (stream.is_capturing()) {
      ++unprepared_;
      return nullptr;
    }
    choice made{.shape = product.shape, .is_prepared = only_prepare};
    try {
      decide(stream, product, only_prepare && is_timed_, made);
    } catch (const mublas_refusal& refusal) {
      made.text = concat("our kernel; ", refusal.why);
      made.is_mublas = false;
    } catch (const memory_error&) {
      made.text = "our kernel; there is no memory to check muBLAS's";
      made.is_mublas = false;
    }
    if (known != known_.end()) return &(*known = std::move(made));
    known_.push_back(std::move(made));
    return &known_.back();
  }
  void decide(cuda_stream& stream, const cuda_product& product, bool is_timed, choice& made) {
    void* const handle = handle_of(stream);
    state_.enter();
    const std::string key = product.shape.key(), earlier = is_timed ? choices_.of(key) : "";
    if (earlier == "own") return void(made.text = "our kernel; known from an earlier run");
    cublaslt_trial trial(product, reinterpret_cast<std::byte*>(std::uintptr_t{256}), 0);
    const cuda_trial_memory memory(state_, trial.bytes());
    trial = cublaslt_trial(product, memory.raw, 0);
    const std::shared_ptr<void> pinned(state_.allocate_pinned(cuda_trial_pattern), [this](void* raw) { state_.release_pinned(raw); });
    const std::span<std::byte> staging(static_cast<std::byte*>(pinned.get()), cuda_trial_pattern);
    cuda_stream beside(stream.device());  // ends before its memory
    trial.fill(beside, staging);
    const auto run_own = [&] {
      trial.product().own(beside, trial.product());
      return true;
    };
    stream.synchronize();  // its products may use the handle's memory
    check(library_.set_stream(handle, beside.raw()), "mublasSetStream");
    const auto run = [&] { return queue(handle, numbers_, trial.product()) == mublas_status::success; };
    trial.refill_c(beside);
    (void)run_own();
    const std::vector<float> right = trial.fetch_c(beside, staging);
    trial.refill_c(beside);
    if (const int status = queue(handle, numbers_, trial.product()); status != mublas_status::success) {
      (void)state_.runtime().last_error();
      made.text = concat("our kernel; mublasGemmEx: status ", status);
    } else if (!products_agree(trial.fetch_c(beside, staging), right, product)) {
      made.text = "our kernel; muBLAS's result is wrong";
    } else if (!is_timed || earlier == "mublas") {
      made.is_mublas = true;
      made.text = is_timed ? "muBLAS; known from an earlier run" : "muBLAS";
    } else {
      wait_a_little(stream);
      const double own_ms = timed_on_gpu(state_, beside, run_own), ms = timed_on_gpu(state_, beside, run);
      made.is_mublas = ms < cuda_clearly_faster * own_ms;
      made.text = made.is_mublas ? concat("muBLAS, ", milliseconds_text(ms), "; our kernel ", milliseconds_text(own_ms))
                                 : concat("our kernel, ", milliseconds_text(own_ms), "; muBLAS ", milliseconds_text(ms));
      choices_.add(key, made.is_mublas ? "mublas" : "own");
    }
    beside.synchronize();
  }

  cuda_state& state_;
  const mublas_library& library_;
  bool is_timed_, knows_numbers_ = false;
  cuda_choices choices_;
  mublas_numbers numbers_{};
  std::string refused_{};
  mutable std::mutex mutex_{};
  std::map<cuda_queue_handle, void*> handles_{};
  std::deque<choice> known_{};
  std::size_t unprepared_ = 0;
};

}  // namespace detail

/// For a GPU's settings. The library must outlive the GPU.
[[nodiscard]] inline cuda_other_products products_by_mublas(const mublas_library& library) {
  return {.make = [](detail::cuda_state& state, const void* table, const std::string& folder) -> std::unique_ptr<cuda_products> {
            return std::make_unique<detail::mublas_products>(state, *static_cast<const mublas_library*>(table),
                                                             folder.empty() ? detail::cuda_choices::folder_of_user() : folder);
          },
          .library = &library};
}
/// muBLAS of this process, or why not.
[[nodiscard]] inline cuda_other_products products_by_mublas() {
  static const detail::mublas_found found = load_mublas();
  return found.library ? products_by_mublas(*found.library) : cuda_other_products{.why = found.why};
}

}  // namespace xtrain
