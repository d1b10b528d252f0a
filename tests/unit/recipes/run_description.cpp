#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include <xtrain/recipes/recipe_type.hpp>
#include <xtrain/recipes/run_description.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

run_description small_run() {
  run_description run;
  run.model.folder = "llama";
  run.model.override_config["attn_pdrop"] = 0.0;
  run.precision = "bf16_mixed";
  run.data.push_back({.kind = "alpaca", .files = {"a.json", "b.json"}, .packed = true});
  run.parallel = {.ranks = 8, .zero = 2, .tensor = 2, .stage_layers = {}, .micro_batch_sizes = {}};
  run.optimizer.settings["weight_decay"] = 0.1;
  run.schedule.learning_rate = 2e-5;
  return run;
}

}  // namespace

TEST_CASE("a description is read back as it was saved") {
  const scratch_folder f;
  const run_description run = small_run();
  run.save(f / "run.json");
  CHECK(run_description::load(f / "run.json") == run);
  const json short_form = run.to_json(false);
  CHECK(run_description::from_json(short_form, "run") == run);
  CHECK_FALSE(short_form.contains("epochs"));
  CHECK(short_form.at("parallel").size() == 3);
  CHECK(run.to_json().at("epochs") == 1);
}

TEST_CASE("an unknown member and a value of another type are refused with their path") {
  const auto reads = [](const char* text) { return run_description::from_json(json::parse(text), "run.json"); };
  CHECK_THROWS_WITH_AS(reads(R"({"parallel": {"tensr": 2}})"),
                       "run.json.parallel.tensr: there is no such member; there are ranks, zero, shards, tensor, pipeline, context, expert, "
                       "sequence_parallel, ring, virtual_stages, schedule, stage_layers, micro_batch_sizes",
                       config_error);
  CHECK_THROWS_WITH_AS(reads(R"({"data": [{"kind": "text"}, {"files": "a"}]})"), "run.json.data[1].files: must be a list; given \"a\"", config_error);
  CHECK_THROWS_WITH_AS(reads(R"({"epochs": -1})"), "run.json.epochs: must be a non-negative integer; given -1", config_error);
  CHECK_THROWS_WITH_AS(reads(R"({"shuffle": 1})"), "run.json.shuffle: must be true or false; given 1", config_error);
  CHECK_THROWS_WITH_AS(reads("[]"), "run.json: must be an object; given []", config_error);
}

TEST_CASE("values that contradict each other are refused") {
  run_description run = small_run();
  CHECK_NOTHROW(run.check());
  run.parallel.sequence_parallel = true;
  CHECK_NOTHROW(run.check());
  run.parallel.tensor = 1;
  CHECK_THROWS_WITH_AS(run.check(), "run description: parallel.sequence_parallel: needs tensor-parallel ranks; parallel.tensor is 1", config_error);
  run = small_run();
  run.parallel.ranks = 3;
  CHECK_THROWS_WITH_AS(run.check(), "run description: parallel.ranks: must be divisible by tensor x pipeline x context = 2; given 3", config_error);
  run = small_run();
  run.precision = "fp8";
  CHECK_THROWS_AS(run.check(), config_error);
}

