#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

/// Adds a branch to the residual stream. Without dropout the branch's last matmul adds to y.
template <class Recipe>
class residual {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  residual(double dropout, std::uint32_t site) : dropout_(dropout), site_(site) {}

  /// branch(y, how) computes the branch into y.
  template <class Branch>
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, Branch&& branch) const {
    ops::copy(p, x, y);
    if (!drops(p)) return branch(y, ops::result::is_added);
    const auto scope = p.scope();
    const auto out = p.temporary(y.shape(0), y.shape(1));
    branch(out, ops::result::replaces);
    p.dropout(out, dropout_, site_, y, ops::result::is_added);
  }

  /// Calls branch_backward(dbranch), dbranch = dropped dy; dx = dy is the caller's gradient of the stream.
  template <class BranchBackward>
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dy, BranchBackward&& branch_backward) const {
    if (!drops(p)) return branch_backward(dy);
    const auto scope = p.scope();
    const auto dbranch = p.temporary(dy.shape(0), dy.shape(1));
    p.dropout(dy, dropout_, site_, dbranch);
    branch_backward(dbranch);
  }

 private:
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }

  double dropout_;
  std::uint32_t site_;
};

}  // namespace xtrain
