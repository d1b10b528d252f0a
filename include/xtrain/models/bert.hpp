// BERT.                   [Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers for language understanding"]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/layers/masked_word_head.hpp>
#include <xtrain/layers/row_head.hpp>
#include <xtrain/models/encoder.hpp>

namespace xtrain {

namespace detail {

template <class Recipe>
[[nodiscard]] masked_word_head<Recipe> bert_words(builder<Recipe>& build, const encoder_config& c, parameter table) {
  return {build,
          {.width = c.width,
           .vocabulary = c.vocabulary,
           .norm_epsilon = c.norm_epsilon,
           .name = "cls.predictions",
           .table = table,
           .initial = initial_values::normal(c.initial_deviation)}};
}
template <class Recipe>
[[nodiscard]] row_head<Recipe> bert_rows(builder<Recipe>& build, const encoder_config& c, const char* labels_name, double dropout) {
  return {build,
          {.width = c.width,
           .labels = c.labels.size(),
           .pooler_name = "bert.pooler.dense",
           .labels_name = labels_name,
           .dropout = dropout,
           .site = 1,
           .initial = initial_values::normal(c.initial_deviation)}};
}

}  // namespace detail

/// Masked language modeling.
template <class Recipe>
class bert_word_heads {
 public:
  bert_word_heads(builder<Recipe>& build, const encoder_config& c, parameter table) : words_(detail::bert_words(build, c, table)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    words_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X& x, const X& dx) const {
    words_.backward(p, x, dx);
  }
  using word_head = masked_word_head<Recipe>;
  [[nodiscard]] const word_head& words() const { return words_; }

 private:
  masked_word_head<Recipe> words_;
};

/// Sequence classification.
template <class Recipe>
class bert_label_heads {
 public:
  bert_label_heads(builder<Recipe>& build, const encoder_config& c, parameter)
      : rows_(detail::bert_rows(build, c, "classifier", c.label_dropout)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    fill_zero(p.stream, loss_n.span());
    rows_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X&, const X& dx) const {
    rows_.backward(p, dx);
  }
  using label_head = row_head<Recipe>;
  [[nodiscard]] const label_head& rows() const { return rows_; }

 private:
  row_head<Recipe> rows_;
};

/// Masked language modeling and next sentence prediction.
template <class Recipe>
class bert_pretraining_heads {
 public:
  bert_pretraining_heads(builder<Recipe>& build, const encoder_config& c, parameter table)
      : words_(detail::bert_words(build, c, table)), rows_(detail::bert_rows(build, c, "cls.seq_relationship", 0.0)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    words_.forward(p, x, loss_n);
    rows_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X& x, const X& dx) const {
    rows_.backward(p, dx);
    words_.backward(p, x, dx);
  }
  using word_head = masked_word_head<Recipe>;
  using label_head = row_head<Recipe>;
  [[nodiscard]] const word_head& words() const { return words_; }
  [[nodiscard]] const label_head& rows() const { return rows_; }

 private:
  masked_word_head<Recipe> words_;
  row_head<Recipe> rows_;
};

/// What BERT's models have in common: learned positions, segments, LayerNorm after each branch (post-norm), GELU (erf), biases everywhere.
struct bert_family {
  static constexpr const char* name = "bert";
  static constexpr bool transposed_in_files = false;
  static constexpr const char* peft_task = "";  // PEFT has none for masked language modeling

