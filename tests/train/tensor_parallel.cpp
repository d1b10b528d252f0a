#include <doctest/doctest.h>

#include <xtrain/eval/logits.hpp>
#include <xtrain/models/baichuan.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gemma.hpp>
#include <xtrain/models/gemma2.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/qwen3.hpp>
#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

using run = training_config<adamw>;

template <class Model>
outcome train_divided(std::size_t ranks, std::size_t tensor, const dataset& data, const decoder_config& shape, const run& settings) {
  std::vector<outcome> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    all[network->rank()] = train<Model>(data, shape, settings, {.parallel = {.ranks = network, .tensor_parallel_size = tensor}});
  });
  for (const outcome& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.held_out == all[0].held_out);
  }
  return all[0];
}

template <template <class> class Recipe, template <class> class Family, class Divided = tensor_parallel>
void equals_one(decoder_config shape, std::size_t ranks, std::size_t tensor) {
  const dataset data = sentences();
  const run settings{.max_steps = 8,
                     .micro_batch_size = 2,
                     .gradient_accumulation_steps = 2,
                     .learning_rate = 1e-3,
                     .average_loss = shape.tie_word_embeddings ? loss_average::micro_batch : loss_average::step};
  run cut = settings;
  cut.gradient_accumulation_steps = settings.gradient_accumulation_steps * tensor / ranks;
  const outcome one = train<Family<Recipe<single>>>(data, shape, settings, {});
  const outcome divided = train_divided<Family<Recipe<Divided>>>(ranks, tensor, data, shape, cut);
  CHECK(difference(one.losses, divided.losses) < 2e-5);
  CHECK(std::abs(one.held_out - divided.held_out) < 2e-5);
}

decoder_config four_heads(bool tied) {
  decoder_config shape = sizes(tied);
  shape.num_heads = 4;
  return shape;
}

}  // namespace

TEST_CASE("llama and gpt2, with dropout, on two and four ranks") {
  for (const std::size_t ranks : {2U, 4U}) {
    equals_one<recipe, llama>(four_heads(false), ranks, ranks);
    equals_one<recipe, gpt2>(four_heads(true), ranks, ranks);
  }
}

TEST_CASE("fewer key/value heads than ranks, linear biases") {
  decoder_config shape = four_heads(false);
  shape.num_kv_heads = 2;
  equals_one<recipe, llama>(shape, 2, 2);
  equals_one<recipe, llama>(shape, 4, 4);
  shape = four_heads(true);
  shape.intermediate_size = 4 * shape.hidden_size;
  equals_one<recipe, bloom>(shape, 2, 2);
}

TEST_CASE("a head with normalized weights and a z-loss, of a vocabulary that does not divide evenly") {
  decoder_config shape = four_heads(false);
  shape.normalized_head = true;
  shape.z_loss = 0.02;
  shape.initializer_range = 0.3;
  equals_one<recipe, baichuan>(shape, 2, 2);
  equals_one<recipe, baichuan, sequence_parallel>(shape, 4, 4);
}

TEST_CASE("beside data-parallel ranks") {  // more cases, with LoRA and recomputation: equality/
  equals_one<recipe, llama, parallel<zero<1>, tensor_parallel>>(four_heads(false), 4, 2);
  equals_one<lora_recipe, llama, parallel<zero<2>, tensor_parallel>>(four_heads(false), 4, 2);
}

