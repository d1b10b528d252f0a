// Mixture of experts: a warp routes a row; a block per expert counts and assigns slots in row order.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/split_loss.hpp>

namespace xtrain {

namespace simt {

/// NaN counts as −∞: choices exist for any logits.
XTRAIN_SIMT_FN float ordered(float x) { return x == x ? x : -INFINITY; }

/// A row's probabilities, choices, weights.
template <class M, class T>
struct route_rows {
  static constexpr int threads = 256, rows_of_block = threads / warp_width;
  struct shared {};
  kernel::expert_routing<M, T> k;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t i = static_cast<std::size_t>(block_x()) * rows_of_block + static_cast<std::size_t>(warp());
    if (i >= k.n) return;  // the entire warp
    const int experts = static_cast<int>(k.experts), choices = static_cast<int>(k.choices);
    const T* const x = k.logits_ne.raw() + i * k.experts;
    float* const p = k.probability_ne.raw() + i * k.experts;
    token* const choice = k.choice_nk.raw() + i * k.choices;
    float* const weight = k.weight_nk.raw() + i * k.choices;
    float largest = -INFINITY;
    for (int e = lane(); e < experts; e += warp_width) largest = larger(largest, widen(x[e]));
    largest = warp_max(largest);
    float sum = 0;
    for (int e = lane(); e < experts; e += warp_width) sum += exp(widen(x[e]) - largest);
    sum = warp_sum(sum);
    for (int e = lane(); e < experts; e += warp_width) p[e] = exp(widen(x[e]) - largest) / sum;
    // largest logit not yet chosen; among equals the first
    float last = INFINITY, chosen = 0;
    int last_expert = -1;
    for (int j = 0; j < choices; ++j) {
      float best = -INFINITY;
      int expert = 0x7fffffff;
      for (int e = lane(); e < experts; e += warp_width) {
        const float value = ordered(widen(x[e]));
        const bool is_left = value < last || (value == last && e > last_expert);
        if (is_left && (value > best || expert == 0x7fffffff)) best = value, expert = e;
      }
      XTRAIN_SIMT_UNROLL
      for (int mask = warp_width / 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(best, mask);
        const int other_expert = shuffle_xor(expert, mask);
        const bool takes = other_expert != 0x7fffffff && (expert == 0x7fffffff || other > best || (other == best && other_expert < expert));
        if (takes) best = other, expert = other_expert;
      }
      last = best, last_expert = expert;
      const float probability = exp(best - largest) / sum;
      chosen += probability;
      if (lane() == 0) choice[j] = expert, weight[j] = probability;
    }
    sync_warp();
    for (int j = lane(); j < choices; j += warp_width) weight[j] /= chosen;
  }
};

/// A block per expert: its slots, also without padding, and its load.
template <class M, class T>
struct count_slots {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<int, threads> counts;
    warp_parts<float, threads> loads;
  };
  kernel::expert_routing<M, T> k;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const token expert = block_x();
    int count = 0, counted = 0;
    float load = 0;
    for (auto i = static_cast<std::size_t>(thread()); i < k.n; i += threads) {
      const bool counts = k.target_n.empty() || k.target_n.raw()[i] != padding_target;
      bool chooses = false;
      for (std::size_t j = 0; j < k.choices; ++j) chooses = chooses || k.choice_nk.raw()[i * k.choices + j] == expert;
      count += chooses ? 1 : 0;
      counted += chooses && counts ? 1 : 0;
      if (counts) load += k.probability_ne.raw()[i * k.experts + static_cast<std::size_t>(expert)];
    }
    count = block_sum<threads>(count, s.counts);
    counted = block_sum<threads>(counted, s.counts);
    load = block_sum<threads>(load, s.loads);
    if (thread() != 0) return;
    k.count_e.raw()[expert] = count;
    if (k.load_e.empty()) return;
    k.load_e.raw()[expert] = load;
    k.counted_e.raw()[expert] = counted;
  }
};

