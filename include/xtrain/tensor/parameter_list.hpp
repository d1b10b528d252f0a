// Which parameters a model has: names, shapes, blocks, and which of them this rank stores. Depends on neither the device nor the precision.
//
// Pipeline- and expert-parallel ranks, which have different blocks or experts, know the names and shapes of all parameters, and allocate
// memory for their own (see `keep`, `keep_owned_by`).
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

/// One declared parameter.
struct parameter_entry {
  parameter_spec spec{};
  std::size_t block = 0;
  std::size_t offset = 0;   ///< trained: in the flat array of trained parameters; frozen: in the same array, after the trained ones;
                            ///< quantized: index among the quantized parameters. Set by parameter_layout
  std::uint32_t group = 0;  ///< index of the first of the parameters that are declared together
  bool is_here = true;      ///< false: on another rank, no memory allocated here

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

/// The parameters in the order in which they are declared.
class parameter_list {
 public:
  using entry = parameter_entry;

  /// Parameters declared after this call belong to block `index`. Blocks are the unit of memory movement and gradient
  /// reduction.
  void begin_block(std::size_t index) { block_ = index; }
  [[nodiscard]] std::size_t blocks() const { return block_ + 1; }
  /// Parameters declared after this call have the given owner among the expert-parallel ranks, or are on all of them.
  void begin_owner(std::optional<std::size_t> rank) { owner_ = rank; }

  /// Declares parameters that will be adjacent in memory, in this order.
  ///   throws  config_error when a name is taken or the parameters do not have the same rank, columns and trainability
  parameter declare(std::vector<parameter_spec> adjacent);
  parameter declare(parameter_spec spec);

  /// Records that `block` reads parameters of block `other`: both are needed while it is computed.
  void reads_from(std::size_t block, std::size_t other) { also_read_.push_back({block, other}); }
  /// Calls visit(other) for every other block that the block reads from.
  template <class Visit>
  void for_each_read_by(std::size_t block, Visit&& visit) const {
    for (const auto& [reader, other] : also_read_)
      if (reader == block) visit(other);
  }

  /// This rank stores only parameters where chosen(entry) is true; other ranks store the rest. Call before memory is allocated.
  template <class Chosen>
  void keep(Chosen&& chosen) {
    for (entry& e : entries_) {
      const bool keeps = chosen(e);
      blocks_here_ = blocks_here_ && keeps;
      e.is_here = e.is_here && keeps;
      all_here_ = all_here_ && e.is_here;
    }
  }
  /// Of the parameters with an owner, expert-parallel rank `rank` stores those that it owns; every rank stores the other parameters.
  /// Call before memory is allocated.
  void keep_owned_by(std::size_t rank);
  /// False if some parameters are on other ranks.
  [[nodiscard]] bool all_here() const { return all_here_; }
  /// throws config_error when some parameters are on other ranks; `who` names the caller
  void require_all_here(std::string_view who) const;
  /// throws config_error when some blocks are on other ranks
  void require_blocks_here(std::string_view who) const {
    if (!blocks_here_) require_all_here(who);
  }
  /// Whether this rank has only its tensor-parallel shard of some parameters.
  [[nodiscard]] bool has_tensor_shards() const;

  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }
  /// The parameter of that name, or null.
  [[nodiscard]] const entry* find(std::string_view name) const;
  /// A handle to that one parameter, even if it is part of a fused matrix; a handle with exists() == false if there is none of that name.
  [[nodiscard]] parameter handle_of(std::string_view name) const;

  [[nodiscard]] bool trains(parameter p) const { return p.exists() && entries_[p.first()].spec.trainable; }
  [[nodiscard]] bool is_quantized(parameter p) const { return p.exists() && entries_[p.first()].spec.quantized; }
  [[nodiscard]] std::size_t size(parameter p) const {
    std::size_t all = 0;
    for (std::uint32_t i = 0; i < p.count(); ++i) all += entries_[p.first() + i].size();
    return all;
  }

  /// Number of elements of all parameters, without padding.
  [[nodiscard]] std::size_t count() const { return counted(false); }
  /// Number of elements of the trained parameters.
  [[nodiscard]] std::size_t trained_count() const { return counted(true); }

 private:
  friend class parameter_layout;  // sets the offsets of the entries

  [[nodiscard]] std::size_t counted(bool trained_only) const;

  std::vector<entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_of_name_;  // of an entry
  std::vector<std::pair<std::size_t, std::size_t>> also_read_;
  std::size_t block_ = 0;
  std::optional<std::size_t> owner_{};
  bool all_here_ = true, blocks_here_ = true;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/tensor/parameter_list_impl.hpp>
#endif
