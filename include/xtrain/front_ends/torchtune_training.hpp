// A torchtune config of a training recipe, as a run description.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_components.hpp>
#include <xtrain/front_ends/torchtune_sections.hpp>
#include <xtrain/front_ends/torchtune_values.hpp>
#include <xtrain/front_ends/yaml.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// Call train() once.
class tune_training : tune_reader {
 public:
  using tune_reader::tune_reader;

  [[nodiscard]] torchtune_call train() {
    if (is_ppo()) return translate_ppo();
    run_description run;
    compute(run);
    const model_use model = model_at("model");
    const checkpoint weights = checkpointer("checkpointer", *model.use.model);
    run.model.folder = weights.folder;
    run.model.files = weights.files;
    run.model.family = model.use.model->family;
    run.model.config = sizes_at("model", *model.use.model);
    if (weights.longest_sequence > 0) run.model.override_config["max_position_embeddings"] = weights.longest_sequence;
    adapt(run, model.use, "model");
    tokenize(run);
    datasets(run);

    run.micro_batch_size = top_.required_positive("batch_size") * (is_dpo() ? 2 : 1);  // a pair is two sequences
    run.gradient_accumulation_steps = top_.positive("gradient_accumulation_steps", 1);
    run.epochs = top_.required_positive("epochs");
    run.max_steps_per_epoch = top_.has("max_steps_per_epoch") ? top_.positive("max_steps_per_epoch", 1) : 0;
    run.drop_last = true;
    run.shuffle = top_.flag("shuffle", true);
    if (top_.has("seed")) run.seed = top_.count("seed", 0);
    else if (top_.any("seed") != nullptr) note("seed", concat("null is ", run.seed, " here, not a random number"));
    optimize(run);
    schedule(run);
    set_loss(run);

    // clip_grad_norm: 'inf' only logs the norm
    if (const yaml_value* clip = top_.get("clip_grad_norm")) {
      const bool is_number = clip->type == yaml_value::kind::number || clip->type == yaml_value::kind::integer;
      const bool infinite = clip->is_text() && (clip->text == "inf" || clip->text == "Inf" || clip->text == "infinity");
      if (!infinite && (!is_number || !(clip->real > 0.0))) top_.wrong("clip_grad_norm", "must be a positive number, or 'inf'");
      if (name_has("lora_dpo_") || name_is("knowledge_distillation_distributed"))
        top_.wrong("clip_grad_norm", concat("must be null: the recipe ", recipe_.name, " does not clip"));
      if (is_distillation())
        top_.wrong("clip_grad_norm", "must be null: the gradients that torchtune's recipe clips are divided by the tokens of a step once more");
      if (infinite || clip->real > 1e30) note("clip_grad_norm", "gradients are not clipped; their norm is logged");
      run.optimizer.max_grad_norm = infinite ? 1e30 : std::min(clip->real, 1e30);
    }
    if (top_.flag("optimizer_in_bwd", false)) {
      if (wants_lora()) top_.wrong("optimizer_in_bwd", concat("must be False: the recipe ", recipe_.name, " has no such key"));
      if (top_.has("clip_grad_norm")) top_.wrong("optimizer_in_bwd", "must be False with clip_grad_norm");
      if (run.gradient_accumulation_steps > 1) top_.wrong("optimizer_in_bwd", "must be False with gradient_accumulation_steps above 1");
      if (run.optimizer.kind == "sgd" && !recipe_.is_distributed)
        top_.wrong("optimizer_in_bwd", "must be False with SGD: torchtune's recipe then does not divide by the tokens");
      note("optimizer_in_bwd", "the optimizer steps after the backward pass; results are the same");
    }
    if (name_is("full_dpo_distributed")) run.objective.second_model = checkpointer("ref_checkpointer", *model.use.model).folder;
    if (is_distillation()) {
      const model_use teacher = model_at("teacher_model");
      if (teacher.use.lora) top_.section("teacher_model").wrong("_component_", "must not be a builder of LoRA");
      const checkpoint of = checkpointer("teacher_checkpointer", *teacher.use.model);
      run.objective.second_model = of.folder;
      const json words = run.model.config.at("vocab_size"), others = sizes_at("teacher_model", *teacher.use.model).at("vocab_size");
      if (words != others)
        top_.section("teacher_model").wrong("_component_", concat("must have the vocabulary of the model, ", words.dump(), " tokens; it has ", others.dump()));
    }
    if (is_qat()) quantize(run);

    run.output.folder = top_.text("output_dir", weights.output);
    if (run.output.folder.empty()) top_.wrong("output_dir", "must be given");
    if (!weights.output.empty()) run.output.folder = weights.output;
    while (run.output.folder.size() > 1 && run.output.folder.ends_with('/')) run.output.folder.pop_back();
    if (top_.flag("resume_from_checkpoint", false)) run.output.resume = "latest";
    run.output.save_epochs = true;
    run.output.adapter_only = top_.flag("save_adapter_weights_only", false);
    if (!wants_lora() && run.output.adapter_only) top_.wrong("save_adapter_weights_only", "must be False without an adapter");
    log(run);
    return finished(std::move(run));
  }

 private:
  [[nodiscard]] torchtune_call finished(run_description run) {
    torchtune_call call;
    distribute(run);
    top_.finish();
    run.made_from = concat("tune run ", recipe_.name, " --config ", file_);
    run.follows = "torchtune 0.6.1";
    run.notes = notes_;
    run.check();
    call.device = run.device;
    call.dtype = run.precision == "fp32" ? "fp32" : "bf16";
    call.notes = notes_;
    call.run = std::move(run);
    return call;
  }

