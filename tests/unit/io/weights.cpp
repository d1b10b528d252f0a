#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
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

/// torch.save's file for some tensors; every other one is transposed in its storage.
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

TEST_CASE("files that a number counts are one set without an index") {
  const auto half = [](const copied& c, bool first) {
    const auto middle = c.names.begin() + static_cast<std::ptrdiff_t>(c.names.size() / 2);
    return first ? std::vector<std::string>(c.names.begin(), middle) : std::vector<std::string>(middle, c.names.end());
  };
  const auto write = [](const copied& c, const std::string& name, const std::vector<std::string>& names) {
    if (!name.ends_with(".safetensors")) return put_file(c / name, as_torch_file(c.fixture, names));
    std::vector<tensor_to_write> tensors;
    for (const std::string& one : names) tensors.push_back(rewritten(*c.fixture.find(one), "F32"));
    write_safetensors(c / name, std::move(tensors));
  };
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
           {"shard-00001-of-00002.safetensors", "shard-00002-of-00002.safetensors"},
           {"shard_0.safetensors", "shard_1.safetensors"},
           {"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"},
           {"hf_model_0001_0.pt", "hf_model_0002_0.pt"}}) {
    const std::string& which = first;
    CAPTURE(which);
    copied c;
    write(c, first, half(c, true));
    write(c, second, half(c, false));
    for (const char* other : {"adapter_model.safetensors", "optimizer.pt", "training_args.bin", "rng_state.pth", "scheduler.pt"})
      put_file(c / other, "damaged");
    c.check_model();
    std::filesystem::remove(c / first);
    CHECK_THROWS_AS(c.check_model(), error);
    if (first.find("-of-") != std::string::npos)
      CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains("there must be 2, as their names say; there are 1"), file_error);
  }
  const auto refuses = [&](const std::vector<std::string>& files, const char* words) {
    copied c;
    for (std::size_t i = 0; i < files.size(); ++i) write(c, files[i], half(c, i % 2 == 0));
    CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains(words), file_error);
  };
  refuses({"a-1.safetensors", "a-3.safetensors"}, "their numbers must count from 0 or 1 without a gap");
  refuses({"a-2.safetensors", "a-3.safetensors"}, "their numbers must count from 0 or 1 without a gap");
  refuses({"a-1.safetensors", "b-2.safetensors"}, "their names must differ in one number only");
  refuses({"a-1-1.safetensors", "a-2-2.safetensors"}, "their names must differ in one number only");
  refuses({"a-1.safetensors", "a-2.safetensors", "a-3.safetensors"}, "a-3.safetensors: tensor '");
  refuses({"a-1.safetensors", "a-2.safetensors", "a-3.safetensors"}, "must be there once; it is there twice");
}

TEST_CASE("parts of tensors in files of torch.distributed.checkpoint are put together") {
  const scratch_folder folder;
  const std::vector<float> numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};  // w [4, 3]
  struct part {
    std::vector<std::size_t> begin, shape;
  };
  const auto write = [&](const std::string& name, const part& w, bool with_v, const std::string& metadata = "") {
    std::vector<float> values;
    for (std::size_t i = 0; i < w.shape[0]; ++i)
      for (std::size_t j = 0; j < w.shape[1]; ++j) values.push_back(numbers[(w.begin[0] + i) * 3 + w.begin[1] + j]);
    const file_tensor one{.name = "w", .dtype = "F32", .shape = w.shape, .bytes = std::as_bytes(std::span(values))};
    const file_tensor other{.name = "v", .dtype = "F32", .shape = {2}, .bytes = std::as_bytes(std::span(numbers).first(2))};
    std::vector<tensor_to_write> tensors{rewritten(one, "F32")};
    json offsets{{"w", {{"saved_offsets", w.begin}}}};
    if (with_v) tensors.push_back(rewritten(other, "F32")), offsets["v"] = {{"saved_offsets", {0}}};
    write_safetensors(folder / name, std::move(tensors), {{"DCP_SHARDING_INFO", metadata.empty() ? offsets.dump() : metadata}});
  };
  const auto refuses = [&](const char* words) { CHECK_THROWS_WITH_AS(weight_folder(folder.path()), doctest::Contains(words), file_error); };
  const std::string first = "shard-00001-model-00001-of-00001.safetensors", second = "shard-00002-model-00001-of-00001.safetensors",
                    third = "shard-00003-model-00001-of-00001.safetensors";
  const auto check = [&] {
    const weight_folder weights(folder.path());
    const file_tensor* w = weights.find("w");
    REQUIRE(w != nullptr);
    CHECK(w->shape == std::vector<std::size_t>{4, 3});
    std::vector<float> read(12);
    read_numbers<float>(*w, 0, read);
    CHECK(read == numbers);
    CHECK(weights.find("v")->shape == std::vector<std::size_t>{2});
  };
  write(first, {{0, 0}, {2, 3}}, true);
  write(second, {{2, 0}, {2, 3}}, false);
  check();
  write(first, {{0, 0}, {4, 2}}, true);  // columns
  write(second, {{0, 2}, {4, 1}}, false);
  check();
  write(first, {{0, 0}, {4, 1}}, true);
  write(second, {{0, 1}, {3, 2}}, false);
  refuses("parts of 'w' must fill it, and share no number");
  write(third, {{3, 1}, {1, 2}}, false);
  check();
  write(third, {{2, 1}, {1, 2}}, false);
  refuses("parts of 'w' must fill it, and share no number");
  // as many numbers as w, but [0, 1] twice and [3, 0] missing
  write(first, {{0, 1}, {1, 1}}, true);
  write(second, {{0, 0}, {1, 3}}, false);
  write(third, {{1, 0}, {2, 3}}, false);
  const std::string fourth = "shard-00004-model-00001-of-00001.safetensors";
  write(fourth, {{3, 1}, {1, 2}}, false);
  refuses("parts of 'w' must fill it, and share no number");
  std::filesystem::remove(folder / fourth);
  write(first, {{0, 0}, {4, 1}}, true);
  write(second, {{0, 1}, {3, 2}}, false);
  write(third, {{3, 1}, {1, 2}}, false, "{}");
  refuses("must say where the part of 'w' begins");
  std::filesystem::remove(folder / second);
  refuses("their numbers must count from 0 or 1 without a gap");
}