TEST_CASE("what cannot be divided is refused with the numbers") {
  const auto refused = [](const decoder_config& shape, std::size_t ranks, std::size_t tensor) -> std::string {
    std::string said;
    try {
      run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
        const llama<recipe<tensor_parallel>> model(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = tensor}});
      });
    } catch (const config_error& problem) {
      said = problem.what();
    }
    return said;
  };
  CHECK(refused(four_heads(false), 3, 3) == "tensor: 3 tensor-parallel ranks must have equal shards of a layer; 4 heads are not divisible by 3");
  CHECK(refused(four_heads(false), 4, 3) == "parallel: ranks must be a multiple of tensor; given 4 ranks and tensor 3");
  decoder_config shape = four_heads(false);
  shape.intermediate_size = 42;
  CHECK(refused(shape, 4, 4) == "tensor: 4 tensor-parallel ranks must have equal shards of a layer; 42 intermediate channels are not divisible by 4");
  shape = four_heads(false);
  shape.vocab_size = 5;  // two tokens each: the last rank has none
  shape.pad_token_id = {};
  CHECK(refused(shape, 4, 4) == "tensor: every one of the 4 tensor-parallel ranks must have a part of 'model.embed_tokens'; given a vocabulary of 5");
}

TEST_CASE("normalized heads, scaled embeddings, softcaps and normalized branches: also under sequence parallelism") {
  decoder_config shape = four_heads(true);
  shape.num_kv_heads = 2;
  equals_one<recipe, qwen3>(shape, 2, 2);
  equals_one<recipe, qwen3>(shape, 4, 4);  // fewer key/value heads than ranks
  equals_one<recipe, qwen3, sequence_parallel>(shape, 2, 2);
  equals_one<recipe, gemma>(shape, 2, 2);
  equals_one<recipe, gemma, sequence_parallel>(shape, 2, 2);
  shape.sliding_window = 4;
  shape.attn_logit_softcapping = 0.5;
  shape.final_logit_softcapping = 2.0;
  shape.initializer_range = 0.2;
  equals_one<recipe, gemma2>(shape, 2, 2);
  equals_one<recipe, gemma2, sequence_parallel>(shape, 2, 2);
}

TEST_CASE("a decoder whose block is arranged otherwise") {
  decoder_config shape = four_heads(true);
  shape.hidden_size = 32;  // head_dim must be divisible by 4
  shape.residual_dropout = 0;
  shape.bos = 3;
  equals_one<recipe, chatglm1>(shape, 2, 2);
}

TEST_CASE("LoRA with dropout, and DoRA; a row-parallel layer's rows are not whole, and DoRA says so") {
  const dataset data = sentences();
  const run settings{.max_steps = 6, .micro_batch_size = 2, .learning_rate = 1e-2};
  const auto equals_one = [&]<class Divided>(const Divided&, const lora_config& adapter, const decoder_config& shape) {
    const outcome one = train<llama<lora_recipe<single>>>(data, shape, settings, {.adapter = adapter});
    std::vector<outcome> all(2);
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      all[network->rank()] = train<llama<lora_recipe<Divided>>>(
          data, shape, settings, {.adapter = adapter, .parallel = {.ranks = network, .tensor_parallel_size = 2}});
    });
    for (const outcome& divided : all) {
      CHECK(difference(one.losses, divided.losses) < 2e-5);
      CHECK(std::abs(one.held_out - divided.held_out) < 2e-5);
    }
  };
  decoder_config shape = four_heads(false);
  const lora_config dropping{.rank = 4, .alpha = 16, .dropout = 0.3, .targets = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}};
  equals_one(tensor_parallel{}, dropping, shape);
  equals_one(sequence_parallel{}, dropping, shape);
  lora_config decomposed{.rank = 4, .alpha = 16, .dropout = 0.3, .targets = {"q_proj", "k_proj", "v_proj", "up_proj"}, .dora = true};
  equals_one(tensor_parallel{}, decomposed, shape);
  shape.num_kv_heads = 1;  // both ranks have the same keys and values
  equals_one(sequence_parallel{}, decomposed, shape);
  decomposed.targets = {"o_proj"};
  std::string said;
  try {
    equals_one(tensor_parallel{}, decomposed, shape);
  } catch (const config_error& problem) {
    said = problem.what();
  }
  CHECK(said == "tensor: DoRA of 'model.layers.0.self_attn.o_proj' must have whole rows of the weight, whose lengths it trains; in this row-parallel layer "
                "the 24 inputs are sharded; choose other target modules");
}