  [[nodiscard]] torchtune_call translate_ppo() {
    run_description run;
    rollouts_description& rollouts = run.rollouts;
    compute(run);
    const model_use policy = model_at("policy_model"), scores = model_at("reward_and_value_model");
    for (const auto& [key, use] : {std::pair{"policy_model", &policy}, {"reward_and_value_model", &scores}})
      if (use->use.lora) top_.section(key).wrong("_component_", concat("must not be a builder of LoRA for the recipe ", recipe_.name));
    for (const char* key : {"checkpointer", "ref_policy_checkpointer", "value_checkpointer", "reward_checkpointer"})
      if (tune_section section = top_.section(key); !section.text("_component_").ends_with("FullModelHFCheckpointer"))
        section.wrong("_component_", concat("must be torchtune.training.FullModelHFCheckpointer for the recipe ", recipe_.name));
    const checkpoint weights = checkpointer("checkpointer", *policy.use.model), reference = checkpointer("ref_policy_checkpointer", *policy.use.model);
    const checkpoint value = checkpointer("value_checkpointer", *scores.use.model), reward = checkpointer("reward_checkpointer", *scores.use.model);
    if (reference.folder != weights.folder)
      top_.section("ref_policy_checkpointer").wrong("checkpoint_dir", concat("must be that of the policy, ", weights.folder));
    if (reference.files != weights.files) top_.section("ref_policy_checkpointer").wrong("checkpoint_files", "must be those of the policy");
    if (top_.flag("resume_from_checkpoint", false))
      top_.wrong("resume_from_checkpoint", "must be False: a run of PPO writes the models of every epoch, but no states of optimizers to go on from");
    run.model = {.folder = weights.folder, .files = weights.files, .family = std::string(policy.use.model->family),
                 .config = sizes_at("policy_model", *policy.use.model)};
    rollouts.reward_model = reward.folder, rollouts.reward_files = reward.files;
    rollouts.value_model = value.folder, rollouts.value_files = value.files;
    rollouts.score_config = sizes_at("reward_and_value_model", *scores.use.model);
    rollouts.score_config["model_type"] = scores.use.model->family;
    if (tune_section section = top_.section("reward_and_value_model"); scores.use.model->vocab_size == 0) {
      if (!section.has("num_classes") || section.count("num_classes", 1) != 1) section.wrong("num_classes", "must be 1: a score of an answer");
    }
    tokenize(run);
    prompts(run);

    // sizes: as the recipe's _setup_training_parameters, with its conditions
    const std::size_t batch = top_.required_positive("batch_size"), each = top_.required_positive("ppo_batch_size");
    const std::size_t together = top_.required_positive("forward_batch_size"), steps = top_.required_positive("num_steps");
    run.gradient_accumulation_steps = top_.required_positive("gradient_accumulation_steps");
    if (batch % together != 0) top_.wrong("forward_batch_size", concat("must divide batch_size, ", batch));
    if (batch % each != 0) top_.wrong("ppo_batch_size", concat("must divide batch_size, ", batch));
    if (each % run.gradient_accumulation_steps != 0) top_.wrong("gradient_accumulation_steps", concat("must divide ppo_batch_size, ", each));
    if (steps < batch) top_.wrong("num_steps", concat("must be at least batch_size, ", batch));
    run.micro_batch_size = each / run.gradient_accumulation_steps;
    rollouts.batch_size = batch, rollouts.generation_batch_size = together, rollouts.steps = steps / batch;
    rollouts.num_ppo_epochs = top_.required_positive("ppo_epochs");
    if (run.gradient_accumulation_steps > 1) run.objective.average = "micro_batch";  // the recipe adds the means of micro-batches
    run.shuffle = top_.flag("shuffle", true);
    if (top_.has("seed")) run.seed = top_.count("seed", 0);
    else if (top_.any("seed") != nullptr) note("seed", concat("null is ", run.seed, " here, not a random number"));

    rollouts.max_completion_length = top_.required_positive("max_generated_tokens");
    rollouts.top_k = top_.has("top_k") ? top_.positive("top_k", 1) : 0;
    const double temperature = required_number("temperature");
    if (!(temperature > 0.0)) top_.wrong("temperature", "must be positive: logits are divided by it");
    if (!top_.flag("enable_kv_cache", true)) note("enable_kv_cache", "answers are generated with a KV cache; results are the same");
    const yaml_value* stop = top_.get("stop_token_ids");
    if (stop == nullptr) top_.wrong("stop_token_ids", "must be given: the tokens that end an answer");
    if (!stop->is_list() || stop->items.empty()) top_.wrong("stop_token_ids", "must be a list of tokens");
    for (const yaml_value& one : stop->items) {
      if (one.type != yaml_value::kind::integer || one.whole < 0) top_.wrong("stop_token_ids", "must be a list of tokens");
      rollouts.stop.push_back(static_cast<std::size_t>(one.whole));
    }
    rollouts.penalize_longest = top_.flag("penalise_no_eos", true);
    rollouts.min_completion_length = top_.count("min_response_length", 0);
    rollouts.penalty = required_number("reward_penalty");
    if (top_.flag("whiten_rewards", false)) top_.wrong("whiten_rewards", "must be False: torchtune's recipe reads it, and whitens no rewards");
    rollouts.gamma = required_number("gamma"), rollouts.lambda = required_number("lmbda"), rollouts.kl_coef = required_number("kl_coeff");
    for (const char* key : {"gamma", "lmbda"})
      if (const double share = required_number(key); share < 0.0 || share > 1.0) top_.wrong(key, "must be from 0 to 1");
    if (rollouts.kl_coef < 0.0) top_.wrong("kl_coeff", "must not be negative");

    tune_section loss = top_.section("loss");
    (void)checked_component(loss.values(), file_, "loss", true);
    if (!loss.text("_component_").ends_with("PPOLoss")) loss.wrong("_component_", concat("must be torchtune.rlhf.loss.PPOLoss for the recipe ", recipe_.name));
    const double epsilon = loss.number("epsilon", 0.1);
    rollouts.value_clip_range = loss.number("value_clip_range", 0.2), rollouts.value_coefficient = loss.number("value_coeff", 0.1);
    if (!(epsilon > 0.0)) loss.wrong("epsilon", "must be positive");
    if (!(rollouts.value_clip_range > 0.0)) loss.wrong("value_clip_range", "must be positive");
    if (rollouts.value_coefficient < 0.0) loss.wrong("value_coeff", "must not be negative");
    loss.finish();
    run.objective.kind = "ppo";
    run.objective.settings = {{"epsilon_low", epsilon}, {"epsilon_high", epsilon}, {"temperature", temperature}};
    run.objective.second_model = reference.folder;

    optimize(run);
    if (top_.flag("optimizer_in_bwd", false)) {
      if (run.gradient_accumulation_steps > 1) top_.wrong("optimizer_in_bwd", "must be False with gradient_accumulation_steps above 1");
      note("optimizer_in_bwd", "the optimizer steps after the backward pass; results are the same");
    }
    run.output.folder = weights.output.empty() ? top_.text("output_dir") : weights.output;
    rollouts.value_output = value.output;
    (void)top_.any("output_dir");
    for (std::string* folder : {&run.output.folder, &rollouts.value_output})
      while (folder->size() > 1 && folder->ends_with('/')) folder->pop_back();
    if (run.output.folder.empty()) top_.wrong("output_dir", "must be given");
    if (rollouts.value_output.empty()) top_.section("value_checkpointer").wrong("output_dir", "must be given");
    if (rollouts.value_output == run.output.folder)
      top_.section("value_checkpointer").wrong("output_dir", "must be another folder than that of the policy, whose models have the same names");
    run.output.save_epochs = true;
    log(run);
    if (!run.output.tensorboard.empty())
      top_.section("metric_logger").wrong("_component_", concat("must be a DiskLogger or a StdoutLogger for the recipe ", recipe_.name));
    return finished(std::move(run));
  }
  [[nodiscard]] double required_number(const std::string& key) {
    if (!top_.has(key)) top_.wrong(key, "must be given, a number");
    return top_.number(key, 0.0);
  }
  void prompts(run_description& run) {
    const yaml_value* all = top_.get("dataset");
    if (all == nullptr) top_.wrong("dataset", "must be given");
    const auto add = [&](const yaml_value& values, const std::string& path) {
      (void)checked_component(values, file_, path, true);
      tune_section data(values, file_, path);
      if (!data.text("_component_").ends_with(".text_completion_dataset"))
        data.wrong("_component_", "must be torchtune.datasets.text_completion_dataset, whose texts are the prompts");
      data_description one;
      one.kind = "prompts";
      if (data.text("split", "train") != "train") data.wrong("split", "must be train: parts of a file are not supported; split the file");
      data.only("packed", false, "prompts are not packed");
      (void)data.any("split_across_pack");
      if (data.flag("add_eos", true)) data.wrong("add_eos", "must be False: a prompt does not end with the end-of-text token");
      one.files = files_of(data, "");
      one.text_field = data.text("column", "text");
      data.finish();
      run.data.push_back(std::move(one));
    };
    if (all->is_list())
      for (std::size_t i = 0; i < all->items.size(); ++i) add(all->items[i], concat("dataset[", i, "]"));
    else add(*all, "dataset");
    if (run.data.empty()) top_.wrong("dataset", "must have a dataset");
  }
  void adapt(run_description& run, const tune_model_use& use, const std::string& key) {
    tune_section model = top_.section(key);
    for (const tune_size& one : tune_sizes) (void)model.any(std::string(one.argument));
    (void)model.any("tie_word_embeddings");
    const bool wants = wants_lora();
    if (wants != use.lora)
      model.wrong("_component_", wants ? concat("must be a lora_ or qlora_ builder for the recipe ", recipe_.name)
                                       : concat("must not be a builder of LoRA for the recipe ", recipe_.name));
    if (!use.lora) return model.finish();
    adapter_description& adapter = run.adapter;
    const bool quantizes = model.flag("quantize_base", use.qlora), dora = model.flag("use_dora", false);
    adapter.kind = quantizes ? dora ? "qdora" : "qlora" : dora ? "dora" : "lora";
    adapter.rank = model.positive("lora_rank", 8);
    adapter.alpha = model.number("lora_alpha", 16.0);
    adapter.dropout = model.number("lora_dropout", 0.0);
    if (!(adapter.alpha > 0.0)) model.wrong("lora_alpha", "must be positive");
    if (!(adapter.dropout >= 0.0 && adapter.dropout < 1.0)) model.wrong("lora_dropout", "must be from 0 to below 1");
    if (dora && adapter.dropout > 0.0)
      model.wrong("lora_dropout", "must be 0 with use_dora: torchtune drops inputs of A and B alone; here, as in PEFT, those of all that DoRA changes");
    std::set<std::string> attention;
    for (const std::string& module : model.texts("lora_attn_modules")) {
      const std::vector<std::string> known{"q_proj", "k_proj", "v_proj", "output_proj"};
      if (std::find(known.begin(), known.end(), module) == known.end()) model.wrong("lora_attn_modules", "must be some of q_proj, k_proj, v_proj, output_proj");
      if (!attention.insert(module).second) model.wrong("lora_attn_modules", concat("must name ", module, " once"));
    }
    if (attention.empty()) model.wrong("lora_attn_modules", "must name a module: q_proj, k_proj, v_proj, output_proj");
    if (model.flag("apply_lora_to_output", false)) {
      if (use.model->module == "llama3_2" || model.flag("tie_word_embeddings", false))
        model.wrong("apply_lora_to_output", concat("must be False: the head of ", use.model->builder, " is tied to the embedding"));
      if (dora) model.wrong("apply_lora_to_output", "must be False with use_dora: the head has LoRA alone");
      if (is_distillation()) model.wrong("apply_lora_to_output", concat("must be False for the recipe ", recipe_.name));
      if (name_is("qat_lora_finetune_distributed")) model.wrong("apply_lora_to_output", "must be False for this recipe: the weight of the head is not rounded");
      adapter.targets.emplace_back("lm_head");
    }
    const bool mlp = model.flag("apply_lora_to_mlp", false);
    const bool fused = use.model->family == "phi3";
    std::vector<std::string> projections;
    for (const char* one : {"q_proj", "k_proj", "v_proj"})
      if (attention.contains(one)) projections.emplace_back(one);
    if (fused && !projections.empty()) {
      adapter.targets.emplace_back("qkv_proj");
      adapter.parts["qkv_proj"] = projections;
    } else {
      adapter.targets.insert(adapter.targets.end(), projections.begin(), projections.end());
    }
    if (attention.contains("output_proj")) adapter.targets.emplace_back("o_proj");
    if (mlp)
      for (const char* one : {"gate_proj", "up_proj", "down_proj"})
        if (!fused || std::string_view(one) == "down_proj") adapter.targets.emplace_back(one);
    if (mlp && fused) {
      adapter.targets.emplace_back("gate_up_proj");
      adapter.parts["gate_up_proj"] = {"gate_proj", "up_proj"};
    }
    if (!adapter.parts.empty()) {
      if (dora) model.wrong("use_dora", concat("must be False where ", use.model->builder, " has fused matrices, whose parts have LoRA alone"));
      if (quantizes)
        note(model.path(), "fused matrices are rounded to four bits as they are in files, torchtune's parts one by one; they differ in the rounding of scales");
    }
    model.finish();
  }

