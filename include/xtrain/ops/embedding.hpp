#pragma once

#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y row i = or += scale · table row index[i] − first.
///   index_n, table_vc read; y_nc written. Indices outside the table give zeros; callers check indices on the host
template <class Device, class T>
void embedding(execution<Device>& on, in_vector<token, Device> index_n, in_matrix<T, Device> table_vc, matrix<T, Device> y_nc,
               result write_mode = result::replaces, std::size_t first = 0, double scale = 1.0) {
  const std::size_t n = index_n.shape(0), v = table_vc.shape(0), c = table_vc.shape(1);
  require_shape("embedding: y_nc", y_nc.shape(), {n, c});
  launch(on, kernel::embedding<typename Device::memory, T>{.n = n,
                                                           .v = v,
                                                           .c = c,
                                                           .first = static_cast<token>(first),
                                                           .scale = scale,
                                                           .accumulate = write_mode == result::is_added,
                                                           .index_n = index_n.span(),
                                                           .table_vc = table_vc.span(),
                                                           .y_nc = y_nc.span()});
}

/// dtable row index[i] − first += scale · dy row i, except where index[i] == padding (padding_idx of torch.nn.Embedding; negative: none)
template <class Device, class Y, class G>
void embedding_backward(execution<Device>& on, in_vector<token, Device> index_n, matrix<Y, Device> dy_nc, matrix<G, Device> dtable_vc,
                        std::size_t first = 0, token padding = -1, double scale = 1.0) {
  const std::size_t n = index_n.shape(0), v = dtable_vc.shape(0), c = dtable_vc.shape(1);
  require_shape("embedding_backward: dy_nc", dy_nc.shape(), {n, c});
  launch(on, kernel::embedding_backward<typename Device::memory, std::remove_const_t<Y>, G>{.n = n,
                                                                                            .v = v,
                                                                                            .c = c,
                                                                                            .first = static_cast<token>(first),
                                                                                            .padding = padding,
                                                                                            .scale = scale,
                                                                                            .index_n = index_n.span(),
                                                                                            .dy_nc = dy_nc.span(),
                                                                                            .dtable_vc = dtable_vc.span()});
}

/// The backward rotates by the opposite angle.
enum class turn : bool { forward, backward };

/// Rotates the first d elements of the first `heads` heads of every row in place.
///   position_n, cos_sin_pd [positions, d] read; x updated; its rows may be wider
///   throws  shape_error unless heads fit a row, d fits a head and d is even
template <class Device, class T>
void rotary(execution<Device>& on, in_vector<token, Device> position_n, in_matrix<float, Device> cos_sin_pd, std::size_t heads,
            std::size_t head_dim, matrix<T, Device> x, turn direction = turn::forward) {
  const std::size_t n = position_n.shape(0), d = cos_sin_pd.shape(1);
  require<shape_error>(d % 2 == 0 && d <= head_dim, "rotary: rotary_dim must be even and at most the head dim of ", head_dim,
                       "; given ", d);
  require<shape_error>(x.shape(0) == n && heads * head_dim <= x.shape(1), "rotary: x must have ", n, " rows with room for ", heads,
                       " heads of ", head_dim, "; given ", x.shape());
  launch(on, kernel::rotary<typename Device::memory, T>{.n = n,
                                                        .heads = heads,
                                                        .d = d,
                                                        .stride = x.stride(),
                                                        .head_stride = head_dim,
                                                        .positions = cos_sin_pd.shape(0),
                                                        .inverse = direction == turn::backward,
                                                        .position_n = position_n.span(),
                                                        .cos_sin_pd = cos_sin_pd.span(),
                                                        .x = x.extent()});
}

}  // namespace xtrain::ops
