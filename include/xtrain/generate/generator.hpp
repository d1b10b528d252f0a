// Text generation: chunked prefill of the prompts, then one token per sequence and step with a KV cache.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/generate/sampling.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

struct generate_config {
  std::size_t max_new_tokens = 128;
  sampling_config sampling = {};
  std::vector<token> stop = {};  ///< any of these ends a sequence; it is not part of the result
  /// Called with (sequence, token) for every new token; return false to end the sequence.
  std::function<bool(std::size_t, token)> on_token = {};
};

/// Token counts and timings of a generation.
struct generate_statistics {
  std::size_t prompt_tokens = 0;
  std::size_t new_tokens = 0;    ///< generated: the first of each sequence comes from the prefill; stop tokens are not counted
  std::size_t decode_steps = 0;  ///< tokens decoded one by one after the prompt
  double prompt_seconds = 0;
  double decode_seconds = 0;
  double decode_bytes = 0;  ///< weights and KV cache that had to be read for the new tokens

  [[nodiscard]] double tokens_per_second() const { return decode_seconds > 0 ? static_cast<double>(decode_steps) / decode_seconds : 0; }
  [[nodiscard]] double bandwidth() const { return decode_seconds > 0 ? decode_bytes / decode_seconds : 0; }
};

namespace detail {

/// Device memory for `rows` sequences of up to `capacity` tokens, for any model, including one on the dry-run device.
template <class Model>
class decoding_memory {
 public:
  using device = typename Model::device;
  using memory = typename Model::memory;
  using compute = typename Model::compute;
  using accumulate = typename Model::accumulate;

  decoding_memory(const Model& model, std::size_t rows, std::size_t capacity, std::size_t piece);

  /// b sequences with t new tokens each, after the cached lengths; row r of the logits is for position chosen[r].
  struct decode_batch {
    std::size_t b = 0, t = 0;
    std::vector<token> tokens{}, targets{}, positions{}, starts{}, withins{}, ends{};
    std::size_t first_sequence = 0;
    std::vector<token> lengths{};
    std::vector<token> chosen{};
    bool cache_is_empty = false;
  };
  std::span<const accumulate> run(Model& model, pass_memory<Model>& passes, const decode_batch& rows);

 private:
  std::size_t capacity_;
  batch_memory<device> batch_;
  tensor<compute, 2, device> keys_, values_;
  tensor<token, 1, device> lengths_, chosen_;
  tensor<accumulate, 2, device> logits_;
  std::vector<accumulate> host_logits_;
};

template <class Model>
decoding_memory<Model>::decoding_memory(const Model& model, std::size_t rows, std::size_t capacity, std::size_t piece)
    : capacity_(capacity), batch_(model.context(), rows * piece, attention_mask_of(model)),
      keys_(model.context(), model.cache_shape(rows, capacity), memory_role::cache),
      values_(model.context(), model.cache_shape(rows, capacity), memory_role::cache), lengths_(model.context(), {rows}, memory_role::cache),
      chosen_(model.context(), {rows}, memory_role::batch), logits_(model.context(), {rows, model.config().vocab_size}, memory_role::batch),
      host_logits_(rows * model.config().vocab_size) {}

template <class Model>
auto decoding_memory<Model>::run(Model& model, pass_memory<Model>& passes, const decode_batch& rows) -> std::span<const accumulate> {
  auto& stream = model.stream();
  copy_to_device(stream, lengths_.span(), rows.lengths);
  copy_to_device(stream, chosen_.span(), rows.chosen);
  auto p = passes.new_pass(pass_mode::evaluation);
  p.batch = batch_.upload(stream, rows);
  const cache_view<device, compute> cache{.capacity = capacity_,
                                          .lengths_b = lengths_.view(),
                                          .keys = keys_.view(),
                                          .values = values_.view(),
                                          .is_empty = rows.cache_is_empty};
  p.internal.cache = &cache;
  model.logits(p, passes.layer_inputs(), chosen_.view(), logits_.view());
  copy_to_host(stream, std::span<accumulate>(host_logits_), logits_.span());
  stream.synchronize();
  return host_logits_;
}

}  // namespace detail