  /// The files of a dataset: `data_files`, or a folder's.
  [[nodiscard]] std::vector<std::string> files_of(tune_section& data, const std::string& default_source) {
    const std::string source = data.text("source", default_source);
    std::vector<std::string> files = data.texts("data_files");
    const std::string folder = data.text("data_dir");
    data.must_be_null("name", "there is one configuration of files");
    data.must_be_null("filter_fn", "records cannot be filtered by a function");
    data.must_be_null("field", "records must be at the top of a file");
    data.only("streaming", false, "data is read as a whole");
    (void)data.any("num_proc");
    const bool is_format = source == "json" || source == "parquet" || source == "csv" || source == "text" || source == "arrow";
    if (is_format && source != "json")
      data.wrong("source",
                 concat("must be json, a folder, or a name with data_files: ", source, " files are read by preprocess_data; convert them to JSON lines"));
    if (is_format && files.empty()) data.wrong("data_files", "must be given with source json");
    const auto in = [](const std::string& where, const std::string& name) { return where.empty() || name.starts_with('/') ? name : concat(where, "/", name); };
    const bool is_local = !is_format && !source.empty() && is_directory(source);
    if (!files.empty()) {
      for (std::string& file : files) file = in(is_local ? source : folder, file);
    } else {
      if (!is_local)
        data.wrong("source",
                   concat("must be a folder, or json with data_files: '", source, "' is a name of Hugging Face's hub, and nothing is downloaded here"));
      const std::string where = folder.empty() ? source : concat(source, "/", folder);
      std::error_code problem;
      for (std::filesystem::recursive_directory_iterator at(where, problem), end; !problem && at != end; at.increment(problem))
        if (const std::string name = at->path().string(); name.ends_with(".json") || name.ends_with(".jsonl")) files.push_back(name);
      if (problem) data.wrong("source", concat("must be a folder that can be read, with those in it; ", where, ": ", problem.message()));
      std::sort(files.begin(), files.end());
      if (files.empty()) data.wrong("source", concat("must have files .json or .jsonl; ", where, " has none"));
    }
    for (const std::string& file : files)
      if (!file.ends_with(".json") && !file.ends_with(".jsonl")) data.wrong("data_files", concat("must be .json or .jsonl; ", file, " is neither"));
    return files;
  }
  /// An empty map does not count, as in Python's `if column_map`.
  [[nodiscard]] static bool maps_columns(tune_section& data) {
    const yaml_value* map = data.get("column_map");
    return map != nullptr && !(map->is_map() && map->keys.empty());
  }
  /// Column names in the files, as far as column_map gives them, default names included: a given default differs from a missing entry.
  [[nodiscard]] json columns_of(tune_section& data, std::initializer_list<std::pair<const char*, const char*>> known, bool needs_all = false) {
    json columns = json::object();
    if (!maps_columns(data)) return columns;
    tune_section map = data.section("column_map");
    for (const auto& [theirs, ours] : known)
      if (map.any(theirs) != nullptr) columns[ours] = map.required_text(theirs);
      else if (needs_all) map.wrong(theirs, "must be given");
    map.finish();
    return columns;
  }

