// Muon: momentum, orthogonalized.              [Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; torch.optim.Muon]
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/kind_names.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matrix_optimizer.hpp>
#include <xtrain/ops/optimizer.hpp>
#include <xtrain/optim/adam_corrections.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/master.hpp>
#include <xtrain/optim/parameter_piece.hpp>
#include <xtrain/optim/state_part.hpp>
#include <xtrain/optim/whole_matrices.hpp>

namespace xtrain {

/// Factor of the learning rate of a matrix [out, in].
///   original           sqrt(max(1, out/in))          [Jordan et al. 2024]; PyTorch's default
///   match_rms_adamw    0.2·sqrt(max(out, in)): updates as large as AdamW's, so that its learning rate and weight decay fit both
///                                                    [Liu et al. 2025, "Muon is scalable for LLM training", equation 4]
///   spectral           sqrt(out/in)                  [Bernstein 2025, "Deriving Muon"]; PyTorch's spectral_unclamped
enum class muon_rate : std::uint8_t { original, match_rms_adamw, spectral };

namespace detail {

/// A matrix of the iteration, and scratch.
template <class T, class Memory>
struct two_matrices {
  device_span<T, Memory> x{}, y{};
};

/// Newton-Schulz: `steps` times x = a·x + (b·(x·xᵀ) + c·(x·xᵀ)²)·x, which moves singular values in (0, 1] to about 1.
///                                                                             [Jordan et al. 2024; torch.optim.Muon]
///   x         read      [r, c], Frobenius norm at most 1
///   y         scratch   of the same size
///   returns   x or y, which holds the result
///   rounding  every product and every sum is rounded to T
///   departs from  PyTorch, which always uses bf16; where r > c, xᵀ·x on the right replaces transposing x
template <class Device, class T>
[[nodiscard]] device_span<T, typename Device::memory> orthogonalise(execution<Device>& on, two_matrices<T, typename Device::memory> of, std::size_t r,
                                                                    std::size_t c, const std::array<double, 3>& abc, std::size_t steps) {
  using memory = typename Device::memory;
  using matmul = kernel::matmul<memory, T, T>;
  const bool tall = r > c;
  const std::size_t s = std::min(r, c);
  const typename arena<Device>::scope scope(on.workspace);
  const auto gram = on.workspace.template take<T>(s * s), polynomial = on.workspace.template take<T>(s * s);
  auto [x, y] = of;
  const auto add = [&](device_span<T, memory> from, device_span<T, memory> to, double factor) {
    ops::launch(on, kernel::add<memory, T>{.n = from.size(), .factor = factor, .x_n = from, .y_n = to});
  };
  for (std::size_t step = 0; step < steps; ++step) {
    ops::launch(on, matmul{.m = s, .n = s, .k = std::max(r, c), .lda = c, .ldb = c, .ldc = s, .transpose_a = tall, .transpose_b = !tall,
                           .a = x, .b = x, .c = gram});
    ops::launch(on, matmul{.m = s, .n = s, .k = s, .lda = s, .ldb = s, .ldc = s, .alpha = abc[2], .a = gram, .b = gram, .c = polynomial});
    add(gram, polynomial, abc[1]);
    if (tall) ops::launch(on, matmul{.m = r, .n = c, .k = s, .lda = c, .ldb = s, .ldc = c, .a = x, .b = polynomial, .c = y});
    else ops::launch(on, matmul{.m = r, .n = c, .k = s, .lda = s, .ldb = c, .ldc = c, .a = polynomial, .b = x, .c = y});
    add(x, y, abc[0]);
    std::swap(x, y);
  }
  return x;
}

}  // namespace detail

template <>
struct kind_names<muon_rate> {
  static constexpr named_kinds<muon_rate, 3> all{
      {{"original", muon_rate::original}, {"match_rms_adamw", muon_rate::match_rms_adamw}, {"spectral", muon_rate::spectral}}};
};

/// Matrices of hidden layers (two dims, in all blocks except the first and last) move by their orthogonalized momentum. AdamW steps other parameters:
/// embeddings, head, norms, biases. Both read the trainer's learning rate.
///
/// Ranks that shard a matrix gather its momentum, and each orthogonalizes it: one rank's bits, but every rank repeats the products.
struct muon {
  static constexpr std::string_view name = "muon";
  using hooks = xtrain::hooks<hook::has_learning_rate_factors, hook::steps_with_strategy>;

