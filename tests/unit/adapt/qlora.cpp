// QLoRA: LoRA on 4-bit weights, in a quarter of the memory or less; LoRA on weights in the blocks of a GGUF file.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/models/phi3.hpp>
#include <xtrain/ops/blocks.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/testing/check_gradient.hpp>
#include "gguf_models.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct gradient_recipe : testing::gradient_recipe {
  using adapter = qlora;
};
struct plain_recipe : defaults {};
struct lora_recipe : defaults {
  using adapter = lora;
};
struct qlora_recipe : defaults {
  using adapter = qlora;
};
struct bf16_lora_recipe : lora_recipe {
  using precision = bf16_mixed;
};
struct bf16_recipe : qlora_recipe {
  using precision = bf16_mixed;
};
struct recomputing_recipe : qlora_recipe {
  using recompute = recompute_full;
};

decoder_config sizes() {
  return {.vocab_size = 29,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .intermediate_size = 44,
          .max_position_embeddings = 24,
          .tie_word_embeddings = false,
          .initializer_range = 0.1};
}
decoder_config mixtral_sizes() {
  auto c = sizes();
  c.num_experts = 3;
  c.num_experts_per_token = 2;
  return c;
}
decoder_config gpt2_sizes() {
  return {.vocab_size = 29, .hidden_size = 24, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 24, .initializer_range = 0.1};
}
const lora_config settings{.rank = 3, .alpha = 6, .target_pattern = "all-linear"};

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 300; ++i) tokens.push_back((i * i * 5 + i) % 29);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}
template <class Model>
std::vector<float> logits_of(Model& model) {
  array<token, 2> tokens(shape_of_rank<2>{3, 9});
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens.data()[i] = static_cast<token>((i * i + 3) % 29);
  const auto logits_btv = logits(model, tokens);
  return {logits_btv.begin(), logits_btv.end()};
}
template <class Model>
void train(Model& model) {
  trainer(model, {.max_steps = 4, .micro_batch_size = 4, .learning_rate = 2e-2}).fit(data());
}

/// Rounds, in the other model, every parameter that `quantized` stores in 4 bits.
template <class Quantized, class Other>
std::size_t round_as(const Quantized& quantized, Other& other) {
  std::size_t rounded = 0;
  for (const auto& entry : quantized.parameters().entries()) {
    if (!entry.spec.quantized) continue;
    const auto values = other.parameters().value(*other.parameters().find(entry.spec.name)).host();
    const nf4_array made = nf4::quantize<typename Other::compute>(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto both = made.code_n2[i / 2];
      values[i] = static_cast<typename Other::compute>(nf4::levels[i % 2 == 0 ? both >> 4 : both & 15] *
                                                       nf4::scale_of(i / 64, made.scale_k.data(), made.outer.data()));
    }
    ++rounded;
  }
  return rounded;
}

/// Forward, backward and steps equal LoRA on the rounded weights, bit for bit.
template <class Recipe, class Lora, template <class> class Family>
void is_lora_on_rounded_weights(const decoder_config& model_sizes, std::size_t matrices, bool dora = false) {
  const scratch_folder folder;
  save_pretrained(Family<plain_recipe>(model_sizes), folder.path());
  lora_config adapter = settings;
  adapter.dora = dora;
  auto quantized = Family<Recipe>::from_pretrained(folder.path(), {}, {.adapter = adapter});
  auto other = Family<Lora>::from_pretrained(folder.path(), {}, {.adapter = adapter});
  const auto exact = logits_of(other);
  CHECK(round_as(quantized, other) == matrices);
  if (dora) {
    other.on_weights_loaded();  // lengths of the rounded rows
    for (const auto& entry : quantized.parameters().entries())
      if (entry.spec.name.ends_with(lora_names::magnitude)) {
        const auto mine = quantized.parameters().value(entry).host(), theirs = other.parameters().value(*other.parameters().find(entry.spec.name)).host();
        CHECK_MESSAGE(std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end()), entry.spec.name);
      }
  }
  const auto rounded = logits_of(other);
  CHECK(rounded != exact);
  CHECK(logits_of(quantized) == rounded);
  train(quantized);
  train(other);
  CHECK(logits_of(quantized) == logits_of(other));
  CHECK(logits_of(quantized) != rounded);
}

