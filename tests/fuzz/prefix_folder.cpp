// A prefix: PEFT's adapter_config.json if it begins with a brace, otherwise the weights of ChatGLM's P-tuning.
#include <filesystem>

#include <xtrain/io.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {
  using adapter = prefix_tuning;
};

llama<recipe> model_with(const prefix_config& config) {
  const cpu::context small(cpu::config{.threads = 1, .memory_limit = std::size_t{8} << 20});
  return llama<recipe>(
      {.vocab_size = 3, .hidden_size = 2, .num_layers = 2, .num_heads = 1, .intermediate_size = 2, .max_position_embeddings = 2}, small,
      {.adapter = config});
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input = fuzz::text_of(data, size);
  const bool is_config = fuzz::begins_as_json(input);
  const std::string config_path = fuzz::folder() / "adapter_config.json", weights_path = fuzz::folder() / "model.safetensors";
  std::filesystem::remove(is_config ? weights_path : config_path);
  put_file(is_config ? config_path : weights_path, input);
  fuzz::accepted = fuzz::reads([&] {
    const prefix_config config = prefix_config_of(fuzz::folder().path());
    fuzz::must(config.length > 0 && config.length <= prefix_tuning::max_num_tokens, "a prefix must have tokens");
    fuzz::must(config.counts_in_positions == is_config, "PEFT's prefixes must count in positions, ChatGLM's must not");
    auto model = model_with(config);
    if (!is_config) load_adapter(model, fuzz::folder().path());

    const scratch_folder again;
    save_pretrained(model, again.path());
    fuzz::must(prefix_config_of(again.path()) == config, "a prefix's settings must survive being written");
    load_adapter(model, again.path());
  });
  return 0;
}
