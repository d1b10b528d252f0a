// Models with more or fewer tokens than their files.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <xtrain/eval/logits.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};

template <class Model>
Model with_words(const std::string& fixture, std::size_t words) {
  auto sizes = read_sizes<typename Model::family>(golden::folder(fixture));
  sizes.vocab_size = words;
  return load_as<Model>(golden::folder(fixture), sizes, {}, {}, {.resize_vocabulary = true});
}
template <class Model>
std::vector<float> numbers_of(const Model& model, const std::string& name) {
  const auto* entry = model.parameters().find(name);
  REQUIRE(entry != nullptr);
  const auto host = model.parameters().value(*entry).host();
  return {host.begin(), host.end()};
}
/// The first rows equal `before`; each further row is their mean, rounded once.
void check_rows(const std::vector<float>& before, const std::vector<float>& after, std::size_t columns) {
  const std::size_t old = before.size() / columns;
  CHECK(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(std::min(before.size(), after.size())), after.begin()));
  for (std::size_t i = before.size(); i < after.size(); ++i) {
    double sum = 0;
    for (std::size_t row = 0; row < old; ++row) sum += static_cast<double>(before[row * columns + i % columns]);
    REQUIRE(after[i] == static_cast<float>(sum / static_cast<double>(old)));
  }
}
template <class Model>
void check_old_logits(Model& before, Model& after) {
  const array<token, 2> tokens = {{3, 1, 4, 1, 5}};
  const auto a = logits(before, tokens), b = logits(after, tokens);
  const std::size_t words = std::min(before.config().vocab_size, after.config().vocab_size);
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t v = 0; v < words; ++v) REQUIRE(a(0, t, v) == doctest::Approx(b(0, t, v)).epsilon(1e-6));
}

}  // namespace

TEST_CASE("new words are the mean of the old ones, in the embedding and in a head of its own, and old logits stay") {
  for (const std::string fixture : {"llama_tied", "llama_grouped_untied"}) {
    auto before = llama<plain>::from_pretrained(golden::folder(fixture));
    const std::size_t words = before.config().vocab_size, width = before.config().hidden_size;
    auto more = with_words<llama<plain>>(fixture, words + 7), fewer = with_words<llama<plain>>(fixture, words - 7);
    for (const auto& entry : before.parameters().entries()) {
      const bool resized = before.has_row_per_token(entry.spec.name);
      CAPTURE(entry.spec.name);
      if (!resized) CHECK(numbers_of(more, entry.spec.name) == numbers_of(before, entry.spec.name));
      else check_rows(numbers_of(before, entry.spec.name), numbers_of(more, entry.spec.name), width);
      if (resized) CHECK(numbers_of(fewer, entry.spec.name).size() == (words - 7) * width);
    }
    check_old_logits(before, more);
    check_old_logits(before, fewer);
    CHECK((more.parameters().find("lm_head.weight") == nullptr) == (fixture == "llama_tied"));  // tied weights stay tied
  }
}

TEST_CASE("a saved folder has the new words, and is an ordinary one") {
  const scratch_folder folder;
  auto more = with_words<llama<plain>>("llama_tied", padded_vocabulary(40, 64));
  save_pretrained(more, folder.path());
  CHECK(read_config(folder.path()).size({"vocab_size"}) == 64);
  auto again = llama<plain>::from_pretrained(folder.path());
  CHECK(numbers_of(again, "model.embed_tokens.weight") == numbers_of(more, "model.embed_tokens.weight"));
}

TEST_CASE("an encoder's words have a bias each, which is resized as well") {
  const auto before = bert_pretraining<plain>::from_pretrained(golden::folder("bert_pretraining"));
  const auto more = with_words<bert_pretraining<plain>>("bert_pretraining", before.config().vocab_size + 3);
  check_rows(numbers_of(before, "cls.predictions.bias"), numbers_of(more, "cls.predictions.bias"), 1);
  check_rows(numbers_of(before, "bert.embeddings.word_embeddings.weight"), numbers_of(more, "bert.embeddings.word_embeddings.weight"),
             before.config().hidden_size);
}

TEST_CASE("a vocabulary that nobody asked to resize is refused") {
  decoder_config sizes = read_sizes<llama_family>(golden::folder("llama_tied"));
  const std::size_t words = sizes.vocab_size++;
  CHECK_THROWS_WITH_AS((void)load_as<llama<plain>>(golden::folder("llama_tied"), sizes),
                       doctest::Contains(concat("'model.embed_tokens.weight' must have shape [", words + 1, ", 24]").c_str()),
                       config_error);
  --sizes.vocab_size;
  sizes.hidden_size = 32;  // other dims must match
  CHECK_THROWS_WITH_AS((void)load_as<llama<plain>>(golden::folder("llama_tied"), sizes, {}, {}, {.resize_vocabulary = true}),
                       doctest::Contains("must have shape"), config_error);
}

TEST_CASE("rows are read in pieces as they are read whole, across where the file ends") {
  std::vector<float> file(5 * 3);
  std::iota(file.begin(), file.end(), 1.0f);
  const file_tensor tensor{.name = "t", .dtype = "F32", .shape = {5, 3}, .bytes = std::as_bytes(std::span<const float>(file))};
  const detail::resized_rows<float> rows(tensor, 8);
  std::vector<float> whole(8 * 3);
  rows.read(0, whole);
  CHECK(std::vector<float>(whole.begin() + 15, whole.begin() + 18) == std::vector<float>{7, 8, 9});
  for (std::size_t first = 0; first < whole.size(); ++first)
    for (std::size_t count = 1; first + count <= whole.size(); ++count) {
      std::vector<float> piece(count);
      rows.read(first, piece);
      REQUIRE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  const file_tensor empty{.name = "t", .dtype = "F32", .shape = {0, 3}};
  CHECK_THROWS_WITH_AS(detail::resized_rows<float>(empty, 2), "tensor 't': must have rows, so that new ones can be made; it is empty",
                       file_error);
}

TEST_CASE("a vocabulary is padded to a multiple") {
  CHECK(padded_vocabulary(257, 64) == 320);
  CHECK(padded_vocabulary(320, 64) == 320);
  CHECK(padded_vocabulary(257, 1) == 257);
  CHECK_THROWS_AS((void)padded_vocabulary(257, 0), config_error);
}

TEST_CASE("rows that files hold transposed, or in another order, are not resized") {
  gpt2<plain> model({.vocab_size = 31, .hidden_size = 8, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 8});
  const auto* entry = model.parameters().find("transformer.h.0.mlp.c_fc.weight");
  REQUIRE(entry != nullptr);
  const std::vector<float> more(9 * 32, 1.0f), fewer(8 * 31, 1.0f);
  const std::vector<std::size_t> shapes[]{{9, 32}, {8, 31}};
  for (const auto& [numbers, shape] : {std::pair{&more, shapes[0]}, std::pair{&fewer, shapes[1]}}) {
    const file_tensor tensor{.name = "c_fc", .dtype = "F32", .shape = shape, .bytes = std::as_bytes(std::span(*numbers))};
    CHECK_THROWS_AS(detail::load_parameter(model, *entry, tensor, "file", true), config_error);
  }
}