std::string bytes_of(const std::string& path) { return std::string(mapped_file(path).text()); }

/// Training with a file's blocks and with the same weights as numbers: equal bits of logits, losses and the saved adapter. matrices: number stored in blocks
template <class Recipe, template <class> class Family>
void trains_as_on_numbers(const std::string& file, std::size_t matrices, lora_config adapter = settings) {
  const scratch_folder folder;
  auto in_blocks = Family<Recipe>::from_pretrained(file, {}, {.adapter = adapter, .blocks = blocks_in(file)});
  auto numbers = Family<Recipe>::from_pretrained(file, {}, {.adapter = adapter});
  std::size_t stored = 0;
  for (const auto& entry : in_blocks.parameters().entries()) stored += entry.spec.blocks ? 1U : 0U;
  CHECK(stored == matrices);
  CHECK(in_blocks.parameters().bytes() < numbers.parameters().bytes());
  CHECK(logits_of(in_blocks) == logits_of(numbers));
  const auto run = [](auto& model, const std::string& to) {
    trainer t(model, {.max_steps = 4, .micro_batch_size = 4, .learning_rate = 2e-2});
    history seen;
    t.attach(seen);
    t.fit(data());
    t.save(to);
    return std::vector<double>(seen.losses().begin(), seen.losses().end());
  };
  const auto losses = run(in_blocks, folder / "blocks");
  CHECK(losses.size() == 4);
  CHECK(losses == run(numbers, folder / "numbers"));
  CHECK(bytes_of(folder / "blocks/adapter_model.safetensors") == bytes_of(folder / "numbers/adapter_model.safetensors"));
  CHECK(logits_of(in_blocks) == logits_of(numbers));
}

/// Values of blocks on the device equal the host's file reader, which golden files of the package gguf check.
template <class T>
void decodes_as_reader(const block_formats::description& of) {
  CAPTURE(of.name);
  std::mt19937 random(11);
  constexpr std::size_t n = 66 * 256;
  std::string bytes = gguf_bytes::random_blocks(random, n / of.numbers, of.bytes, {}, 0.0f);
  if (of.format != block_format::mxfp4)  // fp16 scales below 2
    for (std::size_t i = 1; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(bytes[i] & ~0x40);
  std::vector<std::uint8_t> code(bytes.begin(), bytes.end());
  std::vector<T> read(n), host(n), there(n);
  read_numbers<T>({.name = "w", .dtype = std::string(of.name), .shape = {66, 256}, .bytes = std::as_bytes(std::span(code))}, 0, read);
  block_formats::dequantize<T>(of.format, code, host);
  const cpu::context on;
  cpu::stream stream(on);
  arena<cpu> workspace(on, 0, memory_role::workspace);
  execution<cpu> where{stream, workspace, on.properties()};
  const blocks_view<host_memory> view{.n = n, .format = of.format, .code = span_of(std::span(code))};
  ops::dequantize(where, view, vector_view<T, host_memory>(span_of(std::span(there)), {n}));
  stream.synchronize();
  CHECK(std::memcmp(host.data(), read.data(), n * sizeof(T)) == 0);
  CHECK(std::memcmp(there.data(), read.data(), n * sizeof(T)) == 0);
}

/// A file of one layer in Q4_K, Q6_K and Q8_0.
struct mixed_file {
  scratch_folder folder{};
  std::string path = folder / "mixed.gguf";
  mixed_file() { write_file(path, gguf_bytes::quantized_llama()); }
};

/// The file of a model with random weights.
template <template <class> class Family>
std::string written(const scratch_folder& folder, decoder_config c, gguf_type type) {
  c.hidden_size = 64;
  c.intermediate_size = 96;
  const std::string path = folder / concat(Family<plain_recipe>(c).family_info().name, name_of(type), ".gguf");
  save_gguf(Family<plain_recipe>(c), path, {.type = type});
  return path;
}

}  // namespace

