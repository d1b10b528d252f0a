// The part of a pass that only the library's own layers, models and strategies use.
#pragma once

#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/layers/expert_load.hpp>
#include <xtrain/layers/kv_cache.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A tensor-parallel strategy may also have sequence parallelism: its state declares it.
template <class State>
inline constexpr bool has_sequence_parallel_of = false;
template <class State>
requires requires { State::has_sequence_parallel; }
inline constexpr bool has_sequence_parallel_of<State> = State::has_sequence_parallel;

/// The number of ranks that shard the sequence-parallel region.
template <class State>
[[nodiscard]] std::size_t sequence_parallel_ranks([[maybe_unused]] State& state) {
  if constexpr (has_sequence_parallel_of<State>) return state.tensor().size();
  else return 1;
}

template <class Recipe>
class pass;
template <class Recipe>
class head_pass;

/// What a head computes in place of the cross-entropy of the next token: an objective over whole sequences, or one with a teacher.
template <class Recipe>
class pass_objective {
 public:
  virtual ~pass_objective() = default;
  /// The losses of a batch, of which the step's loss is the sum; while training, also the gradients of head and hidden states.
  virtual void compute(pass<Recipe>& p, const head_pass<Recipe>& head,
                       vector_view<accumulate_t<typename Recipe::precision::compute>, typename Recipe::device::memory> loss_n) = 0;
};

/// Changes of the cross-entropy of the next token.
struct token_loss {
  double label_smoothing = 0.0, log_z_loss = 0.0;
};

/// The part of a pass that only the library's layers use.
template <class Recipe>
struct pass_internal {
  using device = typename Recipe::device;
  using compute = typename Recipe::precision::compute;
  using parallel_state = typename Recipe::parallel::template state<device>;

  parallel_state& parallel;
  /// In the sequence-parallel region, between tensor-parallel layers, each tensor-parallel rank has a shard of the tokens.
  bool has_sequence_parallel = false;
  bool rows_are_sequences = false;  ///< while a layer works on one row per sequence
  std::size_t number = 0;           ///< index among the in-flight passes
  std::size_t most_tokens = 0;      ///< in the local batch of any rank and pass; 0: not known
  const cache_view<device, compute>* cache = nullptr;
  expert_load<device, compute> load{};  ///< if there is a load-balancing loss
  double balance_factor = 1.0;          ///< of the load-balancing loss that every row with a target has
  /// Takes the deferred products of a backward in two parts.
  deferred_gradients<device, compute, typename Recipe::precision::gradient>* deferred = nullptr;
  token_loss loss{};
  pass_objective<Recipe>* objective = nullptr;  ///< none: cross-entropy of the next token
  std::size_t micro_batch = 0;  ///< index in the step
  device_span<double, typename device::memory> statistics{};  ///< sums that an objective adds to; empty: not wanted
  double neftune_noise_alpha = 0.0;  ///< of noise on embeddings, see layers/neftune.hpp; 0: none
  bool without_fake_quantization = false;  ///< linear layers compute with their weights as they are: the first steps of qat
  bool without_adapter = false;  ///< linear layers and embeddings leave out their adapters
  dispatched_rows origin{};  ///< while an expert works on rows dispatched by other ranks
};

}  // namespace xtrain
