// LoRA: a low-rank matrix is trained beside each chosen weight, which stays as it is.
//                                                    [Hu et al. 2021, "LoRA: Low-rank adaptation of large language models"]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// y += alpha/rank · dropout(x) · Aᵀ · Bᵀ for every chosen module; A [rank, in] drawn as PEFT draws it, B [out, rank] zero, so
/// that training begins with the base model. Base weights carry no gradients and no optimizer state.
struct lora {
  static constexpr std::string_view name = "lora";
  static constexpr bool freezes_weights = true;

  struct config {
    std::size_t rank = 8;
    double alpha = 16.0;                            ///< the update is scaled by alpha / rank
    double dropout = 0.0;                           ///< of the adapter's input
    std::vector<std::string> targets = {};          ///< module names, e.g. "q_proj"; empty: the family's own choice
    std::vector<std::string> modules_to_save = {};  ///< modules of the base model that are trained as well

    [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
    [[nodiscard]] bool trains(const std::string& module) const { return names(modules_to_save, module); }
    [[nodiscard]] bool adapts(const std::string& module) const { return names(targets, module); }

    void choose_targets(const std::vector<std::string>& of_family) {
      if (targets.empty()) targets = of_family;
    }
    /// throws config_error when a number is out of range or a name is no module of the model
    template <class Store>
    void finish(const Store& store) const {
      require<config_error>(rank > 0, "lora: rank must be positive; given ", rank);
      require<config_error>(alpha > 0.0, "lora: alpha must be positive; given ", alpha);
      require<config_error>(dropout >= 0.0 && dropout < 1.0, "lora: dropout must be in [0, 1); given ", dropout);
      std::vector<std::string> linear_modules, modules, last_names;
      for (const auto& entry : store.entries()) {
        const std::string& full = entry.spec.name;
        const std::string module = full.substr(0, full.rfind('.'));
        if (full.ends_with(a_suffix)) linear_modules.push_back(full.substr(0, full.size() - a_suffix.size()));
        else if (!is_own(full)) {
          modules.push_back(module);
          last_names.push_back(module.substr(module.rfind('.') + 1));
        }
      }
      const auto must_name = [&](const std::string& given, const std::vector<std::string>& known, const char* what) {
        const bool found = std::any_of(known.begin(), known.end(), [&](const std::string& module) { return names({given}, module); });
        if (found) return;
        const std::string near = nearest_name(given, last_names);
        fail<config_error>("lora: '", given, "' must name ", what,
                           near.empty() || near == given ? "" : concat("; did you mean '", near, "'?"));
      };
      for (const std::string& target : targets) must_name(target, linear_modules, "a linear module of the model");
      for (const std::string& module : modules_to_save) must_name(module, modules, "a module of the model");
    }

   private:
    /// As PEFT matches: the whole name, or what follows a dot.
    [[nodiscard]] static bool names(const std::vector<std::string>& chosen, const std::string& module) {
      return std::any_of(chosen.begin(), chosen.end(),
                         [&](const std::string& choice) { return module == choice || module.ends_with("." + choice); });
    }
  };

  static constexpr std::string_view a_suffix = ".lora_A.weight";
  static constexpr std::string_view b_suffix = ".lora_B.weight";

  /// A parameter of the adapter itself, not of the base model.
  [[nodiscard]] static bool is_own(std::string_view parameter) { return parameter.ends_with(a_suffix) || parameter.ends_with(b_suffix); }

  /// The adapters on one linear layer: one for each of its modules that is chosen.
  template <class Recipe>
  class on_linear {
   public:
    template <class Builder, class Parts>
    void declare(Builder& build, const Parts& parts, std::size_t inputs) {
      const config& c = build.adapter();
      scale_ = c.scale();
      dropout_ = c.dropout;
      std::size_t column = 0;
      for (const auto& part : parts) {
        if (c.adapts(part.name)) {
          const auto a = build.parameters().declare({.name = concat(part.name, a_suffix),
                                                     .shape = {c.rank, inputs},
                                                     .initial = initial_values::uniform(1.0 / std::sqrt(static_cast<double>(inputs)))});
          const auto b = build.parameters().declare(
              {.name = concat(part.name, b_suffix), .shape = {part.outputs, c.rank}, .rows_in_files = part.order});
          parts_.push_back({a, b, column, part.outputs, site_of_name(part.name)});
        }
        column += part.outputs;
      }
    }

    [[nodiscard]] bool needs_input() const { return !parts_.empty(); }

