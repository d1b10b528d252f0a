// torchtune's configs. XTRAIN_TORCHTUNE_CONFIGS names torchtune's recipes/configs, which are then counted.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/front_ends/torchtune.hpp>
#include <xtrain/front_ends/torchtune_chat.hpp>
#include <xtrain/front_ends/torchtune_components.hpp>
#include <xtrain/recipes/recipe_type.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

const std::vector<std::string> own_data{"dataset.source=json", "dataset.data_files=data.jsonl"};

std::vector<std::string> with_data(std::vector<std::string> more) {
  more.insert(more.begin(), own_data.begin(), own_data.end());
  return more;
}

run_description tune_description(const std::string& config, const std::vector<std::string>& overrides = {}, const torchtune_launch& launch = {}) {
  return *torchtune_run("", config, with_data(overrides), launch).run;
}

/// The error message of a refused run.
std::string tune_refusal(const std::string& config, const std::vector<std::string>& overrides, const std::string& recipe = "",
                         const torchtune_launch& launch = {}) {
  try {
    (void)torchtune_run(recipe, config, overrides, launch);
  } catch (const config_error& problem) {
    return problem.what();
  }
  return "it is accepted";
}

/// One of our configs as a file, so that lines are known.
std::string config_file(const scratch_folder& folder, const std::string& name) {
  for (const torchtune_config& one : torchtune_configs())
    if (one.name == name) put_file(folder / "config.yaml", one.text);
  return folder / "config.yaml";
}

}  // namespace

