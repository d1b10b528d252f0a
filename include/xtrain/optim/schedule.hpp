#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/kind_names.hpp>

namespace xtrain {

/// The shape of the lr schedule after the warmup. Names are from transformers' get_scheduler; inverse_square_root is Megatron's.
enum class lr_schedule_kind : std::uint8_t {
  constant,
  linear,
  cosine,
  cosine_with_restarts,
  polynomial,
  inverse_sqrt,
  inverse_square_root,
  warmup_stable_decay,
  cosine_warmup_with_min_lr
};
/// A rise with the progress x from 0 to 1: x; (1 - cos(pi x)) / 2; 1 - sqrt(1 - x). A fall is the rise of 1 - x.
enum class lr_shape : std::uint8_t { linear, cosine, one_minus_sqrt };

namespace detail {

inline constexpr std::array<std::pair<std::string_view, lr_shape>, 3> lr_shape_names{
    {{"linear", lr_shape::linear}, {"cosine", lr_shape::cosine}, {"1-sqrt", lr_shape::one_minus_sqrt}}};
inline constexpr std::array<std::pair<lr_schedule_kind, std::string_view>, 9> lr_schedule_names{
    {{lr_schedule_kind::constant, "constant"},
     {lr_schedule_kind::linear, "linear"},
     {lr_schedule_kind::cosine, "cosine"},
     {lr_schedule_kind::cosine_with_restarts, "cosine_with_restarts"},
     {lr_schedule_kind::polynomial, "polynomial"},
     {lr_schedule_kind::inverse_sqrt, "inverse_sqrt"},
     {lr_schedule_kind::inverse_square_root, "inverse_square_root"},
     {lr_schedule_kind::warmup_stable_decay, "warmup_stable_decay"},
     {lr_schedule_kind::cosine_warmup_with_min_lr, "cosine_warmup_with_min_lr"}}};

}  // namespace detail

template <>
struct kind_names<lr_shape> {
  static constexpr named_kinds<lr_shape, 3> all{detail::lr_shape_names};
};
template <>
struct kind_names<lr_schedule_kind> {
  static constexpr named_kinds<lr_schedule_kind, 9> all = [] {
    named_kinds<lr_schedule_kind, 9> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i].first = detail::lr_schedule_names[i].second, names[i].second = detail::lr_schedule_names[i].first;
    return names;
  }();
};

[[nodiscard]] constexpr std::string_view name_of(lr_schedule_kind shape) {
  return detail::lr_schedule_names[static_cast<std::size_t>(shape)].second;
}

/// Also accepts transformers' constant_with_warmup (constant) and cosine_with_min_lr (cosine).
///   throws  config_error when `name` is not a schedule
[[nodiscard]] inline lr_schedule_kind lr_schedule_named(std::string_view name) {
  for (const auto& [kind, known] : detail::lr_schedule_names)
    if (name == known) return kind;
  if (name == "constant_with_warmup") return lr_schedule_kind::constant;
  if (name == "cosine_with_min_lr") return lr_schedule_kind::cosine;
  fail<config_error>("lr_schedule: must be constant, constant_with_warmup, linear, cosine, cosine_with_min_lr, cosine_with_restarts, polynomial, ",
                     "inverse_sqrt, inverse_square_root, warmup_stable_decay or cosine_warmup_with_min_lr; given '", name, "'");
}

/// Settings of a schedule. Below: s a step, counted from 0; W the warmup; T the decay steps.
struct lr_schedule_settings {
  lr_schedule_kind kind = lr_schedule_kind::cosine;
  double peak = 1e-3;
  double warmup = 0;            ///< in steps; may be a fraction
  std::size_t decay_steps = 1;  ///< end of the decay, from the first step of the run; later steps have the minimum
  double min_lr_ratio = 0;      ///< the minimum, as a fraction of the peak
  double min_lr = 0;            ///< the minimum; takes precedence over the ratio if positive
  double warmup_init = 0;       ///< where the warmup begins
  /// false: warmup (s + 1) / W, progress of the decay (s - W) / (T - W - 1): the first step is above warmup_init, the last step at the end of the decay.
  /// true: s / W and (s - W) / (T - W), as in transformers, torchtune and Megatron: the first step is at warmup_init, the step after the last at the end.
  bool from_zero = false;
  /// DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR, with from_zero: each step has the previous step's rate, so the first two are at warmup_init; a
  /// cosine's decay is not late. W is at least 2.
  bool as_deepspeed = false;
  bool log_warmup = false;  ///< warmup log(s + 1) / log(W), with from_zero: DeepSpeed's warmup_type log
  bool continues = false;   ///< a cosine rises again after the end, as in transformers; false: later steps have the minimum
  double num_cycles = 0;  ///< cosine: waves; 0: 0.5, from peak to minimum. cosine_with_restarts; 0: 1
  double power = 1;       ///< of polynomial
  /// inverse_sqrt: in steps; 0: the warmup, or 10,000 without warmup. inverse_square_root: minimum of the steps in the formula; 0: one step (Megatron: one
  /// sample, 1 / global batch size steps).
  double timescale = 0;
  lr_shape warmup_shape = lr_shape::linear, decay_shape = lr_shape::cosine;  ///< of warmup_stable_decay
  double final_steps = 0;    ///< of warmup_stable_decay: steps of the decay
  double stable_steps = -1;  ///< of warmup_stable_decay: steps at the peak; negative: T - W - final_steps
};

