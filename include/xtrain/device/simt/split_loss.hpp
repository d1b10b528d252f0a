// Vocabulary-parallel cross-entropy and distillation of given logits, a block per row.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/softmax_row.hpp>

namespace xtrain {

namespace simt {

/// gradient_scale times its factor in device memory.
struct scale_of_gradient {
  double scale;
  const double* factor;  // null: 1
  template <class Kernel>
  [[nodiscard]] static scale_of_gradient of(const Kernel& k) {
    return {k.gradient_scale, k.gradient_factor_1.raw()};
  }
  XTRAIN_SIMT_FN float operator()() const { return static_cast<float>(factor != nullptr ? scale * *factor : scale); }
};
/// factor · difference; 0 for a factor of 0.
XTRAIN_SIMT_FN float weighted(float factor, float difference) { return factor == 0.0f ? 0.0f : factor * difference; }
template <class T>
XTRAIN_SIMT_FN void put(bool accumulate, T& to, float value) {
  to = rounded<T>(accumulate ? widen(to) + value : value);
}

struct softmax_part_rows {
  static constexpr int threads = row_threads;
  using shared = softmax_shared<threads>;
  const float* logits;
  const token* target;
  float* parts;
  std::size_t n;
  int v, number_of_parts;
  token first;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const float* const x_v = logits + i * static_cast<std::size_t>(v);
    float total = 0;
    const softmax_state all = softmax_of_row<threads>(
        v, [&](int j) { return x_v[j]; }, total, s);
    if (thread() != 0) return;
    const token label = target[i] - first;
    parts[i] = all.largest;
    parts[n + i] = all.sum;
    parts[2 * n + i] = label >= 0 && label < v ? x_v[label] : 0.0f;
    if (number_of_parts == 4) parts[3 * n + i] = total;
  }
};

template <class T>
struct softmax_of_parts_rows {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<int, threads> places;
  };
  const float *parts, *token_weight, *logits;
  const token* target;
  float* loss;
  T* dlogits;  // null: only the loss
  std::size_t n;
  int v, rank, ranks, number_of_parts, vocab_size;
  token first;
  float kept, spread, z, log_z;
  scale_of_gradient scale;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const auto part = [&](int of_rank, int what) { return parts[static_cast<std::size_t>(of_rank * number_of_parts + what) * n + i]; };
    float largest = part(0, 0), sum = 0, at_target = 0, total = 0;
    int peak_rank = 0;
    for (int r = 1; r < ranks; ++r)
      if (part(r, 0) > largest) peak_rank = r, largest = part(r, 0);
    for (int r = 0; r < ranks; ++r) {
      sum += part(r, 1) * exp(part(r, 0) - largest);
      at_target += part(r, 2);
      if (number_of_parts == 4) total += part(r, 3);
    }
    const float lse = largest + log(sum), weight = token_weight != nullptr ? token_weight[i] : 1.0f;
    const bool counted = target[i] >= 0 && target[i] < vocab_size && weight != 0.0f;
    if (thread() == 0)
      loss[i] = counted ? weight * (lse - kept * at_target - spread * total + z * largest * largest + log_z * lse * lse) : 0.0f;
    if (dlogits == nullptr) return;
    const float* const x_v = logits + i * static_cast<std::size_t>(v);
    T* const d_v = dlogits + i * static_cast<std::size_t>(v);
    int peak = 0x7fffffff;  // first place of the largest logit, if on this rank
    if (z != 0.0f && peak_rank == rank) {
      for (int j = thread(); j < v; j += threads)
        if (x_v[j] == largest) peak = smaller(peak, j);
      peak = -block_max<threads>(-peak, s.places);
    }
    const token label = target[i] - first;
    const float factor = scale() * weight, of_softmax = 1.0f + 2.0f * log_z * lse;
    for (int j = thread(); j < v; j += threads) {
      float d = 0;
      if (counted) {
        d = exp(x_v[j] - lse) * of_softmax - spread;
        if (j == label) d -= kept;
        if (j == peak) d += 2.0f * z * largest;
        d *= factor;
      }
      d_v[j] = rounded<T>(d);
    }
  }
};

