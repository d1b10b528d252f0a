// One file of a checkpoint to resume from: trainer_state.json if it begins with a brace, otherwise weights and optimizer state. All other files are valid.
#include <cmath>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {
  using precision = fp16_mixed;  // its checkpoints also hold the loss scale
};
using model_type = llama<recipe>;

struct run {
  scratch_folder folder;
  model_type model{{.vocab_size = 3, .hidden_size = 2, .num_layers = 1, .num_heads = 1, .intermediate_size = 2, .max_position_embeddings = 2},
                   cpu::context(cpu::config{.threads = 1})};
  xtrain::trainer<model_type> trainer{model, {.max_steps = 4, .micro_batch_size = 1}};
  checkpoint_folder<xtrain::trainer<model_type>> files{trainer, folder.path()};
  std::string whole = files.save();
  run() {  // replaced files must be read, not rejected by their checksums
    json state = parse_json(get_file(whole + "/trainer_state.json"), "state");
    state.erase("checksums");
    state.erase("checksum");
    put_file(whole + "/trainer_state.json", state.dump());
  }
};

/// Resumes with one replaced file, which is restored afterwards.
bool resumes_with(run& one, const std::string& name, const std::string& contents) {
  const std::string path = one.whole + "/" + name, good = get_file(path);
  put_file(path, contents);
  const bool resumed = fuzz::reads([&] { one.files.resume_from(one.whole); });
  put_file(path, good);
  return resumed;
}

void check_progress(const training_progress& now, const std::string& state) {
  const json saved = parse_json(state, "state");
  fuzz::must(saved["step"].get<std::size_t>() == now.step && saved["updates"].get<std::size_t>() == now.updates &&
                 saved["skipped"].get<std::size_t>() == now.skipped && saved["data"]["epoch"].get<std::size_t>() == now.data.epoch &&
                 saved["data"]["step"].get<std::size_t>() == now.data.step,
             "a run must go on from where the file says");
  fuzz::must(std::isfinite(now.loss_scale.scale) && now.loss_scale.scale > 0, "the loss must be scaled by a positive number");
  fuzz::must(now.updates + 1 > now.updates && now.step + 1 > now.step, "steps must go on being counted");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static run one;
  const std::string input = fuzz::text_of(data, size);
  if (fuzz::begins_as_json(input)) {
    fuzz::accepted = resumes_with(one, "trainer_state.json", input);
    if (fuzz::accepted) check_progress(one.trainer.progress(), input);
    return 0;
  }
  const bool weights = resumes_with(one, "model.safetensors", input), optimizer = resumes_with(one, "optimizer.safetensors", input);
  fuzz::must(!(weights && optimizer), "weights must not pass for optimizer state");
  fuzz::accepted = weights || optimizer;
  return 0;
}