/// Generates for up to `rows` prompts at once. Memory is allocated once, in the constructor.
template <class Model>
class generator {
 public:
  using decoding = detail::decoding_memory<Model>;

  /// `longest` tokens of prompt and result together; 0: the model's maximum sequence length.
  ///   throws  config_error, memory_error
  explicit generator(Model& model, std::size_t rows = 1, std::size_t longest = 0);

  /// The new tokens of every sequence, without stop tokens.
  ///   throws  data_error when a prompt is empty, too long, or has a token that is not in the vocabulary
  [[nodiscard]] std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts,
                                                         const generate_config& settings = {});
  [[nodiscard]] std::vector<token> generate(const std::vector<token>& prompt, const generate_config& settings = {});

  /// Statistics of the last call.
  [[nodiscard]] const generate_statistics& statistics() const { return statistics_; }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t tokens_at_once = 256;  // prefill chunk size per prompt

  struct state {
    state(std::span<const std::vector<token>> prompts, std::size_t num_tokens, const generate_config& how)
        : settings(how), choose(how.sampling), texts(prompts.begin(), prompts.end()), done(prompts.size(), how.max_new_tokens == 0),
          fresh(prompts.size(), 0), vocab_size(num_tokens) {}
    const generate_config& settings;
    sampler choose;
    std::vector<std::vector<token>> texts;
    std::vector<bool> done;
    std::vector<std::size_t> fresh;  // new tokens of each sequence
    std::size_t vocab_size;
    std::vector<attention_mask::context_end> contexts{};  // per sequence, for prefix-LM models

    [[nodiscard]] std::size_t running() const { return static_cast<std::size_t>(std::count(done.begin(), done.end(), false)); }
  };

  static std::size_t checked_length(const Model& model, std::size_t rows, std::size_t longest);
  /// Positions in the KV cache per sequence.
  [[nodiscard]] std::size_t num_tokens() const { return model_->tokens_before() + longest_ + piece_; }
  template <class M>
  static pass_sizes measure(const M& model, std::size_t rows, std::size_t capacity, std::size_t piece) {
    return measure_pass(model, [&](auto& like, auto& passes) {
      using like_type = std::remove_cvref_t<decltype(like)>;
      detail::decoding_memory<like_type> memory(like, rows, capacity, piece);
      for (const std::size_t t : {piece, std::size_t{1}}) {
        typename detail::decoding_memory<like_type>::decode_batch full{.b = rows, .t = t};
        full.tokens.assign(rows * t, 0);
        full.positions.assign(rows * t, 0);
        full.lengths.assign(rows, 0);
        full.chosen.assign(rows, 0);
        full.cache_is_empty = t == piece;
        if (attention_mask_of(like).kind != attention_mask::rule::causal) {
          full.withins.assign(rows * t, 0);
          full.ends.assign(rows * t, 1);
        }
        (void)memory.run(like, passes, full);
      }
    });
  }

  void check(std::span<const std::vector<token>> prompts) const;

  /// Prefills all prompts, `piece_` tokens at a time; shorter sequences are padded at the end, where nothing attends.
  void read_prompts(state& s);

  /// One more token for every sequence that is not finished.
  void decode_one(state& s);

  void make_batch(std::size_t t);
  void put_row(const state& s, std::size_t r, std::size_t t, std::size_t length);

  /// Samples the sequence's next token and decides whether it is the last.
  void take(state& s, std::size_t r, std::span<const typename Model::accumulate> logits);

  /// Bytes of the weights that every step reads: all except the embedding table, unless the head is tied to it.
  [[nodiscard]] double bytes_per_step() const;

  Model* model_;
  std::size_t rows_, longest_;
  attention_mask mask_;
  std::size_t piece_;  // a bidirectional prefix is processed in one pass: its first token attends to its last
  pass_memory<Model> passes_;
  decoding decoding_;
  typename decoding::decode_batch to_run_;
  generate_statistics statistics_;
};

