#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <xtrain/device/dry_run.hpp>
#include <xtrain/layers/expert_exchange.hpp>
#include <xtrain/layers/expert_layers.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/experts.hpp>

namespace xtrain {

/// y = Σ over the chosen experts of weight · W2 · f(W1 · x), dropless. Copies of tokens are sorted by expert: each expert's rows are contiguous, and saved
/// sizes do not depend on routing.
/// [Shazeer et al. 2017; Jiang et al. 2024; dropless: Gale et al. 2022]
///
/// Only the device knows the counts: one launch computes all products (kernel::grouped_matmul); experts with more, such as an adapter, run kernels confined to
/// their rows (execution::confined).
/// Expert parallelism: an asynchronous device sends in stream order, with memory for all rows that may come. The host reads the counts, once per forward, if
/// the device is synchronous, that memory is unwanted, or an adapter's operations cannot be confined.
/// Tensor parallelism: each rank has some intermediate channels of every expert, and a replicated router. A token's experts are summed before ranks are: the
/// reduced array is as large as for other layers.
template <class Recipe, class Activation>
class mixture_of_experts {
 public:
  using device = typename Recipe::device;
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  static constexpr bool has_experts = true;
  static constexpr bool queues_exchange = has_expert_parallel<Recipe> && detail::queues_messages<device>;

  /// throws config_error if intermediate channels or experts are not divisible by ranks, or an adapter has dropout under tensor or context parallelism
  mixture_of_experts(builder<Recipe>& build, const feed_forward_options& o)
      : choices_(o.num_experts_per_token), layer_(o.layer),
        router_(build, {{o.router_name, o.num_experts}}, o.hidden_size,
                {.initial = o.initial, .transposed_in_files = o.transposed_in_files, .where = region::tensor_parallel}),
        experts_(build, o) {}

  [[nodiscard]] bool needs_input() const { return router_.needs_input() || experts_.up_needs_input(); }

  /// x [n, hidden_size] read, y [n, hidden_size] written or added to; under sequence parallelism, this rank's tokens.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result write_mode) const {
    if constexpr (has_expert_parallel<Recipe>)
      if (p.internal.parallel.experts().size() > 1) return forward_over_ranks(p, x, y, write_mode);
    const std::size_t n = p.tokens_in_layer(x.shape(0)), c = x.shape(1), slots = n * choices_;
    const auto routes = save_routes(p, n);
    const auto u = p.save(slots, experts_.up_columns());
    const auto out = p.save(slots, c);
    const auto scope = p.scope();
    const auto a = experts_.saves_activation() ? p.save(slots, experts_.inner()) : p.temporary(slots, experts_.inner());
    rows_of_experts rows{.total = slots};
    if (experts_.confines()) rows.range_e2 = {p.save_tokens(2 * experts_.size()).span(), {experts_.size(), 2}};

    const auto all_x = gather_from_sequence_parallel_region(p, x);
    route(p, all_x, routes, rows);
    const auto x_s = p.temporary(slots, c);
    ops::embedding(p, routes.row_s, all_x, x_s);
    experts_.forward(p, n, rows, {.x = x_s, .u = u, .a = a, .out = out});
    combine(p, routes, out, y, write_mode);
    for (std::size_t e = 0; !experts_.confines() && e < experts_.size(); ++e) p.saved.push_number(rows.counts[e]);
  }

