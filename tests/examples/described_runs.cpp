// The trainer of run descriptions, run as by its front ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/train/checkpoint_state.hpp>

#include "program.hpp"
#include "scratch.hpp"

using xtrain::json;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A tiny LLaMA on instructions.
json small_run(const scratch_folder& folder) {
  std::string records;
  for (int i = 0; i < 9; ++i)
    records += json{{"instruction", "Say " + std::to_string(i)}, {"input", ""}, {"output", std::string(static_cast<std::size_t>(i + 1), 'a')}}.dump() + "\n";
  put_file(folder / "data.jsonl", records);
  return {{"model",
           {{"family", "llama"},
            {"config",
             {{"hidden_size", 16},
              {"num_hidden_layers", 1},
              {"num_attention_heads", 2},
              {"intermediate_size", 32},
              {"max_position_embeddings", 256},
              {"rms_norm_eps", 1e-5}}}}},
          {"tokenizer", {{"path", "byte"}}},
          {"data", {{{"kind", "alpaca"}, {"files", {folder / "data.jsonl"}}}}},
          {"micro_batch_size", 2},
          {"gradient_accumulation_steps", 2},
          {"epochs", 2},
          {"schedule", {{"kind", "linear"}, {"learning_rate", 1e-2}, {"warmup_steps", 1}, {"from_zero", true}}},
          {"optimizer", {{"settings", {{"weight_decay", 0.1}}}, {"decays", "all"}, {"max_grad_norm", 1.0}}},
          {"output", {{"folder", folder / "out"}, {"metrics", folder / "run.jsonl"}}}};
}

program_result train(const scratch_folder& folder, const json& run, const std::vector<std::string>& flags = {}) {
  put_file(folder / "run.json", run.dump());
  std::vector<std::string> command{EXAMPLES "/train-cpu-fp32", folder / "run.json"};
  command.insert(command.end(), flags.begin(), flags.end());
  return run_program(std::move(command));
}

/// The events of a kind in a metrics file.
std::vector<json> events(const std::string& file, const char* kind) {
  std::vector<json> found;
  std::string text = get_file(file);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    json one = json::parse(text.substr(at, end - at));
    if (one.value("event", "") == kind) found.push_back(std::move(one));
    at = end + 1;
  }
  return found;
}

}  // namespace