/// A block per expert: its rows in order.
template <class M, class T>
struct give_slots {
  static constexpr int threads = row_threads;
  struct shared {
    shared_array<int, threads> scan;
  };
  kernel::expert_routing<M, T> k;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const token expert = block_x();
    int next = 0;
    for (token e = 0; e < expert; ++e) next += k.count_e.raw()[e];
    for (std::size_t begin = 0; begin < k.n; begin += threads) {
      const std::size_t i = begin + static_cast<std::size_t>(thread());
      std::size_t assignment = 0;
      int chooses = 0;
      for (std::size_t j = 0; i < k.n && j < k.choices; ++j)
        if (k.choice_nk.raw()[i * k.choices + j] == expert) chooses = 1, assignment = i * k.choices + j;
      s.scan[thread()] = chooses;
      sync();
      for (int step = 1; step < threads; step *= 2) {
        const int before = thread() >= step ? s.scan[thread() - step] : 0;
        sync();
        s.scan[thread()] += before;
        sync();
      }
      if (chooses != 0) {
        const int slot = next + s.scan[thread()] - 1;
        k.slot_nk.raw()[assignment] = slot;
        k.row_s.raw()[slot] = static_cast<token>(i);
      }
      next += s.scan[threads - 1];
      sync();
    }
  }
};

template <class M>
struct ranges_work {
  kernel::expert_ranges<M> k;
  XTRAIN_SIMT_FN void operator()(std::size_t e) const {
    token first = 0;
    for (std::size_t other = 0; other < e; ++other) first += k.count_e.raw()[other];
    k.range_e2.raw()[2 * e] = first;
    k.range_e2.raw()[2 * e + 1] = k.count_e.raw()[e];
  }
};

template <class M, class T>
struct routing_backward_rows {
  static constexpr int threads = 256, rows_of_block = threads / warp_width;
  struct shared {};
  kernel::expert_routing_backward<M, T> k;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t i = static_cast<std::size_t>(block_x()) * rows_of_block + static_cast<std::size_t>(warp());
    if (i >= k.n) return;  // the entire warp
    const float* const p = k.probability_ne.raw() + i * k.experts;
    const token* const choice = k.choice_nk.raw() + i * k.choices;
    const float* const weight = k.weight_nk.raw() + i * k.choices;
    const float* const dweight = k.dweight_nk.raw() + i * k.choices;
    const bool balances = !k.dprobability_e.empty() && (k.target_n.empty() || k.target_n.raw()[i] != padding_target);
    // forward: w = p / Σ_chosen p
    float chosen = 0, dw_w = 0;
    for (std::size_t j = 0; j < k.choices; ++j) chosen += p[choice[j]], dw_w += dweight[j] * weight[j];
    const auto dp_of = [&](int e) {
      float dp = balances ? k.dprobability_e.raw()[e] : 0.0f;
      for (std::size_t j = 0; j < k.choices; ++j)
        if (choice[j] == e) dp += (dweight[j] - dw_w) / chosen;
      return dp;
    };
    // forward: p = softmax(logits)
    float p_dp = 0;
    for (int e = lane(); e < static_cast<int>(k.experts); e += warp_width) p_dp += p[e] * dp_of(e);
    p_dp = warp_sum(p_dp);
    for (int e = lane(); e < static_cast<int>(k.experts); e += warp_width)
      k.dlogits_ne.raw()[i * k.experts + static_cast<std::size_t>(e)] = rounded<T>(p[e] * (dp_of(e) - p_dp));
  }
};

/// Vectors lie in one row.
template <class T>
struct combine_op {
  const token* slot;
  const float* weight;
  const T* x;
  T* y;
  std::size_t c, choices;
  bool accumulate;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const std::size_t row = i / c, column = i % c;
    float sum[N];
    vector_of<T, N> y_n{};
    if (accumulate) y_n = load<N>(static_cast<const T*>(y + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) sum[e] = accumulate ? widen(y_n.v[e]) : 0.0f;
    for (std::size_t assignment = row * choices; assignment < (row + 1) * choices; ++assignment) {
      const float w = weight != nullptr ? weight[assignment] : 1.0f;
      const auto x_n = load<N>(x + static_cast<std::size_t>(slot[assignment]) * c + column);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < N; ++e) sum[e] += w * widen(x_n.v[e]);
    }
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) y_n.v[e] = rounded<T>(sum[e]);
    store<N>(y + i, y_n);
  }
};

/// A block per slot's row. dx may alias x: the same thread reads, then writes.
template <class T>
struct combine_backward_rows {
  static constexpr int threads = 128;
  struct shared {
    warp_parts<float, threads> parts;
  };
  const token* slot;
  const float* weight;
  const T *x, *dy;
  T* dx;
  float* dweight;
  std::size_t c, choices;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto assignment = static_cast<std::size_t>(block_x());
    const std::size_t at = static_cast<std::size_t>(slot[assignment]) * c, row = assignment / choices * c;
    const float w = weight[assignment];
    float dot = 0;
    for (auto j = static_cast<std::size_t>(thread()); j < c; j += threads) {
      const float d = widen(dy[row + j]);
      // forward: y += weight · x
      dot += d * widen(x[at + j]);
      dx[at + j] = rounded<T>(w * d);
    }
    dot = block_sum<threads>(dot, s.parts);
    if (thread() == 0) dweight[assignment] = dot;
  }
};

