// What a rank has sent: messages, bytes, rounds of collectives. A dry run counts the same without sending.
#pragma once

#include <cstddef>

namespace xtrain {

/// What a group has sent.
struct traffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;
  std::size_t rounds = 0;       ///< of collectives, one after the other: each costs one latency
  std::size_t collectives = 0;  ///< calls
  std::size_t scratch = 0;      ///< bytes of host memory in which messages are made, at most

  traffic& operator+=(const traffic& more) {
    messages += more.messages;
    bytes += more.bytes;
    rounds += more.rounds;
    collectives += more.collectives;
    scratch += more.scratch;
    return *this;
  }
  /// What was sent since `before`, with the scratch memory of now.
  [[nodiscard]] traffic since(const traffic& before) const {
    return {messages - before.messages, bytes - before.bytes, rounds - before.rounds, collectives - before.collectives, scratch};
  }
  /// The same n times; scratch memory is not needed n times.
  [[nodiscard]] traffic times(std::size_t n) const { return {messages * n, bytes * n, rounds * n, collectives * n, 0}; }

  friend bool operator==(const traffic&, const traffic&) = default;
};

}  // namespace xtrain
