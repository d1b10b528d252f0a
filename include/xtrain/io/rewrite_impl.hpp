#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/rewrite.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

namespace detail {

/// Elements converted at a time.
inline constexpr std::size_t numbers_of_a_piece = std::size_t{1} << 16;

/// use(T{}) for a dtype's name: "BF16".
template <class Use>
void with_number(std::string_view name, Use&& use) {
  if (name == "F32") return use(float{});
  if (name == "BF16") return use(bf16{});
  if (name == "F16") return use(fp16{});
  if (name == "F64") return use(double{});
  fail<config_error>("dtype must be F64, F32, F16 or BF16 to be converted to; given ", name);
}

/// use(first, count) per piece.
template <class Use>
void for_each_piece(const file_tensor& tensor, Use&& use) {
  const std::size_t all = tensor.size();
  for (std::size_t first = 0; first < all; first += numbers_of_a_piece) use(first, std::min(numbers_of_a_piece, all - first));
}

}  // namespace detail

XTRAIN_INLINE tensor_to_write rewritten(const file_tensor& tensor, std::string_view dtype) {
  if (find_block_dtype(dtype) != nullptr) dtype = "F32";
  const bool converted = is_floating(tensor.dtype) && dtype != tensor.dtype;
  tensor_to_write result{.name = tensor.name, .dtype = converted ? std::string(dtype) : tensor.dtype, .shape = tensor.shape};
  result.bytes = tensor.size() * bits_of(result.dtype) / 8;
  if (tensor.layout.empty() && !converted) {
    result.produce = [&tensor](const auto& sink) { sink(tensor.bytes.data(), tensor.bytes.size()); };
  } else if (!converted) {
    result.produce = [&tensor](const auto& sink) {
      std::vector<std::byte> piece;
      detail::for_each_piece(tensor, [&](std::size_t first, std::size_t count) {
        piece.resize(count * bits_of(tensor.dtype) / 8);
        read_elements(tensor, first, piece);
        sink(piece.data(), piece.size());
      });
    };
  } else {
    detail::with_number(dtype, [&]<class T>(T) {
      result.produce = [&tensor](const auto& sink) {
        std::vector<T> piece;
        detail::for_each_piece(tensor, [&](std::size_t first, std::size_t count) {
          piece.resize(count);
          read_numbers<T>(tensor, first, piece);
          sink(piece.data(), piece.size() * sizeof(T));
        });
      };
    });
  }
  return result;
}

XTRAIN_INLINE void measure_rounding(const file_tensor& tensor, std::string_view dtype, rounding_error& error) {
  if (!is_floating(tensor.dtype) || tensor.dtype == dtype) return;
  detail::with_number(dtype, [&]<class T>(T) {
    std::vector<double> before;
    std::vector<T> after;
    detail::for_each_piece(tensor, [&](std::size_t first, std::size_t count) {
      before.resize(count);
      after.resize(count);
      read_numbers<double>(tensor, first, before);
      read_numbers<T>(tensor, first, after);
      for (std::size_t i = 0; i < count; ++i) {
        const auto now = static_cast<double>(static_cast<accumulate_t<T>>(after[i]));
        require<data_error>(std::isfinite(now) || !std::isfinite(before[i]), "tensor '", tensor.name, "': numbers must be at most ",
                            dtype_traits<T>::largest, " to be stored as ", dtype_traits<T>::name, "; one is ", before[i]);
        const double change = std::abs(now - before[i]);
        if (change > error.largest) error = {.largest = change, .before = before[i], .after = now, .tensor = tensor.name};
      }
    });
  });
}

}  // namespace xtrain