TEST_CASE("settings without an effect are refused, not ignored") {
  const auto refused = [](const auto& change, const std::string& sentence) {
    run_description run = small_run();
    run.data = {{.kind = "alpaca", .files = {"a.json"}}};
    run.adapter.settings = run.loss_scale = json::object();
    CHECK_NOTHROW(run.check());
    change(run);
    CHECK_THROWS_WITH_AS(run.check(), ("run description: " + sentence).c_str(), config_error);
  };
  using run_type = run_description;
  refused([](run_type& r) { r.data[0].form = "messages"; }, "data[0].form: must be left out: it is no setting of data of kind alpaca; given \"messages\"");
  refused([](run_type& r) { r.data[0].weight = 0.5; }, "data[0].weight: must be left out: it is no setting of data of kind alpaca; given 0.5");
  refused([](run_type& r) { r.data[0].add_eos = false; }, "data[0].add_eos: must be true: every sample ends with the end-of-text token; given false");
  refused([](run_type& r) { r.eval_data = {{.kind = "chat", .files = {"a.json"}, .form = "sharegpt"}}; },
          "eval_data[0].form: must be one of messages, conversations, instruction, moss, auto; given 'sharegpt'");
  refused([](run_type& r) { r.data[0] = {.kind = "preference", .files = {"a.json"}, .packed = true}; },
          "data[0].packed: must be left out: it is no setting of data of kind preference; given true");
  refused([](run_type& r) { r.data[0] = {.kind = "text", .files = {"a.txt"}, .packed = true}; },
          "data[0].packed: must be left out: a.txt is one stream of text; records are .json or .jsonl");
  refused([](run_type& r) { r.data[0] = {.kind = "text", .files = {"a.json"}, .block_size = 8}; },
          "data[0].block_size: must be left out: it is no setting of texts that are not in groups (group_texts); given 8");
  refused([](run_type& r) { r.data[0] = {.kind = "text", .files = {"a.json"}, .packed = true, .group_texts = 10}; },
          "data[0].packed: must be left out: it is no setting of texts in groups; given true");
  refused([](run_type& r) { r.data.push_back({.kind = "indexed", .files = {"a"}}); }, "data: must be of kind indexed as a whole or not at all; 1 of 2 are");
  refused([](run_type& r) { r.eval_data = r.data, r.data[0] = {.kind = "indexed", .files = {"a"}}; },
          "eval_data: must be left out: indexed data has a validation part of its own, see eval_iters");
  refused([](run_type& r) { r.eval_iters = 3; }, "eval_iters: must be used with indexed data; given 3");
  refused([](run_type& r) { r.split = "9,1"; }, "split: must be used with indexed data; given '9,1'");
  refused([](run_type& r) { r.adapter.rank = 4; }, "adapter.rank: must be left out: it is no setting of a run without an adapter; given 4");
  refused([](run_type& r) { r.adapter.kind = "lora", r.adapter.settings["length"] = 4; },
          "adapter.settings: must be left out: it is no setting of an adapter of kind lora; given {\"length\":4}");
  refused([](run_type& r) { r.adapter.kind = "prefix", r.adapter.dropout = 0.1; },
          "adapter.dropout: must be left out: it is no setting of an adapter of kind prefix; given 0.1");
  refused([](run_type& r) { r.loss_scale["window"] = 4; }, "loss_scale: must be used with precision fp16_mixed; the precision is bf16_mixed");
  refused([](run_type& r) { r.offload_folder = "f"; }, "offload_folder: must be used with offload, which is none; given 'f'");
  refused([](run_type& r) { r.offload = "optimizer", r.offload_folder = "f", r.device = "cuda"; },
          "offload_folder: must be empty with the device cuda, which offloads to pinned memory of the host; given 'f'");
  refused([](run_type& r) { r.objective = {.kind = "orpo", .second_model = "m"}; },
          "objective.second_model: must be left out: the objective orpo has none; given 'm'");
  refused([](run_type& r) { r.parallel.zero = 0, r.parallel.shards = 2; }, "parallel.shards: must be used with parallel.zero, which is 0; given 2");
  refused([](run_type& r) { r.parallel.stage_layers = {1, 2}; }, "parallel.stage_layers: must be used with pipeline-parallel ranks; parallel.pipeline is 1");
  refused([](run_type& r) { r.parallel.pipeline = 2, r.parallel.virtual_stages = 2, r.parallel.schedule = "gpipe"; },
          "parallel.virtual_stages: must be 1 with the schedule gpipe; given 2");
  refused([](run_type& r) { r.output.eval_epochs = true; }, "output.eval_epochs: must be used with data to evaluate: eval_data, or eval_iters of indexed data");
  refused([](run_type& r) { r.output.save_epochs = true, r.output.save_steps = 5; }, "output.save_steps: must be 0 with save_epochs; given 5");
  refused([](run_type& r) { r.data = {{.kind = "indexed", .files = {"a"}}}, r.output.save_epochs = true; },
          "output.save_epochs: must be left out: samples of indexed data are those of all epochs");
  refused([](run_type& r) { r.output.save_epochs = true, r.output.checkpoint_style = "torchtune", r.output.save_total_limit = 3; },
          "output.save_total_limit: must be 0 or 1 with save_epochs and the checkpoint_style torchtune, which has the models of all epochs and one checkpoint; "
          "given 3");
  refused([](run_type& r) { r.output.log_file = "f"; }, "output.log_file: must be used with log_style torchtune; given 'f'");
  refused([](run_type& r) { r.output.log_first_step = true; }, "output.log_first_step: must be used with log_style hugging_face; given true with xtrain");
  refused([](run_type& r) { r.data = {{.kind = "indexed", .files = {"a"}}}, r.seed = std::uint64_t{1} << 32U; },
          "seed: must be below 2^32 with indexed data, whose order is numpy's; given 4294967296");
  refused([](run_type& r) { r.output.log_steps = 5; }, "output.log_steps: must be left out: log_style xtrain has a line for every tenth of the run; given 5");
  refused([](run_type& r) { r.tokenizer.add_tokens = {"a,b"}; }, "tokenizer.add_tokens: must be texts without a comma; given 'a,b'");
  refused([](run_type& r) { r.tokenizer.special_tokens["pad_token"] = "a"; },
          "tokenizer.special_tokens: must be left out without tokenizer.add_tokens: they name what is added");
  refused([](run_type& r) { r.tokenizer.add_tokens = {"a"}, r.tokenizer.special_tokens["padding"] = "a"; },
          "tokenizer.special_tokens: must name tokens as tokenizer_config.json does, such as pad_token, and be their texts; given padding \"a\"");
}

