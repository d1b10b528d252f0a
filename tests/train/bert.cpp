// BERT against transformers: masked tokens, sequence labels, padding.
#include <doctest/doctest.h>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/models/bert.hpp>
#include "parity.hpp"

using namespace parity;

namespace {

/// The sequences of a fixture: two sentences each, padded.
struct fixture_rows {
  std::size_t b, t;
  std::vector<token> tokens, segments, mask, targets, labels;

  /// `first`: index of the first sequence.
  fixture_rows(const safetensors_file& file, const std::string& at, std::size_t first, std::size_t rows, std::size_t places)
      : b(rows), t(places), tokens(read(file, at + "inputs", first * t, b * t)), segments(read(file, at + "token_types", first * t, b * t)),
        mask(read(file, at + "mask", first * t, b * t)), labels(read(file, at + "labels", first, b)) {
    if (file.find(at + "targets") != nullptr) targets = read(file, at + "targets", first * t, b * t);
  }
  [[nodiscard]] host_batch batch() const {
    return sentence_batch({.b = b, .t = t, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets, .labels = labels});
  }

 private:
  static std::vector<token> read(const safetensors_file& file, const std::string& name, std::size_t first, std::size_t count) {
    const auto all = golden::numbers(file, name);
    std::vector<token> values;
    for (std::size_t i = first; i < first + count; ++i) values.push_back(static_cast<token>(all[i]));
    return values;
  }
};

template <template <class> class Family>
void check_bert(const std::string& name) {
  const safetensors_file expected(golden::folder(name) + "/expected.safetensors");
  for (const std::size_t t : {1U, 7U, 33U}) {
    const std::string at = concat("t", t, ".");
    auto model = Family<fp32_recipe>::from_pretrained(golden::folder(name));
    const host_batch rows = fixture_rows(expected, at, 0, 2, t).batch();
    const bool has_words = expected.find(at + "targets") != nullptr;
    if constexpr (!std::is_same_v<Family<fp32_recipe>, bert_classifier<fp32_recipe>>) {
      const auto words = logits(model, rows);
      require_close({words.begin(), words.end()}, golden::numbers(expected, at + "logits"), fp32_logits, at + "logits");
    }
    const auto labels = label_logits(model, rows);
    require_close({labels.begin(), labels.end()}, golden::numbers(expected, at + (has_words ? "sentence_logits" : "logits")), fp32_logits,
                  at + "label logits");

    trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = t, .max_grad_norm = 0.0});
    const step_done done = trainer.step(std::span<const host_batch>(&rows, 1), 0.0);
    CHECK(done.loss == doctest::Approx(golden::numbers(expected, at + "loss")[0]).epsilon(1e-5));
    if (t == 1) continue;
    for (const auto& entry : model.parameters().entries())
      require_close(doubles(model.parameters().gradient(entry).host()), golden::numbers(expected, at + "grad." + entry.spec.name),
                    fp32_gradients, at + entry.spec.name);
  }
}

/// `pieces` micro-batches per step: losses are averaged over the labels of the global batch.
template <template <class> class Family>
void check_fifty_bert_steps(const std::string& name, std::size_t pieces) {
  const safetensors_file expected(golden::folder(name) + "/expected.safetensors");
  const auto reference = golden::numbers(expected, "steps.losses");
  auto model = Family<fp32_recipe>::from_pretrained(golden::folder(name));
  trainer trainer(model, {.max_steps = 50,
                          .micro_batch_size = 4 / pieces,
                          .gradient_accumulation_steps = pieces,
                          .seq_length = 16,
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                          .max_grad_norm = 1.0});
  double error = 0;
  for (std::size_t step = 0; step < 50; ++step) {
    std::vector<host_batch> batches;
    for (std::size_t piece = 0; piece < pieces; ++piece)
      batches.push_back(fixture_rows(expected, "steps.", step * 4 + piece * (4 / pieces), 4 / pieces, 16).batch());
    const step_done done = trainer.step(std::span<const host_batch>(batches), 2e-3);
    error = std::max(error, std::abs(done.loss - reference[step]));
  }
  MESSAGE(name, ": largest difference of a step's loss from PyTorch's: ", error);
  CHECK(error < 1e-4);
}

}  // namespace

TEST_CASE("bert's pre-training is transformers'") {
  check_bert<bert_pretraining>("bert_pretraining");
  check_fifty_bert_steps<bert_pretraining>("bert_pretraining", 1);
  check_fifty_bert_steps<bert_pretraining>("bert_pretraining", 2);
  check_saved_again<bert_pretraining>("bert_pretraining");
}

TEST_CASE("bert's classification of rows is transformers'") {
  check_bert<bert_classifier>("bert_classification");
  check_fifty_bert_steps<bert_classifier>("bert_classification", 1);
  check_fifty_bert_steps<bert_classifier>("bert_classification", 4);
  check_saved_again<bert_classifier>("bert_classification");
}

TEST_CASE("adapters of bert give peft's logits") {
  const auto rows_of = [](const safetensors_file& file) { return fixture_rows(file, "", 0, 2, 9).batch(); };
  const safetensors_file of_words(golden::folder("bert_pretraining_lora") + "/expected.safetensors");
  check_beside<bert_pretraining<parity::lora_recipe>>("bert_pretraining", "bert_pretraining_lora", [&](auto& model, const std::string& what) {
    const auto words = logits(model, rows_of(of_words));
    require_close({words.begin(), words.end()}, golden::numbers(of_words, "logits"), fp32_logits, what);
    const auto labels = label_logits(model, rows_of(of_words));
    require_close({labels.begin(), labels.end()}, golden::numbers(of_words, "sentence_logits"), fp32_logits, what);
  });
  // peft also trains the classifier and saves it under two names; a model has one
  const safetensors_file of_labels(golden::folder("bert_classification_lora") + "/expected.safetensors");
  const auto says_as_peft = [&](auto& model, const std::string& what) {
    const auto labels = label_logits(model, rows_of(of_labels));
    require_close({labels.begin(), labels.end()}, golden::numbers(of_labels, "logits"), fp32_logits, what);
  };
  check_beside<bert_classifier<parity::lora_recipe>>("bert_classification", "bert_classification_lora", says_as_peft);
  auto plain = bert_classifier<fp32_recipe>::from_pretrained(golden::folder("bert_classification"));
  merge_adapter(plain, golden::folder("bert_classification_lora"));
  says_as_peft(plain, "merged from its folder");
}

TEST_CASE("DoRA of bert begins with the base") {
  const safetensors_file expected(golden::folder("bert_classification") + "/expected.safetensors");
  auto model = bert_classifier<parity::lora_recipe>::from_pretrained(golden::folder("bert_classification"), {}, {.adapter = {.dora = true}});
  const auto labels = label_logits(model, fixture_rows(expected, "t7.", 0, 2, 7).batch());
  require_close({labels.begin(), labels.end()}, golden::numbers(expected, "t7.logits"), fp32_logits, "labels");
}
