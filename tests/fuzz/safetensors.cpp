// A safetensors file, or (if it begins with a brace) the index of a folder with one valid file.
#include <xtrain/io/folder.hpp>
#include <xtrain/io/safetensors.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

/// Properties of each returned tensor, and of all together.
void check_tensors(const safetensors_file& file, std::size_t file_size) {
  const std::size_t most = file_size - 8;
  std::size_t all = 0;
  for (const file_tensor& tensor : file.tensors()) {
    fuzz::must(file.find(tensor.name) == &tensor, "a tensor must be found by its name");
    const auto known =
        std::find_if(stored_dtypes.begin(), stored_dtypes.end(), [&](const stored_dtype& n) { return n.name == tensor.dtype; });
    fuzz::must(known != stored_dtypes.end(), "a tensor's number type must be known");
    fuzz::must(tensor.bytes.size() <= most, "a tensor must lie inside the file");
    fuzz::must(tensor.size() * known->bits == tensor.bytes.size() * 8, "a tensor's shape must say how many bytes it has");
    all += tensor.bytes.size();
    std::vector<double> values(tensor.size());
    const bool floating = tensor.dtype == "F64" || tensor.dtype == "F32" || tensor.dtype == "F16" || tensor.dtype == "BF16";
    fuzz::must(fuzz::reads([&] { read_numbers<double>(tensor, 0, values); }) == floating,
               "floating-point tensors must be readable, others must not");
  }
  fuzz::must(all <= most, "tensors must not overlap");
}

/// Written and read again, the tensors are equal.
void check_written_again(const safetensors_file& file) {
  std::vector<tensor_to_write> tensors;
  for (const file_tensor& tensor : file.tensors())
    tensors.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .bytes = tensor.bytes.size(),
                       .produce = [&tensor](const auto& sink) { sink(tensor.bytes.data(), tensor.bytes.size()); }});
  const std::string path = fuzz::folder() / "again.safetensors";
  write_safetensors(path, std::move(tensors), file.metadata());
  const safetensors_file again(path);
  fuzz::must(again.metadata() == file.metadata(), "metadata must survive being written");
  fuzz::must(again.tensors().size() == file.tensors().size(), "as many tensors must be read as were written");
  for (const file_tensor& tensor : file.tensors()) {
    const file_tensor* other = again.find(tensor.name);
    fuzz::must(other != nullptr && other->dtype == tensor.dtype && other->shape == tensor.shape, "a tensor must survive being written");
    fuzz::must(std::equal(tensor.bytes.begin(), tensor.bytes.end(), other->bytes.begin(), other->bytes.end()),
               "a tensor's bytes must survive being written");
  }
}

void read_index(const std::string& input) {
  static const scratch_folder folder;
  static const bool once = [] {
    const float one = 1;
    std::vector<tensor_to_write> tensors;
    for (const char* name : {"a", "b"})
      tensors.push_back({.name = name, .dtype = "F32", .shape = {1}, .bytes = 4, .produce = [&](const auto& sink) { sink(&one, 4); }});
    write_safetensors(folder / "s", std::move(tensors));
    return true;
  }();
  fuzz::must(once, "the good file must be there");
  put_file(folder / "model.safetensors.index.json", input);
  fuzz::accepted = fuzz::reads([&] {
    const weight_folder weights(folder.path());
    for (const auto& [name, tensor] : weights.tensors())
      fuzz::must(tensor != nullptr && tensor->name == name && weights.find(name) == tensor, "an index must lead to the tensor it names");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input = fuzz::text_of(data, size);
  if (fuzz::begins_as_json(input)) {
    read_index(input);
    return 0;
  }
  const std::string path = fuzz::folder() / "x.safetensors";
  put_file(path, input);
  fuzz::accepted = fuzz::reads([&] {
    const safetensors_file file(path);
    check_tensors(file, size);
    check_written_again(file);
  });
  return 0;
}
