// Attention by cuDNN. Before a shape is captured, its plans and our kernel are timed on separate memory; the fastest is used, and stored in a file per card,
// library and version of our kernels. Uncaptured shapes use the first plan: several ranks must choose alike.
#pragma once

#include <algorithm>
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
#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/cudnn/library.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/cuda/trials.hpp>

namespace xtrain {

namespace detail {

/// A failed call of cuDNN during preparation: our kernel is used.
struct cudnn_refusal {
  std::string why;
};

class cudnn_trial {
 public:
  /// `memory` has bytes() bytes, at a multiple of 256.
  cudnn_trial(const cuda_attention& real, std::byte* memory, std::size_t workspace) : what_(real), memory_(memory) {
    const cuda_attention_shape& s = real.shape;
    const std::size_t rows = s.b * s.t, element = bytes_of(s.number);
    const auto place = [&](std::size_t bytes) {
      std::byte* const begin = memory_ + bytes_;
      bytes_ += (bytes + 255) / 256 * 256;
      return begin;
    };
    what_.qkv = place(rows * s.row() * element);
    what_.d_o = place(rows * s.h * s.d * element);
    inputs_ = bytes_;
    what_.o = place(rows * s.h * s.d * element);
    what_.lse = place(rows * s.h * 4);
    what_.dqkv = place(s.is_backward ? rows * s.row() * element : 0);
    what_.own_scratch = place(rows * s.h * 4);
    workspace_ = place(workspace);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const cuda_attention& what() const { return what_; }
  [[nodiscard]] void* workspace() const { return workspace_; }

  /// Random operands; a backward pass has o and lse of our forward pass.
  void fill(cuda_stream& stream, std::span<std::byte> pinned) {
    fill_trial(stream, memory_, inputs_, pinned);
    if (!what_.shape.is_backward) return;
    cuda_attention forward = what_;
    forward.shape.is_backward = false;
    forward.own(stream, forward);
  }
  void clear_results(cuda_stream& stream) {
    const std::size_t rows = what_.shape.b * what_.shape.t, element = bytes_of(what_.shape.number);
    if (what_.shape.is_backward) return stream.fill_zero(what_.dqkv, rows * what_.shape.row() * element);
    stream.fill_zero(what_.o, rows * what_.shape.h * what_.shape.d * element);
    stream.fill_zero(what_.lse, rows * what_.shape.h * 4);
  }
  /// First, middle and last values of each result: o or dq, dk and dv, then lse.
  using results = std::vector<std::vector<float>>;
  [[nodiscard]] results fetch(cuda_stream& stream, std::span<std::byte> pinned) {
    const cuda_attention_shape& s = what_.shape;
    const std::size_t rows = s.b * s.t, width = s.is_backward ? s.row() : s.h * s.d;
    results all(4);
    fetch_pieces(stream, pinned, s.is_backward ? what_.dqkv : what_.o, rows * width, s.number, [&](std::size_t i, float value) {
      const std::size_t column = i % width;
      all[column < s.h * s.d ? 0U : column < (s.h + s.k) * s.d ? 1U : 2U].push_back(value);
    });
    if (!s.is_backward)
      fetch_pieces(stream, pinned, what_.lse, rows * s.h, cuda_number::fp32, [&](std::size_t, float value) { all[3].push_back(value); });
    return all;
  }

 private:
  template <class F>
  void fetch_pieces(cuda_stream& stream, std::span<std::byte> pinned, const void* from, std::size_t count, cuda_number number, F&& f) {
    const std::size_t element = bytes_of(number), piece = std::min(count, pinned.size() / element);
    for (const std::size_t first : {std::size_t{0}, (count - piece) / 2, count - piece}) {
      stream.copy_to_host(pinned.data(), static_cast<const std::byte*>(from) + first * element, piece * element);
      stream.synchronize();
      for (std::size_t i = 0; i < piece; ++i) f(first + i, trial_value(number, pinned.data() + i * element));
    }
  }

  cuda_attention what_;
  std::byte* memory_;
  std::size_t bytes_ = 0, inputs_ = 0;
  void* workspace_ = nullptr;
};

/// Of one GPU. In a capture, a shape that was neither prepared nor queued before uses our kernel. Failures before attention is queued: our kernel; of the
/// queueing call: cuda_error.
class cudnn_attentions final : public cuda_attentions {
 public:
  cudnn_attentions(cuda_state& state, const cudnn_library& library, const std::string& folder)
      : state_(state), library_(library), is_timed_(state.attention_choice() == cuda_product_choice::timed), choices_(std::string()) {
    state.enter();
    refused_ = library.open(handle_, state.properties().architecture);
    if (!refused_.empty()) return;
    version_ = library.version();
    std::string file = version_;
    for (char& letter : file)
      if (letter == ' ') letter = '_';
    choices_ = cuda_choices(cuda_choices_file(state, folder, file));
  }
  ~cudnn_attentions() override {
    known_.clear();
    if (handle_ != nullptr) library_.close(handle_);
  }

