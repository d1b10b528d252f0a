#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// b sequences of t tokens. Under context parallelism t counts this rank's tokens; the mask covers unsharded sequences.
template <class Device>
struct device_batch {
  using memory = typename Device::memory;

  std::size_t b = 0;
  std::size_t t = 0;
  vector_view<const token, memory> tokens_n{};
  vector_view<const token, memory> targets_n{};      // labels; negative: ignored; padding_target: padding
  vector_view<const token, memory> positions_n{};    // in the sample, from 0
  vector_view<const token, memory> starts_n{};       // index in the sequence where a token's sample starts; empty: 0
  vector_view<const token, memory> withins_n{};      // second positions (2D)
  vector_view<const token, memory> ends_n{};         // end of what a token attends to; empty: itself
  vector_view<const token, memory> segments_n{};     // segments (token types), for models with segments
  vector_view<const float, memory> weights_n{};      // loss weights; empty: 1
  vector_view<const token, memory> labels_b{};       // labels of sequences; negative: ignored
  vector_view<const token, memory> firsts_b{};       // first tokens of sequences
  std::size_t first_sequence = 0;                    // index in the global batch
  bool is_packed = false;                            // a sequence holds several samples (padding not counted)
  std::size_t whole_t = 0;                           // length of an unsharded sequence, if this rank has a part
  std::array<context_shard::range, 2> own_ranges{};  // the part: one range, or two
  std::span<const token> host_starts{};              // starts, while the host batch exists; empty: 0

  [[nodiscard]] std::size_t n() const { return b * t; }
  [[nodiscard]] bool is_part() const { return whole_t > t; }
  [[nodiscard]] std::size_t whole_seq_length() const { return is_part() ? whole_t : t; }
  /// Tokens without padding, which begins a sample.
  [[nodiscard]] std::size_t tokens_of(std::size_t sequence) const {
    const std::size_t length = whole_seq_length();
    if (host_starts.empty()) return length;
    const auto own = host_starts.subspan(sequence * length, length);
    return static_cast<std::size_t>(std::find_if(own.begin(), own.end(), [](token start) { return start > 0; }) - own.begin());
  }
};

namespace detail {

/// The device reads host memory and computes before it returns: no copy. Not with host functions on the stream, which read later. The dry device behaves as the
/// device it replaces.
template <class Device>
inline constexpr bool reads_host_batches = host_addressable<Device> && !clause::device_runs_host_functions<Device>;
template <class Device>
inline constexpr bool reads_host_batches<dry<Device>> = reads_host_batches<Device>;

}  // namespace detail

/// View of a batch on the host, independent of its container: step code is compiled once.
struct batch_view {
  std::size_t b = 0, t = 0;
  std::span<const token> tokens{}, targets{}, positions{}, starts{};
  std::span<const token> ends{}, segments{}, labels{};
  std::span<const float> token_weights{};               // loss weights; empty: 1
  std::span<const token> teacher_tokens{};              // a teacher's k most probable next tokens per token; or empty
  std::span<const float> teacher_log_probs{};           // their log-probabilities
  std::span<const double> reference_log_probs{};        // per sequence, by a reference model; or empty
  std::span<const double> advantages{};                 // per sequence (grpo) or target (ppo)
  std::span<const float> old_log_probs{};               // per target, by the model that generated it; or empty
  std::span<const float> reference_token_log_probs{};   // per target, by a reference model; or empty
  std::span<const float> old_values{}, returns{};       // per target (ppo_value)
  std::size_t target_count = 0, token_count = 0, first_sequence = 0;
  bool is_laid_out = false;            // positions, withins and ends are final; ends index the cache
  bool cache_is_empty = false;
  std::span<const token> withins{};    // second positions, if is_laid_out

  batch_view() = default;
  /// The arrays must outlive the view.
  template <class HostBatch>
  requires requires(const HostBatch& host) { host.returns; }
  batch_view(const HostBatch& host)  // NOLINT: a view
      : b(host.b), t(host.t), tokens(host.tokens), targets(host.targets), positions(host.positions), starts(host.starts), ends(host.ends),
        segments(host.segments), labels(host.labels), token_weights(host.token_weights), teacher_tokens(host.teacher_tokens),
        teacher_log_probs(host.teacher_log_probs), reference_log_probs(host.reference_log_probs), advantages(host.advantages),
        old_log_probs(host.old_log_probs), reference_token_log_probs(host.reference_token_log_probs), old_values(host.old_values), returns(host.returns),
        target_count(host.target_count), token_count(host.token_count), first_sequence(host.first_sequence) {}
};

