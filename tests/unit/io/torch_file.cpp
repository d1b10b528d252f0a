#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/io/torch_file.hpp>
#include "pickled.hpp"
#include "scratch.hpp"

using namespace xtrain;
using namespace pickled;

namespace {

struct saved : scratch_folder {
  torch_file read(const std::string& contents) const {
    put_file(*this / "x.bin", contents);
    return torch_file(*this / "x.bin");
  }
  void refuses(const std::string& contents, const std::string& words) const {
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)read(contents), doctest::Contains(words.c_str()), file_error);
  }
};

std::vector<float> numbers(const file_tensor* tensor) {
  REQUIRE(tensor != nullptr);
  std::vector<float> values(tensor->size());
  read_numbers<float>(*tensor, 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) {  // one at a time: equal values
    float one = 0;
    read_numbers<float>(*tensor, i, std::span(&one, 1));
    CHECK(one == values[i]);
  }
  return values;
}
std::vector<std::string> names(const torch_file& file) {
  std::vector<std::string> all;
  for (const file_tensor& tensor : file.tensors()) all.push_back(tensor.name);
  return all;
}

using floats = std::vector<float>;
const std::string six = bytes_of(floats{1, 2, 3, 4, 5, 6});
const std::string in_six = storage("FloatStorage", "0", 6);
const std::string plain = pickled::tensor(in_six, 0, {2, 3}, {3, 1});

std::string with_tensor(const std::string& value) { return archive(dictionary({{"w", value}}), {{"0", six}}); }

}  // namespace

TEST_CASE("tensors are views of their storages, in order, transposed, or in steps") {
  const saved s;
  const auto file = s.read(archive(dictionary({{"plain", plain},
                                               {"turned", pickled::tensor(in_six, 0, {3, 2}, {1, 3})},
                                               {"part", pickled::tensor(in_six, 3, {2}, {2})},
                                               {"window", pickled::tensor(in_six, 0, {2, 2}, {1, 1})},
                                               {"one", pickled::tensor(in_six, 5, {}, {})},
                                               {"none", pickled::tensor(in_six, 9, {0, 3}, {3, 1})},
                                               {"thin", pickled::tensor(in_six, 0, {1, 3, 1}, {77, 1, 99})}}),
                                   {{"0", six}}));
  CHECK(numbers(file.find("plain")) == floats{1, 2, 3, 4, 5, 6});
  CHECK(file.find("plain")->layout.empty());
  CHECK(numbers(file.find("turned")) == floats{1, 4, 2, 5, 3, 6});
  CHECK(file.find("turned")->layout == std::vector<file_dim>{{3, 1}, {2, 3}});
  CHECK(numbers(file.find("part")) == floats{4, 6});
  CHECK(numbers(file.find("window")) == floats{1, 2, 2, 3});
  CHECK(numbers(file.find("one")) == floats{6});
  CHECK(numbers(file.find("none")).empty());
  CHECK(numbers(file.find("thin")) == floats{1, 2, 3});
  CHECK(file.find("thin")->layout.empty());
  CHECK(file.find("other") == nullptr);
}

TEST_CASE("elements of any width are gathered as they are") {
  const saved s;
  for (const auto& [type, width] : std::vector<std::pair<std::string, std::size_t>>{
           {"ByteStorage", 1}, {"HalfStorage", 2}, {"IntStorage", 4}, {"LongStorage", 8}, {"ComplexFloatStorage", 8}}) {
    std::string contents;
    for (char i = 0; i < 6; ++i) contents += std::string(width, i);
    const auto file = s.read(archive(pickled::tensor(storage(type, "k", 6), 0, {3, 2}, {1, 3}), {{"k", contents}}));
    std::string read(6 * width, '?');
    read_elements(*file.find("tensor"), 0, std::as_writable_bytes(std::span(read)));
    std::string expected;
    for (const char i : std::string("\0\3\1\4\2\5", 6)) expected += std::string(width, i);
    CHECK(read == expected);
  }
}

