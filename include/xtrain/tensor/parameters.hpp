// The parameters of a model in one flat, contiguous array, each with a name. Layers hold handles; code that visits all parameters
// (optimizers, checkpoints, reductions) sees one array.
//
// Memory order: trained parameters first, then frozen ones; within each, block by block; within a block, matrices before
// vectors. So a block is a range, and so is the part of a block that weight decay applies to.
//
// Data-parallel ranks can shard the array: each stores an equal shard of every block (see `shard_spec`, ZeRO). Blocks in use are then gathered
// into windows: memory that blocks share in turn. Pipeline- and expert-parallel ranks, which have different blocks or experts, know the
// names and shapes of all parameters, and allocate memory for their own (see `keep`, `keep_owned_by`).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cpu/threads.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/parameter.hpp>
#include <xtrain/tensor/shard_spec.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

template <class Device, class Precision>
class parameter_store {
 public:
  using memory = typename Device::memory;
  using precision = Precision;
  using parameter_type = typename Precision::parameter;
  using gradient_type = typename Precision::gradient;

  /// One parameter in the store.
  struct entry {
    parameter_spec spec{};
    std::size_t block = 0;
    std::size_t offset = 0;  // trained: in the flat array of trained parameters; frozen: in the same array, after the trained ones;
                             // quantized: index among the quantized parameters
    std::uint32_t group = 0;
    bool is_here = true;  // false: on another rank, no memory allocated here

    [[nodiscard]] std::size_t size() const {
      std::size_t product = 1;
      for (const std::size_t dim : spec.shape) product *= dim;
      return product;
    }
    /// Number of elements of the whole parameter, as in files.
    [[nodiscard]] std::size_t whole_size() const {
      std::size_t product = 1;
      for (const std::size_t dim : spec.whole_shape()) product *= dim;
      return product;
    }
    [[nodiscard]] bool decays() const { return spec.shape.size() > 1; }
  };

  explicit parameter_store(const typename Device::context& device)
      : device_(device), values_(device, 0, memory_role::weights), value_windows_(device, 0, memory_role::weights),
        gradients_(device, 0, memory_role::gradients), gradient_windows_(device, 0, memory_role::gradients),
        codes_(device, 0, memory_role::weights), outer_scales_(device, 0, memory_role::weights) {}

  /// Parameters declared after this call belong to block `index`. Blocks are the unit of memory movement and gradient
  /// reduction.
  void begin_block(std::size_t index) { block_ = index; }
  [[nodiscard]] std::size_t blocks() const { return block_ + 1; }
  /// Parameters declared after this call have the given owner among the expert-parallel ranks, or are on all of them.
  void begin_owner(std::optional<std::size_t> rank) { owner_ = rank; }

  /// Declares parameters that will be adjacent in memory, in this order.
  ///   throws  config_error when a name is taken or the parameters do not have the same rank, columns and trainability
  parameter declare(std::vector<parameter_spec> adjacent) {
    require<config_error>(!adjacent.empty(), "parameters: at least one must be declared");
    const parameter_spec& first = adjacent.front();
    for (const parameter_spec& spec : adjacent) {
      require<config_error>(!find(spec.name), "parameters: names must be different; '", spec.name, "' is declared twice");
      require<config_error>(spec.shape.size() == first.shape.size() && (spec.shape.size() < 2 || spec.shape[1] == first.shape[1]),
                            "parameters: '", spec.name, "' and '", first.name, "' are used as one matrix and must have the same columns");
      require<config_error>(spec.trainable == first.trainable, "parameters: '", spec.name, "' and '", first.name,
                            "' are computed together; train both or none");
      require<config_error>(spec.quantised == first.quantised && !(spec.quantised && spec.trainable), "parameters: '", spec.name,
                            "' must be quantized only if it is frozen and '", first.name, "' is too");
    }
    const parameter handle(static_cast<std::uint32_t>(entries_.size()), static_cast<std::uint32_t>(adjacent.size()));
    for (parameter_spec& spec : adjacent) {
      spec.owner = owner_;
      numbers_.emplace(spec.name, entries_.size());
      entries_.push_back({std::move(spec), block_, 0, handle.first()});
    }
    return handle;
  }
  parameter declare(parameter_spec spec) {
    std::vector<parameter_spec> one;
    one.push_back(std::move(spec));
    return declare(std::move(one));
  }