  [[nodiscard]] data_description dataset(const yaml_value& values, const std::string& path, bool packable) {
    (void)checked_component(values, file_, path, true);
    tune_section data(values, file_, path);
    const std::string component = data.text("_component_");
    const std::string name = component.substr(component.rfind('.') + 1);
    data_description one;
    one.split = data.text("split", "train");
    if (one.split != "train") data.wrong("split", "must be train: parts of a file are not supported; split the file");
    one.split.clear();
    one.packed = data.flag("packed", false);
    if (one.packed && !packable) data.wrong("packed", "must be False: pairs are not packed");
    one.when_too_long = "truncate";
    const auto is = [&](std::string_view what) { return name == what; };
    const bool is_preference = is("preference_dataset") || is("stack_exchange_paired_dataset") || is("hh_rlhf_helpful_dataset");
    if (is_preference != is_dpo())
      data.wrong("_component_", is_dpo() ? "must be a dataset of preferences" : concat("must not be a dataset of preferences for the recipe ", recipe_.name));
    if (is("alpaca_dataset") || is("alpaca_cleaned_dataset")) {
      one.kind = "chat", one.form = "instruction";
      one.files = files_of(data, is("alpaca_dataset") ? "tatsu-lab/alpaca" : "yahma/alpaca-cleaned");
      one.columns = columns_of(data, {{"instruction", "instruction"}, {"input", "input"}, {"output", "output"}});
      one.train_on_input = data.flag("train_on_input", true);
      const prompt_template alpaca = alpaca_template();
      one.prompt_template = alpaca.with_input;
      one.prompt_template_without_input = alpaca.without_input;
    } else if (is("instruct_dataset") || is("grammar_dataset") || is("samsum_dataset")) {
      one.kind = "chat", one.form = "instruction";
      one.files = files_of(data, is("grammar_dataset") ? "liweili/c4_200m" : is("samsum_dataset") ? "Samsung/samsum" : "");
      if (!is("samsum_dataset") && data.get("column_map") != nullptr && !maps_columns(data))  // as InputOutputToMessages
        data.wrong("column_map", "must name input and output, or be left out");
      one.columns = columns_of(data, {{"input", "instruction"}, {"output", "output"}}, true);
      if (one.columns.empty()) {
        one.columns["instruction"] = is("samsum_dataset") ? "dialogue" : "input";
        if (is("samsum_dataset")) one.columns["output"] = "summary";
      }
      one.train_on_input = data.flag("train_on_input", false);
      one.prompt_template = one.prompt_template_without_input = "{instruction}";
      one.system_prompt = data.text("new_system_prompt");
    } else if (is("chat_dataset") || is("slimorca_dataset")) {
      one.kind = "chat";
      one.files = files_of(data, is("slimorca_dataset") ? "Open-Orca/SlimOrca-Dedup" : "");
      std::string column;
      if (is("chat_dataset")) {
        const std::string style = data.required_text("conversation_style");
        if (style != "sharegpt" && style != "openai") data.wrong("conversation_style", "must be sharegpt or openai");
        one.form = style == "sharegpt" ? "conversations" : "messages";
        column = data.required_text("conversation_column");
      } else {
        one.form = "conversations";
        one.columns = columns_of(data, {{"conversations", "conversations"}}, true);
      }
      if (!column.empty() && column != one.form) one.columns[one.form] = column;
      one.train_on_input = data.flag("train_on_input", false);
      one.system_prompt = data.text("new_system_prompt");
    } else if (is("text_completion_dataset") || is("wikitext_dataset") || is("cnn_dailymail_articles_dataset")) {
      one.kind = "text", one.form = "separate";
      const bool wiki = is("wikitext_dataset"), cnn = is("cnn_dailymail_articles_dataset");
      (void)data.any("subset");
      if (wiki || cnn) data.must_be_null("max_seq_len", "the tokenizer's max_seq_len says it");
      one.files = files_of(data, wiki ? "EleutherAI/wikitext_document_level" : cnn ? "ccdv/cnn_dailymail" : "");
      one.text_field = wiki ? "page" : cnn ? "article" : data.text("column", "text");
      one.add_eos = data.flag("add_eos", true);
      if (!one.add_eos) data.wrong("add_eos", "must be True: every document ends with the end-of-text token");
      if (const std::string tokenizer = top_.section("tokenizer").text("_component_"); tokenizer.ends_with("llama3_tokenizer"))
        one.end_token = "<|end_of_text|>";  // differs from the end-of-text token in folders of Instruct models
      else if (tokenizer.ends_with("qwen2_tokenizer") || tokenizer.ends_with("qwen2_5_tokenizer")) one.end_token = "<|im_end|>";
      const bool splits = data.flag("split_across_pack", true);
      if (one.packed && splits && !wiki && !cnn) data.wrong("split_across_pack", "must be False with packed: a document is not split between sequences");
    } else if (is_preference) {
      one.kind = "preference", one.form = "messages";
      one.files = files_of(data, is("stack_exchange_paired_dataset") ? "lvwerra/stack-exchange-paired"
                                 : is("hh_rlhf_helpful_dataset")     ? "RLHFlow/HH-RLHF-Helpful-standard"
                                                                     : "");
      if (is("stack_exchange_paired_dataset")) {
        one.columns = json{{"prompt", "question"}, {"chosen", "response_j"}, {"rejected", "response_k"}};
        if (maps_columns(data)) {
          one.columns = json{{"prompt", "prompt"}, {"chosen", "chosen"}, {"rejected", "rejected"}};
          one.columns.update(columns_of(data, {{"prompt", "prompt"}, {"chosen", "chosen"}, {"rejected", "rejected"}}));
        }
        data.must_be_null("data_dir", "torchtune's component has one of its own; data_files names files");
        note(path, "files are read where data_files says, not below data/rl");
      } else {
        one.columns = json{{"chosen", "chosen"}, {"rejected", "rejected"}};
        one.columns.update(columns_of(data, {{"chosen", "chosen"}, {"rejected", "rejected"}}, true));
        one.system_prompt = data.text("new_system_prompt");
      }
      data.only("train_on_input", false, "the loss of preferences is on the answers");
    } else {
      data.wrong("_component_", "must be a dataset that a run can have");
    }
    data.finish();
    return one;
  }
  void datasets(run_description& run) {
    const yaml_value* all = top_.get("dataset");
    if (all == nullptr) top_.wrong("dataset", "must be given");
    if (all->is_list())
      for (std::size_t i = 0; i < all->items.size(); ++i) run.data.push_back(dataset(all->items[i], concat("dataset[", i, "]"), !is_dpo()));
    else run.data.push_back(dataset(*all, "dataset", !is_dpo()));
    if (run.data.empty()) top_.wrong("dataset", "must have a dataset");
    for (const data_description& one : run.data)
      if (one.packed != run.data.front().packed) top_.wrong("dataset", "must be packed as a whole or not at all");
    if (run.data.front().packed) {
      if (run.tokenizer.max_length == 0) top_.wrong("dataset", "packed needs tokenizer.max_seq_len, the length of the packs");
      run.seq_length = run.tokenizer.max_length;
      // a sample's positions in a pack include its last token; Llama 3's also <|end_of_text|>
      const bool has_end = top_.section("tokenizer").text("_component_").ends_with("llama3_tokenizer");
      for (data_description& one : run.data) one.pack_gap = has_end && one.kind == "chat" ? 2 : 1;
    }
    top_.only("packed", false, "it is a key of the dataset");
    const std::string collate = top_.text("collate_fn", "torchtune.data.padded_collate_sft");
    if (collate != "torchtune.data.padded_collate_sft" && !is_dpo()) top_.wrong("collate_fn", "must be torchtune.data.padded_collate_sft");
    if (is_dpo() && top_.has("collate_fn")) top_.wrong("collate_fn", "must be left out: pairs are padded as torchtune.data.padded_collate_dpo does");
  }

