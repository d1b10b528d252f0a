#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <xtrain/eval/logits.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/generate/stop_text.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/text.hpp>
#include "capped_llama.hpp"
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// The cpu, with a kernel that leaves some choices to the host.
struct doubtful : cpu {
  struct stream : cpu::stream {
    using cpu::stream::stream;
  };
  static inline std::atomic<int> of_choices{0};  // every n-th; 0: never
};
void run_kernel(doubtful::stream& stream, const kernel::sample<host_memory>& k, scratch_span<host_memory> scratch) {
  run_kernel(static_cast<cpu::stream&>(stream), k, scratch);
  for (std::size_t i = 0; i < k.n && doubtful::of_choices > 0; ++i)
    if ((k.place_n.raw()[i] + 2 * k.sequence_n.raw()[i]) % doubtful::of_choices == 0) k.token_n.raw()[i] = kernel::undecided;
}

struct plain : defaults {};
struct walled : defaults {
  using device = testing::isolated<doubtful>;
};

decoder_config sizes(std::size_t context = 40) {
  return {.vocab_size = 50, .hidden_size = 16, .num_layers = 2, .num_heads = 2, .max_position_embeddings = context, .initializer_range = 0.5};
}

std::vector<token> prompt_of(std::size_t length, token first) {
  std::vector<token> tokens;
  for (std::size_t i = 0; i < length; ++i) tokens.push_back(static_cast<token>((static_cast<std::size_t>(first) + 7 * i * i) % 50));
  return tokens;
}

/// Greedy tokens without a cache: recomputes the whole text for every token.
template <class Model>
std::vector<token> greedy_without_cache(Model& model, std::vector<token> text, std::size_t n) {
  std::vector<token> fresh;
  for (std::size_t i = 0; i < n; ++i) {
    array<token, 2> tokens(shape_of_rank<2>{1, text.size()});
    std::copy(text.begin(), text.end(), tokens.data());
    const auto all = logits(model, tokens);
    const auto last = std::span<const float>(all.data() + (text.size() - 1) * 50, 50);
    fresh.push_back(static_cast<token>(std::max_element(last.begin(), last.end()) - last.begin()));
    text.push_back(fresh.back());
  }
  return fresh;
}

template <class Model>
void check_cache(const decoder_config& shape, std::size_t prompt_length, std::size_t n) {
  Model model(shape);
  generator gen(model);
  const auto prompt = prompt_of(prompt_length, 3);
  CHECK(gen.generate(prompt, {.max_new_tokens = n}) == greedy_without_cache(model, prompt, n));
}

}  // namespace

TEST_CASE("generating with a cache gives what running the whole text again gives") {
  check_cache<llama<plain>>(sizes(40), 5, 20);
  check_cache<gpt2<plain>>(sizes(40), 1, 20);
  check_cache<llama<plain>>(sizes(600), 530, 6);  // a prompt processed in several pieces
  decoder_config capped = sizes(600);
  capped.sliding_window = 6;
  capped.windowed_layers = {true, false};
  capped.query_pre_attn_scalar = 3.0;
  capped.attn_logit_softcapping = 2.0;
  capped.final_logit_softcapping = 1.5;
  check_cache<capped_llama<plain>>(capped, 5, 20);
  check_cache<capped_llama<plain>>(capped, 530, 6);
}

TEST_CASE("a context that is seen in both directions is read at once, and what follows it goes on from the cache") {
  decoder_config glm = sizes(400);
  glm.bos = 48;
  glm.gap = 47;
  chatglm1<plain> model(glm);
  generator gen(model, 3);
  const auto with_context = [](std::size_t length, std::size_t gap) {
    std::vector<token> prompt(length, 0);
    for (std::size_t i = 0; i < length; ++i) prompt[i] = static_cast<token>((3 + 7 * i * i) % 47);
    prompt[gap] = 47;
    prompt.push_back(48);
    return prompt;
  };
  const std::vector<std::vector<token>> prompts{with_context(5, 4), with_context(330, 11), prompt_of(4, 9)};  // the last prompt has no begin token
  const auto together = gen.generate(prompts, {.max_new_tokens = 12});
  for (std::size_t r = 0; r < 3; ++r) {
    CAPTURE(r);
    CHECK(together[r] == greedy_without_cache(model, prompts[r], 12));
  }
  generator one_slot(model, 1);
  CHECK(one_slot.generate(prompts, {.max_new_tokens = 12}) == together);  // one after the other, in the same slot
  // the bidirectional prefix's first position attends to its last token
  array<token, 2> one(shape_of_rank<2>{1, 6});
  std::copy(prompts[0].begin(), prompts[0].end(), one.data());
  const auto before = logits(model, one);
  one(0, 3) = 1 - one(0, 3) % 2;
  const auto after = logits(model, one);
  CHECK(before(0, 0, 0) != after(0, 0, 0));
}

