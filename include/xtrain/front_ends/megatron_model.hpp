// The model of a pretraining script: a family of this library, and its config.json.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class megatron_model : megatron_part {
 public:
  using megatron_part::megatron_part;

  void read() {
    model_flags m;
    m.positions = flags_.one_of("position-embedding-type", {"learned", "learned_absolute", "absolute", "rope", "rotary", "alibi"}, "");
    if (m.positions == "learned_absolute" || m.positions == "absolute") m.positions = "learned";
    if (m.positions == "rotary") m.positions = "rope";
    if (flags_.has("use-rotary-position-embeddings")) m.positions = "rope";
    m.norm = flags_.one_of("normalization", {"LayerNorm", "RMSNorm"}, "");
    flags_.require_that(!(flags_.has("untie-embeddings-and-output-weights") && flags_.has("no-untie-embeddings-and-output-weights")),
                        "untie-embeddings-and-output-weights", "must not be given with --no-untie-embeddings-and-output-weights");
    m.experts = experts();
    if (flags_.has("group-query-attention")) m.groups = flags_.positive("num-query-groups", 1);
    else flags_.require_that(flags_.size("num-query-groups", 1) == 1, "num-query-groups", "needs --group-query-attention");
    flags_.require_that(flags_.number("rotary-percent", 1.0) == 1.0, "rotary-percent", "must be 1");
    m.qkv_bias = flags_.has("add-qkv-bias");
    m.head_norm = flags_.has("qk-layernorm");
    flags_.require_that(!(flags_.has("disable-bias-linear") && flags_.has("add-bias-linear")), "add-bias-linear",
                        "must not be given with --disable-bias-linear");

    std::string family(script_.family);
    if (family == "gpt") family = gpt_family(m);
    else if (family == "bloom") bloom(m);
    else llama_like(m);
    run_.model.family = family;
    sizes(family, m);
    dropouts(family);
  }

 private:
  struct model_flags {
    std::string positions{}, norm{};
    bool gated = false, biases = true, qkv_bias = false, head_norm = false, tied = true;
    std::size_t groups = 0, experts = 0;
  };

  [[nodiscard]] bool is_gpt() const { return script_.family == "gpt"; }

  /// 0: no experts.
  [[nodiscard]] std::size_t experts() {
    const std::vector<std::string> all = flags_.list("num-experts");
    if (all.size() > 1) flags_.wrong("num-experts", "one number: every layer has as many");
    const std::size_t number = flags_.positive("num-experts", 1);
    return number > 1 ? number : 0;
  }

  [[nodiscard]] std::string gpt_family(model_flags& m) {
    if (m.positions.empty()) m.positions = "learned";
    if (m.norm.empty()) m.norm = "LayerNorm";
    m.gated = flags_.has_any({"swiglu", "add-gate"});
    (void)flags_.has_any({"no-add-gate", "add-bias-linear"});
    m.biases = !flags_.has("disable-bias-linear");
    m.tied = !flags_.has("untie-embeddings-and-output-weights");
    (void)flags_.has("no-untie-embeddings-and-output-weights");
    const bool embedding_norm = flags_.has("embed-layernorm");
    const bool plain = m.norm == "LayerNorm" && !m.gated && m.biases && m.groups == 0 && m.experts == 0 && !m.head_norm;
    if (plain && m.positions == "learned" && !embedding_norm) return tanh_gelu(), "gpt2";
    if (plain && m.positions == "alibi" && embedding_norm) return tanh_gelu(), "bloom";
    if (m.positions == "rope" && m.norm == "RMSNorm" && m.gated && !embedding_norm) {
      (void)flags_.has("no-bias-gelu-fusion");
      if (m.experts > 0 && !m.biases && !m.qkv_bias && !m.head_norm) return "mixtral";
      if (m.experts == 0 && m.head_norm && !m.biases && !m.qkv_bias) return "qwen3";
      if (m.experts == 0 && m.qkv_bias && !m.biases && !m.head_norm) return "qwen2";
      if (m.experts == 0 && !m.qkv_bias && !m.head_norm) return "llama";
    }
    fail<config_error>(
        "pretrain_gpt: must be a model that the library has: GPT-2 (learned positions, LayerNorm, no --swiglu), BLOOM (alibi, --embed-layernorm), or with "
        "--position-embedding-type rope --normalization RMSNorm --swiglu: LLaMA; --disable-bias-linear --add-qkv-bias: Qwen2; --disable-bias-linear "
        "--qk-layernorm: Qwen3; --disable-bias-linear --num-experts: Mixtral; given are ",
        m.positions, " positions, ", m.norm, m.gated ? ", --swiglu" : "", m.biases ? "" : ", --disable-bias-linear",
        m.qkv_bias ? ", --add-qkv-bias" : "", m.head_norm ? ", --qk-layernorm" : "", embedding_norm ? ", --embed-layernorm" : "",
        m.experts > 0 ? ", --num-experts" : "", m.groups > 0 ? ", --group-query-attention" : "");
  }
  void tanh_gelu() {
    const bool exact = flags_.has("openai-gelu");
    flags_.require_that(!flags_.has("no-bias-gelu-fusion") || exact, "no-bias-gelu-fusion",
                        "computes GELU by erf, which this model does not have; leave it out, or give --openai-gelu");
  }
  void bloom(model_flags& m) {
    if (m.positions.empty()) m.positions = "alibi";
    flags_.require_that(m.positions == "alibi", "position-embedding-type", "must be alibi for BLOOM");
    flags_.require_that(m.norm != "RMSNorm", "normalization", "must be LayerNorm for BLOOM");
    for (const char* flag : {"swiglu", "add-gate", "disable-bias-linear", "untie-embeddings-and-output-weights", "group-query-attention",
                             "num-experts", "qk-layernorm"})
      flags_.require_that(!flags_.has(flag), flag, "must not be given for BLOOM");
    (void)flags_.has_any({"embed-layernorm", "no-add-gate", "add-bias-linear", "no-untie-embeddings-and-output-weights"});
    tanh_gelu();
  }
  /// LLaMA and families that differ from it in biases or positions.
  void llama_like(model_flags& m) {
    const std::string who = std::string(script_.name);
    const bool may_be_alibi = script_.family == "baichuan";
    if (m.positions.empty()) m.positions = "rope";
    flags_.require_that(m.positions == "rope" || (may_be_alibi && m.positions == "alibi"), "position-embedding-type", "must be rope",
                        may_be_alibi ? " or alibi" : "", " for ", who, "; given ", m.positions);
    flags_.require_that(m.norm != "LayerNorm", "normalization", "must be RMSNorm for ", who);
    for (const char* flag : {"no-add-gate", "add-bias-linear", "embed-layernorm", "num-experts", "qk-layernorm", "add-qkv-bias"})
      flags_.require_that(!flags_.has(flag), flag, "must not be given for ", who);
    flags_.require_that(m.groups == 0 || !may_be_alibi, "group-query-attention", "must not be given for ", who);
    flags_.ignore({"no-bias-gelu-fusion", "openai-gelu"}, "the activation is SwiGLU");
    (void)flags_.has_any({"swiglu", "add-gate", "disable-bias-linear", "untie-embeddings-and-output-weights"});
    m.gated = true;
    m.biases = false;
    m.tied = flags_.has("no-untie-embeddings-and-output-weights");
  }

  void sizes(const std::string& family, const model_flags& m) {
    json& config = run_.model.config;
    const bool has_folder = !run_.model.folder.empty();
    const auto take = [&](const char* flag, std::initializer_list<const char*> keys) {
      const std::optional<std::size_t> given = flags_.size(flag);
      if (given && *given == 0) flags_.wrong(flag, "positive");
      require<config_error>(given || has_folder, "--", flag, ": must be given");
      if (!given) return std::size_t{0};
      for (const char* key : keys) {
        config[key] = *given;
        if (!has_folder) break;  // the other names are for the folder's config.json
      }
      return *given;
    };
    const bool is_gpt2 = family == "gpt2", is_bloom = family == "bloom";
    const std::size_t layers =
        is_gpt2 || is_bloom ? take("num-layers", {"n_layer", "num_hidden_layers"}) : take("num-layers", {"num_hidden_layers"});
    const std::size_t hidden = is_gpt2    ? take("hidden-size", {"n_embd", "hidden_size"})
                               : is_bloom ? take("hidden-size", {"hidden_size", "n_embed"})
                                          : take("hidden-size", {"hidden_size"});
    const std::size_t heads = is_gpt2 || is_bloom ? take("num-attention-heads", {"n_head", "num_attention_heads"})
                                                  : take("num-attention-heads", {"num_attention_heads"});
    (void)layers;
    const std::size_t channels = flags_.positive("kv-channels", 0);
    require<config_error>(channels > 0 || heads == 0 || hidden % heads == 0, "--hidden-size: must be divisible by --num-attention-heads ",
                          heads, "; given ", hidden);
    if (channels > 0 && channels * heads != hidden) {
      flags_.require_that(family == "llama" || family.starts_with("qwen"), "kv-channels",
                          "must be --hidden-size / --num-attention-heads for ", family, "; given ", channels);
      config["head_dim"] = channels;
    } else if (family == "qwen3" && !has_folder) config["head_dim"] = hidden / heads;
    flags_.require_that(heads == 0 || heads % run_.parallel.tensor == 0, "num-attention-heads",
                        "must be divisible by --tensor-model-parallel-size ", run_.parallel.tensor, "; given ", heads);

    const char* const experts_flag = m.experts > 0 && flags_.has("moe-ffn-hidden-size") ? "moe-ffn-hidden-size" : "ffn-hidden-size";
    const std::size_t wide = flags_.positive(experts_flag, 0);
    (void)flags_.has_any({"ffn-hidden-size"});
    if (is_bloom) {
      flags_.require_that(wide == 0 || wide == 4 * hidden, "ffn-hidden-size", "must be 4 x --hidden-size for BLOOM; given ", wide);
    } else if (wide > 0 || !has_folder) {
      config[is_gpt2 ? "n_inner" : "intermediate_size"] = wide > 0 ? wide : 4 * hidden;
    }
    if (!is_gpt2 && !is_bloom && family != "baichuan") {
      if (m.groups > 0) {
        require<config_error>(heads == 0 || heads % m.groups == 0, "--num-query-groups: must divide --num-attention-heads ", heads,
                              "; given ", m.groups);
        config["num_key_value_heads"] = m.groups;
      } else if (heads > 0) config["num_key_value_heads"] = heads;
    }
    vocabulary();
    if (m.experts > 0) mixture(m.experts);
    else
      flags_.ignore({"moe-router-topk", "moe-ffn-hidden-size", "moe-aux-loss-coeff", "moe-router-load-balancing-type"},
                    "--num-experts is not given");

    // names in config.json of the values below
    json& rest = has_folder ? run_.model.override_config : config;
    const auto set = [&](const char* key, bool is_given, const json& value) {
      if (is_given || !has_folder) rest[key] = value;
    };
    const char* const epsilon = flags_.has("norm-epsilon") ? "norm-epsilon" : "layernorm-epsilon";
    (void)flags_.has("layernorm-epsilon");
    set(is_gpt2 || is_bloom ? "layer_norm_epsilon" : "rms_norm_eps", flags_.has(epsilon), flags_.number(epsilon, 1e-5));
    if (m.positions == "rope") set("rope_theta", flags_.has("rotary-base"), flags_.number("rotary-base", 10000.0));
    else flags_.require_that(!flags_.has("rotary-base"), "rotary-base", "needs --position-embedding-type rope");
    rope_scaling(m, rest);
    if (has_folder) {
      if (family == "llama" && m.biases) config["attention_bias"] = config["mlp_bias"] = true;
      flags_.ignore({"init-method-std"}, "weights are those of --load");
      flags_.ignore({"max-position-embeddings"}, "how long sequences may be is said by the config.json of --load");
      if (flags_.has_any({"untie-embeddings-and-output-weights", "no-untie-embeddings-and-output-weights"})) config["tie_word_embeddings"] = m.tied;
      return;
    }
    config["initializer_range"] = flags_.number("init-method-std", 0.02);
    config["tie_word_embeddings"] = m.tied;
    const std::size_t longest = flags_.positive("max-position-embeddings", 0);
    require<config_error>(longest > 0, "--max-position-embeddings: must be given");
    config[is_gpt2                                          ? "n_positions"
           : is_bloom                                       ? "seq_length"
           : family == "baichuan" && m.positions == "alibi" ? "model_max_length"
                                                            : "max_position_embeddings"] = longest;
    if (family == "llama" && m.biases) config["attention_bias"] = config["mlp_bias"] = true;
    if (family == "internlm") config["bias"] = true;
  }
  void vocabulary() {
    std::size_t given = 0;
    for (const char* flag : {"pad-vocab-size-to", "padded-vocab-size"})
      if (flags_.has(flag)) given = flags_.positive(flag, 1);
    const std::size_t multiple = flags_.positive("make-vocab-size-divisible-by", 128) * run_.parallel.tensor;
    const std::size_t tokens = flags_.positive("vocab-size", 0);
    if (tokens > 0 && given == 0) {
      const bool has_end = flags_.text("tokenizer-type") == "NullTokenizer";  // its end-of-document token follows the others
      given = (tokens + (has_end ? 1 : 0) + multiple - 1) / multiple * multiple;
    }
    if (!run_.model.folder.empty()) {
      if (given > 0) run_.model.config["vocab_size"] = given;
      flags_.ignore({"make-vocab-size-divisible-by"}, "the vocabulary of a model that is loaded is its folder's");
    } else if (given > 0) run_.model.config["vocab_size"] = given;
    else run_.model.vocab_multiple = multiple;
  }
  void mixture(std::size_t experts) {
    json& config = run_.model.config;
    config["num_local_experts"] = experts;
    const std::size_t top = flags_.positive("moe-router-topk", 2);
    flags_.require_that(top <= experts, "moe-router-topk", "must not be above --num-experts ", experts, "; given ", top);
    config["num_experts_per_tok"] = top;
    const std::string balance = flags_.one_of("moe-router-load-balancing-type", {"aux_loss", "none"}, "aux_loss");
    const double weight = flags_.number("moe-aux-loss-coeff", 0.0);
    const bool balances = balance == "aux_loss" && weight > 0.0;
    json& rest = run_.model.folder.empty() ? config : run_.model.override_config;
    rest["output_router_logits"] = balances;
    if (balances) rest["router_aux_loss_coef"] = weight;
    require<config_error>(experts % run_.parallel.expert == 0, "--num-experts: must be divisible by --expert-model-parallel-size ",
                          run_.parallel.expert, "; given ", experts);
  }
  void rope_scaling(const model_flags& m, json& rest) {
    if (!flags_.has("use-rope-scaling")) {
      flags_.ignore({"rope-scaling-factor"}, "--use-rope-scaling is not given");
      return;
    }
    flags_.require_that(m.positions == "rope", "use-rope-scaling", "needs --position-embedding-type rope");
    rest["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", flags_.number("rope-scaling-factor", 8.0)},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", std::size_t{8192}}};
  }
  void dropouts(const std::string& family) {
    json& rest = run_.model.folder.empty() ? run_.model.config : run_.model.override_config;
    const double attention = flags_.number("attention-dropout", 0.1), hidden = flags_.number("hidden-dropout", 0.1);
    if (attention >= 1.0) flags_.wrong("attention-dropout", "below 1");
    if (hidden >= 1.0) flags_.wrong("hidden-dropout", "below 1");
    if (family == "gpt2") {
      rest["attn_pdrop"] = attention;
      rest["resid_pdrop"] = rest["embd_pdrop"] = hidden;
    } else if (family == "bloom") {
      rest["attention_dropout"] = attention;
      rest["hidden_dropout"] = hidden;
      if (hidden > 0.0)
        note(concat("--hidden-dropout ", hidden, ": BLOOM has no dropout behind its embedding here, as in Hugging Face's; Megatron has"));
    } else if (is_gpt()) {
      require<config_error>(hidden == 0.0,
                            "--hidden-dropout: must be given as 0 for a model with RMSNorm and SwiGLU, which has none; it is ", hidden,
                            flags_.has("hidden-dropout") ? "" : ", Megatron's default");
      rest["attention_dropout"] = attention;
    } else {  // AscendSpeed's models have no dropout, whatever its flags' defaults
      flags_.require_that(!flags_.has("hidden-dropout") || hidden == 0.0, "hidden-dropout", "must be 0 for ", script_.name,
                          ", whose model has none; given ", hidden);
      if (flags_.has("attention-dropout")) rest["attention_dropout"] = attention;
    }
    flags_.require_that(family != "baichuan" || !flags_.has("attention-dropout") || attention == 0.0, "attention-dropout", "must be 0 for ",
                        script_.name, "; given ", attention);
    if (family == "baichuan") rest.erase("attention_dropout");
  }
};

}  // namespace xtrain::detail