TEST_CASE("memory and messages of a step") {
  constexpr std::size_t n = 4;
  decoder_config shape = four_heads(false);
  shape.vocab_size = 128;
  shape.hidden_size = 64;
  shape.intermediate_size = 128;
  shape.residual_dropout = shape.attention_dropout = 0;
  const dataset data = sentences();
  const run settings{.max_steps = 1, .micro_batch_size = 2, .seq_length = 24};
  const llama<recipe<single>> whole(shape);
  const double all = static_cast<double>(whole.parameters().count());
  run_ranks(n, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<tensor_parallel>> model(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = n}});
    trainer trainer(model, settings);
    const double own = static_cast<double>(model.parameters().count());
    CHECK(own < 1.05 * all / n);  // norms are replicated
    const std::size_t before = traffic_of(model.parallel()).of(traffic_role::tensor_parallel).bytes;
    host_batch rows{.b = 2, .t = 24};
    for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(48, 1);
    rows.starts.assign(48, 0);
    rows.target_count = rows.token_count = 48;
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    // all-reduces of [tokens, hidden_size]: two per layer in the forward, two in the backward, one of the embedding, one of the head's input gradient; for the
    // head three values per token from every rank to every rank; and the norm
    const double reduced = 48.0 * 64 * sizeof(float), reductions = 4.0 * static_cast<double>(shape.num_layers) + 2;
    const double expected = reductions * 2 * reduced * (n - 1) / n + 3.0 * 48 * sizeof(float) * (n - 1) + 8.0 * (n - 1);
    CHECK(static_cast<double>(traffic_of(model.parallel()).of(traffic_role::tensor_parallel).bytes - before) == expected);
  });
}

TEST_CASE("folders and checkpoints know tensors, not ranks") {
  const scratch_folder scratch;
  const dataset data = sentences();
  const decoder_config shape = four_heads(true);
  const run settings{.max_steps = 6, .micro_batch_size = 2, .learning_rate = 1e-3, .lr_schedule = lr_schedule_kind::constant};
  const auto steps = [&](std::size_t count, std::size_t accumulate) {
    run cut = settings;
    cut.max_steps = count;
    cut.gradient_accumulation_steps = accumulate;
    return cut;
  };
  const outcome uninterrupted = train<gpt2<recipe<single>>>(data, shape, steps(6, 2), {});
  const std::string folder = scratch / "run";
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    gpt2<recipe<parallel<zero<1>, tensor_parallel>>> model(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2}});
    trainer trainer(model, steps(3, 1));
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    trainer.attach(checkpoints);
    trainer.fit(data);
    trainer.save(scratch / "three");
  });
  {
    gpt2<recipe<single>> model(shape);
    trainer trainer(model, steps(6, 2));
    checkpoint_folder checkpoints(trainer, folder);
    CHECK(checkpoints.resume());
    // the four ranks' export equals the checkpoint's weights
    CHECK(all_weights(model) == all_weights(gpt2<recipe<single>>::from_pretrained(scratch / "three")));
    trainer.fit(data);
    CHECK(difference(uninterrupted.weights, all_weights(model)) < 2e-5);
  }
  // any number of ranks loads a folder: equal logits
  const auto one = gpt2<recipe<single>>::from_pretrained(scratch / "three");
  const array<token, 2> tokens{{1, 2, 3, 4, 5}, {9, 8, 7, 6, 5}};
  const auto expected = logits(one, tokens);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    auto model = gpt2<recipe<tensor_parallel>>::from_pretrained(scratch / "three", {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2}});
    const auto found = logits(model, tokens);
    double most = 0;
    for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, static_cast<double>(std::abs(found.data()[i] - expected.data()[i])));
    CHECK(most < 1e-5);
  });
}