TEST_CASE("torchtune's LoRA config becomes a run description") {
  const run_description run = tune_description("llama3_2/1B_lora_single_device", {"device=cpu", "optimizer.betas=[0.8,0.95]", "~clip_grad_norm", "seed=7"});
  CHECK(run.device == "cpu");
  CHECK(run.precision == "bf16_pure");
  CHECK(run.recompute == "none");
  CHECK(run.model.folder == "/tmp/Llama-3.2-1B-Instruct");
  CHECK(run.model.files == std::vector<std::string>{"model.safetensors"});
  CHECK(run.model.family == "llama");
  CHECK(run.model.config ==
        json::parse(R"({"vocab_size": 128256, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 2048,
                                            "intermediate_size": 8192})"));
  CHECK(run.adapter.kind == "lora");
  CHECK(run.adapter.rank == 64);
  CHECK(run.adapter.alpha == 128.0);
  CHECK(run.adapter.targets == std::vector<std::string>{"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  CHECK(run.tokenizer.path == "/tmp/Llama-3.2-1B-Instruct/original/tokenizer.model");
  REQUIRE(run.data.size() == 1);
  CHECK(run.data[0].kind == "chat");
  CHECK(run.data[0].form == "instruction");
  CHECK(run.data[0].files == std::vector<std::string>{"data.jsonl"});
  CHECK(run.data[0].train_on_input);  // torchtune's default for Alpaca only
  CHECK(run.data[0].prompt_template.find("### Input:\n{input}") != std::string::npos);
  CHECK(run.micro_batch_size == 4);
  CHECK(run.gradient_accumulation_steps == 8);
  CHECK(run.epochs == 1);
  CHECK(run.drop_last);
  CHECK(run.seed == 7);
  CHECK(run.optimizer.kind == "adamw");
  CHECK(run.optimizer.decays == "all");
  CHECK(run.optimizer.settings == json::parse(R"({"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.01})"));
  CHECK(run.optimizer.max_grad_norm == 0.0);
  CHECK(run.schedule.kind == "cosine");
  CHECK(run.schedule.learning_rate == 3e-4);
  CHECK(run.schedule.warmup_steps == 100);
  CHECK(run.schedule.from_zero);
  CHECK(run.objective.kind == "next_token");
  CHECK(run.objective.average == "step");
  CHECK(run.output.folder == "/tmp/torchtune/llama3_2_1B/lora_single_device");
  CHECK(run.output.log_file == run.output.folder + "/logs/log.txt");
  CHECK(run.output.log_style == "torchtune");
  CHECK(run.output.checkpoint_style == "torchtune");
  CHECK(run.output.save_epochs);
  CHECK_FALSE(run.output.adapter_only);
  CHECK(run.parallel.ranks == 1);
  CHECK(recipe_of(run).key() == "cpu-bf16_pure-lora");
  CHECK(run_description::from_torchtune("llama3_2/1B_lora_single_device", with_data({}), "lora_finetune_single_device").adapter == run.adapter);
}

TEST_CASE("distributed recipes of torchtune shard as FSDP does") {
  const auto of = [](const std::vector<std::string>& overrides, std::size_t ranks) {
    return tune_description("llama3_2/1B_full", overrides, {.ranks = ranks, .is_distributed = true});
  };
  CHECK(of({}, 4).parallel.zero == 3);
  CHECK(of({}, 4).parallel.ranks == 4);
  CHECK(of({"fsdp_reshard_after_forward=False"}, 4).parallel.zero == 2);
  const auto tensor = [&](const char* dim) {
    return of({concat("tensor_parallel_dim=", dim), "tensor_parallel_plan._component_=torchtune.models.llama3.base_llama_tp_plan"}, 4).parallel;
  };
  CHECK(tensor("2").tensor == 2);
  CHECK_THROWS_WITH_AS(tensor("3"), "tensor_parallel_dim: must divide the number of ranks, 4; given 3", config_error);
  CHECK_THROWS_WITH_AS(of({"tensor_parallel_dim=2"}, 4), doctest::Contains("must be 1 without a tensor_parallel_plan"), config_error);
  CHECK(of({"data_parallel_replicate_dim=2"}, 8).parallel.shards == 4);
  CHECK(of({"data_parallel_shard_dim=-1"}, 8).parallel.shards == 0);
  CHECK_THROWS_AS(of({"data_parallel_shard_dim=3"}, 8), config_error);
  CHECK(tune_refusal("llama3_2/1B_lora_single_device", own_data, "", {.ranks = 2, .is_distributed = true}) ==
        "recipe lora_finetune_single_device: runs on one device; leave out --nproc_per_node and torchrun's other flags");
}

TEST_CASE("torchtune's optimizers, losses and adapters are those of this library") {
  run_description run = tune_description("llama3_2/1B_full_single_device");
  CHECK(run.optimizer.kind == "adamw_8bit");
  CHECK(run.optimizer.settings.at("min_8bit_size") == 4096);
  CHECK(run.optimizer.settings.at("weight_decay") == 0.01);
  CHECK(run.schedule.kind == "constant");
  run = tune_description("llama3_2/1B_full_single_device", {"optimizer=torch.optim.SGD", "optimizer_in_bwd=False", "clip_grad_norm=1.5"});
  CHECK(run.optimizer.kind == "sgd");
  CHECK(run.optimizer.settings.at("momentum") == 0.0);
  CHECK(run.optimizer.max_grad_norm == 1.5);
  CHECK(tune_description("llama3_2/1B_full", {"clip_grad_norm=inf"}).optimizer.max_grad_norm == 1e30);  // the norm is logged

  CHECK(tune_description("llama2/7B_qlora_single_device").adapter.kind == "qlora");
  CHECK(tune_description("llama2/7B_lora_single_device", {"model.use_dora=True"}).adapter.kind == "dora");
  const auto sharded = [](std::size_t ranks) {
    const std::vector<std::string> dora = with_data({"model=torchtune.models.llama3_2.lora_llama3_2_1b", "model.lora_attn_modules=[q_proj]",
                                                     "model.use_dora=True",
                                                     "lr_scheduler._component_=torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
                                                     "lr_scheduler.num_warmup_steps=1"});
    return *torchtune_run("lora_finetune_distributed", "llama3_2/1B_full", dora, {.ranks = ranks, .is_distributed = true}).run;
  };
  CHECK(sharded(2).parallel.zero == 2);  // rows of weights must be whole
  run = sharded(2);
  CHECK(std::count_if(run.notes.begin(), run.notes.end(), [](const std::string& one) { return one.starts_with("model.use_dora: "); }) == 1);
  run.parallel.zero = 3;
  CHECK_THROWS_WITH_AS(run.check(),
                       "run description: parallel.zero: must be at most 2 with an adapter of kind dora, which needs whole rows of weights; given 3", config_error);
  CHECK(sharded(1).parallel.zero == 3);
  run = tune_description("llama2/7B_qlora_single_device", {"model.use_dora=True"});
  CHECK(run.adapter.kind == "qdora");
  CHECK(recipe_of(run).adapter == "qlora");
  CHECK(tune_refusal("llama2/7B_lora_single_device", with_data({"model.use_dora=True", "model.lora_dropout=0.1"})).find("model.lora_dropout: must be 0 with") !=
        std::string::npos);
  CHECK(tune_description("llama2/7B_qlora_single_device", {"model.apply_lora_to_output=True"}).adapter.targets.front() == "lm_head");
  CHECK(tune_refusal("llama2/7B_lora_single_device", with_data({"model.use_dora=True", "model.apply_lora_to_output=True"}))
            .find("model.apply_lora_to_output: must be False with use_dora") != std::string::npos);
  run = tune_description("llama2/7B_qat_full", {"fake_quant_after_n_steps=10"});
  CHECK(run.adapter.kind == "qat");
  CHECK(run.adapter.settings == json::parse(R"({"group_size": 256, "fake_quant_after_n_steps": 10})"));

  const auto weights_alone = [](const char* more) {
    return tune_description("llama2/7B_qat_full", {"quantizer=torchtune.training.quantization.Int4WeightOnlyQATQuantizer", more}).adapter.settings;
  };
  CHECK(weights_alone("quantizer.groupsize=128") == json::parse(R"({"group_size": 128, "quantizes_activations": false, "float_zero_points": true})"));
  CHECK_THROWS_WITH_AS(weights_alone("quantizer.groupsize=16"), doctest::Contains("quantizer.groupsize: must be 32, 64, 128 or 256"), config_error);
  CHECK_THROWS_WITH_AS(weights_alone("quantizer.inner_k_tiles=3"), doctest::Contains("quantizer.inner_k_tiles: must be 2, 4 or 8"), config_error);

  run = tune_description("llama3_2/1B_qat_lora", {"quantizer.groupsize=32"}, {.ranks = 2, .is_distributed = true});
  CHECK(run.adapter.kind == "qat_lora");
  CHECK(run.adapter.rank == 64);
  CHECK(run.adapter.settings == json::parse(R"({"group_size": 32})"));
  CHECK(run.schedule.kind == "cosine");
  CHECK(recipe_of(run).adapter == "qat_lora");
  const auto rounded = [](std::vector<std::string> overrides) { return tune_refusal("llama3_2/1B_qat_lora", with_data(std::move(overrides))); };
  CHECK(rounded({"model.use_dora=True"}).find("without DoRA and without quantized weights") != std::string::npos);
  CHECK(rounded({"model=torchtune.models.llama3_2.qlora_llama3_2_1b"}).find("without DoRA and without quantized weights") != std::string::npos);
  CHECK(rounded({"model=torchtune.models.qwen2.lora_qwen2_0_5b", "checkpointer.model_type=QWEN2"}).find("torchtune's QATLoRALinear leaves them out") !=
        std::string::npos);
  CHECK(rounded({"fake_quant_after_n_steps=2"}).find("fake_quant_after_n_steps: there is no such key") != std::string::npos);

  // each part of Phi-3's fused matrices has an adapter, as in torchtune's separate ones
  const std::vector<std::string> phi{"model=torchtune.models.phi3.lora_phi3_mini",
                                     "lr_scheduler._component_=torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
                                     "lr_scheduler.num_warmup_steps=1"};
  const auto of_phi = [&](std::vector<std::string> more) {
    more.insert(more.begin(), phi.begin(), phi.end());
    return torchtune_run("lora_finetune_distributed", "phi3/mini_full", with_data(more)).run->adapter;
  };
  adapter_description adapter = of_phi({"model.lora_attn_modules=[v_proj,q_proj,output_proj]", "model.apply_lora_to_mlp=True"});
  CHECK(adapter.kind == "lora");
  CHECK(adapter.targets == std::vector<std::string>{"qkv_proj", "o_proj", "down_proj", "gate_up_proj"});
  CHECK(adapter.parts == json::parse(R"({"qkv_proj": ["q_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]})"));
  adapter = of_phi({"model.lora_attn_modules=[output_proj]"});
  CHECK(adapter.targets == std::vector<std::string>{"o_proj"});
  CHECK(adapter.parts.empty());
  adapter = of_phi({"model.lora_attn_modules=[k_proj]", "model.quantize_base=True"});
  CHECK(adapter.kind == "qlora");
  CHECK(adapter.parts == json::parse(R"({"qkv_proj": ["k_proj"]})"));
  std::vector<std::string> decomposed = with_data(phi);
  decomposed.insert(decomposed.end(), {"model.lora_attn_modules=[k_proj]", "model.use_dora=True"});
  CHECK(tune_refusal("phi3/mini_full", decomposed, "lora_finetune_distributed").find("model.use_dora: must be False where phi3_mini has fused matrices") !=
        std::string::npos);

  run = tune_description("llama3_1/8B_lora_dpo_single_device");
  CHECK(run.objective.kind == "dpo");
  CHECK(run.objective.settings == json::parse(R"({"beta": 0.1, "label_smoothing": 0.0})"));
  CHECK(run.objective.second_model.empty());  // the model without its adapter
  CHECK(run.data[0].kind == "preference");
  CHECK(run.max_steps_per_epoch == 1000);
  CHECK(run.micro_batch_size == 8);  // four pairs
  CHECK(tune_description("llama3_1/8B_full_dpo").objective.second_model == "/tmp/Meta-Llama-3.1-8B-Instruct");
  CHECK(tune_description("llama3_1/8B_full_dpo", {"~loss.beta", "~loss.label_smoothing", "loss=torchtune.rlhf.loss.RSOLoss"}).objective.settings ==
        json::parse(R"({"kind": "hinge", "beta": 0.1})"));

  run = tune_description("qwen2/1.5_to_0.5B_KD_lora_single_device", {"kd_ratio=0.25"});
  CHECK(run.objective.kind == "distillation");
  CHECK(run.objective.settings == json::parse(R"({"kind": "forward", "ratio": 0.25})"));
  CHECK(run.objective.second_model == "/tmp/Qwen2-1.5B-Instruct");
  CHECK(run.objective.average == "micro_batch");
  CHECK(run.tokenizer.merges == "/tmp/Qwen2-0.5B-Instruct/merges.txt");
}

TEST_CASE("sizes may be given to torchtune's builders") {
  const std::vector<std::string> sizes{"model=torchtune.models.llama2.llama2",
                                       "model.vocab_size=32_000",
                                       "model.num_layers=2",
                                       "model.num_heads=4",
                                       "model.num_kv_heads=4",
                                       "model.embed_dim=64",
                                       "model.max_seq_len=128",
                                       "model.norm_eps=1e-5",
                                       "checkpointer.model_type=LLAMA2"};
  CHECK(tune_description("llama3_2/1B_full", sizes).model.config ==
        json::parse(
            R"({"vocab_size": 32000, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 64, "rms_norm_eps": 1e-5})"));
  CHECK(tune_refusal("llama3_2/1B_full", with_data({"model=torchtune.models.llama2.llama2", "checkpointer.model_type=LLAMA2"})) ==
        "llama3_2/1B_full:7: model.vocab_size: must be given for llama2");
  // an argument of other builders would have no effect
  const auto with_more = [&](const std::string& more) {
    std::vector<std::string> all = sizes;
    all.push_back(more);
    return tune_refusal("llama3_2/1B_full", with_data(all));
  };
  CHECK(with_more("model.final_capping_value=30").find("torchtune.models.llama2.llama2 has no such argument") != std::string::npos);
  CHECK(with_more("model.head_dim=64").find("has no such argument") != std::string::npos);
  CHECK(with_more("model.norm_eps=-1") == "model.norm_eps: must be non-negative; given -1");
  CHECK(with_more("model.rope_base=10000.5") == "it is accepted");
  CHECK(with_more("model.num_layers=2.5") == "model.num_layers: must be a non-negative integer; given 2.5");
}

TEST_CASE("torchtune's datasets") {
  const auto data = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"dataset.source=json", "dataset.data_files=[a.json, b.jsonl]"});
    return torchtune_run("", "llama3_2/1B_full", overrides).run->data.at(0);
  };
  data_description one = data({"dataset=torchtune.datasets.instruct_dataset", "dataset.column_map.input=question", "dataset.column_map.output=answer",
                               "dataset.new_system_prompt=Be terse."});
  CHECK(one.files == std::vector<std::string>{"a.json", "b.jsonl"});
  CHECK(one.columns == json::parse(R"({"instruction": "question", "output": "answer"})"));
  CHECK(one.prompt_template == "{instruction}");
  CHECK(one.system_prompt == "Be terse.");
  CHECK_FALSE(one.train_on_input);
  CHECK(data({"dataset=torchtune.datasets.instruct_dataset"}).columns == json::parse(R"({"instruction": "input"})"));
  CHECK(data({"dataset=torchtune.datasets.samsum_dataset"}).columns == json::parse(R"({"instruction": "dialogue", "output": "summary"})"));
  // a mapping to our records' field name is still a mapping
  for (const char* set : {"instruct", "samsum", "grammar"}) {
    CAPTURE(set);
    const std::string component = concat("dataset=torchtune.datasets.", set, "_dataset");
    CHECK(data({component, "dataset.column_map={input: instruction, output: output}"}).columns ==
          json::parse(R"({"instruction": "instruction", "output": "output"})"));
    CHECK(data({component, "dataset.column_map={input: output, output: instruction}"}).columns ==
          json::parse(R"({"instruction": "output", "output": "instruction"})"));
  }
  CHECK(data({"dataset=torchtune.datasets.samsum_dataset", "dataset.column_map={}"}).columns ==
        data({"dataset=torchtune.datasets.samsum_dataset"}).columns);
  for (const char* set : {"instruct", "grammar"})  // torchtune's mapping without names
    CHECK_THROWS_WITH_AS((void)data({concat("dataset=torchtune.datasets.", set, "_dataset"), "dataset.column_map={}"}),
                         doctest::Contains("column_map: must name input and output"), config_error);
  CHECK(data({"dataset=torchtune.datasets.alpaca_dataset", "dataset.column_map={instruction: instruction, input: output, output: input}"}).columns ==
        json::parse(R"({"instruction": "instruction", "input": "output", "output": "input"})"));
  one = data({"dataset=torchtune.datasets.chat_dataset", "dataset.conversation_column=dialogue", "dataset.conversation_style=sharegpt"});
  CHECK(one.form == "conversations");
  CHECK(one.columns == json::parse(R"({"conversations": "dialogue"})"));
  one = data({"dataset=torchtune.datasets.text_completion_dataset", "dataset.column=body"});
  CHECK(one.kind == "text");
  CHECK(one.form == "separate");
  CHECK(one.text_field == "body");
  CHECK(one.end_token == "<|end_of_text|>");  // for any end-of-text token of the folder
  CHECK(tune_description("qwen2_5/0.5B_full_single_device", {"dataset=torchtune.datasets.text_completion_dataset", "dataset.source=json",
                                                               "dataset.data_files=t.jsonl"})
            .data.at(0)
            .end_token == "<|im_end|>");  // the default of torchtune's class
  const run_description packed = tune_description("llama3_2/1B_full", {"dataset.packed=True", "tokenizer.max_seq_len=512"});
  CHECK(packed.data.at(0).pack_gap == 2);
  CHECK(tune_description("llama3_2/1B_full").data.at(0).pack_gap == 0);
  CHECK(packed.data[0].packed);
  CHECK(packed.seq_length == 512);
  CHECK(tune_refusal("llama3_2/1B_full", with_data({"dataset.packed=True"})).find("packed needs tokenizer.max_seq_len") != std::string::npos);

  // a folder of files, found by load_dataset before the hub
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "mine");
  put_file(folder / "mine/b.jsonl", "{}");
  put_file(folder / "mine/a.json", "[]");
  put_file(folder / "mine/README.md", "");
  CHECK(torchtune_run("", "llama3_2/1B_full", {concat("dataset.source=", folder / "mine")}).run->data[0].files ==
        std::vector<std::string>{folder / "mine/a.json", folder / "mine/b.jsonl"});
  CHECK(tune_refusal("llama3_2/1B_full", {}).find("'tatsu-lab/alpaca' is a name of Hugging Face's hub, and nothing is downloaded here") != std::string::npos);

  // a list of datasets is concatenated
  put_file(folder / "list.yaml", [&] {
    std::string text;
    for (const torchtune_config& config : torchtune_configs())
      if (config.name == "llama3_2/1B_full") text = config.text;
    const std::size_t begin = text.find("dataset:\n"), end = text.find("seed:");
    return text.replace(begin, end - begin, "dataset:\n- {_component_: torchtune.datasets.alpaca_dataset, source: json, data_files: a.json}\n"
                                            "- {_component_: torchtune.datasets.instruct_dataset, source: json, data_files: b.json}\n");
  }());
  const auto both = torchtune_run("", folder / "list.yaml", {"dataset.1.data_files=c.json"}).run->data;
  REQUIRE(both.size() == 2);
  CHECK(both[0].files == std::vector<std::string>{"a.json"});
  CHECK(both[1].files == std::vector<std::string>{"c.json"});
}

