// An encoder on several ranks equals one device.
#include <doctest/doctest.h>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/parallel/zero.hpp>
#include "pipelines.hpp"

namespace {

encoder_config small() {
  return {.vocab_size = 61, .hidden_size = 24, .num_layers = 4, .num_heads = 2, .intermediate_size = 40, .max_position_embeddings = 16, .labels = {"a", "b"}};
}

/// Sequences [first, first + count) of a batch: masked tokens, a label per sequence.
host_batch some_rows(std::size_t first, std::size_t count) {
  constexpr std::size_t t = 12;
  std::vector<token> tokens, segments, mask, targets, labels;
  for (std::size_t r = first; r < first + count; ++r) {
    labels.push_back(static_cast<token>(r % 2));
    for (std::size_t i = 0; i < t; ++i) {
      const bool there = i < t - r % 3;
      tokens.push_back(there ? static_cast<token>((r * 13 + i * 7) % 61) : 0);
      segments.push_back(i > 4 ? 1 : 0);
      mask.push_back(there ? 1 : 0);
      targets.push_back(there && i % 4 == 1 ? static_cast<token>((r + i) % 61) : -1);
    }
  }
  host_batch rows = sentence_batch({.b = count, .t = t, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets, .labels = labels});
  rows.first_sequence = first;
  return rows;
}

struct encoder_run {
  std::vector<double> losses, norms, weights;
  double held_out = 0;
};

/// Four steps of four sequences; all ranks have the same result. `data` ranks, pipelines or tensor-parallel groups share the sequences.
template <class Parallel, template <class> class Encoder = bert_pretraining, template <class> class Recipe = recipe>
encoder_run trained(std::size_t ranks, std::size_t data, std::size_t micro_batches, pipeline_ranks layout = {},
                    const typename Recipe<Parallel>::adapter::config& adapter = {}) {
  std::vector<encoder_run> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = Encoder<Recipe<Parallel>>;
    typename model_type::options options;
    options.adapter = adapter;
    if constexpr (requires { options.parallel.chunks; }) options.parallel = layout;
    else if constexpr (requires { options.parallel.tensor_parallel_size; }) options.parallel.tensor_parallel_size = layout.tensor_parallel_size;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    encoder_config shape = small();
    shape.residual_dropout = shape.attention_dropout = 0.1;
    model_type model(shape, {}, options);
    const std::size_t each = 4 / data / micro_batches;
    trainer trainer(model, training_config<adamw>{
                               .max_steps = 4, .micro_batch_size = each, .gradient_accumulation_steps = micro_batches, .seq_length = 12, .max_grad_norm = 0.5});
    encoder_run& mine = all[network->rank()];
    const std::size_t member = data == 1 ? 0 : network->rank() / (ranks / data);
    for (int step = 0; step < 4; ++step) {
      std::vector<host_batch> batches;
      for (std::size_t i = 0; i < micro_batches; ++i) batches.push_back(some_rows((member * micro_batches + i) * each, each));
      const auto seen = trainer.step(std::span<const host_batch>(batches), 1e-3);
      mine.losses.push_back(seen.loss);
      mine.norms.push_back(seen.gradient_norm);
    }
    mine.weights = collected(model);
  });
  for (const encoder_run& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.norms == all[0].norms);
  }
  return all[0];
}

void is_near(const encoder_run& one, const encoder_run& other) {
  CHECK(difference(one.losses, other.losses) < 2e-5);
  CHECK(difference(one.norms, other.norms) < 1e-4);
  CHECK(difference(one.weights, other.weights) < 2e-5);
}

}  // namespace

TEST_CASE("masked tokens and labels, with dropout, on data-parallel ranks") {
  const encoder_run one = trained<single>(1, 1, 1);
  CHECK(one.norms[0] > 0.5);
  is_near(one, trained<data_parallel>(2, 2, 1));
  is_near(one, trained<zero<3>>(2, 2, 1));
  is_near(one, trained<zero<2>>(4, 4, 1));
}