TEST_CASE("a run does what its description says") {
  const scratch_folder folder;
  json run = small_run(folder);
  const auto result = train(folder, run);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  // 9 samples, 4 per step: the incomplete third step is dropped
  const auto steps = events(folder / "run.jsonl", "step");
  REQUIRE(steps.size() == 4);
  const double rates[] = {0.0, 1e-2, 1e-2 * 2 / 3, 1e-2 / 3};
  for (std::size_t i = 0; i < 4; ++i) CHECK(steps[i].at("lr").get<double>() == doctest::Approx(rates[i]));
  CHECK(holds(result.err, "saved to " + (folder / "out")));
  const json saved = json::parse(get_file(folder / "out/run.json"));
  CHECK(saved.at("optimizer").at("decays") == "all");
  CHECK(get_file(folder / "out/model.safetensors").size() > 1000);

  SUBCASE("resumed, with other data") {
    json first = run;
    first["epochs"] = 4;
    first["output"]["folder"] = folder / "resumed";
    first["output"]["save_steps"] = 2;
    REQUIRE(train(folder, first).status == 0);
    first["output"]["resume"] = "latest";
    CHECK_FALSE(holds(train(folder, first).err, "data is "));
    put_file(folder / "data.jsonl", get_file(folder / "data.jsonl") + json{{"instruction", "More"}, {"input", ""}, {"output", "b"}}.dump() + "\n");
    const auto other = train(folder, first);
    CHECK_MESSAGE(holds(other.err, "settings differ from those of the checkpoint: data is \"" + folder / "data.jsonl" + ": 10 samples"), other.err);
  }
  SUBCASE("again with the saved description and the trained model") {
    json next = saved;
    next["model"] = {{"folder", folder / "out"}, {"config", {{"hidden_size", 16}}}};
    next["tokenizer"] = {{"path", "byte"}};
    next["output"]["folder"] = folder / "next";
    next["output"]["log_style"] = "torchtune";
    next["output"]["save_epochs"] = true;
    next["output"]["checkpoint_style"] = "torchtune";
    next["output"]["log_file"] = folder / "log.txt";
    const auto second = train(folder, next);
    REQUIRE_MESSAGE(second.status == 0, second.err);
    CHECK(holds(second.err, "INFO:torchtune.utils._logging:Model is initialized with precision torch.float32."));
    CHECK(holds(second.err, "1|2|Loss: "));
    CHECK(holds(second.err, "2|4|Loss: "));
    CHECK(holds(second.err, "100%|██████████████████████████████| 2/2 ["));
    CHECK(holds(second.err, "GiB saved to " + (folder / "next/epoch_0/model.safetensors")));
    CHECK(get_file(folder / "next/epoch_1/model.safetensors").size() > 1000);
    CHECK(holds(get_file(folder / "log.txt"), "Step 4 | loss:"));
    CHECK(holds(get_file(folder / "log.txt"), " grad_norm:"));
    // the given description is saved, without numbers derived from the data
    for (const char* file : {"next/run.json", "next/epoch_1/run.json"}) {
      const json kept = json::parse(get_file(folder / file));
      for (const auto& [name, value] : next.at("output").items()) CHECK_MESSAGE(kept.at("output").at(name) == value, file);
      CHECK(kept.at("seq_length") == 0);
      CHECK(kept.at("data") == next.at("data"));
    }
    next["model"]["config"]["hidden_size"] = 32;
    next["output"]["folder"] = folder / "third";
    const auto refused = train(folder, next);
    CHECK(refused.status == 2);
    CHECK(holds(refused.err, "model: hidden_size must be that of " + (folder / "out") + ", 16; the run's config names 32"));
    // sizes left out of config.json, or in rope_parameters
    json sparse = json::parse(get_file(folder / "out/config.json"));
    for (const char* name : {"num_key_value_heads", "head_dim", "rope_theta"}) sparse.erase(name);
    sparse["rope_parameters"] = {{"rope_theta", 5e4}, {"rope_type", "default"}};
    put_file(folder / "out/config.json", sparse.dump());
    next["model"]["config"] = {{"num_key_value_heads", 2}, {"head_dim", 8}, {"rope_theta", 5e4}};
    const auto same = train(folder, next, {"--plan"});
    CHECK_MESSAGE(same.status == 0, same.err);
    next["model"]["config"] = {{"rope_theta", 1e4}};
    CHECK(holds(train(folder, next).err, "model: rope_theta must be that of " + (folder / "out") + ", 50000.0; the run's config names 10000.0"));
    next["model"]["config"] = {{"num_key_value_heads", 1}};
    CHECK(holds(train(folder, next).err, "model: num_key_value_heads must be that of " + (folder / "out") + ", 2; the run's config names 1"));
    // missing size: the family's default
    json config = json::parse(get_file(folder / "out/config.json"));
    config.erase("rope_theta");
    config.erase("rope_parameters");
    put_file(folder / "out/config.json", config.dump());
    next["model"]["config"] = {{"rope_theta", 500000.0}};
    const auto other = train(folder, next);
    CHECK(other.status == 2);
    CHECK_MESSAGE(holds(other.err, "model: rope_theta must be that of " + (folder / "out") + ", 10000.0; the run's config names 500000.0"), other.err);
  }
}

