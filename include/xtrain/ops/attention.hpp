#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/require_softcap.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

using kernel::attention_shape;

/// Settings besides the shape.
template <class Device>
struct attention_settings {
  double scale = 1.0;
  double dropout = 0.0;
  std::size_t window = 0;              // sliding window in positions, the query's included; 0: none
  double softcap = 0.0;                // scores become softcap · tanh(score / softcap); 0: none
  in_vector<token, Device> end_bt{};   // one past each query's last visible position; none: causal
  in_vector<float, Device> slope_h{};  // ALiBi slope per head; none: no bias
  random_site random{};
};

namespace detail {

/// throws shape_error unless num_heads is a multiple of num_kv_heads and qkv, slopes and ends have their shapes
template <class Device, class T, class M>
void require_attention(const char* who, const attention_shape& s, const attention_settings<Device>& settings, matrix_view<T, M> qkv) {
  require_softcap(who, settings.softcap);
  if (settings.end_bt.exists()) require_shape(who, settings.end_bt.shape(), {s.b * s.t});
  if (settings.slope_h.exists()) require_shape(who, settings.slope_h.shape(), {s.h});
  require<shape_error>(s.k != 0 && s.h % s.k == 0, who, ": query heads (", s.h, ") must be divisible by key/value heads (", s.k, ")");
  const shape_of_rank<2> rows{s.b * s.t, s.row()};
  require<shape_error>(qkv.shape() == rows, who, ": qkv must have shape ", rows, "; given ", qkv.shape());
}

/// Step inputs of dropout's random numbers; none without dropout: launches do not depend on them.
template <class Device>
[[nodiscard]] device_span<const kernel::step_inputs, typename Device::memory> inputs_of_dropout(const execution<Device>& on,
                                                                                                const attention_settings<Device>& settings) {
  if (settings.dropout > 0.0) return on.inputs_1;
  return {};
}

}  // namespace detail

/// Attention, causal without end_bt: kernel::attention.
///   qkv [b·t, (h+2k)·d] read; start_bt read or none; o_nc [b·t, h·d], lse [b·h·t] written
template <class Device, class T>
void attention(execution<Device>& on, const attention_shape& s, const attention_settings<Device>& settings, in_matrix<T, Device> qkv,
               in_vector<token, Device> start_bt, matrix<T, Device> o_nc, vector<accumulate_t<T>, Device> lse_bht) {
  detail::require_attention("attention", s, settings, qkv);
  require_shape("attention: o_nc", o_nc.shape(), {s.b * s.t, s.h * s.d});
  require_shape("attention: lse_bht", lse_bht.shape(), {s.b * s.h * s.t});
  launch(on, kernel::attention<typename Device::memory, T>{
                 .shape = s,
                 .scale = settings.scale,
                 .dropout = settings.dropout,
                 .window = settings.window,
                 .softcap = settings.softcap,
                 .random = settings.random,
                 .inputs_1 = detail::inputs_of_dropout(on, settings),
                 .qkv = qkv.span(),
                 .start_bt = start_bt.extent(),
                 .end_bt = settings.end_bt.extent(),
                 .slope_h = settings.slope_h.extent(),
                 .o_bthd = o_nc.span(),
                 .lse_bht = lse_bht.span()});
}

/// dqkv [b·t, (h+2k)·d] written
template <class Device, class T>
void attention_backward(execution<Device>& on, const attention_shape& s, const attention_settings<Device>& settings,
                        in_matrix<T, Device> qkv, in_vector<token, Device> start_bt, in_matrix<T, Device> o_nc,
                        in_vector<accumulate_t<T>, Device> lse_bht, in_matrix<T, Device> do_nc, matrix<T, Device> dqkv) {
  detail::require_attention("attention_backward", s, settings, qkv);
  detail::require_attention("attention_backward: dqkv", s, settings, dqkv);
  require_shape("attention_backward: o_nc", o_nc.shape(), {s.b * s.t, s.h * s.d});
  require_shape("attention_backward: do_nc", do_nc.shape(), {s.b * s.t, s.h * s.d});
  require_shape("attention_backward: lse_bht", lse_bht.shape(), {s.b * s.h * s.t});
  launch(on, kernel::attention_backward<typename Device::memory, T>{
                 .shape = s,
                 .scale = settings.scale,
                 .dropout = settings.dropout,
                 .window = settings.window,
                 .softcap = settings.softcap,
                 .random = settings.random,
                 .inputs_1 = detail::inputs_of_dropout(on, settings),
                 .qkv = qkv.span(),
                 .start_bt = start_bt.extent(),
                 .end_bt = settings.end_bt.extent(),
                 .slope_h = settings.slope_h.extent(),
                 .o_bthd = o_nc.span(),
                 .lse_bht = lse_bht.span(),
                 .do_bthd = do_nc.span(),
                 .dqkv = dqkv.span()});
}

/// Attention of new tokens over a key/value cache; appends them.
///   qkv [b·t, (h+2k)·d], length_b read; k_cache, v_cache [b·k, capacity·d] updated; o_nc written
///   length + t must not exceed the capacity (checked by the caller, who has the lengths on the host)
template <class Device, class T>
void cached_attention(execution<Device>& on, const attention_shape& s, const attention_settings<Device>& settings, in_matrix<T, Device> qkv,
                      in_vector<token, Device> length_b, matrix<T, Device> k_cache, matrix<T, Device> v_cache, matrix<T, Device> o_nc) {
  detail::require_attention("cached_attention", s, settings, qkv);
  const std::size_t capacity = k_cache.shape(1) / s.d;
  require_shape("cached_attention: k_cache", k_cache.shape(), {s.b * s.k, capacity * s.d});
  require_shape("cached_attention: v_cache", v_cache.shape(), {s.b * s.k, capacity * s.d});
  require_shape("cached_attention: length_b", length_b.shape(), {s.b});
  require_shape("cached_attention: o_nc", o_nc.shape(), {s.b * s.t, s.h * s.d});
  launch(on, kernel::cached_attention<typename Device::memory, T>{.shape = s,
                                                                  .capacity = capacity,
                                                                  .scale = settings.scale,
                                                                  .window = settings.window,
                                                                  .softcap = settings.softcap,
                                                                  .qkv = qkv.span(),
                                                                  .length_b = length_b.span(),
                                                                  .end_bt = settings.end_bt.extent(),
                                                                  .slope_h = settings.slope_h.extent(),
                                                                  .k_cache = k_cache.span(),
                                                                  .v_cache = v_cache.span(),
                                                                  .o_bthd = o_nc.span()});
}

}  // namespace xtrain::ops