struct distillation_part_rows {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<float, threads> parts, more_parts;
  };
  const float *student, *teacher;
  float* parts;
  std::size_t n;
  int v;
  float scale;
  bool is_forward;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const float* const l_v = student + i * static_cast<std::size_t>(v);
    const float* const m_v = teacher + i * static_cast<std::size_t>(v);
    float l_largest = -INFINITY, m_largest = -INFINITY;
    for (int j = thread(); j < v; j += threads)
      l_largest = larger(l_largest, l_v[j] * scale), m_largest = larger(m_largest, m_v[j] * scale);
    l_largest = block_max<threads>(l_largest, s.parts);
    m_largest = block_max<threads>(m_largest, s.parts);
    float l_sum = 0, m_sum = 0, difference = 0;
    for (int j = thread(); j < v; j += threads) {
      const float l = l_v[j] * scale - l_largest, m = m_v[j] * scale - m_largest, l_exp = exp(l), m_exp = exp(m);
      l_sum += l_exp;
      m_sum += m_exp;
      difference += is_forward ? weighted(m_exp, m - l) : weighted(l_exp, l - m);
    }
    block_sums<threads>(l_sum, m_sum, s.parts, s.more_parts);
    difference = block_sum<threads>(difference, s.parts);
    if (thread() != 0) return;
    parts[i] = l_largest;
    parts[n + i] = l_sum;
    parts[2 * n + i] = m_largest;
    parts[3 * n + i] = m_sum;
    parts[4 * n + i] = difference;
  }
};

template <class T>
struct distillation_of_parts_rows {
  static constexpr int threads = row_threads;
  struct shared {};
  const float *parts, *token_weight, *student, *teacher;
  const token* target;
  float* loss;
  T* dstudent;
  std::size_t n;
  int v, ranks, vocab_size;
  float factor, temperature_scale;
  scale_of_gradient scale;
  bool is_forward, accumulate;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const auto i = static_cast<std::size_t>(block_x());
    const auto part = [&](int rank, int what) { return parts[static_cast<std::size_t>(rank * 5 + what) * n + i]; };
    float l_largest = part(0, 0), m_largest = part(0, 2), l_sum = 0, m_sum = 0, difference = 0;
    for (int r = 1; r < ranks; ++r) l_largest = larger(l_largest, part(r, 0)), m_largest = larger(m_largest, part(r, 2));
    for (int r = 0; r < ranks; ++r) {
      const float l_shift = part(r, 0) - l_largest, m_shift = part(r, 2) - m_largest;
      l_sum += part(r, 1) * exp(l_shift);
      m_sum += part(r, 3) * exp(m_shift);
      // terms are relative to their rank's largest logits
      difference += is_forward ? weighted(exp(m_shift), part(r, 4) + part(r, 3) * (m_shift - l_shift))
                               : weighted(exp(l_shift), part(r, 4) + part(r, 1) * (l_shift - m_shift));
    }
    const float l_log = log(l_sum), m_log = log(m_sum);
    const float divergence = is_forward ? difference / m_sum + l_log - m_log : difference / l_sum + m_log - l_log;
    const bool counted = target[i] >= 0 && target[i] < vocab_size;
    const float weight = counted ? factor * (token_weight != nullptr ? token_weight[i] : 1.0f) : 0.0f;
    if (thread() == 0) put(accumulate, loss[i], weight == 0.0f ? 0.0f : weight * divergence);
    if (dstudent == nullptr) return;
    const float gradient = scale() * weight * temperature_scale;
    const std::size_t row = i * static_cast<std::size_t>(v);
    for (int j = thread(); j < v; j += threads) {
      const std::size_t at = row + static_cast<std::size_t>(j);
      const float log_q = student[at] * temperature_scale - l_largest - l_log, log_p = teacher[at] * temperature_scale - m_largest - m_log;
      const float q = exp(log_q), slope = is_forward ? q - exp(log_p) : weighted(q, log_q - log_p - divergence);
      put(accumulate, dstudent[at], weight == 0.0f ? 0.0f : gradient * slope);
    }
  }
};