TEST_CASE("torchtune's preferences have fields of their own") {
  const auto pairs = [](std::vector<std::string> overrides) { return tune_description("llama3_1/8B_full_dpo", overrides).data.at(0); };
  data_description one = pairs({});
  CHECK(one.form == "messages");
  CHECK(one.columns == json::parse(R"({"prompt": "question", "chosen": "response_j", "rejected": "response_k"})"));
  CHECK(pairs({"dataset.column_map.prompt=q"}).columns == json::parse(R"({"prompt": "q", "chosen": "chosen", "rejected": "rejected"})"));
  one = pairs({"dataset=torchtune.datasets.preference_dataset", "dataset.column_map={chosen: better, rejected: worse}", "dataset.new_system_prompt=S"});
  CHECK(one.columns == json::parse(R"({"chosen": "better", "rejected": "worse"})"));
  CHECK(one.system_prompt == "S");
  CHECK(pairs({"dataset.column_map={chosen: rejected, rejected: chosen}"}).columns ==
        json::parse(R"({"prompt": "prompt", "chosen": "rejected", "rejected": "chosen"})"));
  CHECK(pairs({"dataset.column_map={}"}).columns == pairs({}).columns);
  CHECK(pairs({"dataset=torchtune.datasets.hh_rlhf_helpful_dataset"}).columns == json::parse(R"({"chosen": "chosen", "rejected": "rejected"})"));
}

