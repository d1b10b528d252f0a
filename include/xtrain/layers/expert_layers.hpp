#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/layers/expert_exchange.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/parallel_linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/ops/experts.hpp>

namespace xtrain::detail {

/// out = W2 · f(W1 · x) of every expert on its range of rows, known to the host, the device, or the stream after an exchange (rows_of_experts).
template <class Recipe, class Activation>
class expert_layers {
 public:
  using device = typename Recipe::device;
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using matrix = matrix_view<compute, memory>;
  static constexpr bool recomputes = Recipe::recompute::template drops<activation_outputs>;

  struct rows_of_experts {
    std::size_t total = 0;                   // all experts
    expert_counts counts{};                  // known on the host, this rank's experts; or
    matrix_view<token, memory> range_e2{};   // known on the device
    const expert_exchange* exchange = nullptr;  // which dispatched the rows: random numbers are the source rank's
    expert_exchange* later = nullptr;  // filled by the stream; ranges are then `how`:
    expert_exchange::row_ranges how{};
  };

  /// Rows of this rank's experts, contiguous per expert, with activations.
  struct expert_rows {
    matrix x{};              // [rows, hidden_size]
    matrix u{};              // [rows, columns · inner]
    matrix a{}, da{};        // [rows, inner]
    matrix out{};            // [rows, hidden_size]
  };

