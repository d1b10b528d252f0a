// Exception types. Messages: 'who: what must hold; what was given; where to read'.
#pragma once

#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// Base class of xtrain's exceptions.
class error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Mismatched tensor shapes.
class shape_error : public error {
  using error::error;
};

/// A setting, flag or config.json that contradicts itself, weights or device.
class config_error : public error {
  using error::error;
};

/// Unusable data: empty, malformed, too long.
class data_error : public error {
  using error::error;
};

/// A missing, damaged or unwritable file. Existing files stay intact.
class file_error : public error {
  using error::error;
};

/// More memory than the device has or the program allows.
class memory_error : public error {
  using error::error;
};

/// Non-finite weights, gradients or losses for too many steps.
class non_finite_error : public error {
  using error::error;
};

/// A rank stopped, hangs, or sent an unexpected message.
class comm_error : public error {
  using error::error;
};

namespace detail {

/// Type of a message's part: literals of all lengths are one type.
template <class T>
using error_argument = std::conditional_t<std::is_array_v<T>, const char*, std::conditional_t<std::is_arithmetic_v<T>, T, const T&>>;

template <class Error>
[[noreturn, gnu::noinline, gnu::cold]] void throw_joined(std::span<const text_part> parts) {
  throw Error(joined(parts));
}

template <class Error, class... Parts>
[[noreturn, gnu::noinline, gnu::cold]] void throw_concatenated(Parts... parts) {
  const std::array<text_part, sizeof...(parts)> all{text_part(parts)...};
  throw_joined<Error>(all);
}

}  // namespace detail

/// Throws Error with the concatenated parts.
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  detail::throw_concatenated<Error, detail::error_argument<Parts>...>(parts...);
}

/// Throws Error unless `holds`; only then concatenates.
template <class Error, class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail<Error>(parts...);
}

}  // namespace xtrain