TEST_CASE("resume_from_checkpoint goes on from the newest checkpoint of the output folder, with the settings of the config") {
  for (const char* config : {"llama3_2/1B_full", "llama3_2/1B_lora_single_device", "llama3_1/8B_full_dpo", "qwen2/1.5_to_0.5B_KD_lora_single_device"}) {
    CAPTURE(config);
    const run_description first = tune_description(config);
    CHECK(first.output.resume.empty());
    CHECK(tune_description(config, {"resume_from_checkpoint=False"}) == first);
    run_description again = tune_description(config, {"resume_from_checkpoint=True"});
    CHECK(again.output.resume == "latest");
    CHECK(run_description::from_json(again.to_json(false), "run.json") == again);
    again.output.resume.clear();
    CHECK(again == first);
  }
  const auto refused = [](const char* what) { return tune_refusal("llama3_2/1B_full", with_data({"resume_from_checkpoint=True", what})); };
  CHECK(refused("resume_from_checkpoint=epoch_0") == "resume_from_checkpoint: must be True or False; given 'epoch_0'");
  CHECK(refused("checkpointer.resume_from_checkpoint=True").find("it is a key of its own, beside the checkpointer") != std::string::npos);
  CHECK(refused("checkpointer.recipe_checkpoint=recipe_state/recipe_state.pt").find("a run goes on from the checkpoints in its output folder") !=
        std::string::npos);
  CHECK(refused("checkpointer.adapter_checkpoint=adapter_0.pt").find("set resume_from_checkpoint") != std::string::npos);
  CHECK(tune_refusal("generation", {"prompt.user=hello", "resume_from_checkpoint=True"}, "generate").find("nothing is trained") != std::string::npos);
}

TEST_CASE("Meta's checkpoints are read as they are") {
  const std::vector<std::string> meta{"model=torchtune.models.llama3.llama3_8b", "checkpointer=torchtune.training.FullModelMetaCheckpointer",
                                      "checkpointer.model_type=LLAMA3", "checkpointer.checkpoint_files=[consolidated.00.pth]"};
  const run_description run = tune_description("llama3_2/1B_full", meta);
  CHECK(run.model.files == std::vector<std::string>{"consolidated.00.pth"});
  CHECK(run.model.override_config == json::parse(R"({"max_position_embeddings": 8192})"));  // not in Meta's files
  std::vector<std::string> two = meta;
  two.back() = "checkpointer.checkpoint_files=[consolidated.00.pth, consolidated.01.pth]";
  CHECK(tune_refusal("llama3_2/1B_full", with_data(two)).find("must be [consolidated.00.pth]") != std::string::npos);
  CHECK(tune_refusal("generation", {"checkpointer=torchtune.training.FullModelMetaCheckpointer", "checkpointer.checkpoint_files=[consolidated.00.pth]"},
                     "generate")
            .find("must be FullModelHFCheckpointer here: Meta's files do not say how long sequences may be") != std::string::npos);
}

TEST_CASE("values of a torchtune config are interpolated and overridden as OmegaConf does") {
  const scratch_folder folder;
  put_file(
      folder / "c.yaml",
      "a: {b: 3, c: x, gone: 1}\nnumber: ${a.b}\ntext: ${a.c}/${a.b}\nmap: ${a}\nenv: ${oc.env:XTRAIN_NOT_THERE,else}\nkept: \\${a}\n"
      "m: {_component_: old, k: 1}\n");
  const yaml_value all = torchtune_values(folder / "c.yaml", {"~a.gone", "a.b=4", "m=new", "m.k=[1, two]", "fresh.deep=yes", "none=None"});
  CHECK(all.to_json() == json::parse(R"({"a": {"b": 4, "c": "x"}, "number": 4, "text": "x/4", "map": {"b": 4, "c": "x"}, "env": "else", "kept": "${a}",
                                         "m": {"_component_": "new", "k": [1, "two"]}, "fresh": {"deep": true}, "none": null})"));
  const auto fails = [&](const std::string& text, const std::vector<std::string>& overrides = {}) {
    put_file(folder / "d.yaml", text);
    try {
      (void)torchtune_values(folder / "d.yaml", overrides);
    } catch (const config_error& problem) {
      const std::string what = problem.what();
      return what.substr(what.find("d.yaml") == std::string::npos ? 0 : what.find("d.yaml"));
    }
    return std::string("nothing");
  };
  CHECK(fails("x: 1\ny: ${z}\n") == "d.yaml:2: y: there is no key z, which ${z} names");
  CHECK(fails("x: ${y}\ny: ${x}\n").find("must not go in a circle") != std::string::npos);
  CHECK(fails("x: {y: \"${x}\"}\n").find("must not go in a circle") != std::string::npos);
  CHECK(fails("x: ${custom:1}\n").find("an interpolation must be ${key}") != std::string::npos);
  CHECK(fails("a: 1\n", {"a"}) == "a: must be key=value or ~key");
  CHECK(fails("a: 1\n", {"~b"}) == "~b: there is no such key in the config to remove");
  CHECK(fails("a: {_component_: x}\n", {"~a"}) == "~a: a component cannot be removed");
  CHECK(fails("a: [1]\n", {"a.3=1"}).find("must be the number of an item") != std::string::npos);
  std::string grows = "a0: aaaaaaaaaaaaaaaa\n";
  for (int i = 1; i < 20; ++i) grows += concat("a", i, ": ${a", i - 1, "}${a", i - 1, "}\n");
  CHECK(fails(grows).find("must not make more than 65536 characters") != std::string::npos);
  std::string repeats = concat("long: ", std::string(60000, 'x'), "\nall:\n");
  for (int i = 0; i < 80; ++i) repeats += "- ${long}\n";
  CHECK(fails(repeats).find("interpolations must not make more than 4194304 bytes") != std::string::npos);
}

TEST_CASE("a torchtune config may have keys that only its interpolations read") {
  const scratch_folder folder;
  const std::string file = config_file(folder, "llama3_2/1B_lora_single_device");
  put_file(file, get_file(file) + "base: /models\nnames: {run: one, unused: two}\nlength: 77\n");
  const std::vector<std::string> uses{"checkpointer.checkpoint_dir=${base}/x", "output_dir=/tmp/${names.run}", "seed=${length}"};
  const run_description run = tune_description(file, uses);
  CHECK(run.model.folder == "/models/x");
  CHECK(run.output.folder == "/tmp/one");
  CHECK(run.seed == 77);
  CHECK(run.follows == "torchtune 0.6.1");
  CHECK_NOTHROW(validate_torchtune(file, uses));
  // an unread key may be misspelt; in a component it would be an argument
  CHECK(tune_refusal(file, with_data({uses[0], uses[1]})).find("length: there is no such key") != std::string::npos);
  CHECK(tune_refusal(file, with_data({uses[0], uses[1], uses[2], "optimizer.decay=3", "batch_size=${optimizer.decay}"})) ==
        "optimizer.decay: torch.optim.AdamW has no such argument");
}

