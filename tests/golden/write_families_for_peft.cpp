// Writes what check_peft.py checks beside write_for_peft.cpp: an adapter of each family's own choice of modules on its fixture, filled
// with arbitrary values, and the logits that we compute with it.
//
//   write_families_for_peft FIXTURES FOLDER
//
// makes FOLDER/<fixture>_lora, and in it ours.safetensors with 'tokens' [batch size, sequence length] and 'logits', both in fp32; of Mixtral also
// FOLDER/mixtral_experts_merged, the model with an adapter of its experts added to the weights, which peft has no modules for.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/families.hpp>

namespace {

struct plain_recipe : xtrain::defaults {};
struct lora_recipe : xtrain::defaults {
  using adapter = xtrain::lora;
};

std::string fixtures, out;

template <class Values>
xtrain::tensor_to_write to_write(std::string name, std::vector<std::size_t> shape, const Values& values) {
  return {.name = std::move(name),
          .dtype = "F32",
          .shape = std::move(shape),
          .bytes = values.size() * sizeof(float),
          .produce = [numbers = std::vector<float>(values.begin(), values.end())](const auto& sink) {
            sink(numbers.data(), numbers.size() * sizeof(float));
          }};
}

/// The sequences of peft's adapter fixture, without padding.
xtrain::array<xtrain::token, 2> rows_of(const std::string& fixture) {
  const xtrain::safetensors_file file(fixtures + "/" + fixture + "/expected.safetensors");
  const xtrain::file_tensor& inputs = *file.find("inputs");
  std::vector<float> numbers(inputs.size());
  xtrain::read_numbers<float>(inputs, 0, numbers);
  xtrain::array<xtrain::token, 2> tokens(xtrain::shape_of_rank<2>{inputs.shape[0], inputs.shape[1]});
  for (std::size_t i = 0; i < numbers.size(); ++i) tokens.data()[i] = static_cast<xtrain::token>(numbers[i]);
  return tokens;
}

void write_ours(const std::string& folder, const xtrain::array<xtrain::token, 2>& tokens, std::vector<std::size_t> shape,
                const std::vector<float>& logits) {
  std::vector<xtrain::tensor_to_write> all;
  all.push_back(to_write("tokens", {tokens.shape()[0], tokens.shape()[1]}, std::vector<float>(tokens.begin(), tokens.end())));
  all.push_back(to_write("logits", std::move(shape), logits));
  xtrain::write_safetensors(folder + "/ours.safetensors", std::move(all));
}

/// Gives every trained parameter distinct values.
template <class Model>
void fill(Model& model) {
  double next = 1;
  for (const auto& entry : model.parameters().entries()) {
    if (!entry.spec.trainable) continue;
    std::vector<float> values(entry.size());
    for (float& value : values) value = static_cast<float>(0.4 * std::sin(next++));
    model.parameters().write(model.stream(), entry, 0, values);
    model.stream().synchronize();
  }
}

template <class Model>
Model adapted(const std::string& base, const xtrain::lora::config& settings = {.rank = 3, .alpha = 12}) {
  auto model = Model::from_pretrained(fixtures + "/" + base, {}, {.adapter = settings});
  fill(model);
  return model;
}

template <class Model>
void write_logits(Model& model, const std::string& folder, const xtrain::array<xtrain::token, 2>& tokens) {
  const auto logits_btv = xtrain::logits(model, tokens);
  write_ours(folder, tokens, {logits_btv.shape().begin(), logits_btv.shape().end()}, {logits_btv.begin(), logits_btv.end()});
}

template <template <class> class Family>
void write_family(const std::string& base, const std::string& fixture) {
  const std::string folder = out + "/" + fixture;
  auto model = adapted<Family<lora_recipe>>(base);
  save_pretrained(model, folder, {.base_model = base});
  write_logits(model, folder, rows_of(fixture));
}

void write_bert() {
  const auto tokens = rows_of("bert_classification_lora");
  const std::vector<xtrain::token> all(tokens.begin(), tokens.end());
  const auto rows = xtrain::sentence_batch({.b = tokens.shape()[0], .t = tokens.shape()[1], .tokens = all});
  auto words = adapted<xtrain::bert_pretraining<lora_recipe>>("bert_pretraining");
  save_pretrained(words, out + "/bert_pretraining_lora");
  const auto logits_btv = logits(words, rows);
  write_ours(out + "/bert_pretraining_lora", tokens, {logits_btv.shape().begin(), logits_btv.shape().end()},
             {logits_btv.begin(), logits_btv.end()});
  auto labels =
      adapted<xtrain::bert_classifier<lora_recipe>>("bert_classification", {.rank = 3, .alpha = 12, .modules_to_save = {"classifier"}});
  save_pretrained(labels, out + "/bert_classification_lora");
  const auto logits_bv = label_logits(labels, rows);
  write_ours(out + "/bert_classification_lora", tokens, {logits_bv.shape().begin(), logits_bv.shape().end()},
             {logits_bv.begin(), logits_bv.end()});
}

void write_experts() {
  const std::string folder = out + "/mixtral_experts";
  auto beside = adapted<xtrain::mixtral<lora_recipe>>("mixtral", {.rank = 3, .alpha = 12, .targets = {"w1", "w2", "w3"}});
  save_pretrained(beside, folder);
  auto merged = xtrain::mixtral<plain_recipe>::from_pretrained(fixtures + "/mixtral");
  merge_adapter(merged, folder);
  save_pretrained(merged, folder + "_merged");
  write_logits(beside, folder + "_merged", rows_of("mixtral_lora"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_families_for_peft FIXTURES FOLDER\n");
    return 2;
  }
  try {
    fixtures = argv[1];
    out = argv[2];
    write_family<xtrain::mistral>("mistral", "mistral_lora");
    write_family<xtrain::mixtral>("mixtral", "mixtral_lora");
    write_family<xtrain::aquila>("aquila", "aquila_lora");
    write_family<xtrain::baichuan>("baichuan_rotary", "baichuan_lora");
    write_family<xtrain::internlm>("internlm", "internlm_lora");
    write_family<xtrain::internlm2>("internlm2", "internlm2_lora");
    write_family<xtrain::chatglm1>("chatglm1", "chatglm1_lora");
    write_family<xtrain::chatglm>("chatglm2", "chatglm2_lora");
    write_bert();
    write_experts();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "write_families_for_peft: %s\n", problem.what());
    return 1;
  }
  return 0;
}