TEST_CASE("prompts of different lengths do not disturb one another") {
  llama<plain> model(sizes(600));
  generator many(model, 3), one(model);
  const std::vector<std::vector<token>> prompts{prompt_of(3, 1), prompt_of(300, 2), prompt_of(11, 5)};
  const auto together = many.generate(prompts, {.max_new_tokens = 12});
  for (std::size_t r = 0; r < 3; ++r) CHECK(together[r] == one.generate(prompts[r], {.max_new_tokens = 12}));
}

namespace {

generate_config how_beams(std::size_t num_beams) {
  generate_config how;
  how.beams.num_beams = num_beams;
  return how;
}

/// Fifteen prompts, some equal, of many lengths.
std::vector<std::vector<token>> many_prompts() {
  std::vector<std::vector<token>> prompts;
  for (const std::size_t length : {3U, 270U, 11U, 1U, 40U, 3U, 255U, 17U, 2U, 256U, 257U, 9U, 300U, 5U, 33U})
    prompts.push_back(prompt_of(length, static_cast<token>(length % 5)));
  return prompts;
}

/// A sequence's bits are independent of slots and other sequences.
template <class Model>
void check_slots(Model& model, const std::vector<std::vector<token>>& prompts, const generate_config& how) {
  for (const std::size_t rows : {1U, 2U, 4U, 11U}) {
    generator gen(model, rows);
    std::vector<token> streamed;
    generate_config heard = how;
    heard.on_token = [&](std::size_t i, token t) {
      if (i == 4) streamed.push_back(t);
      return !(i % 3 == 1 && t % 7 == 0);  // some end early
    };
    const auto together = gen.generate_sequences(prompts, heard);
    REQUIRE(together.size() == prompts.size());
    CHECK(streamed == together[4].tokens);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      CAPTURE(rows);
      CAPTURE(i);
      generate_config one = how;
      std::vector<std::vector<token>> alone(i + 1, {1});  // the sequence's index; fillers end immediately
      alone[i] = prompts[i];
      one.on_token = [&](std::size_t at, token t) { return at == i && !(i % 3 == 1 && t % 7 == 0); };
      const auto result = gen.generate_sequences(alone, one).back();
      CHECK(result.tokens == together[i].tokens);
      CHECK(result.log_probs == together[i].log_probs);
      CHECK(result.stop == together[i].stop);
    }
  }
}

}  // namespace

TEST_CASE("prompts take turns in the slots, and every sequence has the bits that it has alone") {
  decoder_config wide = sizes(320);
  wide.hidden_size = 48;  // kernels for products of at most 16 columns have other bits
  llama<plain> model(wide);
  check_slots(model, many_prompts(),
              {.max_new_tokens = 9, .sampling = {.temperature = 1.5, .top_k = 30, .seed = 3}, .stop = {2, 11}, .log_probs = true});
  generator four(model, 4), one(model);
  const auto prompts = many_prompts();
  const auto greedy = four.generate(prompts, {.max_new_tokens = 6});
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(greedy[i] == greedy_without_cache(model, prompts[i], 6));
  CHECK(four.statistics().new_tokens == 6 * prompts.size());
}

