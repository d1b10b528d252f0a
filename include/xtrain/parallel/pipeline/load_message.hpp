// Load statistics of balanced experts in flight from stage to stage: the load-balancing loss covers all layers together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Forward: the token count of each expert in the layers so far, and their probabilities. Backward: the last stage's gradient of each
/// expert's probability, over all layers. These few values, for which the host has synchronized already, are sent from host memory.
template <class Device, class T>
class load_message {
 public:
  using stream = typename Device::stream;
  using load = expert_load<Device, T>;

  /// Of the first `layers` layers.
  void take_counts(stream& on, const load& of, std::size_t layers) {
    const std::size_t n = layers * of.count_le.shape(1);
    counts_.resize(n);
    sums_.resize(n);
    copy_to_host(on, std::span(counts_), of.count_le.span().subspan(0, n));
    copy_to_host(on, std::span(sums_), of.probability_le.span().subspan(0, n));
    on.synchronize();
    numbers_.assign(counts_.begin(), counts_.end());
    numbers_.insert(numbers_.end(), sums_.begin(), sums_.end());
  }
  void give_counts(stream& on, const load& to) {
    const std::size_t n = numbers_.size() / 2;
    counts_.resize(n);
    sums_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      counts_[i] = static_cast<token>(numbers_[i]);
      sums_[i] = static_cast<sum>(numbers_[n + i]);
    }
    copy_to_device(on, to.count_le.span().subspan(0, n), std::span<const token>(counts_));
    copy_to_device(on, to.probability_le.span().subspan(0, n), std::span<const sum>(sums_));
    on.synchronize();
  }
  void take_gradient(stream& on, const load& of) {
    sums_.resize(of.dprobability_e.size());
    copy_to_host(on, std::span(sums_), of.dprobability_e.span());
    on.synchronize();
    numbers_.assign(sums_.begin(), sums_.end());
  }
  void give_gradient(stream& on, const load& to) {
    sums_.resize(numbers_.size());
    std::transform(numbers_.begin(), numbers_.end(), sums_.begin(), [](double x) { return static_cast<sum>(x); });
    copy_to_device(on, to.dprobability_e.span(), std::span<const sum>(sums_));
    on.synchronize();
  }

  /// Sends what take_counts or take_gradient has read.
  void send(group& between, std::size_t to) { begun_ = between.begin_send(to, std::span<const double>(numbers_)); }
  /// Receives as many values as the other stage sends.
  void receive(group& between, std::size_t from, std::size_t numbers) {
    numbers_.resize(numbers);
    begun_ = between.begin_receive(from, std::span<double>(numbers_));
  }
  void wait() {
    if (begun_) begun_->wait();
    begun_.reset();
  }

 private:
  using sum = accumulate_t<T>;

  std::vector<double> numbers_;  // holds counts and sums without rounding
  std::vector<token> counts_;
  std::vector<sum> sums_;
  pending_message begun_;  // last: destroyed before its buffer
};

}  // namespace xtrain