struct topk_distillation_part_rows {
  static constexpr int threads = row_threads;
  struct shared : softmax_shared<threads> {
    warp_parts<float, threads> parts;
  };
  const float *student, *teacher;
  const token* id;
  float* parts;
  std::size_t n;
  int v, top;
  token first;
  float scale;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const float* const x_v = student + i * static_cast<std::size_t>(v);
    float total = 0;
    const softmax_state all = softmax_of_row<threads>(
        v, [&](int j) { return x_v[j] * scale; }, total, s);
    float stored = 0;
    for (int e = thread(); e < top; e += threads) {
      const std::size_t at = i * static_cast<std::size_t>(top) + static_cast<std::size_t>(e);
      const token local = id[at] - first;
      if (local >= 0 && local < v) stored += weighted(exp(teacher[at]), x_v[local] * scale);
    }
    stored = block_sum<threads>(stored, s.parts);
    if (thread() != 0) return;
    parts[i] = all.largest;
    parts[n + i] = all.sum;
    parts[2 * n + i] = stored;
  }
};

inline constexpr int most_top = 2048;

template <class T>
struct topk_distillation_of_parts_rows {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<float, threads> parts, more_parts;
    shared_array<float, most_top> value;  // of stored tokens
  };
  const float *parts, *token_weight, *student, *teacher;
  const token *target, *id;
  float* loss;
  T* dstudent;
  std::size_t n;
  int v, top, ranks, vocab_size;
  token first;
  float factor, temperature_scale;
  scale_of_gradient scale;
  bool renormalizes, accumulate;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto i = static_cast<std::size_t>(block_x());
    const auto part = [&](int rank, int what) { return parts[static_cast<std::size_t>(rank * 3 + what) * n + i]; };
    float largest = part(0, 0), sum = 0, stored_sum = 0;
    for (int r = 1; r < ranks; ++r) largest = larger(largest, part(r, 0));
    for (int r = 0; r < ranks; ++r) {
      sum += part(r, 1) * exp(part(r, 0) - largest);
      stored_sum += part(r, 2);
    }
    const float lse = largest + log(sum);
    const std::size_t ids = i * static_cast<std::size_t>(top);
    float mass = 0, entropy = 0;  // Σ p, Σ p log p
    for (int e = thread(); e < top; e += threads) {
      const token of_all = id[ids + static_cast<std::size_t>(e)];
      if (of_all < 0 || of_all >= vocab_size) continue;
      const float log_p = teacher[ids + static_cast<std::size_t>(e)], p = exp(log_p);
      mass += p;
      entropy += weighted(p, log_p);
    }
    block_sums<threads>(mass, entropy, s.parts, s.more_parts);
    const bool renormalize = renormalizes && mass > 0.0f;  // p / mass, log p − log mass
    const float share = renormalize ? 1.0f / mass : 1.0f, whole = renormalize ? 1.0f : mass;
    const float divergence = share * (entropy - stored_sum) + whole * lse - (renormalize ? log(mass) : 0.0f);
    const bool counted = target[i] >= 0 && target[i] < vocab_size;
    const float weight = counted ? factor * (token_weight != nullptr ? token_weight[i] : 1.0f) : 0.0f;
    if (thread() == 0) put(accumulate, loss[i], weight == 0.0f ? 0.0f : weight * divergence);
    if (dstudent == nullptr) return;
    const float gradient = scale() * weight * temperature_scale;
    const std::size_t row = i * static_cast<std::size_t>(v);
    const auto slope_of = [&](std::size_t at, float p) {
      return weight == 0.0f ? 0.0f : gradient * (whole * exp(student[at] * temperature_scale - lse) - share * p);
    };
    // stored tokens have other values: computed before the pass over the row, written after it
    for (int e = thread(); e < top; e += threads) {
      const token local = id[ids + static_cast<std::size_t>(e)] - first;
      if (local < 0 || local >= v) continue;
      const std::size_t at = row + static_cast<std::size_t>(local);
      const float value = slope_of(at, exp(teacher[ids + static_cast<std::size_t>(e)]));
      s.value[e] = accumulate ? widen(dstudent[at]) + value : value;
    }
    sync();
    for (int j = thread(); j < v; j += threads)
      put(accumulate, dstudent[row + static_cast<std::size_t>(j)], slope_of(row + static_cast<std::size_t>(j), 0.0f));
    sync();
    for (int e = thread(); e < top; e += threads) {
      const token local = id[ids + static_cast<std::size_t>(e)] - first;
      if (local >= 0 && local < v && id[ids + static_cast<std::size_t>(e)] < vocab_size)
        dstudent[row + static_cast<std::size_t>(local)] = rounded<T>(s.value[e]);
    }
  }
};

}  // namespace simt