TEST_CASE("several sequences to a prompt, with their log-probabilities") {
  llama<plain> model(sizes());
  generator gen(model, 3);
  const std::vector<std::vector<token>> prompts{prompt_of(5, 1), prompt_of(5, 2)};
  std::vector<std::vector<token>> repeated;
  for (const auto& prompt : prompts) repeated.insert(repeated.end(), 4, prompt);
  generate_config how{.max_new_tokens = 6, .sampling = {.temperature = 1.3, .seed = 3}, .stop = {7}, .log_probs = true};
  const auto expanded = gen.generate_sequences(repeated, how);
  how.num_return_sequences = 4;
  const auto each = gen.generate_sequences(prompts, how);
  REQUIRE(each.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(each[i].tokens == expanded[i].tokens);
    CHECK(each[i].log_probs == expanded[i].log_probs);
    std::vector<token> text = prompts[i / 4];
    text.insert(text.end(), each[i].tokens.begin(), each[i].tokens.end());
    if (each[i].stop >= 0) text.push_back(each[i].stop);
    REQUIRE(each[i].log_probs.size() == text.size() - 5);
    array<token, 2> tokens(shape_of_rank<2>{1, text.size()});
    std::copy(text.begin(), text.end(), tokens.data());
    const auto all = logits(model, tokens);
    for (std::size_t k = 5; k < text.size(); ++k)  // sums of 16 products in another order
      CHECK(std::abs(each[i].log_probs[k - 5] - log_prob_of(std::span<const float>(all.data() + (k - 1) * 50, 50), text[k])) < 1e-5);
  }
  CHECK(each[0].tokens != each[1].tokens);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompts, {.num_return_sequences = 2}), doctest::Contains("num_return_sequences must be 1 if temperature is 0"),
                       config_error);
}

TEST_CASE("isolated memory changes nothing") {
  llama<plain> a(sizes());
  llama<walled> b(sizes());
  generator in_reach(a);
  generator behind_a_wall(b);
  CHECK(in_reach.generate(prompt_of(4, 1), {.max_new_tokens = 10}) == behind_a_wall.generate(prompt_of(4, 1), {.max_new_tokens = 10}));
}

TEST_CASE("a device chooses tokens by itself: the host waits once for a chunk of them, and copies only from and to pinned memory") {
  llama<walled> model(sizes());
  generator gen(model, 2);
  const std::vector<std::vector<token>> prompts{prompt_of(4, 1), prompt_of(7, 2)};
  const auto counted = [&](generate_config how) {
    how.max_new_tokens = 1 + 24;  // the first comes from the prompts' pass
    const testing::host_waits before = model.context().waits();
    CHECK(gen.generate(prompts, how)[1].size() == 25);
    return model.context().waits().since(before);
  };
  for (const sampling_config& sampling : {sampling_config{}, sampling_config{.temperature = 1.2, .top_p = 0.9, .repetition_penalty = 1.3}})
    for (const std::size_t chunk : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{24}}) {
      CAPTURE(chunk);
      const testing::host_waits waits = counted({.sampling = sampling, .tokens_per_wait = chunk});
      const std::size_t chunks = chunk == 0 ? 3 : (24 + chunk - 1) / chunk;  // 0: 8
      CHECK(waits.synchronizations == 1 + chunks);
      CHECK(waits.event_waits == 0);
      CHECK(waits.blocking_copies == 0);
      CHECK(waits.replays == 23);  // the first step is queued kernel by kernel
    }
  // the host waits for values it needs: logits also go through pinned memory
  const testing::host_waits seen = counted({.log_probs = true});
  CHECK(seen.synchronizations == 25);
  CHECK(seen.blocking_copies == 0);
  CHECK(seen.replays == 0);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompts, {.tokens_per_wait = 65}), "generate: tokens_per_wait must be at most 64; given 65", config_error);
}

