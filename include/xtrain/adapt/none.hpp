// No adapter: weights are trained.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>

namespace xtrain {

/// All weights are trained.
struct no_adapter {
  static constexpr std::string_view name = "none";
  using hooks = xtrain::hooks<hook::works_on_rows, hook::adds_nothing>;
  static constexpr bool freezes_weights = false;

  struct config {
    [[nodiscard]] bool trains(const std::string&) const { return true; }
    void choose_targets(const std::vector<std::string>&) const {}
    template <class Store>
    void finish(const Store&) const {}
  };

  [[nodiscard]] static bool is_own(std::string_view) { return false; }

  /// Adds nothing.
  template <class Recipe>
  class on_linear {
   public:
    template <class Builder, class Parts, class Inputs>
    void declare(Builder&, const Parts&, const Inputs&) {}
    [[nodiscard]] bool needs_input() const { return false; }
    [[nodiscard]] bool works_on_rows() const { return true; }
    [[nodiscard]] bool adds_nothing() const { return true; }
    template <class Pass, class X, class Y>
    void forward(Pass&, const X&, const Y&) const {}
    template <class Pass, class X, class DY, class DX>
    void backward(Pass&, const X&, const DY&, const DX&) const {}
  };
};

static_assert(adapter<no_adapter>);

}  // namespace xtrain
