#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/meta_llama.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/models/llama.hpp>
#include "golden.hpp"
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;
using namespace pickled;

namespace {

constexpr const char* fixture = "llama_grouped_untied";

std::vector<float> numbers_of(const file_tensor& tensor) {
  std::vector<float> numbers(tensor.size());
  read_numbers<float>(tensor, 0, numbers);
  return numbers;
}
/// Interleaves each head's rows as Meta does: rows that rotate together are adjacent.
std::vector<float> interleaved(const std::vector<float>& rows, std::size_t heads, std::size_t columns) {
  std::vector<float> result(rows.size());
  const std::size_t d = rows.size() / columns / heads;
  for (std::size_t row = 0; row < heads * d; ++row) {
    const std::size_t in_head = row % d, to = row - in_head + 2 * (in_head % (d / 2)) + in_head / (d / 2);
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                result.begin() + static_cast<std::ptrdiff_t>(to * columns));
  }
  return result;
}

/// A fixture in Meta's release format; `change` may corrupt names and numbers.
struct metas : scratch_folder {
  json params = {{"dim", 24},        {"n_layers", 2},    {"n_heads", 4},    {"n_kv_heads", 2},
                 {"norm_eps", 1e-6}, {"vocab_size", -1}, {"multiple_of", 8}};

  explicit metas(const std::function<void(std::vector<std::pair<std::string, std::string>>&)>& change = {}) {
    const json_settings config(read_json(golden::folder(fixture) + "/config.json"), "config.json");
    const std::size_t width = config.size({"hidden_size"}), heads = config.size({"num_attention_heads"}),
                      kv = config.size({"num_key_value_heads"});
    params["dim"] = width;
    params["n_layers"] = config.size({"num_hidden_layers"});
    params["n_heads"] = heads;
    params["n_kv_heads"] = kv;
    const safetensors_file file(golden::folder(fixture) + "/model.safetensors");
    std::vector<std::pair<std::string, std::string>> values, storages;
    for (const file_tensor& tensor : file.tensors()) {
      std::vector<float> numbers = numbers_of(tensor);
      if (tensor.name.find("q_proj") != std::string::npos) numbers = interleaved(numbers, heads, width);
      if (tensor.name.find("k_proj") != std::string::npos) numbers = interleaved(numbers, kv, width);
      const std::string key = concat(storages.size());
      const auto count = static_cast<std::int32_t>(numbers.size());
      std::vector<std::int32_t> shape, strides;
      for (const std::size_t dim : tensor.shape) shape.push_back(static_cast<std::int32_t>(dim));
      strides.assign(shape.size(), 1);
      if (shape.size() == 2) strides[0] = shape[1];
      values.emplace_back(theirs(tensor.name), pickled::tensor(storage("FloatStorage", key, count), 0, shape, strides));
      storages.emplace_back(key, bytes_of(numbers));
    }
    storages.emplace_back("angles", bytes_of(std::vector<float>{1, 2}));
    values.emplace_back("rope.freqs", pickled::tensor(storage("FloatStorage", "angles", 2), 0, {2}, {1}));
    if (change) change(values);
    put_file(*this / "consolidated.00.pth", archive(dictionary(values), storages));
    save();
  }
  void save() const { put_file(*this / "params.json", params.dump()); }

  static std::string theirs(std::string name) {
    for (const auto& [now, once] : std::vector<std::pair<std::string, std::string>>{{"model.embed_tokens", "tok_embeddings"},
                                                                                    {"model.layers", "layers"},
                                                                                    {"model.norm", "norm"},
                                                                                    {"lm_head", "output"},
                                                                                    {"self_attn.q_proj", "attention.wq"},
                                                                                    {"self_attn.k_proj", "attention.wk"},
                                                                                    {"self_attn.v_proj", "attention.wv"},
                                                                                    {"self_attn.o_proj", "attention.wo"},
                                                                                    {"mlp.gate_proj", "feed_forward.w1"},
                                                                                    {"mlp.down_proj", "feed_forward.w2"},
                                                                                    {"mlp.up_proj", "feed_forward.w3"},
                                                                                    {"input_layernorm", "attention_norm"},
                                                                                    {"post_attention_layernorm", "ffn_norm"}})
      if (const std::size_t at = name.find(now); at != std::string::npos) name.replace(at, now.size(), once);
    return name;
  }
  void refused(const char* words) const { CHECK_THROWS_WITH_AS(meta_llama_folder{path()}, doctest::Contains(words), error); }
};

}  // namespace