template <class Model>
generator<Model>::generator(Model& model, std::size_t rows, std::size_t longest)
    : model_(&model), rows_(rows), longest_(checked_length(model, rows, longest)), mask_(attention_mask_of(model)),
      piece_(mask_.kind == attention_mask::rule::causal ? std::min(longest_, tokens_at_once) : longest_),
      passes_(model, measure(model, rows_, num_tokens(), piece_)), decoding_(model, rows_, num_tokens(), piece_) {}

template <class Model>
auto generator<Model>::generate(std::span<const std::vector<token>> prompts,
                                                       const generate_config& settings) -> std::vector<std::vector<token>> {
  check(prompts);
  statistics_ = {};
  state s(prompts, model_->config().vocab_size, settings);
  if (mask_.kind == attention_mask::rule::prefix)
    for (const auto& prompt : prompts) s.contexts.push_back(mask_.context_of(prompt));
  read_prompts(s);
  while (s.running() > 0) decode_one(s);
  std::vector<std::vector<token>> fresh;
  for (std::size_t r = 0; r < prompts.size(); ++r)
    fresh.emplace_back(s.texts[r].begin() + static_cast<std::ptrdiff_t>(prompts[r].size()), s.texts[r].end());
  return fresh;
}

template <class Model>
auto generator<Model>::generate(const std::vector<token>& prompt, const generate_config& settings) -> std::vector<token> {
  return generate(std::span<const std::vector<token>>(&prompt, 1), settings).front();
}

template <class Model>
auto generator<Model>::checked_length(const Model& model, std::size_t rows, std::size_t longest) -> std::size_t {
  require<config_error>(rows > 0, "generator: batch_size must be positive");
  const std::size_t context = model.config().max_position_embeddings;
  require<config_error>(longest <= context, "generator: sequences must not be longer than the model's max_position_embeddings of ", context,
                        " tokens; given ", longest);
  return longest == 0 ? context : longest;
}

template <class Model>
void generator<Model>::check(std::span<const std::vector<token>> prompts) const {
  require<data_error>(!prompts.empty() && prompts.size() <= rows_, "generate: there must be 1 to ", rows_, " prompts; given ",
                      prompts.size());
  for (std::size_t r = 0; r < prompts.size(); ++r) {
    require<data_error>(!prompts[r].empty(), "generate: a prompt must have at least one token; prompt ", r + 1, " has none");
    require<data_error>(prompts[r].size() <= longest_, "generate: a prompt must fit ", longest_, " tokens; prompt ", r + 1, " has ",
                        prompts[r].size());
    for (const token t : prompts[r])
      require<data_error>(t >= 0 && static_cast<std::size_t>(t) < model_->config().vocab_size,
                          "generate: tokens must be in the model's vocabulary of ", model_->config().vocab_size, "; prompt ", r + 1,
                          " has ", t, ". Does the tokenizer belong to this model?");
  }
}

template <class Model>
void generator<Model>::read_prompts(state& s) {
  const auto begin = clock::now();
  std::size_t longest = 0;
  for (const auto& text : s.texts) longest = std::max(longest, text.size());
  for (std::size_t first = 0; first < longest; first += piece_) {
    const std::size_t t = std::min(piece_, longest - first);
    make_batch(t);
    to_run_.cache_is_empty = first == 0;
    for (std::size_t r = 0; r < s.texts.size(); ++r) {
      const std::size_t size = s.texts[r].size();
      put_row(s, r, t, std::min(first, size));
      if (size > first && size <= first + t) to_run_.chosen[r] = static_cast<token>(r * t + size - first - 1);
    }
    const auto logits = decoding_.run(*model_, passes_, to_run_);
    for (std::size_t r = 0; r < s.texts.size(); ++r) {
      const std::size_t size = s.texts[r].size();
      if (s.fresh[r] == 0 && !s.done[r] && size > first && size <= first + t) take(s, r, logits);
    }
  }
  for (const auto& text : s.texts) statistics_.prompt_tokens += text.size();
  for (const std::size_t fresh : s.fresh) statistics_.prompt_tokens -= fresh;
  statistics_.prompt_seconds = std::chrono::duration<double>(clock::now() - begin).count();
}

