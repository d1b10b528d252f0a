// An adapter_config.json; an accepted one is attached to a small model, saved, and read again.
#include <xtrain/io.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {
  using adapter = lora;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  put_file(fuzz::folder() / "adapter_config.json", fuzz::text_of(data, size));
  fuzz::accepted = fuzz::reads([&] {
    const lora::config config = adapter_config_of(fuzz::folder().path());
    fuzz::must(config.rank > 0 && (!config.targets.empty() || !config.target_pattern.empty()), "an adapter must have a rank and modules");
    const cpu::context small(cpu::config{.threads = 1, .memory_limit = std::size_t{1} << 20});
    const llama<recipe> model({.vocab_size = 3, .hidden_size = 2, .num_layers = 1, .num_heads = 1, .intermediate_size = 2, .max_position_embeddings = 2}, small,
                              {.adapter = config});
    std::size_t adapted = 0;
    for (const auto& entry : model.parameters().entries()) adapted += lora::is_own(entry.spec.name) ? 1 : 0;
    fuzz::must(adapted >= 2, "an adapter must be attached to something");

    const std::string again = fuzz::folder() / "again";
    save_pretrained(model, again);
    fuzz::must(adapter_config_of(again) == config, "an adapter's settings must survive being written");
  });
  return 0;
}
