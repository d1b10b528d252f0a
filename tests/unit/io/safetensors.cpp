#include <doctest/doctest.h>

#include <sys/stat.h>

#include <cstring>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// A file from its header and data.
std::string file_of(const std::string& header, const std::string& data, std::uint64_t claimed_length = ~std::uint64_t{0}) {
  const std::uint64_t length = claimed_length == ~std::uint64_t{0} ? header.size() : claimed_length;
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

tensor_to_write numbers(const std::string& name, std::vector<float> values) {
  return {.name = name,
          .dtype = "F32",
          .shape = {values.size()},
          .bytes = values.size() * 4,
          .produce = [values](const std::function<void(const void*, std::size_t)>& sink) { sink(values.data(), values.size() * 4); }};
}

}  // namespace

TEST_CASE("tensors are read as they were written, in the format's own order") {
  const scratch_folder folder;
  std::vector<tensor_to_write> tensors;
  tensors.push_back(numbers("b", {1, 2, 3}));
  tensors.push_back(numbers("a", {4}));
  tensors.push_back({.name = "empty", .dtype = "F64", .shape = {0, 5}, .bytes = 0, .produce = [](const auto&) {}});
  tensors.push_back({.name = "scalar", .dtype = "BF16", .shape = {}, .bytes = 2, .produce = [](const auto& sink) {
                       const bf16 x(1.5f);
                       sink(&x, 2);
                     }});
  write_safetensors(folder / "x.safetensors", std::move(tensors));
  const safetensors_file file(folder / "x.safetensors");
  REQUIRE(file.tensors().size() == 4);
  // widest dtype first, then by name
  CHECK(file.find("empty")->bytes.data() <= file.find("a")->bytes.data());
  CHECK(file.find("a")->bytes.data() < file.find("b")->bytes.data());
  CHECK(file.find("b")->bytes.data() < file.find("scalar")->bytes.data());
  CHECK(file.metadata().at("format") == "pt");
  std::vector<double> wide(2);
  read_numbers<double>(*file.find("b"), 1, wide);
  CHECK(wide == std::vector<double>{2, 3});
  std::vector<float> scalar(1);
  read_numbers<float>(*file.find("scalar"), 0, scalar);
  CHECK(scalar[0] == 1.5f);
  CHECK(file.find("none") == nullptr);
  CHECK(std::filesystem::file_size(folder / "x.safetensors") % 8 != 1);
}

TEST_CASE("every lie of a header is refused, and named") {
  const scratch_folder folder;
  const auto refuses = [&](const std::string& contents, const std::string& words) {
    put_file(folder / "x.safetensors", contents);
    CAPTURE(words);
    CHECK_THROWS_WITH_AS(safetensors_file(folder / "x.safetensors"), doctest::Contains(words.c_str()), file_error);
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  put_file(folder / "x.safetensors", file_of(good, "12345678"));
  CHECK_NOTHROW(safetensors_file(folder / "x.safetensors"));
  refuses("", "must begin with the header's length; the file has 0 bytes");
  refuses("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "it is a pointer of Git LFS; the file itself comes with 'git lfs pull'");
  refuses("1234567", "the file has 7 bytes");
  refuses(file_of(good, "12345678", 1000), "the header must lie inside the file; it claims 1000 bytes");
  refuses(file_of(good, "12345678", std::uint64_t{1} << 40), "the header must have at most 100000000 bytes");
  refuses(file_of(good, "12345678", ~std::uint64_t{1}), "the header must have at most");
  refuses(file_of("", ""), "the header must be a JSON object");
  refuses(file_of("[1]", ""), "the header must be a JSON object");
  refuses(file_of(R"({"a": )", ""), "must be JSON");
  refuses(file_of(good, "1234"), "Is the file cut short?");
  refuses(file_of(good, "123456789"), "tensors must fill the file; they end at 8 of 9 bytes");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"),
          "F32 of shape [3] must have 12 bytes; it has 8");
  refuses(file_of(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", "12345678"), "dtype 'F99' is not one of the format's");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"), "shape must hold whole numbers");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}})", "12345678"),
          "larger than any file");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "12345678"), "must lie inside the file");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "12345678"), "data_offsets must be two whole numbers");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", "12345678"), "must have dtype, shape and data_offsets");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                  "123456789012"),
          "must lie one behind the other");
  refuses(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                  "123456789012"),
          "must lie one behind the other");
  refuses(
      file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
      "key 'a' occurs twice");
  refuses(file_of(R"({"__metadata__":{"a":1}})", ""), "__metadata__ must hold strings");
  refuses(file_of(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "1"), "must have");
}