TEST_CASE("tensor and sequence parallelism") {
  const encoder_run one = trained<single>(1, 1, 1);
  is_near(one, trained<tensor_parallel>(2, 1, 1, {.tensor_parallel_size = 2}));
  is_near(one, trained<parallel<zero<1>, sequence_parallel>>(4, 2, 1, {.tensor_parallel_size = 2}));
  const encoder_run classified = trained<single, bert_classifier>(1, 1, 1);
  is_near(classified, trained<parallel<zero<1>, sequence_parallel>, bert_classifier>(4, 2, 1, {.tensor_parallel_size = 2}));
}

TEST_CASE("LoRA with dropout on every linear layer, the pooler of sequences among them, in one micro-batch and in two") {
  const lora_config adapter{.rank = 3, .dropout = 0.3, .targets = {"query", "value", "dense"}};
  const encoder_run one = trained<single, bert_classifier, lora_recipe>(1, 1, 1, {}, adapter);
  is_near(one, trained<single, bert_classifier, lora_recipe>(1, 1, 2, {}, adapter));
  is_near(one, trained<sequence_parallel, bert_classifier, lora_recipe>(2, 1, 2, {.tensor_parallel_size = 2}, adapter));
  is_near(one, trained<parallel<zero<1>, tensor_parallel>, bert_classifier, lora_recipe>(4, 2, 1, {.tensor_parallel_size = 2}, adapter));
}

TEST_CASE("pipelines, with tensor parallelism and a backward in two parts") {
  const encoder_run one = trained<single>(1, 1, 2);
  is_near(one, trained<pipeline<>>(3, 1, 2));
  is_near(one, trained<pipeline<zero_bubble, parallel<zero<2>, sequence_parallel>>>(4, 1, 2, {.tensor_parallel_size = 2}));
}

namespace {

/// Sequences of different lengths, with masked tokens and labels.
sentence_dataset labelled_sentences() {
  sentence_dataset all("sentences");
  all.masking = word_masking{.mask = 4, .vocab_size = 61};
  for (token s = 0; s < 24; ++s) {
    sentence_row one;
    one.label = s % 2;
    for (token i = 0; i < 5 + s % 7; ++i) one.add((s * 13 + i * 7) % 55 + 5, true);
    all.add(one);
  }
  all.finish();
  return all;
}

/// fit and evaluate: losses of steps and held-out sequences; all ranks agree.
template <class Parallel>
std::vector<double> fitted(std::size_t ranks, std::size_t data, const pipeline_ranks& layout) {
  std::vector<std::vector<double>> all(ranks);
  const sentence_dataset sequences = labelled_sentences();
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = bert_pretraining<recipe<Parallel>>;
    typename model_type::options options;
    if constexpr (requires { options.parallel.chunks; }) options.parallel = layout;
    else if constexpr (requires { options.parallel.tensor_parallel_size; }) options.parallel.tensor_parallel_size = layout.tensor_parallel_size;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    model_type model(small(), {}, options);
    trainer trainer(model, training_config<adamw>{
                               .max_steps = 5, .micro_batch_size = 2, .gradient_accumulation_steps = 2 / data, .seq_length = 16, .learning_rate = 1e-3});
    history seen;
    trainer.attach(seen);
    trainer.fit(sequences, &sequences);
    std::vector<double>& mine = all[network->rank()];
    mine.assign(seen.losses().begin(), seen.losses().end());
    mine.push_back(trainer.evaluate(sequences).loss);
  });
  for (const std::vector<double>& one : all) CHECK(one == all[0]);
  return all[0];
}

}  // namespace

TEST_CASE("a dataset, fitted and evaluated: in pipelines, and under sequence parallelism beside data parallelism") {
  const std::vector<double> one = fitted<single>(1, 1, {});
  CHECK(difference(one, fitted<pipeline<>>(2, 1, {})) < 2e-5);
  CHECK(difference(one, fitted<pipeline<>>(4, 2, {.data_parallel_size = 2})) < 2e-5);
  CHECK(difference(one, fitted<parallel<zero<1>, sequence_parallel>>(4, 2, {.tensor_parallel_size = 2})) < 2e-5);
}
