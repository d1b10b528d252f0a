// says: xtrain trainer::fit: the model must be bidirectional
#include <xtrain/models/bert.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {};
#ifdef MISTAKE
using model_type = xtrain::llama<recipe>;
#else
using model_type = xtrain::bert_pretraining<recipe>;
#endif
void train(xtrain::trainer<model_type>& trainer, const xtrain::sentence_dataset& data) { trainer.fit(data); }
