#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/io/llmc.hpp>
#include "golden.hpp"
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;
using pickled::bytes_of;

namespace {

struct plain : defaults {};

std::string header(const std::vector<std::int32_t>& numbers) {
  std::string bytes = bytes_of(numbers);
  bytes.resize(1024);
  return bytes;
}
/// `count` consecutive integers as elements.
std::string counted(std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i);
  return bytes_of(numbers);
}

// Sequence length 3, 5 tokens in 128 rows, 2 layers, 2 heads, hidden size 4.
const std::vector<std::int32_t> gpt2_header = {20240326, 3, 3, 5, 2, 2, 4, 128};
constexpr std::size_t gpt2_layer = 4 + 4 + 48 + 12 + 16 + 4 + 4 + 4 + 64 + 16 + 64 + 4, gpt2_count = 128 * 4 + 12 + 2 * gpt2_layer + 8;
// Sequence length 3, 5 tokens, 2 layers, 2 heads of 4, 1 key/value head, hidden size 8; intermediate size 6.
constexpr std::size_t llama_count = 2 * 40 + 8 + 2 * (8 + 128 + 64 + 8 + 3 * 48);
std::vector<std::int32_t> older(std::int32_t version = 3) { return {20240803, version, 3, 5, 2, 2, 1, 8, 1, 1024, 0, 500000, 1, 4, 3, 1}; }
std::string newer(float epsilon = 1e-6f, float base = 20000.0f) {
  std::string fractions = bytes_of(std::vector<float>{1.3f, epsilon, base});
  fractions.resize(1024);
  return header({20240803, 3, 3, 5, 2, 2, 1, 8, 1024, 0, 3, 1}) + fractions;
}

std::vector<float> numbers(const tensor_source& from, const std::string& name) {
  const file_tensor* tensor = from.find(name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  std::vector<float> values(tensor->size());
  read_numbers<float>(*tensor, 0, values);
  return values;
}

struct written : scratch_folder {
  std::string path = *this / "x.bin";
  [[nodiscard]] weight_file read(const std::string& contents) const {
    put_file(path, contents);
    return weight_file(path);
  }
  void refuses(const std::string& contents, const std::string& words) const {
    put_file(path, contents);
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)llmc_file(path), doctest::Contains(words.c_str()), error);
  }
};

}  // namespace

TEST_CASE("a GPT-2's tensors get their names, linear weights are transposed, rows that pad the embedding are left out") {
  const written w;
  const weight_file file = w.read(header(gpt2_header) + counted(gpt2_count));
  REQUIRE(file.format() == weight_format::llmc);
  CHECK(file.tensors().size() == 2 + 2 * 12 + 2);
  CHECK(file.find("transformer.wte.weight")->shape == std::vector<std::size_t>{5, 4});
  CHECK(numbers(file, "transformer.wte.weight").back() == 19);
  CHECK(numbers(file, "transformer.wpe.weight").front() == 128 * 4);
  const float layers = 128 * 4 + 12;
  CHECK(numbers(file, "transformer.h.1.ln_1.weight").front() == layers + 4);
  CHECK(file.find("transformer.h.1.attn.c_attn.weight")->shape == std::vector<std::size_t>{4, 12});
  const auto qkv = numbers(file, "transformer.h.1.attn.c_attn.weight");  // in the file [12, 4], after both layers' norms and layer 0
  CHECK(qkv[0] == layers + 16 + 48);
  CHECK(qkv[1] == qkv[0] + 4);
  CHECK(qkv[12] == qkv[0] + 1);
  CHECK(numbers(file, "transformer.ln_f.bias").back() == gpt2_count - 1);
  CHECK(file.config()->text_or("", {"model_type"}) == "gpt2");
  CHECK(sizes_of<gpt2_family>(*file.config()).intermediate_size == 16);
}