TEST_CASE("a run of PPO has prompts, models with a score head and sizes that fit, and nothing that it does not read") {
  run_description whole;
  whole.model.folder = "policy";
  whole.data.push_back({.kind = "prompts", .files = {"a.jsonl"}, .text_field = "prompt"});
  whole.micro_batch_size = 2;
  whole.gradient_accumulation_steps = 4;
  whole.objective.kind = "ppo";
  whole.objective.settings = {{"temperature", 0.7}};
  whole.rollouts = {.reward_model = "reward", .value_model = "reward", .value_output = "value", .steps = 3, .batch_size = 16, .stop = {2}};
  whole.output.folder = "out";
  CHECK_NOTHROW(whole.check());
  CHECK(recipe_of(whole).key() == "cpu-fp32-ppo");
  CHECK(run_description::from_json(whole.to_json(), "run") == whole);
  CHECK(run_description::from_json(whole.to_json(false), "run") == whole);
  const auto refused = [&](auto&& change, const char* sentence) {
    run_description run = whole;
    change(run);
    CHECK_THROWS_WITH_AS(run.check(), doctest::Contains(sentence), config_error);
  };
  refused([](auto& run) { run.rollouts.reward_model.clear(); }, "rollouts.reward_model: must be given: a folder of a model with a score head");
  refused([](auto& run) { run.rollouts.value_model.clear(); }, "rollouts.value_model: must be given");
  refused([](auto& run) { run.rollouts.value_output = "out"; }, "rollouts.value_output: must be another folder than output.folder, out");
  refused([](auto& run) { run.rollouts.batch_size = 12; },
          "rollouts.batch_size: must be a multiple of micro_batch_size x gradient_accumulation_steps = 8; given 12");
  refused([](auto& run) { run.rollouts.generation_batch_size = 5; }, "rollouts.generation_batch_size: must divide batch_size, 16; given 5");
  refused([](auto& run) { run.rollouts.stop.clear(); }, "rollouts.stop: must name a token that ends an answer");
  refused([](auto& run) { run.rollouts.steps = 0; }, "rollouts.steps: must be positive; given 0");
  refused([](auto& run) { run.rollouts.gamma = 1.5; }, "rollouts.gamma: must be from 0 to 1; given 1.5");
  refused([](auto& run) { run.rollouts.kl_coef = -1; }, "rollouts.kl_coef: must not be negative; given -1");
  refused([](auto& run) { run.output.save_total_limit = 2; }, "output.save_total_limit: must be 0 with the objective ppo");
  refused([](auto& run) { run.output.log_style = "megatron"; }, "output.log_style: must be xtrain or torchtune with the objective ppo; given megatron");
  refused([](auto& run) { run.data[0].kind = "text"; }, "data: must be of kind prompts with the objective ppo; given text");
  refused([](auto& run) { run.data[0].files = {"a.txt"}; }, "files: must be .json or .jsonl; given a.txt");
  refused([](auto& run) { run.adapter.kind = "lora"; }, "adapter.kind: must be none with the objective ppo; given lora");
  refused([](auto& run) { run.parallel.ranks = 2; }, "parallel: must be one rank with the objective ppo");
  refused([](auto& run) { run.schedule.warmup_steps = 2; }, "schedule: must be constant, without warm-up, with the objective ppo");
  refused([](auto& run) { run.epochs = 2; }, "max_steps: must be left out with the objective ppo");
  refused([](auto& run) { run.output.resume = "latest"; }, "output.resume: must be left out with the objective ppo");
  refused([](auto& run) { run.output.save_steps = 2; }, "output: must have no save_steps");
  refused([](auto& run) { run.seq_length = 64; }, "offload: must be none with the objective ppo, without neftune_noise_alpha and seq_length");

  run_description other = small_run();
  other.rollouts.steps = 3;
  CHECK_THROWS_WITH_AS(other.check(), "run description: rollouts.steps: must be left out: it is no setting of the objective next_token; given 3", config_error);
  other = small_run();
  other.data[0] = {.kind = "prompts", .files = {"a.jsonl"}};
  CHECK_THROWS_WITH_AS(other.check(), doctest::Contains("data: must not be of kind prompts with the objective next_token"), config_error);
}

