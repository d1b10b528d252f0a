// A mixture of experts: a router sends each row to a few of many feed-forward layers and adds up what they make of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/device/dry/dry.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/experts.hpp>

namespace xtrain {

/// y = Σ over the chosen experts of weight · W2 · f(W1 · x). No row is dropped: an expert takes as many as choose it. Copies of rows
/// lie sorted by expert, so each expert is a product over a range of them, and what is kept does not depend on who chose what.
/// How many rows an expert gets decides how its products are launched: the host waits for these counts once per forward.
///                                                        [Shazeer et al. 2017; Jiang et al. 2024; dropless: Gale et al. 2022]
template <class Recipe, class Activation>
class mixture_of_experts {
 public:
  using device = typename Recipe::device;
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  static constexpr bool has_experts = true;
  static constexpr bool recomputes = Recipe::recompute::template drops<activation_outputs>;

  /// throws config_error where ranks divide layers
  mixture_of_experts(builder<Recipe>& build, const feed_forward_options& o)
      : inner_(o.inner), choices_(o.experts_per_token), layer_(o.layer),
        router_(build, {{o.router_name, o.experts}}, o.width, {.initial = o.initial, .transposed_in_files = o.transposed_in_files}) {
    build.require_whole_layers("a mixture of experts");
    build.require_whole_rows("a mixture of experts");
    experts_.reserve(o.experts);
    for (std::size_t e = 0; e < o.experts; ++e) experts_.emplace_back(build, o, e);
    for (const expert& one : experts_) {
      up_needs_input_ = up_needs_input_ || one.up.needs_input();
      down_needs_input_ = down_needs_input_ || one.down.needs_input();
    }
  }

  [[nodiscard]] bool needs_input() const { return router_.needs_input() || up_needs_input_; }

  /// x [n, width] read, y [n, width] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result how) const {
    const std::size_t n = x.shape(0), c = x.shape(1), slots = n * choices_;
    const auto routes = keep_routes(p, n);
    const auto u = p.keep(slots, Activation::columns * inner_);
    const auto out = p.keep(slots, c);
    const auto scope = p.scope();
    const auto a = keeps_activation() ? p.keep(slots, inner_) : p.temporary(slots, inner_);

    const row_counts counts = route(p, x, routes);
    const auto x_s = p.temporary(slots, c);
    ops::embedding(p, routes.row_s, x, x_s);
    each_expert(p, n, counts, [&](const expert& one, std::size_t first, std::size_t rows) {
      one.up.forward(p, x_s.rows(first, rows), u.rows(first, rows));
    });
    Activation::forward(p, u, a);
    each_expert(p, n, counts, [&](const expert& one, std::size_t first, std::size_t rows) {
      one.down.forward(p, a.rows(first, rows), out.rows(first, rows));
    });
    ops::expert_combine(p, routes.slot_nk, routes.weight_nk, out, y, how);
    for (std::size_t e = 0; e < experts_.size(); ++e) p.kept.push_number(counts[e]);
  }

