// A model file of llm.c or llama2.c.
#include <xtrain/io.hpp>
#include <xtrain/io/llama2c.hpp>
#include <xtrain/io/llmc.hpp>

#include "weights.hpp"

using namespace xtrain;

namespace {

/// The header's settings fit some family; written again, the tensors give the same file.
void check_model(const weight_file& file, const std::string& contents) {
  const json_settings& config = *file.config();
  const std::string again = fuzz::folder() / "again.bin";
  if (config.text_or("", {"model_type"}) == gpt2_family::name) {
    (void)sizes_of<gpt2_family>(config);
    if (config.text_or("", {"torch_dtype"}) == "bfloat16") (void)write_llmc<bf16>(again, file, config);
    else (void)write_llmc<float>(again, file, config);
    const weight_file second(again);
    fuzz::must(second.tensors().size() == file.tensors().size(), "a model must survive being written");
  } else if (file.format() == weight_format::llama2c) {
    (void)sizes_of<llama_family>(config);
    const bool v1 = contents.starts_with("24ka");
    (void)write_llama2c(again, file, config, v1 ? llama2c_version::v1 : llama2c_version::legacy);
    const weight_file second(again);
    for (const auto& [name, tensor] : file.tensors()) {
      std::vector<std::byte> a(tensor->size() * 4), b(a.size());
      read_elements(*tensor, 0, a);
      read_elements(*second.find(name), 0, b);
      fuzz::must(a == b, "a tensor must survive being written for llama2.c");
    }
  } else {
    fuzz::must(config.size({"intermediate_size"}) > 0, "a LLaMA must have feed-forward layers");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string contents = fuzz::text_of(data, size);
  const std::string path = fuzz::folder() / "x.bin";
  put_file(path, contents);
  fuzz::accepted = fuzz::reads([&] {
    const weight_file file(path);
    require<file_error>(file.config().has_value(), path, ": must be of llm.c or llama2.c here; it is not");
    fuzz::check_tensors(file, size);
    check_model(file, contents);
  });
  return 0;
}