TEST_CASE("what a torchtune config asks for and no run can have is refused by its line") {
  const scratch_folder folder;
  const std::string file = config_file(folder, "llama3_2/1B_lora_single_device");
  const auto refused = [&](std::vector<std::string> overrides) { return tune_refusal(file, with_data(std::move(overrides))); };
  CHECK(refused({"batch_sise=2"}) == "batch_sise: there is no such key; did you mean batch_size?; given 2");
  CHECK(refused({"batch_size=two"}) == "batch_size: must be a non-negative integer; given 'two'");
  CHECK(refused({"model.lora_ranc=2"}) == "model.lora_ranc: torchtune.models.llama3_2.lora_llama3_2_1b has no such argument; did you mean lora_rank?");
  CHECK(
      refused({"model=torchtune.models.llama3_2.lora_llama3_2_2b"}) ==
      "model._component_: there is no such component; given torchtune.models.llama3_2.lora_llama3_2_2b; did you mean torchtune.models.llama3_2.lora_llama3_2_1b?");
  CHECK(refused({"model=torchtune.models.llama3_2_vision.llama3_2_vision_11b"}).find("vision models are not supported") != std::string::npos);
  CHECK(refused({"model=torchtune.models.llama3_2.llama3_2_1b"}).find("has no such argument") != std::string::npos);
  CHECK(refused({"model.apply_lora_to_output=True"}) ==
        "model.apply_lora_to_output: must be False: the head of llama3_2_1b is tied to the embedding; given True");
  CHECK(refused({"checkpointer=torchtune.training.FullModelMetaCheckpointer"})
            .find("Meta's files do not say how positions are scaled, or make a Hugging Face folder first: convert --from DIR") != std::string::npos);
  CHECK(refused({"checkpointer.model_type=LLAMA2"}) == "checkpointer.model_type: must be that of llama3_2_1b, LLAMA3_2; given 'LLAMA2'");
  CHECK(refused({"checkpointer.recipe_checkpoint=state.pt"}).find("recipe states (.pt) are not read") != std::string::npos);
  CHECK(refused({"metric_logger=torchtune.training.metric_logging.WandBLogger"}).find("metrics are not sent over the network") != std::string::npos);
  CHECK(refused({"optimizer=torchao.optim.AdamW4bit"}).find("moments in four bits") != std::string::npos);
  CHECK(refused({"optimizer.amsgrad=True"}).find("optimizer.amsgrad: must be False") != std::string::npos);
  CHECK(refused({"optimizer.betas=[0.9,1.0]"}) == "optimizer.betas: must be two numbers from 0 to below 1; given [0.9,1.0]");
  CHECK(refused({"optimizer.betas=[-0.1,0.999]"}) == "optimizer.betas: must be two numbers from 0 to below 1; given [-0.1,0.999]");
  CHECK(refused({"optimizer.eps=-1e-8"}) == "optimizer.eps: must not be negative; given -1e-8");
  CHECK(refused({"tokenizer.max_seq_len=0"}) == "tokenizer.max_seq_len: must be positive; given 0");
  CHECK(refused({"optimizer.lr="}) == "optimizer.lr: must be a number, or left out; given null");
  CHECK(refused({"optimizer.lr=.nan"}) == "optimizer.lr: must be a number that is finite; given .nan");
  CHECK(refused({"optimizer.weight_decay=.inf"}) == "optimizer.weight_decay: must be a number that is finite; given .inf");
  CHECK(refused({"optimizer=torchao.optim.AdamW8bit", "optimizer.block_size=128"}) == "optimizer.block_size: must be 256; given 128");
  CHECK(refused({"dataset.split=train[:5%]"}) == "dataset.split: must be train: parts of a file are not supported; split the file; given 'train[:5%]'");
  CHECK(refused({"dtype=fp16"}) == "dtype: must be bf16 or fp32; given 'fp16'");
  CHECK(refused({"device=mps"}) == "device: must be one of cpu, cuda, npu, musa; given 'mps'");
  CHECK(refused({"enable_activation_offloading=True"}).find("must be False without enable_activation_checkpointing") != std::string::npos);
  CHECK(refused({"enable_activation_offloading=True", "device=cpu"}).find("enable_activation_offloading: must be False but on cuda") != std::string::npos);
  CHECK(refused({"optimizer_in_bwd=True"}).find("the recipe lora_finetune_single_device has no such key") != std::string::npos);
  CHECK(refused({"~lr_scheduler.num_warmup_steps"}).find("lr_scheduler.num_warmup_steps: must be given") != std::string::npos);
  CHECK(refused({"dataset.filter_fn=x"}).find("dataset.filter_fn: must be null") != std::string::npos);
  CHECK(refused({"dataset.train_on_inputs=x"}).find("dataset.train_on_inputs: there is no such key; did you mean train_on_input?") != std::string::npos);
  CHECK(refused({"tokenizer.prompt_template=my.Template"}).find("tokenizer.prompt_template: must be null") != std::string::npos);
  CHECK(refused({"tensor_parallel_dim=2"}).find("lora_finetune_single_device runs on one device") != std::string::npos);
  const auto pairs = [](const char* more) { return tune_refusal("llama3_1/8B_full_dpo", with_data({"dataset=torchtune.datasets.preference_dataset", more})); };
  CHECK(pairs("dataset.column_map.chosen=better") == "dataset.column_map.rejected: must be given");
  for (const char* set : {"instruct", "samsum", "grammar"})  // both keys of a map, as in InputOutputToMessages
    for (const auto& [given, other] : {std::pair{"output: instruction", "input"}, {"input: instruction", "output"}, {"input: a, output: null", "output"}})
      CHECK(tune_refusal("llama3_2/1B_full", with_data({concat("dataset=torchtune.datasets.", set, "_dataset"),
                                                        concat("dataset.column_map={", given, "}")}))
                .find(concat("dataset.column_map.", other, ": must be given")) == 0);
  CHECK(tune_refusal("llama3_2/1B_full", with_data({"dataset=torchtune.datasets.slimorca_dataset", "dataset.column_map={conversation: a}"}))
            .find("dataset.column_map.conversations: must be given") == 0);
  CHECK(pairs("dataset.train_on_input=True").find("dataset.train_on_input: must be False") == 0);
  CHECK(tune_refusal("qwen2/1.5_to_0.5B_KD_lora_single_device", with_data({"clip_grad_norm=1.0"})).find("must be null") != std::string::npos);
  CHECK(tune_refusal("llama3_2/1B_full", own_data, "lora_finetune_distributed").find("must be a lora_ or qlora_ builder") != std::string::npos);
  CHECK(tune_refusal("llama3_2/1B_full", own_data, "quantize").find("quantizer: must be given") != std::string::npos);
  for (const char* inside : {"checkpointer.output_dir=/tmp/model", "checkpointer.output_dir=/tmp/model/int4"})
    CHECK(tune_refusal("quantization", {"checkpointer.checkpoint_dir=/tmp/model", inside}, "quantize").find("must not be checkpoint_dir, or a folder in it") !=
          std::string::npos);
  CHECK(tune_refusal("llama3_2/1B_full", own_data, "full_finetune_distribute") ==
        "full_finetune_distribute: must be a recipe that tune ls lists, not a Python file; did you mean full_finetune_distributed?");

  // a line of the file
  const std::string text(mapped_file(file).text());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("dtype: bf16")), '\n');
  put_file(file, std::string(text).replace(text.find("dtype: bf16"), 11, "dtype: fp8"));
  CHECK(tune_refusal(file, own_data) == concat(file, ":", line, ": dtype: must be bf16 or fp32; given 'fp8'"));
  const auto betas = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("  weight_decay:")), '\n');
  put_file(file, std::string(text).replace(text.find("  weight_decay:"), 0, "  betas: [1.0, 0.999]\n"));
  CHECK(tune_refusal(file, own_data) == concat(file, ":", betas, ": optimizer.betas: must be two numbers from 0 to below 1; given [1.0,0.999]"));
}

