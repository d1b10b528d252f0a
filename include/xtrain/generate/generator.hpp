// Text generation: chunked prefill, then one token per sequence and step with a KV cache. Finished sequences free slots for further prompts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/generate/beam_search.hpp>
#include <xtrain/generate/decoding_memory.hpp>
#include <xtrain/generate/sampling.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/models/pass_memory.hpp>

namespace xtrain {

/// Settings of a generation.
struct generate_config {
  std::size_t max_new_tokens = 128;
  sampling_config sampling = {};
  std::vector<token> stop = {};  ///< each ends a sequence; not in the result
  /// Called with (sequence, token) per new token; false ends the sequence. Sequence i answers prompt i / num_return_sequences.
  std::function<bool(std::size_t, token)> on_token = {};
  std::size_t min_new_tokens = 0;         ///< minimum tokens before a stop token counts
  std::size_t num_return_sequences = 1;   ///< sequences per prompt, sampled or the best of a beam search
  bool log_probs = false;                 ///< log p of chosen tokens; see generated_sequence
  logits_processor processor = {};        ///< changes logits before temperature and top-k; equal on all ranks
  beam_search_config beams = {};          ///< num_beams > 1: beam search
  std::size_t tokens_per_wait = 0;        ///< tokens per sequence that a device decodes between waits of the host; 0: see README.md
  std::size_t first_sequence = 0;         ///< sequence i is sampled as first_sequence + i: calls that share work equal one call
};

/// Generated for a prompt.
struct generated_sequence {
  std::vector<token> tokens{};  ///< new tokens, without the stop token
  token stop = -1;              ///< negative: no stop token
  /// With generate_config::log_probs: log p of each token, then of the stop token, at temperature 1 without penalties.
  std::vector<double> log_probs{};
  double score = 0;  ///< of a beam search
};

/// Token counts and timings of a generation.
struct generate_statistics {
  std::size_t prompt_tokens = 0;  ///< computed; a prompt shared by sequences of a batch counts once
  std::size_t new_tokens = 0;     ///< first tokens come from the prefill; without stop tokens
  std::size_t decode_steps = 0;   ///< tokens decoded after the prompt
  double prompt_seconds = 0;
  double decode_seconds = 0;
  double decode_bytes = 0;  ///< weights and KV cache read for new tokens

  [[nodiscard]] double tokens_per_second() const { return decode_seconds > 0 ? static_cast<double>(decode_steps) / decode_seconds : 0; }
  [[nodiscard]] double bandwidth() const { return decode_seconds > 0 ? decode_bytes / decode_seconds : 0; }
};

/// Generates for any number of prompts, `rows` at a time; a finished sequence's slot goes to the next prompt. Memory is allocated in the constructor.
/// Tensor- and pipeline-parallel ranks all call it with equal prompts and settings and get equal tokens.
template <class Model>
class generator {
 public:
  using decoding = detail::decoding_memory<Model>;

  /// `longest`: tokens of prompt and result; 0: the model's maximum.
  ///   model   must outlive the generator and not be moved: calls then throw config_error
  ///   throws  config_error, memory_error
  explicit generator(Model& model, std::size_t rows = 1, std::size_t longest = 0);
  /// KV cache on this rank: most of a generator's memory.
  [[nodiscard]] static std::size_t cache_bytes(const Model& model, std::size_t rows = 1, std::size_t longest = 0);

  /// Its memory, without the model.
  [[nodiscard]] const planned_memory& plan() const { return planned_; }

  /// New tokens per sequence, without stop tokens.
  ///   throws  data_error when a prompt is empty, too long, or has an unknown token; config_error for invalid settings
  [[nodiscard]] std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts,
                                                         const generate_config& settings = {});
  [[nodiscard]] std::vector<token> generate(const std::vector<token>& prompt, const generate_config& settings = {});
  /// With stop tokens, log-probabilities and scores: num_return_sequences for the first prompt, then for the second, ...
  [[nodiscard]] std::vector<generated_sequence> generate_sequences(std::span<const std::vector<token>> prompts, const generate_config& settings = {});