TEST_CASE("a LLaMA 3's tensors get their names from either form of the header") {
  const written w;
  for (const bool is_older : {true, false}) {
    const weight_file file = w.read((is_older ? header(older()) : newer()) + counted(llama_count));
    CHECK(file.tensors().size() == 3 + 2 * 9);
    const float qkv = 40 + 16;
    CHECK(numbers(file, "model.layers.0.self_attn.q_proj.weight").front() == qkv);
    CHECK(numbers(file, "model.layers.0.self_attn.q_proj.weight")[8] == qkv + 16);  // row 1 is row 2 in the file
    CHECK(numbers(file, "model.layers.0.self_attn.k_proj.weight").front() == qkv + 64);
    CHECK(numbers(file, "model.layers.0.self_attn.v_proj.weight")[8] == qkv + 96 + 8);
    CHECK(numbers(file, "model.layers.1.self_attn.q_proj.weight").front() == qkv + 128);
    CHECK(file.find("model.layers.1.mlp.gate_proj.weight")->shape == std::vector<std::size_t>{6, 8});
    // order in the file after the norms: up, gate, down
    CHECK(numbers(file, "model.layers.0.mlp.gate_proj.weight").front() == numbers(file, "model.layers.0.mlp.up_proj.weight").front() + 96);
    const json_settings& config = *file.config();
    CHECK(config.size({"intermediate_size"}) == 6);
    // the header's integers cannot hold the epsilon: not read
    CHECK(config.number_or(0, {"rms_norm_eps"}) == (is_older ? 1e-5 : 1e-6));
    CHECK(config.number_or(0, {"rope_theta"}) == (is_older ? 500000 : 20000));
    CHECK(config.has({"rope_scaling"}) == is_older);
    CHECK(!config.flag_or(true, {"tie_word_embeddings"}));
  }
}

TEST_CASE("a header that does not fit its file is refused") {
  const written w;
  const auto changed = [&](std::vector<std::int32_t> numbers, std::size_t at, std::int32_t to) {
    numbers[at] = to;
    return header(numbers);
  };
  const std::string gpt2_numbers = counted(gpt2_count), llama_numbers = counted(llama_count);
  w.refuses("", "must be a model of llm.c, with a header of 1024 bytes");
  w.refuses(header(gpt2_header).substr(0, 1000), "with a header of 1024 bytes");
  w.refuses(changed(gpt2_header, 0, 20240327) + gpt2_numbers, "must be a model of llm.c");
  w.refuses(changed(gpt2_header, 1, 4) + gpt2_numbers, "must be of version 3 (fp32) or 5 (bf16); it is of version 4");
  w.refuses(changed(gpt2_header, 1, 5) + gpt2_numbers, "Is it another kind of file?");
  w.refuses(header(gpt2_header) + counted(gpt2_count - 1), "Is the file cut short?");
  w.refuses(header(gpt2_header) + counted(gpt2_count + 1), "Is it another kind of file?");
  w.refuses(changed(gpt2_header, 5, 3) + gpt2_numbers, "hidden_size (4) must be divisible by num_heads (3)");
  w.refuses(changed(gpt2_header, 7, 4) + gpt2_numbers, "the embedding must have a row per token; it has 4 for 5");
  w.refuses(changed(gpt2_header, 4, 5000) + gpt2_numbers, "layers must be at most 4096");
  for (const std::size_t i : {2U, 3U, 4U, 5U, 6U, 7U}) {
    w.refuses(changed(gpt2_header, i, 0) + gpt2_numbers, "sizes in its header must be positive");
    w.refuses(changed(gpt2_header, i, -1) + gpt2_numbers, "sizes in its header must be positive");
    CHECK_THROWS_AS((put_file(w.path, changed(gpt2_header, i, 0x7fffffff) + gpt2_numbers), llmc_file(w.path)), error);
    if (i == 2) continue;  // no LLaMA tensor depends on the sequence length
    CHECK_THROWS_AS((put_file(w.path, changed(older(), i, 0x7fffffff) + llama_numbers), llmc_file(w.path)), error);
  }
  w.refuses(header(older()) + counted(llama_count - 1), "for every channel of the feed-forward layers");
  w.refuses(header(older()) + counted(100), "Is the file cut short?");
  w.refuses(changed(older(), 6, 3) + llama_numbers, "num_heads (2) must be divisible by key/value heads (3)");
  w.refuses(changed(older(), 5, 8) + llama_numbers, "heads must have an even number of channels; they have 1");
  w.refuses(newer().substr(0, 1500), "must have a header of 2048 bytes; the file has 1500");
  w.refuses(newer(0.0f) + llama_numbers, "the epsilon of norms must be between 0 and 1");
  w.refuses(newer(1e-5f, 0.0f) + llama_numbers, "the base of rotary angles from 1 on");
  w.refuses(newer(std::nanf("")) + llama_numbers, "the epsilon of norms must be between 0 and 1");
}

