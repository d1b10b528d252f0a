#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/nameless.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/torch_file.hpp>

namespace xtrain {

/// A folder in Meta's format (params.json, consolidated.00.pth), with Hugging Face's names and layout (Meta's files interleave rows of queries and keys).
///
///   dim, n_layers, n_heads, n_kv_heads (default: n_heads), norm_eps (1e-5), rope_theta (10000)   params.json
///   vocabulary, feed-forward size, tied head                                                     tensors
///   sequence length                                                                              max_seq_len of params.json, else 2048
class meta_llama_folder : public tensor_source {
 public:
  [[nodiscard]] static bool is_one(const std::string& folder) {
    return file_exists(folder + "/params.json") && file_exists(folder + "/consolidated.00.pth") && !file_exists(folder + "/config.json");
  }

  /// throws file_error, config_error when files are missing, contradict each other, or are sharded
  explicit meta_llama_folder(const std::string& folder) : config_(json::object(), folder + "/params.json") {
    require<config_error>(
        !file_exists(folder + "/consolidated.01.pth"), folder,
        ": must hold one file of weights; these are cut for several processes, and consolidated.01.pth is the second part");
    const std::string params = folder + "/params.json", path = folder + "/consolidated.00.pth";
    const json_settings given(read_json(params), params);
    scales_positions_ = given.flag_or(false, {"use_scaled_rope"});
    const std::size_t layers = given.size({"n_layers"}), heads = given.size({"n_heads"}), kv_heads = given.size_or(heads, {"n_kv_heads"});
    constexpr std::size_t max_layers = 4096;
    require<config_error>(layers <= max_layers, params, ": n_layers must be at most ", max_layers, "; given ", layers);
    for (const std::size_t count : {heads, kv_heads})
      require<config_error>(count < std::size_t{1} << 31, params, ": heads must be below 2^31; given ", count);
    const torch_file& file = keep<torch_file>(path);
    const auto take = [&](const std::string& theirs, const std::string& ours, std::size_t interleaved_heads = 0) -> const file_tensor& {
      const file_tensor* tensor = file.find(theirs);
      require<config_error>(tensor != nullptr, path, ": must hold '", theirs, "', because params.json asks for it; it is missing");
      tensors_.push_back(renamed(*tensor, ours, interleaved_heads, path));
      return tensors_.back();
    };
    const file_tensor embedding = take("tok_embeddings.weight", "model.embed_tokens.weight");
    require<config_error>(embedding.shape.size() == 2, path, ": 'tok_embeddings.weight' must have two dims; it has ",
                          embedding.shape.size());
    std::size_t feed_forward = 0;
    for (std::size_t i = 0; i < layers; ++i)
      for (const auto& [theirs, ours] : block_names) {
        const std::string name = theirs;
        const std::size_t turned = name == "attention.wq" ? heads : name == "attention.wk" ? kv_heads : 0;
        const file_tensor& tensor =
            take(concat("layers.", i, ".", name, ".weight"), concat("model.layers.", i, ".", ours, ".weight"), turned);
        if (name == "feed_forward.w1") feed_forward = tensor.shape.empty() ? 0 : tensor.shape[0];
      }
    take("norm.weight", "model.norm.weight");
    const bool tied = file.find("output.weight") == nullptr;
    if (!tied) take("output.weight", "lm_head.weight");
    require_known(file, layers, path);
    for (const file_tensor& tensor : tensors_) add(tensor, path);
    describe(given, embedding.shape[0], layers, heads, kv_heads, feed_forward, tied);
  }

  /// Equivalent config.json.
  ///   throws  config_error when params.json lacks information for it
  [[nodiscard]] const json_settings& config() const {
    require<config_error>(!scales_positions_, config_.who(),
                          ": positions are scaled (use_scaled_rope), and the file does not say how: give a config.json that does");
    return config_;
  }

 private:
  static constexpr std::array<std::pair<const char*, const char*>, 9> block_names{{{"attention_norm", "input_layernorm"},
                                                                                   {"attention.wq", "self_attn.q_proj"},
                                                                                   {"attention.wk", "self_attn.k_proj"},
                                                                                   {"attention.wv", "self_attn.v_proj"},
                                                                                   {"attention.wo", "self_attn.o_proj"},
                                                                                   {"ffn_norm", "post_attention_layernorm"},
                                                                                   {"feed_forward.w1", "mlp.gate_proj"},
                                                                                   {"feed_forward.w2", "mlp.down_proj"},
                                                                                   {"feed_forward.w3", "mlp.up_proj"}}};

  [[nodiscard]] static file_tensor renamed(file_tensor tensor, const std::string& name, std::size_t heads, const std::string& path) {
    if (heads > 0) {
      const bool fits = tensor.shape.size() == 2 && tensor.shape[0] % (2 * heads) == 0 && tensor.shape[0] > 0;
      require<config_error>(fits, path, ": '", tensor.name, "' must have an even number of rows for each of ", heads,
                            " heads; its shape is ", std::span<const std::size_t>(tensor.shape));
      require<config_error>(tensor.layout.empty(), path, ": '", tensor.name, "' must be contiguous in the file");
      tensor.layout = detail::layout_in_file({.name = name, .shape = tensor.shape, .how = arrangement::interleaved, .heads = heads});
    }
    tensor.name = name;
    return tensor;
  }
  /// Every tensor must be used, except tables of rotary angles.
  void require_known(const torch_file& file, std::size_t layers, const std::string& path) const {
    std::size_t angles = 0;
    for (const file_tensor& tensor : file.tensors())
      angles += tensor.name == "rope.freqs" || tensor.name.ends_with("inner_attention.rope.freqs") ? 1 : 0;
    require<config_error>(file.tensors().size() == tensors_.size() + angles, path, ": must hold the ", tensors_.size(), " tensors of ",
                          layers, " layers; it holds ", file.tensors().size() - angles);
  }
  void describe(const json_settings& given, std::size_t vocabulary, std::size_t layers, std::size_t heads, std::size_t kv_heads,
                std::size_t feed_forward, bool tied) {
    config_.set("architectures", json::array({"LlamaForCausalLM"}));
    config_.set("model_type", "llama");
    config_.set("vocab_size", vocabulary);
    config_.set("hidden_size", given.size({"dim"}));
    config_.set("num_hidden_layers", layers);
    config_.set("num_attention_heads", heads);
    config_.set("num_key_value_heads", kv_heads);
    config_.set("intermediate_size", feed_forward);
    config_.set("max_position_embeddings", given.size_or(2048, {"max_seq_len"}));
    config_.set("rms_norm_eps", given.number_or(1e-5, {"norm_eps"}));
    config_.set("rope_theta", given.number_or(10000.0, {"rope_theta"}));
    config_.set("hidden_act", "silu");
    config_.set("tie_word_embeddings", tied);
  }

  json_settings config_;
  bool scales_positions_ = false;
  std::vector<file_tensor> tensors_;  // views; complete before pointers are taken
};

}  // namespace xtrain