  /// Of the last call.
  [[nodiscard]] const generate_statistics& statistics() const { return statistics_; }

 private:
  using clock = std::chrono::steady_clock;
  using accumulate = typename Model::accumulate;
  static constexpr std::size_t tokens_at_once = 256;  // prefill chunk per prompt
  // More is useless on a device that computes before it returns.
  static constexpr std::size_t steps_at_once = detail::reads_host_batches<typename Model::device> ? 1 : 8;
  // Kernels may sum in another order with few rows. A sequence's bits must not depend on its neighbours: a prompt's chunk has at least so many tokens,
  // a step of a larger generator at least so many rows.
  static constexpr std::size_t least_tokens_at_once = 16, few_rows = 8;

  struct sequence {
    std::vector<token> text{};  // prompt and new tokens
    generated_sequence result{};
    bool done = false;
    attention_mask::context_end context{};  // for prefix models
    [[nodiscard]] std::size_t fresh() const { return result.tokens.size(); }
  };
  struct state {
    const generate_config& settings;
    sampler choose;
    std::vector<sequence> sequences{};
    std::size_t next = 0;               // first sequence not begun
    std::vector<std::size_t> active{};  // sequence per slot
    struct known_text {
      std::size_t sequence = 0, size = 0;
    };
    std::vector<known_text> on_device{};  // per slot, if the device chooses with a repetition penalty
  };
  /// A prompt that several sequences begin with, computed once in the first one's slot.
  struct shared_prompt {
    std::size_t size = 0;
    std::vector<std::size_t> others{};  // slots
  };

  static std::size_t checked_length(const Model& model, std::size_t rows, std::size_t longest);
  /// KV-cache positions per sequence.
  [[nodiscard]] std::size_t num_tokens() const { return model_->tokens_before() + longest_ + piece_; }
  template <class M>
  static pass_sizes measure(const M& model, std::size_t rows, std::size_t capacity, std::size_t piece, planned_memory& planned) {
    const pass_sizes sizes = measure_pass(model, [&](auto& like, auto& passes) {
      using like_type = std::remove_cvref_t<decltype(like)>;
      const memory_count before = like.context().memory();
      detail::decoding_memory<like_type> memory(like, rows, capacity, piece);
      for (std::size_t r = 0; r < memory_roles; ++r) planned.bytes[r] = like.context().memory().now[r] - before.now[r];
      for (const std::size_t t : {piece, std::size_t{1}}) {
        typename detail::decoding_memory<like_type>::decode_batch full{.b = rows, .t = t};
        full.tokens.assign(rows * t, 0);
        full.positions.assign(rows * t, 0);
        full.lengths.assign(rows, 0);
        full.chosen.assign(rows, 0);
        full.cache_is_empty = t == piece;
        if (attention_mask_of(like).kind != attention_mask::rule::causal) {
          full.withins.assign(rows * t, 0);
          full.ends.assign(rows * (t + (full.cache_is_empty ? attention_mask_of(like).virtual_tokens : 0)), 1);
        }
        (void)memory.run(like, passes, full);
      }
      // with all settings that need scratch memory
      if (attention_mask_of(like).kind == attention_mask::rule::causal)
        memory.queue_step(like, passes, rows, rows, {.temperature = 1.0, .repetition_penalty = 2.0});
    });
    planned.add(memory_role::stash, sizes.layer_inputs + sizes.saved);
    planned.add(memory_role::workspace, sizes.workspace);
    return sizes;
  }

  void check(std::span<const std::vector<token>> prompts, const generate_config& settings) const;
  void check(const generate_config& settings) const;

  void sample_all(state& s);
  void search(state& s, std::size_t first);

  /// Prefills sequences in adjacent slots, `piece_` tokens at a time, padded at the end. take(slot, logits) gets the prediction of the last token.
  template <class Take>
  void read_prompts(state& s, std::size_t first, std::size_t count, Take&& take);
  /// Gives free slots to the next prompts.
  void admit(state& s);
  /// Moves sequences to the first slots.
  void close_gaps(state& s);
  /// Adds a token to every active sequence.
  void decode_one(state& s);
  /// Adds tokens that the device chooses.
  void decode_chunk(state& s);
  [[nodiscard]] bool device_chooses(const generate_config& settings) const;
  /// `cached` tokens of all sequences of a step.
  void count_step(std::size_t sequences, std::size_t cached);
  std::span<const accumulate> decode(state& s);