TEST_CASE("names are the keys that lead to a tensor") {
  const saved s;
  const auto names_of = [&](const std::string& value) { return names(s.read(archive(value, {{"0", six}}))); };
  using list_of = std::vector<std::string>;
  CHECK(names_of(plain) == list_of{"tensor"});
  CHECK(names_of("}") == list_of{});
  CHECK(names_of(dictionary({{"a", dictionary({{"b", plain}, {"c", list({plain, tuple({plain})})}})}})) ==
        list_of{"a.b", "a.c.0", "a.c.1.0"});
  CHECK(names_of("}(" + whole(7) + plain + "u") == list_of{"7"});
  CHECK(names_of(dictionary({{"a", plain + "q\0"s}, {"b", "h\0"s}})) == list_of{"a", "b"});  // one tensor, two names
  // entries other than tensors
  CHECK(names_of(dictionary({{"step", whole(3)}, {"list", list({"N", "G12345678", text("t")})}, {"w", plain}})) == list_of{"w"});
  CHECK(names_of("ccollections\nOrderedDict\n)R(" + text("w") + plain + "u}(" + text("_metadata") + "}ub") == list_of{"w"});
  // the model's entry
  const std::string model = dictionary({{"w", plain}}), optimizer = dictionary({{"state", dictionary({{"m", plain}})}});
  for (const char* wrapper : {"state_dict", "model_state_dict", "model", "module"})
    CHECK(names_of(dictionary({{"optimizer", optimizer}, {wrapper, model}})) == list_of{"w"});
  CHECK(names_of(dictionary({{"model", model}, {"state_dict", model}, {"v", plain}})) == list_of{"w"});
  CHECK(names_of(dictionary({{"model", text("gpt")}, {"w", plain}})) == list_of{"w"});
  CHECK(names_of(dictionary({{"model", plain}, {"w", plain}})) == list_of{"model", "w"});
  CHECK(names_of(dictionary({{"state_dict", dictionary({{"model", model}})}})) == list_of{"model.w"});
  // a parameter is its tensor
  CHECK(names_of(dictionary({{"p", global("torch._utils", "_rebuild_parameter") + tuple({plain, "\x88", "N"}) + "R"}})) == list_of{"p"});
}

TEST_CASE("values beside a model are those that PyTorch reads without executing anything") {
  const saved s;
  const std::string latin = tuple({text("a"), text("latin1")}), number = "G" + std::string(8, '\0');
  const std::vector<std::string> beside{
      global("torch", "device") + tuple({text("cuda"), whole(0)}) + "R",
      global("_codecs", "encode") + latin + "R",
      global("__builtin__", "bytes") + ")R",
      global("__builtin__", "bytearray") + tuple({global("_codecs", "encode") + latin + "R"}) + "R",
      global("__builtin__", "set") + tuple({list({whole(1), text("a")})}) + "R",
      global("builtins", "set") + tuple({list({})}) + "R",
      global("__builtin__", "complex") + tuple({number, number}) + "R",
      global("collections", "Counter") + tuple({dictionary({{"a", whole(2)}})}) + "R",
      global("torch", "Size") + tuple({tuple_of({2, 3})}) + "R",
      global("torch.serialization", "_get_layout") + tuple({text("torch.strided")}) + "R",
      global("torch", "bfloat16"),
      global("torch", "quint8"),
      global("torch", "per_tensor_affine"),
      global("torch", "Tensor")};
  std::vector<std::pair<std::string, std::string>> members{{"model", dictionary({{"w", plain}})}};
  for (const std::string& value : beside) members.emplace_back(concat("v", members.size()), value);
  CHECK(names(s.read(archive(dictionary(members), {{"0", six}}))) == std::vector<std::string>{"w"});
  // a counter is a dictionary of any counts
  CHECK(names(s.read(with_tensor(global("collections", "Counter") + tuple({dictionary({{"c", plain}})}) + "R"))) == std::vector<std::string>{"w.c"});
  for (const auto& [module, name] : std::vector<std::pair<std::string, std::string>>{
           {"collections", "defaultdict"}, {"__builtin__", "frozenset"}, {"__builtin__", "getattr"}, {"torch", "load"}, {"numpy", "dtype"}})
    s.refuses(with_tensor(global(module, name)), concat("names '", module, ".", name, "'"));
}

