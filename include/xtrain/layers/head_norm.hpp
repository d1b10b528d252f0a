#pragma once

#include <cstddef>
#include <string>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/norm.hpp>

namespace xtrain {

/// Root-mean-square normalization of query and key heads before rotation; one weight for queries, one for keys. Tensor-parallel ranks have some heads.
/// [Dehghani et al. 2023, section 2.1]
template <class Recipe>
class head_norm {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using sums = vector_view<accumulate_t<compute>, memory>;

  head_norm(builder<Recipe>& build, const std::string& query_name, const std::string& key_name, std::size_t head_dim, double epsilon)
      : epsilon_(epsilon), query_(build.vector({{query_name, head_dim}}, "weight", 1.0, region::sharded_layer)),
        key_(build.vector({{key_name, head_dim}}, "weight", 1.0, region::sharded_layer)) {}

  /// x [n, (heads + 2 kv_heads) head_dim] read; y of the same shape, and rstd_nh [n (heads + kv_heads)], written
  void forward(pass<Recipe>& p, std::size_t heads, std::size_t kv_heads, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               sums rstd_nh) const {
    ops::head_norm(p, x, heads, kv_heads, p.vector(query_), p.vector(key_), epsilon_, y, rstd_nh);
  }
  /// d: dy on entry, dx on return
  void backward(pass<Recipe>& p, std::size_t heads, std::size_t kv_heads, matrix_view<const compute, memory> x, sums rstd_nh,
                matrix_view<compute, memory> d) const {
    auto dquery = p.vector_gradient(query_), dkey = p.vector_gradient(key_);
    if (!dquery.exists() || !dkey.exists()) {  // an adapter may train only one
      require<config_error>(!dquery.exists() && !dkey.exists(), "head_norm: the weights of queries and keys must both be trained, or both be frozen");
      dquery = dkey = {};
    }
    ops::head_norm_backward(p, x, heads, kv_heads, p.vector(query_), p.vector(key_), rstd_nh, d, d, dquery, dkey);
  }

 private:
  double epsilon_;
  parameter query_, key_;
};

}  // namespace xtrain