  void make_batch(std::size_t first_slot, std::size_t b, std::size_t t);
  void put_row(const sequence& of, std::size_t r, std::size_t length);
  /// Enough rows to make sums independent of other sequences.
  [[nodiscard]] std::size_t padded(std::size_t rows) const { return rows_ <= few_rows ? rows : std::max(rows, few_rows + 1); }

  /// Samples the sequence's next token; ends the sequence if it is the last.
  void take(state& s, std::size_t i, std::span<const accumulate> logits);
  void take_token(state& s, std::size_t i, token next);

  /// Weights read per step: all but the embedding table, unless tied.
  [[nodiscard]] double bytes_per_step() const;

  Model* model_;
  detail::watched model_life_;
  std::size_t rows_, longest_;
  planned_memory planned_{};
  attention_mask mask_;
  std::size_t piece_;  // a bidirectional prefix needs one pass: its first token attends to its last
  pass_memory<Model> passes_;
  decoding decoding_;
  typename decoding::decode_batch to_run_;
  generate_statistics statistics_;
  bool generates_ = false;
  detail::stream_drain<typename Model::device::stream> drain_;  // last: queued work ends before its memory is freed
};

template <class Model>
generator<Model>::generator(Model& model, std::size_t rows, std::size_t longest) try
    : model_(&model), model_life_(model), rows_(rows), longest_(checked_length(model, rows, longest)), mask_(attention_mask_of(model)),
      piece_(mask_.kind == attention_mask::rule::causal ? std::min(longest_, tokens_at_once) : longest_),
      passes_(model, measure(model, rows_, num_tokens(), piece_, planned_)), decoding_(model, rows_, num_tokens(), piece_),
      drain_(model.stream(), model_life_) {
} catch (const memory_error& problem) {
  fail<memory_error>("generator: the memory for ", rows, " sequences of ", checked_length(model, rows, longest), " tokens, of which the KV cache is ",
                     bytes_text(cache_bytes(model, rows, longest)), ", must fit beside the model; ", problem.what());
}

template <class Model>
std::size_t generator<Model>::cache_bytes(const Model& model, std::size_t rows, std::size_t longest) {
  const std::size_t length = checked_length(model, rows, longest);
  const std::size_t piece = attention_mask_of(model).kind == attention_mask::rule::causal ? std::min(length, tokens_at_once) : length;
  const auto shape = model.cache_shape(detail::own_layers_of(model).count, rows, model.tokens_before() + length + piece);
  std::size_t elements = 2;
  for (const std::size_t size : shape) elements *= size;
  return elements * sizeof(typename Model::compute);
}

template <class Model>
auto generator<Model>::generate(std::span<const std::vector<token>> prompts,
                                                       const generate_config& settings) -> std::vector<std::vector<token>> {
  std::vector<std::vector<token>> fresh;
  for (generated_sequence& one : generate_sequences(prompts, settings)) fresh.push_back(std::move(one.tokens));
  return fresh;
}

template <class Model>
auto generator<Model>::generate(const std::vector<token>& prompt, const generate_config& settings) -> std::vector<token> {
  return generate(std::span<const std::vector<token>>(&prompt, 1), settings).front();
}