  [[nodiscard]] bool attend(cuda_stream& stream, const cuda_attention& what, cuda_workspace workspace, bool only_prepare) override {
    if (!refused_.empty()) return false;
    const std::lock_guard lock(mutex_);
    const choice* const known = choice_of(stream, what, only_prepare);
    if (known == nullptr || !known->index) return false;
    if (only_prepare) return true;
    if (known->workspace_bytes > workspace.bytes) return false;
    state_.enter();
    const std::string failed = library_.run(known->proposals.get(), *known->index, what, workspace.memory, stream.raw());
    if (failed.empty()) return true;
    stream.cancel_capture();
    (void)state_.runtime().last_error();
    fail<cuda_error>("cuda: cuDNN's ", what.shape.text(), " on device ", state_.ordinal(), " failed: ", failed);
  }
  [[nodiscard]] std::string text() const override {
    const std::lock_guard lock(mutex_);
    std::string all = refused_.empty() ? concat(version_, "\n") : concat("cuDNN is not used: ", refused_, "\n");
    for (const choice& one : known_) all += concat(one.shape.text(), ": ", one.text, "\n");
    if (unprepared_ != 0) all += concat(unprepared_, " captured calls of attention were not prepared: our kernel\n");
    return all;
  }

 private:
  struct choice {
    cuda_attention_shape shape{};
    bool is_prepared = false;
    std::shared_ptr<void> proposals{};
    std::optional<std::size_t> index{};  // empty: our kernel
    std::size_t workspace_bytes = 0;
    std::string text{};
  };

