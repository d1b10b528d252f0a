// Sampling, a block per row, without sorting: the k-th score, or the token where a sum of weights reaches a target, is found by digits of the scores' bits,
// with a sum per 16 digits in every pass over the row.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/objectives.hpp>

namespace xtrain {

namespace simt {

/// Unsigned numbers in the order of doubles; both zeros are equal.
XTRAIN_SIMT_FN std::uint64_t ordered_bits(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x + 0.0);
  return (bits >> 63) != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}

/// A thread handles tokens thread(), thread() + threads, ...: it alone reads its scores and weights until the last search.
struct sample_rows {
  static constexpr int threads = 256, digits = 16;
  struct shared {
    shared_array<double, digits * threads> mass;  // by digit and thread
    shared_array<double, threads> parts;
    shared_array<double, digits> of_digit;
    shared_array<int, threads> matches;
    warp_parts<double, threads> doubles;
    warp_parts<int, threads> ints;
    warp_parts<std::uint64_t, threads> keys;
  };
  const float* logits_nv;
  const token *text_nc, *last_n, *place_n, *sequence_n;
  token* token_n;
  double *scores_nv, *weights_nv;  // scratch; scores: null without a penalty
  std::size_t v, capacity, top_k;
  double temperature, top_p, min_p, penalty;
  std::uint64_t seed;

  /// A row's scores, in scratch memory where changed.
  struct row {
    const float* logits;
    const double* scores;  // may be null
    XTRAIN_SIMT_FN double at(std::size_t j) const { return scores != nullptr ? scores[j] : static_cast<double>(logits[j]); }
    XTRAIN_SIMT_FN std::uint64_t key(std::size_t j) const { return ordered_bits(at(j)); }
    /// Lower bits are equal for all scores of a sign.
    XTRAIN_SIMT_FN int lowest() const { return scores != nullptr ? 0 : 28; }
    /// The score with this key prefix.
    XTRAIN_SIMT_FN double score_of(std::uint64_t prefix) const {
      const std::uint64_t key = prefix << lowest(), bits = (key >> 63) != 0 ? key ^ std::uint64_t{1} << 63 : ~key;
      return std::bit_cast<double>(bits >> lowest() << lowest());
    }
  };
  /// Where a sum over descending keys reaches a target.
  struct reached {
    std::uint64_t prefix = 0;      // of the key
    double before = 0, equal = 0;  // sums of larger keys, and of this key
    bool exists = true;
  };

  /// Equal for every thread of the block.
  ///   mass(j)   token j's contribution
  template <class Mass>
  XTRAIN_SIMT_FN reached search(const row& x, double target, const Mass& mass, shared& s) const {
    reached found;
    for (int shift = 60; shift >= x.lowest(); shift -= 4) {
      for (int d = 0; d < digits; ++d) s.mass[d * threads + thread()] = 0;
      for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads) {
        const std::uint64_t key = x.key(j) >> shift;
        if (key >> 4 == found.prefix) s.mass[static_cast<int>(key & 15) * threads + thread()] += mass(j);
      }
      sync();
      double part = 0;
      for (int i = 0; i < threads / digits; ++i) part += s.mass[thread() / digits * threads + thread() % digits + digits * i];
      s.parts[thread()] = part;
      sync();
      if (thread() < digits) {
        double sum = 0;
        for (int i = 0; i < digits; ++i) sum += s.parts[thread() * digits + i];
        s.of_digit[thread()] = sum;
      }
      sync();
      int digit = digits - 1;
      while (digit >= 0 && found.before + s.of_digit[digit] < target) found.before += s.of_digit[digit--];
      if (digit < 0) return {.exists = false};
      found.equal = s.of_digit[digit];
      found.prefix = found.prefix << 4 | static_cast<std::uint64_t>(digit);
    }
    return found;
  }