TEST_CASE("gradients flow through quantized weights, and are difference quotients") {
  const auto report =
      testing::check_gradient<gradient_recipe>({.inputs = 21, .outputs = 9},
                                               [](auto& build) {
                                                 return linear<gradient_recipe>(build, {{"a", 4}, {"b", 2}, {"c", 3}}, 21, {.bias = true});
                                               },
                                               {.rank = 2, .targets = {"a", "c"}});
  CHECK(report.checked == 2 * 3 * 21 + 2 * 2 * 21 + (4 + 3) * 2);
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

TEST_CASE("qlora is lora on weights that were rounded to four bits") {
  is_lora_on_rounded_weights<qlora_recipe, lora_recipe, llama>(sizes(), 2 * 7);
  is_lora_on_rounded_weights<recomputing_recipe, lora_recipe, llama>(sizes(), 2 * 7);
  is_lora_on_rounded_weights<bf16_recipe, bf16_lora_recipe, llama>(sizes(), 2 * 7);
  is_lora_on_rounded_weights<qlora_recipe, lora_recipe, gpt2>(gpt2_sizes(), 2 * 4);  // files hold the weights transposed
  is_lora_on_rounded_weights<qlora_recipe, lora_recipe, mixtral>(mixtral_sizes(), 2 * (4 + 1 + 3 * 3));
}

TEST_CASE("DoRA on weights in four bits is DoRA on weights that were rounded to four bits") {
  is_lora_on_rounded_weights<qlora_recipe, lora_recipe, llama>(sizes(), 2 * 7, true);
  is_lora_on_rounded_weights<recomputing_recipe, lora_recipe, llama>(sizes(), 2 * 7, true);
  is_lora_on_rounded_weights<bf16_recipe, bf16_lora_recipe, llama>(sizes(), 2 * 7, true);
}

TEST_CASE("a model that is drawn is quantized as one that is loaded") {
  llama<qlora_recipe> drawn(sizes(), {}, {.adapter = settings});
  llama<lora_recipe> other(sizes(), {}, {.adapter = settings});
  CHECK(round_as(drawn, other) == 14);
  CHECK(logits_of(drawn) == logits_of(other));
}

TEST_CASE("a weight takes half a byte and a sixty-fourth, and nothing else keeps it") {
  auto c = sizes();
  c.hidden_size = 64;
  c.intermediate_size = 128;
  const cpu::context on, other_on;
  const llama<bf16_recipe> model(c, on, {.adapter = settings});
  const llama<bf16_lora_recipe> other(c, other_on, {.adapter = settings});
  std::size_t quantized = 0;
  for (const auto& entry : model.parameters().entries()) quantized += entry.spec.quantized ? entry.size() : 0;
  CHECK(quantized == 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128));
  // two outer scales of four bytes for each of 14 matrices, and alignment to 32 bytes
  const std::size_t most = quantized / 2 + quantized / 64 + 14 * (8 + 32);
  CHECK(other.parameters().bytes() - model.parameters().bytes() >= 2 * quantized - most);
  CHECK(on.memory().of(memory_role::weights) + 2 * quantized - most <= other_on.memory().of(memory_role::weights));
}

TEST_CASE("what qlora trains is a LoRA adapter: read by both, and merged into whole weights") {
  const scratch_folder base, folder;
  save_pretrained(llama<plain_recipe>(sizes()), base.path());
  auto model = llama<qlora_recipe>::from_pretrained(base.path(), {}, {.adapter = settings});
  train(model);
  const auto trained = logits_of(model);
  save_pretrained(model, folder.path(), {.base_model = base.path()});
  CHECK(adapter_config_of(folder.path()) == settings);
  auto again = llama<qlora_recipe>::from_pretrained(base.path(), {}, {.adapter = adapter_config_of(folder.path()), .seed = 3});
  load_adapter(again, folder.path());
  CHECK(logits_of(again) == trained);

  auto beside = llama<lora_recipe>::from_pretrained(base.path(), {}, {.adapter = adapter_config_of(folder.path())});
  load_adapter(beside, folder.path());
  auto merged = llama<plain_recipe>::from_pretrained(base.path());
  merge_adapter(merged, folder.path());
  const auto a = logits_of(beside), b = logits_of(merged);
  // equal sums in another order: 25 of up to 96 products, relative error 2^-24 · sqrt(96), logits below 10
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= 1.5e-4f);
}