  /// Records that `block` reads parameters of block `other`: both are needed while it is computed.
  void reads_from(std::size_t block, std::size_t other) { also_read_.push_back({block, other}); }
  /// Calls visit(other) for every other block that the block reads from.
  template <class Visit>
  void for_each_read_by(std::size_t block, Visit&& visit) const {
    for (const auto& [reader, other] : also_read_)
      if (reader == block) visit(other);
  }

  /// Allocates memory on this rank only for parameters where chosen(entry) is true; other ranks have the rest. Call before allocate().
  template <class Chosen>
  void keep(Chosen&& chosen) {
    for (entry& e : entries_) {
      const bool keeps = chosen(e);
      blocks_here_ = blocks_here_ && keeps;
      e.is_here = e.is_here && keeps;
      all_here_ = all_here_ && e.is_here;
    }
  }
  /// Of the parameters with an owner, expert-parallel rank `rank` allocates memory for those that it owns; every rank has
  /// the other parameters. Call before allocate().
  void keep_owned_by(std::size_t rank) {
    for (entry& e : entries_) {
      e.is_here = !e.spec.owner || *e.spec.owner == rank;
      all_here_ = all_here_ && e.is_here;
    }
  }
  /// False if some parameters are on other ranks.
  [[nodiscard]] bool all_here() const { return all_here_; }

  /// Assigns offsets to all declared parameters and allocates their values. Nothing can be declared afterwards.
  ///   throws  memory_error when they do not fit
  void allocate(const shard_spec& sharding = {}) {
    sharding_ = sharding;
    double numbers = 0;  // shapes may come from a file: their products must not overflow
    for (const entry& e : entries_) {
      double product = 1;
      for (const std::size_t dim : e.spec.shape) product *= static_cast<double>(dim);
      numbers += product;
    }
    require<memory_error>(numbers < 0x1p56, "parameters: a model must have fewer than 2^56 numbers; its shapes make ", count_text(numbers));
    lay_out();
    find_runs();
    values_ = buffer<Device>(device_, (sharding_.values ? total_ / sharding_.parts : total_) * sizeof(parameter_type), memory_role::weights);
    if (sharding_.values)
      value_windows_ = buffer<Device>(device_, place_windows(value_window_, true) * sizeof(parameter_type), memory_role::weights);
    if (quantised_.empty()) return;
    codes_ = buffer<Device>(device_, quantised_.back().codes_end(), memory_role::weights);
    outer_scales_ = buffer<Device>(device_, quantised_.back().outer_end() * sizeof(float), memory_role::weights);
  }

  /// Allocates gradients of the trained parameters, uninitialized.
  void allocate_gradients() {
    gradients_ = buffer<Device>(device_, (sharding_.gradients ? trained_ / sharding_.parts : trained_) * sizeof(gradient_type),
                                memory_role::gradients);
    if (sharding_.gradients)
      gradient_windows_ = buffer<Device>(device_, place_windows(gradient_window_, false) * sizeof(gradient_type), memory_role::gradients);
  }
  [[nodiscard]] bool has_gradients() const { return gradients_.bytes() != 0; }

  /// Weights updated by other ranks may still be in transit when a step ends. Every access to the weights of a block then first calls
  /// arrive(block), which waits for them. Views taken earlier must be taken again.
  void when_read(std::function<void(std::size_t block)> arrive) { arrive_ = std::move(arrive); }