TEST_CASE("chunks of any size have the tokens that the host chooses, whatever ends a sequence and whatever the device leaves to the host") {
  llama<plain> a(sizes());
  llama<walled> b(sizes());
  generator host(a, 3), one(a, 3);
  generator device(b, 3);
  std::vector<std::vector<token>> prompts;
  for (token i = 0; i < 8; ++i) prompts.push_back(prompt_of(static_cast<std::size_t>(1 + i * 3 % 7), i));
  std::size_t stopped = 0, told = 0;
  for (const sampling_config& sampling : {sampling_config{}, sampling_config{.temperature = 1.4, .top_k = 40, .seed = 8},
                                          sampling_config{.temperature = 1.1, .top_p = 0.95, .repetition_penalty = 1.4, .min_p = 0.01},
                                          sampling_config{.repetition_penalty = 1.2}}) {
    std::vector<std::vector<token>> streamed;
    generate_config how{.max_new_tokens = 21, .sampling = sampling, .stop = {7, 30}, .on_token = [&](std::size_t i, token t) {
                          streamed[i].push_back(t);
                          return !(i % 3 == 1 && t % 9 == 0);
                        }};
    const auto run = [&](auto& gen) {
      streamed.assign(prompts.size(), {});
      return gen.generate_sequences(prompts, how);
    };
    how.log_probs = true;  // on the host
    const auto expected = run(host);
    how.log_probs = false;
    const auto check = [&](const std::vector<generated_sequence>& found) {
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        CAPTURE(i);
        CHECK(found[i].tokens == expected[i].tokens);
        CHECK(found[i].stop == expected[i].stop);
        CHECK(streamed[i] == expected[i].tokens);  // no surplus
        stopped += found[i].stop >= 0 ? 1 : 0;
        told += found[i].stop < 0 && found[i].tokens.size() < 21 ? 1 : 0;
      }
    };
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{4}, std::size_t{64}}) {
      CAPTURE(chunk);
      how.tokens_per_wait = chunk;
      check(run(one));
      CHECK(one.statistics().decode_steps == host.statistics().decode_steps);
      for (const int doubts : {0, 1, 3, 5}) {
        CAPTURE(doubts);
        doubtful::of_choices = sampling.temperature > 0 ? doubts : 0;  // greedy choices are not random
        check(run(device));
        doubtful::of_choices = 0;
      }
    }
  }
  CHECK(stopped > 50);
  CHECK(told > 50);
}

TEST_CASE("a row ends at a stop token, when told to, at its length, or at the context's end") {
  llama<plain> model(sizes());
  generator gen(model);
  const auto prompt = prompt_of(4, 1);
  const auto all = gen.generate(prompt, {.max_new_tokens = 100});
  CHECK(all.size() == 36);  // max_position_embeddings is 40
  const token stop = all[5];
  const std::size_t first = static_cast<std::size_t>(std::find(all.begin(), all.end(), stop) - all.begin());
  CHECK(gen.generate(prompt, {.max_new_tokens = 100, .stop = {stop}}).size() == first);
  std::vector<token> streamed;
  CHECK(gen.generate(prompt, {.max_new_tokens = 100,
                              .on_token =
                                  [&](std::size_t, token t) {
                                    streamed.push_back(t);
                                    return streamed.size() < 3;
                                  }})
            .size() == 3);
  CHECK(streamed == std::vector<token>(all.begin(), all.begin() + 3));
  CHECK(gen.generate(prompt, {.max_new_tokens = 0}).empty());
  CHECK(gen.generate(prompt, {.max_new_tokens = 1}).size() == 1);
  CHECK(gen.statistics().prompt_tokens == 4);
}

TEST_CASE("the KV cache is what a generator says it is, and one that does not fit is refused with its size") {
  llama<plain> model(sizes());
  const auto cached = [&] { return model.context().memory().now[static_cast<std::size_t>(memory_role::cache)]; };
  const std::size_t before = cached();
  const generator gen(model, 3, 20);
  const std::size_t cache = decltype(gen)::cache_bytes(model, 3, 20);
  CHECK(cache == 2 * 2 * 3 * 16 * (20 + 20) * sizeof(float));  // keys and values of 2 layers
  const std::size_t lengths = 3 * sizeof(token);
  CHECK(cached() - before == cache + lengths);
  const cpu::context small({.memory_limit = 1 << 20});
  llama<plain> tight(sizes(4000), small);
  CHECK_THROWS_WITH_AS(generator(tight, 64), doctest::Contains("generator: the memory for 64 sequences of 4000 tokens, of which the KV cache is"),
                       memory_error);
}