template <class Model>
auto generator<Model>::generate_sequences(std::span<const std::vector<token>> prompts, const generate_config& settings)
    -> std::vector<generated_sequence> {
  model_life_.require_model("generator");
  const auto use = detail::use_of(*model_, "generator");
  const detail::running_call call(generates_, "generator", "on_token or processor; make a second generator");
  check(settings);
  check(prompts, settings);
  statistics_ = {};
  state s{.settings = settings,
          .choose = sampler(settings.sampling, {.min_new_tokens = settings.min_new_tokens, .stop = settings.stop, .processor = settings.processor})};
  s.choose.require_vocabulary(model_->config().vocab_size);
  s.on_device.resize(rows_);
  decoding_.forget_captured_steps();
  for (const std::vector<token>& prompt : prompts)
    for (std::size_t i = 0; i < settings.num_return_sequences; ++i) {
      sequence one;
      one.text = prompt;
      one.done = settings.max_new_tokens == 0;
      if (mask_.kind == attention_mask::rule::prefix) one.context = mask_.context_of(prompt);
      s.sequences.push_back(std::move(one));
    }
  if (settings.max_new_tokens > 0) {
    if (settings.beams.num_beams == 1) sample_all(s);
    else
      for (std::size_t i = 0; i < s.sequences.size(); i += settings.num_return_sequences) search(s, i);
  }
  std::vector<generated_sequence> results;
  for (sequence& one : s.sequences) results.push_back(std::move(one.result));
  return results;
}

template <class Model>
auto generator<Model>::checked_length(const Model& model, std::size_t rows, std::size_t longest) -> std::size_t {
  require<config_error>(rows > 0, "generator: batch_size must be positive");
  const std::size_t context = model.config().max_position_embeddings;
  require<config_error>(longest <= context, "generator: sequences must not be longer than the model's max_position_embeddings of ", context,
                        " tokens; given ", longest);
  const context_shard sequences = context_shard_of(model.parallel());
  require<config_error>(!sequences.is_sharded(), "generator: every rank must have whole sequences; given are ", sequences.ranks,
                        " context-parallel ranks. Tensor parallelism and pipelines are supported");
  if constexpr (has_expert_parallel<typename Model::recipe>)
    require<config_error>(!model.parallel().expert_shard().is_sharded(), "generator: every rank must have all experts of its layers; given are ",
                          model.parallel().expert_shard().ranks, " expert-parallel ranks");
  return longest == 0 ? context : longest;
}

template <class Model>
void generator<Model>::check(std::span<const std::vector<token>> prompts, const generate_config& settings) const {
  require<data_error>(!prompts.empty(), "generate: there must be a prompt; given are none");
  for (std::size_t r = 0; r < prompts.size(); ++r) {
    require<data_error>(!prompts[r].empty(), "generate: a prompt must have at least one token; prompt ", r + 1, " has none");
    require<data_error>(prompts[r].size() < longest_ || (prompts[r].size() == longest_ && settings.max_new_tokens == 0),
                        "generate: a prompt must leave room for a new token in sequences of ", longest_, "; prompt ", r + 1, " has ", prompts[r].size());
    for (const token t : prompts[r])
      require<data_error>(t >= 0 && static_cast<std::size_t>(t) < model_->config().vocab_size,
                          "generate: tokens must be in the model's vocabulary of ", model_->config().vocab_size, "; prompt ", r + 1,
                          " has ", t, ". Does the tokenizer belong to this model?");
  }
}

template <class Model>
void generator<Model>::check(const generate_config& settings) const {
  const std::size_t beams = settings.beams.num_beams, each = settings.num_return_sequences;
  require<config_error>(settings.tokens_per_wait <= decoding::most_steps, "generate: tokens_per_wait must be at most ", decoding::most_steps, "; given ",
                        settings.tokens_per_wait);
  require<config_error>(beams > 0 && each > 0, "generate: num_beams and num_return_sequences must be positive; given ", beams, " and ", each);
  if (beams == 1) {
    require<config_error>(each == 1 || settings.sampling.temperature > 0.0, "generate: num_return_sequences must be 1 if temperature is 0, where all ",
                          each, " would be equal; or num_beams more than 1");
    return;
  }
  require<config_error>(settings.sampling.temperature == 0.0, "generate: temperature must be 0 with num_beams ", beams,
                        ": beam search does not sample; given ", settings.sampling.temperature);
  require<config_error>(beams <= rows_, "generate: num_beams must not be more than the ", rows_, " sequences that the generator has memory for; given ",
                        beams);
  const std::size_t vocabulary = model_->config().vocab_size;  // first tokens of the texts must differ
  require<config_error>(beams <= vocabulary, "generate: num_beams must not be more than the ", vocabulary, " tokens of the vocabulary; given ", beams);
  require<config_error>(each <= beams, "generate: num_return_sequences must not be more than num_beams (", beams, "); given ", each);
  require<config_error>(!settings.on_token, "generate: on_token must not be given with num_beams ", beams,
                        ": tokens of a beam search are known at its end");
  require<config_error>(std::isfinite(settings.beams.length_penalty), "generate: length_penalty must be a number; given ", settings.beams.length_penalty);
}