  /// dx [n, hidden_size] written or added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode) const {
    if constexpr (has_expert_parallel<Recipe>)
      if (p.internal.parallel.experts().size() > 1) return backward_over_ranks(p, x, dy, dx, write_mode);
    const auto scope = p.scope();
    const std::size_t n = p.tokens_in_layer(x.shape(0)), c = x.shape(1), slots = n * choices_;
    rows_of_experts rows{.total = slots};
    for (std::size_t e = experts_.size(); !experts_.confines() && e-- > 0;) rows.counts[e] = p.saved.pop_number();
    if (experts_.confines()) rows.range_e2 = {p.pop_saved_tokens(2 * experts_.size()).span(), {experts_.size(), 2}};
    matrix a{};
    if (experts_.saves_activation()) a = p.pop_saved(slots, experts_.inner());
    const auto out = p.pop_saved(slots, c);
    const auto u = p.pop_saved(slots, experts_.up_columns());
    const auto routes = pop_saved_routes(p, n);
    if (experts_type::recomputes && experts_.down_needs_input()) a = p.temporary(slots, experts_.inner());
    const auto all_x = needs_input() ? gather_from_sequence_parallel_region(p, x) : x;
    const sums dweight_nk = combine_backward(p, routes, dy, out);
    const auto da = p.temporary(slots, experts_.inner());
    experts_.backward(p, n, rows, {.u = u, .a = a, .da = da, .out = out}, [&] {
      const auto x_s = p.temporary(slots, c);
      ops::embedding(p, routes.row_s, all_x, x_s);
      return x_s;
    });
    routes_backward(p, routes, all_x, dweight_nk, out, dx, write_mode);
  }

 private:
  using sums = matrix_view<accumulate_t<compute>, memory>;
  using matrix = matrix_view<compute, memory>;
  using routes_type = ops::expert_routes<device, accumulate_t<compute>>;
  using experts_type = detail::expert_layers<Recipe, Activation>;
  using rows_of_experts = typename experts_type::rows_of_experts;
  using expert_rows = typename experts_type::expert_rows;

  [[nodiscard]] static matrix_view<const compute, memory> read(matrix x) { return x; }

  [[nodiscard]] routes_type save_routes(pass<Recipe>& p, std::size_t n) const {
    const std::size_t e = experts_.size(), slots = n * choices_;
    const sums probability_ne{p.save_sums(n * e).span(), {n, e}}, weight_nk{p.save_sums(slots).span(), {n, choices_}};
    const auto choice = p.save_tokens(slots), slot = p.save_tokens(slots), row = p.save_tokens(slots);
    return {probability_ne, {choice.span(), {n, choices_}}, weight_nk, {slot.span(), {n, choices_}}, row};
  }
  [[nodiscard]] routes_type pop_saved_routes(pass<Recipe>& p, std::size_t n) const {
    const std::size_t e = experts_.size(), slots = n * choices_;
    const auto row = p.pop_saved_tokens(slots), slot = p.pop_saved_tokens(slots), choice = p.pop_saved_tokens(slots);
    const sums weight_nk{p.pop_saved_sums(slots).span(), {n, choices_}}, probability_ne{p.pop_saved_sums(n * e).span(), {n, e}};
    return {probability_ne, {choice.span(), {n, choices_}}, weight_nk, {slot.span(), {n, choices_}}, row};
  }

  /// Routes of every token, and each expert's rows: on the device if rows.range_e2 exists, else on the host, which waits.
  void route(pass<Recipe>& p, matrix_view<const compute, memory> x, const routes_type& routes, rows_of_experts& rows) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), e = experts_.size();
    const auto logits = p.temporary(n, e);
    router_.forward(p, x, logits);
    const vector_view<token, memory> count_e{p.workspace.template take<token>(e), {e}};
    // a load-balancing loss keeps counts and probabilities without padding until the model's backward
    vector_view<token, memory> counted_e{};
    vector_view<accumulate_t<compute>, memory> probability_e{};
    if (p.internal.load.exists()) {
      counted_e = {p.internal.load.count_le.rows(layer_, 1).span(), {e}};
      probability_e = {p.internal.load.probability_le.rows(layer_, 1).span(), {e}};
    }
    ops::expert_routing(p, logits, routes, count_e, probability_e, counted_e, p.batch.targets_n);
    if constexpr (queues_exchange)
      if (rows.later != nullptr) return queue_exchange(p, n, count_e, rows);
    if (rows.range_e2.exists()) return ops::expert_ranges(p, vector_view<const token, memory>(count_e), rows.range_e2);

    std::array<token, max_experts> host{};
    copy_to_host(p.stream, std::span<token>(host.data(), e), count_e.span());
    p.stream.synchronize();
    const bool nothing_is_real = counts_of(p.stream) != nullptr;
    for (std::size_t i = 0; i < e; ++i) rows.counts[i] = nothing_is_real ? experts_.balanced(n * choices_, i) : static_cast<std::size_t>(host[i]);
  }
  /// y = Σ weight · out, summed over tensor-parallel ranks
  void combine(pass<Recipe>& p, const routes_type& routes, matrix out, matrix y, ops::result write_mode) const {
    reduced(p, y, write_mode, [&](matrix to, ops::result as) { ops::expert_combine(p, routes.slot_nk, routes.weight_nk, out, to, as); });
  }
  // forward: y = Σ weight · out; dout overwrites out
  [[nodiscard]] sums combine_backward(pass<Recipe>& p, const routes_type& routes, matrix_view<const compute, memory> dy, matrix out) const {
    const shape_of_rank<2> shape = routes.weight_nk.shape();
    const sums dweight_nk{p.workspace.template take<accumulate_t<compute>>(shape[0] * shape[1]), shape};
    {
      const auto scope = p.scope();
      ops::expert_combine_backward(p, routes.slot_nk, routes.weight_nk, out, gather_from_sequence_parallel_region(p, dy), out, dweight_nk);
    }
    // each rank has its intermediate channels' contribution
    if constexpr (has_tensor_parallel<Recipe>) p.internal.parallel.tensor().all_reduce(p.stream, dweight_nk.span(), reduction::sum);
    return dweight_nk;
  }
  /// x: all tokens
  void routes_backward(pass<Recipe>& p, const routes_type& routes, matrix_view<const compute, memory> x, sums dweight_nk, matrix dx_s,
                       matrix dx, ops::result write_mode) const {
    const std::size_t n = routes.weight_nk.shape(0);
    // forward: weights = routing(x · Wᵀ)
    const auto dlogits = p.temporary(n, experts_.size());
    ops::expert_routing_backward(p, routes, dweight_nk, p.internal.load.dprobability_e, dlogits, p.batch.targets_n);
    reduced(p, dx, write_mode, [&](matrix to, ops::result as) {
      // forward: x_s = rows of x
      ops::expert_combine(p, routes.slot_nk, {}, dx_s, to, as);
      // the replicated router's gradient is equal on all ranks: one adds it
      if (p.internal.parallel.tensor().rank() == 0) return router_.backward(p, x, dlogits, to, ops::result::is_added);
      const auto scope = p.scope();
      router_.backward(p, x, dlogits, p.temporary(n, to.shape(1)));
    });
  }
  /// y written or added to: make(to, how) summed over tensor-parallel ranks; the previous y counts once.
  template <class Make>
  static void reduced(pass<Recipe>& p, matrix y, ops::result write_mode, Make&& make) {
    if (p.internal.has_sequence_parallel) {
      const auto scope = p.scope();
      const auto part = p.temporary(p.tokens_in_layer(y.shape(0)), y.shape(1));
      make(part, ops::result::replaces);
      return reduce_scatter_to_sequence_parallel_region(p, part, y, write_mode);
    }
    make(y, p.internal.parallel.tensor().rank() == 0 ? write_mode : ops::result::replaces);
    p.internal.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
  }

  void forward_over_ranks(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix y, ops::result write_mode) const {
    const std::size_t n = p.tokens_in_layer(x.shape(0)), c = x.shape(1), slots = n * choices_;
    const auto routes = save_routes(p, n);
    const auto out = p.save(slots, c);
    const auto scope = p.scope();
    auto& ranks = p.internal.parallel.experts();
    const auto all_x = gather_from_sequence_parallel_region(p, x);
    if constexpr (queues_exchange) {
      if (rows_of_experts rows = rows_to_come(p, n); rows.later != nullptr) {
        rows.range_e2 = {p.save_tokens(2 * ranges_of(rows)).span(), {ranges_of(rows), 2}};
        route(p, all_x, routes, rows);
        const expert_rows here = rows_here(p, rows, c);
        const auto x_s = p.temporary(slots, c);
        ops::embedding(p, routes.row_s, all_x, x_s);
        expert_exchange::queue_dispatch(p.stream, ranks, *rows.later, read(x_s), here.x);
        experts_.forward(p, n, rows, here);
        expert_exchange::queue_combine(p.stream, ranks, *rows.later, read(here.out), out);
        return combine(p, routes, out, y, write_mode);
      }
    }
    rows_of_experts leaving{.total = slots};
    route(p, all_x, routes, leaving);
    const expert_exchange exchange(ranks, experts_.size(), leaving.counts);
    const rows_of_experts rows{.total = exchange.rows(), .counts = exchange.counts(), .exchange = &exchange};
    const expert_rows here = rows_here(p, rows, c);
    const auto x_s = p.temporary(slots, c);
    ops::embedding(p, routes.row_s, all_x, x_s);
    exchange.dispatch(p.stream, ranks, read(x_s), here.x);
    experts_.forward(p, n, rows, here);
    exchange.combine(p.stream, ranks, read(here.out), out);
    combine(p, routes, out, y, write_mode);
    exchange.push(p.saved);
  }
  void backward_over_ranks(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy, matrix dx,
                           ops::result write_mode) const {
    const auto scope = p.scope();
    const std::size_t n = p.tokens_in_layer(x.shape(0)), c = x.shape(1), slots = n * choices_;
    auto& ranks = p.internal.parallel.experts();
    if constexpr (queues_exchange) {
      if (rows_of_experts rows = rows_to_come(p, n); rows.later != nullptr) {
        rows.range_e2 = {p.pop_saved_tokens(2 * ranges_of(rows)).span(), {ranges_of(rows), 2}};
        const auto out = p.pop_saved(slots, c);
        const auto routes = pop_saved_routes(p, n);
        const expert_rows here = rows_here(p, rows, c);
        const sums dweight_nk = combine_backward(p, routes, dy, out);
        expert_exchange::queue_dispatch(p.stream, ranks, *rows.later, read(out), here.out);
        experts_.backward(p, n, rows, here, [&] { return here.x; });
        expert_exchange::queue_combine(p.stream, ranks, *rows.later, read(here.out), out);
        return routes_backward(p, routes, needs_input() ? gather_from_sequence_parallel_region(p, x) : x, dweight_nk, out, dx, write_mode);
      }
    }
    const auto exchange = expert_exchange::popped(ranks, experts_.size(), p.saved);
    const auto out = p.pop_saved(slots, c);
    const auto routes = pop_saved_routes(p, n);
    const rows_of_experts rows{.total = exchange.rows(), .counts = exchange.counts(), .exchange = &exchange};
    const expert_rows here = rows_here(p, rows, c);
    const sums dweight_nk = combine_backward(p, routes, dy, out);
    // forward: combined out
    exchange.dispatch(p.stream, ranks, read(out), here.out);
    experts_.backward(p, n, rows, here, [&] { return here.x; });
    // forward: dispatched x_s
    exchange.combine(p.stream, ranks, read(here.out), out);
    routes_backward(p, routes, needs_input() ? gather_from_sequence_parallel_region(p, x) : x, dweight_nk, out, dx, write_mode);
  }
  /// A layer's memory from forward to backward: per pass and layer, or shared if blocks are recomputed or there is no backward.
  struct kept_place {
    std::size_t pass = 0, place = 0;
  };
  [[nodiscard]] kept_place kept_at(const pass<Recipe>& p) const {
    if (!p.trains() || Recipe::recompute::drops_blocks) return {};
    return {p.internal.number, layer_};
  }
  /// For rows that the host need not count when it queues the layer; without `later` it waits.
  [[nodiscard]] rows_of_experts rows_to_come(pass<Recipe>& p, std::size_t n) const {
    if (!experts_.confines() || experts_.drops_input() || n == 0 || p.internal.most_tokens == 0) return {};
    auto& parallel = p.internal.parallel;
    const auto most = parallel.most_rows(p.internal.most_tokens, choices_, experts_.own().count);
    if (!most) return {};
    const auto [pass, place] = kept_at(p);
    const std::size_t chunk = experts_.rows_at_once(p, n);
    // an expert gets each token at most once
    const std::size_t of_expert = std::min(*most, parallel.experts().size() * p.internal.most_tokens);
    return {.total = *most,
            .later = &parallel.queued_exchange(pass, place, experts_.size()),
            .how = {.chunk = chunk, .chunks = (of_expert + chunk - 1) / chunk, .most = *most, .layer = layer_}};
  }
  /// Ranges of this rank's experts, and of all rows.
  [[nodiscard]] std::size_t ranges_of(const rows_of_experts& rows) const { return experts_.own().count * rows.how.chunks + 1; }
  void queue_exchange(pass<Recipe>& p, std::size_t n, vector_view<token, memory> count_e, const rows_of_experts& rows) const {
    auto& ranks = p.internal.parallel.experts();
    if (counts_of(p.stream) == nullptr)
      return expert_exchange::queue(p.stream, ranks, *rows.later, device_span<const token, memory>(count_e.span()), rows.range_e2.span(), rows.how);
    expert_counts leaving{};  // a dry run assumes balanced experts
    for (std::size_t i = 0; i < experts_.size(); ++i) leaving[i] = experts_.balanced(n * choices_, i);
    *rows.later = expert_exchange(ranks, experts_.size(), leaving);
  }

  /// Receive buffer, the same in the backward. If the host waits for the row count, the plan assumes balanced experts and the buffer grows.
  [[nodiscard]] expert_rows rows_here(pass<Recipe>& p, const rows_of_experts& all, std::size_t c) const {
    const auto [pass, place] = kept_at(p);
    const auto& on = p.parameters.device();
    const std::size_t inner = experts_.inner(), x_kept = experts_.up_needs_input() ? c : 0, a_kept = experts_.saves_activation() ? inner : 0;
    const auto [x, u, a] = side_by_side<3>(p, p.internal.parallel.kept_rows(on, pass, place), all, {x_kept, experts_.up_columns(), a_kept});
    const auto [out, da, x_now, a_now] = side_by_side<4>(p, p.internal.parallel.temporary_rows(on), all, {c, inner, c - x_kept, inner - a_kept});
    return {.x = x_kept > 0 ? x : x_now, .u = u, .a = a_kept > 0 ? a : a_now, .da = da, .out = out};
  }
  template <std::size_t N, class Memory>
  [[nodiscard]] static std::array<matrix, N> side_by_side(pass<Recipe>& p, Memory& memory_of, const rows_of_experts& all,
                                                          const std::array<std::size_t, N>& columns) {
    const std::size_t rows = all.total;
    constexpr std::size_t alignment = 64 / sizeof(compute);  // a cache line
    std::array<std::size_t, N + 1> begin{};
    for (std::size_t i = 0; i < N; ++i) begin[i + 1] = begin[i] + (rows * columns[i] + alignment - 1) / alignment * alignment;
    // new memory in the first step: queued work may use the old
    if (all.later != nullptr && !memory_of.template has_room<compute>(begin[N])) p.stream.synchronize();
    const auto span = memory_of.template at_least<compute>(begin[N], all.later == nullptr);
    std::array<matrix, N> each{};
    for (std::size_t i = 0; i < N; ++i) each[i] = {span.subspan(begin[i], rows * columns[i]), {rows, columns[i]}};
    return each;
  }

  std::size_t choices_, layer_;
  linear<Recipe> router_;
  experts_type experts_;
};

}  // namespace xtrain
