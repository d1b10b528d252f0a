// AscendSpeed's LoRA: --lora-target-modules and related flags.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_folders.hpp>
#include <xtrain/front_ends/megatron_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class megatron_lora : megatron_part {
 public:
  using megatron_part::megatron_part;

  void read() {
    adapter_description& a = run_.adapter;
    const std::vector<std::string> targets = flags_.list("lora-target-modules");
    if (targets.empty()) {
      flags_.require_that(!flags_.has("lora-load"), "lora-load", "needs --lora-target-modules");
      flags_.ignore({"lora-r", "lora-alpha", "lora-modules-to-save", "lora-adapter-name"}, "--lora-target-modules is not given");
      return;
    }
    const auto take = [&](const char* flag, std::vector<std::string>& to) {
      for (const std::string& name : flags_.list(flag))
        for (std::string& one : modules_of(flag, name))
          if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(std::move(one));
    };
    a.kind = "lora";
    a.rank = flags_.positive("lora-r", 16);
    a.alpha = flags_.number("lora-alpha", 32.0);
    take("lora-target-modules", a.targets);
    take("lora-modules-to-save", a.modules_to_save);
    flags_.ignore({"lora-adapter-name"}, "an adapter's folder holds one adapter");
    if (std::find(a.targets.begin(), a.targets.end(), "q_proj") != a.targets.end())
      note(
          "--lora-target-modules query_key_value: q_proj, k_proj and v_proj get an adapter each, as Hugging Face's; AscendSpeed's has one");
    flags_.require_that(!run_.model.folder.empty(), "lora-target-modules", "needs a model's folder as --load: its weights are not trained");
    const std::string load = flags_.text("lora-load");
    if (load.empty()) return;
    if (file_exists(load + "/adapter_config.json") && !is_same_folder(load, run_.output.folder)) run_.model.adapter = load;
    else if (is_same_folder(load, run_.output.folder)) run_.output.resume = "latest";
    else {
      run_.output.resume = newest_checkpoint(load);
      flags_.require_that(!run_.output.resume.empty(), "lora-load",
                          "must be an adapter's folder (adapter_config.json), hold checkpoints, or be --save; ", load,
                          is_directory(load) ? " has neither" : " does not exist");
    }
  }

 private:
  /// AscendSpeed's modules as this library's; a module may become several.
  [[nodiscard]] std::vector<std::string> modules_of(const std::string& flag, const std::string& name) {
    const std::string& family = run_.model.family;
    const bool gpt2 = family == "gpt2", bloom = family == "bloom", mixtral = family == "mixtral";
    using names = std::vector<std::string>;
    const auto as = [&](std::initializer_list<std::string_view> theirs) {
      return std::find(theirs.begin(), theirs.end(), name) != theirs.end();
    };
    if (as({"query_key_value", "linear_qkv"}))
      return gpt2                   ? names{"c_attn"}
             : bloom                ? names{"query_key_value"}
             : family == "baichuan" ? names{"W_pack"}
                                    : names{"q_proj", "k_proj", "v_proj"};
    if (as({"dense", "linear_proj"})) return gpt2 ? names{"attn.c_proj"} : bloom ? names{"self_attention.dense"} : names{"o_proj"};
    if (as({"gate_proj"}) && !gpt2 && !bloom) return mixtral ? names{"w1"} : names{"gate_proj"};
    if (as({"up_proj"}) && !gpt2 && !bloom) return mixtral ? names{"w3"} : names{"up_proj"};
    if (as({"proj", "linear_fc1"}))
      return gpt2 ? names{"c_fc"} : bloom ? names{"dense_h_to_4h"} : mixtral ? names{"w1", "w3"} : names{"gate_proj", "up_proj"};
    if (as({"dense_h_to_4h"})) return gpt2 ? names{"c_fc"} : bloom ? names{"dense_h_to_4h"} : mixtral ? names{"w3"} : names{"up_proj"};
    if (as({"dense_4h_to_h", "down_proj", "linear_fc2"}))
      return gpt2 ? names{"mlp.c_proj"} : bloom ? names{"dense_4h_to_h"} : mixtral ? names{"w2"} : names{"down_proj"};
    if (as({"word_embeddings", "embedding"})) return gpt2 ? names{"wte"} : bloom ? names{"word_embeddings"} : names{"embed_tokens"};
    if (as({"lm_head.lm_head", "lm_head", "output_layer"})) {
      flags_.require_that(!gpt2 && !bloom, flag, name, ": the head of ", family, " is its embedding; give word_embeddings");
      return {"lm_head"};
    }
    fail<config_error>(flags_.typed(flag), ": must be modules of ", family, ": query_key_value, dense, ",
                       gpt2 || bloom ? "" : "gate_proj, up_proj, down_proj, ", "dense_h_to_4h, dense_4h_to_h, word_embeddings",
                       gpt2 || bloom ? "" : ", lm_head.lm_head", "; given ", name);
  }
};

}  // namespace xtrain::detail