/// The learning rate of every step of a run.
class learning_rate_schedule {
 public:
  /// Rises linearly to the peak during the warmup, then falls from peak to minimum, with the progress x of the decay from 0 to 1:
  ///   constant              1: no decay, no end
  ///   linear                1 - x
  ///   cosine                (1 + cos(2 pi num_cycles x)) / 2                         [Loshchilov & Hutter 2017, eq. 5]
  ///   cosine_with_restarts  (1 + cos(pi (num_cycles x mod 1))) / 2
  ///   polynomial            (1 - x)^power
  /// as a learning rate:
  ///   inverse_sqrt          peak · sqrt(timescale / (timescale + s - W)): no minimum, no end
  ///   inverse_square_root   peak · sqrt(W / s), at least the minimum, which also follows the end
  /// in stages:
  ///   warmup_stable_decay        with from_zero: rises from the minimum (warmup_shape), stays at the peak, falls to the minimum (decay_shape; a cosine by
  ///                              num_cycles); later steps have the minimum
  ///   cosine_warmup_with_min_lr  a cosine in which every step has the next step's rate. Warmup with from_zero: s / (W - 1), from warmup_init; otherwise
  ///                              (s + 1) / W
  /// With from_zero: formulas of transformers 5 (optimization.py, get_scheduler), torchtune (get_cosine_schedule_with_warmup) and Megatron-LM
  /// (OptimizerParamScheduler.get_lr; counts samples, equal with a constant global batch size). With as_deepspeed: DeepSpeed 0.19 (runtime/lr_schedules.py).
  ///   departs from  transformers: a cosine stays at the minimum after the end, unless it `continues`
  ///   throws  config_error when a setting is out of range
  explicit learning_rate_schedule(const lr_schedule_settings& settings) : settings_(settings) {
    const auto not_negative = [](const char* name, double given) {
      require<config_error>(std::isfinite(given) && given >= 0.0, name, ": must be non-negative; given ", given);
    };
    auto& s = settings_;
    not_negative("learning_rate", s.peak);
    require<config_error>(s.min_lr_ratio >= 0.0 && s.min_lr_ratio <= 1.0, "min_lr_ratio: must be in [0, 1]; given ", s.min_lr_ratio);
    require<config_error>(s.min_lr >= 0.0 && s.min_lr <= s.peak, "min_lr: must be in [0, ", s.peak, "], up to the learning_rate; given ", s.min_lr);
    require<config_error>(s.warmup_init >= 0.0 && s.warmup_init <= s.peak, "lr_warmup_init: must be in [0, ", s.peak,
                          "], up to the learning_rate; given ", s.warmup_init);
    not_negative("warmup", s.warmup);
    not_negative("lr_num_cycles", s.num_cycles);
    require<config_error>(std::isfinite(s.power) && s.power > 0.0, "lr_power: must be positive; given ", s.power);
    not_negative("lr_timescale", s.timescale);
    require<config_error>((!s.as_deepspeed && !s.log_warmup) || s.from_zero, "lr_from_zero: must be true with lr_as_deepspeed or lr_log_warmup; given false");
    if (s.as_deepspeed) s.warmup = std::max(s.warmup, 2.0);
    require<config_error>(!s.log_warmup || s.warmup >= 2.0, "lr_log_warmup: needs a warm-up of at least 2 steps; given ", s.warmup);
    const bool has_stages = s.kind == lr_schedule_kind::warmup_stable_decay;
    require<config_error>(!has_stages || s.from_zero, "lr_from_zero: must be true with warmup_stable_decay; given false");
    require<config_error>(std::isfinite(s.final_steps) && s.final_steps >= 0.0 && std::isfinite(s.stable_steps),
                          "lr_final_steps and lr_stable_steps: must be numbers of steps; given ", s.final_steps, " and ", s.stable_steps);
    require<config_error>(has_stages || (s.final_steps == 0.0 && s.stable_steps < 0.0), "lr_final_steps and lr_stable_steps: need warmup_stable_decay; given ",
                          s.final_steps, " and ", s.stable_steps, " with ", name_of(s.kind));
    s.decay_steps = std::max<std::size_t>(s.decay_steps, 1);
    if (s.num_cycles == 0.0) s.num_cycles = s.kind == lr_schedule_kind::cosine_with_restarts ? 1.0 : 0.5;
    if (s.timescale == 0.0) s.timescale = s.kind == lr_schedule_kind::inverse_square_root ? 1.0 : s.warmup > 0.0 ? s.warmup : 10'000.0;
  }
  /// The first step is at peak / warmup, the last of `total` steps at min_lr_ratio · peak.
  learning_rate_schedule(lr_schedule_kind shape, double peak, std::size_t warmup, std::size_t total, double min_lr_ratio)
      : learning_rate_schedule(lr_schedule_settings{
            .kind = shape, .peak = peak, .warmup = static_cast<double>(warmup), .decay_steps = total, .min_lr_ratio = min_lr_ratio}) {}

