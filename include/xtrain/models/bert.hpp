// BERT.                   [Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers for language understanding"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/layers/masked_lm_head.hpp>
#include <xtrain/layers/sequence_classification_head.hpp>
#include <xtrain/models/encoder.hpp>

namespace xtrain {

namespace detail {

template <class Recipe>
[[nodiscard]] masked_lm_head<Recipe> make_masked_lm_head(builder<Recipe>& build, const encoder_config& c, parameter table) {
  return {build,
          {.hidden_size = c.hidden_size,
           .vocab_size = c.vocab_size,
           .norm_epsilon = c.norm_epsilon,
           .name = "cls.predictions",
           .table = table,
           .initial = initial_values::normal(c.initializer_range)}};
}
template <class Recipe>
[[nodiscard]] sequence_classification_head<Recipe> make_classification_head(builder<Recipe>& build, const encoder_config& c, const char* labels_name,
                                                                            double dropout) {
  return {build,
          {.hidden_size = c.hidden_size,
           .labels = c.labels.size(),
           .pooler_name = "bert.pooler.dense",
           .labels_name = labels_name,
           .dropout = dropout,
           .site = 1,
           .initial = initial_values::normal(c.initializer_range)}};
}

}  // namespace detail

/// Masked language modeling.
template <class Recipe>
class bert_masked_lm_heads {
 public:
  static constexpr bool ties_embeddings = true;

  bert_masked_lm_heads(builder<Recipe>& build, const encoder_config& c, parameter table) : lm_head_(detail::make_masked_lm_head(build, c, table)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    lm_head_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X& x, const X& dx) const {
    lm_head_.backward(p, x, dx);
  }
  using lm_head_type = masked_lm_head<Recipe>;
  [[nodiscard]] const lm_head_type& lm_head() const { return lm_head_; }

 private:
  masked_lm_head<Recipe> lm_head_;
};

/// Sequence classification.
template <class Recipe>
class bert_classification_heads {
 public:
  static constexpr bool ties_embeddings = false;

  bert_classification_heads(builder<Recipe>& build, const encoder_config& c, parameter)
      : classifier_(detail::make_classification_head(build, c, "classifier", c.label_dropout)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    fill_zero(p.stream, loss_n.span());
    classifier_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X&, const X& dx) const {
    classifier_.backward(p, dx);
  }
  using classifier_type = sequence_classification_head<Recipe>;
  [[nodiscard]] const classifier_type& classifier() const { return classifier_; }

 private:
  sequence_classification_head<Recipe> classifier_;
};

/// Masked language modeling and next sentence prediction.
template <class Recipe>
class bert_pretraining_heads {
 public:
  static constexpr bool ties_embeddings = true;

  bert_pretraining_heads(builder<Recipe>& build, const encoder_config& c, parameter table)
      : lm_head_(detail::make_masked_lm_head(build, c, table)), classifier_(detail::make_classification_head(build, c, "cls.seq_relationship", 0.0)) {}

  template <class X, class Loss>
  void forward(pass<Recipe>& p, const X& x, const Loss& loss_n) const {
    lm_head_.forward(p, x, loss_n);
    classifier_.forward(p, x, loss_n);
  }
  template <class X>
  void backward(pass<Recipe>& p, const X& x, const X& dx) const {
    classifier_.backward(p, dx);
    lm_head_.backward(p, x, dx);
  }
  using lm_head_type = masked_lm_head<Recipe>;
  using classifier_type = sequence_classification_head<Recipe>;
  [[nodiscard]] const lm_head_type& lm_head() const { return lm_head_; }
  [[nodiscard]] const classifier_type& classifier() const { return classifier_; }

 private:
  masked_lm_head<Recipe> lm_head_;
  sequence_classification_head<Recipe> classifier_;
};

/// BERT: learned positions, segments, post-norm LayerNorm, GELU (erf), biases everywhere.
struct bert_family : family_defaults {
  static constexpr const char* name = "bert";
  static constexpr const char* peft_task = "";  // PEFT has no task for masked language modeling

  static encoder_names names();
  static std::vector<std::string> adapter_targets() { return {"query", "value"}; }
  static void complete(encoder_config&) {}
  static bool has_row_per_token(std::string_view parameter);

  static encoder_config read(const named_settings& s);
  static void write(const encoder_config& c, named_settings& s);
  /// gamma and beta: norms of the first release. Files of the encoder alone have no "bert." prefix. transformers before 5 stores an untied head's bias
  /// under two names.
  static std::vector<std::string> other_names(const std::string& parameter);
  /// Old files hold position_ids, and may hold a copy of a tied head and of its bias. For an untied head the decoder's bias counts.
  static bool may_be_ignored(std::string_view tensor, const encoder_config& c);
  /// The parameter that this tensor copies; empty: no copy.
  static std::string copied_by(std::string_view tensor, const encoder_config& c);
};

/// Masked language modeling and next sentence prediction (label 0: the second sentence follows the first; 1: it does not).
struct bert_pretraining_family : bert_family {
  static constexpr const char* architecture = "BertForPreTraining";
  template <class Recipe>
  using heads = bert_pretraining_heads<Recipe>;

  static void complete(encoder_config& c);
};

/// Masked language modeling only.
struct bert_masked_lm_family : bert_family {
  static constexpr const char* architecture = "BertForMaskedLM";
  template <class Recipe>
  using heads = bert_masked_lm_heads<Recipe>;

  static bool may_be_ignored(std::string_view tensor, const encoder_config& c);
};

/// Sequence classification. Heads that the folder lacks (classifier, pooler) are newly initialized.
struct bert_classification_family : bert_family {
  static constexpr const char* architecture = "BertForSequenceClassification";
  static constexpr const char* peft_task = "SEQ_CLS";
  template <class Recipe>
  using heads = bert_classification_heads<Recipe>;

  static void complete(encoder_config& c);
  static bool may_be_missing(std::string_view parameter);
  static bool may_be_ignored(std::string_view tensor, const encoder_config& c);

  static encoder_config read(const named_settings& s);
  static void write(const encoder_config& c, named_settings& s);
};

/// A BERT with both pre-training heads.
template <class Recipe>
using bert_pretraining = encoder<Recipe, bert_pretraining_family>;
/// A BERT that predicts masked tokens.
template <class Recipe>
using bert_masked_lm = encoder<Recipe, bert_masked_lm_family>;
/// A BERT that classifies sequences.
template <class Recipe>
using bert_classifier = encoder<Recipe, bert_classification_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/bert_impl.hpp>
#endif