TEST_CASE("descriptions that cannot be honoured are refused before anything is loaded") {
  const scratch_folder folder;
  const json good = small_run(folder);
  const auto refused = [&](const char* path, const json& value, const std::string& part) {
    json run = good;
    run[json::json_pointer(path)] = value;
    const auto result = train(folder, run);
    CAPTURE(path);
    CHECK(result.status == 2);
    CHECK_MESSAGE(holds(result.err, part), result.err);
  };
  refused("/precision", "bf16_mixed", "asks for the recipe cpu-bf16_mixed; this program has cpu-fp32");
  refused("/precison", "fp32", "precison: there is no such member");
  refused("/optimizer/settings/momentum", 0.9, "optimizer.settings.momentum: there is no such setting; there are beta1, beta2, epsilon, weight_decay");
  refused("/optimizer/settings/beta1", "a", "optimizer.settings.beta1: must be a number; given \"a\"");
  refused("/data/0/split", "train[:5%]", "data[0].split: must be train: parts of a file are not supported; split the file; given 'train[:5%]'");
  json baichuan = good.at("model");
  baichuan["family"] = "baichuan";
  baichuan["config"]["rope_theta"] = 5e5;
  refused("/model", baichuan, "model: baichuan: rope_theta must be 10000: config.json of this family has no such setting; given 5e+05");
  refused("/data/0/columns/question", "q", "data[0].columns: must not have 'question': there is no such field in data of kind alpaca");
  refused("/data/0/columns/output", "answer",
          "data " + (folder / "data.jsonl") + ": records must have a field 'answer'; the first one has input, instruction, output");
  refused("/data/0/files/0", folder / "none.jsonl", "data: must be a file on this machine; given '" + (folder / "none.jsonl") + "'");
  refused("/tokenizer/path", folder / "none", "tokenizer.path: must be a file or a folder on this machine; given '" + (folder / "none") + "'");
  refused("/tokenizer/path", folder.path(), "tokenizer.path: the folder must hold tokenizer.json, vocab.json, vocab.txt, *.model or *.tiktoken; '");
  refused("/output/folder", "", "output.folder: must be given");
  refused("/parallel/tensor", 2, "parallel.ranks: must be divisible by tensor x pipeline x context = 2; given 1");
  refused("/output/eval_epochs", true, "run description: output.eval_epochs: must be used with data to evaluate: eval_data, or eval_iters of indexed data");
  refused("/data/0/form", "messages", "run description: data[0].form: must be left out: it is no setting of data of kind alpaca; given \"messages\"");
  refused("/model/adapter", folder / "adapter", "model.adapter " + (folder / "adapter") + ": needs an adapter that is trained on; adapter.kind is none");
  refused("/eval_data", {{{"kind", "chat"}, {"files", {folder / "data.jsonl"}}, {"form", "instruction"}}}, "--chat-template: must be given");
  json resumed = good;
  resumed["output"]["resume"] = "latest";
  resumed["output"]["checkpoint_style"] = "hugging_face";
  const auto none = train(folder, resumed);
  CHECK(none.status == 2);
  CHECK_MESSAGE(holds(none.err, "there is no valid checkpoint in the output folder '" + (folder / "out") + "'"), none.err);
}

TEST_CASE("folders of epochs, evaluations of epochs, and limits of steps") {
  const scratch_folder folder;
  json run = small_run(folder);  // epochs of 2 steps
  run["eval_data"] = run["data"];
  run["epochs"] = 3;
  run["max_steps"] = 5;
  run["output"]["eval_epochs"] = true;
  run["output"]["save_epochs"] = true;
  run["output"]["log_style"] = run["output"]["checkpoint_style"] = "torchtune";
  const auto result = train(folder, run);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  std::vector<std::size_t> evaluated;
  for (const json& one : events(folder / "run.jsonl", "evaluation")) evaluated.push_back(one.at("step").get<std::size_t>());
  CHECK(evaluated == std::vector<std::size_t>{2, 4, 5});
  const auto weights = [&](const char* epoch) { return get_file(folder / ("out/" + std::string(epoch) + "/model.safetensors")); };
  CHECK(weights("epoch_0") != weights("epoch_1"));
  CHECK(weights("epoch_1") != weights("epoch_2"));  // the run ends in the third epoch
  CHECK_FALSE(std::filesystem::exists(folder / "out/epoch_3"));

  json limited = small_run(folder);
  limited["epochs"] = 1;
  limited["micro_batch_size"] = 1;  // an epoch of 4 steps
  limited["max_steps"] = 2;
  limited["max_steps_per_epoch"] = 3;
  limited["output"]["folder"] = folder / "limited";
  limited["output"]["metrics"] = folder / "limited.jsonl";
  const auto second = train(folder, limited);
  REQUIRE_MESSAGE(second.status == 0, second.err);
  CHECK(events(folder / "limited.jsonl", "step").size() == 2);

  // epochs of 4 steps that end after 3; the learning rate falls until the last epoch's end
  limited["epochs"] = 2;
  limited.erase("max_steps");
  limited["output"] = run.at("output");
  limited["eval_data"] = limited.at("data");
  limited["output"]["folder"] = folder / "cut";
  limited["output"]["metrics"] = folder / "cut.jsonl";
  const auto third = train(folder, limited);
  REQUIRE_MESSAGE(third.status == 0, third.err);
  const auto steps = events(folder / "cut.jsonl", "step");
  REQUIRE(steps.size() == 6);
  CHECK(steps[5].at("lr").get<double>() == doctest::Approx(1e-2 / 5));
  CHECK(holds(third.err, "1|3|Loss: "));
  CHECK(holds(third.err, "3/3 ["));
  CHECK(holds(third.err, "2|6|Loss: "));
  CHECK(std::filesystem::exists(folder / "cut/epoch_1"));
  CHECK(events(folder / "cut.jsonl", "evaluation").size() == 2);
}

