// Rows of tokens, on the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/layers/sight.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// b rows of t places. What each place holds, what is to be predicted there, and what it may see.
template <class Device>
struct device_batch {
  using memory = typename Device::memory;

  std::size_t b = 0;
  std::size_t t = 0;
  vector_view<const token, memory> tokens_n{};
  vector_view<const token, memory> targets_n{};    // token to be predicted at each place; negative: none
  vector_view<const token, memory> positions_n{};  // within the sample, counted from 0
  vector_view<const token, memory> starts_n{};     // where in the row each place's sample begins; none: at 0
  vector_view<const token, memory> withins_n{};    // second position of each place, where a model counts two
  vector_view<const token, memory> ends_n{};       // one past the last place of the row that each place sees; none: itself
  std::size_t first_row = 0;                       // index of the first row within the step's global batch

  [[nodiscard]] std::size_t n() const { return b * t; }
};

namespace detail {

/// The device reads host memory itself: rows need not be copied. (The dry device does as the device it stands in for.)
template <class Device>
inline constexpr bool reads_host_rows = host_addressable<Device>;
template <class Device>
inline constexpr bool reads_host_rows<dry<Device>> = reads_host_rows<Device>;

}  // namespace detail

/// Memory for one batch of up to `places` tokens; none where the device reads the host's. Where places see more than what precedes
/// them, what follows from the tokens is laid out here.
template <class Device>
class batch_memory {
 public:
  using memory = typename Device::memory;

  batch_memory(const typename Device::context& on, std::size_t places, const sight& sees = {})
      : places_(places), laid_out_(sees.kind == sight::rule::causal ? nullptr : std::make_unique<laid_out_places>(sees, places)),
        buffer_(on, detail::reads_host_rows<Device> ? 0 : (laid_out_ ? 6 : 4) * places * sizeof(token), memory_role::batch) {}

  [[nodiscard]] std::size_t places() const { return places_; }

  /// Rows as the device sees them. `host` has b, t, first_row, and tokens, targets, positions and starts of b · t places each,
  /// or empty where they are not given. One that also has withins and ends, and ends that are not empty, has been laid out. It must stay as it is until the pass is done and the stream is synchronised.
  ///   throws  shape_error when the batch is larger than the memory or an array has another size
  template <class HostBatch>
  [[nodiscard]] device_batch<Device> upload(typename Device::stream& stream, const HostBatch& host) const {
    const std::size_t n = host.b * host.t;
    require<shape_error>(n <= places_, "batch: must have at most ", places_, " places; given ", host.b, " rows of ", host.t);
    std::size_t next = 0;
    const auto put = [&](std::span<const token> values) -> vector_view<const token, memory> {
      if (values.empty()) return {};
      require<shape_error>(values.size() == n, "batch: every array must have ", n, " places; given ", values.size());
      if constexpr (detail::reads_host_rows<Device>) {
        return {span_of<const token, memory>(values.data(), n), {n}};
      } else {
        const auto to = buffer_.template as<token>().subspan(next, n);
        next += n;
        copy_to_device(stream, to, values);
        return {device_span<const token, memory>(to), {n}};
      }
    };
    device_batch<Device> on_device{.b = host.b, .t = host.t, .first_row = host.first_row};
    on_device.tokens_n = put(host.tokens);
    on_device.targets_n = put(host.targets);
    on_device.starts_n = put(host.starts);
    if (laid_out_ == nullptr) {
      on_device.positions_n = put(host.positions);
      return on_device;
    }
    const auto put_places = [&](const auto& places) {
      on_device.positions_n = put(places.positions);
      on_device.withins_n = put(places.withins);
      on_device.ends_n = put(places.ends);
    };
    if constexpr (requires { host.ends; }) {
      if (!host.ends.empty()) {
        put_places(host);
        return on_device;
      }
    }
    laid_out_->lay_out(host.tokens, host.starts, host.t);
    put_places(*laid_out_);
    return on_device;
  }

 private:
  std::size_t places_;
  std::unique_ptr<laid_out_places> laid_out_;
  buffer<Device> buffer_;
};

}  // namespace xtrain