TEST_CASE("a tensor may be wrapped: a parameter, with its state, with attributes, moved from its device") {
  const saved s;
  const std::string of_v2 = global("torch._utils", "_rebuild_tensor_v2"), none = global("collections", "OrderedDict") + ")R";
  const auto parameter = [&](const std::string& data) {
    return global("torch._utils", "_rebuild_parameter_with_state") + tuple({data, "\x88", none, dictionary({{"tag", text("x")}})}) + "R";
  };
  const std::string arguments = tuple({in_six, whole(0), tuple_of({2, 3}), tuple_of({3, 1}), "\x89", none});
  const auto tagged = [&](const std::string& type, const std::string& function) {
    return global("torch._tensor", "_rebuild_from_type_v2") + tuple({function, type, arguments, dictionary({{"tag", whole(3)}})}) + "R";
  };
  const std::string moved = global("torch._utils", "_rebuild_device_tensor_from_cpu_tensor");
  for (const std::string& value :
       {parameter(plain), tagged(global("torch", "Tensor"), of_v2), tagged(global("torch.nn.parameter", "Parameter"), of_v2),
        parameter(tagged(global("torch", "Tensor"), of_v2)), moved + tuple({plain, global("torch", "float32"), text("xla:0"), "\x89"}) + "R",
        global("torch._utils", "_rebuild_tensor") + tuple({in_six, whole(0), tuple_of({2, 3}), tuple_of({3, 1})}) + "R"})
    CHECK(numbers(s.read(with_tensor(value)).find("w")) == floats{1, 2, 3, 4, 5, 6});
  s.refuses(with_tensor(parameter(parameter(plain))), "'w': a parameter must be made of a tensor");
  s.refuses(with_tensor(parameter(whole(1))), "'w': a parameter must be made of a tensor");
  s.refuses(with_tensor(tagged(global("torch", "Size"), of_v2)), "must be of torch.Tensor or torch.nn.Parameter; it is of 'torch.Size'");
  s.refuses(with_tensor(tagged(global("torch", "Tensor"), global("torch", "device"))), "'w': a tensor must have a storage");
  s.refuses(with_tensor(moved + tuple({plain, global("torch", "bfloat16"), text("xla:0"), "\x89"}) + "R"), "must have the dtype of its numbers, F32");
  std::string deep = plain;
  for (int i = 0; i < 70; ++i) deep = moved + tuple({deep, global("torch", "float32"), text("x"), "\x89"}) + "R";
  s.refuses(with_tensor(deep), "'w': a tensor must be wrapped at most 64 times");
  const std::string of_meta = tuple({global("torch", "float32"), tuple_of({3}), tuple_of({1}), "\x89"});
  s.refuses(with_tensor(global("torch._utils", "_rebuild_meta_tensor_no_storage") + of_meta + "R"),
            "'w': a tensor must have its numbers in the file, one behind the other; it is on the meta device, which holds no numbers");
  s.refuses(with_tensor(global("torch._utils", "_rebuild_sparse_tensor") + ")R"), "it is sparse");
}

TEST_CASE("types without a storage of their own are named beside the tensor") {
  const saved s;
  const auto typed = [](const std::string& type) {
    return global("torch._utils", "_rebuild_tensor_v3") +
           tuple({tuple({text("storage"), global("torch.storage", "UntypedStorage"), text("0"), text("cpu"), whole(24)}) + "Q", whole(0),
                  tuple_of({3}), tuple_of({1}), "\x89", "}", global("torch", type)}) +
           "R";
  };
  CHECK(s.read(archive(typed("uint16"), {{"0", six}})).tensors()[0].dtype == "U16");
  CHECK(s.read(archive(typed("float8_e4m3fn"), {{"0", six}})).tensors()[0].bytes.size() == 3);
  CHECK(numbers(s.read(archive(typed("float32"), {{"0", six}})).find("tensor")) == floats{1, 2, 3});
  s.refuses(archive(typed("Size"), {{"0", six}}), "must have a numeric dtype; it has 'torch.Size'");
  s.refuses(archive(typed("quint8"), {{"0", six}}), "must have a numeric dtype; it has 'torch.quint8'");
  s.refuses(archive(typed("quint9"), {{"0", six}}), "names 'torch.quint9'");
}

