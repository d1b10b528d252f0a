// Trains some modules and freezes the rest.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/adapt/module_names.hpp>
#include <xtrain/adapt/none.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

/// Trains the named modules and their submodules; other weights have no gradients and no optimizer state. Saved as an ordinary model.
struct freeze {
  static constexpr std::string_view name = "freeze";
  using hooks = xtrain::hooks<hook::works_on_rows, hook::adds_nothing>;
  static constexpr bool freezes_weights = false;

  struct config {
    /// Full names, suffixes ("lm_head", "self_attn.o_proj", "mlp"), or prefixes ("model.layers.1").
    std::vector<std::string> trained = {};

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "trained", .help = "modules that are trained"}, c.trained);
    }

    [[nodiscard]] bool trains(const std::string& module) const {
      return lies_in(module, [&](std::string_view name) { return named_by(trained, name); });
    }
    void choose_targets(const std::vector<std::string>&) const {}
    /// throws config_error when nothing is named, or a name matches no module
    template <class Store>
    void finish(const Store& store) const {
      require<config_error>(!trained.empty(), "freeze: at least one module must be trained; none is named");
      std::vector<std::string> known;
      for (const auto& entry : store.entries())
        (void)lies_in(module_of(entry.spec.name), [&](std::string_view name) {
          known.emplace_back(name);
          if (const auto last = name.substr(name.rfind('.') + 1); last.size() > 1) known.emplace_back(last);  // not a layer index
          return false;
        });
      for (const std::string& choice : trained) {
        const bool found = std::any_of(store.entries().begin(), store.entries().end(), [&](const auto& entry) {
          return lies_in(module_of(entry.spec.name), [&](std::string_view name) { return named_by(choice, name); });
        });
        if (found) continue;
        const std::string near = nearest_name(choice, known);
        fail<config_error>("freeze: '", choice, "' must name a module of the model",
                           near.empty() || near == choice ? "" : concat("; did you mean '", near, "'?"));
      }
    }
  };

  [[nodiscard]] static bool is_own(std::string_view) { return false; }

  template <class Recipe>
  using on_linear = no_adapter::on_linear<Recipe>;
};

static_assert(adapter<freeze>);

}  // namespace xtrain