  /// throws config_error as mixture_of_experts
  expert_layers(builder<Recipe>& build, const feed_forward_options& o)
      : activation_(make_activation<Activation>(o)), inner_(build.shard().of(o.intermediate_size, "intermediate channels").count),
        choices_(o.num_experts_per_token) {
    const tensor_shard& shard = build.experts();
    require<config_error>(o.num_experts % shard.ranks == 0, "expert: ranks must have equal numbers of a layer's experts; ", o.num_experts,
                          " experts are not divisible by ", shard.ranks);
    own_ = {shard.rank * (o.num_experts / shard.ranks), o.num_experts / shard.ranks};
    experts_.reserve(o.num_experts);
    for (std::size_t e = 0; e < o.num_experts; ++e) {
      if (shard.is_sharded()) build.parameters().begin_owner(e / own_.count);
      experts_.emplace_back(build, o, e, activation_.columns);
    }
    build.parameters().begin_owner(std::nullopt);
    for (const expert& one : experts_) {
      confines_ = confines_ && one.up.works_on_rows() && one.down.works_on_rows();
      up_needs_input_ = up_needs_input_ || one.up.needs_input();
      down_needs_input_ = down_needs_input_ || one.down.needs_input();
      // dropped elements depend on rows routed before, on all context-parallel ranks; an expert's rows are known only with all tensor-parallel ranks' rows
      if (one.up.drops_input() || one.down.drops_input()) {
        drops_input_ = true;
        build.require_whole_sequences("dropout of an adapter inside an expert");
        build.require_whole_layers("dropout of an adapter inside an expert");
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return experts_.size(); }
  [[nodiscard]] const row_range& own() const { return own_; }
  /// Columns of x · W1ᵀ.
  [[nodiscard]] std::size_t up_columns() const { return activation_.columns * inner_; }
  [[nodiscard]] std::size_t inner() const { return inner_; }
  [[nodiscard]] bool up_needs_input() const { return up_needs_input_; }
  [[nodiscard]] bool down_needs_input() const { return down_needs_input_; }
  [[nodiscard]] bool drops_input() const { return drops_input_; }
  /// Operations can be confined to rows that only the device knows.
  [[nodiscard]] bool confines() const { return confines_; }
  [[nodiscard]] bool saves_activation() const { return !recomputes && down_needs_input_; }

  /// Rows of an expert under a balanced load.
  [[nodiscard]] std::size_t balanced(std::size_t slots, std::size_t index) const {
    const std::size_t e = experts_.size();
    return slots * (index + 1) / e - slots * index / e;
  }

  /// Rows of an expert computed at once: the most that one rank sends.
  [[nodiscard]] static std::size_t rows_at_once(const pass<Recipe>& p, std::size_t n) { return std::max(n, p.internal.most_tokens); }

  /// x read; u, a, out written
  void forward(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, const expert_rows& at) const {
    // u = x · W1ᵀ
    forward_of(p, n, all, &expert::up, at.x, at.u);
    // a = f(u)
    if (at.u.shape(0) > 0) in_all_rows(p, n, all, [&] { activation_.forward(p, at.u, at.a); });
    // out = a · W2ᵀ
    forward_of(p, n, all, &expert::down, at.a, at.out);
  }

  /// out   on entry its gradient, on return x's
  /// u     read, overwritten
  /// a     read; written first if recomputed
  /// da    written
  /// input()  returns x; called only if needed
  template <class Input>
  void backward(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, const expert_rows& at, Input&& input) const {
    // row counts depend on routing, the size of deferred products must not: defer nothing
    const auto deferred = std::exchange(p.internal.deferred, nullptr);
    const bool any = at.u.shape(0) > 0;
    if (any && recomputes && down_needs_input_) in_all_rows(p, n, all, [&] { activation_.forward(p, at.u, at.a); });
    // forward: out = a · W2ᵀ
    backward_of(p, n, all, &expert::down, down_needs_input_, at.a, at.out, at.da);
    // forward: a = f(u); du overwrites u
    if (any) in_all_rows(p, n, all, [&] { activation_.backward(p, at.u, at.da, at.u); });
    // forward: u = x · W1ᵀ; dx overwrites dout
    matrix x{};
    if (up_needs_input_) x = input();
    backward_of(p, n, all, &expert::up, up_needs_input_, x, at.u, at.out);
    p.internal.deferred = deferred;
  }

 private:
  using gradient = typename pass<Recipe>::gradient_type;
  static constexpr bool groups_products =
      runs_kernel<device, kernel::grouped_matmul<memory, compute>> && runs_kernel<device, kernel::grouped_matmul<memory, compute, gradient>>;

  struct expert {
    column_parallel_linear<Recipe> up;
    row_parallel_linear<Recipe> down;

    expert(builder<Recipe>& build, const feed_forward_options& o, std::size_t index, std::size_t columns)
        : up(build, up_parts(numbered(o.up_names, index), columns, o.intermediate_size, build.shard()), o.hidden_size,
             {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files, .communicates = false}),
          down(build, {{numbered(o.down_name, index), o.hidden_size}}, {build.shard().of(o.intermediate_size, "intermediate channels"), o.intermediate_size},
               {.bias = o.bias, .initial = o.down_initial, .transposed_in_files = o.transposed_in_files, .communicates = false}) {}

    static std::vector<std::string> numbered(std::vector<std::string> names, std::size_t index) {
      for (std::string& name : names) name = numbered(name, index);
      return names;
    }
    /// The expert's index replaces '*'.
    static std::string numbered(const std::string& name, std::size_t index) {
      const std::size_t star = name.find('*');
      require<config_error>(star != std::string::npos, "mixture of experts: '", name, "' must have a '*' for the index of the expert");
      return concat(name.substr(0, star), index, name.substr(star + 1));
    }
  };

  /// y = x · Wᵀ of every expert; `layer`: expert::up or expert::down
  template <class Layer>
  void forward_of(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, Layer expert::*layer, matrix x, matrix y) const {
    if constexpr (groups_products) {
      if (const auto weights = values_of(p, all, layer); weights.exists())
        return ops::grouped_linear(p, x, weights, matrix_view<const token, memory>(all.range_e2), y);
    }
    each_expert(p, n, all, [&](const expert& one, std::size_t first, std::size_t rows) {
      (one.*layer).forward(p, x.rows(first, rows), y.rows(first, rows));
    });
  }
  ///   x   read if needs_input
  template <class Layer>
  void backward_of(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, Layer expert::*layer, bool needs_input, matrix x, matrix dy, matrix dx) const {
    if constexpr (groups_products) {
      tensor_view<gradient, 3, memory> gradients{};
      const auto weights = values_of(p, all, layer);
      if (weights.exists() && needs_input) gradients = matrices_of<gradient>(layer, [&](parameter w) { return p.matrix_gradient(w); });
      if (weights.exists() && needs_input == gradients.exists()) {
        const matrix_view<const token, memory> ranges = all.range_e2;
        if (needs_input) ops::grouped_linear_backward_weight(p, dy, matrix_view<const compute, memory>(x), ranges, gradients);
        return ops::grouped_linear_backward_input(p, dy, weights, ranges, dx);
      }
    }
    each_expert(p, n, all, [&](const expert& one, std::size_t first, std::size_t rows) {
      (one.*layer).backward(p, needs_input ? x.rows(first, rows) : x, dy.rows(first, rows), dx.rows(first, rows));
    });
  }
  /// All experts' weights, if one launch can compute the products: only the device knows the rows, all experts are on this rank, layers are products, and
  /// weights are equally spaced.
  template <class Layer>
  [[nodiscard]] tensor_view<const compute, 3, memory> values_of(pass<Recipe>& p, const rows_of_experts& all, Layer expert::*layer) const {
    if (!all.range_e2.exists() || all.later != nullptr) return {};
    for (const expert& one : experts_)
      if (!(one.*layer).is_product()) return {};
    return matrices_of<const compute>(layer, [&](parameter w) { return p.matrix(w); });
  }
  /// of(weight) of all experts as one view, if they exist and are equally spaced.
  template <class T, class Layer, class Of>
  [[nodiscard]] tensor_view<T, 3, memory> matrices_of(Layer expert::*layer, Of&& of) const {
    const matrix_view<T, memory> first = of((experts_.front().*layer).weight());
    if (!first.exists()) return {};
    T* last = first.data().raw();
    auto distance = static_cast<std::ptrdiff_t>(first.size());
    for (std::size_t e = 1; e < experts_.size(); ++e) {
      const matrix_view<T, memory> next = of((experts_[e].*layer).weight());
      if (!next.exists() || next.shape() != first.shape()) return {};
      if (e == 1) distance = std::max(distance, next.data().raw() - last);
      if (next.data().raw() - last != distance) return {};
      last = next.data().raw();
    }
    const auto apart = static_cast<std::size_t>(distance);
    return tensor_view<T, 3, memory>::strided(span_of<T, memory>(first.data().raw(), (experts_.size() - 1) * apart + first.size()),
                                              {experts_.size(), first.shape(0), first.shape(1)}, apart);
  }

  /// work(), confined to received rows.
  ///   expected  assumed by a dry run
  template <class Work>
  static void in_range(pass<Recipe>& p, const rows_of_experts& all, std::size_t index, std::size_t expected, Work&& work) {
    p.confined = {device_span<const token, memory>(all.range_e2.rows(index, 1).span()), all.total, expected};
    work();
    p.confined = {};
  }
  template <class Work>
  void in_all_rows(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, Work&& work) const {
    if (all.later == nullptr) return work();
    in_range(p, all, own_.count * all.how.chunks, std::min(all.total, n * choices_), work);
  }
  /// Rows of an expert, up to n from `first`, in a dry run.
  [[nodiscard]] static std::size_t expected_rows(const pass<Recipe>& p, const rows_of_experts& all, std::size_t index, std::size_t first, std::size_t n) {
    if (counts_of(p.stream) == nullptr) return 0;
    const std::size_t count = all.later->counts()[index];
    return std::min(n, count - std::min(count, first));
  }

  /// work(expert, first row, rows) for each of this rank's experts, confined to its rows. If the host knows them: at most rows_at_once() at a time, so that the
  /// workspace does not grow with ranks. A dry run assumes balanced rows, but measures memory for n rows, as an expert may get all.
  template <class Work>
  void each_expert(pass<Recipe>& p, std::size_t n, const rows_of_experts& all, Work&& work) const {
    if (all.later != nullptr) {
      for (std::size_t i = 0; i < own_.count; ++i)
        for (std::size_t chunk = 0; chunk < all.how.chunks; ++chunk)
          in_range(p, all, i * all.how.chunks + chunk, expected_rows(p, all, i, chunk * all.how.chunk, all.how.chunk),
                   [&] { work(experts_[own_.begin + i], 0, all.total); });
      return;
    }
    if (all.range_e2.exists()) {
      for (std::size_t e = 0; e < experts_.size(); ++e) {
        p.confined = {device_span<const token, memory>(all.range_e2.rows(e, 1).span()), all.total, balanced(all.total, e)};
        work(experts_[e], 0, all.total);
      }
      p.confined = {};
      return;
    }
    std::size_t first = 0;
    for (std::size_t i = 0; i < own_.count; ++i) {
      if constexpr (has_expert_parallel<Recipe>)
        if (all.exchange != nullptr) p.internal.origin = all.exchange->origin(i, p.internal.parallel.experts().rank());
      for (std::size_t left = all.counts[i]; left > 0;) {
        const std::size_t rows = std::min(left, rows_at_once(p, n));
        work(experts_[own_.begin + i], first, rows);
        first += rows;
        left -= rows;
        p.internal.origin.first += rows;
      }
    }
    p.internal.origin = {};
    if (dry_record* const counted = counts_of(p.stream)) {
      const dry_record before = *counted;
      for (std::size_t i = 0; i < own_.count; ++i) work(experts_[own_.begin + i], 0, n);
      *counted = before;
    }
  }

  [[no_unique_address]] Activation activation_;
  std::size_t inner_, choices_;
  row_range own_{};
  std::vector<expert> experts_;
  bool up_needs_input_ = false, down_needs_input_ = false, drops_input_ = false;
  bool confines_ = true;  // see confines()
};

}  // namespace xtrain::detail
