// torchtune's PPO recipe, from YAML to saved models; arithmetic: train/ppo_recipe.cpp. One trainer is compiled.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io/safetensors.hpp>

#include "golden.hpp"
#include "program.hpp"
#include "scratch.hpp"

using xtrain::json;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// 61 tokens: <unk>, <s>, </s>, and single characters.
std::string tokenizer_of_characters() {
  json vocabulary{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const std::string all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,?!:;";
  for (const char c : all) vocabulary[std::string(1, c)] = vocabulary.size();
  REQUIRE(vocabulary.size() == 61);
  json special = json::array();
  for (const auto& [text, id] : {std::pair{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}})
    special.push_back({{"id", id}, {"content", text}, {"special", true}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}});
  const json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return json{{"version", "1.0"},
              {"added_tokens", special},
              {"normalizer", nullptr},
              {"pre_tokenizer", nullptr},
              {"post_processor",
               {{"type", "TemplateProcessing"},
                {"single", {begin, text}},
                {"pair", {begin, text, second}},
                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
              {"decoder", nullptr},
              {"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}, {"merges", json::array()}}}}
      .dump();
}

/// Models, prompts, and torchtune's config with their sizes.
void make_inputs(const scratch_folder& folder) {
  for (const char* name : {"policy", "reward"})
    std::filesystem::copy(golden::folder("ppo_recipe") + "/" + name, folder / name, std::filesystem::copy_options::recursive);
  put_file(folder / "policy/tokenizer.json", tokenizer_of_characters());
  std::string prompts;
  for (const char* text : {"Once", "upon", "a", "time.", "There", "was", "no", "dog", "here"}) prompts += json{{"prompt", text}}.dump() + "\n";
  put_file(folder / "prompts.jsonl", prompts);
  const std::string sizes = "  num_layers: 2\n  num_heads: 4\n  num_kv_heads: 2\n  embed_dim: 16\n  intermediate_dim: 24\n  max_seq_len: 32\n";
  const auto checkpointer = [&](const std::string& key, const std::string& of, const std::string& type, const std::string& output) {
    return key + ":\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: " + (folder / of) +
           "\n  checkpoint_files: [model.safetensors]\n  output_dir: ${output_dir}" + output + "\n  model_type: " + type + "\n";
  };
  put_file(folder / "ppo.yaml",
           "output_dir: " + (folder / "out") + "\ntokenizer:\n  _component_: torchtune.models.mistral.mistral_tokenizer\n  path: " +
               (folder / "policy/tokenizer.json") +
               "\n  max_seq_len: 5\ndataset:\n  _component_: torchtune.datasets.text_completion_dataset\n  source: json\n  data_files: " +
               (folder / "prompts.jsonl") + "\n  split: train\n  column: prompt\n  add_eos: False\n" +
               "policy_model:\n  _component_: torchtune.models.mistral.mistral\n  vocab_size: 61\n" + sizes +
               "reward_and_value_model:\n  _component_: torchtune.models.mistral._component_builders.mistral_classifier\n  num_classes: 1\n  vocab_size: 63\n" +
               sizes + checkpointer("checkpointer", "policy", "MISTRAL", "") + "  recipe_checkpoint: null\n" +
               checkpointer("ref_policy_checkpointer", "policy", "MISTRAL", "/policy") + checkpointer("value_checkpointer", "reward", "REWARD", "/value") +
               checkpointer("reward_checkpointer", "reward", "REWARD", "/value") +
               "resume_from_checkpoint: False\nseed: 7\nshuffle: True\ndevice: cpu\nbatch_size: 4\nnum_steps: 15\nppo_epochs: 2\nppo_batch_size: 2\n"
               "gradient_accumulation_steps: 2\ncompile: True\noptimizer:\n  _component_: torch.optim.AdamW\n  lr: 1e-3\noptimizer_in_bwd: False\n"
               "log_peak_memory_stats: True\nenable_activation_checkpointing: False\nenable_kv_cache: True\ndtype: fp32\nforward_batch_size: 2\n"
               "max_generated_tokens: 6\ntemperature: 0.7\ntop_k: null\nmin_response_length: 2\npenalise_no_eos: True\nreward_penalty: -3\n"
               "stop_token_ids: [2, 7, 19, 28, 35, 52]\nwhiten_rewards: False\ngamma: 1\nlmbda: 0.95\nloss:\n  _component_: torchtune.rlhf.loss.PPOLoss\n"
               "  epsilon: 0.2\n  value_coeff: 0.1\n  value_clip_range: 0.2\nkl_coeff: 0.01\nmetric_logger:\n"
               "  _component_: torchtune.training.metric_logging.DiskLogger\n  log_dir: ${output_dir}/logs\n  filename: log.txt\nlog_every_n_steps: 1\n"
               "profiler:\n  _component_: torchtune.training.setup_torch_profiler\n  enabled: False\n");
}

}  // namespace

TEST_CASE("torchtune's recipe of PPO runs from its YAML, and saves policy and value model of every epoch") {
  const scratch_folder folder, cache;
  ::setenv("XTRAIN_CACHE", cache.path().c_str(), 1);
  make_inputs(folder);
  const auto tune = [&](std::vector<std::string> overrides) {
    std::vector<std::string> command{EXAMPLES "/tune", "run", "ppo_full_finetune_single_device", "--config", folder / "ppo.yaml"};
    command.insert(command.end(), overrides.begin(), overrides.end());
    return run_program(std::move(command));
  };
  const auto refused = [&](std::vector<std::string> overrides, const std::string& sentence) {
    const auto result = tune(std::move(overrides));
    CHECK(result.status == 2);
    CHECK_MESSAGE(holds(result.err, sentence), result.err);
  };
  // before a trainer is compiled
  refused({"reward_checkpointer.checkpoint_dir=none"}, "tune: reward_checkpointer.checkpoint_dir: must be a folder on this machine; given 'none'");
  refused({"value_checkpointer.checkpoint_files=[other.safetensors]"}, "value_checkpointer.checkpoint_files: other.safetensors must be in ");
  refused({"dataset.column=text"}, "records must have a field 'text'; the first one has prompt");
  CHECK_FALSE(std::filesystem::exists(folder / "out"));

  const auto result = tune({});
  REQUIRE_MESSAGE(result.status == 0, result.err);
  CHECK(holds(result.err, "INFO:torchtune.utils._logging:Running PPOFullFinetuneRecipeSingleDevice with resolved config:"));
  CHECK(holds(result.err, "; 9 prompts"));
  CHECK(holds(result.err, "step 3/3  reward "));
  // nine prompts are two steps of four; three steps end in the second epoch
  for (const char* epoch : {"epoch_0", "epoch_1"}) {
    const json policy = json::parse(get_file(folder / ("out/" + std::string(epoch) + "/config.json")));
    CHECK(policy.at("architectures").at(0) == "MistralForCausalLM");
    CHECK(json::parse(get_file(folder / ("out/" + std::string(epoch) + "/run.json"))).at("objective").at("kind") == "ppo");
    CHECK(std::filesystem::exists(folder / ("out/" + std::string(epoch) + "/tokenizer.json")));
    const json value = json::parse(get_file(folder / ("out/value/" + std::string(epoch) + "/config.json")));
    CHECK(value.at("architectures").at(0) == "MistralForSequenceClassification");
    CHECK(value.at("vocab_size") == 63);
  }
  CHECK_FALSE(std::filesystem::exists(folder / "out/epoch_2"));
  const auto score = [&](const std::string& of) { return golden::numbers(xtrain::safetensors_file(folder / (of + "/model.safetensors")), "score.weight"); };
  const auto before = score("reward"), after = score("out/value/epoch_1");
  REQUIRE(before.size() == after.size());
  CHECK(before != after);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(std::abs(before[i] - after[i]) < 0.02);  // twelve steps of at most about 1e-3
  // each step has two epochs of two optimizer steps
  const std::string log = get_file(folder / "out/logs/log.txt"), number = "-?[0-9.]+(e[+-][0-9]+)?";
  for (const char* step : {"4", "8", "12"})
    CHECK_MESSAGE(std::regex_search(log, std::regex("(^|\n)Step " + std::string(step) + " \\| scores:" + number +
                                                    " num_stop_tokens:[0-4] rlhf_reward:" + number + " kl:" + number + " kl_reward:" + number + " loss:" + number +
                                                    " policy_loss:" + number + " value_loss:" + number + " clipfrac:" + number + " response_lengths:" + number +
                                                    " ")),
                  log);

  // refusals that depend on the models and all data
  refused({"output_dir=" + (folder / "other"), "max_generated_tokens=30"},
          "a prompt and its answer must have at most 32 tokens, the models' max_position_embeddings; the longest prompt has 4, and answers up to 30");
  refused({"output_dir=" + (folder / "other"), "stop_token_ids=[61]"}, "rollouts.stop: must be tokens of the policy, below 61; given 61");
  refused({"output_dir=" + (folder / "other"), "batch_size=10", "num_steps=10"}, "data: must have the prompts of a step, 10; there are 9");
  refused({"output_dir=" + (folder / "other"), "reward_checkpointer.checkpoint_dir=" + (folder / "policy"), "reward_and_value_model.vocab_size=61"},
          "rollouts.reward_model " + (folder / "policy") + ": must hold a model with a score head, 'score.weight'; there is none");
  const auto plan = tune({"--plan"});
  CHECK_MESSAGE(plan.status == 0, plan.err);
  for (const char* part : {"value model", "reference model", "reward model", "generator"}) CHECK_MESSAGE(holds(plan.out, part), plan.out);
  ::unsetenv("XTRAIN_CACHE");
}
