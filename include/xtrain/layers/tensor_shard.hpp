#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain {

/// This rank's shard of every layer. [Shoeybi et al. 2019, "Megatron-LM", section 3]
struct tensor_shard {
  std::size_t rank = 0, ranks = 1;
  /// Between tensor-parallel layers a rank has 1/ranks of the tokens, for norms, residuals and dropout. [Korthikanti et al. 2022, "sequence parallelism"]
  bool has_sequence_parallel = false;

  [[nodiscard]] bool is_sharded() const { return ranks > 1; }
  /// An equal part of n items.
  ///   throws  config_error when n is not divisible
  [[nodiscard]] row_range of(std::size_t n, std::string_view things) const {
    require<config_error>(n % ranks == 0, "tensor: ", ranks, " tensor-parallel ranks must have equal shards of a layer; ", n, " ", things,
                          " are not divisible by ", ranks);
    return {rank * (n / ranks), n / ranks};
  }
  /// A part of n items; the last ranks may have fewer.
  [[nodiscard]] row_range up_to(std::size_t n) const {
    const std::size_t most = (n + ranks - 1) / ranks, begin = std::min(n, rank * most);
    return {begin, std::min(most, n - begin)};
  }
};

/// The strategy's state has layers(): tensor parallelism.
template <class Recipe>
inline constexpr bool has_tensor_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.layers(); };

/// The strategy's state has expert_shard(): adjacent ranks shard experts.
template <class Recipe>
inline constexpr bool has_expert_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.expert_shard(); };

/// Outputs of a fused module that are a module in other models.
struct fused_part {
  std::string name{};  // e.g. "q_proj" of "qkv_proj"
  row_range whole{};   // rows of the unsharded weight
  row_range mine{};    // this rank's
};

/// One module of a fused matrix: "model.layers.0.self_attn.q_proj" may be the first 64 outputs.
struct module_part {
  std::string name{};
  std::size_t outputs = 0;  // on this rank
  file_order order{};
  // sharded outputs
  std::size_t whole_outputs = 0;   // over all ranks; 0: not sharded
  std::vector<row_range> rows{};   // this rank's, in the unsharded weight
  std::size_t copies = 1;          // adjacent ranks with the same shard
  std::vector<fused_part> fused{};  // in row order; empty: not fused
};

/// All inputs of a matrix, or this rank's shard.
struct input_part {
  std::size_t count = 0;
  std::size_t first = 0;
  std::size_t whole = 0;  // 0: not sharded

  input_part(std::size_t all) : count(all) {}
  input_part(row_range mine, std::size_t all) : count(mine.count), first(mine.begin), whole(mine.count == all ? 0 : all) {}
};

namespace detail {

/// Sets a parameter's shard spec.
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

/// Modules of a feed-forward layer's first weight: `columns` matrices of `inner` rows, sharded.
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