TEST_CASE("checkpoints, generating and modules to save work beside quantized weights") {
  auto with_saved = settings;
  with_saved.modules_to_save = {"lm_head", "down_proj"};
  llama<qlora_recipe> model(sizes(), {}, {.adapter = with_saved});
  for (const auto& entry : model.parameters().entries())
    if (entry.spec.name.ends_with("down_proj.weight")) CHECK((entry.spec.trainable && !entry.spec.quantized));
  const scratch_folder folder;
  trainer first(model, {.max_steps = 4, .micro_batch_size = 4, .learning_rate = 2e-2});
  checkpoint_folder checkpoints(first, folder.path(), {.save_steps = 2});
  first.attach(checkpoints);
  first.fit(data());
  const auto trained = logits_of(model);
  llama<qlora_recipe> other(sizes(), {}, {.adapter = with_saved});
  trainer second(other, {.max_steps = 4, .micro_batch_size = 4, .learning_rate = 2e-2});
  checkpoint_folder half(second, folder.path());
  half.resume_from(folder.path() + "/checkpoint-2");
  second.fit(data());
  CHECK(logits_of(other) == trained);
  CHECK(generator(model).generate(std::vector<token>{3, 1}, {.max_new_tokens = 5}).size() == 5);
}

TEST_CASE("values of weights in four bits are refused") {
  llama<qlora_recipe> model(sizes(), {}, {.adapter = settings});
  CHECK_THROWS_WITH_AS((void)model.parameter<2>("model.layers.0.self_attn.q_proj.weight"),
                       "parameter 'model.layers.0.self_attn.q_proj.weight': must not be quantized where its values are asked for",
                       config_error);
  CHECK_NOTHROW((void)model.parameter<2>("model.embed_tokens.weight"));
}

TEST_CASE("blocks of each type stand for the numbers that the reader of GGUF files makes of them, bit for bit") {
  for (const block_formats::description& of : block_formats::all) {
    const block_dtype* known = find_block_dtype(of.name);
    REQUIRE(known != nullptr);
    CHECK(known->numbers == of.numbers);
    CHECK(known->bytes == of.bytes);
    decodes_as_reader<float>(of);
    decodes_as_reader<bf16>(of);
  }
}

TEST_CASE("LoRA on the blocks of a GGUF file is LoRA on the numbers that they stand for") {
  const mixed_file mixed;
  trains_as_on_numbers<lora_recipe, llama>(mixed.path, 7);
  trains_as_on_numbers<bf16_lora_recipe, llama>(mixed.path, 7);
  lora_config dora = settings;
  dora.dora = true;
  trains_as_on_numbers<lora_recipe, llama>(mixed.path, 7, dora);
}

TEST_CASE("rows of blocks are loaded in the model's order, of transposed and of fused matrices too") {
  const scratch_folder folder;
  for (const gguf_type type : {gguf_type::q8_0, gguf_type::q4_0}) {
    trains_as_on_numbers<lora_recipe, llama>(written<llama>(folder, sizes(), type), 2 * 7);
    trains_as_on_numbers<lora_recipe, mixtral>(written<mixtral>(folder, mixtral_sizes(), type), 2 * (4 + 3 * 3));  // the router is in F32
    trains_as_on_numbers<lora_recipe, phi3>(written<phi3>(folder, sizes(), type), 2 * 4);
    auto c = gpt2_sizes();
    c.num_heads = 4;
    trains_as_on_numbers<lora_recipe, gpt2>(written<gpt2>(folder, c, type), 2 * 4);  // files of the family hold the weights transposed
  }
}