TEST_CASE("on a GPU, torchtune's offloading of state goes to pinned memory of the host; layer inputs stay, which is said") {
  const auto noted = [](const run_description& run, const std::string& key) {
    for (const std::string& note : run.notes)
      if (note.find(key) != std::string::npos) return note.substr(note.find(key));
    return std::string("nothing");
  };
  const torchtune_launch two{.ranks = 2, .is_distributed = true};
  const auto sharded = [&](const char* device) {
    return *torchtune_run("full_finetune_distributed", "llama3_2/1B_full", with_data({"fsdp_cpu_offload=True", device}), two).run;
  };
  CHECK(recipe_of(sharded("device=cuda")).offload == "offload_to_host<memory_role::optimizer>");
  CHECK(noted(sharded("device=cuda"), "fsdp_cpu_offload") ==
        "fsdp_cpu_offload: optimizer state is in pinned memory of the host; weights stay on the device, sharded among the ranks");
  CHECK(recipe_of(sharded("device=cpu")).offload == "no_offload");
  CHECK(noted(sharded("device=cpu"), "fsdp_cpu_offload") == "nothing");
  const run_description recomputed =
      tune_description("llama3_2/1B_full", {"device=cuda", "enable_activation_checkpointing=True", "enable_activation_offloading=True"});
  CHECK(recomputed.recompute == "full");
  CHECK(recomputed.offload == "none");
  CHECK(noted(recomputed, "enable_activation_offloading") == "enable_activation_offloading: layer inputs stay on the device; results are the same");
}

TEST_CASE("generation and evaluation of torchtune are calls of programs") {
  torchtune_call call = torchtune_run("generate", "generation", {"prompt.user=hello", "prompt.system=S", "dtype=fp32", "~top_k"});
  CHECK(call.program == "generate");
  CHECK_FALSE(call.run);
  const auto value = [&](const char* flag) {
    const auto at = std::find(call.arguments.begin(), call.arguments.end(), flag);
    return at == call.arguments.end() ? std::string("missing") : *(at + 1);
  };
  CHECK(value("--model") == "/tmp/Llama-2-7b-hf");
  CHECK(value("--log-style") == "torchtune");
  CHECK(call.weights == "/tmp/Llama-2-7b-hf");
  CHECK(call.weight_files == std::vector<std::string>{"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"});
  CHECK(value("--prompt") == "hello");
  CHECK(value("--system") == "S");
  CHECK(value("--max-new-tokens") == "300");
  CHECK(value("--temperature") == "0.6");
  CHECK(value("--top-k") == "0");
  CHECK(value("--seed") == "1234");
  CHECK(torchtune_run("dev/generate_v2", "generation", {"prompt.user.text=hello", "~quantizer"}).program == "generate_bf16");
  call = torchtune_run("eleuther_eval", "eleuther_evaluation", {"limit=5", "tasks=[boolq, mmlu]"});
  CHECK(call.program == "evaluate");
  CHECK(value("--tasks") == "boolq,mmlu");
  CHECK(value("--limit") == "5");
  CHECK(value("--max-length") == "4096");
  CHECK(tune_refusal("eleuther_evaluation", {"tasks=[boolq, mmmu_val_science]"}, "eleuther_eval") ==
        "tasks: must be tasks of evaluate, which --list-tasks lists: there is no task or group 'mmmu_val_science'; did you mean"
        " 'mmlu_social_sciences'?; given [\"boolq\",\"mmmu_val_science\"]");
  call = torchtune_run("eleuther_eval", "eleuther_evaluation", {});
  CHECK(value("--tasks") == "truthfulqa_mc2");
  CHECK(value("--batch-size") == "8");
  call = torchtune_run("quantize", "quantization", {"quantizer.groupsize=32"});
  CHECK(call.program == "convert");
  const std::vector<std::string> quantizes{"--from",     "/tmp/Llama-2-7b-hf", "--to", "/tmp/torchtune/llama2_7B/quantized", "--dtype", "bf16",
                                           "--quantize", "int4", "--group-size", "32", "--packed"};
  CHECK(call.arguments == quantizes);
  call = torchtune_run("", "quantization", {"quantizer=torchtune.training.quantization.Int4WeightOnlyQuantizer", "~quantizer.groupsize", "dtype=fp32"});
  CHECK(value("--quantize") == "int4-weight-only");
  CHECK(value("--group-size") == "128");
  CHECK(value("--dtype") == "fp32");
  CHECK(tune_refusal("quantization", {"model=torchtune.models.llama2.lora_llama2_7b"}, "quantize").find("must not be a builder of LoRA") != std::string::npos);
  CHECK(tune_refusal("quantization", {"quantizer=torchtune.training.quantization.Int4WeightOnlyQATQuantizer", "quantizer.precision=x"}, "quantize")
            .find("must be null") != std::string::npos);
  CHECK(tune_refusal("generation", {"device=musa"}, "generate")
            .find("device: must be cpu, cuda or npu: the programs generate, generate_cuda and generate_npu are compiled for these; given 'musa'") !=
        std::string::npos);
  CHECK(tune_refusal("generation", {"device=npu", "dtype=fp32"}, "generate").find("dtype: must be bf16 on npu: generate_npu computes in it; given 'fp32'") !=
        std::string::npos);
  call = torchtune_run("generate", "generation", {"prompt.user=hello", "device=npu"});
  CHECK(call.program == "generate_npu");
  CHECK(value("--device") == "npu");
  CHECK(tune_refusal("generation", {"device=cuda", "dtype=fp32"}, "generate").find("dtype: must be bf16 on cuda: generate_cuda computes in it; given 'fp32'") !=
        std::string::npos);
  call = torchtune_run("generate", "generation", {"prompt.user=hello", "device=cuda:1"});
  CHECK(call.program == "generate_cuda");
  CHECK(value("--device") == "cuda:1");
  call = torchtune_run("eleuther_eval", "eleuther_evaluation", {"device=cuda"});
  CHECK(call.program == "evaluate_cuda");
  CHECK(value("--device") == "cuda");
  for (const std::string& note : call.notes) CHECK(note.find("computes in fp32") == std::string::npos);
  CHECK(tune_refusal("generation", {"temperature=-1"}, "generate").find("temperature: must not be negative; given -1") != std::string::npos);
  CHECK(tune_refusal("generation", {"prompt.user.image=x"}, "generate").find("vision models") != std::string::npos);
}

