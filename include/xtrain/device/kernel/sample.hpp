// Each row's next token, chosen from logits; rows of a decoding step that continue with it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// `sample` leaves the choice to the host.
inline constexpr token undecided = -1;

/// token_n = sampler::choose for these settings, defined in generate/README.md ('Which token a draw gives').
///   text_nc      read      the row's text, `capacity` tokens; may be empty with repetition_penalty 1
///   last_n       read      index of the text's last token; may be empty with repetition_penalty 1
///   place_n      read      tokens generated so far: step of the random number; may be empty with temperature 0
///   sequence_n   read      site of the random number; may be empty with temperature 0
///   token_n      written   `undecided` where a logit is NaN or infinity, every token is banned, or rounding in the definition's order of sums
///                          decides and the device has another
///   rounding     double, as defined: the same token on every device
template <class Memory>
struct sample {
  static constexpr std::string_view name = "sample";
  template <class M>
  using on = sample<M>;

  std::size_t n = 0, v = 0, capacity = 0;
  double temperature = 0.0;  // 0: the most likely token, ties to the lower
  std::size_t top_k = 0;     // 0: all
  double top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  std::uint64_t seed = 0;
  read<float, Memory> logits_nv{};
  read<token, Memory> text_nc{}, last_n{}, place_n{}, sequence_n{};
  written<token, Memory> token_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.capacity, s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.seed, s.logits_nv, s.text_nc, s.last_n, s.place_n,
             s.sequence_n, s.token_n);
  }
  [[nodiscard]] constexpr double operations() const { return (temperature == 0.0 ? 1.0 : 8.0) * static_cast<double>(n * v); }
};

/// A row continues with its token if that is ≥ 0 and it has added fewer than `room` tokens; otherwise it is unchanged.
///   token_n, room_n          read
///   count_n                  updated   tokens added
///   taken_nm                 updated   added tokens, `most` places each
///   next_n                   updated   the token
///   position_n, cached_n, place_n   updated   plus 1
///   text_nc                  updated   the token at its position; `capacity` places each; may be empty
template <class Memory>
struct advance {
  static constexpr std::string_view name = "advance";
  template <class M>
  using on = advance<M>;

  std::size_t n = 0, most = 0, capacity = 0;
  read<token, Memory> token_n{}, room_n{};
  updated<token, Memory> count_n{}, taken_nm{}, next_n{}, position_n{}, cached_n{}, place_n{}, text_nc{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.most, s.capacity, s.token_n, s.room_n, s.count_n, s.taken_nm, s.next_n, s.position_n, s.cached_n, s.place_n, s.text_nc);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }

  /// Row i, on addressable memory.
  constexpr void compute(std::size_t i) const {
    const token chosen = token_n.raw()[i], count = count_n.raw()[i];
    if (chosen < 0 || count >= room_n.raw()[i]) return;
    taken_nm.raw()[i * most + static_cast<std::size_t>(count)] = chosen;
    count_n.raw()[i] = count + 1;
    next_n.raw()[i] = chosen;
    const token position = ++position_n.raw()[i];
    ++cached_n.raw()[i];
    ++place_n.raw()[i];
    if (!text_nc.empty()) text_nc.raw()[i * capacity + static_cast<std::size_t>(position)] = chosen;
  }
};

}  // namespace xtrain::kernel