  /// Empty if the parameter is on another rank.
  ///   throws  config_error when it is quantized: it has no values
  [[nodiscard]] device_span<parameter_type, memory> value(parameter p) const {
    const entry& first = entries_[p.first()];
    require_values(first);
    return first.is_here ? value_at(first, size(p)) : device_span<parameter_type, memory>{};
  }
  /// Empty when the parameter is frozen or gradients are not allocated.
  [[nodiscard]] device_span<gradient_type, memory> gradient(parameter p) const {
    if (!trains(p) || !has_gradients() || !entries_[p.first()].is_here) return {};
    return gradient_at(entries_[p.first()], size(p));
  }
  [[nodiscard]] bool trains(parameter p) const { return p.exists() && entries_[p.first()].spec.trainable; }
  [[nodiscard]] std::size_t size(parameter p) const {
    std::size_t all = 0;
    for (std::uint32_t i = 0; i < p.count(); ++i) all += entries_[p.first() + i].size();
    return all;
  }

  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }
  /// With sharded weights this is the block's window, defined only while the block is gathered.
  [[nodiscard]] device_span<parameter_type, memory> value(const entry& e) const {
    require_values(e);
    return e.is_here ? value_at(e, e.size()) : device_span<parameter_type, memory>{};
  }
  [[nodiscard]] device_span<gradient_type, memory> gradient(const entry& e) const {
    if (!e.spec.trainable || !has_gradients() || !e.is_here) return {};
    return gradient_at(e, e.size());
  }
  /// throws config_error when this rank does not have all weights; `who` names the caller
  void require_whole(std::string_view who) const {
    require_all_here(who);
    require_undivided(who);
  }
  /// throws config_error when some parameters are on other ranks
  void require_all_here(std::string_view who) const {
    require<config_error>(all_here_, who, ": all of the model must be on this rank; its strategy gives ranks different ",
                          blocks_here_ ? "experts" : "layers", ". Save the model, and do it where one rank loads it");
  }
  /// throws config_error when some blocks are on other ranks
  void require_blocks_here(std::string_view who) const {
    if (!blocks_here_) require_all_here(who);
  }
  /// throws config_error when weights are sharded within blocks
  void require_undivided(std::string_view who) const {
    const bool whole = !sharding_.values && std::none_of(entries_.begin(), entries_.end(), [](const entry& e) { return e.spec.cut.exists(); });
    require<config_error>(whole, who, ": all weights must be on this rank; its strategy shards them among ranks. ",
                          "Save the model, and do it where one rank loads it");
  }
  /// Sets elements of a parameter from `first` on, as far as this rank stores them. The host memory must stay valid until the
  /// stream is synchronized.
  template <class Stream>
  void write(Stream& stream, const entry& e, std::size_t first, std::span<const parameter_type> host) const {
    if (!e.is_here) return;
    await(e.block);
    const auto all = values_.template as<parameter_type>();
    if (!sharding_.values) return copy_to_device(stream, all.subspan(e.offset + first, host.size()), host);
    const piece own = piece_of(e);
    const std::size_t from = std::max(first, own.first), to = std::min(first + host.size(), own.first + own.count);
    if (from < to) copy_to_device(stream, all.subspan(own.kept + from - own.first, to - from), host.subspan(from - first, to - from));
  }
  [[nodiscard]] bool is_quantised(parameter p) const { return p.exists() && entries_[p.first()].spec.quantised; }
  /// The memory of a quantized parameter.
  [[nodiscard]] nf4_view<memory> quantised(const entry& e) const {
    const quantised_place& at = quantised_[e.offset];
    const auto bytes = codes_.template as<std::uint8_t>();
    return {.n = at.n,
            .code_n2 = bytes.subspan(at.codes, nf4::code_bytes(at.n)),
            .scale_k = bytes.subspan(at.codes + nf4::code_bytes(at.n), nf4::scales(at.n)),
            .outer = outer_scales_.template as<float>().subspan(at.outer, nf4::outer_scales(at.n))};
  }
  /// Sets all values of a parameter from the host; quantizes them if the parameter is quantized.
  template <class Stream, class T>
  void set(Stream& stream, const entry& e, std::span<const T> host) const {
    if (e.spec.quantised) {
      const nf4_numbers made = nf4::quantise<T>(host);
      const nf4_view<memory> to = quantised(e);
      copy_to_device(stream, to.code_n2, made.code_n2);
      copy_to_device(stream, to.scale_k, made.scale_k);
      copy_to_device(stream, to.outer, made.outer);
      stream.synchronize();
    } else {
      write(stream, e, 0, host);
      stream.synchronize();
    }
  }
  /// Bytes of all values.
  [[nodiscard]] std::size_t bytes() const { return values_.bytes() + value_windows_.bytes() + codes_.bytes() + outer_scales_.bytes(); }

  /// The parameter of that name, or null.
  [[nodiscard]] const entry* find(std::string_view name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? nullptr : &entries_[found->second];
  }

  /// A handle to that one parameter, even if it is part of a fused matrix; a handle with exists() == false if there is none of that name.
  [[nodiscard]] parameter handle_of(std::string_view name) const {
    const entry* found = find(name);
    return found == nullptr ? parameter{} : parameter(static_cast<std::uint32_t>(found - entries_.data()), 1);
  }

  [[nodiscard]] const shard_spec& sharding() const { return sharding_; }
  /// All trained values, including the padding between parameters (padding is zero and stays zero). Empty if this rank stores only
  /// its shard.
  [[nodiscard]] device_span<parameter_type, memory> trained_values() const {
    await_all();
    return values_.template as<parameter_type>().subspan(0, sharding_.values ? 0 : trained_);
  }
  /// The gradients that this rank stores: of all trained parameters, or of its shard.
  [[nodiscard]] device_span<gradient_type, memory> gradients() const { return gradients_.template as<gradient_type>(); }

  /// What this rank's optimizer steps: all trained parameters, or a shard of every block.
  [[nodiscard]] const std::vector<decay_run>& decay_runs() const { return runs_; }
  /// Number of elements in all runs: the length of the optimizer state arrays.
  [[nodiscard]] std::size_t stepped() const { return trained_ / sharding_.parts; }
  [[nodiscard]] device_span<parameter_type, memory> values_of(const decay_run& run) const {
    await_all();
    return values_.template as<parameter_type>().subspan(sharding_.values ? run.kept : run.begin, run.size());
  }
  [[nodiscard]] device_span<gradient_type, memory> gradients_of(const decay_run& run) const {
    return gradients_.template as<gradient_type>().subspan(sharding_.gradients ? run.kept : run.begin, run.size());
  }
  /// Elements of a parameter that one rank stores, and where they begin in its arrays.
  struct piece {
    std::size_t first = 0, kept = 0, count = 0;
  };
  /// The elements of a parameter in shard `part` of its block; may be empty.
  [[nodiscard]] piece piece_of(const entry& e, std::size_t part) const {
    if (!e.is_here || e.spec.quantised) return {};  // 4-bit values are stored separately and are never sharded
    const std::size_t block = begins_of(e)[e.block], size = own_size(e), own = block + part * size;
    const std::size_t from = std::max(e.offset, own), to = std::min(e.offset + e.size(), own + size);
    return from < to ? piece{from - e.offset, block / sharding_.parts + (from - own), to - from} : piece{};
  }
  [[nodiscard]] piece piece_of(const entry& e) const { return piece_of(e, sharding_.part); }
  /// The weights that this rank stores: all of them, or its shards.
  [[nodiscard]] device_span<parameter_type, memory> stored_values() const {
    await_all();
    return values_.template as<parameter_type>();
  }

  /// The range of a block in the flat array of trained parameters.
  [[nodiscard]] decay_run block(std::size_t index) const { return {block_begin_[index], block_begin_[index + 1]}; }
  /// A block as it is communicated: the whole block, and this rank's shard of it.
  template <class T>
  struct block_memory {
    device_span<T, memory> whole{}, part{};
  };
  /// Gradients: the shard is inside the whole block until it is added to the gradients that this rank stores.
  [[nodiscard]] block_memory<gradient_type> block_gradients(std::size_t index) const {
    const std::size_t begin = block_begin_[index], n = block_begin_[index + 1] - begin, part = n / sharding_.parts;
    const auto whole = sharding_.gradients ? gradient_windows_.template as<gradient_type>().subspan(gradient_window_[index], n)
                                          : gradients_.template as<gradient_type>().subspan(begin, n);
    return {whole, whole.subspan(sharding_.part * part, part)};
  }
  [[nodiscard]] device_span<gradient_type, memory> stored_gradients(std::size_t index) const {
    return gradients_.template as<gradient_type>().subspan(block_begin_[index] / sharding_.parts,
                                                           (block_begin_[index + 1] - block_begin_[index]) / sharding_.parts);
  }
  /// The trained weights of a block, or its frozen ones if `frozen`.
  [[nodiscard]] block_memory<parameter_type> block_values(std::size_t index, bool frozen) const {
    const std::vector<std::size_t>& begins = frozen ? frozen_begin_ : block_begin_;
    const std::size_t begin = begins[index], n = begins[index + 1] - begin, part = n / sharding_.parts;
    const auto all = values_.template as<parameter_type>();
    if (!sharding_.values) return {all.subspan(begin, n), all.subspan(begin + sharding_.part * part, part)};
    const std::size_t window = value_window_[index] + (frozen ? block_begin_[index + 1] - block_begin_[index] : 0);
    return {value_windows_.template as<parameter_type>().subspan(window, n), all.subspan(begin / sharding_.parts, part)};
  }
  /// Whether two blocks use the same window: the first and the last block have their own, the others alternate between two windows.
  [[nodiscard]] bool share_window(std::size_t a, std::size_t b) const {
    const std::size_t last = blocks() - 1;
    return a == b || (a != 0 && b != 0 && a != last && b != last && a % 2 == b % 2);
  }

  /// Length of the flat array of all parameters, including padding.
  [[nodiscard]] std::size_t total() const { return total_; }
  /// Number of elements of all parameters, without padding.
  [[nodiscard]] std::size_t count() const { return counted(false); }
  /// Number of elements of the trained parameters.
  [[nodiscard]] std::size_t trained_count() const { return counted(true); }

  [[nodiscard]] const typename Device::context& device() const { return device_; }

  /// Sets everything to zero, then every parameter whose name is `chosen` to its initial values, which are a function of (seed, name,
  /// element).
  template <class Stream, class Chosen>
  void initialise(Stream& stream, std::uint64_t seed, Chosen&& chosen) const {
    fill_zero(stream, values_.template as<parameter_type>());
    if (sharding_.values) fill_zero(stream, value_windows_.template as<parameter_type>());
    fill_zero(stream, codes_.template as<std::uint8_t>());
    fill_zero(stream, outer_scales_.template as<float>());
    std::vector<parameter_type> host;
    for (const entry& e : entries_) {
      if (!e.is_here || !chosen(e.spec.name)) continue;
      const initial_values& initial = e.spec.initial;
      if (initial.distribution == initial_values::kind::constant && initial.value == 0) continue;
      host.resize(e.size());
      const random_site site{.seed = seed, .step = ~std::uint32_t{0}, .site = site_of_name(e.spec.name), .first = 0};
      if (e.spec.cut.exists()) {
        e.spec.for_each_range([&](std::size_t here, std::size_t whole, std::size_t n) {
          initial.draw(site, whole, std::span<parameter_type>(host).subspan(here, n));
        });
        write(stream, e, 0, host);
        stream.synchronize();
        continue;
      }
      constexpr std::size_t chunk = 1 << 14;
      const auto fill = [&](std::size_t part, std::size_t) {
        const std::size_t begin = part * chunk, end = std::min(host.size(), begin + chunk);
        initial.draw(site, begin, std::span<parameter_type>(host).subspan(begin, end - begin));
      };
      const auto pool = thread_pool::shared();
      pool->run((host.size() + chunk - 1) / chunk, pool->threads(), fill);
      set(stream, e, std::span<const parameter_type>(host));
    }
  }

 private:
  static constexpr std::size_t alignment = 32;  // elements: at least a cache line for every dtype, gradients and master weights included

  /// Where one quantized parameter's codes, followed by its scales, and its outer scales are.
  struct quantised_place {
    std::size_t n = 0, codes = 0, outer = 0;

    [[nodiscard]] std::size_t codes_end() const {
      return (codes + nf4::code_bytes(n) + nf4::scales(n) + alignment - 1) / alignment * alignment;
    }
    [[nodiscard]] std::size_t outer_end() const { return outer + nf4::outer_scales(n); }
  };
  [[nodiscard]] static quantised_place place_behind(const std::vector<quantised_place>& others, std::size_t n) {
    if (others.empty()) return {.n = n};
    return {.n = n, .codes = others.back().codes_end(), .outer = others.back().outer_end()};
  }
  static void require_values(const entry& e) {
    require<config_error>(!e.spec.quantised, "parameter '", e.spec.name, "': must not be quantized where its values are asked for");
  }

  [[nodiscard]] std::size_t counted(bool trained_only) const {
    std::size_t all = 0;
    for (const entry& e : entries_)
      if (!trained_only || e.spec.trainable) all += e.size();
    return all;
  }

  /// Computes the offsets of all parameters. With sharding, every block is padded to equal shards.
  void lay_out() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].group == i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto key = [&](const entry& e) {
        return std::array<std::size_t, 3>{e.spec.trainable ? 0U : 1U, e.block, e.decays() ? 0U : 1U};
      };
      return key(entries_[a]) < key(entries_[b]);
    });
    std::size_t offset = 0, next = 0, elsewhere = 0;  // elsewhere: elements in front that only other ranks have
    const auto place_blocks = [&](bool trainable, std::vector<std::size_t>& begins) {
      begins.assign(blocks() + 1, offset);
      for (std::size_t b = 0; b < blocks(); ++b) {
        for (; next < order.size() && entries_[order[next]].block == b && entries_[order[next]].spec.trainable == trainable; ++next) {
          std::size_t& end = entries_[order[next]].is_here ? offset : elsewhere;
          if (&end == &offset && (in_front_.empty() || in_front_.back().elsewhere != elsewhere)) in_front_.push_back({offset, elsewhere});
          for (std::uint32_t i = order[next]; i < entries_.size() && entries_[i].group == order[next]; ++i) {
            if (entries_[i].spec.quantised) {
              if (!entries_[i].is_here) continue;
              entries_[i].offset = quantised_.size();
              quantised_.push_back(place_behind(quantised_, entries_[i].size()));
              continue;
            }
            if (entries_[i].is_here) entries_[i].offset = end;
            end += entries_[i].size();
          }
          end = (end + alignment - 1) / alignment * alignment;
        }
        const std::size_t equal = alignment * sharding_.parts;
        offset = (offset + equal - 1) / equal * equal;
        elsewhere = (elsewhere + equal - 1) / equal * equal;
        begins[b + 1] = offset;
      }
    };
    in_front_.clear();
    place_blocks(true, block_begin_);
    trained_ = offset;
    place_blocks(false, frozen_begin_);
    total_ = offset;
  }

  /// Ranges with and without weight decay, restricted to what this rank steps.
  void find_runs() {
    const auto add = [&](const decay_run& run) {
      if (run.begin >= run.end) return;
      decay_run* last = runs_.empty() ? nullptr : &runs_.back();
      if (last != nullptr && last->decays == run.decays && last->end == run.begin && last->kept + last->size() == run.kept &&
          last->element + last->size() == run.element)
        last->end = run.end;
      else runs_.push_back(run);
    };
    // split where parameters on other ranks lie in between in the full array
    const auto add_pieces = [&](std::size_t begin, std::size_t end, bool decays, std::size_t kept) {
      for (std::size_t i = 0; i < in_front_.size(); ++i) {
        const std::size_t from = std::max(begin, in_front_[i].offset);
        const std::size_t to = std::min(end, i + 1 < in_front_.size() ? in_front_[i + 1].offset : end);
        if (from < to) add({from, to, decays, kept + (from - begin), from + in_front_[i].elsewhere});
      }
    };
    for (std::size_t b = 0; b < blocks(); ++b) {
      const std::size_t begin = block_begin_[b], end = block_begin_[b + 1], part = (end - begin) / sharding_.parts;
      std::size_t vectors = begin;  // where matrices end: padding belongs to what precedes it
      bool any = false;
      for (const entry& e : entries_) {
        if (!e.spec.trainable || e.block != b || e.decays() || !e.is_here) continue;
        vectors = any ? std::min(vectors, e.offset) : e.offset;
        any = true;
      }
      if (!any) vectors = end;
      const std::size_t own = begin + sharding_.part * part, own_end = own + part;
      const auto kept = [&](std::size_t at) { return begin / sharding_.parts + (at - own); };
      const std::size_t middle = std::clamp(vectors, own, own_end);
      add_pieces(own, middle, true, kept(own));
      add_pieces(middle, own_end, false, kept(middle));
    }
  }

  /// The block boundaries for an entry's kind (trained or frozen), and the shard size of its block.
  [[nodiscard]] const std::vector<std::size_t>& begins_of(const entry& e) const { return e.spec.trainable ? block_begin_ : frozen_begin_; }
  [[nodiscard]] std::size_t own_size(const entry& e) const {
    return (begins_of(e)[e.block + 1] - begins_of(e)[e.block]) / sharding_.parts;
  }

  /// Computes where each block's window begins; returns the total length.
  [[nodiscard]] std::size_t place_windows(std::vector<std::size_t>& begins, bool frozen_too) const {
    const auto size_of = [&](std::size_t b) {
      return block_begin_[b + 1] - block_begin_[b] + (frozen_too ? frozen_begin_[b + 1] - frozen_begin_[b] : 0);
    };
    const std::size_t last = blocks() - 1;
    std::array<std::size_t, 2> largest{};
    for (std::size_t b = 1; b < last; ++b) largest[b % 2] = std::max(largest[b % 2], size_of(b));
    begins.assign(blocks(), 0);
    const std::size_t behind_first = size_of(0), behind_last = behind_first + (last == 0 ? 0 : size_of(last));
    for (std::size_t b = 1; b < last; ++b) begins[b] = behind_last + (b % 2 == 0 ? 0 : largest[0]);
    if (last != 0) begins[last] = behind_first;
    return behind_last + largest[0] + largest[1];
  }

  void await(std::size_t block) const {
    if (arrive_) arrive_(block);
  }
  void await_all() const {
    for (std::size_t b = 0; arrive_ && b < blocks(); ++b) arrive_(b);
  }

  [[nodiscard]] device_span<parameter_type, memory> value_at(const entry& e, std::size_t n) const {
    await(e.block);
    if (!sharding_.values) return values_.template as<parameter_type>().subspan(e.offset, n);
    const std::size_t in_block =
        e.offset - begins_of(e)[e.block] + (e.spec.trainable ? 0 : block_begin_[e.block + 1] - block_begin_[e.block]);
    return value_windows_.template as<parameter_type>().subspan(value_window_[e.block] + in_block, n);
  }
  [[nodiscard]] device_span<gradient_type, memory> gradient_at(const entry& e, std::size_t n) const {
    if (!sharding_.gradients) return gradients_.template as<gradient_type>().subspan(e.offset, n);
    return gradient_windows_.template as<gradient_type>().subspan(gradient_window_[e.block] + e.offset - block_begin_[e.block], n);
  }

  typename Device::context device_;
  std::vector<entry> entries_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // index of an entry by name
  std::vector<decay_run> runs_;
  std::vector<std::pair<std::size_t, std::size_t>> also_read_;
  shard_spec sharding_{};
  std::vector<std::size_t> block_begin_, frozen_begin_;     // in the flat array, by block; number of blocks + 1 elements
  struct displacement {
    std::size_t offset = 0, elsewhere = 0;
  };
  std::vector<displacement> in_front_;  // from an offset on, how many elements in front are on other ranks
  std::vector<std::size_t> value_window_, gradient_window_;  // where windows begin, by block
  std::size_t block_ = 0;
  std::optional<std::size_t> owner_{};
  std::function<void(std::size_t)> arrive_{};  // empty: all weights are present
  bool all_here_ = true, blocks_here_ = true;
  std::size_t trained_ = 0;
  std::size_t total_ = 0;
  buffer<Device> values_, value_windows_;
  buffer<Device> gradients_, gradient_windows_;
  std::vector<quantised_place> quantised_;
  buffer<Device> codes_, outer_scales_;
};

}  // namespace xtrain
