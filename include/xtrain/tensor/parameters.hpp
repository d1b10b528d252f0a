// The parameters of a model: named, flat, contiguous. Layers hold handles; whoever walks over all parameters (an optimizer,
// a checkpoint, a reduction) sees one array.
//
// Order in memory: what is trained first, what is frozen behind it; within each, block by block; within a block, matrices
// before vectors. So a block is a range, and so is everything in a block that weight decay applies to.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cpu/threads.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// What a parameter is before training.
struct initial_values {
  enum class kind : std::uint8_t { constant, normal, uniform };
  kind distribution = kind::constant;
  double value = 0;  // the constant, the standard deviation around zero, or the largest magnitude

  [[nodiscard]] static constexpr initial_values constant(double value) { return {kind::constant, value}; }
  [[nodiscard]] static constexpr initial_values normal(double deviation) { return {kind::normal, deviation}; }
  [[nodiscard]] static constexpr initial_values uniform(double largest) { return {kind::uniform, largest}; }

  /// Elements 4·quad … 4·quad + 3, a function of the site.
  [[nodiscard]] std::array<double, 4> quad(const random_site& site, std::uint64_t index) const {
    std::array<double, 4> values{value, value, value, value};
    if (distribution == kind::normal) {
      const auto drawn = normal_quad(site, index);
      for (std::size_t i = 0; i < 4; ++i) values[i] *= static_cast<double>(drawn[i]);
    } else if (distribution == kind::uniform) {
      const auto drawn = random_quad(site, index);
      for (std::size_t i = 0; i < 4; ++i) values[i] *= 2.0 * static_cast<double>(uniform_open(drawn[i])) - 1.0;
    }
    return values;
  }
};

/// The order in which files hold a parameter's rows: our row i is the file's row (*order)[i]. None: as they are.
using file_order = std::shared_ptr<const std::vector<std::uint32_t>>;

/// One named parameter.
struct parameter_spec {
  std::string name{};                // as files name it, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::size_t> shape{};  // one or two dims; matrices are [out, in]
  initial_values initial{};
  bool trainable = true;
  bool transposed_in_files = false;  // files hold [in, out]
  file_order rows_in_files{};
  bool quantised = false;  // kept in four bits; not trained
};

/// A handle: one parameter, or several that lie side by side and are used as one matrix (queries, keys and values).
class parameter {
 public:
  constexpr parameter() = default;
  constexpr parameter(std::uint32_t first, std::uint32_t count) : first_(first), count_(count) {}
  [[nodiscard]] constexpr std::uint32_t first() const { return first_; }
  [[nodiscard]] constexpr std::uint32_t count() const { return count_; }
  [[nodiscard]] constexpr bool exists() const { return count_ != 0; }

 private:
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
};