TEST_CASE("a run of a part of an epoch, with intervals that are fractions of its steps") {
  const scratch_folder folder;
  json run = small_run(folder);
  run["micro_batch_size"] = 1;
  run["drop_last"] = false;  // 9 samples: epochs of 5 steps, the last of one micro-batch
  run["epochs"] = 3;
  run["partial_epochs"] = 2.3;  // ceil(11.5) steps
  run["eval_data"] = run["data"];
  run["output"].update({{"log_style", "hugging_face"}, {"log_epochs", true}, {"save_ratio", 0.35}, {"eval_ratio", 0.6}});
  const auto result = train(folder, run);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  const auto steps = events(folder / "run.jsonl", "step");
  REQUIRE(steps.size() == 12);
  CHECK(steps[11].at("lr").get<double>() == doctest::Approx(1e-2 / 11));  // the schedule ends after the last step
  std::vector<std::size_t> saved, evaluated;
  for (const auto& one : xtrain::checkpoints_in(folder / "out")) saved.push_back(one.first);
  CHECK(saved == std::vector<std::size_t>{5, 10});  // every ceil(4.2) steps
  for (const json& one : events(folder / "run.jsonl", "evaluation")) evaluated.push_back(one.at("step").get<std::size_t>());
  CHECK(evaluated == std::vector<std::size_t>{8, 12});
  for (const char* epoch : {"'epoch': 1.0}", "'epoch': 2.0}", "'epoch': 2.44}"}) CHECK_MESSAGE(holds(result.out, epoch), result.out);
  std::size_t lines = 0;
  for (std::size_t at = result.out.find("{'loss'"); at != std::string::npos; at = result.out.find("{'loss'", at + 1)) ++lines;
  CHECK(lines == 3);
  const json kept = json::parse(get_file(folder / "out/run.json"));
  CHECK(kept.at("partial_epochs") == 2.3);
  CHECK(kept.at("output").at("save_ratio") == 0.35);
}

TEST_CASE("what a run was trained with is in its folder and its checkpoints: template, special tokens, padding") {
  const scratch_folder folder;
  json run = small_run(folder);
  put_file(folder / "chat.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})" "\n");
  run["data"] = {{{"kind", "chat"}, {"files", {folder / "chat.jsonl"}}}};
  run["micro_batch_size"] = run["gradient_accumulation_steps"] = 1;
  run["tokenizer"] = {{"path", "byte"}};
  REQUIRE(train(folder, small_run(folder)).status == 0);  // a model's folder, with the files of the byte tokenizer
  json config = json::parse(get_file(folder / "out/config.json"));
  config["eos_token_id"] = 7;
  put_file(folder / "out/config.json", config.dump());
  put_file(folder / "out/generation_config.json", R"({"eos_token_id": 7, "temperature": 0.5})");
  put_file(folder / "out/tokenizer_config.json", R"({"eos_token": "<|endoftext|>", "padding_side": "left", "model_max_length": 1000})");
  run["model"] = {{"folder", folder / "out"}};
  run["tokenizer"] = {{"chat_template", "{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}"},
                      {"saved_settings", {{"padding_side", "right"}}}};
  run["output"].update({{"folder", folder / "tuned"}, {"save_steps", 1}});
  const auto result = train(folder, run);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  for (const char* saved : {"tuned", "tuned/checkpoint-1"}) {
    CAPTURE(saved);
    const auto file = [&](const char* name) { return get_file(folder / (std::string(saved) + "/" + name)); };
    CHECK(json::parse(file("config.json")).at("eos_token_id") == 256);
    CHECK(json::parse(file("generation_config.json")).at("eos_token_id") == json::parse("[256, 7]"));
    CHECK(json::parse(file("generation_config.json")).at("temperature") == 0.5);
    CHECK(holds(file("chat_template.jinja"), "m.role + m.content + eos_token"));
    CHECK(json::parse(file("tokenizer_config.json")) ==
          json::parse(R"({"eos_token": "<|endoftext|>", "padding_side": "right", "model_max_length": 1000})"));
  }
}

