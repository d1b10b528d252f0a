#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/parallel.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

template <class Parallel>
struct on : defaults {
  using parallel = Parallel;
};

std::vector<std::vector<token>> prompts() {
  std::vector<std::vector<token>> all;
  for (const std::size_t length : {4U, 11U, 1U, 7U, 19U}) {
    std::vector<token> one;
    for (std::size_t i = 0; i < length; ++i) one.push_back(static_cast<token>((length + 7 * i * i) % 67));
    all.push_back(one);
  }
  return all;
}

const generate_config sampled{.max_new_tokens = 9, .sampling = {.temperature = 1.2, .top_k = 20, .seed = 5}, .stop = {3}, .log_probs = true};
generate_config beams() {
  generate_config how{.max_new_tokens = 9, .stop = {3}, .num_return_sequences = 2};
  how.beams.num_beams = 3;
  return how;
}

/// Every rank of a run from a folder generates the sequences of one rank.
template <class Parallel>
void equals_one(std::size_t ranks, typename Parallel::config layout) {
  const std::string folder = golden::folder("llama_grouped_untied");
  auto alone = llama<on<single>>::from_pretrained(folder);
  generator one(alone, 3);
  const auto expected = one.generate_sequences(prompts(), sampled), found = one.generate_sequences(prompts(), beams());
  std::vector<std::vector<generated_sequence>> all(ranks), searched(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    own.ranks = network;
    auto model = llama<on<Parallel>>::from_pretrained(folder, {}, {.parallel = own});
    generator gen(model, 3);
    all[network->rank()] = gen.generate_sequences(prompts(), sampled);
    searched[network->rank()] = gen.generate_sequences(prompts(), beams());
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(all[rank][i].tokens == expected[i].tokens);
      CHECK(all[rank][i].stop == expected[i].stop);
      CHECK(all[rank][i].log_probs == all[0][i].log_probs);
      for (std::size_t k = 0; k < expected[i].log_probs.size(); ++k)  // sums of 32 products in another order
        CHECK(std::abs(all[rank][i].log_probs[k] - expected[i].log_probs[k]) < 1e-5);
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(searched[rank][i].tokens == found[i].tokens);
      CHECK(std::abs(searched[rank][i].score - found[i].score) < 1e-5);
    }
  }
}

}  // namespace

TEST_CASE("tensor-parallel ranks generate what one rank does") {
  equals_one<tensor_parallel>(2, {.tensor_parallel_size = 2});
  equals_one<sequence_parallel>(2, {.tensor_parallel_size = 2});
}

TEST_CASE("so do ranks that gather their weights in every pass") { equals_one<zero<3>>(2, {}); }

TEST_CASE("so do the stages of a pipeline, and of one whose ranks have several stages") {
  equals_one<pipeline<>>(2, {});
  equals_one<pipeline<interleaved>>(2, {.chunks = 2, .stage_layers = {0, 1, 1, 0}});
  equals_one<pipeline<interleaved>>(1, {.chunks = 2});  // one rank has one stage, and nothing to send to itself
}

TEST_CASE("and both together") { equals_one<pipeline<one_forward_one_backward, parallel<data_parallel, tensor_parallel>>>(4, {.tensor_parallel_size = 2}); }

TEST_CASE("ranks that have only a part of each sequence are refused") {
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    llama<on<context_parallel>> model({.vocab_size = 9, .hidden_size = 8, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 8}, {},
                                      {.parallel = {.ranks = network, .context_parallel_size = 2}});
    CHECK_THROWS_WITH_AS(generator{model}, doctest::Contains("every rank must have whole sequences; given are 2 context-parallel ranks"), config_error);
  });
}