TEST_CASE("conversations are laid out and masked as torchtune's tokenizers do") {
  // printed by tests/golden/make_torchtune_chats.py: text and targets; for Llama 3 without the masked final <|end_of_text|>
  using detail::tune_layout;
  const std::string llama3_u = "<|start_header_id|>user<|end_header_id|>\n\n", llama3_a = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  detail::tune_prompt plain, llama2, chatml, grammar, question;
  llama2.system = {"<<SYS>>\n", "\n<</SYS>>\n\n"}, llama2.user = {"[INST] ", " [/INST] "}, llama2.system_in_user = true;
  chatml.system = {"<|im_start|>system\n", "<|im_end|>\n"}, chatml.user = {"<|im_start|>user\n", "<|im_end|>\n"};
  chatml.assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
  grammar.user = {"Correct this to standard English: ", "\n---\nCorrected: "};
  question.user = {"Question: ", "\n\nAnswer: "};
  detail::tune_prompt assistant, gemma, letters;
  assistant.user = gemma.user = {"USER: ", " ASSISTANT: "}, gemma.drops_spaces = true;
  letters.user = {"U: ", " E"}, letters.assistant = {"A ", " Z"};
  struct expected {
    tune_layout layout;
    detail::tune_prompt prompt;
    bool system;
    std::string text, learned;
  };
  const std::string qwen_learned = "<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>";
  const std::vector<expected> all{
      {tune_layout::llama3, plain, false, "<s>" + llama3_u + "u<|eot_id|>" + llama3_a + "a<|eot_id|>" + llama3_u + "v<|eot_id|>" + llama3_a + "b<|eot_id|>",
       llama3_a + "a<|eot_id|>" + llama3_a + "b<|eot_id|>"},
      {tune_layout::llama3, grammar, true,
       "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>" + llama3_u + "Correct this to standard English:u---\nCorrected:<|eot_id|>" + llama3_a +
           "a<|eot_id|>" + llama3_u + "Correct this to standard English:v---\nCorrected:<|eot_id|>" + llama3_a + "b<|eot_id|>",
       llama3_a + "a<|eot_id|>" + llama3_a + "b<|eot_id|>"},
      {tune_layout::qwen, plain, true,
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\nb<|im_end|>",
       qwen_learned},
      {tune_layout::qwen, question, false,
       "<|im_start|>user\nQuestion: u\n\nAnswer: <|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nQuestion: v\n\nAnswer: <|im_end|>\n"
       "<|im_start|>assistant\nb<|im_end|>",
       qwen_learned},
      {tune_layout::phi3, plain, true, "<s><|system|>\nS<|end|>\n<|user|>\nu<|end|>\n<|assistant|>\na<|end|>\n<|user|>\nv<|end|>\n<|assistant|>\nb<|end|>\n",
       "<|assistant|>\na<|end|>\n<|assistant|>\nb<|end|>\n"},
      {tune_layout::plain, plain, true, "<s>Sua</s><s>vb</s>", "a</s>b</s>"},
      // pieces of Mistral's tokenizer.model, with a space for each U+2581 except the one after <s>
      {tune_layout::plain, llama2, true, "<s>[INST] <<SYS>>\n S \n<</SYS>>\n\n u  [/INST] a</s><s>[INST] <<SYS>>\n S \n<</SYS>>\n\n v  [/INST] b</s>",
       " a</s> b</s>"},
      {tune_layout::plain, assistant, true, "<s>SUSER:u ASSISTANT: a</s><s>USER: v  ASSISTANT: b</s>", " a</s> b</s>"},
      {tune_layout::plain, gemma, false, "<s>USER:u ASSISTANT:a</s><s>USER:v ASSISTANT:b</s>", "a</s>b</s>"},
      {tune_layout::plain, letters, false, "<s>U: u  EAa Z</s><s>U: v  EAb Z</s>", "Aa Z</s>Ab Z</s>"},
      {tune_layout::plain, chatml, true,
       "<s><|im_start|>system\n S <|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n</s><s><|im_start|>user\n v <|im_end|>\n"
       "<|im_start|>assistant\nb<|im_end|>\n</s>",
       "<|im_start|>assistant\na<|im_end|>\n</s><|im_start|>assistant\nb<|im_end|>\n</s>"},
      // torchtune ends phi-4's answers with nothing
      {tune_layout::phi4, plain, false,
       "<|im_start|>user<|im_sep|>u<|im_end|><|im_start|>assistant<|im_sep|>a<|im_end|><|im_start|>user<|im_sep|>v<|im_end|><|im_start|>assistant<|im_sep|>b<|im_end|>",
       "<|im_start|>assistant<|im_sep|>a<|im_end|><|im_start|>assistant<|im_sep|>b<|im_end|>"},
  };
  for (const expected& one : all) {
    chat_template form = chat_template::from_text(detail::tune_chat_template(one.layout, one.prompt));
    form.set_token("bos_token", "<s>");
    form.set_token("eos_token", "</s>");
    std::vector<chat_message> messages{{"user", "u"}, {"assistant", "a"}, {"user", "v"}, {"assistant", "b"}};
    if (one.system) messages.insert(messages.begin(), {"system", "S"});
    const chat_text chat = form.apply_with_answers(messages);
    CHECK(chat.text == one.text);
    std::string learned;
    for (const text_span& answer : chat.answers) learned += chat.text.substr(answer.begin, answer.end - answer.begin);
    CHECK(learned == one.learned);
    // a prompt is a prefix of the chat's text
    const std::string prompt = form.apply(std::vector<chat_message>{{"user", "u"}}, {.add_generation_prompt = true});
    CHECK(form.apply(std::vector<chat_message>{{"user", "u"}, {"assistant", "a"}}).starts_with(prompt));
  }
  detail::tune_prompt mistral = llama2;
  mistral.system_in_user = false, mistral.refuses_system = true;
  chat_template form = chat_template::from_text(detail::tune_chat_template(tune_layout::plain, mistral));
  form.set_token("bos_token", "<s>");
  form.set_token("eos_token", "</s>");
  CHECK_THROWS_AS((void)form.apply(std::vector<chat_message>{{"system", "S"}, {"user", "u"}}), data_error);
  const std::string stripped = form.apply(std::vector<chat_message>{{"user", "u  "}, {"assistant", "a  "}});
  CHECK(stripped == "<s>[INST] u  [/INST] a</s>");
  CHECK(detail::jinja_text("a'b\\c\nd") == "'a\\'b\\\\c\\nd'");
}