TEST_CASE("prompts that cannot be are refused") {
  llama<plain> model(sizes());
  generator gen(model);
  CHECK_THROWS_WITH_AS((void)gen.generate(std::vector<token>{}), doctest::Contains("prompt 1 has none"), data_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(std::vector<token>{1, 77}),
                       doctest::Contains("must be in the model's vocabulary of 50; prompt 1 has 77"), data_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt_of(40, 1)), doctest::Contains("room for a new token in sequences of 40; prompt 1 has 40"), data_error);
  CHECK(gen.generate(prompt_of(39, 1)).size() == 1);
  CHECK(gen.generate(prompt_of(40, 1), {.max_new_tokens = 0}).empty());
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt_of(41, 1), {.max_new_tokens = 0}), doctest::Contains("prompt 1 has 41"), data_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt_of(3, 1), {.sampling = {.bad_words = {{1, 50}}}}),
                       doctest::Contains("bad_words: tokens must be in the vocabulary of 50; given 50"), config_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt_of(3, 1), {.sampling = {.biases = {{{-1, 3}, 0.5}}}}),
                       doctest::Contains("biases: tokens must be in the vocabulary of 50; given -1"), config_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(std::vector<std::vector<token>>{}), doctest::Contains("there must be a prompt"), data_error);
  CHECK_THROWS_AS(generator(model, 1, 41), config_error);
  CHECK_THROWS_AS(sampler({.temperature = -1.0}), config_error);
  CHECK_THROWS_AS(sampler({.top_p = 0.0}), config_error);
}

TEST_CASE("sampling is a function of the seed, and follows the probabilities") {
  const std::vector<float> logits{0.0f, std::log(2.0f), std::log(5.0f), -100.0f};
  sampler at_one({.temperature = 1.0, .seed = 5});
  std::map<token, int> counts;
  for (std::size_t place = 0; place < 8000; ++place) ++counts[at_one.choose<float>(logits, {}, 0, place)];
  // binomial: standard deviation sqrt(8000 p (1-p)) <= 43; four of them
  CHECK(std::abs(counts[0] - 1000) < 172);
  CHECK(std::abs(counts[1] - 2000) < 172);
  CHECK(std::abs(counts[2] - 5000) < 172);
  sampler again({.temperature = 1.0, .seed = 5}), other({.temperature = 1.0, .seed = 6});
  std::size_t same = 0;
  for (std::size_t place = 0; place < 100; ++place) {
    CHECK(again.choose<float>(logits, {}, 0, place) == at_one.choose<float>(logits, {}, 0, place));
    same += other.choose<float>(logits, {}, 0, place) == at_one.choose<float>(logits, {}, 0, place) ? 1 : 0;
  }
  CHECK(same < 90);
}

TEST_CASE("top-k, top-p, temperature and the repetition penalty choose among fewer") {
  const std::vector<float> logits{1.0f, 3.0f, 2.9f, -1.0f};
  const auto seen = [&](const sampling_config& settings, std::vector<token> before = {}) {
    sampler s(settings);
    std::map<token, int> counts;
    for (std::size_t place = 0; place < 400; ++place) ++counts[s.choose<float>(logits, before, 0, place)];
    std::vector<token> tokens;
    for (const auto& [t, count] : counts) tokens.push_back(t);
    return tokens;
  };
  CHECK(seen({}) == std::vector<token>{1});
  CHECK(seen({.temperature = 5.0}).size() == 4);
  CHECK(seen({.temperature = 5.0, .top_k = 2}) == std::vector<token>{1, 2});
  CHECK(seen({.temperature = 1.0, .top_p = 0.4}) == std::vector<token>{1});
  CHECK(seen({.temperature = 1.0, .top_p = 0.8}) == std::vector<token>{1, 2});
  CHECK(seen({.temperature = 0.01}) == std::vector<token>{1});
  CHECK(seen({.repetition_penalty = 2.0}, {1}) == std::vector<token>{2});
  CHECK(seen({.repetition_penalty = 2.0}, {1, 2, 1}) == std::vector<token>{1});
  sampler greedy({});
  CHECK(greedy.choose<float>(std::vector<float>{2.0f, 2.0f}, {}, 0, 0) == 0);
  CHECK_THROWS_AS((void)greedy.choose<float>(std::vector<float>{2.0f, std::nanf("")}, {}, 0, 0), non_finite_error);
}