/// Pinned host memory for batches, used in turn: copies overlap with the host.
template <class Device>
class batch_staging {
 public:
  /// `slots` batches of up to `num_tokens` tokens. A slot's copy must be done before its next turn.
  ///   mask  of the model
  batch_staging(const typename Device::context& on, std::size_t num_tokens, std::size_t slots, const attention_mask& mask = {})
      : slot_((arrays + mask.virtual_tokens) * num_tokens), slots_(slots), memory_(on, is_dry_run(on) ? 0 : bytes()) {}

  /// 0 if the device reads host batches. A dry run allocates nothing.
  [[nodiscard]] std::size_t bytes() const { return detail::reads_host_batches<Device> ? 0 : slot_ * slots_ * sizeof(token); }
  [[nodiscard]] bool exists() const { return memory_.bytes() > 0; }
  [[nodiscard]] std::span<token> next() {
    const std::size_t at = next_++ % slots_;
    return memory_.template as<token>().subspan(at * slot_, slot_);
  }
  /// Next slot: the first of this half. A replayed step finds its batches where they were.
  void restart(std::size_t half) { next_ = half * (slots_ / 2); }
  /// Slots used; return_to() restores this after a dry run.
  [[nodiscard]] std::size_t position() const { return next_; }
  void return_to(std::size_t position) { next_ = position; }

 private:
  static constexpr std::size_t arrays = 9;  // per token or sequence

  std::size_t slot_, slots_, next_ = 0;
  pinned_memory<Device> memory_;
};

/// Device memory for a batch of up to `num_tokens` tokens; empty if the device reads host memory. Computes positions and non-causal masks; selects this rank's
/// tokens under context parallelism.
template <class Device>
class batch_memory {
 public:
  using memory = typename Device::memory;

  batch_memory(const typename Device::context& on, std::size_t num_tokens, const attention_mask& mask = {}, const context_shard& shard = {})
      : num_tokens_(num_tokens), own_(std::make_unique<local_tokens>(shard, 5, num_tokens)),
        laid_out_(mask.kind == attention_mask::rule::causal ? nullptr : std::make_unique<token_layout>(mask, num_tokens)),
        buffer_(on, detail::reads_host_batches<Device> ? 0 : ((laid_out_ ? 9 : 5) + mask.virtual_tokens) * num_tokens * sizeof(token), memory_role::batch),
        virtual_tokens_(mask.virtual_tokens) {}

  [[nodiscard]] std::size_t num_tokens() const { return num_tokens_; }

  /// Tokens, targets, positions and starts have b · t elements or are empty; for a non-causal mask also ends and segments, and b labels. Without staging the
  /// arrays must not change until the stream is synchronized, and no queued work may use this memory.
  ///   throws  shape_error when the batch or an array does not fit, or the sequence length is not divisible by context-parallel ranks; data_error when a start
  ///           or an end is invalid
  [[nodiscard]] device_batch<Device> upload(typename Device::stream& stream, const batch_view& host, batch_staging<Device>* staging = nullptr) const {
    [[maybe_unused]] std::span<token> staged;
    if (staging != nullptr && !staging->exists()) staging = nullptr;
    if constexpr (!detail::reads_host_batches<Device>)
      if (staging != nullptr) staged = staging->next();
    std::size_t used = 0;
    const device_batch<Device> on_device = lay_out(stream, host, staged, used);
    if constexpr (!detail::reads_host_batches<Device>)
      if (staging != nullptr) copy_to_device(stream, buffer_.template as<token>().subspan(0, used), staged.first(used));
    return on_device;
  }

  /// Without the copy: captured work copies from this slot.
  [[nodiscard]] device_batch<Device> stage(typename Device::stream& stream, const batch_view& host, batch_staging<Device>& staging) const {
    std::size_t used = 0;
    return lay_out(stream, host, staging.next(), used);
  }