  struct config {
    double momentum = 0.95;
    bool nesterov = true;
    double weight_decay = 0.1;                                      ///< of matrices of hidden layers
    std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};  ///< of Newton-Schulz, as steps
    std::size_t steps = 5;
    double epsilon = 1e-7;                                          ///< minimum divisor of a matrix
    muon_rate adjust_learning_rate = muon_rate::match_rms_adamw;
    double learning_rate_ratio = 1;  ///< learning rate of matrices of hidden layers, as a multiple of the trainer's
    xtrain::adamw::config adamw = {};  ///< for all other parameters

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "momentum", .range = setting_range::share_below_one, .help = "decay of the sum of gradients"}, c.momentum);
      visit({.name = "nesterov", .help = "Nesterov momentum"}, c.nesterov);
      visit({.name = "weight_decay", .range = setting_range::non_negative, .help = "weight decay of matrices of hidden layers"}, c.weight_decay);
      visit({.name = "coefficients", .full_name = "newton_schulz_coefficients", .help = "of Newton-Schulz"}, c.coefficients);
      visit({.name = "steps", .full_name = "newton_schulz_steps", .range = setting_range::positive, .help = "of Newton-Schulz"}, c.steps);
      visit({.name = "epsilon", .range = setting_range::positive, .help = "smallest norm to divide a matrix by"}, c.epsilon);
      visit({.name = "adjust_learning_rate", .help = "how the learning rate depends on the shape of a matrix"}, c.adjust_learning_rate);
      visit({.name = "learning_rate_ratio", .range = setting_range::non_negative,
             .help = "learning rate of matrices of hidden layers, as a multiple"}, c.learning_rate_ratio);
      visit({.name = "adamw", .help = "for everything else"}, c.adamw);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using store_type = parameter_store<Device, Precision>;
    using memory = typename Device::memory;
    using dtype = typename Precision::state;
    using compute = typename Precision::compute;
    using wide = accumulate_t<dtype>;

    /// `store` must outlive the state.
    ///   throws  config_error when a setting is out of range
    state(const config& settings, execution<Device>& on, const store_type& store)
        : settings_(checked(settings)), store_(&store), master_(on, store), pieces_(pieces_of(store)), v_begin_(store.entries().size(), 0),
          m_(store.device(), store.stepped() * sizeof(dtype), memory_role::optimizer),
          v_(store.device(), place_second_moments() * sizeof(dtype), memory_role::optimizer) {
      fill_zero(on.stream, m_.template as<dtype>());
      fill_zero(on.stream, v_.template as<dtype>());
    }

    void step(execution<Device>& on, const store_type& store, const optimizer_step<Device>& arguments) {
      whole_matrices::require(store, name);
      whole_matrices all;
      step(on, store, arguments, all);
    }
    template <class Strategy>
    requires clause::combines_matrices<Strategy, Device, parameter_store<Device, Precision>>
    void step(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy) {
      const typename arena<Device>::scope scope(on.workspace);
      const auto corrections = detail::adam_corrections(on, settings_.adamw.beta1, settings_.adamw.beta2, step);
      for (const parameter_piece& piece : pieces_) {
        const auto& entry = store.entries()[piece.entry];
        if (is_hidden(store, entry)) step_matrix(on, store, step, strategy, piece, entry);
        else if (piece.run.size() > 0) step_element_wise(on, store, step, piece, corrections);
      }
    }

    /// Arrays of a checkpoint: momentum or first moment; second moments of AdamW.
    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (has_master_copy<Precision>) visit("master", master_.span());
      visit("m", m_.template as<dtype>());
      visit("v", v_.template as<dtype>(), [this](const typename store_type::entry& entry) {
        if (is_hidden(*store_, entry)) return state_part{};
        return state_part::weights_of(*store_, entry, v_begin_[index_of(*store_, entry)]);
      });
    }

    [[nodiscard]] static bool is_hidden(const store_type& store, const typename store_type::entry& entry) {
      return entry.spec.shape.size() == 2 && entry.block != 0 && entry.block + 1 != store.blocks();
    }

   private:
    static constexpr std::uint32_t rounding_site = 0xffff0000U;

    static const config& checked(const config& c) {
      require<config_error>(c.steps > 0 && c.steps < 100, "muon: steps must be 1 to 99; given ", c.steps);
      return require_ranges(name, c);
    }
    [[nodiscard]] static std::size_t index_of(const store_type& store, const typename store_type::entry& entry) {
      return static_cast<std::size_t>(&entry - store.entries().data());
    }
    /// Assigns indices to second moments; returns their number.
    [[nodiscard]] std::size_t place_second_moments() {
      std::size_t n = 0;
      for (const parameter_piece& piece : pieces_) {
        if (is_hidden(*store_, store_->entries()[piece.entry])) continue;
        v_begin_[piece.entry] = n;
        n += piece.run.size();
      }
      return n;
    }
    [[nodiscard]] double adjusted_rate(std::size_t out, std::size_t in) const {
      const auto o = static_cast<double>(out), i = static_cast<double>(in);
      if (settings_.adjust_learning_rate == muon_rate::original) return std::sqrt(std::max(1.0, o / i));
      if (settings_.adjust_learning_rate == muon_rate::match_rms_adamw) return 0.2 * std::sqrt(std::max(o, i));
      return std::sqrt(o / i);
    }
    [[nodiscard]] random_site random_of(const optimizer_step<Device>& step, const parameter_slice& run) const {
      return {.seed = step.seed, .step = step.number, .site = rounding_site, .first = run.element};
    }

    void step_element_wise(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, const parameter_piece& piece,
                           device_span<const double, memory> corrections) {
      const parameter_slice& run = piece.run;
      ops::adamw(on, kernel::adamw<memory, typename Precision::parameter, typename Precision::gradient, typename Precision::master, dtype>{
                         .n = run.size(),
                         .beta1 = settings_.adamw.beta1,
                         .beta2 = settings_.adamw.beta2,
                         .epsilon = settings_.adamw.epsilon,
                         .weight_decay = run.decays ? settings_.adamw.weight_decay : 0.0,
                         .learning_rate_factor = run.learning_rate_factor,
                         .stochastic = Precision::update == rounding::stochastic,
                         .random = random_of(step, run),
                         .scalars_1 = step.scalars,
                         .correction_2 = corrections,
                         .gradient_n = store.gradients_of(run),
                         .master_n = master_.of(run),
                         .parameter_n = store.values_of(run),
                         .m_n = m_.template as<dtype>().subspan(run.kept, run.size()),
                         .v_n = v_.template as<dtype>().subspan(v_begin_[piece.entry], run.size())});
    }

    template <class Strategy>
    void step_matrix(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy,
                     const parameter_piece& piece, const typename store_type::entry& entry) {
      const parameter_slice& run = piece.run;
      const std::size_t r = entry.spec.whole_shape()[0], c = entry.spec.whole_shape()[1];
      const typename arena<Device>::scope scope(on.workspace);
      const auto x = on.workspace.template take<compute>(r * c), y = on.workspace.template take<compute>(r * c);
      whole_update(on, store, step, strategy, piece, entry, x);
      auto update = detail::orthogonalise<Device, compute>(on, {x, y}, r, c, settings_.coefficients, settings_.steps);
      if (entry.spec.cut.exists()) {
        const auto shard = update.raw() == x.raw() ? y : x;  // large enough
        for_each_row_range(entry.spec, 0, entry.size(), [&](std::size_t offset, std::size_t n, std::size_t row, std::size_t) {
          copy_shard_rows(on, entry.spec, update, row, shard.subspan(offset, n), false);
        });
        update = shard;
      }
      if (run.size() == 0) return;
      ops::muon(on, kernel::muon<memory, typename Precision::parameter, typename Precision::master>{
                        .n = run.size(),
                        .rate = run.learning_rate_factor * settings_.learning_rate_ratio * adjusted_rate(r, c),
                        .decay = run.learning_rate_factor * settings_.learning_rate_ratio * settings_.weight_decay,
                        .stochastic = Precision::update == rounding::stochastic,
                        .random = random_of(step, run),
                        .scalars_1 = step.scalars,
                        .update_n = update.subspan(piece.first, run.size()),
                        .master_n = master_.of(run),
                        .parameter_n = store.values_of(run)});
    }

    /// The unsharded matrix's momentum, over all ranks, divided by its norm.
    template <class Strategy>
    void whole_update(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy,
                      const parameter_piece& piece, const typename store_type::entry& entry, device_span<compute, memory> x) {
      const parameter_slice& run = piece.run;
      const typename arena<Device>::scope scope(on.workspace);
      auto whole = on.workspace.template take<wide>(entry.size());
      if (run.size() > 0)
        ops::muon_momentum(on, kernel::muon_momentum<memory, typename Precision::gradient, dtype, wide>{
                                   .n = run.size(),
                                   .beta = settings_.momentum,
                                   .nesterov = settings_.nesterov,
                                   .stochastic = Precision::update == rounding::stochastic,
                                   .random = random_of(step, run),
                                   .scalars_1 = step.scalars,
                                   .gradient_n = store.gradients_of(run),
                                   .momentum_n = m_.template as<dtype>().subspan(run.kept, run.size()),
                                   .update_n = whole.subspan(piece.first, run.size())});
      strategy.gather_pieces(on.stream, store, entry, whole);
      if (entry.spec.cut.exists()) {
        const auto shard = whole;
        whole = on.workspace.template take<wide>(x.size());
        fill_zero(on.stream, whole);
        for_each_row_range(entry.spec, 0, entry.size(), [&](std::size_t offset, std::size_t n, std::size_t row, std::size_t) {
          copy_shard_rows(on, entry.spec, whole, row, shard.subspan(offset, n), true);
        });
        strategy.sum_tensor_shards(on.stream, entry, whole);
      }
      const auto squares = on.workspace.template take<double>(1);
      ops::sum_of_squares(on, whole, squares);
      ops::muon_normalise(on, kernel::muon_normalise<memory, wide, compute>{
                                  .n = x.size(), .epsilon = settings_.epsilon, .squares_1 = squares, .u_n = whole, .x_n = x});
    }

    /// Copies rows of a tensor-parallel shard to the unsharded matrix, from its row `row` on, or back.
    template <class T>
    static void copy_shard_rows(execution<Device>& on, const parameter_spec& spec, device_span<T, memory> whole, std::size_t row,
                                device_span<T, memory> shard, bool to_whole) {
      const std::size_t columns = spec.shape[1], all = spec.whole_shape()[1], rows = shard.size() / columns;
      const auto there = matrix_view<T, memory>(whole.subspan(row * all, rows * all), {rows, all}).columns(spec.cut.first_column, columns);
      const matrix_view<T, memory> here(shard, {rows, columns});
      if (to_whole) ops::copy_rows<Device, T>(on, here, there);
      else ops::copy_rows<Device, T>(on, there, here);
    }

    config settings_;
    const store_type* store_;
    master_copy<Device, Precision> master_;
    std::vector<parameter_piece> pieces_;
    std::vector<std::size_t> v_begin_;  // by parameter: index of its piece in v_
    buffer<Device> m_, v_;
  };
};

static_assert(optimizer<muon>);

}  // namespace xtrain