TEST_CASE("a pipe in place of a file is refused, not waited for") {
  const scratch_folder folder;
  REQUIRE(::mkfifo((folder / "model.safetensors").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS((void)safetensors_file(folder / "model.safetensors"), doctest::Contains("must be a file; it is a directory, a device or a pipe"),
                       file_error);
}

TEST_CASE("integers are checked but not loaded as weights") {
  const scratch_folder folder;
  put_file(folder / "x.safetensors", file_of(R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const safetensors_file file(folder / "x.safetensors");
  std::vector<float> values(2);
  CHECK_THROWS_WITH_AS(read_numbers<float>(*file.find("a"), 0, values), "tensor 'a': must be F64, F32, F16 or BF16 to be loaded, or blocks of GGUF; it is I32",
                       file_error);
}

TEST_CASE("a writer whose tensors lie about their size leaves nothing behind") {
  const scratch_folder folder;
  put_file(folder / "x.safetensors", "old");
  std::vector<tensor_to_write> tensors;
  tensors.push_back(numbers("a", {1, 2}));
  tensors.back().bytes = 12;
  CHECK_THROWS_WITH_AS(write_safetensors(folder / "x.safetensors", std::move(tensors)),
                       doctest::Contains("must have 12 bytes; 8 were produced"), file_error);
  CHECK(get_file(folder / "x.safetensors") == "old");
  CHECK(folder.files() == std::vector<std::string>{"x.safetensors"});
}

TEST_CASE("names that a file cannot hold are not written") {
  const scratch_folder folder;
  const auto write = [&](const std::string& name) { write_safetensors(folder / "x.safetensors", {numbers(name, {1})}); };
  CHECK_THROWS_WITH_AS(write("a\xff"), doctest::Contains("names of tensors must be UTF-8"), file_error);
  CHECK_THROWS_WITH_AS(write("__metadata__"), doctest::Contains("must not be called '__metadata__'"), file_error);
  CHECK(folder.files().empty());
}

TEST_CASE("weights are split when they are large, and switch from one save to the next in one rename") {
  const scratch_folder folder;
  const auto save = [&](float value, std::size_t shard_bytes) {
    std::vector<tensor_to_write> tensors;
    for (const char* name : {"a", "b", "c"}) tensors.push_back(numbers(name, std::vector<float>(10, value)));
    write_weights(folder.path(), std::move(tensors), shard_bytes);
  };
  const auto value = [&](const char* name) {
    const weight_folder weights(folder.path());
    std::vector<float> values(10);
    read_numbers<float>(*weights.find(name), 0, values);
    return values[9];
  };
  save(1, 1 << 20);
  CHECK(folder.files() == std::vector<std::string>{"model.safetensors"});
  CHECK(value("b") == 1);
  save(2, 80);
  CHECK(folder.files() ==
        std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"});
  CHECK(value("c") == 2);
  save(3, 80);  // the previous save has equal file names: it must stay readable until the index changes
  CHECK(value("a") == 3);
  CHECK(folder.files().size() == 3);
  save(4, 80);
  CHECK(value("a") == 4);
  save(5, 1 << 20);
  CHECK(folder.files() == std::vector<std::string>{"model.safetensors"});
  CHECK(value("a") == 5);
}

TEST_CASE("files of another model beside the weights are found") {
  const scratch_folder folder;
  const auto save = [&](std::size_t shard_bytes) {
    std::vector<tensor_to_write> tensors;
    for (const char* name : {"a", "b", "c"}) tensors.push_back(numbers(name, std::vector<float>(10, 1)));
    write_weights(folder.path(), std::move(tensors), shard_bytes);
  };
  for (const char* name : {"config.json", "tokenizer.model", "training_args.bin", "model-notes.txt"}) put_file(folder / name, "{}");
  for (const std::size_t shard_bytes : {std::size_t{80}, std::size_t{1} << 20U}) {
    save(shard_bytes);
    CHECK(other_weights(folder.path()).empty());
  }
  const std::vector<std::string> others = {"adapter_config.json", "adapter_model.safetensors", "consolidated.safetensors",
                                           "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"};
  for (const std::string& name : others) put_file(folder / name, "{}");
  put_file(folder / "model-00001-of-00003.safetensors", "");  // an older save's file: the next save removes it
  for (const std::size_t shard_bytes : {std::size_t{80}, std::size_t{1} << 20U}) {
    save(shard_bytes);
    CHECK(other_weights(folder.path()) == others);
  }
}

TEST_CASE("an index that lies is refused") {
  const scratch_folder folder;
  const auto refuses = [&](const std::string& index, const std::string& words) {
    put_file(folder / "model.safetensors.index.json", index);
    CHECK_THROWS_WITH_AS(weight_folder(folder.path()), doctest::Contains(words.c_str()), file_error);
  };
  CHECK_THROWS_WITH_AS(weight_folder(folder.path()), doctest::Contains("it holds none"), file_error);
  CHECK_THROWS_WITH_AS(weight_folder(folder / "none"), doctest::Contains("must be a folder"), file_error);
  put_file(folder / "model-1.safetensors", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  refuses("{", "must be JSON");
  refuses(R"({"map": 1})", "must have an object 'weight_map'");
  refuses(R"({"weight_map": {"a": "model-2.safetensors"}})",
          "model-2.safetensors: must be there, because the index names it; it is missing");
  refuses(R"({"weight_map": {"b": "model-1.safetensors"}})", "'b' must be in model-1.safetensors; that file does not hold it");
  refuses(R"({"weight_map": {"a": "../model-1.safetensors"}})", "files must lie in the folder itself");
  refuses(R"({"weight_map": {"a": 5}})", "'weight_map' must name a file");
}

TEST_CASE("settings are read by any of their names, with their types checked") {
  const json_settings s(
      parse_json(
          R"({"n_embd": 12, "eps": 1e-5, "tied": true, "act": "gelu", "eos": [1, 2], "bos": 3, "none": null, "rope": {"theta": 5.0}, "bad": -1})",
          "c"),
      "c");
  CHECK(s.size({"hidden_size", "n_embd"}) == 12);
  CHECK(s.size_or(7, {"none"}) == 7);
  CHECK(s.number_or(0, {"eps"}) == 1e-5);
  CHECK(s.flag_or(false, {"tied"}));
  CHECK(s.tokens({"eos"}) == std::vector<token>{1, 2});
  CHECK(s.tokens({"bos"}) == std::vector<token>{3});
  CHECK(s.tokens({"missing"}).empty());
  CHECK(s.inner({"rope"}).number_or(0, {"theta"}) == 5.0);
  CHECK_THROWS_WITH_AS((void)s.size({"width"}), "c: 'width' must be given; it is missing", config_error);
  CHECK_THROWS_WITH_AS((void)s.size({"bad"}), "c: 'bad' must be a positive whole number; given -1", config_error);
  CHECK_THROWS_WITH_AS((void)s.size({"act"}), doctest::Contains("must be a positive whole number; given \"gelu\""), config_error);
  CHECK_THROWS_AS((void)s.flag_or(false, {"act"}), config_error);
  CHECK_THROWS_AS((void)s.tokens({"act"}), config_error);
  CHECK_THROWS_WITH_AS(json_settings(parse_json("[]", "c"), "c"), "c: must be a JSON object; it is array", config_error);
}

TEST_CASE("real files are read and damaged ones refused") {
  const std::string folder = test_data("formats/safetensors");
  if (folder.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    CHECK(!safetensors_file(entry.path().string()).tensors().empty());
    // truncated anywhere, or with any header byte changed: rejected or still valid
    const scratch_folder scratch;
    const std::string contents = get_file(entry.path().string());
    for (std::size_t length = 0; length < contents.size(); length += 1 + contents.size() / 50) {
      put_file(scratch / "cut", contents.substr(0, length));
      CHECK_THROWS_AS(safetensors_file(scratch / "cut"), file_error);
    }
  }
}
