// A model's parameters in one flat array. Layers hold handles; optimizers, checkpoints and reductions see one array.
//
// parameter_list.hpp has names, shapes and blocks; parameter_layout.hpp offsets, shards and windows; this file their memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameter.hpp>
#include <xtrain/tensor/parameter_layout.hpp>
#include <xtrain/tensor/parameter_list.hpp>
#include <xtrain/tensor/row_integers.hpp>
#include <xtrain/tensor/shard_spec.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain {

/// A parameter list with memory for this rank's part.
template <class Device, class Precision>
class parameter_store : public parameter_list {
 public:
  using memory = typename Device::memory;
  using precision = Precision;
  using parameter_type = typename Precision::parameter;
  using gradient_type = typename Precision::gradient;
  using piece = parameter_layout::piece;

  explicit parameter_store(const typename Device::context& device)
      : device_(device), values_(device, 0, memory_role::weights), value_windows_(device, 0, memory_role::weights),
        gradients_(device, 0, memory_role::gradients), gradient_windows_(device, 0, memory_role::gradients),
        codes_(device, 0, memory_role::weights), outer_scales_(device, 0, memory_role::weights) {}

  [[nodiscard]] const typename Device::context& device() const { return device_; }

  /// Assigns offsets and allocates values; nothing can be declared afterwards.
  ///   throws  memory_error
  void allocate(const shard_spec& sharding = {}) {
    layout_ = parameter_layout(*this, sharding);
    values_ = buffer<Device>(device_, layout_.stored_values() * sizeof(parameter_type), memory_role::weights);
    if (sharding.values) value_windows_ = buffer<Device>(device_, layout_.value_windows() * sizeof(parameter_type), memory_role::weights);
    if (layout_.code_bytes() == 0) return;
    codes_ = buffer<Device>(device_, layout_.code_bytes(), memory_role::weights);
    outer_scales_ = buffer<Device>(device_, layout_.outer_scales() * sizeof(float), memory_role::weights);
  }

  /// For trained parameters, uninitialized.
  void allocate_gradients() {
    gradients_ = buffer<Device>(device_, layout_.stored_gradients() * sizeof(gradient_type), memory_role::gradients);
    if (sharding().gradients)
      gradient_windows_ = buffer<Device>(device_, layout_.gradient_windows() * sizeof(gradient_type), memory_role::gradients);
    take_gradients();
  }
  /// Trainers of one model share its gradients and parameter settings: how often these have changed hands.
  [[nodiscard]] std::uint32_t gradient_users() const { return gradient_users_; }
  void take_gradients() { ++gradient_users_; }
  [[nodiscard]] bool has_gradients() const { return gradients_.bytes() != 0; }

  [[nodiscard]] std::size_t bytes() const { return values_.bytes() + value_windows_.bytes() + codes_.bytes() + outer_scales_.bytes(); }

  /// Number of weight changes: write() and set() count; callers that write through views call note_change. An optimizer with master weights detects
  /// outside changes by it.
  [[nodiscard]] std::size_t changes() const { return changes_; }
  void note_change() const { ++changes_; }
  /// An adapter was merged into frozen weights: a saved adapter would not fit the base model.
  [[nodiscard]] bool has_merged_adapter() const { return has_merged_adapter_; }
  void note_merged_adapter(bool merged) { has_merged_adapter_ = merged; }

  /// Weights updated by other ranks may be in transit after a step. Access to a block's weights first calls arrive(block), which waits. Take earlier views
  /// again.
  void when_read(std::function<void(std::size_t block)> arrive) { arrive_ = std::move(arrive); }