template <class Model>
void generator<Model>::decode_one(state& s) {
  const auto begin = clock::now();
  make_batch(1);
  std::size_t cached = 0;
  for (std::size_t r = 0; r < s.texts.size(); ++r) {
    put_row(s, r, 1, s.texts[r].size() - 1);
    to_run_.chosen[r] = static_cast<token>(r);
    cached += model_->tokens_before() + s.texts[r].size();
  }
  const auto logits = decoding_.run(*model_, passes_, to_run_);
  for (std::size_t r = 0; r < s.texts.size(); ++r)
    if (!s.done[r]) {
      ++statistics_.decode_steps;
      take(s, r, logits);
    }
  statistics_.decode_bytes += bytes_per_step() + static_cast<double>(2 * cached * model_->config().num_layers * model_->config().num_kv_heads *
                                                                     model_->config().head_dim * sizeof(typename Model::compute));
  statistics_.decode_seconds += std::chrono::duration<double>(clock::now() - begin).count();
}

template <class Model>
void generator<Model>::make_batch(std::size_t t) {
  to_run_.b = rows_;
  to_run_.t = t;
  to_run_.tokens.assign(rows_ * t, 0);
  to_run_.positions.assign(rows_ * t, 0);
  to_run_.lengths.assign(rows_, 0);
  to_run_.chosen.assign(rows_, 0);
  to_run_.cache_is_empty = false;
  if (mask_.kind == attention_mask::rule::causal) return;
  to_run_.withins.assign(rows_ * t, 0);
  to_run_.ends.assign(rows_ * t, 1);  // unused sequences attend to their first position
}

template <class Model>
void generator<Model>::put_row(const state& s, std::size_t r, std::size_t t, std::size_t length) {
  const std::vector<token>& text = s.texts[r];
  to_run_.lengths[r] = static_cast<token>(to_run_.cache_is_empty ? 0 : model_->tokens_before() + length);
  for (std::size_t i = 0; i < t; ++i) {
    to_run_.positions[r * t + i] = static_cast<token>(length + i);
    if (length + i < text.size()) to_run_.tokens[r * t + i] = text[length + i];
    if (s.contexts.empty()) continue;
    const attention_mask::place at = s.contexts[r].at(length + i);
    to_run_.positions[r * t + i] = static_cast<token>(at.position);
    to_run_.withins[r * t + i] = static_cast<token>(at.within);
    to_run_.ends[r * t + i] = static_cast<token>(at.end);
  }
}

template <class Model>
void generator<Model>::take(state& s, std::size_t r, std::span<const typename Model::accumulate> logits) {
  const token next = s.choose.choose(logits.subspan(r * s.vocab_size, s.vocab_size), std::span<const token>(s.texts[r]), r, s.fresh[r]);
  if (std::find(s.settings.stop.begin(), s.settings.stop.end(), next) != s.settings.stop.end()) {
    s.done[r] = true;
    return;
  }
  s.texts[r].push_back(next);
  ++s.fresh[r];
  ++statistics_.new_tokens;
  const bool goes_on = !s.settings.on_token || s.settings.on_token(r, next);
  s.done[r] = !goes_on || s.fresh[r] >= s.settings.max_new_tokens || s.texts[r].size() >= longest_;
}

template <class Model>
auto generator<Model>::bytes_per_step() const -> double {
  const auto& c = model_->config();
  const std::size_t table = c.tie_word_embeddings ? 0 : c.vocab_size * c.hidden_size;
  return static_cast<double>(model_->parameters().bytes() - table * sizeof(typename Model::compute));
}

/// A generator of a model of a family is the one of all families that are made of the same layers.
template <class Model>
generator(Model&, std::size_t = 1, std::size_t = 0) -> generator<shared_model<Model>>;

}  // namespace xtrain