TEST_CASE("the files of before PyTorch 1.6 are read") {
  const saved s;
  const std::string counted = bytes_of<std::uint64_t>(6) + six;
  const auto file =
      s.read(legacy(dictionary({{"a", pickled::tensor(storage("FloatStorage", "k", 6, "N"), 0, {3, 2}, {1, 3})},
                                {"b", pickled::tensor(storage("LongStorage", "l", 1), 0, {1}, {1})},
                                {"c", pickled::tensor(storage("FloatStorage", "k2", 6, tuple({text("k"), whole(2), whole(3)})), 1, {2}, {1})}}),
                    {{"k", counted}, {"l", bytes_of<std::uint64_t>(1) + bytes_of<std::int64_t>(-5)}}));
  CHECK(numbers(file.find("a")) == floats{1, 4, 2, 5, 3, 6});
  CHECK(file.find("b")->dtype == "I64");
  CHECK(numbers(file.find("c")) == floats{4, 5});

  const std::string value = pickled::tensor(storage("FloatStorage", "k", 6, "N"), 0, {6}, {1});
  CHECK_NOTHROW((void)s.read(legacy(value, {{"k", counted}})));
  const std::string good = legacy(value, {{"k", counted}});
  s.refuses(good.substr(0, good.size() - 1), "storage 'k' must lie inside the file; it claims 6 numbers, 23 bytes are left");
  s.refuses(good.substr(0, good.size() - 25), "storage 'k' must lie inside the file. Is the file cut short?");
  s.refuses(good + "x", "storages must fill the file");
  s.refuses(legacy(value, {{"k", bytes_of(~std::uint64_t{0}) + six}}), "it claims 18446744073709551615 numbers");
  s.refuses(legacy(value, {{"other", counted}}), "storage 'other' must belong to a tensor");
  s.refuses(legacy(value, {}), "storage 'k' must be in the file; it is missing");
  s.refuses(legacy(value, {{"k", counted}}, "}(" + text("little_endian") + "\x89u"), "its numbers must be little-endian");
  s.refuses(legacy(value, {{"k", counted}}, "N"), "the description of the machine must be a dictionary");
  s.refuses(good.substr(0, 15) + program("M\xe8\x03") + good.substr(21), "its protocol must be 1001");
  const std::string part = storage("FloatStorage", "k2", 6, tuple({text("k"), whole(4), whole(3)}));
  s.refuses(legacy(dictionary({{"a", value}, {"b", pickled::tensor(part, 0, {2}, {1})}}), {{"k", counted}}),
            "storage 'k2' must have 3 numbers of 4 bytes from number 4 on");
  s.refuses(legacy(pickled::tensor(storage("FloatStorage", "k", 6, whole(1)), 0, {6}, {1}), {{"k", counted}}),
            "must be a whole one or a part of another");
}

