// The exception types. Every message reads 'who: what must hold; what was given; where to read'.
#pragma once

#include <stdexcept>
#include <string>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// Base class of everything xtrain throws deliberately.
class error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Tensor shapes that do not match each other or the operation.
class shape_error : public error {
  using error::error;
};

/// A setting, a flag or a config.json that contradicts itself, the weights or the device.
class config_error : public error {
  using error::error;
};

/// Unusable training or evaluation data: empty, malformed, too long.
class data_error : public error {
  using error::error;
};

/// A file that is missing, damaged, or cannot be written. Files that were intact before stay intact.
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

/// A rank stopped, hangs, or sent an unexpected message.
class comm_error : public error {
  using error::error;
};

/// Throws Error with the parts concatenated.
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(concat(parts...));
}

/// Throws Error with the parts concatenated unless `holds`. The message is built only in that case.
template <class Error, class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    fail<Error>(parts...);
}

}  // namespace xtrain
