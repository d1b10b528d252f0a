// Definitions of baichuan.hpp.
#pragma once

#include <xtrain/core/library.hpp>
#include <xtrain/models/baichuan.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

XTRAIN_INLINE decoder_names baichuan_family::names() {
  decoder_names names = llama_family::names();
  names.qkv = {"self_attn.W_pack"};
  return names;
}

XTRAIN_INLINE decoder_config baichuan_family::read(const named_settings& s) {
  decoder_config c = llama_family::read(s, {});
  c.pad_token_id = s.token_or(0, "pad_token_id");  // the default of the published class
  c.alibi = !s.has({"max_position_embeddings"});
  if (c.alibi) c.max_position_embeddings = s.size_or(4096, {"model_max_length"});
  constexpr std::size_t vocabulary_of_2 = 125696;
  c.normalized_head = s.has({"z_loss_weight"}) || c.vocab_size == vocabulary_of_2;
  c.z_loss = s.number_or(0.0, {"z_loss_weight"});
  return c;
}

XTRAIN_INLINE void baichuan_family::write(const decoder_config& c, named_settings& s) {
  llama_family::write(c, s);
  s.erase({"attention_bias", "mlp_bias", "head_dim", "num_key_value_heads", "attention_dropout", "rope_theta"});
  s.set("model_max_length", c.max_position_embeddings);
  if (c.alibi) s.erase({"max_position_embeddings"});
  if (c.normalized_head) s.set("z_loss_weight", c.z_loss);
}

}  // namespace xtrain