TEST_CASE("tensors that do not fit their storage are refused") {
  const saved s;
  constexpr std::int32_t huge = 0x7fffffff;
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {2, 4}, {4, 1})),
            "'w': must lie inside its storage of 6 numbers; shape [2, 4] with strides [4, 1]");
  s.refuses(with_tensor(pickled::tensor(in_six, 1, {6}, {1})), "must lie inside its storage");
  s.refuses(with_tensor(pickled::tensor(in_six, 6, {}, {})), "must lie inside its storage");
  s.refuses(with_tensor(pickled::tensor(in_six, -1, {1}, {1})), "must have a storage, an offset, a shape and strides");
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {-1}, {1})), "shape and strides must be whole numbers");
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {2, 3}, {1})), "must have a stride for every dim");
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {huge, huge, huge}, {0, 0, 0})), "is larger than any file");
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {huge, huge, huge, 0}, {1, 1, 1, 1})), "is larger than any file");
  s.refuses(with_tensor(pickled::tensor(in_six, 0, {1000, 6}, {0, 1})),
            "shape [1000, 6] is expanded from 6 numbers. Save a copy that is contiguous");
  s.refuses(with_tensor(pickled::tensor(storage("FloatStorage", "0", 7), 0, {6}, {1})), "storage '0' must have 7 numbers of 4 bytes");
  s.refuses(with_tensor(pickled::tensor(storage("FloatStorage", "1", 6), 0, {6}, {1})), "storage '1' must be in the archive; it is missing");
  s.refuses(with_tensor(pickled::tensor(storage("ComplexDoubleStorage", "0", 1), 0, {1}, {1})),
            "must have a type of storage; it has 'torch.ComplexDoubleStorage'");
  s.refuses(with_tensor(pickled::tensor(storage("float32", "0", 1), 0, {1}, {1})), "must have a type of storage; it has 'torch.float32'");
  s.refuses(with_tensor(pickled::tensor(whole(1), 0, {1}, {1})), "must have a storage");
  s.refuses(with_tensor(pickled::tensor(text("storage") + "Q", 0, {1}, {1})), "a reference must be to a storage");
  s.refuses(with_tensor(global("torch._utils", "_rebuild_tensor_v2") + ")R"), "must have a storage");
  s.refuses(with_tensor(global("torch._utils", "_rebuild_parameter") + ")R"), "a parameter must be made of a tensor");
  const std::string one = global("torch._utils", "_rebuild_parameter") + tuple({plain}) + "R";
  s.refuses(with_tensor(global("torch._utils", "_rebuild_parameter") + tuple({one}) + "R"), "a parameter must be made of a tensor");
}

TEST_CASE("views that negate or conjugate their storage are refused") {
  const saved s;
  const std::string yes = "\x88", no = "\x89";
  const auto with = [](const std::string& metadata) {
    return with_tensor(global("torch._utils", "_rebuild_tensor_v2") +
                       tuple({in_six, whole(0), tuple_of({2, 3}), tuple_of({3, 1}), "\x89", "}", metadata}) + "R");
  };
  CHECK_NOTHROW((void)s.read(with("}")));
  CHECK_NOTHROW((void)s.read(with("N")));
  CHECK_NOTHROW((void)s.read(with(dictionary({{"neg", no}, {"conj", no}}))));
  s.refuses(with(dictionary({{"neg", yes}})), "'w': must not be a negated or conjugated view, because its storage holds other numbers; 'neg' is set");
  s.refuses(with(dictionary({{"neg", no}, {"conj", yes}})), "'conj' is set. Save a copy: tensor.resolve_neg().resolve_conj()");
  const auto typed = [](const std::string& metadata) {
    return with_tensor(global("torch._utils", "_rebuild_tensor_v3") +
                       tuple({tuple({text("storage"), global("torch.storage", "UntypedStorage"), text("0"), text("cpu"), whole(24)}) + "Q", whole(0),
                              tuple_of({3}), tuple_of({1}), "\x89", "}", global("torch", "float32"), metadata}) +
                       "R");
  };
  CHECK_NOTHROW((void)s.read(typed("}")));
  s.refuses(typed(dictionary({{"neg", yes}})), "'neg' is set");
}

TEST_CASE("values that are no tree of names are refused") {
  const saved s;
  const auto refuses = [&](const std::string& value, const std::string& words) { s.refuses(archive(value, {{"0", six}}), words); };
  refuses(dictionary({{"a", plain}, {"a", plain}}), "tensor 'a' must be there once; it is there twice");
  refuses(dictionary({{"a.b", plain}, {"a", dictionary({{"b", plain}})}}), "tensor 'a.b' must be there once");
  refuses("}(" + tuple({whole(1)}) + plain + "u", "keys that lead to tensors must be texts or whole numbers");
  refuses("]q\0h\0a"s, "its values must form a tree; one is a part of itself");
  refuses(dictionary({{"a", dictionary({{"w", plain}}) + "q\0"s}, {"b", "h\0"s}}), "'b': tensors must be in one place; these are in two");
  refuses(dictionary({{std::string(1001, 'n'), plain}}), "a tensor's name must have at most 1000 bytes");
  std::string deep = plain;
  for (int i = 0; i < 65; ++i) deep = list({deep});
  refuses(deep, "its values must be nested at most 64 deep");
  CHECK_NOTHROW((void)s.read(archive(dictionary({{"a", list({}) + "q\0"s}, {"b", "h\0"s}, {"w", plain}}), {{"0", six}})));
}