template <class Model>
void generator<Model>::sample_all(state& s) {
  while (true) {
    admit(s);
    close_gaps(s);
    if (s.active.empty()) return;
    if (device_chooses(s.settings)) decode_chunk(s);
    else decode_one(s);
  }
}

template <class Model>
void generator<Model>::admit(state& s) {
  const auto is_free = [&](std::size_t slot) { return slot >= s.active.size() || s.sequences[s.active[slot]].done; };
  for (bool some = true; some && s.next < s.sequences.size();) {  // the first token may end a sequence
    some = false;
    for (std::size_t slot = 0; slot < rows_ && s.next < s.sequences.size(); ++slot) {
      if (!is_free(slot)) continue;
      std::size_t count = 1;
      while (slot + count < rows_ && is_free(slot + count) && s.next + count < s.sequences.size()) ++count;
      // longest first, equal prompts adjacent: slots with nothing left to read come last
      std::vector<std::size_t> begun(count);
      std::iota(begun.begin(), begun.end(), s.next);
      s.next += count;
      std::stable_sort(begun.begin(), begun.end(), [&](std::size_t a, std::size_t b) {
        const std::vector<token>&x = s.sequences[a].text, &y = s.sequences[b].text;
        return x.size() != y.size() ? x.size() > y.size() : x < y;
      });
      s.active.resize(std::max(s.active.size(), slot + count));
      std::copy(begun.begin(), begun.end(), s.active.begin() + static_cast<std::ptrdiff_t>(slot));
      read_prompts(s, slot, count, [&](std::size_t i, std::span<const accumulate> logits) { take(s, i, logits); });
      some = true;
      slot += count - 1;
    }
  }
}

template <class Model>
void generator<Model>::close_gaps(state& s) {
  for (std::size_t slot = s.active.size(); slot-- > 0;) {
    if (!s.sequences[s.active[slot]].done) continue;
    const std::size_t last = s.active.size() - 1;
    // the last token is not cached
    if (slot != last) decoding_.copy_slot(*model_, last, slot, model_->tokens_before() + s.sequences[s.active[last]].text.size() - 1);
    s.active[slot] = s.active[last];
    s.active.pop_back();
  }
}

template <class Model>
template <class Take>
void generator<Model>::read_prompts(state& s, std::size_t first, std::size_t count, Take&& take) {
  const auto begin = clock::now();
  // equal prompts are adjacent; different ones move to the first slots
  std::vector<shared_prompt> prompts;
  std::vector<std::size_t> repeated;
  {
    std::vector<std::size_t> of_slot(s.active.begin() + static_cast<std::ptrdiff_t>(first), s.active.begin() + static_cast<std::ptrdiff_t>(first + count));
    std::vector<std::pair<std::size_t, std::size_t>> later;  // sequence, prompt
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0 && s.sequences[of_slot[i]].text == s.sequences[of_slot[i - 1]].text) {
        later.emplace_back(of_slot[i], prompts.size() - 1);
      } else {
        s.active[first + prompts.size()] = of_slot[i];
        prompts.push_back({s.sequences[of_slot[i]].text.size(), {}});
      }
    }
    for (std::size_t i = 0; i < later.size(); ++i) {
      s.active[first + prompts.size() + i] = later[i].first;
      prompts[later[i].second].others.push_back(first + prompts.size() + i);
    }
  }
  const std::size_t longest = prompts.front().size;
  for (std::size_t done = 0; done < longest; done += piece_) {
    std::size_t b = 0;
    while (b < prompts.size() && prompts[b].size > done) ++b;
    const std::size_t t = std::min(piece_, std::max(longest - done, least_tokens_at_once));
    make_batch(first, b, t);
    to_run_.cache_is_empty = done == 0;
    for (std::size_t r = 0; r < b; ++r) {
      put_row(s.sequences[s.active[first + r]], r, done);
      const std::size_t size = prompts[r].size;
      if (size <= done + t) to_run_.chosen[r] = static_cast<token>(r * t + size - done - 1);
    }
    const auto logits = decoding_.run(*model_, passes_, to_run_);
    const std::size_t v = model_->config().vocab_size;
    for (std::size_t r = 0; r < b; ++r) {
      const std::size_t size = prompts[r].size;
      if (size > done + t) continue;
      statistics_.prompt_tokens += size;
      for (const std::size_t other : prompts[r].others) decoding_.copy_slot(*model_, first + r, other, model_->tokens_before() + size);
      take(s.active[first + r], logits.subspan(r * v, v));
      for (const std::size_t other : prompts[r].others) take(s.active[other], logits.subspan(r * v, v));
    }
  }
  statistics_.prompt_seconds += std::chrono::duration<double>(clock::now() - begin).count();
}

