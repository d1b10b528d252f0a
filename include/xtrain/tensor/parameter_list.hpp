// A model's parameters: names, shapes, blocks, and which this rank stores. Independent of device and precision.
//
// Pipeline- and expert-parallel ranks know names and shapes of all parameters and allocate their part (`keep`, `keep_owned_by`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain {

/// A declared parameter.
struct parameter_entry {
  parameter_spec spec{};
  std::size_t block = 0;
  std::size_t offset = 0;   ///< in the flat array (frozen after trained); quantized: index among quantized
                            ///< parameters. Set by parameter_layout
  std::uint32_t group = 0;  ///< index of the first parameter declared with it
  bool is_here = true;      ///< false: on another rank

  [[nodiscard]] std::size_t size() const {
    std::size_t product = 1;
    for (const std::size_t dim : spec.shape) product *= dim;
    return product;
  }
  /// Elements of the unsharded parameter.
  [[nodiscard]] std::size_t whole_size() const {
    std::size_t product = 1;
    for (const std::size_t dim : spec.whole_shape()) product *= dim;
    return product;
  }
  [[nodiscard]] bool decays() const { return spec.shape.size() > 1; }
};

/// Parameters in order of declaration.
class parameter_list {
 public:
  using entry = parameter_entry;

  /// Later parameters belong to block `index`. A block is the unit of memory movement and gradient reduction.
  void begin_block(std::size_t index) { block_ = index; }
  [[nodiscard]] std::size_t blocks() const { return block_ + 1; }
  /// Later parameters have this expert-parallel owner; nullopt: all ranks have them.
  void begin_owner(std::optional<std::size_t> rank) { owner_ = rank; }

  /// Declares parameters that are adjacent in memory.
  ///   throws  config_error when a name is taken, or rank, columns or trainability differ
  parameter declare(std::vector<parameter_spec> adjacent);
  parameter declare(parameter_spec spec);

  /// `block` reads parameters of block `other`: both are needed while it is computed.
  void reads_from(std::size_t block, std::size_t other) { also_read_.push_back({block, other}); }
  /// Calls visit(other) for every other block that `block` reads from.
  template <class Visit>
  void for_each_read_by(std::size_t block, Visit&& visit) const {
    for (const auto& [reader, other] : also_read_)
      if (reader == block) visit(other);
  }

  /// This rank stores parameters with chosen(entry); others store the rest. Call before memory is allocated.
  template <class Chosen>
  void keep(Chosen&& chosen) {
    for (entry& e : entries_) {
      const bool keeps = chosen(e);
      blocks_here_ = blocks_here_ && keeps;
      e.is_here = e.is_here && keeps;
      all_here_ = all_here_ && e.is_here;
    }
  }
  /// Of parameters with an owner, this expert-parallel rank stores its part. Call before memory is allocated.
  void keep_owned_by(std::size_t rank);
  /// No parameter is only on other ranks.
  [[nodiscard]] bool all_here() const { return all_here_; }
  /// throws config_error when parameters are on other ranks
  void require_all_here(std::string_view who) const;
  /// throws config_error when blocks are on other ranks
  void require_blocks_here(std::string_view who) const {
    if (!blocks_here_) require_all_here(who);
  }
  /// This rank has only a tensor-parallel shard of some parameters.
  [[nodiscard]] bool has_tensor_shards() const;

  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }
  /// Null if there is no such name.
  [[nodiscard]] const entry* find(std::string_view name) const;
  /// The single parameter, even in a fused matrix; exists() == false if there is no such name.
  [[nodiscard]] parameter handle_of(std::string_view name) const;

  [[nodiscard]] bool trains(parameter p) const { return p.exists() && entries_[p.first()].spec.trainable; }
  [[nodiscard]] bool is_quantized(parameter p) const { return p.exists() && entries_[p.first()].spec.quantized; }
  [[nodiscard]] std::size_t size(parameter p) const {
    std::size_t all = 0;
    for (std::uint32_t i = 0; i < p.count(); ++i) all += entries_[p.first() + i].size();
    return all;
  }

  /// Elements of all parameters, without padding.
  [[nodiscard]] std::size_t count() const { return counted(false); }
  [[nodiscard]] std::size_t trained_count() const { return counted(true); }

 private:
  friend class parameter_layout;

  [[nodiscard]] std::size_t counted(bool trained_only) const;

  std::vector<entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_of_name_;
  std::vector<std::pair<std::size_t, std::size_t>> also_read_;
  std::size_t block_ = 0;
  std::optional<std::size_t> owner_{};
  bool all_here_ = true, blocks_here_ = true;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/tensor/parameter_list_impl.hpp>
#endif
