// Tensor names and layouts of GGUF and Hugging Face.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Changes to Hugging Face's layout.
enum class gguf_change : std::uint8_t {
  none,
  queries,     ///< rows of num_heads heads interleaved
  keys,        ///< as queries, num_kv_heads heads
  transposed,  ///< a matrix
  one_less,    ///< 1 + the weight
  by_part,     ///< file: all queries, keys, values; Hugging Face: q, k, v per head
  per_expert,  ///< [experts, ...]
};

/// Names without ".weight" and ".bias"; *: expert.
struct gguf_name {
  std::string_view theirs, ours;
  gguf_change change = gguf_change::none;
};

struct gguf_architecture {
  std::string_view name;
  std::string_view blocks;  ///< "model.layers."
  std::vector<gguf_name> whole, of_block;
  std::string_view fused{};  ///< module of attn_q, attn_k, attn_v
};

[[nodiscard]] inline gguf_architecture gguf_architecture_of(const std::string& name, const std::string& who) {
  using enum gguf_change;
  const std::vector<gguf_name> llama_whole{{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
  std::vector<gguf_name> llama_block{{"attn_norm", "input_layernorm"},
                                     {"attn_q", "self_attn.q_proj"},
                                     {"attn_k", "self_attn.k_proj"},
                                     {"attn_v", "self_attn.v_proj"},
                                     {"attn_output", "self_attn.o_proj"},
                                     {"ffn_norm", "post_attention_layernorm"},
                                     {"ffn_gate", "mlp.gate_proj"},
                                     {"ffn_up", "mlp.up_proj"},
                                     {"ffn_down", "mlp.down_proj"}};
  const auto named = [&](std::string_view theirs) -> gguf_name& {
    return *std::find_if(llama_block.begin(), llama_block.end(), [&](const gguf_name& one) { return one.theirs == theirs; });
  };
  const auto with = [&](std::vector<gguf_name> more) {
    llama_block.insert(llama_block.end(), more.begin(), more.end());
    return gguf_architecture{name, "model.layers.", llama_whole, llama_block};
  };
  if (name == "llama") {
    named("attn_q").change = queries;
    named("attn_k").change = keys;
    return with({{"ffn_gate_inp", "block_sparse_moe.gate"},
                 {"ffn_gate_exps", "block_sparse_moe.experts.*.w1", per_expert},
                 {"ffn_down_exps", "block_sparse_moe.experts.*.w2", per_expert},
                 {"ffn_up_exps", "block_sparse_moe.experts.*.w3", per_expert},
                 {"ffn_gate.*", "block_sparse_moe.experts.*.w1"},  // files of 2023 and 2024: a tensor per expert
                 {"ffn_down.*", "block_sparse_moe.experts.*.w2"},
                 {"ffn_up.*", "block_sparse_moe.experts.*.w3"}});
  }
  if (name == "qwen2") return with({});
  if (name == "baichuan") {
    llama_block.erase(llama_block.begin() + 1, llama_block.begin() + 4);
    gguf_architecture all = with({});
    all.fused = "self_attn.W_pack";
    return all;
  }
  if (name == "internlm2")
    return {name,
            "model.layers.",
            {{"token_embd", "model.tok_embeddings"}, {"output_norm", "model.norm"}, {"output", "output"}},
            {{"attn_norm", "attention_norm"},
             {"attn_output", "attention.wo"},
             {"ffn_norm", "ffn_norm"},
             {"ffn_gate", "feed_forward.w1"},
             {"ffn_up", "feed_forward.w3"},
             {"ffn_down", "feed_forward.w2"}},
            "attention.wqkv"};
  if (name == "qwen3") return with({{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}});
  if (name == "gemma" || name == "gemma2") {
    named("attn_norm").change = named("ffn_norm").change = one_less;
    if (name == "gemma2") named("ffn_norm").ours = "pre_feedforward_layernorm";
    gguf_architecture all = name == "gemma" ? with({})
                                            : with({{"post_attention_norm", "post_attention_layernorm", one_less},
                                                    {"post_ffw_norm", "post_feedforward_layernorm", one_less}});
    all.whole[1].change = one_less;
    return all;
  }
  if (name == "phi3") {
    named("ffn_up").ours = "mlp.gate_up_proj";
    return with({{"attn_qkv", "self_attn.qkv_proj"}});
  }
  if (name == "gpt2")
    return {name,
            "transformer.h.",
            {{"token_embd", "transformer.wte"}, {"position_embd", "transformer.wpe"}, {"output_norm", "transformer.ln_f"}, {"output", "lm_head"}},
            {{"attn_norm", "ln_1"},
             {"attn_qkv", "attn.c_attn", transposed},
             {"attn_output", "attn.c_proj", transposed},
             {"ffn_norm", "ln_2"},
             {"ffn_up", "mlp.c_fc", transposed},
             {"ffn_down", "mlp.c_proj", transposed}}};
  const std::vector<gguf_name> megatron_block{{"attn_norm", "input_layernorm"},
                                              {"attn_qkv", "self_attention.query_key_value", name == "bloom" ? by_part : none},
                                              {"attn_output", "self_attention.dense"},
                                              {"ffn_norm", "post_attention_layernorm"},
                                              {"ffn_up", "mlp.dense_h_to_4h"},
                                              {"ffn_down", "mlp.dense_4h_to_h"}};
  if (name == "bloom")
    return {name,
            "transformer.h.",
            {{"token_embd", "transformer.word_embeddings"},
             {"token_embd_norm", "transformer.word_embeddings_layernorm"},
             {"output_norm", "transformer.ln_f"},
             {"output", "lm_head"}},
            megatron_block};
  if (name == "chatglm")
    return {name,
            "transformer.encoder.layers.",
            {{"token_embd", "transformer.embedding.word_embeddings"},
             {"output_norm", "transformer.encoder.final_layernorm"},
             {"output", "transformer.output_layer"}},
            megatron_block};
  fail<config_error>(who, ": general.architecture must be llama, qwen2, qwen3, gemma, gemma2, phi3, gpt2, bloom, baichuan, internlm2 or chatglm; it is '", name,
                     "'");
}

/// Heads with reordered rows.
struct gguf_heads {
  std::size_t all = 0, keys = 0;
};

/// A row of queries (part 0), keys (1) or values (2).
struct gguf_row {
  std::size_t part, row;
};

/// Rows of a fused matrix in Hugging Face's order: all queries, keys, values; or per key head its queries, key, value.
[[nodiscard]] inline std::vector<gguf_row> gguf_fused_rows(const gguf_heads& heads, std::size_t d, bool by_key_head) {
  std::vector<gguf_row> rows;
  const auto add = [&](std::size_t part, std::size_t first, std::size_t count) {
    for (std::size_t head = first; head < first + count; ++head)
      for (std::size_t i = 0; i < d; ++i)  // file: rows that rotate together are adjacent
        rows.push_back({part, head * d + (part == 2 ? i : i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1)});
  };
  if (by_key_head) {
    const std::size_t shared = heads.all / heads.keys;
    for (std::size_t key = 0; key < heads.keys; ++key) {
      add(0, key * shared, shared);
      add(1, key, 1);
      add(2, key, 1);
    }
  } else {
    add(0, 0, heads.all);
    add(1, 0, heads.keys);
    add(2, 0, heads.keys);
  }
  return rows;
}

}  // namespace xtrain::detail
