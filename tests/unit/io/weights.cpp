#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/llmc.hpp>
#include "golden.hpp"
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};

/// What torch.save would write for some tensors of a safetensors file; every other one is transposed in its storage.
std::string as_torch_file(const safetensors_file& file, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> members, storages;
  for (const std::string& name : names) {
    const file_tensor& t = *file.find(name);
    const std::string key = std::to_string(storages.size());
    std::vector<float> numbers(t.size());
    read_numbers<float>(t, 0, numbers);
    std::vector<std::int32_t> shape(t.shape.begin(), t.shape.end()), strides(shape.size(), 1);
    for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    if (shape.size() == 2 && storages.size() % 2 == 1) {
      const file_tensor turned{.name = name,
                               .dtype = "F32",
                               .shape = {t.shape[1], t.shape[0]},
                               .bytes = t.bytes,
                               .layout = {{t.shape[1], 1}, {t.shape[0], t.shape[1]}}};
      read_numbers<float>(turned, 0, numbers);
      strides = {1, shape[0]};
    }
    members.emplace_back(name,
                         pickled::tensor(pickled::storage("FloatStorage", key, static_cast<std::int32_t>(t.size())), 0, shape, strides));
    storages.emplace_back(key, pickled::bytes_of(numbers));
  }
  return pickled::archive(pickled::dictionary(members), storages);
}

struct copied : scratch_folder {
  safetensors_file fixture{golden::folder("llama_tied") + "/model.safetensors"};
  std::vector<std::string> names{};
  copied() {
    put_file(*this / "config.json", get_file(golden::folder("llama_tied") + "/config.json"));
    for (const file_tensor& tensor : fixture.tensors()) names.push_back(tensor.name);
  }
  void check_model() const {
    const auto a = llama<plain>::from_pretrained(golden::folder("llama_tied")), b = llama<plain>::from_pretrained(path());
    for (const auto& entry : a.parameters().entries()) {
      const auto x = a.parameters().value(entry).host(), y = b.parameters().value(*b.parameters().find(entry.spec.name)).host();
      CHECK(std::equal(x.begin(), x.end(), y.begin()));
    }
  }
};

}  // namespace

TEST_CASE("a model is loaded from PyTorch's file, whole or in shards, as from safetensors") {
  copied c;
  put_file(c / "pytorch_model.bin", as_torch_file(c.fixture, c.names));
  c.check_model();
  std::filesystem::rename(c / "pytorch_model.bin", c / "consolidated.pth");
  c.check_model();
  std::filesystem::remove(c / "consolidated.pth");
  const auto middle = c.names.begin() + static_cast<std::ptrdiff_t>(c.names.size() / 2);
  const std::vector<std::string> first(c.names.begin(), middle), second(middle, c.names.end());
  put_file(c / "pytorch_model-00001-of-00002.bin", as_torch_file(c.fixture, first));
  put_file(c / "pytorch_model-00002-of-00002.bin", as_torch_file(c.fixture, second));
  json map = json::object();
  for (const std::string& name : c.names)
    map[name] = std::find(first.begin(), first.end(), name) != first.end() ? "pytorch_model-00001-of-00002.bin"
                                                                           : "pytorch_model-00002-of-00002.bin";
  put_file(c / "pytorch_model.bin.index.json", json{{"weight_map", map}}.dump());
  c.check_model();
}

TEST_CASE("a model is loaded from a folder with one file of llm.c or llama2.c") {
  const scratch_folder saved, folder;
  save_pretrained(gpt2<plain>({.vocab_size = 150, .hidden_size = 12, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 9}), saved.path());
  (void)write_llmc<float>(folder / "model.bin", weight_folder(saved.path()), read_config(saved.path()));
  put_file(folder / "config.json", get_file(saved / "config.json"));
  const auto a = gpt2<plain>::from_pretrained(saved.path()), b = gpt2<plain>::from_pretrained(folder.path());
  for (const auto& entry : a.parameters().entries()) {
    const auto x = a.parameters().value(entry).host(), y = b.parameters().value(*b.parameters().find(entry.spec.name)).host();
    CHECK(std::equal(x.begin(), x.end(), y.begin()));
  }
  put_file(folder / "other.bin", "");
  CHECK_THROWS_WITH_AS((void)gpt2<plain>::from_pretrained(folder.path()), doctest::Contains("it holds several of the last"), file_error);
}

TEST_CASE("safetensors come before PyTorch's files, and a whole file before an index") {
  copied c;
  put_file(c / "pytorch_model.bin", "damaged");
  put_file(c / "model.safetensors", get_file(golden::folder("llama_tied") + "/model.safetensors"));
  put_file(c / "model.safetensors.index.json", "damaged");
  c.check_model();
  std::filesystem::remove(c / "model.safetensors");
  CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains("index.json: must be JSON"), file_error);
  std::filesystem::remove(c / "model.safetensors.index.json");
  CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains("must begin as torch.save begins files"), file_error);
}

