// How tensor-parallel ranks shard the weights of a layer: which rows and columns each of them has.
//                                                                              [Shoeybi et al. 2019, "Megatron-LM", section 3]
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain {

/// This rank's shard of every layer under tensor parallelism.                           [Shoeybi et al. 2019, "Megatron-LM"]
struct tensor_shard {
  std::size_t rank = 0, ranks = 1;
  /// Sequence parallelism: in the regions between tensor-parallel layers, each rank has 1/ranks of the tokens, and computes norms, residual
  /// additions and dropout for these only.                              [Korthikanti et al. 2022, "sequence parallelism"]
  bool has_sequence_parallel = false;

  [[nodiscard]] bool is_sharded() const { return ranks > 1; }
  /// This rank's equal part of n items.
  ///   throws  config_error when n is not divisible
  [[nodiscard]] row_range of(std::size_t n, std::string_view things) const {
    require<config_error>(n % ranks == 0, "tensor: ", ranks, " tensor-parallel ranks must have equal shards of a layer; ", n, " ", things,
                          " are not divisible by ", ranks);
    return {rank * (n / ranks), n / ranks};
  }
  /// This rank's part of n items, where the last ranks may have fewer.
  [[nodiscard]] row_range up_to(std::size_t n) const {
    const std::size_t most = (n + ranks - 1) / ranks, begin = std::min(n, rank * most);
    return {begin, std::min(most, n - begin)};
  }
};

/// The recipe's parallel strategy may shard layers (tensor parallelism): its state has layers().
template <class Recipe>
inline constexpr bool has_tensor_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.layers(); };

/// The recipe's parallel strategy may shard experts over adjacent ranks (expert parallelism): its state has expert_shard().
template <class Recipe>
inline constexpr bool has_expert_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.expert_shard(); };

/// Outputs of a fused module that other models have as a module of their own.
struct fused_part {
  std::string name{};  // e.g. "q_proj" of "qkv_proj"
  row_range whole{};   // rows of the whole weight
  row_range mine{};    // those of them on this rank
};

/// One module of a fused matrix: e.g. "model.layers.0.self_attn.q_proj" computes the first 64 outputs.
struct module_part {
  std::string name{};
  std::size_t outputs = 0;  // on this rank
  file_order order{};
  // if the outputs are sharded
  std::size_t whole_outputs = 0;   // over all ranks; 0: this rank has them all
  std::vector<row_range> rows{};   // this rank's outputs, as rows of the whole weight
  std::size_t copies = 1;          // adjacent ranks that hold the same shard
  std::vector<fused_part> fused{};  // in the order of the rows; empty: the module is one
};

/// The inputs of a matrix: all, or this rank's shard.
struct input_part {
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t whole = 0;  // 0: not sharded

  input_part(std::size_t all) : count(all) {}
  input_part(row_range mine, std::size_t all) : count(mine.count), first(mine.begin), whole(mine.count == all ? 0 : all) {}
};

namespace detail {

/// Sets the shard spec of a parameter.
inline void cut(parameter_spec& spec, const module_part& part, const input_part& inputs) {
  if (part.whole_outputs == 0 && inputs.whole == 0) return;
  spec.cut.whole = spec.shape;
  if (part.whole_outputs != 0) {
    spec.cut.whole[0] = part.whole_outputs;
    spec.cut.rows = part.rows;
  }
  if (inputs.whole != 0 && spec.shape.size() > 1) {
    spec.cut.whole[1] = inputs.whole;
    spec.cut.first_column = inputs.first;
  }
  spec.copies = part.copies;
  spec.gradients_are_parts = part.copies > 1;
}

/// The modules of a feed-forward layer's first weight: `columns` matrices of `inner` rows, of which each tensor-parallel rank has a shard.
[[nodiscard]] inline std::vector<module_part> up_parts(const std::vector<std::string>& names, std::size_t columns, std::size_t inner,
                                                       const tensor_shard& shard) {
  std::vector<module_part> parts;
  const std::size_t matrices = columns / names.size();  // per module: gate and up may be fused
  const row_range mine = shard.of(inner, "intermediate channels");
  for (const std::string& name : names) {
    parts.push_back({name, mine.count * matrices});
    if (matrices == 2)
      parts.back().fused = {{"gate_proj", {0, inner}, mine}, {"up_proj", {inner, inner}, {inner + mine.begin, mine.count}}};
    if (!shard.is_sharded()) continue;
    parts.back().whole_outputs = inner * matrices;
    for (std::size_t i = 0; i < matrices; ++i) parts.back().rows.push_back({i * inner + mine.begin, mine.count});
  }
  return parts;
}

}  // namespace detail

}  // namespace xtrain
