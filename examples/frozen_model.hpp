// The reference model or the teacher of an objective, which is not trained.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/plan/plan.hpp>
#include <xtrain/text.hpp>

#include "command_line.hpp"
#include "objective_flags.hpp"

namespace command_line {

/// `Model`: without an adapter, with the trained model's policies.
template <class Model, class Objective>
class frozen_model {
 public:
  /// The model's own sizes.
  ///   throws  file_error; config_error when its vocabulary differs from the trained model's
  [[nodiscard]] static typename Model::config_type sizes_in(const std::string& folder, std::size_t vocab_size) {
    const auto config = xtrain::read_config(folder);
    auto sizes = xtrain::sizes_of(config, Model::family_of(config));
    xtrain::require<xtrain::config_error>(sizes.vocab_size == vocab_size, "must have the vocabulary of the trained model, ", vocab_size, " tokens; it has ",
                                          sizes.vocab_size);
    return sizes;
  }
  /// Loads the weights. All ranks call it.
  ///   resizes  the folder's vocabulary may differ from that in `sizes`: it holds the trained model's initial weights
  template <class Layout>
  Model& load(const std::string& folder, const typename Model::config_type& sizes, const typename Model::context_type& on, const Layout& layout,
              bool resizes) {
    return model_.emplace(xtrain::load_as<Model>(folder, sizes, on, {.parallel = beside(layout)}, {.resize_vocabulary = resizes}));
  }
  void reset() { model_.reset(); }

  /// The trainer's batches.
  ///   micro_batch_sizes  of a step, if they differ
  [[nodiscard]] static xtrain::forward_only_config batches(std::size_t micro_batch_size, const std::vector<std::size_t>& micro_batch_sizes,
                                                           std::size_t gradient_accumulation_steps, std::size_t seq_length) {
    for (const std::size_t one : micro_batch_sizes) micro_batch_size = std::max(micro_batch_size, one);
    return {.micro_batch_size = micro_batch_size, .gradient_accumulation_steps = gradient_accumulation_steps, .seq_length = seq_length};
  }
  /// Adds the model to a run's plan; loads nothing.
  template <class Layout>
  static void add_to(xtrain::dry_run& plan, const typename Model::config_type& sizes, const typename Model::context_type& on, const Layout& layout,
                     const xtrain::forward_only_config& of_trainer) {
    plan.set_beside(has_teacher_model<Objective> ? "teacher" : "reference model",
                    xtrain::plan<source>(sizes, {.parallel = beside(layout)}, of_trainer, on.properties()));
  }
  /// Gives the model to the trainer, if it is loaded.
  template <class Trainer>
  void use(Trainer& trainer, const xtrain::forward_only_config& of_trainer) {
    if (!model_) return;
    source_.emplace(*model_, of_trainer);
    if constexpr (has_teacher_model<Objective>) trainer.use_teacher(*source_);
    else trainer.use_reference(*source_);
  }

 private:
  using shared = xtrain::shared_model<Model>;
  template <bool IsTeacher, class Any>
  struct source_of {
    using type = xtrain::reference_model<Any>;
  };
  template <class Any>
  struct source_of<true, Any> {
    using type = xtrain::teacher_model<Any>;
  };

  using source = typename source_of<has_teacher_model<Objective>, shared>::type;

  std::optional<Model> model_{};
  std::optional<source> source_{};
};

}  // namespace command_line