TEST_CASE("torchtune's PPO config becomes a run description, each of its keys") {
  const std::string config = "mistral/7B_full_ppo_low_memory";
  const run_description run = tune_description(config, {"device=cpu", "gradient_accumulation_steps=4", "optimizer_in_bwd=False", "top_k=50", "seed=3",
                                                        "batch_size=256", "forward_batch_size=64", "ppo_epochs=2", "gamma=0.99"});
  CHECK(recipe_of(run).key() == "cpu-bf16_pure-ppo-recompute_full");
  CHECK(run.model.folder == "/tmp/Mistral-7B-Instruct-v0.2");
  CHECK(run.model.files.size() == 3);
  CHECK(run.model.config.at("vocab_size") == 32000);
  CHECK(run.objective.kind == "ppo");
  CHECK(run.objective.settings == json{{"epsilon_low", 0.2}, {"epsilon_high", 0.2}, {"temperature", 0.7}});
  CHECK(run.objective.second_model == "/tmp/Mistral-7B-Instruct-v0.2");
  CHECK(run.objective.average == "micro_batch");
  const rollouts_description expected{.reward_model = "/tmp/RM-Mistral-7B",
                                      .value_model = "/tmp/RM-Mistral-7B",
                                      .reward_files = run.rollouts.value_files,
                                      .value_files = run.rollouts.reward_files,
                                      .score_config = run.rollouts.score_config,
                                      .value_output = "/tmp/torchtune/mistral_7B/full_ppo_low_memory/value",
                                      .steps = 39,
                                      .batch_size = 256,
                                      .generation_batch_size = 64,
                                      .max_completion_length = 58,
                                      .top_k = 50,
                                      .stop = {2, 28723},
                                      .num_ppo_epochs = 2,
                                      .kl_coef = 0.01,
                                      .gamma = 0.99,
                                      .lambda = 0.95,
                                      .value_clip_range = 0.2,
                                      .value_coefficient = 0.1,
                                      .penalize_longest = true,
                                      .min_completion_length = 18,
                                      .penalty = -3.0};
  CHECK(run.rollouts == expected);
  CHECK(run.rollouts.reward_files == std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                                              "model-00003-of-00003.safetensors"});
  CHECK(run.rollouts.score_config.at("vocab_size") == 32001);
  CHECK(run.rollouts.score_config.at("model_type") == "mistral");
  CHECK(run.rollouts.score_config.at("rms_norm_eps") == 1e-5);
  CHECK(run.micro_batch_size == 32);
  CHECK(run.gradient_accumulation_steps == 4);
  CHECK(run.schedule.kind == "constant");
  CHECK(run.schedule.learning_rate == 3e-6);
  CHECK(run.seed == 3);
  CHECK(run.tokenizer.max_length == 512);
  REQUIRE(run.data.size() == 1);
  CHECK(run.data[0].kind == "prompts");
  CHECK(run.data[0].text_field == "prompt");
  CHECK(run.output.folder == "/tmp/torchtune/mistral_7B/full_ppo_low_memory");
  CHECK(run.output.save_epochs);
  CHECK(run.output.log_file.starts_with("/tmp/torchtune/mistral_7B/full_ppo_low_memory/logs/"));
  CHECK(run_description::from_json(run.to_json(), "run") == run);
  CHECK(tune_description(config, {"loss={_component_: torchtune.rlhf.loss.PPOLoss}"}).objective.settings.at("epsilon_low") == 0.1);

  const auto refused = [&](const std::vector<std::string>& overrides, const std::string& why) {
    const std::string found = tune_refusal(config, with_data(overrides));
    CHECK_MESSAGE(found.find(why) != std::string::npos, found);
  };
  refused({"resume_from_checkpoint=True"}, "resume_from_checkpoint: must be False: a run of PPO writes the models of every epoch");
  refused({"whiten_rewards=True"}, "whiten_rewards: must be False: torchtune's recipe reads it, and whitens no rewards");
  refused({"batch_size=100"}, "forward_batch_size: must divide batch_size, 100; given 128");
  refused({"ppo_batch_size=96"}, "ppo_batch_size: must divide batch_size, 128; given 96");
  refused({"gradient_accumulation_steps=3"}, "gradient_accumulation_steps: must divide ppo_batch_size, 128; given 3");
  refused({"gradient_accumulation_steps=2"}, "optimizer_in_bwd: must be False with gradient_accumulation_steps above 1");
  refused({"num_steps=127"}, "num_steps: must be at least batch_size, 128; given 127");
  refused({"temperature=0"}, "temperature: must be positive");
  refused({"stop_token_ids=null"}, "stop_token_ids: must be given: the tokens that end an answer");
  refused({"stop_token_ids=[a]"}, "stop_token_ids: must be a list of tokens");
  refused({"gamma=1.5"}, "gamma: must be from 0 to 1; given 1.5");
  refused({"kl_coeff=-1"}, "kl_coeff: must not be negative; given -1");
  refused({"loss.epsilon=0"}, "loss.epsilon: must be positive; given 0");
  refused({"loss={_component_: torch.nn.CrossEntropyLoss}"}, "loss._component_: must be torchtune.rlhf.loss.PPOLoss for the recipe");
  refused({"dataset.add_eos=True"}, "dataset.add_eos: must be False: a prompt does not end with the end-of-text token");
  refused({"dataset={_component_: torchtune.datasets.alpaca_dataset}"}, "must be torchtune.datasets.text_completion_dataset, whose texts are the prompts");
  refused({"reward_and_value_model.num_classes=2"}, "reward_and_value_model.num_classes: must be 1: a score of an answer; given 2");
  refused({"reward_and_value_model._component_=torchtune.models.mistral.mistral_classifier", "reward_and_value_model.num_classes=2"},
          "reward_and_value_model.num_classes: must be 1: a score of an answer; given 2");
  refused({"reward_and_value_model={_component_: torchtune.models.mistral.mistral_7b}"}, "must be a model with a score head: mistral_classifier");
  refused({"policy_model={_component_: torchtune.models.mistral.mistral_reward_7b}"}, "must be a model that predicts tokens");
  refused({"policy_model={_component_: torchtune.models.mistral.lora_mistral_7b, lora_attn_modules: [q_proj]}"},
          "must not be a builder of LoRA for the recipe");
  refused({"ref_policy_checkpointer.checkpoint_dir=/tmp/other"},
          "checkpoint_dir: must be that of the policy, /tmp/Mistral-7B-Instruct-v0.2; given '/tmp/other'");
  refused({"ref_policy_checkpointer.checkpoint_files=[model.safetensors]"}, "checkpoint_files: must be those of the policy");
  refused({"value_checkpointer.output_dir=${output_dir}"}, "value_checkpointer.output_dir: must be another folder than that of the policy");
  refused({"checkpointer._component_=torchtune.training.FullModelMetaCheckpointer"}, "must be torchtune.training.FullModelHFCheckpointer for the recipe");
  refused({"metric_logger={_component_: torchtune.training.metric_logging.TensorBoardLogger, log_dir: /tmp/logs}"},
          "metric_logger._component_: must be a DiskLogger or a StdoutLogger for the recipe");
  refused({"epochs=2"}, "epochs: there is no such key");
  refused({"lr_scheduler={_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup}"}, "lr_scheduler: there is no such key");
}

TEST_CASE("every config of ours is well-formed and can be run") {
  std::vector<std::string> names;
  for (const torchtune_config& one : torchtune_configs()) {
    CAPTURE(one.name);
    CHECK(std::find(names.begin(), names.end(), one.name) == names.end());
    names.push_back(one.name);
    CHECK_NOTHROW(validate_torchtune(one.name));
    const bool trains = one.recipe != "generate" && one.recipe != "eleuther_eval" && one.recipe != "quantize";
    CHECK_NOTHROW((void)torchtune_run(one.recipe, one.name, trains ? own_data : std::vector<std::string>{}));
    // the recipe derived from the components equals the table's, except for the number of devices
    if (trains && one.recipe.find("distributed") == std::string::npos)
      CHECK(torchtune_run("", one.name, own_data).run == torchtune_run(one.recipe, one.name, own_data).run);
  }
}

TEST_CASE("torchtune's own configs are accepted") {
  const char* folder = std::getenv("XTRAIN_TORCHTUNE_CONFIGS");
  if (folder == nullptr) return;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() > 100);
  std::map<std::string, std::size_t> reasons;
  std::size_t valid = 0, runs = 0, images = 0;
  for (const std::string& file : files) {
    CAPTURE(file);
    const std::string text(mapped_file(file).text());
    std::string recipe;  // the command in the comments
    for (const torchtune_recipe& one : torchtune_recipes())
      if (text.find(one.name + " ") != std::string::npos && one.name.size() > recipe.size()) recipe = one.name;
    try {
      validate_torchtune(file);
      ++valid;
    } catch (const config_error& problem) {
      const bool of_images = std::string(problem.what()).find("vision models") != std::string::npos;
      CHECK_MESSAGE(of_images, problem.what());
      images += of_images ? 1 : 0;
    }
    const bool trains = text.find("\ndataset:") != std::string::npos;
    std::string why;
    try {
      (void)torchtune_run(recipe, file, trains ? own_data : std::vector<std::string>{"device=cpu"});
    } catch (const config_error& problem) {
      why = problem.what();
      if (why.starts_with(file)) why = why.substr(why.find(": ") + 2);
      why = why.substr(0, why.find("; given"));
    }
    runs += why.empty() ? 1 : 0;
    if (!why.empty()) ++reasons[why];
  }
  std::printf("torchtune's configs: %zu; well-formed: %zu; of vision models, refused: %zu; runs, with data of one's own: %zu\n", files.size(), valid, images,
              runs);
  for (const auto& [why, count] : reasons) std::printf("  %3zu  %s\n", count, why.c_str());
  CHECK(valid + images == files.size());
  if (files.size() == 156) CHECK(runs == 144);  // of torchtune 0.6.1; the table of examples/tune.md
}