TEST_CASE("names of wrappers around a model are left out") {
  for (const auto& [given, plain_name] : std::vector<std::pair<std::string, std::string>>{{"module.lm_head.weight", "lm_head.weight"},
                                                                                            {"module.module.w", "w"},
                                                                                            {"_orig_mod.model.norm.weight", "model.norm.weight"},
                                                                                            {"module._orig_mod.w", "w"},
                                                                                            {"_orig_mod.module.w", "w"},
                                                                                            {"model.layers.0._orig_mod.mlp.w", "model.layers.0.mlp.w"},
                                                                                            {"_fsdp_wrapped_module.a._checkpoint_wrapped_module.b", "a.b"},
                                                                                            {"a.module.b", "a.module.b"},
                                                                                            {"module", "module"},
                                                                                            {"a._orig_mod", "a._orig_mod"}})
    CHECK(detail::name_without_wrappers(given) == plain_name);
  copied c;
  std::vector<tensor_to_write> tensors;
  for (const std::string& name : c.names) {
    tensors.push_back(rewritten(*c.fixture.find(name), "F32"));
    tensors.back().name = "module._orig_mod." + name;
  }
  write_safetensors(c / "model.safetensors", tensors);
  c.check_model();
  tensors.push_back(tensors.front());
  tensors.back().name = "module." + c.names.front();
  write_safetensors(c / "model.safetensors", tensors);
  CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains("must be there once; it is there twice, here as 'module."), file_error);
}

TEST_CASE("weights that other ranks hold are refused, and the script that gathers them is named") {
  copied c;
  std::vector<tensor_to_write> tensors;
  for (const std::string& name : c.names) tensors.push_back({.name = name, .dtype = "BF16", .shape = {0}, .bytes = 0, .produce = [](const auto&) {}});
  write_safetensors(c / "model.safetensors", std::move(tensors));
  CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(c.path()), doctest::Contains(": tensors must hold numbers; "), file_error);
  CHECK_THROWS_WITH_AS((void)llama<plain>::from_pretrained(c.path()), doctest::Contains(" of shape [0]. DeepSpeed's ZeRO shares weights out"), file_error);
  std::filesystem::remove(c / "model.safetensors");
  // a checkpoint's folder, its inner folder, and a file there
  make_folder(c / "global_step7");
  CHECK_THROWS_WITH_AS(weight_folder(c.path()), doctest::Contains("It is a checkpoint of DeepSpeed. DeepSpeed's ZeRO shares weights out"), file_error);
  const std::string file = c / "global_step7" + "/zero_pp_rank_0_mp_rank_00_model_states.pt";
  put_file(file, "");
  CHECK_THROWS_WITH_AS(weight_folder(c / "global_step7"), doctest::Contains("python zero_to_fp32.py CHECKPOINT OUTPUT"), file_error);
  CHECK_THROWS_WITH_AS(weight_file{file}, doctest::Contains("it holds one rank's share"), file_error);
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
  CHECK_THROWS_WITH_AS((void)gpt2<plain>::from_pretrained(folder.path()),
                       doctest::Contains("must be one set, or have an index: their names must differ in one number only; it holds model.bin and other.bin"),
                       file_error);
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
