// What is thrown. Every message reads 'who: what must hold; what was given; where to read'.
#pragma once

#include <stdexcept>
#include <string>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// The root of everything xtrain throws on purpose.
class error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Tensors whose shapes do not fit one another or the operation.
class shape_error : public error {
  using error::error;
};

/// A setting, a flag or a config.json that contradicts itself, the weights or the device.
class config_error : public error {
  using error::error;
};

/// Training or evaluation data that cannot be used: empty, malformed, too long.
class data_error : public error {
  using error::error;
};

/// A file that is missing, damaged, or cannot be written. Nothing that was whole before is harmed.
class file_error : public error {
  using error::error;
};

/// A request for more memory than the device has or the program allows.
class memory_error : public error {
  using error::error;
};

/// Weights, gradients or losses that are not finite for more steps than allowed.
class non_finite_error : public error {
  using error::error;
};

/// Ranks that no longer work together: one has stopped, hangs, or sends what nobody asked for.
class comm_error : public error {
  using error::error;
};

/// Throws Error with the parts joined.
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(concat(parts...));
}

/// Throws Error with the parts joined unless `holds`. The parts are joined only then.
template <class Error, class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail<Error>(parts...);
}

}  // namespace xtrain