template <class M, class T>
struct balance_block {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<float, threads> parts;
    warp_parts<int, threads> counts;
  };
  kernel::expert_balance<M, T> k;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    int slots = 0;
    for (auto i = static_cast<std::size_t>(thread()); i < k.layers * k.experts; i += threads) slots += k.count_le.raw()[i];
    slots = block_sum<threads>(slots, s.counts);
    if (slots == 0) {
      for (auto e = static_cast<std::size_t>(thread()); e < k.experts; e += threads) k.dprobability_e.raw()[e] = 0.0f;
      return;  // the entire block
    }
    const auto rows = static_cast<float>(static_cast<std::size_t>(slots) / k.choices);
    const float weight = static_cast<float>(k.weight) * static_cast<float>(k.experts);
    const auto count_of = [&](std::size_t e) {
      float count = 0;
      for (std::size_t l = 0; l < k.layers; ++l) count += static_cast<float>(k.count_le.raw()[l * k.experts + e]);
      return count;
    };
    float balance = 0;
    for (auto e = static_cast<std::size_t>(thread()); e < k.experts; e += threads) {
      float load = 0;
      for (std::size_t l = 0; l < k.layers; ++l) load += k.load_le.raw()[l * k.experts + e];
      balance += count_of(e) / rows * (load / rows);
    }
    balance = block_sum<threads>(balance, s.parts);
    int targets = 0;
    for (auto i = static_cast<std::size_t>(thread()); i < k.n; i += threads) {
      if (!is_inside(k.target_n.raw()[i], k.v)) continue;
      k.loss_n.raw()[i] += weight * balance;
      ++targets;
    }
    targets = block_sum<threads>(targets, s.counts);
    // forward: loss = Σ over targets of weight · Σ_e count_e / rows · load_e / rows
    const scale_of_gradient scale{k.gradient_scale, k.gradient_factor_1.raw()};
    const float factor = scale() * static_cast<float>(targets) * weight;
    for (auto e = static_cast<std::size_t>(thread()); e < k.experts; e += threads)
      k.dprobability_e.raw()[e] = factor * (count_of(e) / rows) / rows;
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::expert_routing<M, T>& k, scratch_span<M>) {
  kernel::check_arity<13>(k);
  if (k.experts == 0) return;
  const int experts = static_cast<int>(k.experts);
  using route = simt::route_rows<M, T>;
  if (k.n > 0) stream.launch(route{k}, {simt::blocks_of(k.n, route::rows_of_block), 1, 1});
  stream.launch(simt::count_slots<M, T>{k}, {experts, 1, 1});
  if (k.n > 0) stream.launch(simt::give_slots<M, T>{k}, {experts, 1, 1});
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::expert_ranges<M>& k, scratch_span<M>) {
  kernel::check_arity<3>(k);
  simt::launch_items(stream, simt::ranges_work<M>{k}, k.experts);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::expert_routing_backward<M, T>& k, scratch_span<M>) {
  kernel::check_arity<10>(k);
  using rows = simt::routing_backward_rows<M, T>;
  if (k.n > 0) stream.launch(rows{k}, {simt::blocks_of(k.n, rows::rows_of_block), 1, 1});
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::expert_combine<M, T>& k, scratch_span<M>) {
  kernel::check_arity<8>(k);
  const simt::combine_op<T> op{k.slot_nk.raw(), k.weight_nk.raw(), k.x_sc.raw(), k.y_nc.raw(), k.c, k.choices, k.accumulate};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n * k.c,
                                          k.c % simt::elements_of<T> == 0 && simt::all_aligned(k.x_sc.raw(), k.y_nc.raw()));
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::expert_combine_backward<M, T>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  if (k.n * k.choices == 0) return;
  stream.launch(simt::combine_backward_rows<T>{k.slot_nk.raw(), k.weight_nk.raw(), k.x_sc.raw(), k.dy_nc.raw(), k.dx_sc.raw(),
                                               k.dweight_nk.raw(), k.c, k.choices},
                {static_cast<int>(k.n * k.choices), 1, 1});
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::expert_balance<M, T>& k, scratch_span<M>) {
  kernel::check_arity<13>(k);
  stream.launch(simt::balance_block<M, T>{k}, {1, 1, 1});
}

}  // namespace xtrain