  [[nodiscard]] double at(std::size_t step) const {
    const auto& s = settings_;
    const double end = static_cast<double>(s.decay_steps);
    double now = static_cast<double>(s.as_deepspeed && step > 0 ? step - 1 : step);
    if (s.kind == lr_schedule_kind::warmup_stable_decay) return in_stages(now);
    if (s.kind == lr_schedule_kind::cosine_warmup_with_min_lr) {
      if (now >= s.warmup) return between(left_at((now - s.warmup + 1.0) / std::max(1.0, end - s.warmup)));
      return s.from_zero ? s.warmup_init + (s.peak - s.warmup_init) * now / std::max(1.0, s.warmup - 1.0) : s.peak * (now + 1.0) / std::max(1.0, s.warmup);
    }
    if (now < s.warmup) {
      const double risen = s.log_warmup ? std::log(now + 1.0) / std::log(s.warmup) : std::min(now + (s.from_zero ? 0.0 : 1.0), s.warmup) / s.warmup;
      return s.warmup_init + (s.peak - s.warmup_init) * risen;
    }
    if (s.kind == lr_schedule_kind::cosine) now = static_cast<double>(step);
    switch (s.kind) {
      case lr_schedule_kind::constant: return s.peak;
      case lr_schedule_kind::inverse_sqrt: return s.peak / std::sqrt((now + s.timescale - s.warmup) / s.timescale);
      case lr_schedule_kind::inverse_square_root:
        if (now > end) return at_minimum();
        return std::max(at_minimum(), s.peak * std::sqrt(std::max(s.warmup, s.timescale)) / std::sqrt(std::max(now, s.timescale)));
      default: break;
    }
    const double decay = std::max(s.from_zero ? end - s.warmup : end - s.warmup - 1.0, 1.0);
    const double progress = (now - s.warmup) / decay;
    return between(left_at(s.continues && s.kind == lr_schedule_kind::cosine ? progress : std::min(1.0, progress)));
  }

 private:
  static constexpr double pi = 3.14159265358979323846;

  /// The remaining fraction from peak to minimum.
  [[nodiscard]] double left_at(double progress) const {
    const auto& s = settings_;
    switch (s.kind) {
      case lr_schedule_kind::linear: return 1.0 - progress;
      case lr_schedule_kind::polynomial: return std::pow(1.0 - progress, s.power);
      case lr_schedule_kind::cosine_with_restarts: return progress < 1.0 ? 0.5 * (1.0 + std::cos(pi * std::fmod(s.num_cycles * progress, 1.0))) : 0.0;
      default: return 0.5 * (1.0 + std::cos(pi * s.num_cycles * 2.0 * progress));
    }
  }
  [[nodiscard]] double between(double left) const {
    const auto& s = settings_;
    if (s.min_lr > 0.0) return s.min_lr + left * (s.peak - s.min_lr);
    return s.peak * (s.min_lr_ratio + (1.0 - s.min_lr_ratio) * left);
  }
  [[nodiscard]] double at_minimum() const { return between(0.0); }
  [[nodiscard]] static double risen_by(lr_shape shape, double progress) {
    switch (shape) {
      case lr_shape::linear: return progress;
      case lr_shape::cosine: return 0.5 * (1.0 - std::cos(pi * progress));
      case lr_shape::one_minus_sqrt: break;
    }
    return 1.0 - std::sqrt(1.0 - progress);
  }
  [[nodiscard]] double in_stages(double now) const {
    const auto& s = settings_;
    if (now < s.warmup) return between(risen_by(s.warmup_shape, now / std::max(1.0, s.warmup)));
    const double begin = s.stable_steps < 0.0 ? static_cast<double>(s.decay_steps) - s.final_steps : s.warmup + s.stable_steps;
    if (now < begin) return s.peak;
    if (now >= begin + s.final_steps) return at_minimum();
    const double progress = (now - begin) / std::max(1.0, s.final_steps);
    return between(s.decay_shape == lr_shape::cosine ? left_at(progress) : risen_by(s.decay_shape, 1.0 - progress));
  }

  lr_schedule_settings settings_;
};

}  // namespace xtrain
