#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/pass_sizes.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/parallel/pipeline/load_message.hpp>
#include <xtrain/parallel/pipeline/stage_message.hpp>
#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Micro-batches in memory at a time: `saved` between forward and backward (or its first part, B), `deferred` between B and W, `received` from the earliest
/// send of the previous stage until their gradient is sent back.
struct pipeline_memory {
  std::size_t saved = 0, deferred = 0, received = 0;
};

/// Memory of a list. A receive buffer is free when its gradient has been sent; one spare buffer avoids that wait.
[[nodiscard]] inline pipeline_memory memory_of(const std::vector<pipeline_action>& list) {
  std::size_t saved = 0, deferred = 0, received = 0;
  pipeline_memory most;
  for (const pipeline_action& action : list) {
    saved += action.kind == action_kind::forward ? 1 : 0;
    received += action.kind == action_kind::receive_forward ? 1 : 0;
    deferred += action.kind == action_kind::backward_input ? 1 : 0;
    most.saved = std::max(most.saved, saved);
    most.deferred = std::max(most.deferred, deferred);
    most.received = std::max(most.received, received + 1);
    saved -= makes_input_gradient(action.kind) ? 1 : 0;
    deferred -= action.kind == action_kind::backward_weight ? 1 : 0;
    received -= action.kind == action_kind::send_backward ? 1 : 0;
  }
  return most;
}

/// Merges adjacent B and W, or with only receives between, into an unsplit backward: no rank waits for B alone.
[[nodiscard]] inline std::vector<pipeline_action> with_whole_backwards(const std::vector<pipeline_action>& list) {
  std::vector<pipeline_action> whole;
  std::size_t input = 0;
  for (const pipeline_action& action : list) {
    const bool joins = action.kind == action_kind::backward_weight && input < whole.size() && whole[input].kind == action_kind::backward_input &&
                       whole[input].micro_batch == action.micro_batch && whole[input].chunk == action.chunk &&
                       std::all_of(whole.begin() + static_cast<std::ptrdiff_t>(input) + 1, whole.end(),
                                   [](const pipeline_action& between) { return is_receive(between.kind); });
    if (joins) {
      whole[input].kind = action_kind::backward;
      continue;
    }
    if (action.kind == action_kind::backward_input) input = whole.size();
    whole.push_back(action);
  }
  return whole;
}

/// Runs one rank's part of a step. Messages begin at their position in the list and are waited for where needed. Rendezvous sends cannot deadlock.
template <class Model, class Schedule>
class pipeline_runner {
 public:
  using computation = model_computation<Model>;
  using device = typename computation::device;
  using memory = typename device::memory;
  using compute = typename pass<computation>::compute;
  using losses_view = vector_view<typename Model::accumulate, memory>;
  using matrix = matrix_view<compute, memory>;
  using stream = typename device::stream;

  static_assert(
      requires(const Model& m, pass<computation>& p, stash<device>& layer_inputs, matrix d) { m.backward_blocks(p, layer_inputs, block_range{}, d, true); },
      "xtrain pipeline: the model must run forward and backward block by block (forward_blocks, backward_blocks), as the library's models do; see "
      "models/README.md");

  /// Micro-batches have micro_batch_sizes(batch, accumulate) sequences of up to `context` tokens. `sizes`: memory of one micro-batch, ignored in a dry run.
  ///   throws  config_error when the schedule cannot be made for these numbers, memory_error
  pipeline_runner(Model& model, std::size_t batch, std::size_t accumulate, std::size_t context, const pass_sizes& sizes)
      : model_(&model), proved_(proved(model.parallel(), model.parallel().micro_batch_sizes(batch, accumulate))), micro_batches_(accumulate),
        ended_(schedule().chunks), num_tokens_(context * *std::max_element(schedule().rows.begin(), schedule().rows.end())),
        in_flight_of_(schedule().chunks * accumulate), deferred_of_(in_flight_of_.size()), receive_buffer_of_(in_flight_of_.size()) {
    const pipeline_memory most = memory_of(list());
    for (std::size_t i = 0; i < most.saved; ++i) in_flight_.emplace_back(model, sizes, num_tokens_);
    for (std::size_t i = 0; i < most.deferred; ++i) deferred_.emplace_back(model, sizes);
    const bool receives = model.parallel().depth() > 1 && !(model.parallel().chunks() == 1 && model.parallel().is_first(0));
    const std::size_t sharing = context_shard_of(model.parallel()).ranks * sequence_parallel_ranks(model.parallel());
    const std::size_t bytes = num_tokens_ / sharing * model.config().hidden_size * sizeof(compute);
    for (std::size_t i = 0; receives && i < most.received; ++i) receive_buffers_.emplace_back(model, bytes);
  }

