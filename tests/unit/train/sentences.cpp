// Encoders trained on sentence datasets: masked tokens, and labels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/eval/accuracy.hpp>
#include <xtrain/eval/logits.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};
using model_type = bert_pretraining<plain>;

encoder_config sizes() {
  return {.vocab_size = 30,
          .hidden_size = 24,
          .num_layers = 1,
          .num_heads = 2,
          .intermediate_size = 32,
          .max_position_embeddings = 16,
          .initializer_range = 0.1};
}
training_config<adamw> settings(std::size_t steps) {
  return {.max_steps = steps, .micro_batch_size = 4, .seq_length = 16, .learning_rate = 3e-3, .lr_schedule = lr_schedule_kind::constant};
}
/// Sequences repeat one token; the label is its id's parity.
sentence_dataset counting(bool with_words) {
  sentence_dataset all("numbers");
  if (with_words) all.masking = word_masking{.mask = 4, .vocab_size = 30};
  for (token row = 0; row < 61; ++row) {
    sentence_row one;
    const token word = 5 + row % 25;
    one.label = word % 2;
    one.add(2, false);
    for (token i = 0; i < 6 + row % 8; ++i) one.add(word, true);
    one.add(3, false);
    all.add(one);
  }
  all.finish();
  return all;
}
std::vector<float> weights_of(const model_type& model) {
  const auto host = model.parameters().trained_values().host();
  return {host.begin(), host.end()};
}

}  // namespace

TEST_CASE("an encoder learns words and labels, and is judged by both") {
  model_type model(sizes());
  const sentence_dataset data = counting(true);
  trainer trainer(model, settings(500));
  const double before = trainer.evaluate(data).loss;
  CHECK(before == doctest::Approx(std::log(30.0) + std::log(2.0)).epsilon(0.05));  // untrained
  trainer.fit(data, &data);
  CHECK(trainer.evaluate(data).loss < before - 0.8);
  const label_accuracy found = accuracy(model, counting(false));
  CHECK(found.rows == 61);
  CHECK(found.share() > 0.9);
}

TEST_CASE("an encoder refuses a batch without tokens, and needs no positions") {
  model_type model(sizes());
  trainer trainer(model, settings(5));
  for (const host_batch& rows : {host_batch{.b = 2, .t = 0}, host_batch{.b = 0, .t = 8}, host_batch{}}) {
    const char* why = "a batch must have at least one sequence of at least one token; given ";
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3), doctest::Contains(why), data_error);
    if (rows.b == 0) {  // no sequences, no logits
      CHECK(logits(model, rows).size() + label_logits(model, rows).size() == 0);
      continue;
    }
    CHECK_THROWS_WITH_AS((void)logits(model, rows), doctest::Contains(why), data_error);
    CHECK_THROWS_WITH_AS((void)label_logits(model, rows), doctest::Contains(why), data_error);
  }
  host_batch rows{.b = 1, .t = 4, .tokens = {2, 7, 7, 3}};
  const auto without = logits(model, rows);
  rows.positions = {0, 1, 2, 3};
  const auto placed = logits(model, rows);
  CHECK(std::equal(without.begin(), without.end(), placed.begin()));
}

TEST_CASE("an evaluation is the mean over words plus the mean over labels, whatever the batches") {
  model_type model(sizes());
  const sentence_dataset data = counting(true);
  trainer trainer(model, settings(1));
  const sentence_loader rows(data, {.micro_batch_size = 61, .seq_length = 16, .shuffle = false});  // one batch, same masks
  std::vector<host_batch> all;
  rows.fill({0, 0}, all);
  const auto words = logits(model, all.front());
  const auto labels = label_logits(model, all.front());
  const auto loss_of = [](auto&& at, std::size_t classes, token target) {
    double sum = 0;
    for (std::size_t v = 0; v < classes; ++v) sum += std::exp(static_cast<double>(at(v)));
    return std::log(sum) - static_cast<double>(at(static_cast<std::size_t>(target)));
  };
  double of_words = 0, of_labels = 0;
  for (std::size_t r = 0; r < 61; ++r) {
    of_labels += loss_of([&](std::size_t v) { return labels(r, v); }, 2, all.front().labels[r]);
    for (std::size_t i = 0; i < all.front().t; ++i)
      if (const token target = all.front().targets[r * all.front().t + i]; target >= 0)
        of_words += loss_of([&](std::size_t v) { return words(r, i, v); }, 30, target);
  }
  const evaluation found = trainer.evaluate(data);
  CHECK(found.targets == all.front().target_count);
  CHECK(found.loss == doctest::Approx(of_words / static_cast<double>(found.targets) + of_labels / 61).epsilon(1e-5));
}