TEST_CASE("a run goes on from its newest checkpoint as if it had not ended") {
  const scratch_folder folder;
  json run = small_run(folder);
  run["output"]["save_steps"] = 2;
  const auto whole = train(folder, run);
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const std::string weights = get_file(folder / "out/model.safetensors");
  json earlier = run;
  earlier["output"]["resume"] = folder / "out/checkpoint-2";
  const auto back = train(folder, earlier);
  CHECK(back.status == 2);
  CHECK_MESSAGE(holds(back.err, "output.folder " + (folder / "out") + ": must have no checkpoints of later steps than " + (folder / "out/checkpoint-2") +
                                    ", with which the run goes on; it has checkpoint-4. Choose another folder, or remove them"),
                back.err);
  std::filesystem::remove_all(folder / "out/checkpoint-4");
  const auto refused = train(folder, run);
  CHECK(refused.status == 2);
  CHECK(holds(refused.err, "holds checkpoints of an earlier run, the newest of step 2"));
  run["output"]["resume"] = "latest";
  const auto second = train(folder, run);
  REQUIRE_MESSAGE(second.status == 0, second.err);
  CHECK(holds(second.err, "resuming after step 2"));
  CHECK_FALSE(holds(second.err, "settings differ"));
  CHECK(get_file(folder / "out/model.safetensors") == weights);
  std::filesystem::remove_all(folder / "out/checkpoint-4");
  run["drop_last"] = false;
  const auto changed = train(folder, run);
  CHECK_MESSAGE(holds(changed.err, "settings differ from those of the checkpoint: drop_last is false, it was true"), changed.err);
  run["output"]["overwrite"] = true;
  CHECK(holds(train(folder, run).err, "output.overwrite: must be false with output.resume"));
  run["output"].erase("resume");
  run["max_steps"] = 2;  // checkpoint-4 could be mistaken for this run's
  const auto anew = train(folder, run);
  REQUIRE_MESSAGE(anew.status == 0, anew.err);
  CHECK(holds(anew.err, "removed " + (folder / "out/checkpoint-4") + ", a checkpoint of an earlier run"));
  CHECK(std::filesystem::exists(folder / "out/checkpoint-2"));
  CHECK_FALSE(std::filesystem::exists(folder / "out/checkpoint-4"));
  run["model"] = {{"folder", folder / "out/checkpoint-2"}};
  const auto own = train(folder, run);
  CHECK(own.status == 2);
  CHECK_MESSAGE(holds(own.err, "must be another folder, because its checkpoints are removed: " + (folder / "out/checkpoint-2") + " is read"), own.err);
}

