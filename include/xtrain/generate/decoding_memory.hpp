// A generator's device memory; passes with the KV cache whose tokens the host or the device chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/capture.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/kv_cache.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/parallel/pipeline/stage_message.hpp>
#include <xtrain/tensor/shard_spec.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain::detail {

/// The model is a pipeline.
template <class Model>
inline constexpr bool model_has_stages = requires(Model& model) {
  model.parallel().blocks_of(std::size_t{0});
  model.parallel().between();
};

/// This rank's layers.
struct own_layers {
  std::vector<std::size_t> indices{};  // index in the cache per layer of the model; empty: all, in order
  std::size_t count = 0;
};

template <class Model>
[[nodiscard]] own_layers own_layers_of(const Model& model) {
  const std::size_t layers = model.config().num_layers;
  if constexpr (model_has_stages<Model>) {
    own_layers own;
    own.indices.assign(layers, 0);
    auto& stages = model.parallel();
    for (std::size_t chunk = 0; chunk < stages.chunks(); ++chunk)
      for (std::size_t layer = 0; layer < layers; ++layer)
        if (stages.blocks_of(chunk).has(layer + 1)) own.indices[layer] = own.count++;
    return own;
  } else {
    return {{}, layers};
  }
}

/// Captured decoding steps, by number of sequences.
template <class Device>
struct captured_decoding {};
template <clause::device_captures_work Device>
struct captured_decoding<Device> {
  std::map<std::size_t, std::optional<typename Device::stream::graph>> steps{};  // empty: has run once
  bool works = true;
};

/// Memory for `slots` sequences of up to `capacity` tokens; also on the dry-run device.
template <class Model>
class decoding_memory {
 public:
  using device = typename Model::device;
  using memory = typename Model::memory;
  using compute = typename Model::compute;
  using accumulate = typename Model::accumulate;
  /// The device can choose tokens and continue without the host.
  static constexpr bool device_chooses = !model_has_stages<Model> && std::is_same_v<accumulate, float> && runs_kernel<device, kernel::sample<memory>> &&
                                         runs_kernel<device, kernel::advance<memory>>;
  static constexpr std::size_t most_steps = 64;  // per chunk

  decoding_memory(const Model& model, std::size_t slots, std::size_t capacity, std::size_t piece)
      : slots_(slots), capacity_(capacity), layers_(own_layers_of(model)), batch_(model.context(), slots * piece, attention_mask_of(model)),
        keys_(model.context(), model.cache_shape(layers_.count, slots, capacity), memory_role::cache),
        values_(model.context(), model.cache_shape(layers_.count, slots, capacity), memory_role::cache),
        lengths_(model.context(), {slots}, memory_role::cache), chosen_(model.context(), {slots}, memory_role::batch),
        logits_(model.context(), {slots, model.config().vocab_size}, memory_role::batch),
        rows_(model.context(), device_chooses ? (field_arrays + most_steps + capacity) * slots * sizeof(token) : 0, memory_role::batch),
        staging_(model.context(), slots * piece, 1, attention_mask_of(model)),
        host_rows_(model.context(), is_dry_run(model.context()) ? 0 : (2 * field_arrays + most_steps + capacity) * slots * sizeof(token)),
        host_logits_(model.context(),
                     is_dry_run(model.context()) || reads_host_batches<device> ? 0 : slots * model.config().vocab_size * sizeof(accumulate)) {
    std::ranges::fill(host_rows_.template as<token>(), token{0});
  }

  /// b sequences with t new tokens each, after the cached lengths; row r of the logits belongs to position chosen[r].
  struct decode_batch {
    std::size_t b = 0, t = 0;
    std::size_t first_slot = 0;  // in the cache
    std::vector<token> tokens{}, targets{}, positions{}, starts{}, withins{}, ends{};
    std::size_t first_sequence = 0;
    std::vector<token> lengths{};
    std::vector<token> chosen{};
    bool cache_is_empty = false;

