// A GGUF file: metadata, tensors, and its model, tokenizer or adapter; models are written again.
#include <xtrain/adapt/gguf_adapter.hpp>
#include <xtrain/adapt/gguf_adapter_folder.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/text/gguf_tokenizer.hpp>

#include "weights.hpp"

using namespace xtrain;

namespace {

/// Every value is inside the file and readable as its type.
void check_metadata(const gguf_file& file, std::size_t file_size) {
  for (const auto& entry : file.metadata()) {
    const auto& key = entry.first;
    const auto& value = entry.second;
    fuzz::must(file.find(key) == &value, "a value must be found by its key");
    fuzz::must(value.bytes.size() <= file_size, "a value must lie inside the file");
    const bool number = value.type != gguf_value_type::string && value.type != gguf_value_type::boolean;
    if (value.is_array) {
      fuzz::must(fuzz::reads([&] { fuzz::must(file.texts(key).size() == value.count, "an array must have its elements"); }) ==
                     (value.type == gguf_value_type::string),
                 "arrays of strings must be readable as texts, others must not");
      fuzz::must(fuzz::reads([&] { fuzz::must(file.numbers(key).size() == value.count, "an array must have its elements"); }) == number,
                 "arrays of numbers must be readable, others must not");
    } else {
      fuzz::must(fuzz::reads([&] { (void)file.text(key); }) == (value.type == gguf_value_type::string), "strings must be readable, others must not");
      fuzz::must(fuzz::reads([&] { (void)file.number(key); }) == number, "numbers must be readable, others must not");
      fuzz::must(fuzz::reads([&] { (void)file.flag(key); }) == (value.type == gguf_value_type::boolean), "flags must be readable, others must not");
    }
  }
}

void check_tensors(const gguf_file& file, std::size_t file_size) {
  std::size_t all = 0;
  for (const gguf_tensor& stored : file.tensors()) {
    const file_tensor tensor{.name = std::string(stored.name), .dtype = std::string(stored.type), .shape = stored.shape, .bytes = stored.bytes};
    all += tensor.bytes.size();
    fuzz::must(all <= file_size, "tensors must not overlap");
    fuzz::must(tensor.size() <= 8 * file_size, "a tensor must not be larger than its file");
    std::vector<double> values(tensor.size());
    fuzz::must(fuzz::reads([&] { read_numbers<double>(tensor, 0, values); }) == is_floating(tensor.dtype),
               "types with numbers must be readable, others must not");
  }
}

/// An accepted model can be written, and reads back equal.
void check_written_again(const gguf_model& model) {
  const auto& family = all_families::of(model.config());
  const std::string path = fuzz::folder() / "y.gguf";
  write_gguf(path, gguf_config_of(sizes_of(model.config(), family), family), model, {.type = gguf_type::f32});
  fuzz::must(fuzz::reads([&] {
               const gguf_model again(path);
               for (const auto& [name, tensor] : again.tensors()) {
                 const file_tensor* before = model.find(name);
                 fuzz::must(before != nullptr && before->shape == tensor->shape, "a model that is written must have the same tensors");
               }
             }),
             "a model that is written must be readable");
}

/// An accepted adapter's matrices can be written again.
void check_adapter(const std::string& path) {
  for (const char* family : {"llama", "internlm2"}) {
    const gguf_config base{.family = family, .hidden_size = 4, .num_layers = 1, .num_heads = 2, .num_kv_heads = 1, .head_dim = 2};
    (void)fuzz::reads([&] {
      const std::string to = fuzz::folder() / "adapter";
      write_adapter_folder(to, path, base);
      fuzz::must(fuzz::reads([&] { (void)adapter_config_of(to); }), "the settings of an adapter that is read must be readable");
      write_gguf_adapter(fuzz::folder() / "y.gguf", to, base);
    });
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = fuzz::folder() / "x.gguf";
  put_file(path, fuzz::text_of(data, size));
  fuzz::accepted = fuzz::reads([&] {
    const gguf_file file(path);
    check_metadata(file, size);
    check_tensors(file, size);
  });
  if (!fuzz::accepted) return 0;
  (void)fuzz::reads([&] {
    const gguf_model model(path);
    for (const auto& [name, tensor] : model.tensors()) {
      fuzz::must(tensor->name == name && is_floating(tensor->dtype), "a model's tensors must be readable");
      std::vector<double> values(tensor->size());
      read_numbers<double>(*tensor, 0, values);
    }
    check_written_again(model);
  });
  check_adapter(path);
  (void)fuzz::reads([&] {
    const tokenizer with = load_gguf_tokenizer(path);
    for (const token t : with.encode("a b\n0\xC3\xA9"))
      fuzz::must(t >= 0 && static_cast<std::size_t>(t) < with.vocab_size(), "a token must be in the vocabulary");
  });
  return 0;
}
