// Checks a custom optimizer policy against its contract.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/precision/precision.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain::testing {

/// Result of a check of a policy.
struct policy_report {
  std::string problem{};  ///< the first; empty: passed

  explicit operator bool() const { return problem.empty(); }
};

namespace detail {

template <class O, class Precision>
class optimizer_bench {
 public:
  using device = reference;
  using state = typename O::template state<device, Precision>;
  using parameter_type = typename Precision::parameter;

  explicit optimizer_bench(const typename O::config& settings) {
    store_.declare({.name = "matrix", .shape = {6, 7}});
    store_.declare({.name = "vector", .shape = {5}});
    store_.declare({.name = "frozen", .shape = {3}, .trainable = false});
    shard_spec sharding{};
    if constexpr (has_hook<O, hook::layout_alignment>) sharding.alignment = O::layout_alignment;
    store_.allocate(sharding);
    store_.allocate_gradients();
    fill_zero(stream_, store_.gradients());
    std::uint32_t site = 1;
    for (const auto& entry : store_.entries()) {
      const auto values = store_.value(entry).host();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<parameter_type>(number(site, i));
      ++site;
    }
    state_.emplace_back(settings, where_, store_);
  }

  void step(std::uint32_t number_of_step, const kernel::step_scalars& scalars, double factor = 1.0) {
    for (const auto& entry : store_.entries()) {
      if (!entry.spec.trainable) continue;
      const auto gradient = store_.gradient(entry).host();
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<typename Precision::gradient>(factor * number(100 * number_of_step + static_cast<std::uint32_t>(entry.size()), i));
    }
    scalars_ = scalars;
    const optimizer_step<device> step{
        .scalars = span_of(std::span<const kernel::step_scalars>(&scalars_, 1)), .number = number_of_step, .seed = 7};
    if constexpr (has_hook<O, hook::steps_with_strategy>) state_[0].step(where_, store_, step, parallel_);
    else state_[0].step(where_, store_, step);
    stream_.synchronize();
  }

  [[nodiscard]] std::vector<double> weights(bool trained) const {
    std::vector<double> all;
    for (const auto& entry : store_.entries())
      if (entry.spec.trainable == trained)
        for (const auto value : store_.value(entry).host()) all.push_back(static_cast<double>(value));
    return all;
  }
  [[nodiscard]] std::vector<std::vector<std::byte>> arrays() {
    std::vector<std::vector<std::byte>> all;
    state_[0].visit([&](std::string_view, const auto& span, const auto&...) {
      all.emplace_back(span.bytes());
      if (!all.back().empty()) std::memcpy(all.back().data(), span.raw(), span.bytes());
    });
    return all;
  }
  /// Continues from another's weights and arrays, as a resumed run does.
  void resume(optimizer_bench& from) {
    for (std::size_t i = 0; i < store_.entries().size(); ++i) {
      const auto to = store_.value(store_.entries()[i]).host();
      const auto values = from.store_.value(from.store_.entries()[i]).host();
      for (std::size_t k = 0; k < to.size(); ++k) to[k] = values[k];
    }
    const auto saved = from.arrays();
    std::size_t at = 0;
    state_[0].visit([&](std::string_view, const auto& span, const auto&...) {
      if (!saved[at].empty()) std::memcpy(const_cast<void*>(static_cast<const void*>(span.raw())), saved[at].data(), saved[at].size());
      ++at;
    });
  }
  /// An array without part_of must have one element per weight; empty: passed.
  [[nodiscard]] std::string array_of_wrong_size() {
    std::string found;
    state_[0].visit([&](std::string_view name, const auto& span, const auto&... part_of) {
      if (sizeof...(part_of) == 0 && span.size() != store_.stepped() && found.empty())
        found = concat("visit: array '", name, "' must have an element for each of the ", store_.stepped(), " weights, or be shown with a part_of; it has ",
                       span.size());
    });
    return found;
  }

 private:
  [[nodiscard]] static double number(std::uint32_t site, std::size_t i) {
    return 2.0 * static_cast<double>(uniform_open(random_word({.seed = 5, .step = 0, .site = site, .first = 0}, i))) - 1.0;
  }

  device::context on_{};
  device::stream stream_{on_};
  arena<device> workspace_{on_, std::size_t{1} << 22, memory_role::workspace};
  execution<device> where_{stream_, workspace_, on_.properties()};
  parameter_store<device, Precision> store_{on_};
  single::state<device> parallel_{single::config{}};
  kernel::step_scalars scalars_{};
  std::vector<state> state_;
};

}  // namespace detail

/// Runs a few steps of an optimizer on the reference device. Reports: a skipped step (`applies` 0) that changes something; a step without changes; non-finite
/// weights; a changed frozen parameter; ignored scalars (`gradient_scale`, `learning_rate`); state missing from visit(); arrays of a wrong size.
template <class Optimizer, class Precision = fp32>
[[nodiscard]] policy_report check_optimizer(const typename Optimizer::config& settings = {}) {
  static_assert(optimizer<Optimizer> && optimizer_for<Optimizer, reference, Precision>,
                "xtrain check_optimizer: must be given an optimizer for the reference device and this precision; see optim/README.md");
  static_assert(xtrain::detail::optimizer_hooks_are_members<Optimizer, reference, Precision>());
  using bench = detail::optimizer_bench<Optimizer, Precision>;
  const auto at = [](double update, double rate = 0.01, double scale = 1.0, double applies = 1.0) {
    return kernel::step_scalars{.learning_rate = rate, .gradient_scale = scale, .update = update, .applies = applies};
  };
  const auto who = [](const auto&... parts) { return policy_report{concat(Optimizer::name, ": ", parts...)}; };
  bench one(settings);
  if (const std::string problem = one.array_of_wrong_size(); !problem.empty()) return who(problem);
  const auto begin = one.weights(true), frozen = one.weights(false);
  const auto begin_arrays = one.arrays();
  one.step(0, at(1, 0.01, 1.0, 0.0));
  if (one.weights(true) != begin || one.arrays() != begin_arrays)
    return who("a step must change neither weights nor state where `applies` of its scalars is 0; it did");
  one.step(1, at(1));
  if (one.weights(true) == begin) return who("a step must change weights; it changed none");
  one.step(2, at(2));
  for (const double value : one.weights(true))
    if (!std::isfinite(value)) return who("weights must stay finite; one is ", value, " after two steps");
  if (one.weights(false) != frozen) return who("a frozen parameter must not change; it did");

  bench resumed(settings);
  resumed.resume(one);
  one.step(3, at(3));
  resumed.step(3, at(3));
  if (one.weights(true) != resumed.weights(true) || one.arrays() != resumed.arrays())
    return who("a run that is resumed from the arrays of visit() must continue bit for bit; it does not: visit() must show all state");

  bench plain(settings), scaled(settings), faster(settings);
  plain.step(1, at(1));
  scaled.step(1, at(1, 0.01, 0.5), 2.0);  // powers of two: the same products
  if (plain.weights(true) != scaled.weights(true))
    return who("gradients must be multiplied by `gradient_scale` of the step's scalars: twice the gradients times 1/2 must give the same weights");
  faster.step(1, at(1, 0.02));
  if (plain.weights(true) == faster.weights(true))
    return who("the learning rate must be `learning_rate` of the step's scalars; 0.01 and 0.02 give the same weights");
  return {};
}

}  // namespace xtrain::testing