    operator batch_view() const {  // NOLINT: a view
      batch_view view;
      view.b = b, view.t = t;
      view.tokens = tokens, view.targets = targets, view.positions = positions, view.starts = starts, view.ends = ends;
      view.first_sequence = first_sequence;
      view.is_laid_out = true, view.cache_is_empty = cache_is_empty, view.withins = withins;
      return view;
    }
  };
  /// returns  logits [chosen, vocabulary], on every rank of a pipeline or of tensor parallelism
  std::span<const accumulate> run(Model& model, pass_memory<Model>& passes, const decode_batch& rows) {
    auto& stream = model.stream();
    const std::size_t chosen = rows.chosen.size();
    const auto lengths_b = lengths_.view().rows(0, rows.b);
    const auto chosen_r = chosen_.view().rows(0, chosen);
    const auto logits_rv = logits_.view().rows(0, chosen);
    if (!is_dry_run(model.context())) {
      const auto staged = [&](const std::vector<token>& values, std::size_t at) {
        const std::span<token> to = host_rows_.template as<token>().subspan(at, values.size());
        std::copy(values.begin(), values.end(), to.begin());
        return std::span<const token>(to);
      };
      copy_to_device(stream, lengths_b.span(), staged(rows.lengths, 0));
      copy_to_device(stream, chosen_r.span(), staged(rows.chosen, slots_));
    }
    const auto batch = batch_.upload(stream, rows, &staging_);
    const cache_view<device, compute> cache = cache_of(rows.first_slot, lengths_b, rows.cache_is_empty);
    const auto new_pass = [&] {
      auto p = passes.new_pass(pass_mode::evaluation);
      p.batch = batch;
      p.internal.cache = &cache;
      return p;
    };
    if constexpr (model_has_stages<Model>) {
      run_stages(model, passes, new_pass, chosen_r, logits_rv);
    } else {
      auto p = new_pass();
      model.logits(p, passes.layer_inputs(), chosen_r, logits_rv);
    }
    return on_host(stream, 0, chosen);
  }

  /// State of a row in a chunk of decoding steps. The first three are for its next pass.
  enum field : std::size_t {
    next,      // last token, not yet cached
    position,  // of that token in the text
    cached,    // tokens in the cache
    place,     // tokens generated so far
    number,    // of the sequence: site of its random numbers
    room,      // tokens that it may add in this chunk
    itself,    // the row
    count,     // tokens added in this chunk
    choice,    // last step; kernel::undecided: the host chooses from logits
    field_arrays
  };
  void put(field what, std::size_t row, std::size_t value) { host_rows_.template as<token>()[what * slots_ + row] = static_cast<token>(value); }
  /// Row without a sequence: adds no tokens.
  void put_nothing(std::size_t row) {
    for (std::size_t what = 0; what <= room; ++what) put(static_cast<field>(what), row, 0);
  }
  /// Text for the repetition penalty; later chunks append their tokens.
  void put_text(Model& model, std::size_t row, std::span<const token> text) {
    const std::span<token> staged = host_rows_.template as<token>().subspan((2 * field_arrays + most_steps) * slots_ + row * capacity_, text.size());
    std::copy(text.begin(), text.end(), staged.begin());
    copy_to_device(model.stream(), texts().subspan(row * capacity_, text.size()), std::span<const token>(staged));
  }
  /// Decodes the first n of b rows, all set, for some steps; the host waits once, at the end. A row without a choice stops: its logits predict its next
  /// token on return.
  ///   how    settings
  void run_chunk(Model& model, pass_memory<Model>& passes, std::size_t n, std::size_t b, std::size_t steps, const kernel::sample<memory>& how) {
    auto& stream = model.stream();
    const std::span<token> host = host_rows_.template as<token>();
    for (std::size_t r = 0; r < b; ++r) {
      put(itself, r, r);
      put(count, r, 0);
    }
    const std::size_t up = choice * slots_;
    copy_to_device(stream, rows_.template as<token>().subspan(0, up), std::span<const token>(host.first(up)));
    for (std::size_t i = 0; i < steps; ++i) step(model, passes, n, b, how);
    const std::size_t down = (field_arrays - count + most_steps) * slots_;
    copy_to_host(stream, host.subspan(field_arrays * slots_, down),
                 device_span<const token, memory>(rows_.template as<token>().subspan(count * slots_, down)));
    stream.synchronize();
  }
  /// Tokens that a row added in the last chunk.
  [[nodiscard]] std::span<const token> taken(std::size_t row) const {
    const std::span<const token> host = host_rows_.template as<token>().subspan(field_arrays * slots_);
    return host.subspan((field_arrays - count) * slots_ + row * most_steps, static_cast<std::size_t>(host[row]));
  }
  /// Of the last step; the host waits.
  [[nodiscard]] std::span<const accumulate> logits_of(Model& model, std::size_t row) { return on_host(model.stream(), row, 1); }
  /// Captured steps depend on the number of sequences and on settings.
  void forget_captured_steps() { captured_ = {}; }

