// Messages, bytes and rounds that a rank has sent; a dry run counts them without sending.
#pragma once

#include <cstddef>

namespace xtrain {

/// What a group has sent.
struct traffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;
  std::size_t rounds = 0;  ///< successive: one latency each
  std::size_t collectives = 0;
  std::size_t scratch = 0;  ///< maximum host memory for messages, in bytes

  traffic& operator+=(const traffic& more) {
    messages += more.messages;
    bytes += more.bytes;
    rounds += more.rounds;
    collectives += more.collectives;
    scratch += more.scratch;
    return *this;
  }
  /// Since `before`, with present scratch memory.
  [[nodiscard]] traffic since(const traffic& before) const {
    return {messages - before.messages, bytes - before.bytes, rounds - before.rounds, collectives - before.collectives, scratch};
  }
  /// n times, except scratch memory.
  [[nodiscard]] traffic times(std::size_t n) const { return {messages * n, bytes * n, rounds * n, collectives * n, 0}; }

  friend bool operator==(const traffic&, const traffic&) = default;
};

}  // namespace xtrain
