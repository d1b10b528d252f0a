// says: xtrain encoder: the heads must say whether one of them is tied to the embedding table
#include <xtrain/models/bert.hpp>
#include <xtrain/train/recipe.hpp>

/// BERT's family with heads of its own.
struct family : xtrain::bert_masked_lm_family {
  template <class Recipe>
#ifdef MISTAKE
  struct heads {
    heads(xtrain::builder<Recipe>&, const xtrain::encoder_config&, xtrain::parameter) {}
  };
#else
  using heads = xtrain::bert_masked_lm_heads<Recipe>;
#endif
};

void make(const xtrain::encoder_config& sizes) { xtrain::encoder<xtrain::defaults, family> model(sizes); }
