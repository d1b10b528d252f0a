// How far a run has come.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/data/loader.hpp>
#include <xtrain/optim/loss_scale.hpp>

namespace xtrain {

/// The state of a run except arrays; checkpoints store it.
struct training_progress {
  std::size_t step = 0;     // of this run
  std::size_t updates = 0;  // steps that changed weights, earlier runs included: the optimizer's step count
  loader_state data{};
  dynamic_loss_scale::memory loss_scale{};
  std::size_t skipped = 0;
  std::size_t skipped_sequences = 0;  // of skipped steps of fit() in this run, on all ranks
  std::size_t bad_in_a_row = 0;
  std::uint64_t seed = 0;
};

}  // namespace xtrain
