// Definitions of parameter_layout.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/tensor/parameter_layout.hpp>

namespace xtrain {

XTRAIN_INLINE parameter_layout::parameter_layout(parameter_list& list, const shard_spec& sharding) : sharding_(sharding) {
  double elements = 0;  // shapes from files must not overflow
  for (const entry& e : list.entries_) {
    double product = 1;
    for (const std::size_t dim : e.spec.shape) product *= static_cast<double>(dim);
    elements += product;
  }
  require<memory_error>(elements < 0x1p56, "parameters: a model must have fewer than 2^56 numbers; its shapes make ", count_text(elements));
  const std::vector<displacement> displacements = set_offsets(list.entries_, list.blocks());
  find_runs(list.entries_, displacements);
  if (sharding_.values) value_windows_ = place_windows(value_window_, true);
  if (sharding_.gradients) gradient_windows_ = place_windows(gradient_window_, false);
}

XTRAIN_INLINE parameter_layout::piece parameter_layout::piece_of(const entry& e, std::size_t part) const {
  if (!e.is_here || e.spec.quantized) return {};  // never sharded
  const std::size_t begin = block_of(e).begin, size = block_of(e).size() / sharding_.parts, own = begin + part * size;
  const std::size_t from = std::max(e.offset, own), to = std::min(e.offset + e.size(), own + size);
  return from < to ? piece{from - e.offset, begin / sharding_.parts + (from - own), to - from} : piece{};
}

/// Sets all offsets. With sharding, pads every block to equal shards. Returns displacements against an array with all parameters.
XTRAIN_INLINE std::vector<parameter_layout::displacement> parameter_layout::set_offsets(std::vector<entry>& entries, std::size_t blocks) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < entries.size(); ++i)
    if (entries[i].group == i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](const entry& e) { return std::array<std::size_t, 3>{e.spec.trainable ? 0U : 1U, e.block, e.decays() ? 0U : 1U}; };
    return key(entries[a]) < key(entries[b]);
  });
  std::vector<displacement> displacements;
  const std::size_t aligned = std::lcm(alignment, sharding_.alignment);
  std::size_t offset = 0, next = 0, elsewhere = 0;  // elsewhere: elements in front, on other ranks only
  const auto place_blocks = [&](bool trainable, std::vector<std::size_t>& begins) {
    begins.assign(blocks + 1, offset);
    for (std::size_t b = 0; b < blocks; ++b) {
      for (; next < order.size() && entries[order[next]].block == b && entries[order[next]].spec.trainable == trainable; ++next) {
        std::size_t& end = entries[order[next]].is_here ? offset : elsewhere;
        if (&end == &offset && (displacements.empty() || displacements.back().elsewhere != elsewhere))
          displacements.push_back({offset, elsewhere});
        for (std::uint32_t i = order[next]; i < entries.size() && entries[i].group == order[next]; ++i) {
          if (entries[i].spec.quantized) {
            if (!entries[i].is_here) continue;
            entries[i].offset = quantized_.size();
            quantized_.push_back({.n = entries[i].size(),
                                  .codes = code_bytes(),
                                  .outer = outer_scales(),
                                  .rows = entries[i].spec.shape[0],
                                  .integer_bits = entries[i].spec.integer_bits,
                                  .blocks = entries[i].spec.blocks});
            continue;
          }
          if (entries[i].is_here) entries[i].offset = end;
          end += entries[i].size();
        }
        end = (end + aligned - 1) / aligned * aligned;
      }
      const std::size_t equal = aligned * sharding_.parts;
      offset = (offset + equal - 1) / equal * equal;
      elsewhere = (elsewhere + equal - 1) / equal * equal;
      begins[b + 1] = offset;
    }
  };
  place_blocks(true, block_begin_);
  trained_ = offset;
  place_blocks(false, frozen_begin_);
  total_ = offset;
  return displacements;
}

