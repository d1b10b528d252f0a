// says: xtrain trainer::fit: the model must be causal
#include <xtrain/models/bert.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {};
#ifdef MISTAKE
using model_type = xtrain::bert_pretraining<recipe>;
#else
using model_type = xtrain::llama<recipe>;
#endif
void train(xtrain::trainer<model_type>& trainer, const xtrain::dataset& data) { trainer.fit(data); }