  [[nodiscard]] const parameter_layout& layout() const { return layout_; }
  [[nodiscard]] const shard_spec& sharding() const { return layout_.sharding(); }
  [[nodiscard]] std::size_t total() const { return layout_.total(); }
  /// A block's range in the flat array of trained parameters.
  [[nodiscard]] parameter_slice block(std::size_t index) const {
    const parameter_layout::range range = layout_.block(index, true);
    return {range.begin, range.end};
  }
  /// What this rank's optimizer steps: trained parameters, or a shard of every block.
  [[nodiscard]] const std::vector<parameter_slice>& parameter_slices() const { return layout_.parameter_slices(); }
  /// Multiplies each trained parameter's learning rate by factor_of(entry) in parameter_slices(); replaces earlier factors. Before optimizer state is made.
  /// Returns whether a factor differs from 1.
  ///   throws  config_error when a factor is negative or not finite, or differs within one matrix
  template <class FactorOf>
  bool set_learning_rate_factors(FactorOf&& factor_of) {
    std::vector<double> factors;
    bool any = false;
    for (const entry& e : entries()) {
      factors.push_back(e.spec.trainable ? factor_of(e) : 1.0);
      const double factor = factors.back();
      require<config_error>(factor >= 0.0 && factor <= 1e30, "learning_rate_factor of '", e.spec.name,
                            "': must be non-negative; given ", factor);
      require<config_error>(!e.spec.trainable || factor == factors[e.group], "learning_rate_factor of '", e.spec.name, "': must be that of '",
                            entries()[e.group].spec.name, "', with which it is one matrix; they are ", factor, " and ", factors[e.group]);
      any = any || factor != 1.0;
    }
    layout_.set_learning_rate_factors(entries(), factors);
    return any;
  }
  /// Weight decay for all trained parameters instead of matrices only; call before optimizer state is made.
  void set_weight_decay_of_all(bool all) { layout_.set_weight_decay_of_all(entries(), all); }
  [[nodiscard]] std::size_t stepped() const { return layout_.stepped(); }
  [[nodiscard]] piece piece_of(const entry& e, std::size_t part) const { return layout_.piece_of(e, part); }
  [[nodiscard]] piece piece_of(const entry& e) const { return piece_of(e, sharding().part); }
  /// See parameter_layout.
  [[nodiscard]] bool share_window(std::size_t a, std::size_t b) const { return layout_.share_window(a, b); }

  /// throws config_error when this rank lacks weights
  void require_whole(std::string_view who) const {
    require_all_here(who);
    require_undivided(who);
  }
  /// throws config_error when weights are sharded within blocks
  void require_undivided(std::string_view who) const {
    require<config_error>(!sharding().values && !has_tensor_shards(), who,
                          ": all weights must be on this rank; its strategy shards them among ranks. ",
                          "Save the model, and do it where one rank loads it");
  }

