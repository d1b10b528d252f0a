// Adafactor.        [Shazeer & Stern 2018, "Adafactor: Adaptive learning rates with sublinear memory cost"; transformers.optimization.Adafactor]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/matrix_optimizer.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/master.hpp>
#include <xtrain/optim/parameter_piece.hpp>
#include <xtrain/optim/state_part.hpp>
#include <xtrain/optim/whole_matrices.hpp>

namespace xtrain {

/// A matrix's second moment is a row factor times a column factor; a vector has a second moment per element. An update's root mean square is clipped per
/// matrix. Names are transformers' Adafactor, defaults its Trainer's (`optim="adafactor"`): steps of the learning rate, no parameter scaling.
///   departs from  transformers: weight decay applies to matrices only; sums over a matrix are in double; factors are in the accumulate dtype
/// Equals torch.optim.Adafactor with scale_parameter, relative_step and at_most_learning_rate, without weight decay, while second moments are above its eps1²
///
/// Ranks that shard a matrix sum rows, columns and norms over pieces: equal to one rank up to rounding of sums in double.
struct adafactor {
  static constexpr std::string_view name = "adafactor";
  using hooks = xtrain::hooks<hook::has_learning_rate_factors, hook::steps_with_strategy>;

  struct config {
    bool scale_parameter = false;        ///< multiplies the learning rate by the parameter's root mean square, at least epsilon2
    bool relative_step = false;          ///< steps of min(1e-2, 1/sqrt(update)), without the trainer's learning rate
    bool warmup_init = false;            ///< with relative_step: min(1e-6·update, 1/sqrt(update))
    bool at_most_learning_rate = false;  ///< with relative_step: min(learning rate, 1/sqrt(update)), as in PyTorch
    double clip_threshold = 1.0;         ///< largest root mean square of an update
    double decay_rate = -0.8;            ///< beta2 = 1 − update^decay_rate
    double beta1 = 0;                    ///< first moment; 0: off
    double epsilon1 = 1e-30;             ///< added to squares of gradients
    double epsilon2 = 1e-3;
    double weight_decay = 0;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "scale_parameter", .help = "multiply the learning rate by the root mean square of a parameter"}, c.scale_parameter);
      visit({.name = "relative_step", .help = "steps that depend on their number, not on the learning rate"}, c.relative_step);
      visit({.name = "warmup_init", .help = "of relative_step: a warm-up"}, c.warmup_init);
      visit({.name = "at_most_learning_rate", .help = "of relative_step: steps are at most the learning rate, as in PyTorch"}, c.at_most_learning_rate);
      visit({.name = "clip_threshold", .range = setting_range::positive, .help = "largest root mean square of an update"}, c.clip_threshold);
      visit({.name = "decay_rate", .help = "exponent of the decay of squares, negative"}, c.decay_rate);
      visit({.name = "beta1", .range = setting_range::share_below_one, .help = "of a first moment; 0: none"}, c.beta1);
      visit({.name = "epsilon1", .range = setting_range::positive, .help = "added to squares of gradients"}, c.epsilon1);
      visit({.name = "epsilon2", .range = setting_range::non_negative, .help = "smallest root mean square of a parameter"}, c.epsilon2);
      visit({.name = "weight_decay", .range = setting_range::non_negative, .help = "weight decay, per unit of learning rate"}, c.weight_decay);
    }
  };

  template <class Device, class Precision>
  class state {
   public:
    using store_type = parameter_store<Device, Precision>;
    using entry_type = typename store_type::entry;
    using memory = typename Device::memory;
    using dtype = typename Precision::state;
    using factor = accumulate_t<dtype>;

    /// `store` must outlive the state.
    ///   throws  config_error when a setting is out of range
    state(const config& settings, execution<Device>& on, const store_type& store)
        : settings_(checked(settings)), store_(&store), master_(on, store), pieces_(pieces_of(store)), begin_(store.entries().size(), 0),
          factors_(store.device(), place(true) * sizeof(factor), memory_role::optimizer),
          v_(store.device(), place(false) * sizeof(factor), memory_role::optimizer),
          m_(store.device(), settings.beta1 == 0 ? 0 : store.stepped() * sizeof(dtype), memory_role::optimizer) {
      for (const parameter_slice& run : store.parameter_slices())
        require<config_error>(run.learning_rate_factor == 1.0 || !settings.relative_step || settings.at_most_learning_rate,
                              "adafactor: relative_step must be off where parameters have learning rates of their own, which it does not use; a factor is ",
                              run.learning_rate_factor);
      fill_zero(on.stream, factors_.template as<factor>());
      fill_zero(on.stream, v_.template as<factor>());
      fill_zero(on.stream, m_.template as<dtype>());
    }

    void step(execution<Device>& on, const store_type& store, const optimizer_step<Device>& arguments) {
      whole_matrices::require(store, name);
      whole_matrices all;
      step(on, store, arguments, all);
    }
    template <class Strategy>
    requires clause::combines_matrices<Strategy, Device, parameter_store<Device, Precision>>
    void step(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy) {
      for (const parameter_piece& piece : pieces_) {
        const entry_type& entry = store.entries()[piece.entry];
        if (is_matrix(entry)) step_matrix(on, store, step, strategy, piece, entry);
        else step_vector(on, store, step, strategy, piece, entry);
      }
    }

    /// Arrays of a checkpoint: factors of matrices, second moments of vectors, first moments if used.
    template <class Visit>
    void visit(Visit&& visit) const {
      if constexpr (has_master_copy<Precision>) visit("master", master_.span());
      visit("row_factor", factors_.template as<factor>(), [this](const entry_type& entry) { return factors_of(entry, 0); });
      visit("column_factor", factors_.template as<factor>(), [this](const entry_type& entry) { return factors_of(entry, 1); });
      visit("v", v_.template as<factor>(), [this](const entry_type& entry) {
        return is_matrix(entry) ? state_part{} : state_part::weights_of(*store_, entry, begin_[index_of(entry)]);
      });
      if (settings_.beta1 != 0) visit("m", m_.template as<dtype>());
    }

   private:
    using adafactor_kernel =
        kernel::adafactor<memory, typename Precision::parameter, typename Precision::gradient, typename Precision::master, dtype>;
    static constexpr std::uint32_t rounding_site = 0xffff0000U;

    static const config& checked(const config& c) {
      require<config_error>(c.decay_rate < 0, "adafactor: decay_rate must be negative; given ", c.decay_rate);
      require<config_error>(c.relative_step || !(c.warmup_init || c.at_most_learning_rate),
                            "adafactor: warmup_init and at_most_learning_rate need relative_step");
      require<config_error>(!(c.warmup_init && c.at_most_learning_rate), "adafactor: warmup_init and at_most_learning_rate exclude each other");
      return require_ranges(name, c);
    }
    [[nodiscard]] static bool is_matrix(const entry_type& entry) { return entry.spec.shape.size() == 2; }
    [[nodiscard]] std::size_t index_of(const entry_type& entry) const { return static_cast<std::size_t>(&entry - store_->entries().data()); }

    /// Assigns indices to factors of matrices, or second moments of vectors; returns their number.
    [[nodiscard]] std::size_t place(bool matrices) {
      std::size_t n = 0;
      for (const parameter_piece& piece : pieces_) {
        const entry_type& entry = store_->entries()[piece.entry];
        if (is_matrix(entry) != matrices) continue;
        begin_[piece.entry] = n;
        n += matrices ? entry.spec.whole_shape()[0] + entry.spec.whole_shape()[1] : piece.run.size();
      }
      return n;
    }
    [[nodiscard]] state_part factors_of(const entry_type& entry, std::size_t dim) const {
      if (!is_matrix(entry)) return {};
      const std::size_t n = entry.spec.whole_shape()[dim];
      return {.is = state_part::kind::same,
              .shape = {n},
              .at = begin_[index_of(entry)] + (dim == 0 ? 0 : entry.spec.whole_shape()[0]),
              .count = entry.is_here ? n : 0};
    }

    void weight_squares(execution<Device>& on, const store_type& store, const parameter_slice& run, device_span<double, memory> to) const {
      if (!settings_.scale_parameter || run.size() == 0) return;
      if constexpr (has_master_copy<Precision>) ops::sum_of_squares(on, master_.of(run), to);
      else ops::sum_of_squares(on, store.values_of(run), to);
    }
    [[nodiscard]] adafactor_kernel kernel_of(const store_type& store, const optimizer_step<Device>& step, const parameter_slice& run,
                                             const entry_type& entry, std::size_t offset, std::size_t n, device_span<double, memory> squares_2) const {
      adafactor_kernel kernel{.n = n,
                              .rate = {.scale_parameter = settings_.scale_parameter,
                                       .relative_step = settings_.relative_step,
                                       .warmup_init = settings_.warmup_init,
                                       .at_most_learning_rate = settings_.at_most_learning_rate,
                                       .clip_threshold = settings_.clip_threshold,
                                       .min_scale = settings_.epsilon2,
                                       .learning_rate_factor = run.learning_rate_factor,
                                       .elements = static_cast<double>(entry.whole_size())},
                              .beta1 = settings_.beta1,
                              .weight_decay = run.decays ? settings_.weight_decay : 0.0,
                              .stochastic = Precision::update == rounding::stochastic,
                              .random = {.seed = step.seed, .step = step.number, .site = rounding_site, .first = run.element + offset},
                              .scalars_1 = step.scalars};
      kernel.gradient_n = store.gradients_of(run).subspan(offset, n);
      kernel.weight_squares_1 = squares_2.subspan(0, 1);
      kernel.update_squares_1 = squares_2.subspan(1, 1);
      if constexpr (has_master_copy<Precision>) kernel.master_n = master_.of(run).subspan(offset, n);
      kernel.parameter_n = store.values_of(run).subspan(offset, n);
      if (settings_.beta1 != 0) kernel.m_n = m_.template as<dtype>().subspan(run.kept + offset, n);
      return kernel;
    }

    template <class Strategy>
    void step_matrix(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy,
                     const parameter_piece& piece, const entry_type& entry) {
      const parameter_slice& run = piece.run;
      const std::size_t rows = entry.spec.whole_shape()[0], columns = entry.spec.whole_shape()[1], own_columns = entry.spec.shape[1];
      const typename arena<Device>::scope scope(on.workspace);
      const auto sums = on.workspace.template take<double>(rows + columns + 2);  // Σ g² of each row and column, Σ w², Σ u²
      const auto squares = sums.subspan(rows + columns, 2), mean = on.workspace.template take<double>(1);
      const auto row_factors = factors_.template as<factor>().subspan(begin_[piece.entry], rows);
      const auto column_factors = factors_.template as<factor>().subspan(begin_[piece.entry] + rows, columns);
      const std::size_t left = entry.spec.cut.exists() ? entry.spec.cut.first_column : 0;
      const auto of_rows = [&](auto all, std::size_t row, std::size_t first, std::size_t n) {
        return all.subspan(row, (first + n - 1) / own_columns + 1);
      };
      const auto for_each_range = [&](const auto& work) {
        if (run.size() > 0) for_each_row_range(entry.spec, piece.first, run.size(), work);
      };
      fill_zero(on.stream, sums);
      for_each_range([&](std::size_t offset, std::size_t n, std::size_t row, std::size_t first) {
        ops::adafactor_squares(on, kernel::adafactor_squares<memory, typename Precision::gradient>{
                                       .n = n,
                                       .columns = own_columns,
                                       .first = first,
                                       .scalars_1 = step.scalars,
                                       .gradient_n = store.gradients_of(run).subspan(offset, n),
                                       .row_sum_r = of_rows(sums, row, first, n),
                                       .column_sum_c = sums.subspan(rows + left, own_columns)});
      });
      weight_squares(on, store, run, squares.subspan(0, 1));
      add_up(on, store, strategy, entry, sums.subspan(0, rows + columns + 1));
      ops::adafactor_factors(on, kernel::adafactor_factors<memory, factor>{.rows = rows,
                                                                           .columns = columns,
                                                                           .decay_rate = settings_.decay_rate,
                                                                           .epsilon = settings_.epsilon1,
                                                                           .scalars_1 = step.scalars,
                                                                           .row_sum_r = sums.subspan(0, rows),
                                                                           .column_sum_c = sums.subspan(rows, columns),
                                                                           .row_r = row_factors,
                                                                           .column_c = column_factors,
                                                                           .mean_1 = mean});
      for_each_range([&](std::size_t offset, std::size_t n, std::size_t row, std::size_t first) {
        ops::adafactor_update_squares(on, kernel::adafactor_update_squares<memory, typename Precision::gradient, factor>{
                                              .n = n,
                                              .columns = own_columns,
                                              .first = first,
                                              .scalars_1 = step.scalars,
                                              .gradient_n = store.gradients_of(run).subspan(offset, n),
                                              .row_r = of_rows(row_factors, row, first, n),
                                              .column_c = column_factors.subspan(left, own_columns),
                                              .mean_1 = mean,
                                              .squares_1 = squares.subspan(1, 1)});
      });
      add_up(on, store, strategy, entry, squares.subspan(1, 1));
      for_each_range([&](std::size_t offset, std::size_t n, std::size_t row, std::size_t first) {
        adafactor_kernel kernel = kernel_of(store, step, run, entry, offset, n, squares);
        kernel.columns = own_columns;
        kernel.first = first;
        kernel.row_r = of_rows(row_factors, row, first, n);
        kernel.column_c = column_factors.subspan(left, own_columns);
        kernel.mean_1 = mean;
        ops::adafactor(on, kernel);
      });
    }

    template <class Strategy>
    void step_vector(execution<Device>& on, const store_type& store, const optimizer_step<Device>& step, Strategy& strategy,
                     const parameter_piece& piece, const entry_type& entry) {
      const parameter_slice& run = piece.run;
      const typename arena<Device>::scope scope(on.workspace);
      const auto squares = on.workspace.template take<double>(2);
      const auto v = v_.template as<factor>().subspan(begin_[piece.entry], run.size());
      fill_zero(on.stream, squares);
      weight_squares(on, store, run, squares.subspan(0, 1));
      if (run.size() > 0)
        ops::adafactor_vector(on, kernel::adafactor_vector<memory, typename Precision::gradient, factor>{.n = run.size(),
                                                                                                        .decay_rate = settings_.decay_rate,
                                                                                                        .epsilon = settings_.epsilon1,
                                                                                                        .scalars_1 = step.scalars,
                                                                                                        .gradient_n = store.gradients_of(run),
                                                                                                        .v_n = v,
                                                                                                        .squares_1 = squares.subspan(1, 1)});
      add_up(on, store, strategy, entry, squares);
      if (run.size() == 0) return;
      adafactor_kernel kernel = kernel_of(store, step, run, entry, 0, run.size(), squares);
      kernel.columns = run.size();
      kernel.v_n = v;
      ops::adafactor(on, kernel);
    }

    /// Sums over all ranks with different elements of the parameter.
    template <class Strategy>
    static void add_up(execution<Device>& on, const store_type& store, Strategy& strategy, const entry_type& entry,
                       device_span<double, memory> sums) {
      strategy.sum_pieces(on.stream, store, entry, sums);
      strategy.sum_tensor_shards(on.stream, entry, sums);
    }

    config settings_;
    const store_type* store_;
    master_copy<Device, Precision> master_;
    std::vector<parameter_piece> pieces_;
    std::vector<std::size_t> begin_;  // by parameter: index of its factors in factors_, or of its piece in v_
    buffer<Device> factors_, v_, m_;
  };
};

static_assert(optimizer<adafactor>);

}  // namespace xtrain