  void optimize(run_description& run) {
    tune_section section = top_.section("optimizer");
    (void)checked_component(section.values(), file_, "optimizer", true);
    const std::string component = section.text("_component_");
    const auto ends = [&](std::string_view with) { return component.ends_with(with); };
    optimizer_description& to = run.optimizer;
    to.decays = "all";
    if (section.any("lr") != nullptr && !section.has("lr")) section.wrong("lr", "must be a number, or left out");  // PyTorch takes no None
    run.schedule.learning_rate = section.number("lr", 1e-3);
    if (!(run.schedule.learning_rate >= 0.0)) section.wrong("lr", "must not be negative");
    for (const char* flag : {"foreach", "fused", "capturable", "differentiable"}) (void)section.any(flag);
    for (const char* flag : {"amsgrad", "maximize", "nesterov"}) section.only(flag, false, "there is no such variant");
    const double decay = section.number("weight_decay", ends(".SGD") || component == "torch.optim.Adam" ? 0.0 : 0.01);
    if (!(decay >= 0.0)) section.wrong("weight_decay", "must not be negative");
    if (ends(".SGD")) {
      to.kind = "sgd";
      to.settings["momentum"] = section.number("momentum", 0.0);
      if (to.settings["momentum"] < 0.0) section.wrong("momentum", "must not be negative");
      if (section.number("dampening", 0.0) != 0.0) section.wrong("dampening", "must be 0");
      if (decay != 0.0) section.wrong("weight_decay", "must be 0: PyTorch's SGD adds it to the gradient, the one here to the weight");
      to.settings["weight_decay"] = 0.0;
    } else {
      to.kind = ends("8bit") ? "adamw_8bit" : "adamw";
      if (component == "torch.optim.Adam" && decay != 0.0) section.wrong("weight_decay", "must be 0: Adam adds it to the gradient; AdamW decays the weights");
      to.settings["weight_decay"] = decay;
      to.settings["epsilon"] = section.number("eps", 1e-8);
      if (to.settings["epsilon"] < 0.0) section.wrong("eps", "must not be negative");
      double beta1 = 0.9, beta2 = 0.999;
      if (const yaml_value* betas = section.get("betas")) {
        const auto is_number = [](const yaml_value& one) { return one.type == yaml_value::kind::number || one.type == yaml_value::kind::integer; };
        if (!betas->is_list() || betas->items.size() != 2 || !is_number(betas->items[0]) || !is_number(betas->items[1]))
          section.wrong("betas", "must be a list of two numbers");
        beta1 = betas->items[0].real, beta2 = betas->items[1].real;
        for (const double beta : {beta1, beta2})
          if (!(beta >= 0.0 && beta < 1.0)) section.wrong("betas", "must be two numbers from 0 to below 1");
      }
      to.settings["beta1"] = beta1;
      to.settings["beta2"] = beta2;
      if (section.has("optim_bits") && section.count("optim_bits", 32) != (ends("8bit") ? 8U : 32U)) section.wrong("optim_bits", "must be that of the class");
      if (ends("8bit")) to.settings["min_8bit_size"] = section.count("min_8bit_size", 4096);
      else (void)section.any("min_8bit_size");
      section.must_be_null("args", "there are no other settings");
      if (section.count("percentile_clipping", 100) != 100) section.wrong("percentile_clipping", "must be 100: gradients are not clipped by their history");
      section.only("block_wise", true, "moments are quantized in blocks");
      if (section.count("block_size", 256) != 256) section.wrong("block_size", "must be 256");
      section.asks_for({"is_paged"});
      section.only("bf16_stochastic_round", run.precision == "bf16_pure" && section.flag("bf16_stochastic_round", false),
                   "weights of bf16 are rounded so, others are not");
      if (ends("PagedAdamW")) note("optimizer", "bitsandbytes keeps the moments in fp32; dtype bf16 keeps them in bf16 here");
      if (component.find("Paged") != std::string::npos) note("optimizer", "the state is not paged to the host");
    }
    section.finish();
  }

