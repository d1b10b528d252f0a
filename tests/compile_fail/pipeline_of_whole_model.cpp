// says: xtrain pipeline: the model must run forward and backward block by block
#include <xtrain/models/llama.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/train/trainer.hpp>

struct recipe : xtrain::defaults {
  using parallel = xtrain::pipeline<>;
};
#ifdef MISTAKE
struct model : xtrain::llama<recipe> {
  using shared_model = model;
  void backward_blocks() const = delete;
};
#else
using model = xtrain::llama<recipe>;
#endif
void train(model& m) { xtrain::trainer trainer(m); }