TEST_CASE("a recipe type follows from a description") {
  run_description run = small_run();
  recipe_type type = recipe_of(run);
  CHECK(type.text("my_run") ==
        "struct my_run : xtrain::defaults {\n"
        "  using precision = xtrain::bf16_mixed;\n"
        "  using parallel = xtrain::parallel<xtrain::zero<2>, xtrain::tensor_parallel>;\n"
        "};\n");
  CHECK(type.key() == "cpu-bf16_mixed-parallel.zero.2.tensor_parallel");
  CHECK(type.cmake("t", "train.cpp") == "xtrain_add_trainer(NAME t SOURCE train.cpp PRECISION bf16_mixed PARALLEL \"parallel<zero<2>, tensor_parallel>\")");

  run.parallel.pipeline = 2;
  run.parallel.sequence_parallel = true;
  run.parallel.virtual_stages = 2;
  run.recompute = "selective";
  run.adapter.kind = "qlora";
  run.offload = "optimizer";
  type = recipe_of(run);
  CHECK(type.parallel == "pipeline<interleaved, parallel<zero<2>, sequence_parallel>>");
  CHECK(type.recompute == "recompute_selective<attention_outputs>");
  CHECK(type.offload == "offload_to_file<memory_role::optimizer>");
  run_description on_gpu = run;
  on_gpu.device = "cuda";
  CHECK(recipe_of(on_gpu).offload == "offload_to_host<memory_role::optimizer>");
  CHECK(type.adapter == "qlora");

  run = run_description{};
  run.model.folder = "llama";
  type = recipe_of(run);
  CHECK(type == recipe_type{});
  CHECK(type.text() == "struct recipe : xtrain::defaults {\n};\n");
  CHECK(type.key() == "cpu-fp32");
}
