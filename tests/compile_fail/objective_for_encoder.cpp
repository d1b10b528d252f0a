// says: xtrain recipe: 'objective' must be next_token for a bidirectional model
#include <xtrain/models/bert.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {
#ifdef MISTAKE
  using objective = xtrain::dpo;
#endif
};
std::size_t size() { return sizeof(xtrain::trainer<xtrain::bert_masked_lm<recipe>>); }