  /// The token where a sum of weights reaches a target: the number-th with this key, in token order.
  struct crossing {
    std::uint64_t prefix = 0;
    double number = 0, before = 0, sum = 0;  // sums of weights before the token, and with it
    bool exists = true;
  };
  XTRAIN_SIMT_FN crossing crossing_of(const row& x, double target, double largest, const double* weights, shared& s) const {
    const reached at = search(
        x, target, [&](std::size_t j) { return weights[j]; }, s);
    if (!at.exists) return {.exists = false};
    const double weight = ::exp((x.score_of(at.prefix) - largest) / temperature);
    const double number = smaller(larger(::ceil((target - at.before) / weight), 1.0), larger(::rint(at.equal / weight), 1.0));
    return {at.prefix, number, at.before + (number - 1.0) * weight, at.before + number * weight, true};
  }

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const float* const logits = logits_nv + i * v;
    double* const scores = scores_nv == nullptr ? nullptr : scores_nv + i * v;
    const row x{logits, scores};
    int not_finite = 0;
    for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads) {
      const auto logit = static_cast<double>(logits[j]);
      if (logit != logit) not_finite = 1;
      if (scores != nullptr) scores[j] = logit;
    }
    if (scores != nullptr) {
      const token* const text = text_nc + i * capacity;
      for (token j = 0; j <= last_n[i]; ++j) {  // from the logit: repetitions change nothing
        const token t = text[j];
        if (t < 0 || static_cast<std::size_t>(t) >= v || t % threads != thread()) continue;
        const auto logit = static_cast<double>(logits[t]);
        scores[t] = logit > 0 ? logit / penalty : logit * penalty;
      }
    }
    double largest = -HUGE_VAL;
    for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads) {
      const double score = x.at(j);
      if (score != score || score == HUGE_VAL) not_finite = 1;
      largest = larger(largest, score);
    }
    not_finite = block_max<threads>(not_finite, s.ints);
    largest = block_max<threads>(largest, s.doubles);
    if (not_finite != 0 || largest == -HUGE_VAL) {
      if (thread() == 0) token_n[i] = kernel::undecided;
      return;
    }
    if (temperature == 0.0) {
      write_token(
          i, [&](std::size_t j) { return x.at(j) == largest; }, 1, s);
      return;
    }
    const crossing chosen = draw(i, x, largest, s);
    if (!chosen.exists) {
      if (thread() == 0) token_n[i] = kernel::undecided;
      return;
    }
    write_token(
        i, [&](std::size_t j) { return x.key(j) >> x.lowest() == chosen.prefix; }, static_cast<int>(chosen.number), s);
  }

  /// Equal for every thread of the block. Sums have another order than the definition's and differ by less than `doubt` (see token_selection::select); nothing
  /// exists where comparisons could differ. Fewer numbers are added in sequence here, at most v / 256 + 32 per pass and 256 digits, and weights are within 2
  /// units of roundoff.
  XTRAIN_SIMT_FN crossing draw(std::size_t i, const row& x, double largest, shared& s) const {
    constexpr double near = 0x1p-42;
    double* const weights = weights_nv + i * v;
    std::uint64_t least = 0;  // key prefixes from here on
    if (top_k != 0 && top_k < v)
      least = search(
                  x, static_cast<double>(top_k), [](std::size_t) { return 1.0; }, s)
                  .prefix;
    double total = 0;
    for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads) {
      const double weight = x.key(j) >> x.lowest() >= least ? ::exp((x.at(j) - largest) / temperature) : 0.0;
      weights[j] = weight;
      total += weight;
    }
    total = block_sum<threads>(total, s.doubles);
    const double doubt = ((8.0 * static_cast<double>(v) + 128.0) * 0x1p-53 + near) * total;
    double kept = total;
    crossing last{.exists = false};  // end of top-p
    if (top_p < 1.0) {
      const double target = top_p * total;
      last = crossing_of(x, target, largest, weights, s);
      if (!last.exists || last.sum <= target + doubt || (last.before > 0.0 && last.before >= target - doubt)) return {.exists = false};
      kept = last.sum;
    }
    if (min_p > 0.0) {
      std::uint64_t least_kept = ordered_bits(largest) >> x.lowest();
      int is_near = 0;
      for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads) {
        if (x.at(j) == largest || weights[j] < min_p * (1.0 - near)) continue;
        if (weights[j] <= min_p * (1.0 + near)) is_near = 1;
        least_kept = smaller(least_kept, x.key(j) >> x.lowest());
      }
      if (block_max<threads>(is_near, s.ints) != 0) return {.exists = false};
      least_kept = ~block_max<threads>(~least_kept, s.keys);
      if (!last.exists || last.prefix < least_kept) {
        double sum = 0;
        for (auto j = static_cast<std::size_t>(thread()); j < v; j += threads)
          sum += x.key(j) >> x.lowest() >= least_kept ? weights[j] : 0.0;
        kept = block_sum<threads>(sum, s.doubles);
        last.exists = false;
      }
    }
    const random_site site{seed, static_cast<std::uint32_t>(place_n[i]), static_cast<std::uint32_t>(sequence_n[i]), 0};
    const double target = static_cast<double>(uniform_open(random_word_of(site, 0))) * kept;
    const crossing chosen = crossing_of(x, target, largest, weights, s);
    if (!chosen.exists || (chosen.before > 0.0 && chosen.before >= target - doubt)) return {.exists = false};
    const bool is_last = last.exists && last.prefix == chosen.prefix && last.number == chosen.number;
    if (chosen.sum <= target + doubt && !is_last) return {.exists = false};
    return chosen;
  }

  /// token_n[i] = the number-th matching token.
  template <class Matches>
  XTRAIN_SIMT_FN void write_token(std::size_t i, const Matches& matches, int number, shared& s) const {
    const std::size_t width = (v + threads - 1) / threads, begin = width * static_cast<std::size_t>(thread());
    const std::size_t end = smaller(begin + width, v);
    int own = 0, before = 0;
    for (std::size_t j = begin; j < end; ++j) own += matches(j) ? 1 : 0;
    s.matches[thread()] = own;
    sync();
    for (int t = 0; t < thread(); ++t) before += s.matches[t];
    if (before >= number || before + own < number) return;
    std::size_t j = begin;
    for (; before < number; ++j) before += matches(j) ? 1 : 0;
    token_n[i] = static_cast<token>(j - 1);
  }
};