  void queue_step([[maybe_unused]] Model& model, [[maybe_unused]] pass_memory<Model>& passes, [[maybe_unused]] std::size_t n, [[maybe_unused]] std::size_t b,
                  [[maybe_unused]] kernel::sample<memory> how) {
    if constexpr (device_chooses) {
      device_batch<device> batch = batch_.upload(model.stream(), decode_batch{.b = b, .t = 1});
      batch.tokens_n = values_of(next, b);
      batch.positions_n = values_of(position, b);
      const cache_view<device, compute> cache = cache_of(0, values_of(cached, b), false);
      auto p = passes.new_pass(pass_mode::evaluation);
      p.batch = batch;
      p.internal.cache = &cache;
      model.logits(p, passes.layer_inputs(), values_of(itself, b), logits_.view().rows(0, b));
      how.n = n;
      how.v = model.config().vocab_size;
      how.capacity = capacity_;
      how.logits_nv = device_span<const float, memory>(logits_.view().rows(0, n).span());
      const bool needs_text = how.repetition_penalty != 1.0, draws = how.temperature != 0.0;
      if (needs_text) {
        how.text_nc = device_span<const token, memory>(texts().subspan(0, n * capacity_));
        how.last_n = values_of(position, n).span();
      }
      if (draws) {
        how.place_n = values_of(place, n).span();
        how.sequence_n = values_of(number, n).span();
      }
      how.token_n = of(choice, n);
      auto on = passes.execution_on();
      ops::launch(on, how);
      kernel::advance<memory> advance{.n = n, .most = most_steps, .capacity = capacity_};
      advance.token_n = values_of(choice, n).span();
      advance.room_n = values_of(room, n).span();
      advance.count_n = of(count, n);
      advance.taken_nm = rows_.template as<token>().subspan(field_arrays * slots_, n * most_steps);
      advance.next_n = of(next, n);
      advance.position_n = of(position, n);
      advance.cached_n = of(cached, n);
      advance.place_n = of(place, n);
      if (needs_text) advance.text_nc = texts().subspan(0, n * capacity_);
      ops::launch(on, advance);
    }
  }

  [[nodiscard]] std::size_t layers() const { return layers_.count; }

  /// Copies the first `tokens` cached tokens of a slot.
  void copy_slot(Model& model, std::size_t from, std::size_t to, std::size_t tokens) {
    const std::size_t k = model.kv_heads(), n = tokens * model.config().head_dim;
    for (std::size_t layer = 0; layer < layers_.count; ++layer)
      for (std::size_t head = 0; head < k; ++head)
        for (auto* cache : {&keys_, &values_}) {
          const auto row = [&](std::size_t slot) { return cache->view().rows((layer * slots_ + slot) * k + head, 1).span().subspan(0, n); };
          copy_within(model.stream(), row(to), device_span<const compute, memory>(row(from)));
        }
  }

