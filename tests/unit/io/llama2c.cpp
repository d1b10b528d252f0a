#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/llama2c.hpp>
#include "golden.hpp"
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;
using pickled::bytes_of;

namespace {

struct plain : defaults {};

/// Sizes: hidden size 8, intermediate size 6, 2 layers, 4 heads of 2, 2 key/value heads, 5 tokens, sequence length 3.
std::vector<std::int32_t> small_sizes() { return {8, 6, 2, 4, 2, 5, 3}; }
constexpr std::size_t small_count = 5 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 48) + 8;

std::string legacy(const std::vector<std::int32_t>& sizes, std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i);
  return bytes_of(sizes) + bytes_of(numbers);
}
std::string v1(std::vector<std::int32_t> sizes, std::size_t count, std::int32_t version = 1, char tied = 1) {
  const std::string numbers = legacy({}, count);
  sizes.insert(sizes.begin(), {0x616b3432, version});
  std::string header = bytes_of(sizes) + tied;
  header.resize(256);
  return header + numbers;
}

template <class T>
std::vector<T> numbers(const tensor_source& from, const std::string& name) {
  const file_tensor* tensor = from.find(name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  std::vector<T> values(tensor->size());
  read_numbers<T>(*tensor, 0, values);
  return values;
}

struct written : scratch_folder {
  std::string file = *this / "x.bin";
  void refuses(const std::string& contents, const std::string& words) const {
    put_file(file, contents);
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)llama2c_file(file), doctest::Contains(words.c_str()), error);
  }
};

/// A folder with a model that llama2.c can compute.
void save_model(const std::string& folder, bool tied) {
  const llama<plain> model({.vocab_size = 11,
                            .hidden_size = 16,
                            .num_layers = 2,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .intermediate_size = 20,
                            .max_position_embeddings = 7,
                            .tie_word_embeddings = tied});
  save_pretrained(model, folder);
}

}  // namespace

TEST_CASE("rows of queries and keys are brought from pairs into halves, everything else stays") {
  const written w;
  put_file(w.file, v1({8, 6, 1, 2, 1, 5, 3}, 8 + 8 + 8 + 40 + 64 + 32 + 32 + 64 + 3 * 48));
  const weight_file file(w.file);
  REQUIRE(file.format() == weight_format::llama2c);
  CHECK(numbers<float>(file, "model.norm.weight")[0] == 16);
  CHECK(numbers<float>(file, "model.embed_tokens.weight")[39] == 63);
  const auto q = numbers<float>(file, "model.layers.0.self_attn.q_proj.weight"),
             k = numbers<float>(file, "model.layers.0.self_attn.k_proj.weight");
  const auto row = [&](const std::vector<float>& of, std::size_t r, float first) { return static_cast<int>((of[r * 8] - first) / 8); };
  std::vector<int> q_rows, k_rows;
  for (std::size_t r = 0; r < 8; ++r) q_rows.push_back(row(q, r, 64));
  for (std::size_t r = 0; r < 4; ++r) k_rows.push_back(row(k, r, 128));
  CHECK(q_rows == std::vector<int>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(k_rows == std::vector<int>{0, 2, 1, 3});
  CHECK(q[8 + 3] == 64 + 16 + 3);  // columns stay in order
  CHECK(numbers<float>(file, "model.layers.0.self_attn.v_proj.weight")[0] == 160);
}

TEST_CASE("a header that does not fit its file is refused") {
  const written w;
  const std::size_t tables = 3 * 2;
  put_file(w.file, legacy(small_sizes(), small_count + tables));
  CHECK(llama2c_file(w.file).tensors().size() == 1 + 2 * 9 + 1);
  auto untied = small_sizes();
  untied[5] = -5;
  put_file(w.file, legacy(untied, small_count + tables + 40));
  CHECK(llama2c_file(w.file).tensors().back().name == "lm_head.weight");
  CHECK(!llama2c_file(w.file).config().flag_or(true, {"tie_word_embeddings"}));
  put_file(w.file, v1(small_sizes(), small_count + 40, 1, '\0'));
  CHECK(llama2c_file(w.file).tensors().back().name == "lm_head.weight");

  w.refuses(legacy(untied, small_count + tables), "Is the file cut short?");
  w.refuses(legacy(small_sizes(), small_count + tables + 1), "Is it another kind of file?");
  w.refuses(legacy(small_sizes(), small_count), "Is the file cut short?");
  w.refuses(v1(small_sizes(), small_count - 1), "Is the file cut short?");
  w.refuses(v1(small_sizes(), 0).substr(0, 100), "must have a header of 256 bytes; the file has 100");
  w.refuses(v1(small_sizes(), small_count, 2), "it is of version 2, whose weights are quantized");
  w.refuses(v1(small_sizes(), small_count, 7), "it is of version 7");
  w.refuses(v1(untied, small_count), "size 6 of 7 in its header is -5");
  w.refuses("", "it has 0 bytes, the header is longer");
  w.refuses("1234567", "must be a llama2.c file");
  w.refuses("24ka", "must be a llama2.c file");
  for (std::size_t i = 0; i < 7; ++i) {
    auto sizes = small_sizes();
    sizes[i] = 0;
    w.refuses(legacy(sizes, small_count), i == 5 ? "sizes must be from 1" : "in its header is 0");
    sizes[i] = 0x7fffffff;
    CHECK_THROWS_AS((put_file(w.file, legacy(sizes, small_count)), llama2c_file(w.file)), error);
  }
  w.refuses(legacy({8, 6, 5000, 4, 2, 5, 3}, small_count), "layers must be at most 4096");
  w.refuses(legacy({8, 6, 2, 3, 1, 5, 3}, small_count), "hidden_size (8) must be an even multiple of num_heads (3)");
  w.refuses(legacy({8, 6, 2, 8, 2, 5, 3}, small_count), "must be an even multiple of num_heads (8)");
  w.refuses(legacy({8, 6, 2, 4, 3, 5, 3}, small_count), "num_heads (4) must be divisible by key/value heads (3)");
  constexpr std::int32_t huge = 0x7ffffffe;
  w.refuses(legacy({huge, huge, 4096, huge / 2, huge / 2, huge, huge}, 4), "would lie beyond the end of any");
}

TEST_CASE("a model that is written for llama2.c and read again is the same, in both versions, tied or not") {
  for (const bool tied : {true, false}) {
    const scratch_folder folder;
    save_model(folder.path(), tied);
    const weight_folder original(folder.path());
    for (const auto version : {llama2c_version::legacy, llama2c_version::v1}) {
      const std::string path = folder / "model.llama2c";
      CHECK(write_llama2c(path, original, read_config(folder.path()), version).empty());
      const weight_file file(path);
      REQUIRE(file.tensors().size() == original.tensors().size());
      for (const auto& [name, tensor] : original.tensors()) {
        const std::string& which = name;
        CAPTURE(which);
        CHECK(file.find(name)->shape == tensor->shape);
        CHECK(numbers<float>(file, name) == numbers<float>(original, name));
      }
      CHECK(sizes_of<llama_family>(*file.config()).tie_word_embeddings == tied);
      const auto a = llama<plain>::from_pretrained(folder.path()), b = load_model_file<llama<plain>>(path);
      for (const auto& entry : a.parameters().entries()) {
        const auto x = a.parameters().value(entry).host(), y = b.parameters().value(*b.parameters().find(entry.spec.name)).host();
        CHECK(std::equal(x.begin(), x.end(), y.begin()));
      }
    }
  }
}

TEST_CASE("what llama2.c would compute otherwise is not written") {
  const scratch_folder folder;
  save_model(folder.path(), true);
  const std::string path = folder / "x.bin", text = get_file(folder / "config.json");
  const auto refuses = [&](const char* key, const json& value, const std::string& words) {
    json config = parse_json(text, "config.json");
    config[key] = value;
    const weight_folder weights(folder.path());
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)write_llama2c(path, weights, json_settings(parse_json(config.dump(), "config.json"), "config.json")),
                         doctest::Contains(words.c_str()), config_error);
    CHECK(!file_exists(path));
  };
  refuses("model_type", "gpt2", "must describe a 'llama' model to be written for llama2.c; its model_type is 'gpt2'");
  refuses("rms_norm_eps", 1e-6, "epsilon 1e-06");
  refuses("rope_theta", 500000.0, "the model has base 5e+05");
  refuses("rope_scaling", {{"rope_type", "llama3"}}, "scaling 'llama3'");
  refuses("head_dim", 8, "heads must have hidden_size / num_heads = 4 channels for llama2.c; they have 8");
  refuses("num_hidden_layers", 3, "'model.layers.2.input_layernorm.weight' must be there, because the sizes ask for it; it is missing");
  refuses("num_hidden_layers", 1, "'model.layers.1.input_layernorm.weight' must have a place in the file");
  refuses("intermediate_size", 24, "'model.layers.0.mlp.gate_proj.weight' must have shape [24, 16] as the sizes say; it has [20, 16]");
  refuses("tie_word_embeddings", false, "'lm_head.weight' must be there");
}

