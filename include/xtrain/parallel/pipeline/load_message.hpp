#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Forward: each expert's token count and probabilities in the layers so far. Backward: the last stage's gradient of each expert's probability, over all
/// layers. Sent from host memory, in the order of the stream.
template <class Device, class T>
class load_message {
 public:
  using stream = typename Device::stream;
  using load = expert_load<Device, T>;

  void take_counts(stream& on, const load& of, std::size_t layers) {
    const std::size_t n = layers * of.count_le.shape(1);
    const auto counts = staging_.template take<token>(on, 1, n);
    const auto sums = staging_.template take<sum>(on, 2, n);
    numbers_ = staging_.template take<double>(on, 0, 2 * n);
    copy_to_host(on, counts.values, of.count_le.span().subspan(0, n));
    copy_to_host(on, sums.values, of.probability_le.span().subspan(0, n));
    detail::in_stream_order(
        on,
        [n, c = counts.values, s = sums.values, all = numbers_.values] {
          for (std::size_t i = 0; i < n; ++i) {
            all[i] = static_cast<double>(c[i]);
            all[n + i] = static_cast<double>(s[i]);
          }
        },
        counts.memory, sums.memory, numbers_.memory);
  }
  void give_counts(stream& on, const load& to) {
    const std::size_t n = numbers_.values.size() / 2;
    const auto counts = staging_.template take<token>(on, 1, n);
    const auto sums = staging_.template take<sum>(on, 2, n);
    detail::in_stream_order(
        on,
        [n, c = counts.values, s = sums.values, all = numbers_.values] {
          for (std::size_t i = 0; i < n; ++i) {
            c[i] = static_cast<token>(all[i]);
            s[i] = static_cast<sum>(all[n + i]);
          }
        },
        numbers_.memory);
    copy_to_device(on, to.count_le.span().subspan(0, n), std::span<const token>(counts.values));
    copy_to_device(on, to.probability_le.span().subspan(0, n), std::span<const sum>(sums.values));
    detail::hold(on, counts.memory, sums.memory);
  }
  void take_gradient(stream& on, const load& of) {
    const std::size_t n = of.dprobability_e.size();
    const auto sums = staging_.template take<sum>(on, 2, n);
    numbers_ = staging_.template take<double>(on, 0, n);
    copy_to_host(on, sums.values, of.dprobability_e.span());
    detail::in_stream_order(
        on,
        [s = sums.values, all = numbers_.values] {
          for (std::size_t i = 0; i < s.size(); ++i) all[i] = static_cast<double>(s[i]);
        },
        sums.memory, numbers_.memory);
  }
  void give_gradient(stream& on, const load& to) {
    const auto sums = staging_.template take<sum>(on, 2, numbers_.values.size());
    detail::in_stream_order(
        on,
        [s = sums.values, all = numbers_.values] {
          for (std::size_t i = 0; i < s.size(); ++i) s[i] = static_cast<sum>(all[i]);
        },
        numbers_.memory);
    copy_to_device(on, to.dprobability_e.span(), std::span<const sum>(sums.values));
    detail::hold(on, sums.memory);
  }

  /// Sends what take_counts or take_gradient has read.
  void send(stream& on, group& between, std::size_t to) {
    in_flight_ = std::make_shared<pending_message>();
    detail::in_stream_order(
        on, [&between, to, flight = in_flight_, all = numbers_.values] { *flight = between.begin_send(to, std::span<const double>(all)); },
        numbers_.memory);
  }
  void receive(stream& on, group& between, std::size_t from, std::size_t numbers) {
    numbers_ = staging_.template take<double>(on, 0, numbers);
    in_flight_ = std::make_shared<pending_message>();
    detail::in_stream_order(
        on, [&between, from, flight = in_flight_, all = numbers_.values] { *flight = between.begin_receive(from, all); }, numbers_.memory);
  }
  void wait(stream& on) {
    if (!in_flight_) return;
    detail::in_stream_order(
        on,
        [flight = in_flight_] {
          if (*flight) (*flight)->wait();
          flight->reset();
        },
        numbers_.memory);
    in_flight_.reset();
  }

 private:
  using sum = accumulate_t<T>;

  detail::message_staging staging_;
  detail::staged_span<double> numbers_{};  // holds counts and sums without rounding
  std::shared_ptr<pending_message> in_flight_{};
};

}  // namespace xtrain