TEST_CASE("a GPT-2 that is written for llm.c and read again is the same, in fp32 and rounded to bf16") {
  const scratch_folder folder;
  save_pretrained(gpt2<plain>({.vocab_size = 150, .hidden_size = 12, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 9}), folder.path());
  const weight_folder original(folder.path());
  const json_settings config = read_config(folder.path());
  const std::string path = folder / "x.llmc";
  CHECK(write_llmc<float>(path, original, config).empty());
  CHECK(get_file(path).size() == 1024 + 4 * (256 * 12 + 9 * 12 + 2 * (12 * 12 * 12 + 13 * 12) + 24));
  for (const bool narrow : {false, true}) {
    if (narrow) (void)write_llmc<bf16>(path, original, config);
    const weight_file file(path);
    REQUIRE(file.tensors().size() == original.tensors().size());
    for (const auto& [name, tensor] : original.tensors()) {
      const std::string& which = name;
      CAPTURE(which);
      CHECK(file.find(name)->shape == tensor->shape);
      auto expected = numbers(original, name);
      if (narrow) std::transform(expected.begin(), expected.end(), expected.begin(), [](float x) { return static_cast<float>(bf16(x)); });
      CHECK(numbers(file, name) == expected);
    }
  }
  (void)write_llmc<float>(path, original, config);
  const auto a = gpt2<plain>::from_pretrained(folder.path()), b = load_model_file<gpt2<plain>>(path);
  for (const auto& entry : a.parameters().entries()) {
    const auto x = a.parameters().value(entry).host(), y = b.parameters().value(*b.parameters().find(entry.spec.name)).host();
    CHECK(std::equal(x.begin(), x.end(), y.begin()));
  }
  CHECK_THROWS_WITH_AS((void)load_model_file<llama<plain>>(path),
                       doctest::Contains("must describe a 'llama' model; its model_type is 'gpt2'"), config_error);
  CHECK_THROWS_WITH_AS((void)load_model_file<gpt2<plain>>(folder / "model.safetensors"),
                       doctest::Contains("must be a file of GGUF, llm.c or llama2.c, which hold a model's sizes; it is a safetensors file"),
                       config_error);
}

TEST_CASE("what llm.c would compute otherwise is not written") {
  const scratch_folder folder;
  const std::string path = folder / "x.bin";
  const weight_folder golden_weights(golden::folder("gpt2"));
  CHECK_THROWS_WITH_AS((void)write_llmc<float>(path, golden_weights, read_config(golden::folder("gpt2"))),
                       doctest::Contains("llm.c has an intermediate_size of 4 hidden_size"), config_error);  // 40 for a hidden size of 24
  const weight_folder llama_weights(golden::folder("llama_tied"));
  CHECK_THROWS_WITH_AS((void)write_llmc<float>(path, llama_weights, read_config(golden::folder("llama_tied"))),
                       doctest::Contains("must describe a 'gpt2' model to be written for llm.c; its model_type is 'llama'"), config_error);
  CHECK(!file_exists(path));
}