  /// Allows steps with fewer micro-batches of the same size (ramp-up of the batch size): a schedule is made per number when needed.
  ///   smallest, next   the first two of these numbers
  ///   throws  config_error when micro-batches differ in size, or no schedule can be made
  void allow_fewer(std::size_t smallest, std::size_t next) {
    const std::vector<std::size_t>& sizes = schedule().rows;
    require<config_error>(std::all_of(sizes.begin(), sizes.end(), [&](std::size_t size) { return size == sizes.front(); }),
                          "pipeline: steps with fewer micro-batches must have micro-batches of one size; micro_batch_sizes are given");
    for (const std::size_t count : {smallest, next}) (void)proved(model_->parallel(), std::vector<std::size_t>(count, sizes.front()));
    fewest_ = smallest;
  }
  /// throws  config_error when the number of micro-batches does not fit the schedule, shape_error when they are too large
  void require_batches(std::span<const batch_view> batches) const {
    require<config_error>(batches.size() == micro_batches_ || (fewest_ > 0 && batches.size() >= fewest_ && batches.size() < micro_batches_),
                          "pipeline: a step must have the ", micro_batches_, " micro-batches (gradient_accumulation_steps) that its schedule was made for",
                          fewest_ > 0 ? concat(", or at least the ", fewest_, " that rampup_batch_size begins with") : std::string(), "; given ",
                          batches.size());
    for (const batch_view& batch : batches)
      require<shape_error>(batch.b * batch.t <= num_tokens_, "batch: must have at most ", num_tokens_, " tokens; given ", batch.b, " sequences of ", batch.t);
  }
  /// Nothing is deferred or in flight afterwards.
  void forget() {
    for (in_flight& f : in_flight_) end_micro_batch(f);
  }

  /// Of the latest step.
  [[nodiscard]] const pipeline_schedule& schedule() const { return *proved_; }
  [[nodiscard]] std::size_t chunks() const { return schedule().chunks; }
  [[nodiscard]] std::size_t num_tokens() const { return num_tokens_; }

