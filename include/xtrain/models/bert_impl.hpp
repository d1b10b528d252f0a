// Definitions of bert.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/layers/masked_lm_head.hpp>
#include <xtrain/layers/sequence_classification_head.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/encoder.hpp>

namespace xtrain {

XTRAIN_INLINE encoder_names bert_family::names() {
  return {.embedding = "bert.embeddings.word_embeddings",
          .positions = "bert.embeddings.position_embeddings",
          .segments = "bert.embeddings.token_type_embeddings",
          .embedding_norm = "bert.embeddings.LayerNorm",
          .blocks = "bert.encoder.layer.",
          .qkv = {"attention.self.query", "attention.self.key", "attention.self.value"},
          .attention_output = "attention.output.dense",
          .attention_norm = "attention.output.LayerNorm",
          .up = "intermediate.dense",
          .down = "output.dense",
          .feed_forward_norm = "output.LayerNorm"};
}

XTRAIN_INLINE bool bert_family::has_row_per_token(std::string_view parameter) {
  return parameter == names().embedding + ".weight" || parameter == "cls.predictions.decoder.weight" || parameter == "cls.predictions.bias" ||
         parameter == "cls.predictions.decoder.bias";
}

XTRAIN_INLINE encoder_config bert_family::read(const named_settings& s) {
  const std::string activation = s.text_or("gelu", {"hidden_act"});
  require<config_error>(activation == "gelu", s.who(), ": hidden_act must be gelu; given '", activation, "'");
  const std::string positions = s.text_or("absolute", {"position_embedding_type"});
  require<config_error>(positions == "absolute", s.who(), ": position_embedding_type must be absolute; given '", positions, "'");
  require<config_error>(!s.flag_or(false, {"is_decoder"}) && !s.flag_or(false, {"add_cross_attention"}), s.who(),
                        ": must describe an encoder; is_decoder or add_cross_attention is true");
  const double dropout = s.number_or(0.1, {"hidden_dropout_prob"});
  // defaults of transformers' class
  return {.vocab_size = s.size_or(30522, {"vocab_size"}),
          .hidden_size = s.size_or(768, {"hidden_size"}),
          .num_layers = s.size_or(12, {"num_hidden_layers"}),
          .num_heads = s.size_or(12, {"num_attention_heads"}),
          .intermediate_size = s.size_or(3072, {"intermediate_size"}),
          .max_position_embeddings = s.size_or(512, {"max_position_embeddings"}),
          .segments = s.size_or(2, {"type_vocab_size"}),
          .norm_epsilon = s.number_or(1e-12, {"layer_norm_eps"}),
          .tie_word_embeddings = s.flag_or(true, {"tie_word_embeddings"}),
          .attention_dropout = s.number_or(0.1, {"attention_probs_dropout_prob"}),
          .residual_dropout = dropout,
          .label_dropout = s.number_or(dropout, {"classifier_dropout"}),
          .initializer_range = s.number_or(0.02, {"initializer_range"}),
          .pad_token_id = s.token_or(0, "pad_token_id")};
}

XTRAIN_INLINE void bert_family::write(const encoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocab_size);
  s.set("hidden_size", c.hidden_size);
  s.set("num_hidden_layers", c.num_layers);
  s.set("num_attention_heads", c.num_heads);
  s.set("intermediate_size", c.intermediate_size);
  s.set("max_position_embeddings", c.max_position_embeddings);
  s.set("type_vocab_size", c.segments);
  s.set("layer_norm_eps", c.norm_epsilon);
  s.set("hidden_act", "gelu");
  s.set("attention_probs_dropout_prob", c.attention_dropout);
  s.set("hidden_dropout_prob", c.residual_dropout);
  s.set("classifier_dropout", c.label_dropout);
  s.set("initializer_range", c.initializer_range);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  s.set_token("pad_token_id", c.pad_token_id);
}

XTRAIN_INLINE std::vector<std::string> bert_family::other_names(const std::string& parameter) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (name != parameter) names.push_back(name);
    for (const auto& [now, once] :
         {std::pair<std::string_view, const char*>{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}})
      if (name.ends_with(now)) names.push_back(name.substr(0, name.size() - now.size()) + once);
  };
  add(parameter);
  if (constexpr std::string_view prefix = "bert."; parameter.starts_with(prefix)) add(parameter.substr(prefix.size()));
  if (parameter == "cls.predictions.decoder.bias") add("cls.predictions.bias");
  return names;
}

XTRAIN_INLINE bool bert_family::may_be_ignored(std::string_view tensor, const encoder_config& c) {
  if (!c.tie_word_embeddings && tensor == "cls.predictions.bias") return true;  // transformers stores it without using it
  return tensor.ends_with("embeddings.position_ids") || tensor == "cls.predictions.decoder.bias" ||
         (c.tie_word_embeddings && tensor == "cls.predictions.decoder.weight");
}

XTRAIN_INLINE std::string bert_family::copied_by(std::string_view tensor, const encoder_config& c) {
  if (!c.tie_word_embeddings) return {};
  if (tensor == "cls.predictions.decoder.bias") return "cls.predictions.bias";
  return tensor == "cls.predictions.decoder.weight" ? names().embedding + ".weight" : std::string();
}

XTRAIN_INLINE void bert_pretraining_family::complete(encoder_config& c) {
  if (c.labels.empty()) c.labels = {"follows", "does not follow"};
  require<config_error>(c.labels.size() == 2, name, ": there must be two labels, follows or not; given ", c.labels.size());
}

XTRAIN_INLINE bool bert_masked_lm_family::may_be_ignored(std::string_view tensor, const encoder_config& c) {
  return bert_family::may_be_ignored(tensor, c) || tensor.starts_with("bert.pooler.") || tensor.starts_with("pooler.") ||
         tensor.starts_with("cls.seq_relationship.");
}

XTRAIN_INLINE void bert_classification_family::complete(encoder_config& c) {
  if (c.labels.empty()) c.labels = {"LABEL_0", "LABEL_1"};
  require<config_error>(c.labels.size() > 1, name, ": there must be two labels at least; given ", c.labels.size());
}

XTRAIN_INLINE bool bert_classification_family::may_be_missing(std::string_view parameter) {
  return parameter.starts_with("classifier.") || parameter.starts_with("bert.pooler.");
}

XTRAIN_INLINE bool bert_classification_family::may_be_ignored(std::string_view tensor, const encoder_config& c) {
  return bert_family::may_be_ignored(tensor, c) || tensor.starts_with("cls.");
}

XTRAIN_INLINE encoder_config bert_classification_family::read(const named_settings& s) {
  encoder_config c = bert_family::read(s);
  const std::string problem = s.text_or("single_label_classification", {"problem_type"});
  require<config_error>(problem == "single_label_classification", s.who(), ": problem_type must be single_label_classification; given '",
                        problem, "'");
  const auto names = s.object_at({"id2label"});
  for (std::string key = "0"; names->has({key.c_str()}); key = std::to_string(c.labels.size()))
    c.labels.push_back(names->text_or("", {key.c_str()}));
  return c;
}

XTRAIN_INLINE void bert_classification_family::write(const encoder_config& c, named_settings& s) {
  bert_family::write(c, s);
  const auto names = s.new_object(), numbers = s.new_object();
  for (std::size_t i = 0; i < c.labels.size(); ++i) {
    names->set(std::to_string(i).c_str(), c.labels[i]);
    numbers->set(c.labels[i].c_str(), i);
  }
  s.set_object("id2label", *names);
  s.set_object("label2id", *numbers);
}

}  // namespace xtrain