TEST_CASE("each row is sampled with its own number and its own count of new tokens") {
  decoder_config untied = sizes();
  untied.tie_word_embeddings = false;
  llama<plain> model(untied);
  generator gen(model, 2);
  const sampling_config how{.temperature = 1.5, .top_k = 20, .repetition_penalty = 1.2, .seed = 9};
  const std::vector<std::vector<token>> prompts{prompt_of(3, 1), prompt_of(6, 1)};
  const auto together = gen.generate(prompts, {.max_new_tokens = 7, .sampling = how});
  for (std::size_t r = 0; r < 2; ++r) {
    std::vector<token> text = prompts[r];
    sampler choose(how);
    for (std::size_t i = 0; i < 7; ++i) {
      array<token, 2> tokens(shape_of_rank<2>{1, text.size()});
      std::copy(text.begin(), text.end(), tokens.data());
      const auto all = logits(model, tokens);
      text.push_back(choose.choose(std::span<const float>(all.data() + (text.size() - 1) * 50, 50), std::span<const token>(text), r, i));
    }
    CAPTURE(r);
    CHECK(together[r] == std::vector<token>(text.end() - 7, text.end()));
  }

  const generate_statistics& took = gen.statistics();
  CHECK(took.prompt_tokens == 9);
  CHECK(took.new_tokens == 14);
  CHECK(took.decode_steps == 12);  // the first token of each sequence comes from the prompt pass
  // six times all weights except the embedding's rows; keys and values of two layers of two heads of eight for 4 + 7, 5 + 8, ... tokens
  const double weights = static_cast<double>(model.parameters().bytes() - 50 * 16 * sizeof(float));
  CHECK(took.decode_bytes == 6 * weights + 2.0 * (11 + 13 + 15 + 17 + 19 + 21) * 2 * 2 * 8 * sizeof(float));
  llama<plain> tied(sizes());
  generator of_tied(tied);
  (void)of_tied.generate(prompt_of(3, 1), {.max_new_tokens = 2});  // the head is the embedding: every step reads it
  CHECK(of_tied.statistics().decode_bytes == static_cast<double>(tied.parameters().bytes() + 2 * 4 * 2 * 2 * 8 * sizeof(float)));
  CHECK(took.decode_seconds > 0);
  CHECK(took.prompt_seconds > 0);
  CHECK(took.prompt_seconds < 600);
  const generate_statistics numbers{.decode_steps = 6, .decode_seconds = 0.5, .decode_bytes = 100};
  CHECK(numbers.tokens_per_second() == 12.0);
  CHECK(numbers.bandwidth() == 200.0);
  CHECK(generate_statistics{}.tokens_per_second() == 0.0);
  CHECK(generate_statistics{}.bandwidth() == 0.0);
  CHECK_THROWS_AS((void)gen.generate(std::vector<token>{50}), data_error);
}

