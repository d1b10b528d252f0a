#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <xtrain/eval/logits.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/text.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};
struct walled : defaults {
  using device = testing::isolated<cpu>;
};

decoder_config sizes(std::size_t context = 40) {
  return {.vocab_size = 50, .hidden_size = 16, .num_layers = 2, .num_heads = 2, .max_position_embeddings = context, .initializer_range = 0.5};
}

std::vector<token> prompt_of(std::size_t length, token first) {
  std::vector<token> tokens;
  for (std::size_t i = 0; i < length; ++i) tokens.push_back(static_cast<token>((static_cast<std::size_t>(first) + 7 * i * i) % 50));
  return tokens;
}

/// The most likely next tokens, with the whole text recomputed for every token: no cache.
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
void check_cache(std::size_t context, std::size_t prompt_length, std::size_t n) {
  Model model(sizes(context));
  generator gen(model);
  const auto prompt = prompt_of(prompt_length, 3);
  CHECK(gen.generate(prompt, {.max_new_tokens = n}) == greedy_without_cache(model, prompt, n));
}

}  // namespace

TEST_CASE("generating with a cache gives what running the whole text again gives") {
  check_cache<llama<plain>>(40, 5, 20);
  check_cache<gpt2<plain>>(40, 1, 20);
  check_cache<llama<plain>>(600, 530, 6);  // a prompt processed in several pieces
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
  const std::vector<std::vector<token>> prompts{with_context(5, 4), with_context(330, 11), prompt_of(4, 9)};  // the last has none
  const auto together = gen.generate(prompts, {.max_new_tokens = 12});
  for (std::size_t r = 0; r < 3; ++r) {
    CAPTURE(r);
    CHECK(together[r] == greedy_without_cache(model, prompts[r], 12));
  }
  // the first position of the bidirectional prefix attends to its last: changing the last token changes the first position's logits
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

TEST_CASE("isolated memory changes nothing") {
  llama<plain> a(sizes());
  llama<walled> b(sizes());
  generator in_reach(a);
  generator behind_a_wall(b);
  CHECK(in_reach.generate(prompt_of(4, 1), {.max_new_tokens = 10}) == behind_a_wall.generate(prompt_of(4, 1), {.max_new_tokens = 10}));
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

TEST_CASE("prompts that cannot be are refused") {
  llama<plain> model(sizes());
  generator gen(model);
  CHECK_THROWS_WITH_AS((void)gen.generate(std::vector<token>{}), doctest::Contains("prompt 1 has none"), data_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(std::vector<token>{1, 77}),
                       doctest::Contains("must be in the model's vocabulary of 50; prompt 1 has 77"), data_error);
  CHECK_THROWS_WITH_AS((void)gen.generate(prompt_of(41, 1)), doctest::Contains("must fit 40 tokens; prompt 1 has 41"), data_error);
  CHECK_THROWS_AS((void)gen.generate(std::vector<std::vector<token>>(2, {1})), data_error);
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
  // six times all weights but the embedding's rows, and keys and values of two layers of two heads of eight for 4 + 7, 5 + 8, ... tokens
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