TEST_CASE("a matrix of several tensors is stored in blocks only if all of them are") {
  const mixed_file mixed;
  weight_blocks some = blocks_in(mixed.path);
  CHECK(some.of("model.layers.0.self_attn.q_proj.weight", 256) == block_format::q4_k);
  CHECK(some.of("model.layers.0.self_attn.v_proj.weight", 256) == block_format::q6_k);
  CHECK(some.of("lm_head.weight", 256) == block_format::q6_k);
  some.formats.erase("model.layers.0.self_attn.v_proj.weight");
  auto model = llama<lora_recipe>::from_pretrained(mixed.path, {}, {.adapter = settings, .blocks = some});
  auto whole = llama<lora_recipe>::from_pretrained(mixed.path, {}, {.adapter = settings});
  for (const auto& entry : model.parameters().entries()) {
    const std::string& name = entry.spec.name;
    const bool is_in_blocks = name.ends_with("o_proj.weight") || name.find("mlp.") != std::string::npos;
    if (!lora::is_own(name)) CHECK_MESSAGE(entry.spec.blocks.has_value() == is_in_blocks, name);
  }
  CHECK(logits_of(model) == logits_of(whole));
}

TEST_CASE("a run on blocks that is resumed equals one that is not") {
  const mixed_file mixed;
  const model_options<lora, single, no_offload> options{.adapter = settings, .blocks = blocks_in(mixed.path)};
  const training_config<adamw> run{.max_steps = 4, .micro_batch_size = 4, .learning_rate = 2e-2};
  const scratch_folder folder;
  auto model = llama<lora_recipe>::from_pretrained(mixed.path, {}, options);
  trainer first(model, run);
  checkpoint_folder checkpoints(first, folder.path(), {.save_steps = 2, .base_model = mixed.path});
  first.attach(checkpoints);
  first.fit(data());
  auto again = llama<lora_recipe>::from_pretrained(mixed.path, {}, options);
  trainer second(again, run);
  checkpoint_folder half(second, folder.path(), {.base_model = mixed.path});
  half.resume_from(folder.path() + "/checkpoint-2");
  second.fit(data());
  CHECK(logits_of(again) == logits_of(model));
}

TEST_CASE("weights in blocks are refused where they cannot be") {
  const mixed_file mixed;
  const weight_blocks all = blocks_in(mixed.path);
  auto model = llama<lora_recipe>::from_pretrained(mixed.path, {}, {.adapter = settings, .blocks = all});
  CHECK_THROWS_WITH_AS(merge_adapter(model),
                       "merge_adapter: weights must be numbers; 'model.layers.0.self_attn.q_proj.weight' is stored in blocks. Save the adapter, and merge its "
                       "folder into a model without one: merge_adapter(plain, folder)",
                       config_error);
  CHECK_THROWS_WITH_AS((void)model.parameter<2>("model.layers.0.self_attn.q_proj.weight"),
                       "parameter 'model.layers.0.self_attn.q_proj.weight': must not be quantized where its values are asked for", config_error);
  CHECK_THROWS_WITH_AS((void)llama<plain_recipe>::from_pretrained(mixed.path, {}, {.blocks = all}),
                       "blocks: only frozen weights can be stored in blocks of a GGUF file; the adapter must be lora, it is none", config_error);
  CHECK_THROWS_WITH_AS((void)llama<qlora_recipe>::from_pretrained(mixed.path, {}, {.adapter = settings, .blocks = all}),
                       "blocks: only frozen weights can be stored in blocks of a GGUF file; the adapter must be lora, it is qlora", config_error);
  CHECK_THROWS_WITH_AS((void)llama<lora_recipe>(model.config(), {}, {.adapter = settings, .blocks = all}),
                       "parameter 'model.layers.0.self_attn.q_proj.weight': must be loaded from a GGUF file in whose blocks it is stored; numbers are given",
                       config_error);
  weight_blocks other = all;
  other.formats["model.layers.0.mlp.up_proj.weight"] = block_format::q5_k;
  CHECK_THROWS_WITH_AS((void)llama<lora_recipe>::from_pretrained(mixed.path, {}, {.adapter = settings, .blocks = other}),
                       doctest::Contains("'model.layers.0.mlp.up_proj.weight' must be in blocks of Q5_K, in which the model stores it; it is Q4_K"),
                       config_error);
}