TEST_CASE("the plan of a run is printed without running it") {
  const scratch_folder folder;
  const auto result = train(folder, small_run(folder), {"--plan"});
  CHECK(result.status == 0);
  CHECK(holds(result.out, "weights"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

namespace {

using words = std::vector<std::string>;

program_result run(const std::string& name, words flags) {
  flags.insert(flags.begin(), EXAMPLES "/" + name);
  return run_program(std::move(flags));
}

/// A folder with a tiny LLaMA, a byte tokenizer, and Alpaca's records.
void make_model(const scratch_folder& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two three four five\n";
  put_file(folder / "text.txt", text);
  const auto made = run("pretrain", {"--tokenizer",  "byte", "--num-layers", "1",  "--hidden-size",      "16", "--num-attention-heads", "2",
                                     "--seq-length", "512",  "--data",       folder / "text.txt", "--max-steps", "1",  "--output-dir", folder / "model"});
  REQUIRE_MESSAGE(made.status == 0, made.err);
  json records = json::array();
  for (int i = 0; i < 8; ++i) records.push_back({{"instruction", "Say " + std::to_string(i)}, {"input", ""}, {"output", std::to_string(i)}});
  put_file(folder / "alpaca.json", records.dump());
}

/// A torchtune config for that model.
std::string tune_config(const scratch_folder& folder) {
  const std::string config = "output_dir: " + (folder / "tuned") + R"(
tokenizer:
  _component_: torchtune.models.llama2.llama2_tokenizer
  path: )" + (folder / "model/tokenizer.json") + R"(
  max_seq_len: 256
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  source: json
  data_files: )" + (folder / "alpaca.json") + R"(
seed: 1
shuffle: True
model:
  _component_: torchtune.models.llama2.llama2
  vocab_size: 257
  num_layers: 1
  num_heads: 2
  num_kv_heads: 2
  embed_dim: 16
  max_seq_len: 512
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: )" + (folder / "model") + R"(
  checkpoint_files: [model.safetensors]
  recipe_checkpoint: null
  output_dir: ${output_dir}
  model_type: LLAMA2
resume_from_checkpoint: False
batch_size: 2
epochs: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 1e-3
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
max_steps_per_epoch: null
gradient_accumulation_steps: 2
optimizer_in_bwd: False
compile: False
device: cpu
dtype: fp32
enable_activation_checkpointing: False
enable_activation_offloading: False
metric_logger:
  _component_: torchtune.training.metric_logging.DiskLogger
  log_dir: ${output_dir}/logs
log_every_n_steps: 1
log_peak_memory_stats: False
)";
  put_file(folder / "config.yaml", config);
  return folder / "config.yaml";
}

}  // namespace

TEST_CASE("command lines of other systems run") {
  const scratch_folder folder;
  make_model(folder);
  SUBCASE("torchtune's tune run") {
    const auto result = run("tune", {"run", "full_finetune_single_device", "--config", tune_config(folder)});
    REQUIRE_MESSAGE(result.status == 0, result.err);
    CHECK(holds(result.err, "2|4|Loss: "));
    CHECK(holds(result.err, "INFO:torchtune.utils._logging:Saving final epoch checkpoint."));
    CHECK(std::filesystem::exists(folder / "tuned/epoch_0/model.safetensors"));
    CHECK(std::filesystem::exists(folder / "tuned/epoch_1/model.safetensors"));
    CHECK(std::filesystem::exists(folder / "tuned/logs"));
    // torchrun's flags for rendezvous and printing are not needed
    const auto launched = [&](words flags) {
      flags.insert(flags.begin(), "run");
      flags.insert(flags.end(), {"full_finetune_distributed", "--config", folder / "config.yaml", "--print-run"});
      return run("tune", flags);
    };
    const auto ranks = launched({"--nnodes", "1:1", "--nproc-per-node=2", "--rdzv_id", "9", "--rdzv-backend=c10d", "--rdzv_endpoint", "localhost:0",
                                 "--standalone", "--master_port", "29501", "--node_rank", "0", "-t", "3", "--max-restarts", "0"});
    REQUIRE_MESSAGE(ranks.status == 0, ranks.err);
    CHECK(json::parse(ranks.out).at("parallel").at("ranks") == 2);
    CHECK_MESSAGE(holds(ranks.err, "note: --rdzv_id, --rdzv-backend, --rdzv_endpoint, --standalone, --master_port, --node_rank, -t, --max-restarts: ranks are "
                                   "threads of one process, which find each other without it\n"),
                  ranks.err);
    for (const auto& [flags, sentence] : {std::pair{words{"--rdzv_ednpoint", "a"}, "--rdzv_ednpoint: must be --nproc_per_node, --nnodes, --config, or another "
                                                                                   "flag of torchrun; did you mean '--rdzv_endpoint'?"},
                                          {words{"--nnodes", "1:2"}, "--nnodes: must be a positive whole number; given '1:2'"},
                                          {words{"--standalone=yes"}, "--standalone: must have no value; given 'yes'"}}) {
      const auto refused = launched(flags);
      CHECK(refused.status == 2);
      CHECK_MESSAGE(holds(refused.err, sentence), refused.err);
    }
    const auto nodes = run("tune", {"run", "--nnodes", "2", "full_finetune_distributed", "--config", folder / "config.yaml"});
    CHECK_MESSAGE(holds(nodes.err, "--nnodes: must be 1; given 2: start the same command on all nodes with mpirun or srun"), nodes.err);
    const auto wrong = run("tune", {"run", "full_finetune_single_device", "--config", folder / "config.yaml", "optimiser.lr=1"});
    CHECK(wrong.status == 2);
    CHECK_MESSAGE(holds(wrong.err, "optimiser"), wrong.err);
    const auto refused = [&](const std::string& more, const std::string& part) {
      const auto one = run("tune", {"run", "full_finetune_single_device", "--config", folder / "config.yaml", more});
      CHECK(one.status == 2);
      CHECK_MESSAGE(holds(one.err, part), one.err);
    };
    const std::string config = folder / "config.yaml";
    refused("seed=2", config + ":25: checkpointer.output_dir " + (folder / "tuned") + ": holds checkpoints of an earlier run, the newest of step 4; give ");
    refused("model.embed_dim=32", config + ":13: model._component_: hidden_size must be that of " + (folder / "model") + ", 16; the run's config names 32");
    refused("checkpointer.checkpoint_dir=" + (folder / "none"), "tune: checkpointer.checkpoint_dir: must be a folder on this machine; given '");
    refused("dataset.column_map.output=answer", config + ":9: dataset.data_files " + (folder / "alpaca.json") + ": records must have a field 'answer'");
    ::setenv("RANK", "0", 1), ::setenv("WORLD_SIZE", "2", 1);
    refused("seed=2", "a launcher (RANK, WORLD_SIZE) has started this process as one of 2, but does not connect them. Start `tune run full_finetune_");
    ::unsetenv("RANK"), ::unsetenv("WORLD_SIZE");
  }
  SUBCASE("a folder of an earlier run of hf_train") {
    const auto train_with = [&](words more) {
      more.insert(more.begin(), {"--model_name_or_path", folder / "model", "--data_path", folder / "alpaca.json", "--output_dir", folder / "alpaca",
                                 "--per_device_train_batch_size", "2", "--model_max_length", "256"});
      return run("hf_train", more);
    };
    const auto first = train_with({"--max_steps", "4", "--save_steps", "2"});
    REQUIRE_MESSAGE(first.status == 0, first.err);
    const auto refused = train_with({"--max_steps", "2", "--save_steps", "2"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(holds(refused.err, "hf_train: --output_dir " + (folder / "alpaca") + ": holds checkpoints of an earlier run, the newest of step 4; give "
                                     "--resume_from_checkpoint True to go on, --overwrite_output_dir True to begin anew, or choose another folder"),
                  refused.err);
    const auto anew = train_with({"--max_steps", "2", "--save_steps", "2", "--overwrite_output_dir"});
    REQUIRE_MESSAGE(anew.status == 0, anew.err);
    CHECK(std::filesystem::exists(folder / "alpaca/checkpoint-2"));
    CHECK_FALSE(std::filesystem::exists(folder / "alpaca/checkpoint-4"));
    const auto longer = train_with({"--model_max_length", "1024", "--overwrite_output_dir"});
    CHECK(longer.status == 2);
    CHECK_MESSAGE(holds(longer.err, "--model_max_length: must be at most 513 tokens, the model's max_position_embeddings and one that is no input; given 1024"),
                  longer.err);
    std::filesystem::remove(folder / "model/tokenizer.json");
    const auto without = train_with({"--overwrite_output_dir"});
    CHECK(without.status == 2);
    CHECK_MESSAGE(holds(without.err, "hf_train: --model_name_or_path: the folder must hold tokenizer.json, vocab.json"), without.err);
    CHECK(std::filesystem::exists(folder / "alpaca/checkpoint-2"));  // a run that does not begin removes nothing
  }
  SUBCASE("hf_train has a checkpoint after the last step, as the Trainer has since transformers 4.42") {
    const auto checkpoints_of = [&](const std::string& name, words more) {
      more.insert(more.begin(), {"--model_name_or_path", folder / "model", "--data_path", folder / "alpaca.json", "--output_dir", folder / name,
                                 "--per_device_train_batch_size", "2", "--model_max_length", "256"});
      const auto result = run("hf_train", more);
      CAPTURE(result.err);
      CHECK(result.status == 0);
      std::vector<std::size_t> steps;
      for (const auto& one : xtrain::checkpoints_in(folder / name)) steps.push_back(one.first);
      return std::pair(steps, result.out + result.err);
    };
    using steps = std::vector<std::size_t>;
    // 8 records are 4 steps
    const auto first = checkpoints_of("steps", {"--max_steps", "5", "--save_steps", "2", "--logging_steps", "3", "--logging_first_step"});
    CHECK(first.first == steps{2, 4, 5});
    CHECK(std::count(first.second.begin(), first.second.end(), '{') == 3);  // after steps 1 and 3, and at the end
    CHECK_MESSAGE(holds(first.second, "'epoch': 0.25}"), first.second);
    CHECK_FALSE(holds(first.second, "no step is left"));
    const auto again = checkpoints_of("steps", {"--max_steps", "5", "--save_steps", "2", "--resume_from_checkpoint", "True"});
    CHECK(again.first == steps{2, 4, 5});
    CHECK_MESSAGE(holds(again.second, "resuming after step 5\n"), again.second);
    CHECK(holds(again.second, "no step is left after the checkpoint's step 5: nothing was trained\n"));
    CHECK(checkpoints_of("default", {"--num_train_epochs", "1"}).first == steps{4});
    CHECK(checkpoints_of("limited", {"--max_steps", "5", "--save_steps", "2", "--save_total_limit", "1"}).first == steps{5});
    CHECK(checkpoints_of("epochs", {"--max_steps", "5", "--save_strategy", "epoch"}).first == steps{4, 5});
    CHECK(checkpoints_of("none", {"--max_steps", "3", "--save_strategy", "no"}).first.empty());
  }
  SUBCASE("Stanford Alpaca's train.py") {
    const auto result = run("hf_train", {"train.py",
                                         "--model_name_or_path",
                                         folder / "model",
                                         "--data_path",
                                         folder / "alpaca.json",
                                         "--output_dir",
                                         folder / "alpaca",
                                         "--num_train_epochs",
                                         "1",
                                         "--per_device_train_batch_size",
                                         "2",
                                         "--gradient_accumulation_steps",
                                         "2",
                                         "--save_strategy",
                                         "steps",
                                         "--save_steps",
                                         "2000",
                                         "--save_total_limit",
                                         "1",
                                         "--learning_rate",
                                         "2e-5",
                                         "--weight_decay",
                                         "0.",
                                         "--warmup_ratio",
                                         "0.03",
                                         "--lr_scheduler_type",
                                         "cosine",
                                         "--logging_steps",
                                         "1"});
    REQUIRE_MESSAGE(result.status == 0, result.err);
    CHECK_MESSAGE(holds(result.out + result.err, "{'loss': "), result.out);
    CHECK(std::filesystem::exists(folder / "alpaca/model.safetensors"));
  }
  SUBCASE("AscendSpeed's pretrain_llama.py") {
    const auto data = run("preprocess_data", {"--input", folder / "text.txt", "--output-prefix", folder / "text", "--tokenizer-type", "PretrainedFromHF",
                                              "--tokenizer-name-or-path", folder / "model", "--append-eod"});
    REQUIRE_MESSAGE(data.status == 0, data.err);
    const auto pretrain = [&](const char* iterations, const words& more) {
      words flags{"--num-layers", "1", "--hidden-size", "16", "--num-attention-heads", "2", "--ffn-hidden-size", "32", "--seq-length", "32",
                  "--max-position-embeddings", "32", "--micro-batch-size", "2", "--global-batch-size", "4", "--train-iters", iterations, "--lr", "1e-3",
                  "--min-lr", "1e-4", "--lr-decay-style", "cosine", "--lr-warmup-iters", "1", "--data-path", folder / "text_text_document",
                  "--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", folder / "model", "--save", folder / "megatron",
                  "--log-interval", "2", "--eval-iters", "0"};
      flags.insert(flags.end(), more.begin(), more.end());
      return run("pretrain_llama", flags);
    };
    const auto result = pretrain("4", {"--save-interval", "3"});
    REQUIRE_MESSAGE(result.status == 0, result.err);
    // a checkpoint at the end, as in Megatron: a longer run continues from it
    CHECK(std::filesystem::exists(folder / "megatron/checkpoint-3"));
    CHECK(std::filesystem::exists(folder / "megatron/checkpoint-4"));
    const auto refused = pretrain("6", {});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(holds(refused.err, "pretrain_llama: --save " + (folder / "megatron") + ": holds checkpoints of an earlier run"), refused.err);
    const auto longer = pretrain("6", {"--load", folder / "megatron"});
    REQUIRE_MESSAGE(longer.status == 0, longer.err);
    CHECK_MESSAGE(holds(longer.err, "resuming after step 4"), longer.err);
    CHECK(std::filesystem::exists(folder / "megatron/checkpoint-6"));
    const auto complete = pretrain("6", {"--load", folder / "megatron"});
    CHECK(complete.status == 0);
    CHECK_MESSAGE(holds(complete.err, "no step is left after the checkpoint's step 6: nothing was trained\n"), complete.err);
    CHECK_MESSAGE(holds(result.out + result.err, " iteration        4/       4 | consumed samples:           16 |"), result.out);
  }
}

TEST_CASE("a trainer of another type is compiled once and kept") {
  const scratch_folder folder;
  make_model(folder);
  const std::string cache = folder / "cache";
  ::setenv("XTRAIN_CACHE", cache.c_str(), 1);
  const words command{"run", "--nproc_per_node", "2", "full_finetune_distributed", "--config", tune_config(folder)};
  const auto first = run("tune", command);
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK(holds(first.err, "compiling the trainer cpu-fp32-zero.3, once\n"));
  CHECK(holds(first.err, "2|4|Loss: ") == false);  // 8 samples are two steps of two ranks and two micro-batches
  CHECK(holds(first.err, "2|2|Loss: "));
  std::filesystem::remove_all(folder / "tuned");
  const auto second = run("tune", command);
  REQUIRE_MESSAGE(second.status == 0, second.err);
  CHECK_FALSE(holds(second.err, "compiling"));
  ::unsetenv("XTRAIN_CACHE");
}