TEST_CASE("Meta's folder holds Hugging Face's tensors under other names and in another order of rows") {
  const metas folder;
  REQUIRE(meta_llama_folder::is_one(folder.path()));
  const meta_llama_folder read(folder.path());
  const safetensors_file expected(golden::folder(fixture) + "/model.safetensors");
  CHECK(read.tensors().size() == expected.tensors().size());
  for (const file_tensor& tensor : expected.tensors()) {
    CAPTURE(tensor.name);
    const file_tensor* found = read.find(tensor.name);
    REQUIRE(found != nullptr);
    CHECK(found->shape == tensor.shape);
    CHECK(numbers_of(*found) == numbers_of(tensor));
  }
  const json_settings theirs(read_json(golden::folder(fixture) + "/config.json"), "theirs");
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "tie_word_embeddings"})
    CHECK_MESSAGE(read.config().object()[key] == theirs.object()[key], key);
}

TEST_CASE("a model is loaded from Meta's folder, and saved as Hugging Face's") {
  struct recipe : defaults {};
  metas folder;
  folder.params["rope_theta"] = 10000.0;
  folder.save();
  CHECK(read_config(folder.path()).size({"max_position_embeddings"}) == 2048);
  const auto of_meta = llama<recipe>::from_pretrained(folder.path()), expected = llama<recipe>::from_pretrained(golden::folder(fixture));
  const auto weights_of = [](const auto& model) {
    const auto values = model.parameters().trained_values().host();
    return std::vector<float>(values.begin(), values.end());
  };
  CHECK(weights_of(of_meta) == weights_of(expected));
  const scratch_folder saved;
  save_pretrained(of_meta, saved.path(), {.base_model = folder.path()});
  CHECK_FALSE(meta_llama_folder::is_one(saved.path()));
  CHECK(weights_of(llama<recipe>::from_pretrained(saved.path())) == weights_of(expected));
  folder.params["use_scaled_rope"] = true;
  folder.save();
  CHECK_THROWS_WITH_AS((void)llama<recipe>::from_pretrained(folder.path()), doctest::Contains("does not say how: give a config.json"), config_error);
}

TEST_CASE("a folder of Meta's that contradicts itself is refused with what it lacks") {
  metas folder;
  const json good = folder.params;
  const auto with = [&](const char* key, const json& value, const char* words) {
    folder.params = good;
    folder.params[key] = value;
    folder.save();
    folder.refused(words);
  };
  with("n_layers", 99, "must hold 'layers.2.attention_norm.weight', because params.json asks for it");
  with("n_layers", 1, "must hold the 12 tensors of 1 layers");
  with("n_layers", 100000, "n_layers must be at most 4096");
  with("n_heads", 7, "an even number of rows for each of 7 heads");
  with("n_heads", std::uint64_t{1} << 63, "heads must be below 2^31");
  with("n_heads", "four", "'n_heads' must be a positive whole number");
  folder.params = good;
  folder.params["use_scaled_rope"] = true;
  folder.save();
  CHECK_THROWS_WITH_AS((void)meta_llama_folder(folder.path()).config(), doctest::Contains("does not say how: give a config.json"),
                       config_error);
  folder.params = good;
  folder.save();
  put_file(folder / "consolidated.01.pth", "");
  folder.refused("cut for several processes");
  metas([](auto& values) { values.emplace_back("extra", values.front().second); }).refused("must hold the ");
}