  /// dx [n, width] written or added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result how) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1), slots = n * choices_;
    row_counts counts{};
    for (std::size_t e = experts_.size(); e-- > 0;) counts[e] = p.kept.pop_number();
    matrix_view<compute, memory> a{};
    if (keeps_activation()) a = p.pop(slots, inner_);
    const auto out = p.pop(slots, c);
    const auto u = p.pop(slots, Activation::columns * inner_);
    const auto routes = pop_routes(p, n);
    if (recomputes && down_needs_input_) {
      a = p.temporary(slots, inner_);
      Activation::forward(p, u, a);
    }
    // forward: y = Σ weight · out; the gradient takes the place of out
    const sums dweight_nk{p.workspace.template take<accumulate_t<compute>>(slots), {n, choices_}};
    ops::expert_combine_backward(p, routes.slot_nk, routes.weight_nk, out, dy, out, dweight_nk);
    // forward: out = a · W2ᵀ
    const auto da = p.temporary(slots, inner_);
    each_expert(p, n, counts, [&](const expert& one, std::size_t first, std::size_t rows) {
      one.down.backward(p, down_needs_input_ ? a.rows(first, rows) : a, out.rows(first, rows), da.rows(first, rows));
    });
    // forward: a = f(u); the gradient takes the place of u
    Activation::backward(p, u, da, u);
    // forward: u = x_s · W1ᵀ; the gradient of x_s takes the place of that of out
    const auto dx_s = out;
    matrix_view<compute, memory> x_s{};
    if (up_needs_input_) ops::embedding(p, routes.row_s, x, x_s = p.temporary(slots, c));
    each_expert(p, n, counts, [&](const expert& one, std::size_t first, std::size_t rows) {
      one.up.backward(p, up_needs_input_ ? x_s.rows(first, rows) : x_s, u.rows(first, rows), dx_s.rows(first, rows));
    });
    // forward: x_s = rows of x
    ops::expert_combine(p, routes.slot_nk, {}, dx_s, dx, how);
    // forward: weights = routing(x · Wᵀ)
    const auto dlogits = p.temporary(n, experts_.size());
    ops::expert_routing_backward(p, routes, dweight_nk, p.load.dprobability_e, dlogits);
    router_.backward(p, x, dlogits, dx, ops::result::is_added);
  }

 private:
  using sums = matrix_view<accumulate_t<compute>, memory>;
  using routes_type = ops::expert_routes<device, accumulate_t<compute>>;
  using row_counts = std::array<std::size_t, most_experts>;

  struct expert {
    linear<Recipe> up, down;

    expert(builder<Recipe>& build, const feed_forward_options& o, std::size_t index)
        : up(build, up_parts(o, index), o.width, {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files}),
          down(build, {{numbered(o.down_name, index), o.width}}, o.inner,
               {.bias = o.bias, .initial = o.down_initial, .transposed_in_files = o.transposed_in_files, .divided = split::by_inputs}) {}

    static std::vector<module_part> up_parts(const feed_forward_options& o, std::size_t index) {
      std::vector<module_part> parts;
      for (const std::string& name : o.up_names)
        parts.push_back({numbered(name, index), o.inner * Activation::columns / o.up_names.size()});
      return parts;
    }
    /// The name with the expert's number in place of the star.
    static std::string numbered(const std::string& name, std::size_t index) {
      const std::size_t star = name.find('*');
      require<config_error>(star != std::string::npos, "mixture of experts: '", name, "' must have a '*' for the number of the expert");
      return concat(name.substr(0, star), index, name.substr(star + 1));
    }
  };

  [[nodiscard]] bool keeps_activation() const { return !recomputes && down_needs_input_; }

  [[nodiscard]] routes_type keep_routes(pass<Recipe>& p, std::size_t n) const {
    const std::size_t e = experts_.size(), slots = n * choices_;
    const sums probability_ne{p.keep_sums(n * e).span(), {n, e}}, weight_nk{p.keep_sums(slots).span(), {n, choices_}};
    const auto choice = p.keep_tokens(slots), slot = p.keep_tokens(slots), row = p.keep_tokens(slots);
    return {probability_ne, {choice.span(), {n, choices_}}, weight_nk, {slot.span(), {n, choices_}}, row};
  }
  [[nodiscard]] routes_type pop_routes(pass<Recipe>& p, std::size_t n) const {
    const std::size_t e = experts_.size(), slots = n * choices_;
    const auto row = p.pop_tokens(slots), slot = p.pop_tokens(slots), choice = p.pop_tokens(slots);
    const sums weight_nk{p.pop_sums(slots).span(), {n, choices_}}, probability_ne{p.pop_sums(n * e).span(), {n, e}};
    return {probability_ne, {choice.span(), {n, choices_}}, weight_nk, {slot.span(), {n, choices_}}, row};
  }

  /// The routes of every row, and how many rows each expert gets.
  [[nodiscard]] row_counts route(pass<Recipe>& p, matrix_view<const compute, memory> x, const routes_type& routes) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), e = experts_.size();
    const auto logits = p.temporary(n, e);
    router_.forward(p, x, logits);
    // while experts are balanced, counts and probabilities stay until the backward of the whole model
    vector_view<token, memory> count_e{};
    vector_view<accumulate_t<compute>, memory> probability_e{};
    if (p.load.exists()) {
      count_e = {p.load.count_le.rows(layer_, 1).span(), {e}};
      probability_e = {p.load.probability_le.rows(layer_, 1).span(), {e}};
    } else {
      count_e = {p.workspace.template take<token>(e), {e}};
    }
    ops::expert_routing(p, logits, routes, count_e, probability_e);

    std::array<token, most_experts> host{};
    copy_to_host(p.stream, std::span<token>(host.data(), e), count_e.span());
    p.stream.synchronize();
    row_counts counts{};
    const std::size_t slots = n * choices_;
    for (std::size_t i = 0; i < e; ++i)
      counts[i] = is_dry<device> ? slots * (i + 1) / e - slots * i / e : static_cast<std::size_t>(host[i]);
    return counts;
  }

  /// work(expert, first slot, rows) for every expert that has rows. A dry device has divided them evenly; as any expert may get all
  /// rows, it also sees how much memory that takes, without counting it as work.
  template <class Work>
  void each_expert(pass<Recipe>& p, std::size_t n, const row_counts& counts, Work&& work) const {
    std::size_t first = 0;
    for (std::size_t e = 0; e < experts_.size(); first += counts[e++])
      if (counts[e] > 0) work(experts_[e], first, counts[e]);
    if constexpr (is_dry<device>) {
      const dry_record before = p.stream.counts();
      for (const expert& one : experts_) work(one, 0, n);
      p.stream.counts() = before;
    }
  }

  std::size_t inner_, choices_, layer_;
  linear<Recipe> router_;
  std::vector<expert> experts_;
  bool up_needs_input_ = false, down_needs_input_ = false;
};

}  // namespace xtrain
