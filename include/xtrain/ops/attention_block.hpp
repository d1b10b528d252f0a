#pragma once

#include <algorithm>

#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/ops/attention.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/require_softcap.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

using kernel::position_block;

/// Query and key positions in sequences of length attention_shape::t.
struct attention_blocks {
  position_block queries{}, keys{};
};

/// Some query of the block may attend to some of its keys.
[[nodiscard]] constexpr bool may_see(const attention_blocks& blocks, std::size_t window, bool sees_ahead) {
  const bool behind = kernel::first_seen(0, window, blocks.queries.first) < blocks.keys.end();
  return behind && (sees_ahead || blocks.keys.first < blocks.queries.end());
}

namespace detail {

/// throws shape_error unless the blocks lie within matrices and sequences and the shapes match
template <class Device, class T, class M>
void require_blocks(const char* who, const attention_shape& s, const attention_blocks& blocks, const attention_settings<Device>& settings,
                    matrix_view<T, M> qkv, matrix_view<T, M> kv) {
  for (const position_block& block : {blocks.queries, blocks.keys})
    require<shape_error>(block.count > 0 && block.count <= std::min(block.own, s.t) && block.at <= block.own - block.count &&
                             block.first <= s.t - block.count, who,
                         ": a block must lie within the tokens that a matrix has of a sequence, and within the sequence; given ", block.count, " from ",
                         block.first, " on of ", s.t, ", and from ", block.at, " on of ", block.own);
  require_softcap(who, settings.softcap);
  if (settings.end_bt.exists()) require_shape(who, settings.end_bt.shape(), {s.b * s.t});
  if (settings.slope_h.exists()) require_shape(who, settings.slope_h.shape(), {s.h});
  require<shape_error>(s.k != 0 && s.h % s.k == 0, who, ": query heads (", s.h, ") must be divisible by key/value heads (", s.k, ")");
  require_shape(who, qkv.shape(), {s.b * blocks.queries.own, s.row()});
  require_shape(who, kv.shape(), {s.b * blocks.keys.own, 2 * s.k * s.d});
}

}  // namespace detail

/// Merges attention over a block of keys into o and lse of other blocks: kernel::attention_block.
///   qkv [b·queries.own, (h+2k)·d], kv [b·keys.own, 2k·d] read; start_bt of entire sequences, read or none
///   o_nc [b·queries.own, h·d], lse_bht [b·h·queries.own] updated; written if `begins`
template <class Device, class T>
void attention_block(execution<Device>& on, const attention_shape& s, const attention_blocks& blocks, bool begins,
                     const attention_settings<Device>& settings, matrix_view<const T, typename Device::memory> qkv, in_matrix<T, Device> kv,
                     in_vector<token, Device> start_bt, matrix<accumulate_t<T>, Device> o_nc, vector<accumulate_t<T>, Device> lse_bht) {
  detail::require_blocks("attention_block", s, blocks, settings, qkv, kv);
  require_shape("attention_block: o_nc", o_nc.shape(), {s.b * blocks.queries.own, s.h * s.d});
  require_shape("attention_block: lse_bht", lse_bht.shape(), {s.b * s.h * blocks.queries.own});
  launch(on, kernel::attention_block<typename Device::memory, T>{
                 .shape = s,
                 .queries = blocks.queries,
                 .keys = blocks.keys,
                 .begins = begins,
                 .scale = settings.scale,
                 .dropout = settings.dropout,
                 .window = settings.window,
                 .softcap = settings.softcap,
                 .random = settings.random,
                 .inputs_1 = detail::inputs_of_dropout(on, settings),
                 .qkv = qkv.span(),
                 .kv = kv.span(),
                 .start_bt = start_bt.extent(),
                 .end_bt = settings.end_bt.extent(),
                 .slope_h = settings.slope_h.extent(),
                 .o_bthd = o_nc.span(),
                 .lse_bht = lse_bht.span()});
}

/// dq_nc [b·queries.own, h·d], dkv [b·keys.own, 2k·d] added to; o_nc, lse_bht final (over all blocks)
template <class Device, class T>
void attention_block_backward(execution<Device>& on, const attention_shape& s, const attention_blocks& blocks,
                              const attention_settings<Device>& settings, matrix_view<const T, typename Device::memory> qkv,
                              in_matrix<T, Device> kv, in_vector<token, Device> start_bt, in_matrix<T, Device> o_nc,
                              in_vector<accumulate_t<T>, Device> lse_bht, in_matrix<T, Device> do_nc, matrix<accumulate_t<T>, Device> dq_nc,
                              matrix<accumulate_t<T>, Device> dkv) {
  detail::require_blocks("attention_block_backward", s, blocks, settings, qkv, kv);
  for (const auto& shape : {o_nc.shape(), do_nc.shape(), dq_nc.shape()})
    require_shape("attention_block_backward: o_nc, do_nc and dq_nc", shape, {s.b * blocks.queries.own, s.h * s.d});
  require_shape("attention_block_backward: dkv", dkv.shape(), {s.b * blocks.keys.own, 2 * s.k * s.d});
  require_shape("attention_block_backward: lse_bht", lse_bht.shape(), {s.b * s.h * blocks.queries.own});
  launch(on, kernel::attention_block_backward<typename Device::memory, T>{
                 .shape = s,
                 .queries = blocks.queries,
                 .keys = blocks.keys,
                 .scale = settings.scale,
                 .dropout = settings.dropout,
                 .window = settings.window,
                 .softcap = settings.softcap,
                 .random = settings.random,
                 .inputs_1 = detail::inputs_of_dropout(on, settings),
                 .qkv = qkv.span(),
                 .kv = kv.span(),
                 .start_bt = start_bt.extent(),
                 .end_bt = settings.end_bt.extent(),
                 .slope_h = settings.slope_h.extent(),
                 .o_bthd = o_nc.span(),
                 .lse_bht = lse_bht.span(),
                 .do_bthd = do_nc.span(),
                 .dq_bthd = dq_nc.span(),
                 .dkv = dkv.span()});
}

}  // namespace xtrain::ops