template <class Model>
auto generator<Model>::decode(state& s) -> std::span<const accumulate> {
  const std::size_t b = padded(s.active.size());
  make_batch(0, b, 1);
  std::size_t cached = 0;
  for (std::size_t r = 0; r < s.active.size(); ++r) {
    const sequence& one = s.sequences[s.active[r]];
    put_row(one, r, one.text.size() - 1);
    cached += model_->tokens_before() + one.text.size();
  }
  std::iota(to_run_.chosen.begin(), to_run_.chosen.end(), token{0});
  count_step(s.active.size(), cached);
  return decoding_.run(*model_, passes_, to_run_);
}

template <class Model>
void generator<Model>::count_step(std::size_t sequences, std::size_t cached) {
  statistics_.decode_steps += sequences;
  statistics_.decode_bytes += bytes_per_step() + static_cast<double>(2 * cached * decoding_.layers() * model_->kv_heads() * model_->config().head_dim *
                                                                     sizeof(typename Model::compute));
}

template <class Model>
bool generator<Model>::device_chooses(const generate_config& settings) const {
  const sampling_config& s = settings.sampling;
  return decoding::device_chooses && mask_.kind == attention_mask::rule::causal && !settings.processor && !settings.log_probs &&
         settings.min_new_tokens == 0 && s.frequency_penalty == 0.0 && s.presence_penalty == 0.0 && s.no_repeat_ngram_size == 0 && s.bad_words.empty() &&
         s.biases.empty();
}

