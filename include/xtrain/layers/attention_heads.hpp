#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain {

/// Configuration of an attention layer.
struct attention_options {
  std::size_t hidden_size = 0;
  std::size_t num_heads = 0;
  std::size_t num_kv_heads = 0;
  std::size_t head_dim = 0;
  bool bias = false;  // of queries, keys, values
  bool output_bias = false;
  double dropout = 0.0;                  // of attention weights
  std::uint32_t site = 0;                // random site of dropout
  std::size_t layer = 0;                 // index in a key/value cache
  std::size_t sliding_window = 0;        // tokens attended to, including the query's; 0: all
  double query_pre_attn_scalar = 0.0;    // scores are divided by its square root; 0: head_dim
  double softcap = 0.0;                  // scores become softcap · tanh(score / softcap); 0: none
  std::vector<std::string> qkv_names{};  // one fused module, or three
  file_order qkv_order{};                // rows of the fused module in files
  std::string output_name{};
  std::string query_norm_name{}, key_norm_name{};  // empty: no normalization
  double norm_epsilon = 1e-6;
  initial_values initial{};
  initial_values output_initial{};
  bool transposed_in_files = false;
};

/// The heads on this rank.
struct attention_heads {
  std::size_t first = 0;  ///< of queries
  std::size_t heads = 0, kv_heads = 0;
  std::size_t first_kv = 0;

  /// Key/value heads of this rank's queries; adjacent ranks share one if there are fewer heads than ranks.
  ///   throws  config_error when heads are not divisible
  attention_heads(const attention_options& o, const tensor_shard& shard) {
    const row_range queries = shard.of(o.num_heads, "heads");
    first = queries.begin;
    heads = queries.count;
    if (shard.ranks <= o.num_kv_heads) {
      const row_range keys = shard.of(o.num_kv_heads, "key/value heads");
      first_kv = keys.begin;
      kv_heads = keys.count;
      return;
    }
    require<config_error>(shard.ranks % o.num_kv_heads == 0,
                          "tensor: ranks must be a multiple of the key/value heads, or the key/value heads of the ranks; given ",
                          shard.ranks, " and ", o.num_kv_heads);
    first_kv = shard.rank * o.num_kv_heads / shard.ranks;
    kv_heads = 1;
  }
  /// Inputs of the output projection.
  [[nodiscard]] input_part channels(const attention_options& o) const { return {{first * o.head_dim, heads * o.head_dim}, o.num_heads * o.head_dim}; }
};

/// This rank's modules of the query, key and value projection.
///   throws  config_error when a fused module has fewer key/value heads than ranks
[[nodiscard]] inline std::vector<module_part> qkv_parts(const attention_options& o, const tensor_shard& shard) {
  const std::size_t d = o.head_dim, q = o.num_heads * d, kv = o.num_kv_heads * d;
  const bool fused = o.qkv_names.size() == 1;
  const auto parts_of = [&](row_range own_q, row_range own_kv) -> std::vector<fused_part> {
    return {{"q_proj", {0, q}, own_q},
            {"k_proj", {q, kv}, {q + own_kv.begin, own_kv.count}},
            {"v_proj", {q + kv, kv}, {q + kv + own_kv.begin, own_kv.count}}};
  };
  if (!shard.is_sharded()) {
    if (fused) return {{.name = o.qkv_names[0], .outputs = q + 2 * kv, .order = o.qkv_order, .fused = parts_of({0, q}, {0, kv})}};
    return {{o.qkv_names.at(0), q}, {o.qkv_names.at(1), kv}, {o.qkv_names.at(2), kv}};
  }
  const attention_heads own(o, shard);
  const row_range own_q{own.first * d, own.heads * d}, own_kv{own.first_kv * d, own.kv_heads * d};
  const std::size_t copies = shard.ranks > o.num_kv_heads ? shard.ranks / o.num_kv_heads : 1;
  if (fused) {
    require<config_error>(copies == 1, "tensor: with a fused projection of queries, keys and values, ranks must not be more than the ", o.num_kv_heads,
                          " key/value heads; given ", shard.ranks);
    const std::vector<row_range> rows{own_q, {q + own_kv.begin, own_kv.count}, {q + kv + own_kv.begin, own_kv.count}};
    return {{.name = o.qkv_names[0],
             .outputs = own_q.count + 2 * own_kv.count,
             .order = o.qkv_order,
             .whole_outputs = q + 2 * kv,
             .rows = rows,
             .fused = parts_of(own_q, own_kv)}};
  }
  return {{o.qkv_names.at(0), own_q.count, {}, q, {own_q}},
          {o.qkv_names.at(1), own_kv.count, {}, kv, {own_kv}, copies},
          {o.qkv_names.at(2), own_kv.count, {}, kv, {own_kv}, copies}};
}

}  // namespace xtrain