  [[nodiscard]] pass_sizes high_water() const {
    pass_sizes most;
    for (const in_flight& f : in_flight_) {
      most.layer_inputs = std::max(most.layer_inputs, f.layer_inputs.high_water());
      most.saved = std::max(most.saved, f.saved.high_water());
      most.layer_input_entries = std::max(most.layer_input_entries, f.layer_inputs.reserved());
      most.saved_entries = std::max(most.saved_entries, f.saved.reserved());
    }
    for (const deferred& one : deferred_) {
      most.deferred = std::max(most.deferred, one.products.high_water());
      most.deferred_entries = std::max(most.deferred_entries, one.products.reserved());
    }
    return most;
  }
  [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const { return in_flight_.size() * each.stash() + deferred_.size() * each.deferred; }

  /// Runs a step's micro-batches (checked by require_batches) forward and backward; adds to the gradients and finishes them. Only the last stage has losses.
  ///   staging         for batches
  ///   prepare(pass, micro-batch)   sets the pass's per-step values
  ///   losses(n)       memory for n losses
  ///   sum(n)          queues their sum
  template <class Prepare, class Losses, class Sum>
  void run(const execution<device>& on, std::span<const batch_view> batches, batch_staging<device>& staging, Prepare&& prepare, Losses&& losses,
           Sum&& sum) {
    if (batches.size() != schedule().micro_batches()) {
      proved_ = proved(strategy(), std::vector<std::size_t>(batches.size(), schedule().rows.front()));
      const std::size_t all = schedule().chunks * batches.size();
      in_flight_of_.resize(all), deferred_of_.resize(all), receive_buffer_of_.resize(all);
    }
    std::fill(ended_.begin(), ended_.end(), std::size_t{0});
    for (const pipeline_action& action : list()) {
      const batch_view& batch = batches[action.micro_batch];
      switch (action.kind) {
        case action_kind::receive_forward:
          await_input(on.stream, action, sequence_parallel_tokens(batch));
          if (balances()) receive_buffer_of(action).load.receive(on.stream, strategy().between(), action.peer, 2 * experts_before(action));
          break;
        case action_kind::forward: {
          in_flight& f = begin_micro_batch(on, action, batch, pass_mode::training, &staging);
          prepare(*f.going, action.micro_batch);
          begin_load(on.stream, action, f);
          const std::size_t n = f.going->batch.n();  // tokens with losses on this rank
          const bool last = strategy().is_last(action.chunk);
          f.y = model_->forward_blocks(*f.going, f.layer_inputs, blocks_of(action), input_of(on.stream, action, f),
                                       last ? losses(n) : losses_view{});
          if (last) sum(n);
          break;
        }
        case action_kind::send_forward: {
          in_flight& f = in_flight_of(action);
          f.message.send(on.stream, strategy().between(), action.peer, f.y.span());
          if (!balances()) break;
          f.load.take_counts(on.stream, f.going->internal.load, blocks_of(action).last - 1);
          f.load.send(on.stream, strategy().between(), action.peer);
          break;
        }
        case action_kind::receive_backward: {
          in_flight& f = in_flight_of(action);
          f.message.wait(on.stream);  // the gradient overwrites what was sent
          f.load.wait(on.stream);
          f.message.receive(on.stream, strategy().between(), action.peer, f.y.span());
          if (balances()) f.load.receive(on.stream, strategy().between(), action.peer, model_->balanced_experts());
          break;
        }
        case action_kind::backward:
        case action_kind::backward_input:
          go_back(on, action);
          break;
        case action_kind::backward_weight:
          if constexpr (splits_backwards<computation>) make_deferred(on, action);
          break;
        case action_kind::send_backward: {
          receive_buffer& a = receive_buffer_of(action);
          a.message.send(on.stream, strategy().between(), action.peer, a.x.span());
          if (balances()) a.load.send(on.stream, strategy().between(), action.peer);
          a.is_free = true;  // once the message has been sent
          break;
        }
        default:
          break;  // reduced block by block, in the chunk's last backward
      }
    }
    for (receive_buffer& a : receive_buffers_) {
      a.message.wait(on.stream);
      a.load.wait(on.stream);
    }
    strategy().finish_gradients(on.stream, model_->parameters());
  }

  /// Runs one batch forward through all stages; arguments as in run, but prepare(pass).
  template <class Prepare, class Losses, class Sum>
  void evaluate(const execution<device>& on, const batch_view& batch, Prepare&& prepare, Losses&& losses, Sum&& sum,
                batch_staging<device>* staging = nullptr) {
    const std::size_t ranks = strategy().depth(), own = strategy().position();
    for (std::size_t chunk = 0; chunk < schedule().chunks; ++chunk) {
      const bool first = strategy().is_first(chunk), last = strategy().is_last(chunk);
      const pipeline_action action{.micro_batch = 0, .chunk = chunk, .peer = (own + ranks - 1) % ranks};
      if (!first) await_input(on.stream, action, sequence_parallel_tokens(batch));
      in_flight& f = begin_micro_batch(on, action, batch, pass_mode::evaluation, staging);
      prepare(*f.going);
      const std::size_t n = f.going->batch.n();
      f.y = model_->forward_blocks(*f.going, f.layer_inputs, blocks_of(action), input_of(on.stream, action, f), last ? losses(n) : losses_view{});
      if (last) {
        sum(n);
      } else {
        f.message.send(on.stream, strategy().between(), (own + 1) % ranks, f.y.span());
        f.message.wait(on.stream);
      }
      end_micro_batch(f);
      if (!first) receive_buffer_of(action).is_free = true;
    }
  }

 private:
  /// A micro-batch between its forward and its backward.
  struct in_flight {
    in_flight(Model& of, const pass_sizes& sizes, std::size_t num_tokens)
        : layer_inputs(of.context(), sizes.layer_inputs), saved(of.context(), sizes.saved),
          rows(of.context(), num_tokens, attention_mask_of(of), context_shard_of(of.parallel())) {
      layer_inputs.reserve(sizes.layer_input_entries);
      saved.reserve(sizes.saved_entries);
    }
    stash<device> layer_inputs, saved;
    batch_memory<device> rows;
    std::optional<pass<computation>> going;
    matrix y{};  // the stage's output, then its gradient
    bool is_free = true;
    stage_message<device, compute> message;
    load_message<device, compute> load;
  };
  /// A micro-batch between B and W of its backward.
  struct deferred {
    deferred(Model& of, const pass_sizes& sizes) : products(of.context(), sizes.deferred, sizes.deferred_entries) {}
    deferred_gradients<device, compute, typename pass<computation>::gradient_type> products;
    bool is_free = true;
  };
  /// Receive buffer for input from the previous stage; its gradient is sent from the same memory.
  struct receive_buffer {
    receive_buffer(Model& of, std::size_t bytes) : values(of.context(), bytes, memory_role::stash) {}
    buffer<device> values;
    matrix x{};
    bool is_free = true;
    stage_message<device, compute> message;
    load_message<device, compute> load;
  };

  template <class State>
  static std::shared_ptr<const pipeline_schedule> proved(const State& strategy, std::vector<std::size_t> rows) {
    if (!strategy.cache()) return std::make_shared<const pipeline_schedule>(made_and_proved(strategy, std::move(rows)));
    using kind = std::pair<Schedule, std::bool_constant<splits_backwards<computation>>>;
    return strategy.cache()->template get<kind>(strategy.depth(), strategy.chunks(), rows, [&] { return made_and_proved(strategy, rows); });
  }
  template <class State>
  static pipeline_schedule made_and_proved(const State& strategy, std::vector<std::size_t> rows) {
    // a single rank needs no pipeline schedule
    const std::size_t ranks = strategy.depth(), chunks = strategy.chunks(), count = rows.size();
    pipeline_schedule schedule =
        ranks == 1 ? one_forward_one_backward_schedule(1, std::move(rows)) : Schedule::make(ranks, chunks, std::move(rows));
    require<config_error>(schedule.ranks() == ranks && schedule.chunks == chunks && schedule.micro_batches() == count, schedule.name,
                          ": must be made for ", ranks, " ranks, ", chunks, " chunks and ", count, " micro-batches; it is for ",
                          schedule.ranks(), ", ", schedule.chunks, " and ", schedule.micro_batches());
    schedule = with_rendezvous(std::move(schedule));
    require<config_error>(check_schedule(schedule).rendezvous_safe, schedule.name,
                          ": ranks must not deadlock when sends wait for their receives");
    for (auto& list : schedule.actions) {
      list = with_whole_backwards(list);
      for (const pipeline_action& action : list)
        if (!splits_backwards<computation> && action.kind == action_kind::backward_input)
          fail<config_error>(schedule.name, ": backwards in two parts must be those of a schedule that says splits_backwards = true; given ",
                             action_text(action));
    }
    return schedule;
  }

  [[nodiscard]] auto& strategy() { return model_->parallel(); }
  [[nodiscard]] const std::vector<pipeline_action>& list() const { return schedule().actions[model_->parallel().position()]; }
  [[nodiscard]] const block_range& blocks_of(const pipeline_action& action) { return strategy().blocks_of(action.chunk); }
  [[nodiscard]] std::size_t at(const pipeline_action& action) const { return action.chunk * schedule().micro_batches() + action.micro_batch; }
  [[nodiscard]] in_flight& in_flight_of(const pipeline_action& action) { return *in_flight_of_[at(action)]; }
  [[nodiscard]] receive_buffer& receive_buffer_of(const pipeline_action& action) { return *receive_buffer_of_[at(action)]; }

  /// Tokens of a batch that this rank sends between stages: its context- and sequence-parallel shard.
  [[nodiscard]] std::size_t sequence_parallel_tokens(const batch_view& batch) {
    return batch.b * context_shard_of(strategy()).count_of(batch.t) / sequence_parallel_ranks(strategy());
  }

  void await_input(stream& on, const pipeline_action& action, std::size_t n) {
    const auto free = std::find_if(receive_buffers_.begin(), receive_buffers_.end(), [](const receive_buffer& a) { return a.is_free; });
    require<shape_error>(free != receive_buffers_.end(), schedule().name,
                         ": a list must not have more messages in flight than was counted; ", receive_buffers_.size());
    free->is_free = false;
    free->message.wait(on);  // until its gradient has been sent
    free->load.wait(on);
    const std::size_t c = model_->config().hidden_size;
    free->x = {free->values.template as<compute>().subspan(0, n * c), {n, c}};
    free->message.receive(on, strategy().between(), action.peer, free->x.span());
    receive_buffer_of_[at(action)] = &*free;
  }
  /// Balanced experts may be in several stages: loads of earlier layers come from earlier stages.
  [[nodiscard]] bool balances() const { return model_->balances_load(); }
  [[nodiscard]] std::size_t experts_before(const pipeline_action& action) { return (blocks_of(action).first - 1) * model_->balanced_experts(); }
  void begin_load(stream& on, const pipeline_action& action, in_flight& f) {
    if (!balances()) return;
    model_->begin_load(*f.going);
    if (strategy().is_first(action.chunk)) return;
    receive_buffer& a = receive_buffer_of(action);
    a.load.wait(on);
    a.load.give_counts(on, f.going->internal.load);
  }

  /// Received input, or memory for the embedding's output.
  [[nodiscard]] matrix input_of(stream& on, const pipeline_action& action, in_flight& f) {
    const std::size_t n = f.going->sequence_parallel_tokens(), c = model_->config().hidden_size;
    if (strategy().is_first(action.chunk)) return {f.layer_inputs.template push<compute>(n * c), {n, c}};
    receive_buffer& a = receive_buffer_of(action);
    a.message.wait(on);
    return a.x;
  }

  [[nodiscard]] in_flight& begin_micro_batch(const execution<device>& on, const pipeline_action& action, const batch_view& batch, pass_mode mode,
                                            batch_staging<device>* staging = nullptr) {
    const auto free = std::find_if(in_flight_.begin(), in_flight_.end(), [](const in_flight& f) { return f.is_free; });
    require<shape_error>(free != in_flight_.end(), schedule().name, ": a list must not save more activations than was counted; ", in_flight_.size());
    free->is_free = false;
    free->going.emplace(on, model_->parameters(), free->saved, layer_parallel_of(*model_));
    free->going->mode = mode;
    free->going->internal.number = static_cast<std::size_t>(free - in_flight_.begin());
    free->going->batch = free->rows.upload(on.stream, batch, staging);
    begin_sequence_parallel(*free->going);
    in_flight_of_[at(action)] = &*free;
    return *free;
  }
  static void end_micro_batch(in_flight& f) {
    f.going.reset();
    f.saved.drop(0);
    f.layer_inputs.drop(0);
    f.is_free = true;
  }

  void go_back(const execution<device>& on, const pipeline_action& action) {
    in_flight& f = in_flight_of(action);
    pass<computation>& p = *f.going;
    {
      const auto scope = p.scope();
      const bool first = strategy().is_first(action.chunk), last = strategy().is_last(action.chunk);
      const matrix d = last ? p.temporary(f.y.shape(0), f.y.shape(1)) : f.y;
      if (!last) f.message.wait(on.stream);
      if (!last && balances()) {
        f.load.wait(on.stream);
        f.load.give_gradient(on.stream, p.internal.load);
      }
      bool last_of_step = false;
      if (action.kind == action_kind::backward_input) p.internal.deferred = &begin_deferring(action).products;
      else last_of_step = ends_step(action);
      model_->backward_blocks(p, f.layer_inputs, blocks_of(action), d, last_of_step);
      if (!first) copy_within(on.stream, receive_buffer_of(action).x.span(), device_span<const compute, memory>(d.span()));
      if (!first && balances()) receive_buffer_of(action).load.take_gradient(on.stream, p.internal.load);
    }
    end_micro_batch(f);
  }
  [[nodiscard]] bool ends_step(const pipeline_action& action) { return ++ended_[action.chunk] == schedule().micro_batches(); }

  [[nodiscard]] deferred& begin_deferring(const pipeline_action& action) {
    const auto free = std::find_if(deferred_.begin(), deferred_.end(), [](const deferred& one) { return one.is_free; });
    require<shape_error>(free != deferred_.end(), schedule().name, ": a list must not defer more weight gradients than was counted; ", deferred_.size());
    free->is_free = false;
    deferred_of_[at(action)] = &*free;
    return *free;
  }
  /// W: completes a block's gradients of this micro-batch.
  void make_deferred(execution<device> on, const pipeline_action& action) {
    deferred& mine = *deferred_of_[at(action)];
    const bool last_of_step = ends_step(action);
    const block_range& blocks = blocks_of(action);
    for (std::size_t block = blocks.last; block-- > blocks.first;) {
      if (model_->makes_gradients_at_once(block)) continue;
      strategy().block_begins(on.stream, model_->parameters(), block, block_visit::backward_weight);
      mine.products.make(on, block);
      strategy().block_ends(on.stream, model_->parameters(), block, block_visit::backward_weight);
      strategy().gradients_ready(on.stream, model_->parameters(), block, last_of_step);
    }
    mine.products.clear();
    mine.is_free = true;
  }

  Model* model_;
  std::shared_ptr<const pipeline_schedule> proved_;
  std::size_t micro_batches_, fewest_ = 0;  // of a step; minimum, if allow_fewer; else 0
  std::vector<std::size_t> ended_;  // finished backwards, by chunk
  std::size_t num_tokens_;
  std::vector<in_flight*> in_flight_of_;            // by chunk and micro-batch
  std::vector<deferred*> deferred_of_;              // by chunk and micro-batch
  std::vector<receive_buffer*> receive_buffer_of_;  // by chunk and micro-batch
  std::deque<in_flight> in_flight_;
  std::deque<deferred> deferred_;
  std::deque<receive_buffer> receive_buffers_;
};

}  // namespace xtrain