template <class Model>
void generator<Model>::decode_chunk(state& s) {
  const auto begin = clock::now();
  const sampling_config& sampling = s.settings.sampling;
  const std::size_t n = s.active.size(), b = padded(n), most = s.settings.tokens_per_wait != 0 ? s.settings.tokens_per_wait : steps_at_once;
  std::size_t steps = 0;
  std::vector<std::size_t> room(n);
  for (std::size_t r = 0; r < b; ++r) {
    if (r >= n) {  // computed, unused
      decoding_.put_nothing(r);
      continue;
    }
    const sequence& one = s.sequences[s.active[r]];
    room[r] = std::min({most, s.settings.max_new_tokens - one.fresh(), longest_ - one.text.size()});
    steps = std::max(steps, room[r]);
    decoding_.put(decoding::next, r, static_cast<std::size_t>(one.text.back()));
    decoding_.put(decoding::position, r, one.text.size() - 1);
    decoding_.put(decoding::cached, r, model_->tokens_before() + one.text.size() - 1);
    decoding_.put(decoding::place, r, one.fresh());
    decoding_.put(decoding::number, r, s.settings.first_sequence + s.active[r]);
    decoding_.put(decoding::room, r, room[r]);
    if (sampling.repetition_penalty == 1.0) continue;
    typename state::known_text& known = s.on_device[r];
    if (known.sequence != s.active[r] || known.size != one.text.size()) decoding_.put_text(*model_, r, std::span<const token>(one.text));
    known = {s.active[r], one.text.size()};
  }
  decoding_.run_chunk(*model_, passes_, n, b, steps,
                      {.temperature = sampling.temperature,
                       .top_k = sampling.top_k,
                       .top_p = sampling.top_p,
                       .min_p = sampling.min_p,
                       .repetition_penalty = sampling.repetition_penalty,
                       .seed = sampling.seed});
  for (std::size_t r = 0; r < n; ++r) s.on_device[r].size += decoding_.taken(r).size();
  // tokens after a sequence's last are dropped
  for (std::size_t i = 0; i < steps; ++i) {
    std::size_t sequences = 0, cached = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const sequence& one = s.sequences[s.active[r]];
      const std::span<const token> taken = decoding_.taken(r);
      if (one.done || i >= room[r] || i > taken.size()) continue;
      ++sequences;
      cached += model_->tokens_before() + one.text.size();
      if (i < taken.size()) take_token(s, s.active[r], taken[i]);
      else take(s, s.active[r], decoding_.logits_of(*model_, r));  // the device left the choice to the host
    }
    if (sequences > 0) count_step(sequences, cached);
  }
  statistics_.decode_seconds += std::chrono::duration<double>(clock::now() - begin).count();
}

template <class Model>
void generator<Model>::decode_one(state& s) {
  const auto begin = clock::now();
  const std::span<const accumulate> logits = decode(s);
  const std::size_t v = model_->config().vocab_size;
  for (std::size_t r = 0; r < s.active.size(); ++r) take(s, s.active[r], logits.subspan(r * v, v));
  statistics_.decode_seconds += std::chrono::duration<double>(clock::now() - begin).count();
}

template <class Model>
void generator<Model>::make_batch(std::size_t first_slot, std::size_t b, std::size_t t) {
  to_run_.first_slot = first_slot;
  to_run_.b = b;
  to_run_.t = t;
  to_run_.tokens.assign(b * t, 0);
  to_run_.positions.assign(b * t, 0);
  to_run_.lengths.assign(b, 0);
  to_run_.chosen.assign(padded(b), 0);
  to_run_.cache_is_empty = false;
  if (mask_.kind == attention_mask::rule::causal) return;
  to_run_.withins.assign(b * t, 0);
  to_run_.ends.assign(b * t, 1);  // unused sequences attend to their first position
}

template <class Model>
void generator<Model>::put_row(const sequence& of, std::size_t r, std::size_t length) {
  const std::size_t t = to_run_.t, before = to_run_.cache_is_empty ? mask_.virtual_tokens : 0;
  if (before > 0 && to_run_.ends.size() == to_run_.b * t) to_run_.ends.assign(to_run_.b * (before + t), 1);
  to_run_.lengths[r] = static_cast<token>(to_run_.cache_is_empty ? 0 : model_->tokens_before() + length);
  for (std::size_t i = 0; i < t && length + i < of.text.size(); ++i) {  // then padding at the first position
    to_run_.tokens[r * t + i] = of.text[length + i];
    to_run_.positions[r * t + i] = static_cast<token>(length + i);
    if (mask_.kind != attention_mask::rule::prefix) continue;
    const attention_mask::place at = of.context.at(length + i);
    to_run_.positions[r * t + i] = static_cast<token>(at.position);
    to_run_.withins[r * t + i] = static_cast<token>(at.within);
    to_run_.ends[r * (t + before) + before + i] = static_cast<token>(mask_.virtual_tokens + at.end);
  }
}

template <class Model>
void generator<Model>::take(state& s, std::size_t i, std::span<const accumulate> logits) {
  sequence& one = s.sequences[i];
  const token next = s.choose.choose(logits, std::span<const token>(one.text), s.settings.first_sequence + i, one.fresh());
  if (s.settings.log_probs) one.result.log_probs.push_back(log_prob_of(logits, next));
  take_token(s, i, next);
}