 private:
  /// Hidden states pass from stage to stage; the last stage sends logits to all.
  template <class NewPass, class Chosen, class Logits>
  void run_stages(Model& model, pass_memory<Model>& passes, NewPass&& new_pass, const Chosen& chosen_r, const Logits& logits_rv) {
    auto& stages = model.parallel();
    auto& stream = model.stream();
    const std::size_t ranks = stages.depth(), own = stages.position(), layers = model.config().num_layers;
    for (std::size_t chunk = 0; chunk < stages.chunks(); ++chunk) {
      const bool first = stages.is_first(chunk), last = stages.is_last(chunk);
      auto p = new_pass();
      const std::size_t n = p.batch.n(), c = model.config().hidden_size;
      const matrix_view<compute, memory> x{passes.layer_inputs().template push<compute>(n * c), {n, c}};
      if (!first) {
        message_.receive(stream, stages.between(), (own + ranks - 1) % ranks, x.span());
        message_.wait(stream);
      }
      const block_range& blocks = stages.blocks_of(chunk);
      const auto y = model.forward_blocks(p, passes.layer_inputs(), {blocks.first, last ? layers + 1 : blocks.last}, x, {});
      if (last) {
        model.logits_of(p, y, chosen_r, logits_rv);
      } else {
        message_.send(stream, stages.between(), (own + 1) % ranks, device_span<const compute, memory>(y.span()));
        message_.wait(stream);
      }
      passes.forget();
    }
    if (ranks > 1) stages.between().broadcast(stream, logits_rv.span(), ranks - 1);
  }

  [[nodiscard]] cache_view<device, compute> cache_of(std::size_t first_slot, vector_view<const token, memory> lengths_b, bool is_empty) {
    return {.capacity = capacity_,
            .slots = slots_,
            .first_slot = first_slot,
            .lengths_b = lengths_b,
            .keys = keys_.view(),
            .values = values_.view(),
            .is_empty = is_empty,
            .layers = layers_.indices};
  }
  /// Waits for the stream. Host-readable logits are not copied.
  [[nodiscard]] std::span<const accumulate> on_host(typename device::stream& stream, std::size_t first, std::size_t n) {
    const auto logits = logits_.view().rows(first, n).span();
    if constexpr (reads_host_batches<device>) {
      stream.synchronize();
      return {logits.raw(), logits.size()};
    } else {
      const std::span<accumulate> host = host_logits_.template as<accumulate>().first(host_logits_.bytes() == 0 ? 0 : logits.size());
      copy_to_host(stream, host, device_span<const accumulate, memory>(host.empty() ? logits.subspan(0, 0) : logits));
      stream.synchronize();
      return host;
    }
  }
  [[nodiscard]] device_span<token, memory> of(field what, std::size_t n) const { return rows_.template as<token>().subspan(what * slots_, n); }
  [[nodiscard]] vector_view<const token, memory> values_of(field what, std::size_t n) const {
    return {device_span<const token, memory>(of(what, n)), {n}};
  }
  [[nodiscard]] device_span<token, memory> texts() const {
    return rows_.template as<token>().subspan((field_arrays + most_steps) * slots_, capacity_ * slots_);
  }

  /// Queues a step. Where capture works, the second step of a kind is captured: the first has loaded what it needs.
  void step(Model& model, pass_memory<Model>& passes, std::size_t n, std::size_t b, const kernel::sample<memory>& how) {
    if constexpr (clause::device_captures_work<device>) {
      auto& stream = model.stream();
      if (captured_.works && model.parallel().world().size() == 1) {
        const auto [known, is_first] = captured_.steps.try_emplace(n);
        if (!is_first && !known->second) {
          stream.begin_capture();
          try {
            queue_step(model, passes, n, b, how);
            known->second = stream.end_capture();
          } catch (const config_error&) {  // this model cannot be captured
            stream.cancel_capture();
            passes.forget();
            captured_.works = false;
          } catch (...) {
            stream.cancel_capture();
            throw;
          }
        }
        if (known->second) return stream.replay(*known->second);
      }
    }
    queue_step(model, passes, n, b, how);
  }

  std::size_t slots_, capacity_;
  own_layers layers_;
  batch_memory<device> batch_;
  tensor<compute, 2, device> keys_, values_;
  tensor<token, 1, device> lengths_, chosen_;
  tensor<accumulate, 2, device> logits_;
  // per field a number per slot, then `most_steps` added tokens per slot, then texts
  buffer<device> rows_;
  batch_staging<device> staging_;
  // fields as uploaded; `count`, `choice` and added tokens as returned; texts
  pinned_memory<device> host_rows_, host_logits_;
  captured_decoding<device> captured_{};
  stage_message<device, compute> message_;
};

}  // namespace xtrain::detail