template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::softmax_part<M, float>& k, scratch_span<M>) {
  kernel::check_arity<7>(k);
  simt::launch_rows(stream,
                    simt::softmax_part_rows{k.logits_nv.raw(), k.target_n.raw(), k.parts_pn.raw(), k.n, static_cast<int>(k.v),
                                            static_cast<int>(k.parts), k.first},
                    k.n);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::softmax_of_parts<M, float, T>& k, scratch_span<M>) {
  kernel::check_arity<17>(k);
  simt::launch_rows(stream,
                    simt::softmax_of_parts_rows<T>{k.parts_rpn.raw(), k.token_weight_n.raw(), k.logits_nv.raw(), k.target_n.raw(),
                                                   k.loss_n.raw(), k.dlogits_nv.raw(), k.n, static_cast<int>(k.v), static_cast<int>(k.rank),
                                                   static_cast<int>(k.ranks), static_cast<int>(kernel::softmax_parts(k.label_smoothing)),
                                                   static_cast<int>(k.vocab_size), k.first, simt::narrowed(1.0 - k.label_smoothing),
                                                   simt::narrowed(k.label_smoothing / static_cast<double>(k.vocab_size)),
                                                   simt::narrowed(k.z_loss), simt::narrowed(k.log_z_loss), simt::scale_of_gradient::of(k)},
                    k.n);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::distillation_part<M, float>& k, scratch_span<M>) {
  kernel::check_arity<7>(k);
  simt::launch_rows(stream,
                    simt::distillation_part_rows{k.student_nv.raw(), k.teacher_nv.raw(), k.parts_5n.raw(), k.n, static_cast<int>(k.v),
                                                 simt::narrowed(1.0 / k.temperature), k.kind == kernel::divergence_kind::forward},
                    k.n);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::distillation_of_parts<M, float, T>& k, scratch_span<M>) {
  kernel::check_arity<17>(k);
  simt::launch_rows(stream,
                    simt::distillation_of_parts_rows<T>{k.parts_r5n.raw(), k.token_weight_n.raw(), k.student_nv.raw(), k.teacher_nv.raw(),
                                                        k.target_n.raw(), k.loss_n.raw(), k.dstudent_nv.raw(), k.n, static_cast<int>(k.v),
                                                        static_cast<int>(k.ranks), static_cast<int>(k.vocab_size), simt::narrowed(k.factor),
                                                        simt::narrowed(1.0 / k.temperature), simt::scale_of_gradient::of(k),
                                                        k.kind == kernel::divergence_kind::forward, k.accumulate},
                    k.n);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::topk_distillation_part<M, float>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_rows(
      stream,
      simt::topk_distillation_part_rows{k.student_nv.raw(), k.teacher_nk.raw(), k.id_nk.raw(), k.parts_3n.raw(), k.n, static_cast<int>(k.v),
                                        static_cast<int>(k.top), k.first, simt::narrowed(1.0 / k.temperature)},
      k.n);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::topk_distillation_of_parts<M, float, T>& k, scratch_span<M>) {
  kernel::check_arity<20>(k);
  require<config_error>(k.top <= static_cast<std::size_t>(simt::most_top), "distillation: a teacher must store at most ", simt::most_top,
                        " tokens per position on this device; given ", k.top);
  simt::launch_rows(stream,
                    simt::topk_distillation_of_parts_rows<T>{
                        k.parts_r3n.raw(), k.token_weight_n.raw(), k.student_nv.raw(), k.teacher_nk.raw(), k.target_n.raw(), k.id_nk.raw(),
                        k.loss_n.raw(), k.dstudent_nv.raw(), k.n, static_cast<int>(k.v), static_cast<int>(k.top), static_cast<int>(k.ranks),
                        static_cast<int>(k.vocab_size), k.first, simt::narrowed(k.factor), simt::narrowed(1.0 / k.temperature),
                        simt::scale_of_gradient::of(k), k.renormalize, k.accumulate},
                    k.n);
}

}  // namespace xtrain