TEST_CASE("beam search finds the texts of transformers' generate, and their scores") {
  const safetensors_file expected(golden::folder("generation/expected.safetensors"));
  auto model = llama<plain>::from_pretrained(golden::folder("llama_grouped_untied"));
  auto head = model.parameter<2>("lm_head.weight");
  for (std::size_t i = 0; i < head.size(); ++i) head.data().raw()[i] *= static_cast<float>(golden::numbers(expected, "scale")[0]);
  generator gen(model, 11);
  const generate_config how{.max_new_tokens = 14, .stop = {15, 43}, .log_probs = true};
  const auto with = [&](std::size_t returned, const beam_search_config& beams) {
    generate_config settings = how;
    settings.num_return_sequences = returned;
    settings.beams = beams;
    return settings;
  };
  std::map<std::string, generate_config> searches{
      {"plain", with(1, {.num_beams = 4})},
      {"five_returned", with(5, {.num_beams = 5, .length_penalty = 0.0})},
      {"long", with(2, {.num_beams = 3, .length_penalty = 2.0})},
      {"short", with(3, {.num_beams = 4, .length_penalty = -1.0})},
      {"early", with(4, {.num_beams = 4, .stops_early = early_stopping::yes})},
      {"never", with(3, {.num_beams = 3, .length_penalty = 1.5, .stops_early = early_stopping::never})},
      {"penalties", with(2, {.num_beams = 4})},
      {"late", with(3, {.num_beams = 3})}};
  searches["penalties"].sampling = {.repetition_penalty = 1.5, .no_repeat_ngram_size = 2};
  searches["late"].min_new_tokens = 8;
  std::vector<std::vector<token>> prompts(2);
  for (std::size_t i = 0; i < 2; ++i)
    for (const double t : golden::numbers(expected, concat("prompt", i))) prompts[i].push_back(static_cast<token>(t));
  for (const auto& one : searches) {
    const std::string& name = one.first;
    const generate_config& settings = one.second;
    const auto found = gen.generate_sequences(prompts, settings);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t prompt = i / settings.num_return_sequences, rank = i % settings.num_return_sequences;
      CAPTURE(name);
      CAPTURE(i);
      std::vector<token> tokens;
      for (const double t : golden::numbers(expected, concat(name, prompt, ".tokens", rank))) tokens.push_back(static_cast<token>(t));
      std::vector<token> with_stop = found[i].tokens;
      if (found[i].stop >= 0) with_stop.push_back(found[i].stop);
      CHECK(with_stop == tokens);
      // fp32 sums of 14 log-probabilities; length_penalty -1 multiplies by up to 14
      CHECK(std::abs(found[i].score - golden::numbers(expected, concat(name, prompt, ".score", rank))[0]) < 1e-5 * (1 + std::abs(found[i].score)));
      CHECK(found[i].log_probs.size() == with_stop.size());
    }
  }
  // without penalties, a score is the sum of log-probabilities
  const auto best = gen.generate_sequences(prompts, searches["five_returned"]).front();
  double sum = 0;
  for (const double x : best.log_probs) sum += x;
  CHECK(std::abs(sum - best.score) < 1e-9);
  generator two(model, 2);
  CHECK_THROWS_WITH_AS((void)two.generate(prompts, how_beams(3)), doctest::Contains("must not be more than the 2 sequences"), config_error);
  generate_config sampled = how_beams(2);
  sampled.sampling.temperature = 0.5;
  CHECK_THROWS_WITH_AS((void)two.generate(prompts, sampled), doctest::Contains("temperature must be 0 with num_beams 2"), config_error);
  generate_config streamed = how_beams(2);
  streamed.on_token = [](std::size_t, token) { return true; };
  CHECK_THROWS_WITH_AS((void)two.generate(prompts, streamed), doctest::Contains("on_token"), config_error);
  generate_config too_many = how_beams(2);
  too_many.num_return_sequences = 3;
  CHECK_THROWS_WITH_AS((void)two.generate(prompts, too_many), doctest::Contains("num_return_sequences must not be more than num_beams (2)"), config_error);
}

TEST_CASE("a beam search where fewer tokens are left than beams") {
  llama<plain> model(sizes());
  generator gen(model, 4);
  const auto prompt = prompt_of(4, 1);
  generate_config two_left = how_beams(4);
  two_left.max_new_tokens = 3;
  two_left.num_return_sequences = 4;
  two_left.processor = [](std::span<const token>, std::span<float> logits) {
    for (std::size_t t = 0; t < logits.size(); ++t)
      if (t != 3 && t != 5) logits[t] = -INFINITY;
  };
  const auto found = gen.generate_sequences(std::span(&prompt, 1), two_left);
  REQUIRE(found.size() == 4);
  std::set<std::vector<token>> different;
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(found[i].tokens.size() == 3);
    CHECK(std::all_of(found[i].tokens.begin(), found[i].tokens.end(), [](token t) { return t == 3 || t == 5; }));
    if (i > 0) CHECK(found[i].score <= found[i - 1].score);
    different.insert(found[i].tokens);
  }
  CHECK(different.size() == 4);
  two_left.max_new_tokens = 1;  // there are two texts
  CHECK_THROWS_WITH_AS((void)gen.generate_sequences(std::span(&prompt, 1), two_left), doctest::Contains("must find 4 texts; it has found 2"), data_error);
  decoder_config few = sizes();
  few.vocab_size = 3;
  llama<plain> small(few);
  generator wide(small, 4);
  CHECK_THROWS_WITH_AS((void)wide.generate({1, 2}, how_beams(4)), "generate: num_beams must not be more than the 3 tokens of the vocabulary; given 4",
                       config_error);
}