  void schedule(run_description& run) {
    run.schedule.kind = "constant";
    if (!top_.has("lr_scheduler")) {
      const bool needs = name_has("lora_finetune") || name_is("lora_dpo_distributed") || name_is("full_dpo_distributed") || is_distillation() ||
                         name_is("qat_lora_finetune_distributed");
      if (needs) top_.wrong("lr_scheduler", concat("must be given for the recipe ", recipe_.name));
      return;
    }
    if (name_is("qat_distributed")) top_.wrong("lr_scheduler", "must be left out: the recipe qat_distributed has a constant learning rate");
    tune_section section = top_.section("lr_scheduler");
    (void)checked_component(section.values(), file_, "lr_scheduler", true);
    run.schedule.kind = "cosine";
    run.schedule.from_zero = true;  // LambdaLR: step 0 has the rate of 0 steps
    if (!section.has("num_warmup_steps")) section.wrong("num_warmup_steps", "must be given");
    run.schedule.warmup_steps = section.count("num_warmup_steps", 0);
    if (const double cycles = section.number("num_cycles", 0.5); cycles != 0.5) run.schedule.settings["num_cycles"] = cycles;
    section.finish();
  }

  void set_loss(run_description& run) {
    const auto loss_at = [&](const std::string& key) {
      tune_section section = top_.section(key);
      (void)checked_component(section.values(), file_, key, true);
      if (section.has("ignore_index") && (section.get("ignore_index")->type != yaml_value::kind::integer || section.get("ignore_index")->whole != -100))
        section.wrong("ignore_index", "must be -100");
      (void)section.any("num_output_chunks");
      return section;
    };
    tune_section loss = loss_at("loss");
    const std::string component = loss.text("_component_"), name = component.substr(component.rfind('.') + 1);
    objective_description& to = run.objective;
    if (is_dpo()) {
      if (name != "DPOLoss" && name != "RSOLoss") loss.wrong("_component_", "must be torchtune.rlhf.loss.DPOLoss or RSOLoss for a recipe of DPO");
      to.kind = "dpo";
      if (name == "RSOLoss") {
        to.settings["kind"] = "hinge";
        to.settings["beta"] = loss.number("gamma", 0.1);
      } else {
        to.settings["beta"] = loss.number("beta", 0.1);
        to.settings["label_smoothing"] = loss.number("label_smoothing", 0.0);
      }
    } else {
      if (name != "CEWithChunkedOutputLoss" && name != "LinearCrossEntropyLoss" && name != "CrossEntropyLoss")
        loss.wrong("_component_", concat("must be a cross-entropy for the recipe ", recipe_.name));
      for (const char* key : {"weight", "size_average", "reduce"}) loss.must_be_null(key, "there is no such variant");
      if (loss.text("reduction", "mean") != "mean") loss.wrong("reduction", "must be mean");
      if (loss.number("label_smoothing", 0.0) != 0.0) loss.wrong("label_smoothing", "must be 0");
    }
    loss.finish();
    if (is_distillation()) {
      tune_section divergence = loss_at("kd_loss");
      const std::string kind = divergence.text("_component_");
      const bool forward = kind.find("ForwardKL") != std::string::npos, reverse = kind.find("ReverseKL") != std::string::npos;
      if (!forward && !reverse) divergence.wrong("_component_", "must be ForwardKLLoss or ReverseKLLoss");
      divergence.finish();
      to.kind = "distillation";
      to.settings["kind"] = forward ? "forward" : "reverse";
      to.settings["ratio"] = top_.number("kd_ratio", 0.5);
      to.average = "micro_batch";  // the recipe adds the means of micro-batches
      note("kd_loss", "torchtune's recipe divides these gradients by the tokens of a step once more; AdamW's steps do not depend on that scale but for eps");
    }
  }

