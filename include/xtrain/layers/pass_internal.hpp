#pragma once

#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/layers/expert_load.hpp>
#include <xtrain/layers/kv_cache.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A tensor-parallel strategy may declare sequence parallelism.
template <class State>
inline constexpr bool has_sequence_parallel_of = false;
template <class State>
requires requires { State::has_sequence_parallel; }
inline constexpr bool has_sequence_parallel_of<State> = State::has_sequence_parallel;

/// Ranks that shard the sequence-parallel region.
template <class State>
[[nodiscard]] std::size_t sequence_parallel_ranks([[maybe_unused]] State& state) {
  if constexpr (has_sequence_parallel_of<State>) return state.tensor().size();
  else return 1;
}

template <class Recipe>
class pass;
template <class Recipe>
class head_pass;

/// Replaces next-token cross-entropy: an objective over sequences, or with a teacher.
template <class Recipe>
class pass_objective {
 public:
  virtual ~pass_objective() = default;
  /// loss_n, whose sum is the step's loss; while training, gradients of head and hidden states.
  virtual void compute(pass<Recipe>& p, const head_pass<Recipe>& head,
                       vector_view<accumulate_t<typename Recipe::precision::compute>, typename Recipe::device::memory> loss_n) = 0;
};

/// Changes of next-token cross-entropy.
struct token_loss {
  double label_smoothing = 0.0, log_z_loss = 0.0;
};

/// Only for the library's layers.
template <class Recipe>
struct pass_internal {
  using device = typename Recipe::device;
  using compute = typename Recipe::precision::compute;
  using parallel_state = typename Recipe::parallel::template state<device>;

  parallel_state& parallel;
  /// Between tensor-parallel layers, ranks have token shards.
  bool has_sequence_parallel = false;
  bool rows_are_sequences = false;  ///< while a layer has one row per sequence
  std::size_t number = 0;           ///< index in the in-flight passes
  std::size_t most_tokens = 0;      ///< maximum over local batches of ranks and passes; 0: not known
  const cache_view<device, compute>* cache = nullptr;
  expert_load<device, compute> load{};  ///< with a load-balancing loss
  double balance_factor = 1.0;          ///< factor of the load-balancing loss of each row with a target
  /// Takes deferred products of a split backward.
  deferred_gradients<device, compute, typename Recipe::precision::gradient>* deferred = nullptr;
  token_loss loss{};
  pass_objective<Recipe>* objective = nullptr;  ///< null: next-token cross-entropy
  std::size_t micro_batch = 0;  ///< index in the step
  device_span<double, typename device::memory> statistics{};  ///< an objective adds to these; empty: unwanted
  double neftune_noise_alpha = 0.0;  ///< see layers/neftune.hpp; 0: none
  bool without_fake_quantization = false;  ///< qat's first steps use weights as they are
  bool without_adapter = false;  ///< linear layers and embeddings skip adapters
  dispatched_rows origin{};  ///< while an expert works on dispatched rows
};

}  // namespace xtrain