/// Extends the last run if this one continues it.
XTRAIN_INLINE void parameter_layout::append(std::vector<parameter_slice>& runs, const parameter_slice& run) {
  if (run.begin >= run.end) return;
  parameter_slice* last = runs.empty() ? nullptr : &runs.back();
  if (last != nullptr && last->decays == run.decays && last->end == run.begin && last->kept + last->size() == run.kept &&
      last->element + last->size() == run.element && last->learning_rate_factor == run.learning_rate_factor)
    last->end = run.end;
  else runs.push_back(run);
}

XTRAIN_INLINE void parameter_layout::set_learning_rate_factors(const std::vector<entry>& entries, const std::vector<double>& factors) {
  factors_ = factors;
  split_runs(entries);
}

XTRAIN_INLINE void parameter_layout::set_weight_decay_of_all(const std::vector<entry>& entries, bool all) {
  if (all_decay_ == all) return;
  all_decay_ = all;
  split_runs(entries);
}

/// Runs with one learning-rate factor and one weight decay each.
XTRAIN_INLINE void parameter_layout::split_runs(const std::vector<entry>& entries) {
  std::vector<std::pair<std::size_t, double>> begins;  // of parameters, in memory order; padding belongs to what precedes it
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].spec.trainable && entries[i].is_here) begins.emplace_back(entries[i].offset, factors_.empty() ? 1.0 : factors_[i]);
  std::stable_sort(begins.begin(), begins.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  runs_.clear();
  for (const parameter_slice& run : found_) {
    const auto add = [&](std::size_t from, std::size_t to, double factor) {
      from = std::max(from, run.begin);
      to = std::min(to, run.end);
      if (from < to) append(runs_, {from, to, run.decays || all_decay_, run.kept + (from - run.begin), run.element + (from - run.begin), factor});
    };
    if (begins.empty()) add(run.begin, run.end, 1.0);
    else add(0, begins.front().first, 1.0);
    for (std::size_t i = 0; i < begins.size(); ++i) add(begins[i].first, i + 1 < begins.size() ? begins[i + 1].first : run.end, begins[i].second);
  }
}

/// Ranges with and without weight decay that this rank steps.
XTRAIN_INLINE void parameter_layout::find_runs(const std::vector<entry>& entries, const std::vector<displacement>& displacements) {
  // split where other ranks' parameters lie in between
  const auto add_pieces = [&](std::size_t begin, std::size_t end, bool decays, std::size_t kept) {
    for (std::size_t i = 0; i < displacements.size(); ++i) {
      const std::size_t from = std::max(begin, displacements[i].offset);
      const std::size_t to = std::min(end, i + 1 < displacements.size() ? displacements[i + 1].offset : end);
      if (from < to) append(found_, {from, to, decays, kept + (from - begin), from + displacements[i].elsewhere});
    }
  };
  for (std::size_t b = 0; b < blocks(); ++b) {
    const std::size_t begin = block_begin_[b], end = block_begin_[b + 1], part = (end - begin) / sharding_.parts;
    std::size_t vectors = begin;  // end of matrices; padding belongs to what precedes it
    bool any = false;
    for (const entry& e : entries) {
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
  runs_ = found_;
}

/// Sets the begin of each block's window; returns the total length.
XTRAIN_INLINE std::size_t parameter_layout::place_windows(std::vector<std::size_t>& begins, bool with_frozen) const {
  const auto size_of = [&](std::size_t b) { return block(b, true).size() + (with_frozen ? block(b, false).size() : 0); };
  const std::size_t last = blocks() - 1;
  std::array<std::size_t, 2> largest{};
  for (std::size_t b = 1; b < last; ++b) largest[b % 2] = std::max(largest[b % 2], size_of(b));
  begins.assign(blocks(), 0);
  const std::size_t after_first = size_of(0), after_last = after_first + (last == 0 ? 0 : size_of(last));
  for (std::size_t b = 1; b < last; ++b) begins[b] = after_last + (b % 2 == 0 ? 0 : largest[0]);
  if (last != 0) begins[last] = after_first;
  return after_last + largest[0] + largest[1];
}

}  // namespace xtrain