  /// Null: a capture has not prepared it.
  [[nodiscard]] const choice* choice_of(cuda_stream& stream, const cuda_attention& what, bool only_prepare) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const choice& one) { return one.shape == what.shape; });
    if (known != known_.end() && (known->is_prepared || !only_prepare)) return &*known;
    if (stream.is_capturing()) {
      ++unprepared_;
      return nullptr;
    }
    choice made{.shape = what.shape, .is_prepared = only_prepare};
    try {
      decide(stream, what, only_prepare, made);
    } catch (const cudnn_refusal& refusal) {
      made.text = concat("our kernel; ", refusal.why);
      made.index.reset();
    } catch (const memory_error&) {
      made.text = "our kernel; there is no memory to time it";
      made.index.reset();
    }
    if (known != known_.end()) return &(*known = std::move(made));
    known_.push_back(std::move(made));
    return &known_.back();
  }
  void decide(cuda_stream& stream, const cuda_attention& what, bool only_prepare, choice& made) {
    const std::size_t workspace = cudnn_workspace_bytes(what.shape, state_.properties().architecture), most = state_.properties().attention_workspace;
    if (workspace > most)
      return void(made.text = concat("our kernel; cuDNN may need ", bytes_text(workspace), " of scratch memory, attention_workspace is ", bytes_text(most)));
    state_.enter();
    void* proposals = nullptr;
    std::size_t count = 0;
    if (const std::string why = library_.propose(handle_, what.shape, proposals, count); !why.empty()) throw cudnn_refusal{why};
    made.proposals = std::shared_ptr<void>(proposals, library_.release);
    std::vector<std::optional<cudnn_plan>> plans(count);
    std::string why_not = "cuDNN proposes none";
    const auto build = [&](std::size_t index) {
      cudnn_plan plan;
      if (const std::string why = library_.build(proposals, index, plan); !why.empty()) why_not = why;
      else if (plan.workspace_bytes > workspace)
        why_not = concat("cuDNN needs ", plan.workspace_bytes, " bytes of scratch memory, ", workspace, " are expected");
      else plans[index] = std::move(plan);
      return plans[index].has_value();
    };
    const auto take = [&](std::size_t index) {
      made.index = index;
      made.workspace_bytes = plans[index]->workspace_bytes;
    };
    const auto name = [&](std::size_t index) { return concat("cuDNN's plan ", index + 1, " of ", count); };
    const auto first = [&]() -> std::optional<std::size_t> {
      for (std::size_t index = 0; index < count; ++index)
        if (build(index)) return index;
      return std::nullopt;
    };
    if (!only_prepare) {
      const auto index = first();
      if (!index) throw cudnn_refusal{why_not};
      take(*index);
      return void(made.text = name(*index));
    }
    const std::string key = what.shape.key(), earlier = is_timed_ ? choices_.of(key) : std::string();
    if (earlier == "own") return void(made.text = "our kernel; known from an earlier run");
    std::optional<std::size_t> decided;
    if (!is_timed_) decided = first();
    else
      for (std::size_t index = 0; index < count; ++index)
        if (build(index) && plans[index]->name == earlier) decided = index;
    if (std::none_of(plans.begin(), plans.end(), [](const auto& plan) { return plan.has_value(); })) throw cudnn_refusal{why_not};

    cudnn_trial trial(what, reinterpret_cast<std::byte*>(std::uintptr_t{256}), workspace);
    const cuda_trial_memory memory(state_, trial.bytes());
    trial = cudnn_trial(what, memory.raw, workspace);
    const std::shared_ptr<void> pinned(state_.allocate_pinned(cuda_trial_pattern), [this](void* raw) { state_.release_pinned(raw); });
    const std::span<std::byte> staging(static_cast<std::byte*>(pinned.get()), cuda_trial_pattern);
    cuda_stream beside(stream.device());  // ends before its memory
    trial.fill(beside, staging);
    const auto run_own = [&] {
      trial.what().own(beside, trial.what());
      return true;
    };
    const auto run = [&](std::size_t index) {
      return library_.run(proposals, index, trial.what(), trial.workspace(), beside.raw()).empty();
    };
    if (decided) {  // loads its code
      const bool runs = run(*decided);
      beside.synchronize();
      if (runs) {
        take(*decided);
        return void(made.text = concat(name(*decided), is_timed_ ? "; known from an earlier run" : ""));
      }
      if (!is_timed_) throw cudnn_refusal{concat(name(*decided), " does not run")};
    }
    wait_a_little(stream);
    (void)run_own();
    const cudnn_trial::results right = trial.fetch(beside, staging);
    double best_ms = timed_on_gpu(state_, beside, run_own);
    const double own_ms = best_ms;
    std::optional<std::size_t> best;
    std::size_t wrong = 0;
    for (std::size_t index = 0; index < count; ++index) {
      if (!plans[index]) continue;
      trial.clear_results(beside);
      if (!run(index)) continue;
      if (!agrees(trial.fetch(beside, staging), right, what.shape.number)) {
        ++wrong;
        continue;
      }
      const double ms = timed_on_gpu(state_, beside, [&] { return run(index); });
      if (ms < cuda_clearly_faster * best_ms) best = index, best_ms = ms;
    }
    const std::string failures = wrong == 0 ? std::string() : concat("; ", wrong, " of ", count, " plans are wrong");
    if (best) take(*best);
    made.text = best ? concat(name(*best), ", ", milliseconds_text(best_ms), "; our kernel ", milliseconds_text(own_ms), failures)
                     : concat("our kernel, ", milliseconds_text(own_ms), failures);
    choices_.add(key, best ? plans[*best]->name : std::string("own"));
  }

  /// Each may round p and ds to 16 bits before their products, and rounds its results. Roundings and operands' signs are independent: over many values, a sum's
  /// relative error equals its terms'.
  [[nodiscard]] static bool agrees(const cudnn_trial::results& got, const cudnn_trial::results& right, cuda_number number) {
    const double unit = number == cuda_number::bf16 ? 0x1p-8 : 0x1p-11;
    for (std::size_t part = 0; part < right.size(); ++part) {
      const double least = part == 3 ? 0x1p-12 : 4 * unit;
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < right[part].size(); ++i) {
        const double off = static_cast<double>(got[part][i]) - static_cast<double>(right[part][i]);
        difference += off * off;
        size += static_cast<double>(right[part][i]) * static_cast<double>(right[part][i]);
      }
      if (!(std::sqrt(difference) <= least * std::sqrt(size))) return false;
    }
    return true;
  }

  cuda_state& state_;
  const cudnn_library& library_;
  bool is_timed_;
  cuda_choices choices_;
  void* handle_ = nullptr;
  std::string refused_{}, version_{};
  mutable std::mutex mutex_{};
  std::deque<choice> known_{};
  std::size_t unprepared_ = 0;
};

/// Of a stream's GPU; null: our kernels compute all attention.
[[nodiscard]] inline cuda_attentions* attentions_of(const cuda_stream& stream) {
  cuda_state& state = *stream.device().state();
  return state.attentions([&](const cudnn_library& library, const std::string& folder) {
    return std::make_unique<cudnn_attentions>(state, library, folder.empty() ? cuda_choices::folder_of_user() : folder);
  });
}

}  // namespace detail

}  // namespace xtrain