TEST_CASE("archives that hold something else are refused") {
  const saved s;
  s.refuses("abc", "it must begin as torch.save begins files");
  s.refuses(zip({{.name = "a.npy", .contents = "x"}}), "it must hold <name>/data.pkl; there is none");
  s.refuses(zip({{.name = "a/data.pkl", .contents = program("N")}, {.name = "b/data.pkl", .contents = program("N")}}), "it holds several");
  s.refuses(zip({{.name = "a/data.pkl", .contents = program("N")}, {.name = "a/constants.pkl", .contents = program("N")}}),
            "it is a TorchScript program");
  s.refuses(zip({{.name = "a/data.pkl", .contents = program("N")}, {.name = "a/byteorder", .contents = "big"}}), "they are 'big'");
  s.refuses(archive("cos\nsystem\n(" + text("true") + "tR", {}), "names 'os.system'");
  s.refuses(zip({{.name = "a/data.pkl", .contents = program("N"), .method = 8}}), "entry 'a/data.pkl' must be stored as it is");
}

TEST_CASE("a file that is cut anywhere is refused") {
  const saved s;
  const std::string whole_file = with_tensor(plain),
                    old_file = legacy(pickled::tensor(storage("FloatStorage", "k", 6), 0, {6}, {1}), {{"k", bytes_of<std::uint64_t>(6) + six}});
  for (const std::string& contents : {whole_file, old_file})
    for (std::size_t length = 0; length < contents.size(); ++length) CHECK_THROWS_AS((void)s.read(contents.substr(0, length)), file_error);
}

TEST_CASE("every real file is read, or refused for what it is") {
  const std::string folder = test_data("formats/torch_pt");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to PyTorch's files");
    return;
  }
  std::size_t read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    if (name == "broken.pt" || name == "candle_test.npy") {
      CHECK_THROWS_WITH_AS(torch_file(entry.path().string()), doctest::Contains("must begin as torch.save begins files"), file_error);
    } else if (name == "candle_test.npz") {
      CHECK_THROWS_WITH_AS(torch_file(entry.path().string()), doctest::Contains("must hold <name>/data.pkl"), file_error);
    } else {
      const torch_file file(entry.path().string());
      CHECK(!file.tensors().empty());
      ++read;
    }
  }
  CHECK(read == 32);
  const auto at = [&](const std::string& name) { return torch_file(folder + "/" + name); };
  CHECK(numbers(at("tensor_2d.pt").find("tensor")) == floats{1, 2, 3, 4, 5, 6});
  CHECK(numbers(at("simple_legacy.pt").find("weight")).size() == 6);
  CHECK(names(at("checkpoint.pt")) == std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"});
  CHECK(names(at("nested_dict.pt")) == std::vector<std::string>{"layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias"});
  // Fortran order: elements count up in the order of the shape
  std::vector<std::int64_t> fortran(24);
  const auto turned = at("candle_fortran_tensor_3d.pth");
  CHECK(turned.find("tensor_fortran")->layout == std::vector<file_dim>{{2, 1}, {3, 2}, {4, 6}});
  read_elements(*turned.find("tensor_fortran"), 0, std::as_writable_bytes(std::span(fortran)));
  for (std::size_t i = 0; i < fortran.size(); ++i) CHECK(fortran[i] == static_cast<std::int64_t>(i) + fortran[0]);
  for (const char* model : {"models/torchtune/tiny_fair_checkpoint.pt", "models/executorch_llama_demo/demo_rand_params.pth"}) {
    const torch_file file(test_data(model));
    CHECK(file.find("tok_embeddings.weight") != nullptr);
    CHECK(file.find("layers.1.attention.wq.weight") != nullptr);
  }
}
