// says: defined in <xtrain/parallel.hpp>, which must be included
#ifndef MISTAKE
#include <xtrain/parallel.hpp>
#endif
#include <xtrain/xtrain.hpp>

struct recipe : xtrain::defaults {
  using parallel = xtrain::zero<2>;
};
void train(xtrain::llama<recipe>& model) { xtrain::trainer trainer(model, {}); }
