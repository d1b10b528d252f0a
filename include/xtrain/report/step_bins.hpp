// Numbers of many steps in little memory: bins with minimum, maximum and mean; a median.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace xtrain {

/// Numbers of adjacent steps.
struct step_bin {
  std::size_t first = 0, last = 0;  ///< steps
  std::size_t count = 0;            ///< numbers; 0: the rest is undefined
  double low = 0, high = 0, mean = 0;

  /// Where a bin is drawn.
  [[nodiscard]] std::size_t step() const { return first + (last - first) / 2; }
  void add(const step_bin& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    first = std::min(first, other.first);
    last = std::max(last, other.last);
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    count += other.count;
    mean += (other.mean - mean) * (static_cast<double>(other.count) / static_cast<double>(count));
  }
};

/// Numbers of any steps, in any order, in at most `max_bins` bins of equal width, which doubles from 1. A one-step peak stays in its bin's minimum or
/// maximum.
class step_bins {
 public:
  static constexpr std::size_t max_bins = 1024;
  static constexpr std::size_t max_step = std::size_t{1} << 53;
  static constexpr double max_value = 1e300;  ///< differences of two numbers are finite

  /// `value` finite, at most max_value; `step` at most max_step
  void add(std::size_t step, double value) {
    const std::size_t low = bins_.empty() ? step : std::min(step, base_ * width_), high = bins_.empty() ? step : std::max(step, end() * width_ - 1);
    while (high / width_ - low / width_ >= max_bins) widen();
    const std::size_t at = step / width_;
    if (bins_.empty()) base_ = at;
    while (at < base_) {
      bins_.emplace_front();
      --base_;
    }
    while (at >= end()) bins_.emplace_back();
    bins_[at - base_].add({step, step, 1, value, value, value});
  }

  [[nodiscard]] bool empty() const { return bins_.empty(); }
  /// Steps per bin.
  [[nodiscard]] std::size_t width() const { return width_; }
  /// Non-empty bins by step, merged to about `most`.
  [[nodiscard]] std::vector<step_bin> bins(std::size_t most = max_bins) const {
    const std::size_t together = bins_.empty() || most == 0 ? 1 : (bins_.size() + most - 1) / most;
    std::vector<step_bin> all;
    std::size_t previous = 0;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      if (bins_[i].count == 0) continue;
      const std::size_t group = (base_ + i) / together;
      if (all.empty() || group != previous) all.emplace_back();
      all.back().add(bins_[i]);
      previous = group;
    }
    return all;
  }

 private:
  [[nodiscard]] std::size_t end() const { return base_ + bins_.size(); }
  void widen() {
    std::deque<step_bin> wider;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      if (wider.empty() || (base_ + i) % 2 == 0) wider.emplace_back();
      wider.back().add(bins_[i]);
    }
    bins_.swap(wider);
    base_ /= 2;
    width_ *= 2;
  }

  std::deque<step_bin> bins_{};  // steps [(base_ + i) * width_, (base_ + i + 1) * width_)
  std::size_t base_ = 0, width_ = 1;
};

/// A step and its number.
struct step_value {
  std::size_t step = 0;
  double value = 0;
};

/// Exponential moving average of bin means, divided by its sum of weights (as in Adam), so that it begins at the first mean.
///   time_constant  in steps, until a weight is 1/e; 0: unsmoothed means
[[nodiscard]] inline std::vector<step_value> smoothed(const std::vector<step_bin>& bins, double time_constant) {
  std::vector<step_value> all;
  double sum = 0, weights = 0, before = 0;
  for (const step_bin& bin : bins) {
    const auto at = static_cast<double>(bin.last);
    const double steps = all.empty() ? static_cast<double>(bin.last - bin.first + 1) : at - before;
    const double kept = time_constant > 0 ? std::exp(-steps / time_constant) : 0.0;
    sum = kept * sum + (1 - kept) * bin.mean;
    weights = kept * weights + (1 - kept);
    all.push_back({bin.step(), sum / weights});
    before = at;
  }
  return all;
}

/// Median of positive numbers: exact up to 65536, then within 0.2 %.
class running_median {
 public:
  void add(double value) {
    if (buckets_.empty() && values_.size() < exact) {
      values_.push_back(value);
      return;
    }
    if (buckets_.empty())
      for (const double each : values_) ++buckets_[bucket_of(each)];
    ++buckets_[bucket_of(value)];
    values_ = {};
  }
  [[nodiscard]] bool empty() const { return values_.empty() && buckets_.empty(); }
  [[nodiscard]] double median() const {
    if (empty()) return 0;
    if (buckets_.empty()) {
      std::vector<double> sorted = values_;
      std::sort(sorted.begin(), sorted.end());
      const std::size_t half = sorted.size() / 2;
      return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    }
    std::size_t all = 0, below = 0;
    for (const auto& [bucket, count] : buckets_) all += count;
    for (const auto& [bucket, count] : buckets_)
      if ((below += count) * 2 >= all) return std::exp2((static_cast<double>(bucket) + 0.5) / per_octave);
    return 0;
  }

 private:
  static constexpr std::size_t exact = 65536;
  static constexpr double per_octave = 256;
  static std::int32_t bucket_of(double value) { return static_cast<std::int32_t>(std::floor(std::log2(std::max(value, 1e-300)) * per_octave)); }

  std::vector<double> values_{};
  std::map<std::int32_t, std::size_t> buckets_{};
};

}  // namespace xtrain
