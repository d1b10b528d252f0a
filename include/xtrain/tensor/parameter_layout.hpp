// Offsets of parameters in one flat array, and the part that a rank stores. Independent of device and precision.
//
// Memory order: trained parameters, then frozen; in each, by block; in a block, matrices before vectors. So a block is a range, and so is its part with
// weight decay. Quantized parameters are stored separately.
//
// Data-parallel ranks can each store an equal shard of every block (`shard_spec`, ZeRO). Blocks in use are then gathered into windows: memory that
// blocks share in turn.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/tensor/parameter_list.hpp>
#include <xtrain/tensor/shard_spec.hpp>

namespace xtrain {

/// Offsets, blocks, shards, windows of parameters in a flat array.
class parameter_layout {
 public:
  using entry = parameter_entry;
  static constexpr std::size_t alignment = 32;  // elements: at least a cache line for every dtype

  parameter_layout() = default;
  /// Sets the entries' offsets; the list must not change afterwards.
  ///   throws  memory_error when the number of elements overflows
  parameter_layout(parameter_list& list, const shard_spec& sharding);

  [[nodiscard]] const shard_spec& sharding() const { return sharding_; }
  /// Lengths of the flat array with padding, and of its front part, the trained parameters.
  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::size_t trained() const { return trained_; }
  /// Lengths of this rank's arrays: everything, or shards.
  [[nodiscard]] std::size_t stored_values() const { return sharding_.values ? total_ / sharding_.parts : total_; }
  [[nodiscard]] std::size_t stored_gradients() const { return sharding_.gradients ? trained_ / sharding_.parts : trained_; }

  /// What this rank's optimizer steps: trained parameters, or a shard of every block.
  [[nodiscard]] const std::vector<parameter_slice>& parameter_slices() const { return runs_; }
  /// Splits the runs by learning-rate factor; replaces earlier factors.
  ///   factors   of every entry of this layout's list
  void set_learning_rate_factors(const std::vector<entry>& entries, const std::vector<double>& factors);
  /// Weight decay of vectors too.
  void set_weight_decay_of_all(const std::vector<entry>& entries, bool all);
  /// Elements of all runs.
  [[nodiscard]] std::size_t stepped() const { return trained_ / sharding_.parts; }

  /// A range of the flat array.
  struct range {
    std::size_t begin = 0, end = 0;

    [[nodiscard]] std::size_t size() const { return end - begin; }
  };
  /// A block's trained or frozen parameters.
  [[nodiscard]] range block(std::size_t index, bool trained) const {
    const std::vector<std::size_t>& begins = trained ? block_begin_ : frozen_begin_;
    return {begins[index], begins[index + 1]};
  }

  /// Elements of a parameter that a rank stores; `kept`: their begin in its arrays.
  struct piece {
    std::size_t first = 0, kept = 0, count = 0;
  };
  /// A parameter's elements in shard `part` of its block; may be empty.
  [[nodiscard]] piece piece_of(const entry& e, std::size_t part) const;

  /// The first and the last block have windows for themselves; the others alternate between two.
  [[nodiscard]] bool share_window(std::size_t a, std::size_t b) const {
    const std::size_t last = blocks() - 1;
    return a == b || (a != 0 && b != 0 && a != last && b != last && a % 2 == b % 2);
  }
  /// Lengths of the arrays of windows.
  [[nodiscard]] std::size_t value_windows() const { return value_windows_; }
  [[nodiscard]] std::size_t gradient_windows() const { return gradient_windows_; }
  /// A block's begin in them. Frozen values follow trained ones.
  [[nodiscard]] std::size_t value_window(std::size_t index, bool trained) const {
    return value_window_[index] + (trained ? 0 : block(index, true).size());
  }
  [[nodiscard]] std::size_t gradient_window(std::size_t index) const { return gradient_window_[index]; }
  /// A parameter's begin in them.
  [[nodiscard]] std::size_t in_value_window(const entry& e) const {
    return value_window(e.block, e.spec.trainable) + e.offset - block_of(e).begin;
  }
  [[nodiscard]] std::size_t in_gradient_window(const entry& e) const { return gradient_window(e.block) + e.offset - block_of(e).begin; }

  /// A quantized parameter: byte offset of its codes, followed by scales, and offset of outer scales (integers: scales of rows; blocks: none).
  struct quantized_offsets {
    std::size_t n = 0, codes = 0, outer = 0;
    std::size_t rows = 0, integer_bits = 0;  ///< for integers
    std::optional<block_format> blocks{};

    [[nodiscard]] std::size_t codes_end() const {
      return (codes + stored_bytes() + alignment - 1) / alignment * alignment;
    }
    [[nodiscard]] std::size_t outer_end() const { return outer + (blocks ? 0 : integer_bits == 0 ? nf4::outer_scales(n) : rows); }

   private:
    [[nodiscard]] std::size_t stored_bytes() const {
      if (blocks) return block_formats::bytes_of(*blocks, n);
      return integer_bits == 0 ? nf4::code_bytes(n) + nf4::scales(n) : rows * row_integers::row_bytes(n / rows, integer_bits);
    }
  };
  [[nodiscard]] const quantized_offsets& quantized(const entry& e) const { return quantized_[e.offset]; }
  /// Bytes of codes and scales; number of outer scales.
  [[nodiscard]] std::size_t code_bytes() const { return quantized_.empty() ? 0 : quantized_.back().codes_end(); }
  [[nodiscard]] std::size_t outer_scales() const { return quantized_.empty() ? 0 : quantized_.back().outer_end(); }

 private:
  /// From `offset` on in this rank's array, an array with all parameters has `elsewhere` more elements in front.
  struct displacement {
    std::size_t offset = 0, elsewhere = 0;
  };

  [[nodiscard]] std::size_t blocks() const { return block_begin_.size() - 1; }
  [[nodiscard]] range block_of(const entry& e) const { return block(e.block, e.spec.trainable); }

  [[nodiscard]] std::vector<displacement> set_offsets(std::vector<entry>& entries, std::size_t blocks);
  void find_runs(const std::vector<entry>& entries, const std::vector<displacement>& displacements);
  static void append(std::vector<parameter_slice>& runs, const parameter_slice& run);
  void split_runs(const std::vector<entry>& entries);
  [[nodiscard]] std::size_t place_windows(std::vector<std::size_t>& begins, bool with_frozen) const;

  shard_spec sharding_{};
  std::size_t trained_ = 0, total_ = 0;
  std::vector<std::size_t> block_begin_, frozen_begin_;  // in the flat array; number of blocks + 1 elements
  std::vector<parameter_slice> found_, runs_;  // without and with the following settings
  std::vector<double> factors_;          // of the learning rate, by entry; empty: all 1
  bool all_decay_ = false;
  std::size_t value_windows_ = 0, gradient_windows_ = 0;
  std::vector<std::size_t> value_window_, gradient_window_;  // by block
  std::vector<quantized_offsets> quantized_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/tensor/parameter_layout_impl.hpp>
#endif