  void log(run_description& run) {
    output_description& to = run.output;
    to.log_style = "torchtune";
    to.checkpoint_style = "torchtune";
    to.log_steps = top_.positive("log_every_n_steps", 1);
    if (top_.flag("log_peak_memory_stats", false)) note("log_peak_memory_stats", "a plan (--plan) says what memory a run takes");
    tune_section section = top_.section("metric_logger");
    (void)checked_component(section.values(), file_, "metric_logger", true);
    const std::string component = section.text("_component_");
    if (component.ends_with("DiskLogger")) {
      to.log_file = concat(section.required_text("log_dir"), "/", section.text("filename", launch_.log_name));
    } else if (component.ends_with("StdoutLogger")) {
      to.log_file = "/dev/stdout";
    } else {
      to.tensorboard = section.required_text("log_dir");
      if (section.flag("organize_logs", true)) note("metric_logger.organize_logs", "metrics are written into log_dir itself");
    }
    section.finish();
    if (top_.has("profiler")) {
      tune_section profiler = top_.section("profiler");
      if (profiler.values().find("_component_") != nullptr) (void)checked_component(profiler.values(), file_, "profiler", true);
      if (profiler.flag("enabled", false)) profiler.wrong("enabled", "must be False: torch.profiler is not there; --plan says what a step takes");
    }
  }