    /// y [n, out] added to
    template <class Pass, class X, class Y>
    void forward(Pass& p, const X& x, const Y& y) const {
      for (const attached& part : parts_) {
        const auto scope = p.scope();
        const auto t = down(p, part, dropped(p, part, x));
        ops::linear(p, t, p.matrix(part.b), {}, y.columns(part.column, part.outputs), ops::result::is_added, scale_);
      }
    }

    /// dx [n, in] added to; gradients of A and B added to. What A makes of x is computed again: the rank is small.
    template <class Pass, class X, class DY, class DX>
    void backward(Pass& p, const X& x, const DY& dy, const DX& dx) const {
      for (const attached& part : parts_) {
        const auto scope = p.scope();
        const auto x_dropped = dropped(p, part, x);
        const auto t = down(p, part, x_dropped);
        const auto dy_part = dy.columns(part.column, part.outputs);
        // forward: y += scale · t · Bᵀ
        if (const auto db = p.matrix_gradient(part.b); db.exists()) ops::linear_backward_weight(p, dy_part, t, db, scale_);
        const auto dt = p.temporary(t.shape(0), t.shape(1));
        ops::linear_backward_input(p, dy_part, p.matrix(part.b), dt, ops::result::replaces, scale_);
        // forward: t = dropout(x) · Aᵀ
        if (const auto da = p.matrix_gradient(part.a); da.exists()) ops::linear_backward_weight(p, dt, x_dropped, da);
        if (!drops(p)) {
          ops::linear_backward_input(p, dt, p.matrix(part.a), dx, ops::result::is_added);
          continue;
        }
        const auto dx_dropped = p.temporary(x.shape(0), x.shape(1));
        ops::linear_backward_input(p, dt, p.matrix(part.a), dx_dropped);
        ops::dropout(p, dx_dropped, dropout_, p.random_at(part.site, p.batch.t * x.shape(1)), dx, ops::result::is_added);
      }
    }

   private:
    struct attached {
      parameter a, b;
      std::size_t column = 0, outputs = 0;
      std::uint32_t site = 0;
    };

    template <class Pass>
    [[nodiscard]] bool drops(const Pass& p) const {
      return dropout_ > 0.0 && p.trains();
    }
    template <class Pass, class X>
    [[nodiscard]] X dropped(Pass& p, const attached& part, const X& x) const {
      if (!drops(p)) return x;
      const auto kept = p.temporary(x.shape(0), x.shape(1));
      ops::dropout(p, x, dropout_, p.random_at(part.site, p.batch.t * x.shape(1)), kept);
      return kept;
    }
    template <class Pass, class X>
    [[nodiscard]] auto down(Pass& p, const attached& part, const X& x) const {
      const auto a = p.matrix(part.a);
      const auto t = p.temporary(x.shape(0), a.shape(0));
      ops::linear(p, x, a, {}, t);
      return t;
    }

    double scale_ = 1.0;
    double dropout_ = 0.0;
    std::vector<attached> parts_;
  };
};

static_assert(adapter<lora>);

/// Adds what the adapters do to the weights they stand beside: weight += alpha/rank · B · A, rounded once. The adapters become
/// zero, so the model computes what it did before.
template <class Model>
void merge_adapter(Model& model) requires std::is_same_v<typename Model::recipe::adapter, lora> {
  using device = typename Model::device;
  using matrix = matrix_view<typename Model::compute, typename Model::memory>;
  auto& store = model.parameters();
  std::size_t scratch = 0;
  for (const auto& e : store.entries())
    if (e.spec.shape.size() == 2)
      scratch = std::max(scratch, scratch_bytes(model.on().properties(),
                                                kernel::matmul<typename Model::memory, typename Model::compute>{
                                                    .m = e.spec.shape[0], .n = e.spec.shape[1], .k = model.settings().adapter.rank}));
  arena<device> workspace(model.on(), scratch + 2 * arena<device>::alignment, memory_role::workspace);
  execution<device> on{model.work(), workspace, model.on().properties()};
  for (const auto& a : store.entries()) {
    if (!a.spec.name.ends_with(lora::a_suffix)) continue;
    const std::string module = a.spec.name.substr(0, a.spec.name.size() - lora::a_suffix.size());
    const auto& b = *store.find(module + std::string(lora::b_suffix));
    const auto& weight = *store.find(module + ".weight");
    const auto view = [&](const auto& entry) { return matrix(store.value(entry), {entry.spec.shape[0], entry.spec.shape[1]}); };
    // W [out, in] += scale · B [out, rank] · A [rank, in] has the shape of a linear layer's backward
    ops::linear_backward_input(on, view(b), view(a), view(weight), ops::result::is_added, model.settings().adapter.scale());
    fill_zero(on.stream, store.value(b));
  }
  model.work().synchronize();
}

}  // namespace xtrain
