// Read by all translations of a torchtune config.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_chat.hpp>
#include <xtrain/front_ends/torchtune_components.hpp>
#include <xtrain/front_ends/torchtune_values.hpp>
#include <xtrain/front_ends/yaml.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// The component of a section; checks its arguments.
///   for_run  refuses components that no run supports
inline const tune_component& checked_component(const yaml_value& section, const std::string& file, const std::string& path, bool for_run) {
  static const tune_component model{"", tune_kind::model, ""};
  const yaml_value* name = section.find("_component_");
  if (name == nullptr || !name->is_text()) tune_wrong(file, section, path, "must have _component_, the name of a component");
  const std::string where = concat(path, "._component_");
  const tune_component* component = tune_component_named(name->text);
  std::string arguments;
  if (const tune_model_use use = tune_model_named(name->text); use.model != nullptr) {
    component = &model;
    arguments = use.arguments();
  } else if (component != nullptr) {
    arguments = component->arguments;
    if (for_run && !component->refusal.empty()) tune_wrong(file, *name, where, concat(component->refusal, "; given ", name->text));
  } else {
    for (const char* image : {"vision", "multimodal", "tiled_image", "clip", "flux", "t5"})
      if (name->text.find(image) != std::string::npos) tune_wrong(file, *name, where, concat("vision models are not supported; given ", name->text));
    const std::string near = tune_component_near(name->text);
    tune_wrong(file, *name, where, concat("there is no such component; given ", name->text, near.empty() ? "" : concat("; did you mean ", near, "?")));
  }
  std::vector<std::string> known = tune_words(arguments);
  const bool takes_any = std::find(known.begin(), known.end(), "*") != known.end();
  for (std::size_t i = 0; i < section.keys.size(); ++i) {
    const std::string& key = section.keys[i];
    if (key == "_component_" || takes_any || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    tune_wrong(file, section.items[i], concat(path, ".", key),
               concat(name->text, " has no such argument", near.empty() ? "" : concat("; did you mean ", near, "?")));
  }
  return *component;
}

/// Checks sections with a _component_, at the top of a config and in its lists.
inline void check_components(const yaml_value& root, const std::string& file, bool for_run) {
  const auto check = [&](const yaml_value& one, const std::string& path) {
    if (one.find("_component_") != nullptr) (void)checked_component(one, file, path, for_run);
  };
  for (std::size_t i = 0; i < root.items.size(); ++i) {
    check(root.items[i], root.keys[i]);
    if (root.items[i].is_list())
      for (std::size_t j = 0; j < root.items[i].items.size(); ++j) check(root.items[i].items[j], concat(root.keys[i], "[", j, "]"));
  }
}

[[nodiscard]] inline std::pair<tune_layout, tune_prompt> tune_conversation(tune_section& tokenizer, const std::string& component) {
  const auto ends = [&](std::string_view with) { return component.ends_with(with); };
  const tune_layout layout = ends("llama3_tokenizer")                              ? tune_layout::llama3
                             : ends("qwen2_tokenizer") || ends("qwen2_5_tokenizer") ? tune_layout::qwen
                             : ends("phi3_mini_tokenizer")                          ? tune_layout::phi3
                             : ends("phi4_tokenizer")                               ? tune_layout::phi4
                                                                                    : tune_layout::plain;
  tune_prompt prompt{.drops_spaces = ends("gemma_tokenizer")};
  const yaml_value* given = tokenizer.any("prompt_template");
  std::string name;
  if (given == nullptr) {
    if (ends("llama2_tokenizer") || ends("Llama2Tokenizer")) name = "Llama2ChatTemplate";
    if (ends("mistral_tokenizer")) name = "MistralChatTemplate";
  } else if (given->is_text()) {
    name = given->text.substr(given->text.rfind('.') + 1);
    constexpr std::array<std::string_view, 6> known{"torchtune.models.llama2.Llama2ChatTemplate", "torchtune.models.mistral.MistralChatTemplate",
                                                    "torchtune.data.ChatMLTemplate", "torchtune.data.GrammarErrorCorrectionTemplate",
                                                    "torchtune.data.SummarizeTemplate", "torchtune.data.QuestionAnswerTemplate"};
    if (std::find(known.begin(), known.end(), given->text) == known.end()) {
      std::string all;
      for (const std::string_view one : known) all += concat(all.empty() ? "" : ", ", one);
      tokenizer.wrong("prompt_template", concat("must be null, a map of roles to [before, behind], or one of ", all));
    }
  } else if (given->is_map()) {
    for (std::size_t i = 0; i < given->items.size(); ++i) {
      const yaml_value& pair = given->items[i];
      const bool is_pair = pair.is_list() && pair.items.size() == 2 && pair.items[0].is_text() && pair.items[1].is_text();
      const std::string& role = given->keys[i];
      auto* to = role == "system" ? &prompt.system : role == "user" ? &prompt.user : role == "assistant" ? &prompt.assistant : nullptr;
      if (!is_pair || (to == nullptr && role != "ipython")) tokenizer.wrong("prompt_template", "must give a role system, user or assistant a pair of texts");
      if (to != nullptr) *to = {pair.items[0].text, pair.items[1].text};
    }
  } else if (!given->is_null()) {
    tokenizer.wrong("prompt_template", "must be null, a name, or a map of roles to [before, behind]");
  }
  if (name == "Llama2ChatTemplate") {
    prompt.system = {"<<SYS>>\n", "\n<</SYS>>\n\n"};
    prompt.user = {"[INST] ", " [/INST] "};
    prompt.system_in_user = true;
  } else if (name == "MistralChatTemplate") {
    prompt.user = {"[INST] ", " [/INST] "};
    prompt.refuses_system = true;
  } else if (name == "ChatMLTemplate") {
    if (layout == tune_layout::qwen) tokenizer.wrong("prompt_template", "must not be ChatMLTemplate for Qwen, whose tokenizer writes it already");
    prompt.system = {"<|im_start|>system\n", "<|im_end|>\n"};
    prompt.user = {"<|im_start|>user\n", "<|im_end|>\n"};
    prompt.assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
  } else if (name == "GrammarErrorCorrectionTemplate") {
    prompt.user = {"Correct this to standard English: ", "\n---\nCorrected: "};
  } else if (name == "SummarizeTemplate") {
    prompt.user = {"Summarize this dialogue:\n", "\n---\nSummary:\n"};
  } else if (name == "QuestionAnswerTemplate") {
    prompt.user = {"Question: ", "\n\nAnswer: "};
  }
  return {layout, prompt};
}

class tune_reader {
 public:
  tune_reader(const yaml_value& root, const std::string& file, const torchtune_recipe& recipe, const torchtune_launch& launch)
      : file_(file), recipe_(recipe), launch_(launch), top_(root, file, "") {}

 protected:
  [[nodiscard]] bool name_is(std::string_view name) const { return recipe_.name == name; }
  [[nodiscard]] bool name_has(std::string_view part) const { return recipe_.name.find(part) != std::string::npos; }
  [[nodiscard]] bool is_ppo() const { return name_is("ppo_full_finetune_single_device"); }
  [[nodiscard]] bool is_dpo() const { return name_has("_dpo_"); }
  [[nodiscard]] bool is_distillation() const { return name_has("knowledge_distillation"); }
  [[nodiscard]] bool is_qat() const { return name_is("qat_distributed") || name_is("qat_lora_finetune_distributed"); }
  [[nodiscard]] bool wants_lora() const { return name_has("lora_") || is_distillation(); }

  void note(const std::string& key, const std::string& why) { notes_.push_back(concat(key, ": ", why)); }
  void ignore(const std::string& key, const std::string& why) {
    const yaml_value* found = top_.get(key);
    if (found != nullptr && !(found->type == yaml_value::kind::boolean && !found->truth)) note(key, why);
  }

  struct model_use {
    tune_model_use use{};
    std::string name{};
  };
  [[nodiscard]] model_use model_at(const std::string& key) {
    tune_section model = top_.section(key);
    (void)checked_component(model.values(), file_, key, true);
    const std::string name = model.text("_component_");
    const tune_model_use use = tune_model_named(name);
    if (use.model == nullptr) top_.wrong(key, "must be a language model");
    const bool wants_score = key == "reward_and_value_model";
    if (use.model->scores() != wants_score)
      model.wrong("_component_", wants_score ? "must be a model with a score head: mistral_classifier, llama2_classifier, mistral_reward_7b or llama2_reward_7b"
                                             : "must be a model that predicts tokens; those with a score head are reward_and_value_model, for PPO");
    return {use, name};
  }
  /// For comparison with a folder's config.json: sizes, or all arguments of a builder in the config.
  [[nodiscard]] json sizes_at(const std::string& key, const tune_model& model) {
    if (model.vocab_size > 0) return sizes_of(model);
    tune_section section = top_.section(key);
    json sizes = json::object();
    for (const tune_size& one : tune_sizes) {
      const std::string argument(one.argument);
      if (!section.has(argument) || one.member.empty()) continue;
      if (!one.is_real) {
        sizes[std::string(one.member)] = section.count(argument, 0);
        continue;
      }
      const double value = section.number(argument, 0.0);
      if (value < 0.0) section.wrong(argument, "must be non-negative");
      sizes[std::string(one.member)] = value;
    }
    if (section.has("scale_factor")) section.wrong("scale_factor", "must be left out: the folder's config.json says how positions are scaled");
    if (section.has("tie_word_embeddings")) sizes["tie_word_embeddings"] = section.flag("tie_word_embeddings", false);
    for (const char* needed : {"vocab_size", "num_layers", "num_heads", "num_kv_heads", "embed_dim"})
      if (!section.has(needed)) section.wrong(needed, concat("must be given for ", model.builder));
    return sizes;
  }
  struct checkpoint {
    std::string folder{}, output{};
    std::vector<std::string> files{};
    std::size_t longest_sequence = 0;  // of Meta's files, which do not contain it; 0: of others
  };
  [[nodiscard]] checkpoint checkpointer(const std::string& key, const tune_model& model, bool trains = true) {
    tune_section section = top_.section(key);
    (void)checked_component(section.values(), file_, key, true);
    checkpoint result;
    result.folder = section.required_text("checkpoint_dir");
    while (result.folder.size() > 1 && result.folder.ends_with('/')) result.folder.pop_back();
    result.output = section.text("output_dir");
    const std::vector<std::string> types = tune_words(model.types);
    const std::string type = section.required_text("model_type");
    if (std::find(types.begin(), types.end(), type) == types.end()) section.wrong("model_type", concat("must be that of ", model.builder, ", ", types.front()));
    const yaml_value* files = section.get("checkpoint_files");
    if (files == nullptr) section.wrong("checkpoint_files", "must be given");
    if (files->is_map()) {
      tune_section formatted = section.section("checkpoint_files");
      const std::string format = formatted.required_text("filename_format"), last = formatted.required_text("max_filename");
      formatted.finish();
      const std::size_t first = format.find("{}"), second = first == std::string::npos ? first : format.find("{}", first + 2);
      const bool is_number = !last.empty() && last.size() < 6 && std::all_of(last.begin(), last.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
      if (!is_number) formatted.wrong("max_filename", "must be a number as it stands in the names of the files, in quotes");
      if (second == std::string::npos) formatted.wrong("filename_format", "must have {} twice: for the number of a file, and for the last one");
      for (std::size_t i = 1; i <= std::stoul(last); ++i) {
        std::string number = concat(i);
        number.insert(0, last.size() - std::min(last.size(), number.size()), '0');
        result.files.push_back(format.substr(0, first) + number + format.substr(first + 2, second - first - 2) + last + format.substr(second + 2));
      }
    } else {
      result.files = section.texts("checkpoint_files");
    }
    if (result.files.empty()) section.wrong("checkpoint_files", "must name a file");
    if (section.text("_component_").ends_with("FullModelMetaCheckpointer")) {
      const auto must_be_hf = [&](const std::string& why) {
        section.wrong("_component_",
                      concat("must be FullModelHFCheckpointer ", why, ", or make a Hugging Face folder first: convert --from DIR --to DIR2 --format hf"));
      };
      result.longest_sequence = tune_longest_sequence(model.module);
      if (result.longest_sequence == 0) must_be_hf(concat("for ", model.builder, ": Meta's files do not say how positions are scaled"));
      if (key != "checkpointer" || !trains) must_be_hf("here: Meta's files do not say how long sequences may be");
      if (result.files != std::vector<std::string>{"consolidated.00.pth"})
        section.wrong("checkpoint_files", "must be [consolidated.00.pth] for FullModelMetaCheckpointer");
      if (model.vocab_size == 0) {
        tune_section sizes = top_.section("model");
        result.longest_sequence = sizes.positive("max_seq_len", result.longest_sequence);
      }
      note(section.path(), "models are saved as Hugging Face folders");
    }
    section.must_be_null("adapter_checkpoint", "a run goes on from the checkpoints in its output folder; set resume_from_checkpoint");
    section.must_be_null("recipe_checkpoint", "torchtune's recipe states (.pt) are not read; a run goes on from the checkpoints in its output folder");
    section.only("resume_from_checkpoint", false, "it is a key of its own, beside the checkpointer");
    section.only("safe_serialization", true, "weights are saved as safetensors");
    section.asks_for({"should_load_recipe_state"});
    section.finish();
    return result;
  }

  void tokenize(run_description& run) {
    tune_section section = top_.section("tokenizer");
    (void)checked_component(section.values(), file_, "tokenizer", true);
    const std::string component = section.text("_component_");
    if (component.ends_with("phi4_tokenizer")) {
      run.tokenizer.path = section.required_text("vocab_path");
      run.tokenizer.merges = section.required_text("merges_path");
    } else {
      run.tokenizer.path = section.required_text("path");
      run.tokenizer.merges = section.text("merges_file");
    }
    section.must_be_null("special_tokens_path", "special tokens are read from the files beside the vocabulary");
    run.tokenizer.max_length = section.has("max_seq_len") ? section.positive("max_seq_len", 1) : 0;
    const auto [layout, prompt] = tune_conversation(section, component);
    run.tokenizer.chat_template = tune_chat_template(layout, prompt);
    section.finish();
  }

  const std::string& file_;
  const torchtune_recipe& recipe_;
  const torchtune_launch& launch_;
  tune_section top_;
  std::vector<std::string> notes_{};
};

}  // namespace xtrain::detail