TEST_CASE("the format of a file is known from its first bytes") {
  const scratch_folder folder;
  const auto format = [&](const std::string& contents) { return format_of(contents); };
  CHECK(format("PK\3\4") == weight_format::torch);
  CHECK(format(pickled::legacy("N", {})) == weight_format::torch);
  CHECK(format(get_file(golden::folder("gpt2") + "/model.safetensors")) == weight_format::safetensors);
  CHECK(format(pickled::bytes_of<std::int32_t>(20240326)) == weight_format::llmc);
  CHECK(format(pickled::bytes_of<std::int32_t>(20240803)) == weight_format::llmc);
  CHECK(format("24ka") == weight_format::llama2c);
  CHECK(format(pickled::bytes_of(std::vector<std::int32_t>{640, 6, 2, 4, 2, -5, 3})) == weight_format::llama2c);  // begins like a pickle
  for (const std::string& none : {std::string(), std::string("{}"), std::string(100, '\0'), std::string(100, 'a')})
    CHECK(!format(none).has_value());
  put_file(folder / "x", "some text");
  CHECK_THROWS_WITH_AS(weight_file(folder / "x"), doctest::Contains("it begins as none of them"), file_error);
}

TEST_CASE("numbers of any layout are the same in pieces of any size") {
  std::vector<float> all(4 * 6 * 5);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const file_tensor tensor{
      .name = "t", .dtype = "F32", .shape = {24, 5}, .bytes = std::as_bytes(std::span(all)), .layout = {{4, 30}, {2, 5}, {3, 10}, {5, 1}}};
  std::vector<double> whole(tensor.size());
  read_numbers<double>(tensor, 0, whole);
  std::vector<double> expected;
  for (const std::size_t head : {0U, 1U, 2U, 3U})
    for (const std::size_t half : {0U, 1U})
      for (const std::size_t pair : {0U, 1U, 2U})
        for (std::size_t column = 0; column < 5; ++column)
          expected.push_back(static_cast<double>(head * 30 + (pair * 2 + half) * 5 + column));
  CHECK(whole == expected);
  for (const std::size_t size : {1U, 2U, 3U, 7U, 29U, 31U, 64U}) {
    std::vector<double> pieces(tensor.size());
    for (std::size_t first = 0; first < pieces.size(); first += size)
      read_numbers<double>(tensor, first, std::span(pieces).subspan(first, std::min(size, pieces.size() - first)));
    CHECK(pieces == expected);
  }
}

TEST_CASE("a tensor is rewritten in another type, others as they are, and the largest error is known") {
  const scratch_folder folder;
  const std::vector<float> values = {1.0f, 1.00390625f, -3.0f};
  const std::vector<std::int64_t> integers = {1, 2};
  const file_tensor floats{.name = "f", .dtype = "F32", .shape = {3}, .bytes = std::as_bytes(std::span(values))};
  const file_tensor turned{.name = "t", .dtype = "I64", .shape = {2}, .bytes = std::as_bytes(std::span(integers)), .layout = {{2, 1}}};
  write_safetensors(folder / "x.safetensors", {rewritten(floats, "BF16"), rewritten(turned, "BF16")});
  const safetensors_file file(folder / "x.safetensors");
  CHECK(file.find("f")->dtype == "BF16");
  CHECK(file.find("t")->dtype == "I64");
  CHECK(std::equal(turned.bytes.begin(), turned.bytes.end(), file.find("t")->bytes.begin()));
  std::vector<float> read(3);
  read_numbers<float>(*file.find("f"), 0, read);
  CHECK(read == std::vector<float>{1.0f, 1.0f, -3.0f});  // halfway between two: round to even
  rounding_error error;
  measure_rounding(floats, "F32", error);
  measure_rounding(turned, "BF16", error);
  CHECK(error.largest == 0);
  measure_rounding(floats, "BF16", error);
  CHECK(error.largest == 0.00390625);
  CHECK(error.before == 1.00390625);
  CHECK(error.after == 1.0);
  CHECK(error.tensor == "f");
  const std::vector<float> large = {std::numeric_limits<float>::infinity(), 65520.0f};
  const file_tensor beyond{.name = "big", .dtype = "F32", .shape = {2}, .bytes = std::as_bytes(std::span(large))};
  CHECK_THROWS_WITH_AS(measure_rounding(beyond, "F16", error),
                       "tensor 'big': numbers must be at most 65504 to be stored as fp16; one is 65520", data_error);
  CHECK_THROWS_WITH_AS((void)rewritten(floats, "I64"), doctest::Contains("dtype must be F64, F32, F16 or BF16"), config_error);
}
