// Sharding of a Trainer's weights: --fsdp, --fsdp_config, --deepspeed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/deepspeed.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/recipes/split_list.hpp>

namespace xtrain {

// of hugging_face.hpp, which includes this
[[nodiscard]] std::string transformers_layer_class(const json& config);

namespace detail {

/// Read after the precision, which DeepSpeed's config may change.
class hugging_face_sharding : hugging_face_part {
 public:
  using hugging_face_part::hugging_face_part;

  void read() {
    const std::string fsdp = flags_.words("fsdp");
    const bool has_fsdp = !fsdp.empty() && fsdp != "False" && fsdp != "None";
    std::string wrapped = flags_.text("fsdp_transformer_layer_cls_to_wrap");
    if (flags_.has("fsdp_config")) fsdp_config(wrapped);
    if (has_fsdp) {
      std::string options = fsdp;
      std::replace(options.begin(), options.end(), ',', ' ');
      std::size_t kinds = 0;
      for (const std::string& word : split_list(options, ' ')) {
        if (word == "full_shard" || word == "hybrid_shard" || word == "True" || word == "true") run_.parallel.zero = 3, ++kinds;
        else if (word == "shard_grad_op" || word == "hybrid_shard_zero2") run_.parallel.zero = 2, ++kinds;
        else if (word == "no_shard") ++kinds;
        else if (word == "offload")
          offload();
        else if (word != "auto_wrap" && word != "size_based_auto_wrap")
          flags_.wrong("fsdp",
                       "full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 or no_shard, with offload and auto_wrap if wanted");
        if (word.starts_with("hybrid"))
          run_.notes.push_back(concat("--fsdp ", word, ": all ranks of this process are one host's, within which everything is sharded"));
      }
      if (kinds != 1) flags_.wrong("fsdp", "one of full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 and no_shard");
    }
    if (const std::string known = transformers_layer_class(config_); !wrapped.empty() && !known.empty()) {
      std::replace(wrapped.begin(), wrapped.end(), ',', ' ');
      bool found = false;
      for (const std::string& word : split_list(wrapped, ' ')) found = found || word == known;
      require<config_error>(found, "--fsdp_transformer_layer_cls_to_wrap: must be the layer class of the model in ", run_.model.folder,
                            ", ", known, "; given '", wrapped, "'");
    }
    flags_.without_effect({"fsdp_min_num_params"}, "every block is gathered by itself", run_.notes);

    const std::string file = flags_.text("deepspeed");
    if (file.empty()) return;
    if (has_fsdp) flags_.wrong("deepspeed", "left out with --fsdp");
    if (run_.precision == "fp16_mixed") run_.loss_scale = json::object();
    const bool made_fp16 = run_.adapter.kind == "prefix" && !flags_.is_true("fp16");
    if (made_fp16) run_.precision = "fp32";  // only the config decides DeepSpeed's precision
    apply_deepspeed(run_, file.starts_with("{") ? json_of("deepspeed") : python_json(file), file.starts_with("{") ? "--deepspeed" : file,
                    {.data_parallel_ranks = run_.parallel.ranks});
    if (made_fp16 && run_.precision == "fp32") {
      run_.precision = "fp16_mixed";
      run_.loss_scale = unscaled();
    }
  }

 private:
  /// FSDP's CPUOffload. Its gathered weights are on the device in either case.
  void offload() {
    if (run_.device == "cpu") return void(run_.notes.emplace_back("--fsdp offload: the cpu device's memory is host memory"));
    run_.offload = "optimizer";
    run_.notes.emplace_back("--fsdp offload: optimizer state is in pinned memory of the host; weights stay on the device");
  }
  void fsdp_config(std::string& wrapped) {
    const std::string given = flags_.text("fsdp_config");
    const json settings = given.starts_with("{") ? json_of("fsdp_config") : read_json(given);
    if (!settings.is_object()) flags_.wrong("fsdp_config", "a JSON object, or a file of one");
    std::string ignored;
    for (const auto& [key, value] : settings.items()) {
      const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
      if (name == "transformer_layer_cls_to_wrap") {
        if (value.is_string()) wrapped = value.get<std::string>();
        else if (value.is_array())
          for (const json& one : value)
            if (one.is_string()) wrapped += concat(wrapped.empty() ? "" : ",", one.get<std::string>());
      } else if (name == "activation_checkpointing") {
        if (!value.is_boolean()) flags_.wrong("fsdp_config", "a config whose activation_checkpointing is true or false");
        if (value.get<bool>()) run_.recompute = "full";
      } else if (name.starts_with("xla")) {
        if (!(value.is_null() || value.empty() || value == false)) flags_.wrong("fsdp_config", concat("a config without ", key));
      } else {
        const std::vector<std::string> known{"min_num_params",
                                             "backward_prefetch",
                                             "forward_prefetch",
                                             "limit_all_gathers",
                                             "use_orig_params",
                                             "sync_module_states",
                                             "cpu_ram_efficient_loading",
                                             "state_dict_type",
                                             "auto_wrap_policy",
                                             "reshard_after_forward",
                                             "version",
                                             "transformer_layer_cls_to_wrap",
                                             "activation_checkpointing"};
        if (std::find(known.begin(), known.end(), name) == known.end()) {
          const std::string near = nearest_name(name, known);
          fail<config_error>("--fsdp_config: ", key, ": there is no such key", near.empty() ? "" : concat("; did you mean '", near, "'?"));
        }
        ignored += concat(ignored.empty() ? "" : ", ", key);
      }
    }
    if (!ignored.empty()) run_.notes.push_back(concat("--fsdp_config: ", ignored, ": when weights are gathered changes no result"));
  }
};

}  // namespace detail

}  // namespace xtrain