  static encoder_names names() {
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
  static std::vector<std::string> adapter_targets() { return {"query", "value"}; }
  static void complete(encoder_config&) {}
  static bool may_be_missing(std::string_view) { return false; }
  static bool has_row_per_token(std::string_view parameter) {
    return parameter == names().embedding + ".weight" || parameter == "cls.predictions.decoder.weight" || parameter == "cls.predictions.bias";
  }

  static encoder_config read(const named_settings& s) {
    const std::string activation = s.text_or("gelu", {"hidden_act"});
    require<config_error>(activation == "gelu", s.who(), ": hidden_act must be gelu; given '", activation, "'");
    const std::string positions = s.text_or("absolute", {"position_embedding_type"});
    require<config_error>(positions == "absolute", s.who(), ": position_embedding_type must be absolute; given '", positions, "'");
    require<config_error>(!s.flag_or(false, {"is_decoder"}) && !s.flag_or(false, {"add_cross_attention"}), s.who(),
                          ": must describe an encoder; is_decoder or add_cross_attention is true");
    const double dropout = s.number_or(0.1, {"hidden_dropout_prob"});
    return {.vocabulary = s.size({"vocab_size"}),
            .width = s.size({"hidden_size"}),
            .layers = s.size({"num_hidden_layers"}),
            .heads = s.size({"num_attention_heads"}),
            .feed_forward = s.size_or(0, {"intermediate_size"}),
            .context = s.size_or(512, {"max_position_embeddings"}),
            .segments = s.size_or(2, {"type_vocab_size"}),
            .norm_epsilon = s.number_or(1e-12, {"layer_norm_eps"}),
            .tied_head = s.flag_or(true, {"tie_word_embeddings"}),
            .attention_dropout = s.number_or(0.1, {"attention_probs_dropout_prob"}),
            .residual_dropout = dropout,
            .label_dropout = s.number_or(dropout, {"classifier_dropout"}),
            .initial_deviation = s.number_or(0.02, {"initializer_range"}),
            .padding = s.token_or(0, "pad_token_id")};
  }
  static void write(const encoder_config& c, named_settings& s) {
    s.set("vocab_size", c.vocabulary);
    s.set("hidden_size", c.width);
    s.set("num_hidden_layers", c.layers);
    s.set("num_attention_heads", c.heads);
    s.set("intermediate_size", c.feed_forward);
    s.set("max_position_embeddings", c.context);
    s.set("type_vocab_size", c.segments);
    s.set("layer_norm_eps", c.norm_epsilon);
    s.set("hidden_act", "gelu");
    s.set("attention_probs_dropout_prob", c.attention_dropout);
    s.set("hidden_dropout_prob", c.residual_dropout);
    s.set("classifier_dropout", c.label_dropout);
    s.set("initializer_range", c.initial_deviation);
    s.set("tie_word_embeddings", c.tied_head);
    s.set_token("pad_token_id", c.padding);
  }
  /// The first release calls a norm's weight and bias gamma and beta. A file of the encoder alone has no "bert." prefix.
  static std::vector<std::string> other_names(const std::string& parameter) {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
      if (name != parameter) names.push_back(name);
      for (const auto& [now, once] :
           {std::pair<std::string_view, const char*>{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}})
        if (name.ends_with(now)) names.push_back(name.substr(0, name.size() - now.size()) + once);
    };
    add(parameter);
    if (constexpr std::string_view prefix = "bert."; parameter.starts_with(prefix)) add(parameter.substr(prefix.size()));
    return names;
  }
  /// Old files contain position_ids as a tensor; a tied head may be stored a second time, and so may its bias.
  static bool may_be_ignored(std::string_view tensor, const encoder_config& c) {
    return tensor.ends_with("embeddings.position_ids") || tensor == "cls.predictions.decoder.bias" ||
           (c.tied_head && tensor == "cls.predictions.decoder.weight");
  }
};

/// Pre-training: masked language modeling, and next sentence prediction (label 0: the second sentence follows the first; 1: it does not).
struct bert_pretraining_family : bert_family {
  static constexpr const char* architecture = "BertForPreTraining";
  template <class Recipe>
  using heads = bert_pretraining_heads<Recipe>;

  static void complete(encoder_config& c) {
    if (c.labels.empty()) c.labels = {"follows", "does not follow"};
    require<config_error>(c.labels.size() == 2, name, ": there must be two labels, follows or not; given ", c.labels.size());
  }
};

/// Masked language modeling only.
struct bert_masked_words_family : bert_family {
  static constexpr const char* architecture = "BertForMaskedLM";
  template <class Recipe>
  using heads = bert_word_heads<Recipe>;

  static bool may_be_ignored(std::string_view tensor, const encoder_config& c) {
    return bert_family::may_be_ignored(tensor, c) || tensor.starts_with("bert.pooler.") || tensor.starts_with("pooler.") ||
           tensor.starts_with("cls.seq_relationship.");
  }
};

/// Sequence classification. Without a classifier in the folder, it is newly initialized; so is the pooler if the folder has masked LM only.
struct bert_classification_family : bert_family {
  static constexpr const char* architecture = "BertForSequenceClassification";
  static constexpr const char* peft_task = "SEQ_CLS";
  template <class Recipe>
  using heads = bert_label_heads<Recipe>;

  static void complete(encoder_config& c) {
    if (c.labels.empty()) c.labels = {"LABEL_0", "LABEL_1"};
    require<config_error>(c.labels.size() > 1, name, ": there must be two labels at least; given ", c.labels.size());
  }
  static bool may_be_missing(std::string_view parameter) {
    return parameter.starts_with("classifier.") || parameter.starts_with("bert.pooler.");
  }
  static bool may_be_ignored(std::string_view tensor, const encoder_config& c) {
    return bert_family::may_be_ignored(tensor, c) || tensor.starts_with("cls.");
  }

  static encoder_config read(const named_settings& s) {
    encoder_config c = bert_family::read(s);
    const std::string problem = s.text_or("single_label_classification", {"problem_type"});
    require<config_error>(problem == "single_label_classification", s.who(), ": problem_type must be single_label_classification; given '",
                          problem, "'");
    const auto names = s.object_at({"id2label"});
    for (std::string key = "0"; names->has({key.c_str()}); key = std::to_string(c.labels.size()))
      c.labels.push_back(names->text_or("", {key.c_str()}));
    return c;
  }
  static void write(const encoder_config& c, named_settings& s) {
    bert_family::write(c, s);
    const auto names = s.new_object(), numbers = s.new_object();
    for (std::size_t i = 0; i < c.labels.size(); ++i) {
      names->set(std::to_string(i).c_str(), c.labels[i]);
      numbers->set(c.labels[i].c_str(), i);
    }
    s.set_object("id2label", *names);
    s.set_object("label2id", *numbers);
  }
};

template <class Recipe>
using bert_pretraining = encoder<Recipe, bert_pretraining_family>;
template <class Recipe>
using bert_masked_words = encoder<Recipe, bert_masked_words_family>;
template <class Recipe>
using bert_classifier = encoder<Recipe, bert_classification_family>;

}  // namespace xtrain