TEST_CASE("a real model's files of both versions hold what its Hugging Face folder holds") {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to stories260K");
    return;
  }
  const weight_folder twin(folder + "/hf");
  for (const auto& [name, version] :
       {std::pair{"stories260K.bin", llama2c_version::legacy}, std::pair{"stories260K_v1.bin", llama2c_version::v1}}) {
    const std::string path = folder + "/" + name;
    const weight_file file(path);
    REQUIRE(file.tensors().size() == twin.tensors().size());
    for (const auto& [tensor_name, tensor] : twin.tensors()) {
      const std::string& which = tensor_name;
      CAPTURE(which);
      CHECK(file.find(tensor_name)->shape == tensor->shape);
      CHECK(numbers<float>(file, tensor_name) == numbers<float>(twin, tensor_name));
    }
    CHECK(sizes_of<llama_family>(*file.config()) == read_sizes<llama_family>(folder + "/hf"));

    // writing again reproduces the file, except the last bits of version 0's rotary tables
    const scratch_folder scratch;
    (void)write_llama2c(scratch / "x.bin", twin, read_config(folder + "/hf"), version);
    const std::string ours = get_file(scratch / "x.bin"), theirs = get_file(path);
    REQUIRE(ours.size() == theirs.size());
    const std::size_t tables = version == llama2c_version::legacy ? 512 * 8 * sizeof(float) : 0;
    CHECK(std::string_view(ours).substr(0, ours.size() - tables) == std::string_view(theirs).substr(0, theirs.size() - tables));
    float most = 0;
    for (std::size_t at = ours.size() - tables; at < ours.size(); at += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, &ours[at], sizeof(float));
      std::memcpy(&b, &theirs[at], sizeof(float));
      most = std::max(most, std::abs(a - b));
    }
    // angles up to 512 are off by two fp32 roundings, 512 * 2^-24 each, where two libraries' powers differ in the last bit
    CHECK(most <= 2 * 512 * 0x1p-24f);
  }
}
