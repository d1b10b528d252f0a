// A rank of a small training that saves every third step: killed.sh kills it and resumes it.
//
//   killed FOLDER data|zero STEPS      trains or resumes; FOLDER gets each rank's process id, and losses bit for bit
//   killed FOLDER check                without a launcher: reads all checkpoints, and prints the step of the last one
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <xtrain/comm/launch.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/mpi.hpp>
#include <xtrain/parallel/zero.hpp>

#include "small_run.hpp"

namespace {

template <class Parallel>
struct recipe : xtrain::defaults {
  using parallel = Parallel;
};

/// Written at once, after earlier runs' lines: a kill may lose lines, but leaves no partial ones.
class loss_lines final : public xtrain::observer {
 public:
  explicit loss_lines(const std::string& path) : file_(std::fopen(path.c_str(), "a")) {}
  ~loss_lines() override { std::fclose(file_); }
  loss_lines(const loss_lines&) = delete;
  loss_lines& operator=(const loss_lines&) = delete;
  using observer::on;
  void on(const xtrain::step_done& done) override {
    std::fprintf(file_, "%zu %a %a\n", done.step, done.loss, done.gradient_norm);
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

template <class Parallel>
void train(const std::string& folder, std::size_t steps) {
  xtrain::mpi_session session;
  session.run([&](const std::shared_ptr<xtrain::transport>& network) {
    xtrain::llama<recipe<Parallel>> model(small_run::sizes(), {}, {.parallel = {.ranks = network}});
    xtrain::trainer trainer(model, small_run::settings(steps));
    xtrain::checkpoint_folder files(trainer, folder + "/run", {.save_steps = 3, .save_total_limit = 2});
    files.resume();
    loss_lines lines(folder + "/losses." + std::to_string(network->rank()));
    trainer.attach(lines);  // before the checkpoints: a step that is not repeated has its line
    trainer.attach(files);
    trainer.fit(small_run::data());
    trainer.save(folder + "/model");
  });
}

void check(const std::string& folder) {
  std::size_t last = 0;
  for (const auto& [step, path] : xtrain::checkpoints_in(folder + "/run")) {
    (void)small_run::model::from_pretrained(path);
    const xtrain::safetensors_file optimizer(path + "/optimizer.safetensors");
    const auto state = xtrain::read_json(path + "/trainer_state.json");
    xtrain::require<xtrain::data_error>(state["step"].get<std::size_t>() == step, path, ": must be of the step it is named after");
    last = step;
  }
  std::printf("%zu\n", last);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::string_view(argv[2]) == "check") {
    check(argv[1]);
    return 0;
  }
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const auto process = xtrain::launched();
  if (std::FILE* file = std::fopen(xtrain::concat(folder, "/rank_", process.rank).c_str(), "w")) {  // before MPI begins: a kill may come then
    std::fprintf(file, "%d\n", static_cast<int>(::getpid()));
    std::fclose(file);
  }
  xtrain::keep_to_own_processors(process);
  const std::size_t steps = std::strtoul(argv[3], nullptr, 10);
  if (std::string_view(argv[2]) == "data") train<xtrain::data_parallel>(folder, steps);
  else train<xtrain::zero<2>>(folder, steps);
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
