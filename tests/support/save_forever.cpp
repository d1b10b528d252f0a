// Trains a small model and saves at every step, until done or killed (by the kill test).
//
//   save_forever FOLDER STEPS
#include <cstdio>
#include <cstdlib>
#include <string>

#include "small_run.hpp"

int main(int, char** argv) {
  small_run::model model(small_run::sizes());
  xtrain::trainer trainer(model, small_run::settings(std::strtoul(argv[2], nullptr, 10)));
  xtrain::checkpoint_folder files(trainer, argv[1], {.save_steps = 1, .save_total_limit = 2});
  files.resume();
  trainer.attach(files);
  trainer.fit(small_run::data());
  return 0;
}