TEST_CASE("min_new_tokens, a user's processor, and tokens that are banned") {
  llama<plain> model(sizes());
  generator gen(model);
  const auto prompt = prompt_of(4, 1);
  const auto all = gen.generate(prompt, {.max_new_tokens = 8});
  const auto later = gen.generate_sequences(std::span(&prompt, 1), {.max_new_tokens = 8, .stop = {all[0]}, .min_new_tokens = 3}).front();
  CHECK(later.tokens.size() >= 3);
  CHECK(std::find(later.tokens.begin(), later.tokens.end(), all[0]) == later.tokens.end());
  std::vector<std::size_t> lengths;
  const auto forced = gen.generate(prompt, {.max_new_tokens = 4, .processor = [&](std::span<const token> so_far, std::span<float> logits) {
                                              lengths.push_back(so_far.size());
                                              std::fill(logits.begin(), logits.end(), -INFINITY);
                                              logits[so_far.size()] = 0;
                                            }});
  CHECK(forced == std::vector<token>{4, 5, 6, 7});
  CHECK(lengths == std::vector<std::size_t>{4, 5, 6, 7});
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt, {.processor = [](auto, std::span<float> logits) { std::fill(logits.begin(), logits.end(), -INFINITY); }}),
                       doctest::Contains("every token is banned"), data_error);
  CHECK_THROWS_AS((void)gen.generate(prompt, {.processor = [](auto, std::span<float> logits) { logits[3] = NAN; }}), non_finite_error);
  CHECK(gen.generate(prompt, {.max_new_tokens = 8}) == all);  // the exception leaves no state
}

TEST_CASE("text ends at a string that tokens straddle, and is trimmed") {
  const tokenizer bytes = byte_tokenizer();
  llama<plain> model({.vocab_size = 259, .hidden_size = 16, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 64});
  generator gen(model, 2);
  const std::vector<std::vector<token>> prompts{bytes.encode("a"), bytes.encode("b"), bytes.encode("c")};
  const std::vector<std::string> texts{"one two END three", "only EN", "x\n\ny"};
  stop_text ends(bytes, prompts, {"\n\n", "END"});
  generate_config how{.max_new_tokens = 17};
  how.on_token = [&](std::size_t i, token t) { return ends.push(i, t); };
  std::map<char, std::size_t> of{{'a', 0}, {'b', 1}, {'c', 2}};
  how.processor = [&](std::span<const token> so_far, std::span<float> logits) {
    const std::string text = bytes.decode(so_far);
    const std::string& wanted = texts[of[text[0]]];
    std::fill(logits.begin(), logits.end(), -INFINITY);
    logits[static_cast<std::size_t>(bytes.encode(text.size() - 1 < wanted.size() ? wanted.substr(text.size() - 1, 1) : "E").front())] = 0;
  };
  (void)gen.generate(prompts, how);
  CHECK(ends.finish(0) == "one two ");
  CHECK(ends.finish(1) == "only EN" + std::string(10, 'E'));
  CHECK(ends.finish(2) == "x");
  CHECK(ends.ended(0));
  CHECK(!ends.ended(1));
  // a possible beginning of a stop string is held back
  text_until held({"END", "\n\n"});
  CHECK(held.push("a E") == "a ");
  CHECK(held.push("N") == "");
  CHECK(held.push("O\n") == "ENO");
  CHECK(held.push("\nb") == "");
  CHECK(held.ended());
  CHECK(held.finish() == "");
  text_until none({});
  CHECK(none.push("abc") == "abc");
  CHECK_THROWS_AS(text_until({""}), config_error);
}

TEST_CASE("a real model tells its story exactly") {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const tokenizer t = load_tokenizer(folder + "/tok512.model");
  auto model = llama<plain>::from_pretrained(folder + "/hf");
  generator gen(model);
  const auto prompt = t.encode_prompt("");
  std::string streamed;
  streaming_decoder decoder(t, prompt);
  const auto tokens = gen.generate(prompt, {.max_new_tokens = 200, .on_token = [&](std::size_t, token next) {
                                              streamed += decoder.push(next);
                                              return true;
                                            }});
  streamed += decoder.finish();
  CHECK(tokens.size() == 200);
  CHECK(t.decode(tokens) == get_file(folder + "/golden_greedy_200.txt"));
  CHECK(streamed == get_file(folder + "/golden_greedy_200.txt"));
}