/// A range of the flat array of trained parameters that weight decay applies to, or does not.
struct decay_run {
  std::size_t begin = 0, end = 0;
  bool decays = false;
};

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
    std::size_t offset = 0;  // of the trained ones: in the flat array of trained parameters; of the frozen: behind them;
                             // of the quantised: which of these it is
    std::uint32_t group = 0;

    [[nodiscard]] std::size_t size() const {
      std::size_t product = 1;
      for (const std::size_t dim : spec.shape) product *= dim;
      return product;
    }
    [[nodiscard]] bool decays() const { return spec.shape.size() > 1; }
  };

  explicit parameter_store(const typename Device::context& device)
      : device_(device), values_(device, 0, memory_role::weights), gradients_(device, 0, memory_role::gradients),
        codes_(device, 0, memory_role::weights), outer_scales_(device, 0, memory_role::weights) {}

  /// Parameters declared from now on belong to block `index`. Blocks are the unit in which memory moves and gradients are
  /// reduced.
  void begin_block(std::size_t index) { block_ = index; }
  [[nodiscard]] std::size_t blocks() const { return block_ + 1; }

  /// Parameters that will lie side by side in this order.
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
                            "' must be quantised only if it is frozen and '", first.name, "' is too");
    }
    const parameter handle(static_cast<std::uint32_t>(entries_.size()), static_cast<std::uint32_t>(adjacent.size()));
    for (parameter_spec& spec : adjacent) entries_.push_back({std::move(spec), block_, 0, handle.first()});
    return handle;
  }
  parameter declare(parameter_spec spec) {
    std::vector<parameter_spec> one;
    one.push_back(std::move(spec));
    return declare(std::move(one));
  }

  /// Lays all declared parameters out and allocates their values. Nothing can be declared afterwards.
  ///   throws  memory_error when they do not fit
  void allocate() {
    double numbers = 0;  // shapes may come from a file: their products must not wrap around
    for (const entry& e : entries_) {
      double product = 1;
      for (const std::size_t dim : e.spec.shape) product *= static_cast<double>(dim);
      numbers += product;
    }
    require<memory_error>(numbers < 0x1p56, "parameters: a model must have fewer than 2^56 numbers; its shapes make ", count_text(numbers));
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].group == i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto key = [&](const entry& e) {
        return std::array<std::size_t, 3>{e.spec.trainable ? 0U : 1U, e.block, e.decays() ? 0U : 1U};
      };
      return key(entries_[a]) < key(entries_[b]);
    });
    block_begin_.assign(blocks() + 1, 0);
    std::size_t offset = 0;
    for (const std::uint32_t first : order) {
      if (entries_[first].spec.trainable) {
        const bool decays = entries_[first].decays();
        if (runs_.empty() || runs_.back().decays != decays) runs_.push_back({offset, offset, decays});
      }
      for (std::uint32_t i = first; i < entries_.size() && entries_[i].group == first; ++i) {
        if (entries_[i].spec.quantised) {
          entries_[i].offset = quantised_.size();
          quantised_.push_back(place_behind(quantised_, entries_[i].size()));
          continue;
        }
        entries_[i].offset = offset;
        offset += entries_[i].size();
      }
      offset = (offset + alignment - 1) / alignment * alignment;
      if (entries_[first].spec.trainable) {
        runs_.back().end = trained_ = offset;
        block_begin_[entries_[first].block + 1] = offset;
      }
    }
    for (std::size_t b = 1; b < block_begin_.size(); ++b) block_begin_[b] = std::max(block_begin_[b], block_begin_[b - 1]);
    total_ = offset;
    values_ = buffer<Device>(device_, total_ * sizeof(parameter_type), memory_role::weights);
    if (quantised_.empty()) return;
    codes_ = buffer<Device>(device_, quantised_.back().codes_end(), memory_role::weights);
    outer_scales_ = buffer<Device>(device_, quantised_.back().outer_end() * sizeof(float), memory_role::weights);
  }

  /// Memory for gradients of what is trained. Their values are not defined.
  void allocate_gradients() { gradients_ = buffer<Device>(device_, trained_ * sizeof(gradient_type), memory_role::gradients); }
  [[nodiscard]] bool has_gradients() const { return gradients_.bytes() != 0; }

  /// throws config_error when it is quantised: it has no values
  [[nodiscard]] device_span<parameter_type, memory> value(parameter p) const {
    require_values(entries_[p.first()]);
    return values_.template as<parameter_type>().subspan(entries_[p.first()].offset, size(p));
  }
  /// Empty when the parameter is frozen or there is no memory for gradients.
  [[nodiscard]] device_span<gradient_type, memory> gradient(parameter p) const {
    if (!trains(p) || !has_gradients()) return {};
    return gradients_.template as<gradient_type>().subspan(entries_[p.first()].offset, size(p));
  }
  [[nodiscard]] bool trains(parameter p) const { return p.exists() && entries_[p.first()].spec.trainable; }
  [[nodiscard]] std::size_t size(parameter p) const {
    std::size_t all = 0;
    for (std::uint32_t i = 0; i < p.count(); ++i) all += entries_[p.first() + i].size();
    return all;
  }

  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }
  [[nodiscard]] device_span<parameter_type, memory> value(const entry& e) const {
    require_values(e);
    return values_.template as<parameter_type>().subspan(e.offset, e.size());
  }
  [[nodiscard]] device_span<gradient_type, memory> gradient(const entry& e) const {
    if (!e.spec.trainable || !has_gradients()) return {};
    return gradients_.template as<gradient_type>().subspan(e.offset, e.size());
  }
  [[nodiscard]] bool is_quantised(parameter p) const { return p.exists() && entries_[p.first()].spec.quantised; }
  /// Of a quantised parameter.
  [[nodiscard]] nf4_view<memory> quantised(const entry& e) const {
    const quantised_place& at = quantised_[e.offset];
    const auto bytes = codes_.template as<std::uint8_t>();
    return {.n = at.n,
            .code_n2 = bytes.subspan(at.codes, nf4::code_bytes(at.n)),
            .scale_k = bytes.subspan(at.codes + nf4::code_bytes(at.n), nf4::scales(at.n)),
            .outer = outer_scales_.template as<float>().subspan(at.outer, nf4::outer_scales(at.n))};
  }
  /// Gives a parameter all its values, from the host; quantises them where it is quantised.
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
      copy_to_device(stream, value(e), host);
      stream.synchronize();
    }
  }
  /// Bytes of all values.
  [[nodiscard]] std::size_t bytes() const { return values_.bytes() + codes_.bytes() + outer_scales_.bytes(); }

  /// Null when there is no parameter of that name.
  [[nodiscard]] const entry* find(std::string_view name) const {
    for (const entry& e : entries_)
      if (e.spec.name == name) return &e;
    return nullptr;
  }

  /// A handle of that one parameter, though it may lie in a matrix with others; one that does not exist when there is none of that name.
  [[nodiscard]] parameter handle_of(std::string_view name) const {
    const entry* found = find(name);
    return found == nullptr ? parameter{} : parameter(static_cast<std::uint32_t>(found - entries_.data()), 1);
  }

  /// Everything that is trained, padding between parameters included (padding is zero and stays zero).
  [[nodiscard]] device_span<parameter_type, memory> trained_values() const {
    return values_.template as<parameter_type>().subspan(0, trained_);
  }
  [[nodiscard]] device_span<gradient_type, memory> gradients() const { return gradients_.template as<gradient_type>(); }
  [[nodiscard]] const std::vector<decay_run>& decay_runs() const { return runs_; }
  /// Where in the trained array the block's parameters are.
  [[nodiscard]] decay_run block(std::size_t index) const { return {block_begin_[index], block_begin_[index + 1], false}; }

  /// Numbers in all parameters, without padding.
  [[nodiscard]] std::size_t count() const { return counted(false); }
  /// Numbers in the parameters that are trained.
  [[nodiscard]] std::size_t trained_count() const { return counted(true); }

  [[nodiscard]] const typename Device::context& device() const { return device_; }

  /// Sets everything to zero, then every parameter whose name is `chosen` to its initial values: a function of (seed, name,
  /// element).
  template <class Stream, class Chosen>
  void initialise(Stream& stream, std::uint64_t seed, Chosen&& chosen) const {
    fill_zero(stream, values_.template as<parameter_type>());
    fill_zero(stream, codes_.template as<std::uint8_t>());
    fill_zero(stream, outer_scales_.template as<float>());
    std::vector<parameter_type> host;
    for (const entry& e : entries_) {
      if (!chosen(e.spec.name)) continue;
      const initial_values& initial = e.spec.initial;
      if (initial.distribution == initial_values::kind::constant && initial.value == 0) continue;
      host.resize(e.size());
      const random_site site{.seed = seed, .step = ~std::uint32_t{0}, .site = site_of_name(e.spec.name), .first = 0};
      constexpr std::size_t chunk = 1 << 14;
      const auto fill = [&](std::size_t part, std::size_t) {
        const std::size_t end = std::min(host.size(), (part + 1) * chunk);
        for (std::size_t i = part * chunk; i < end; i += 4) {
          const auto values = initial.quad(site, i / 4);
          for (std::size_t j = 0; j < 4 && i + j < end; ++j) host[i + j] = static_cast<parameter_type>(values[j]);
        }
      };
      const auto pool = thread_pool::shared();
      pool->run((host.size() + chunk - 1) / chunk, pool->threads(), fill);
      set(stream, e, std::span<const parameter_type>(host));
    }
  }

 private:
  static constexpr std::size_t alignment = 32;  // elements: a cache line and more for every type, gradients and master copies included

  /// Where one parameter's codes and the scales behind them are, and its outer scales.
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
    require<config_error>(!e.spec.quantised, "parameter '", e.spec.name, "': must not be quantised where its values are asked for");
  }

  [[nodiscard]] std::size_t counted(bool trained_only) const {
    std::size_t all = 0;
    for (const entry& e : entries_)
      if (!trained_only || e.spec.trainable) all += e.size();
    return all;
  }

  typename Device::context device_;
  std::vector<entry> entries_;
  std::vector<decay_run> runs_;
  std::vector<std::size_t> block_begin_;
  std::size_t block_ = 0;
  std::size_t trained_ = 0;
  std::size_t total_ = 0;
  buffer<Device> values_;
  buffer<Device> gradients_;
  std::vector<quantised_place> quantised_;
  buffer<Device> codes_, outer_scales_;
};

}  // namespace xtrain
