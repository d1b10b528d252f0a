// Definitions of internlm.hpp.
#pragma once

#include <xtrain/core/library.hpp>
#include <xtrain/models/internlm.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

XTRAIN_INLINE decoder_config internlm_family::read(const named_settings& s) {
  decoder_config c = llama_family::read(s, {});
  c.pad_token_id = s.token_or(0, "pad_token_id");  // the default of the published class
  c.attention_bias = c.output_bias = s.flag_or(true, {"bias"});
  read_rotary(s, c);
  return c;
}

XTRAIN_INLINE void internlm_family::read_rotary(const named_settings& s, decoder_config& c) {
  const auto rotary = s.object_at({"rotary"});
  const std::string kind = rotary->text_or("dynamic", {"type"});
  require<config_error>(kind == "origin" || kind == "dynamic", s.who(), ": the type of 'rotary' must be origin or dynamic; given '", kind, "'");
  const double base = rotary->number_or(c.rope_theta, {"base"}), factor = kind == "dynamic" ? rotary->number_or(1.0, {"scaling_factor"}) : 1.0;
  require<config_error>(base == c.rope_theta || !s.has({"rope_theta"}), s.who(), ": rope_theta must be the base of 'rotary', ", base, "; given ", c.rope_theta);
  c.rope_theta = base;
  if (factor == 1.0) return;
  require<config_error>(factor > 0.0, s.who(), ": the scaling_factor of 'rotary' must be positive; given ", factor);
  require<config_error>(c.rope_scaling.kind == rope_scaling_config::rule::none && (c.rope_scaling.factor == 1.0 || c.rope_scaling.factor == factor), s.who(),
                        ": rope_scaling must be that of 'rotary', dynamic with a factor of ", factor, "; it is another");
  c.rope_scaling.factor = factor;
}

XTRAIN_INLINE void internlm_family::write(const decoder_config& c, named_settings& s) {
  llama_family::write(c, s);
  write_rope_scaling_of_two_fields(c, s);
  s.erase({"attention_bias", "mlp_bias", "head_dim"});
  s.set("bias", c.attention_bias);
  const bool is_dynamic = c.rope_scaling.kind == rope_scaling_config::rule::none && c.rope_scaling.factor != 1.0;
  if (c.rope_theta == 10000.0 && !is_dynamic) return;
  const auto rotary = s.new_object();  // the published code reads only these
  rotary->set("type", "dynamic");
  rotary->set("base", c.rope_theta);
  rotary->set("scaling_factor", is_dynamic ? c.rope_scaling.factor : 1.0);
  s.set_object("rotary", *rotary);
}

XTRAIN_INLINE decoder_names internlm2_family::names() {
  return {.embedding = "model.tok_embeddings",
          .blocks = "model.layers.",
          .attention_norm = "attention_norm",
          .qkv = {"attention.wqkv"},
          .attention_output = "attention.wo",
          .feed_forward_norm = "ffn_norm",
          .up = {"feed_forward.w1", "feed_forward.w3"},
          .down = "feed_forward.w2",
          .final_norm = "model.norm",
          .head = "output"};
}

XTRAIN_INLINE file_order internlm2_family::qkv_order(const decoder_config& c) {
  const std::size_t shared = c.num_heads / c.num_kv_heads;
  return grouped_order(c, [&](char part, std::size_t head) {
    if (part == 'q') return head / shared * (shared + 2) + head % shared;
    return head * (shared + 2) + shared + (part == 'k' ? 0 : 1);
  });
}

XTRAIN_INLINE bool internlm2_family::may_be_ignored(std::string_view tensor, const decoder_config& c) {
  return llama_family::may_be_ignored(tensor, c) || (c.tie_word_embeddings && tensor == "output.weight");
}

XTRAIN_INLINE decoder_config internlm2_family::read(const named_settings& s) {
  decoder_config c = llama_family::read(s, {});
  c.pad_token_id = s.token_or(0, "pad_token_id");  // the default of the published class
  c.attention_bias = c.output_bias = s.flag_or(false, {"bias"});
  return c;
}

XTRAIN_INLINE void internlm2_family::write(const decoder_config& c, named_settings& s) {
  internlm_family::write(c, s);
  s.erase({"rotary"});
}

}  // namespace xtrain
