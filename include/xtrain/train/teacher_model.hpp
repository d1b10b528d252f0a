#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/teacher_source.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/train/forward_only.hpp>
#include <xtrain/train/require_second_model.hpp>

namespace xtrain {

/// Logits for trainer::use_teacher. Family, size, precision and adapter may differ from the student; vocabulary, device and the dtype of logits must be the
/// same. Weights are not rounded, even with the adapter qat. On several ranks it has the student's strategy, on separate channels:
/// parallel = {.ranks = separate_channels(ranks)}. The final hidden states of a step's micro-batches are stored; logits are computed in chunks of tokens.
template <class Model>
class teacher_model final : public teacher_source<typename Model::device, typename Model::accumulate> {
 public:
  using model_type = Model;
  using device = typename Model::device;
  using memory = typename device::memory;
  using computation = model_computation<Model>;
  using compute = typename pass<computation>::compute;
  using accumulate = typename Model::accumulate;
  using config = forward_only_config;

  /// throws  config_error for a sequence length that the model does not have, a head with normalized weights, or weights sharded by zero<3>; memory_error
  explicit teacher_model(Model& model, config settings = {})
      : passes_(model, settings, false, "teacher_model"), hidden_(model.context(), slots() * slot_size() * sizeof(compute), memory_role::stash), keeper_(*this),
        drain_(model.stream(), detail::watched(model)) {
    require<config_error>(settings.temperature == 1.0, "teacher_model: the temperature is a setting of the objective; given ", settings.temperature);
    require<config_error>(!model.parameters().sharding().values, "teacher_model: all weights must be on this rank; zero<3> shards them; choose zero<2>");
    rows_of_.resize(slots());
  }

  teacher_model(const teacher_model&) = delete;  // trainers store its address
  teacher_model& operator=(const teacher_model&) = delete;

  [[nodiscard]] static planned_memory run_dry(const typename Model::config_type& sizes, const typename Model::options& options, const config& settings,
                                              const typename device::properties& properties) {
    return with_hidden_states(forward_only<Model>::run_dry(sizes, options, settings, properties, false), sizes.hidden_size);
  }
  [[nodiscard]] planned_memory plan() const override { return with_hidden_states(passes_.needed(), passes_.model().config().hidden_size); }

  [[nodiscard]] const void* parameters() const override { return &passes_.model().parameters(); }
  [[nodiscard]] channel_origin channels() const override { return detail::channels_of(passes_.model()); }

  void begin(typename device::stream& stream, const batch_view& batch, std::size_t slot) override {
    // two streams share this memory: each waits for the other
    auto& own = passes_.model().stream();
    own.wait(stream.record());
    keeper_.slot = slot;
    passes_.run(batch, slot, keeper_);
    stream.wait(own.record());
  }
  void logits(execution<device>& on, std::size_t slot, std::size_t first, matrix_view<accumulate, memory> logits_nv) override {
    require<shape_error>(weight_.shape(0) == logits_nv.shape(1), "teacher_model: the teacher's vocabulary must be the student's; a rank has ",
                         weight_.shape(0), " tokens of it, and ", logits_nv.shape(1), " of the student's");
    require<shape_error>(first + logits_nv.shape(0) <= rows_of_[slot], "teacher_model: logits of token ", first + logits_nv.shape(0), " of ",
                         rows_of_[slot]);
    auto own = passes_.execution_on(on.stream);
    ops::linear(own, hidden_of(slot).rows(first, logits_nv.shape(0)), weight_, bias_, logits_nv);
    if (softcap_ != 0.0) ops::softcap(own, logits_nv, softcap_, logits_nv);
  }

 private:
  /// Stores the head's input.
  struct hidden_state_keeper final : pass_objective<computation> {
    explicit hidden_state_keeper(teacher_model& of) : owner(&of) {}
    teacher_model* owner;
    std::size_t slot = 0;

    void compute(pass<computation>& p, const head_pass<computation>& head, typename head_pass<computation>::sums) override {
      require<config_error>(head.has_own_weight(p), "teacher_model: a head with normalized weights or an adapter must not be the teacher's");
      const auto scope = p.scope();
      const auto x = head.hidden_states(p);
      owner->weight_ = head.weight();
      owner->bias_ = head.bias(p);
      owner->softcap_ = head.softcap();
      owner->rows_of_[slot] = x.shape(0);
      ops::copy(p, x, owner->hidden_of(slot).rows(0, x.shape(0)));
    }
  };
  [[nodiscard]] static planned_memory with_hidden_states(const typename forward_only<Model>::needs& needed, std::size_t hidden_size) {
    planned_memory all = needed.memory;
    all.add(memory_role::stash, needed.settings.gradient_accumulation_steps * needed.num_tokens * hidden_size * sizeof(compute));
    return all;
  }
  [[nodiscard]] std::size_t slots() const { return passes_.settings().gradient_accumulation_steps; }
  [[nodiscard]] std::size_t num_tokens() const { return passes_.num_tokens(); }
  [[nodiscard]] std::size_t slot_size() const { return num_tokens() * passes_.model().config().hidden_size; }
  [[nodiscard]] matrix_view<compute, memory> hidden_of(std::size_t slot) const {
    return {hidden_.template as<compute>().subspan(slot * slot_size(), slot_size()), {num_tokens(), slot_size() / num_tokens()}};
  }

  forward_only<Model> passes_;
  buffer<device> hidden_;  // by micro-batch
  matrix_view<const compute, memory> weight_{};
  vector_view<const compute, memory> bias_{};
  double softcap_ = 0.0;
  std::vector<std::size_t> rows_of_;
  hidden_state_keeper keeper_;
  detail::stream_drain<typename device::stream> drain_;  // last: destroyed first, so the host waits before memory in use is released
};

}  // namespace xtrain