  /// Empty if on another rank.
  ///   throws  config_error when it is quantized
  [[nodiscard]] device_span<parameter_type, memory> value(parameter p) const {
    const entry& first = entries()[p.first()];
    require_values(first);
    return first.is_here ? value_at(first, size(p)) : device_span<parameter_type, memory>{};
  }
  /// Sharded weights: the block's window, valid while the block is gathered.
  [[nodiscard]] device_span<parameter_type, memory> value(const entry& e) const {
    require_values(e);
    return e.is_here ? value_at(e, e.size()) : device_span<parameter_type, memory>{};
  }
  /// Empty if frozen or not allocated.
  [[nodiscard]] device_span<gradient_type, memory> gradient(parameter p) const {
    if (!trains(p) || !has_gradients() || !entries()[p.first()].is_here) return {};
    return gradient_at(entries()[p.first()], size(p));
  }
  [[nodiscard]] device_span<gradient_type, memory> gradient(const entry& e) const {
    if (!e.spec.trainable || !has_gradients() || !e.is_here) return {};
    return gradient_at(e, e.size());
  }
  /// Of a parameter stored as integers.
  [[nodiscard]] row_integers_view<memory> integers(const entry& e) const {
    const parameter_layout::quantized_offsets& at = layout_.quantized(e);
    const std::size_t columns = at.n / at.rows;
    return {.rows = at.rows,
            .columns = columns,
            .bits = at.integer_bits,
            .code = codes_.template as<std::uint8_t>().subspan(at.codes, at.rows * row_integers::row_bytes(columns, at.integer_bits)),
            .scale_r = outer_scales_.template as<float>().subspan(at.outer, at.rows)};
  }
  /// Of a parameter in NF4.
  [[nodiscard]] nf4_view<memory> quantized(const entry& e) const {
    const parameter_layout::quantized_offsets& at = layout_.quantized(e);
    const auto bytes = codes_.template as<std::uint8_t>();
    return {.n = at.n,
            .code_n2 = bytes.subspan(at.codes, nf4::code_bytes(at.n)),
            .scale_k = bytes.subspan(at.codes + nf4::code_bytes(at.n), nf4::scales(at.n)),
            .outer = outer_scales_.template as<float>().subspan(at.outer, nf4::outer_scales(at.n))};
  }
  /// Of a parameter in blocks.
  [[nodiscard]] blocks_view<memory> in_blocks(const entry& e) const {
    const parameter_layout::quantized_offsets& at = layout_.quantized(e);
    return {.n = at.n, .format = *at.blocks, .code = codes_.template as<std::uint8_t>().subspan(at.codes, block_formats::bytes_of(*at.blocks, at.n))};
  }
  /// Sets a parameter stored in blocks.
  template <class Stream>
  void set_blocks(Stream& stream, const entry& e, std::span<const std::uint8_t> host) const {
    copy_to_device(stream, in_blocks(e).code, host);
    stream.synchronize();
    note_change();
  }
  /// Sets elements from `first` on that this rank stores. Host memory must stay valid until the stream is synchronized.
  template <class Stream>
  void write(Stream& stream, const entry& e, std::size_t first, std::span<const parameter_type> host) const {
    if (!e.is_here) return;
    await(e.block);
    note_change();
    const auto all = values_.template as<parameter_type>();
    if (!sharding().values) return copy_to_device(stream, all.subspan(e.offset + first, host.size()), host);
    const piece own = piece_of(e);
    const std::size_t from = std::max(first, own.first), to = std::min(first + host.size(), own.first + own.count);
    if (from < to) copy_to_device(stream, all.subspan(own.kept + from - own.first, to - from), host.subspan(from - first, to - from));
  }
  /// Sets all values; quantizes if needed.
  ///   throws  config_error when it is stored in blocks (set_blocks)
  template <class Stream, class T>
  void set(Stream& stream, const entry& e, std::span<const T> host) const {
    require<config_error>(!e.spec.blocks, "parameter '", e.spec.name, "': must be loaded from a GGUF file in whose blocks it is stored; numbers are given");
    if (e.spec.quantized && e.spec.integer_bits > 0) {
      const row_integers_view<memory> to = integers(e);
      const row_integers_array made = row_integers::quantize<T>(host, to.columns, to.bits, e.spec.name);
      copy_to_device(stream, to.code, made.code);
      copy_to_device(stream, to.scale_r, made.scale_r);
      stream.synchronize();
    } else if (e.spec.quantized) {
      const nf4_array made = nf4::quantize<T>(host);
      const nf4_view<memory> to = quantized(e);
      copy_to_device(stream, to.code_n2, made.code_n2);
      copy_to_device(stream, to.scale_k, made.scale_k);
      copy_to_device(stream, to.outer, made.outer);
      stream.synchronize();
    } else if constexpr (host_addressable<Device>) {
      write(stream, e, 0, host);
      stream.synchronize();
    } else {
      pinned_pipe<Device> pipe(device());
      pipe.template to_device<parameter_type>(
          stream, host.size(),
          [&](std::size_t first, std::span<parameter_type> values) {
            std::copy_n(host.begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
          },
          [&](std::size_t first, std::span<const parameter_type> values) { write(stream, e, first, values); });
    }
  }
  /// Zeroes everything, then initializes parameters with a `chosen` name, as a function of (seed, name, element).
  template <class Stream, class Chosen>
  void initialise(Stream& stream, std::uint64_t seed, Chosen&& chosen) const {
    fill_zero(stream, values_.template as<parameter_type>());
    if (sharding().values) fill_zero(stream, value_windows_.template as<parameter_type>());
    fill_zero(stream, codes_.template as<std::uint8_t>());
    fill_zero(stream, outer_scales_.template as<float>());
    std::vector<parameter_type> host;
    pinned_pipe<Device> pipe(device());
    for (const entry& e : entries()) {
      if (!e.is_here || !chosen(e.spec.name)) continue;
      const initial_values& initial = e.spec.initial;
      if (initial.distribution == initial_values::kind::constant && initial.value == 0) continue;
      const random_site site{.seed = seed, .step = ~std::uint32_t{0}, .site = site_of_name(e.spec.name), .first = 0};
      if (e.spec.cut.exists()) {
        host.resize(e.size());
        e.spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t n) {
          initial.draw(site, whole, std::span<parameter_type>(host).subspan(here, n));
        });
        set(stream, e, std::span<const parameter_type>(host));
        continue;
      }
      const auto draw = [&](std::size_t first, std::span<parameter_type> values) {
        constexpr std::size_t chunk = 1 << 14;
        const auto fill = [&](std::size_t part, std::size_t) {
          const std::size_t begin = part * chunk, count = std::min(chunk, values.size() - begin);
          initial.draw(site, first + begin, values.subspan(begin, count));
        };
        const auto pool = thread_pool::shared();
        pool->run((values.size() + chunk - 1) / chunk, pool->threads(), fill);
      };
      if (e.spec.quantized) {
        host.resize(e.size());
        draw(0, host);
        set(stream, e, std::span<const parameter_type>(host));
      } else {
        pipe.template to_device<parameter_type>(
            stream, e.size(), draw, [&](std::size_t first, std::span<const parameter_type> values) { write(stream, e, first, values); });
      }
    }
  }

  /// Trained values with padding (always zero). Empty if this rank stores only its shard.
  [[nodiscard]] device_span<parameter_type, memory> trained_values() const {
    await_all();
    return values_.template as<parameter_type>().subspan(0, sharding().values ? 0 : layout_.trained());
  }
  /// This rank's weights: all, or shards.
  [[nodiscard]] device_span<parameter_type, memory> stored_values() const {
    await_all();
    return values_.template as<parameter_type>();
  }
  [[nodiscard]] device_span<gradient_type, memory> gradients() const { return gradients_.template as<gradient_type>(); }
  [[nodiscard]] device_span<parameter_type, memory> values_of(const parameter_slice& run) const {
    await_all();
    return values_.template as<parameter_type>().subspan(sharding().values ? run.kept : run.begin, run.size());
  }
  [[nodiscard]] device_span<gradient_type, memory> gradients_of(const parameter_slice& run) const {
    return gradients_.template as<gradient_type>().subspan(sharding().gradients ? run.kept : run.begin, run.size());
  }

  /// A block as communicated: unsharded, and this rank's shard.
  template <class T>
  struct block_memory {
    device_span<T, memory> whole{}, part{};
  };
  /// The shard stays inside the block until it is added to stored gradients.
  [[nodiscard]] block_memory<gradient_type> block_gradients(std::size_t index) const {
    const std::size_t n = block(index).size(), part = n / sharding().parts;
    const auto whole = sharding().gradients ? gradient_windows_.template as<gradient_type>().subspan(layout_.gradient_window(index), n)
                                            : gradients_.template as<gradient_type>().subspan(block(index).begin, n);
    return {whole, whole.subspan(sharding().part * part, part)};
  }
  [[nodiscard]] device_span<gradient_type, memory> stored_gradients(std::size_t index) const {
    const parameter_slice whole = block(index);
    return gradients_.template as<gradient_type>().subspan(whole.begin / sharding().parts, whole.size() / sharding().parts);
  }
  /// A block's trained or frozen weights.
  [[nodiscard]] block_memory<parameter_type> block_values(std::size_t index, bool frozen) const {
    const parameter_layout::range range = layout_.block(index, !frozen);
    const std::size_t begin = range.begin, n = range.size(), part = n / sharding().parts;
    const auto all = values_.template as<parameter_type>();
    if (!sharding().values) return {all.subspan(begin, n), all.subspan(begin + sharding().part * part, part)};
    return {value_windows_.template as<parameter_type>().subspan(layout_.value_window(index, !frozen), n),
            all.subspan(begin / sharding().parts, part)};
  }

 private:
  static void require_values(const entry& e) {
    require<config_error>(!e.spec.quantized, "parameter '", e.spec.name, "': must not be quantized where its values are asked for");
  }

  void await(std::size_t block) const {
    if (arrive_) arrive_(block);
  }
  void await_all() const {
    for (std::size_t b = 0; arrive_ && b < blocks(); ++b) arrive_(b);
  }

  [[nodiscard]] device_span<parameter_type, memory> value_at(const entry& e, std::size_t n) const {
    await(e.block);
    if (!sharding().values) return values_.template as<parameter_type>().subspan(e.offset, n);
    return value_windows_.template as<parameter_type>().subspan(layout_.in_value_window(e), n);
  }
  [[nodiscard]] device_span<gradient_type, memory> gradient_at(const entry& e, std::size_t n) const {
    if (!sharding().gradients) return gradients_.template as<gradient_type>().subspan(e.offset, n);
    return gradient_windows_.template as<gradient_type>().subspan(layout_.in_gradient_window(e), n);
  }

  typename Device::context device_;
  parameter_layout layout_;
  std::function<void(std::size_t)> arrive_{};  // empty: all weights are present
  mutable std::size_t changes_ = 0;
  std::uint32_t gradient_users_ = 0;
  bool has_merged_adapter_ = false;
  buffer<Device> values_, value_windows_;
  buffer<Device> gradients_, gradient_windows_;
  buffer<Device> codes_, outer_scales_;
};

}  // namespace xtrain