template <class Model>
void generator<Model>::take_token(state& s, std::size_t i, token next) {
  sequence& one = s.sequences[i];
  if (std::find(s.settings.stop.begin(), s.settings.stop.end(), next) != s.settings.stop.end()) {
    one.result.stop = next;
    one.done = true;
    return;
  }
  one.text.push_back(next);
  one.result.tokens.push_back(next);
  ++statistics_.new_tokens;
  const bool goes_on = !s.settings.on_token || s.settings.on_token(i, next);
  one.done = !goes_on || one.fresh() >= s.settings.max_new_tokens || one.text.size() >= longest_;
}

template <class Model>
void generator<Model>::search(state& s, std::size_t first) {
  const generate_config& settings = s.settings;
  const std::vector<token> prompt = s.sequences[first].text;
  detail::beam_search beams(settings.beams, settings.stop, std::min(settings.max_new_tokens, longest_ - prompt.size()));
  // running texts, one per slot; at first the prompt
  state running{.settings = settings, .choose = s.choose};
  running.sequences.assign(settings.beams.num_beams, s.sequences[first]);
  running.active.assign(1, 0);
  const auto advance = [&](auto&& logits_of) {
    std::vector<std::vector<double>> scores, raw;
    for (const auto& text : beams.running()) {
      const std::span<const accumulate> logits = logits_of(text.slot);
      std::vector<double> log_probs(logits.begin(), logits.end());
      const double largest = *std::max_element(log_probs.begin(), log_probs.end());
      double sum = 0;
      for (const double x : log_probs) sum += std::exp(x - largest);
      for (double& x : log_probs) x -= largest + std::log(sum);
      raw.push_back(log_probs);
      s.choose.process(log_probs, std::span<const token>(running.sequences[text.slot].text), text.tokens.size());
      scores.push_back(std::move(log_probs));
    }
    const std::size_t cached = model_->tokens_before() + prompt.size() + beams.running().front().tokens.size();
    for (const auto& copy : beams.advance(scores, raw)) decoding_.copy_slot(*model_, copy.from, copy.to, cached);
    std::size_t slots = 0;
    for (const auto& text : beams.running()) {
      slots = std::max(slots, text.slot + 1);
      running.sequences[text.slot].text = prompt;
      running.sequences[text.slot].text.insert(running.sequences[text.slot].text.end(), text.tokens.begin(), text.tokens.end());
    }
    running.active.resize(slots);
    std::iota(running.active.begin(), running.active.end(), std::size_t{0});
  };
  read_prompts(running, 0, 1, [&](std::size_t, std::span<const accumulate> logits) { advance([&](std::size_t) { return logits; }); });
  const auto begin = clock::now();
  while (beams.goes_on()) {
    const std::span<const accumulate> logits = decode(running);
    const std::size_t v = model_->config().vocab_size;
    advance([&](std::size_t slot) { return logits.subspan(slot * v, v); });
  }
  statistics_.decode_seconds += std::chrono::duration<double>(clock::now() - begin).count();
  require<data_error>(beams.finished().size() >= settings.num_return_sequences, "generate: a beam search must find ", settings.num_return_sequences,
                      " texts; it has found ", beams.finished().size(), ": all other tokens are banned");
  for (std::size_t i = 0; i < settings.num_return_sequences; ++i) {
    const auto& text = beams.finished()[i];
    generated_sequence& result = s.sequences[first + i].result;
    result.tokens = text.tokens;
    result.stop = text.stop;
    result.score = text.score;
    if (settings.log_probs) result.log_probs = text.log_probs;
    statistics_.new_tokens += text.tokens.size();
  }
}

template <class Model>
auto generator<Model>::bytes_per_step() const -> double {
  const auto& c = model_->config();
  const std::size_t table = c.tie_word_embeddings ? 0 : c.vocab_size * c.hidden_size;
  return static_cast<double>(model_->parameters().bytes() - table * sizeof(typename Model::compute));
}

/// Families made of the same layers share one generator type.
template <class Model>
generator(Model&, std::size_t = 1, std::size_t = 0) -> generator<computed_model<Model>>;

}  // namespace xtrain