 private:
  [[nodiscard]] device_batch<Device> lay_out(typename Device::stream& stream, const batch_view& host, [[maybe_unused]] std::span<token> staged,
                                             std::size_t& next) const {
    const std::size_t n = host.b * host.t;
    require<shape_error>(n <= num_tokens_, "batch: must have at most ", num_tokens_, " tokens; given ", host.b, " sequences of ", host.t);
    const auto put = [&](std::span<const token> values, std::size_t size) -> vector_view<const token, memory> {
      if (values.empty()) return {};
      require<shape_error>(values.size() == size, "batch: every array must have ", n, " tokens, or one label for each of ", host.b,
                           " sequences; given ", values.size());
      if constexpr (detail::reads_host_batches<Device>) {
        return {span_of<const token, memory>(values.data(), size), {size}};
      } else {
        const auto to = buffer_.template as<token>().subspan(next, size);
        if (staged.empty()) copy_to_device(stream, to, values);
        else std::copy(values.begin(), values.end(), staged.begin() + static_cast<std::ptrdiff_t>(next));
        next += size;
        return {device_span<const token, memory>(to), {size}};
      }
    };
    require_starts(host.starts, host.t);
    own_->begin();
    const std::size_t own_t = own_->shard().count_of(host.t);
    const auto put_own = [&](std::span<const token> values) {
      require<shape_error>(values.empty() || values.size() == n, "batch: every array must have ", n, " tokens; given ", values.size());
      return put(own_->cut(values, host.t), host.b * own_t);
    };
    device_batch<Device> on_device{
        .b = host.b, .t = own_t, .first_sequence = host.first_sequence, .whole_t = host.t, .own_ranges = own_->shard().ranges_of(host.t),
        .host_starts = host.starts};
    on_device.tokens_n = put_own(host.tokens);
    on_device.targets_n = put_own(host.targets);
    on_device.starts_n = put(host.starts, n);
    if (const auto weights = host.token_weights; !weights.empty()) {
      // floats travel as tokens of equal size
      static_assert(sizeof(float) == sizeof(token));
      const auto bits = put_own({reinterpret_cast<const token*>(weights.data()), weights.size()});
      on_device.weights_n = {span_of<const float, memory>(reinterpret_cast<const float*>(bits.span().raw()), bits.shape(0)), {bits.shape(0)}};
    }
    for (std::size_t i = 0; i < host.starts.size() && !on_device.is_packed; ++i)
      on_device.is_packed = host.starts[i] > 0 && (host.targets.empty() || host.targets[i] >= 0);
    const std::span<const token> ends = host.ends, segments = host.segments, labels = host.labels;
    if (!host.is_laid_out) require_ends(ends, host);
    if (laid_out_ == nullptr) {
      on_device.positions_n = put_own(host.positions);
      return on_device;
    }
    if (host.is_laid_out) {
      on_device.positions_n = put_own(host.positions);
      on_device.withins_n = put_own(host.withins);
      on_device.ends_n = put(ends, host.cache_is_empty ? n + host.b * virtual_tokens_ : n);
    } else {
      const token_layout& layout = laid_out_->lay_out(host.tokens, host.starts, host.t);
      on_device.positions_n = put_own(layout.positions);
      on_device.withins_n = put_own(layout.withins);
      require<config_error>(ends.empty() || virtual_tokens_ == 0, "batch: ends must not be given to a model whose adapter puts tokens before every sequence");
      on_device.ends_n = put(ends.empty() ? layout.ends : ends, n + host.b * virtual_tokens_);
      on_device.segments_n = put(segments.empty() ? layout.segments : segments, n);
      on_device.labels_b = put(labels.empty() ? layout.labels : labels, host.b);
      on_device.firsts_b = put(layout.firsts, host.b);
    }
    return on_device;
  }

  /// Samples are contiguous: a token's start is the previous token's, or its index.
  static void require_starts(std::span<const token> starts, std::size_t t) {
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::size_t at = i % t;
      require<data_error>(starts[i] == static_cast<token>(at) || (at > 0 && starts[i] == starts[i - 1]),
                          "batch: a token's start must be that of the token before it in its sequence, or the token itself; token ", at, " of sequence ", i / t,
                          " has ", starts[i]);
    }
  }
  /// Checks the caller's ends: kernels do not.
  void require_ends(std::span<const token> ends, const batch_view& host) const {
    if (ends.empty()) return;
    require<shape_error>(laid_out_ != nullptr, "batch: ends must not be given to a causal model");
    require<shape_error>(ends.size() == host.b * host.t, "batch: ends must be ", host.b * host.t, "; given ", ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const token start = host.starts.empty() ? 0 : host.starts[i];
      require<data_error>(ends[i] > start && static_cast<std::size_t>(ends[i]) <= host.t,
                          "batch: an end must come after its token's start (", start, ") and not after the sequence's ", host.t,
                          " tokens; token ", i, " has ", ends[i]);
    }
  }

  std::size_t num_tokens_;
  std::unique_ptr<local_tokens> own_;
  std::unique_ptr<token_layout> laid_out_;
  buffer<Device> buffer_;
  std::size_t virtual_tokens_;
};

}  // namespace xtrain