TEST_CASE("the mean of micro-batches is that of their own means, over words and over labels") {
  const sentence_dataset data = counting(true);
  model_type model(sizes());
  auto c = settings(1);
  c.gradient_accumulation_steps = 3;
  const sentence_loader rows(data, {.micro_batch_size = 4, .gradient_accumulation_steps = 3, .seq_length = 16, .shuffle = false});
  std::vector<host_batch> batches;
  rows.fill({0, 0}, batches);
  batches[1].labels.assign(4, -1);  // words only
  batches[1].labels[0] = 1;
  batches[2].targets.assign(batches[2].b * batches[2].t, -1);  // labels only
  batches[2].target_count = 0;
  const auto gradients_of = [&](loss_average average, std::span<const host_batch> some, double& loss) {
    c.average_loss = average;
    trainer trainer(model, c);
    loss = trainer.step(some, 0.0).loss;
    const auto all = model.parameters().gradients().host();
    return std::vector<float>(all.begin(), all.end());
  };
  double found = 0, expected = 0;
  const std::vector<float> means = gradients_of(loss_average::micro_batch, batches, found);
  std::vector<double> sums(means.size());
  for (const host_batch& batch : batches) {
    double own = 0;
    const std::vector<float> gradients = gradients_of(loss_average::step, std::span(&batch, 1), own);
    expected += own / 3;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(gradients[i]) / 3;
  }
  CHECK(found == doctest::Approx(expected).epsilon(1e-6));
  double most = 0, size = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    most = std::max(most, std::abs(sums[i] - static_cast<double>(means[i])));
    size = std::max(size, std::abs(sums[i]));
  }
  CHECK(size > 0.01);
  CHECK(most < 1e-6 * size + 1e-7);  // sums in another order
}

TEST_CASE("a run that was interrupted in an epoch goes on to the same weights, bit for bit") {
  const sentence_dataset data = counting(true);
  model_type whole(sizes());
  trainer whole_run(whole, settings(40));
  whole_run.fit(data);
  const scratch_folder folder;
  {
    model_type first(sizes());
    trainer half(first, settings(40));
    checkpoint_folder checkpoints(half, folder.path(), {.save_steps = 25});
    half.attach(checkpoints);
    half.fit(data);
  }
  model_type again(sizes());
  trainer rest(again, settings(40));
  checkpoint_folder checkpoints(rest, folder.path());
  REQUIRE(checkpoints.resume());
  CHECK(rest.progress().step == 25);
  rest.fit(data);
  CHECK(weights_of(again) == weights_of(whole));
}

TEST_CASE("data that does not fit an encoder is refused") {
  model_type model(sizes());
  trainer trainer(model, settings(1));
  sentence_dataset other("other");
  other.masking = word_masking{.mask = 4, .vocab_size = 31};
  sentence_row row;
  row.add(5, true);
  other.add(row);
  other.finish();
  CHECK_THROWS_WITH_AS(trainer.fit(other), doctest::Contains("a vocabulary of 31, which must not be larger than the model's 30"), data_error);
  sentence_dataset third("third");
  row.label = 2;
  third.add(row);
  third.finish();
  CHECK_THROWS_WITH_AS(trainer.fit(third), doctest::Contains("labels must be below 2; given 2"), data_error);
}
