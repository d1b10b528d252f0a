#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/pinned_pipe.hpp>

namespace xtrain::detail {

/// On the host: slow, only used after an error.
template <class Device, class T, class Memory>
[[nodiscard]] std::size_t count_not_finite(pinned_pipe<Device>& pipe, typename Device::stream& stream, device_span<T, Memory> values) {
  std::size_t count = 0;
  pipe.to_host(stream, values, [&](auto elements) {
    count += static_cast<std::size_t>(
        std::count_if(elements.begin(), elements.end(), [](auto x) { return !std::isfinite(static_cast<accumulate_t<decltype(x)>>(x)); }));
  });
  return count;
}

/// Weights are checked first: they affect everything else.
template <class Device, class Store>
[[nodiscard]] std::string name_not_finite(pinned_pipe<Device>& pipe, typename Device::stream& stream, const Store& all, double loss, double gradient_norm) {
  const auto told = [](std::size_t count, const char* what, const auto& entry) {
    return concat(what, entry.spec.name, " holds ", count, count == 1 ? " value that is" : " values that are", " not finite (block ",
                  entry.block, ")");
  };
  for (const auto& entry : all.entries())
    if (const std::size_t count = count_not_finite(pipe, stream, all.value(entry)); count > 0) return told(count, "weight ", entry);
  for (const auto& entry : all.entries())
    if (const std::size_t count = count_not_finite(pipe, stream, all.gradient(entry)); count > 0) return told(count, "gradient of ", entry);
  return concat("weights and gradients are finite, but the loss is ", loss, " and the gradient's norm ", gradient_norm);
}

/// squares_of(spans): the sum of squares of each, computed on the device.
///   throws  non_finite_error when a weight of this rank is not finite
template <class Device, class Store, class SquaresOf>
void require_finite_weights(pinned_pipe<Device>& pipe, typename Device::stream& stream, const Store& all, SquaresOf&& squares_of) {
  const auto values_of = [&](const auto& entry) {
    const auto own = all.piece_of(entry);
    return all.sharding().values ? all.stored_values().subspan(own.kept, own.count) : all.value(entry);
  };
  std::vector<decltype(values_of(*all.entries().begin()))> values;
  std::vector<const typename std::remove_cvref_t<decltype(all.entries())>::value_type*> entries;
  for (const auto& entry : all.entries()) {
    if (entry.spec.quantized || values_of(entry).empty()) continue;  // quantized weights are frozen
    values.push_back(values_of(entry));
    entries.push_back(&entry);
  }
  if (values.empty()) return;
  const std::vector<double> squares = squares_of(values);
  for (std::size_t i = 0; i < values.size(); ++i)
    require<non_finite_error>(std::isfinite(squares[i]) || count_not_finite(pipe, stream, values[i]) == 0,
                              "training: weights must be finite to be saved; ", entries[i]->spec.name, " is not (block ", entries[i]->block, ")");
}

}  // namespace xtrain::detail