  void distribute(run_description& run) {
    for (const char* key : {"custom_sharded_layers", "memory_efficient_fsdp_wrap"}) ignore(key, "how FSDP groups layers; ZeRO shards every layer");
    if (top_.has("fsdp")) {
      tune_section fsdp = top_.section("fsdp");  // of earlier versions
      if (fsdp.flag("cpu_offload", false)) fsdp.wrong("cpu_offload", "is called fsdp_cpu_offload");
      fsdp.finish();
    }
    ignore("enable_async_checkpointing", "checkpoints are written before the run goes on");
    if (!recipe_.is_distributed) {
      for (const char* key : {"fsdp_cpu_offload", "tensor_parallel_dim", "data_parallel_shard_dim", "data_parallel_replicate_dim"}) {
        const yaml_value* found = top_.get(key);
        const bool plain =
            found == nullptr || (found->type == yaml_value::kind::boolean && !found->truth) || (found->type == yaml_value::kind::integer && found->whole == 1);
        if (!plain) top_.wrong(key, concat("must be left out: ", recipe_.name, " runs on one device"));
      }
      top_.asks_for({"fsdp_reshard_after_forward", "tensor_parallel_plan"});
      return;
    }
    parallel_description& mesh = run.parallel;
    mesh.ranks = launch_.ranks;
    mesh.zero = top_.flag("fsdp_reshard_after_forward", true) ? 3 : 2;
    if (mesh.zero == 3 && mesh.ranks > 1 && run.adapter.kind.ends_with("dora")) {
      mesh.zero = 2;
      note("model.use_dora", "every rank keeps all weights (zero<2>), because DoRA needs whole rows; results are the same");
    }
    mesh.tensor = top_.positive("tensor_parallel_dim", 1);
    if (top_.has("tensor_parallel_plan")) {
      tune_section plan = top_.section("tensor_parallel_plan");
      (void)checked_component(plan.values(), file_, "tensor_parallel_plan", true);
    } else if (mesh.tensor > 1) {
      top_.wrong("tensor_parallel_dim", "must be 1 without a tensor_parallel_plan");
    }
    if (mesh.tensor > 1 && !name_is("full_finetune_distributed")) top_.wrong("tensor_parallel_dim", "must be 1 but for the recipe full_finetune_distributed");
    if (mesh.ranks % mesh.tensor != 0) top_.wrong("tensor_parallel_dim", concat("must divide the number of ranks, ", mesh.ranks));
    const std::size_t data_ranks = mesh.ranks / mesh.tensor;
    const yaml_value* shards = top_.get("data_parallel_shard_dim");
    const std::size_t copies = top_.positive("data_parallel_replicate_dim", 1);
    if (data_ranks % copies != 0) top_.wrong("data_parallel_replicate_dim", concat("must divide the number of data-parallel ranks, ", data_ranks));
    const bool is_rest = shards == nullptr || (shards->type == yaml_value::kind::integer && shards->whole == -1);
    const std::size_t each = is_rest ? data_ranks / copies : top_.positive("data_parallel_shard_dim", 1);
    if (each * copies != data_ranks)
      top_.wrong("data_parallel_shard_dim", concat("must be ", data_ranks / copies, ", the data-parallel ranks of one copy, or -1"));
    if (each != data_ranks) mesh.shards = each;
    if (top_.flag("fsdp_cpu_offload", false)) {
      if (run.device == "npu") {
        note("fsdp_cpu_offload", "optimizer state stays on the NPU, sharded among the ranks: its operators cannot address host memory");
      } else if (run.device != "cpu") {  // the cpu's memory is host memory
        run.offload = "optimizer";
        note("fsdp_cpu_offload", "optimizer state is in pinned memory of the host; weights stay on the device, sharded among the ranks");
      }
    }
  }

  void compute(run_description& run) {
    run.device = top_.text("device", "");
    if (run.device.starts_with("cuda:")) top_.wrong("device", "must be cuda: the ranks of a node choose their devices");
    if (run.device != "cpu" && run.device != "cuda" && run.device != "npu" && run.device != "musa") top_.wrong("device", "must be one of cpu, cuda, npu, musa");
    const std::string dtype = top_.text("dtype", "");
    if (dtype != "bf16" && dtype != "fp32") top_.wrong("dtype", "must be bf16 or fp32");
    run.precision = dtype == "bf16" ? "bf16_pure" : "fp32";
    const bool recomputes = top_.flag("enable_activation_checkpointing", false);
    run.recompute = recomputes ? "full" : "none";
    if (top_.flag("enable_activation_offloading", false)) {
      if (run.device != "cuda") top_.wrong("enable_activation_offloading", "must be False but on cuda");
      if (!recomputes) top_.wrong("enable_activation_offloading", "must be False without enable_activation_checkpointing");
      note("enable_activation_offloading", "layer inputs stay on the device; results are the same");
    }
    if (const std::string mode = top_.text("ac_mode"); !mode.empty()) {
      if (mode != "selective" && mode != "full") top_.wrong("ac_mode", "must be selective or full");
      run.recompute = "full";
      if (mode == "selective") note("ac_mode", "all layers are recomputed; results are the same");
    }
    (void)top_.any("ac_option");
    ignore("compile", "the trainer is compiled, always");
    ignore("low_cpu_ram", "weights are read from mapped files");
    (void)top_.any("cudnn_deterministic_mode");
    if (top_.has("cudnn_deterministic_mode")) note("cudnn_deterministic_mode", "results are deterministic");
    for (const char* key : {"num_workers", "log_level"}) ignore(key, "has no effect on results");
  }

  void quantize(run_description& run) {
    tune_section section = top_.section("quantizer");
    (void)checked_component(section.values(), file_, "quantizer", true);
    if (!section.text("_component_").ends_with("Int8DynActInt4WeightQATQuantizer") && !section.text("_component_").ends_with("Int4WeightOnlyQATQuantizer"))
      section.wrong("_component_", "must be Int8DynActInt4WeightQATQuantizer or Int4WeightOnlyQATQuantizer");
    const bool weights_only = section.text("_component_").ends_with("Int4WeightOnlyQATQuantizer");
    run.adapter.settings["group_size"] = section.positive("groupsize", 256);
    if (weights_only) {
      const std::size_t group = section.positive("groupsize", 256), tiles = section.positive("inner_k_tiles", 8);
      if (group != 32 && group != 64 && group != 128 && group != 256) section.wrong("groupsize", "must be 32, 64, 128 or 256");
      if (tiles != 2 && tiles != 4 && tiles != 8) section.wrong("inner_k_tiles", "must be 2, 4 or 8");
      run.adapter.settings["quantizes_activations"] = false;
      run.adapter.settings["float_zero_points"] = true;
    }
    if (wants_lora()) {
      tune_section model = top_.section("model");
      if (run.adapter.kind != "lora")
        model.wrong("_component_", concat("must be a builder of LoRA, without DoRA and without quantized weights, for the recipe ", recipe_.name));
      if (!run.adapter.parts.empty()) model.wrong("_component_", "must be a model without fused matrices, which are rounded as a whole");
      if (run.model.family == "qwen2") model.wrong("_component_", "must be a model without biases: torchtune's QATLoRALinear leaves them out");
      run.adapter.kind = "qat_lora";
    } else {
      run.adapter.kind = "qat";
      if (top_.has("fake_quant_after_n_steps")) run.adapter.settings["fake_quant_after_n_steps"] = top_.count("fake_quant_after_n_steps", 0);
    }
    for (const char* key : {"padding_allowed", "precision", "scales_precision"}) section.must_be_null(key, "there is no such setting");
    section.finish();
  }
};

}  // namespace xtrain::detail