template <class M>
struct advance_work {
  kernel::advance<M> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const { k.compute(i); }
};

}  // namespace simt

template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::sample<M>& k, scratch_span<M> scratch) {
  kernel::check_arity<15>(k);
  if (k.n == 0) return;
  auto* const all = reinterpret_cast<double*>(scratch.raw());
  double* const scores = k.repetition_penalty == 1.0 ? nullptr : all;
  double* const weights = k.temperature == 0.0 ? nullptr : scores == nullptr ? all : all + k.n * k.v;
  stream.launch(simt::sample_rows{k.logits_nv.raw(), k.text_nc.raw(), k.last_n.raw(), k.place_n.raw(), k.sequence_n.raw(), k.token_n.raw(),
                                  scores, weights, k.v, k.capacity, k.top_k, k.temperature, k.top_p, k.min_p, k.repetition_penalty, k.seed},
                {static_cast<int>(k.n), 1, 1});
}
template <simt::of_simt_device P, class M>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::sample<M>& k) {
  return ((k.repetition_penalty == 1.0 ? 0 : 1) + (k.temperature == 0.0 ? 0 : 1)) * k.n * k.v * sizeof(double);
}

template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::advance<M>& k, scratch_span<M>) {
  kernel::check_arity<12>(k);
  simt::launch_items(stream, simt::advance_work<M>{k}, k.n);
}

}  // namespace xtrain
