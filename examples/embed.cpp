// Fine-tuning inside an application: on a thread of its own, within a memory limit, on the application's threads, watched through
// callbacks, canceled at any time, with nothing written to the terminal by the library.
//
//   embed [model folder] [text file]
//
// Without arguments it first trains a small model, so that there is one to fine-tune.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/text.hpp>

#include "program_start.hpp"

namespace {

/// The status of a run. The application's threads read it while the training thread writes it.
struct training_status {
  std::atomic<std::size_t> step{0}, steps{0};
  std::atomic<double> loss{0};
  std::atomic<bool> finished{false};
};

/// The library reports events, the application decides what to do with them.
class status_updates final : public xtrain::observer {
 public:
  explicit status_updates(training_status& status) : status_(&status) {}
  using observer::on;
  void on(const xtrain::run_began& began) override { status_->steps = began.max_steps; }
  void on(const xtrain::step_done& done) override {
    status_->step = done.step;
    status_->loss = done.loss;
  }

 private:
  training_status* status_;
};

struct adapter_run : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
  using adapter = xtrain::lora;
};

/// A fine-tuning job of the application. Destroying it cancels it.
class personalisation {
 public:
  struct settings {
    std::string model, text, output;
    std::size_t steps = 0;
    std::size_t memory_limit = 0;  ///< in bytes
    std::shared_ptr<xtrain::executor> threads = nullptr;
  };

  explicit personalisation(settings job)
      : job_(std::move(job)), thread_([this](std::stop_token cancelled) { run(std::move(cancelled)); }) {}

  void cancel() { thread_.request_stop(); }
  void wait() { thread_.join(); }
  [[nodiscard]] const training_status& status() const { return status_; }
  /// The error message, after the job has finished; empty without an error.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// The job's peak memory.
  [[nodiscard]] std::size_t peak_memory() const { return peak_memory_; }

 private:
  void run(std::stop_token cancelled) {
    try {
      const xtrain::cpu::context on({.memory_limit = job_.memory_limit, .executor = job_.threads});
      const auto tokenizer = xtrain::load_tokenizer(job_.model);
      const auto data = xtrain::text_dataset(job_.text, tokenizer);
      auto model = xtrain::llama<adapter_run>::from_pretrained(job_.model, on, {.adapter = {.rank = 8, .alpha = 16}});
      xtrain::trainer trainer(model, {.max_steps = job_.steps, .micro_batch_size = 4, .learning_rate = 1e-3});
      status_updates updates(status_);
      trainer.attach(updates);
      trainer.fit(data, nullptr, std::move(cancelled));
      trainer.save(job_.output, xtrain::save_adapter_options{.base_model = job_.model});  // the weights learned so far
      peak_memory_ = on.memory().total_peak;
    } catch (const std::exception& problem) {  // no exception may leave a thread
      problem_ = problem.what();
    }
    status_.finished = true;
  }

  settings job_;
  training_status status_;
  std::string problem_{};
  std::size_t peak_memory_ = 0;
  std::jthread thread_;  // last member: the thread uses everything above
};

/// Shows a job's progress until it has finished, or has done `patience` steps.
void watch(personalisation& job, std::size_t patience) {
  while (!job.status().finished) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (job.status().step >= patience) job.cancel();
  }
  job.wait();
  const auto& status = job.status();
  if (job.problem().empty())
    std::printf("%zu of %zu steps, loss %.3f, at most %s\n", status.step.load(), status.steps.load(), status.loss.load(),
                xtrain::bytes_text(job.peak_memory()).c_str());
  else std::printf("refused: %s\n", job.problem().c_str());
}

/// A small initial model, trained briefly on this file.
void make_model(const std::string& folder, const std::string& text) {
  const auto tokenizer = xtrain::byte_tokenizer();
  xtrain::llama<xtrain::defaults> model(
      {.vocab_size = tokenizer.vocab_size(), .hidden_size = 64, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 64});
  xtrain::trainer trainer(model, {.max_steps = 30, .micro_batch_size = 4, .learning_rate = 3e-3});
  trainer.fit(xtrain::text_dataset(text, tokenizer));
  trainer.save(folder);
  tokenizer.save(folder);
  xtrain::align_special_tokens(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  program_start::prepare();
  if (argc > 1 && std::string_view(argv[1]) == "--help")
    return std::puts("usage: embed [model folder] [text file]\nwithout a model folder, a small model is trained first"), 0;
  const std::string scratch = (std::filesystem::temp_directory_path() / "xtrain-embed").string();
  const std::string text = argc > 2 ? argv[2] : __FILE__;
  std::string model = argc > 1 ? argv[1] : "";
  if (model.empty()) {
    model = scratch + "/model";
    make_model(model, text);
  }
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  const auto threads = std::make_shared<xtrain::thread_pool>(2);  // or an executor that runs on the application's own threads

  std::printf("a job within limits:    ");
  personalisation job(
      {.model = model, .text = text, .output = scratch + "/adapter", .steps = 40, .memory_limit = 512 * mebibyte, .threads = threads});
  watch(job, 40);

  std::printf("a job that is cancelled: ");
  personalisation cancelled(
      {.model = model, .text = text, .output = scratch + "/partial", .steps = 100000, .memory_limit = 512 * mebibyte, .threads = threads});
  watch(cancelled, 10);

  std::printf("a job that cannot fit:   ");
  personalisation refused(
      {.model = model, .text = text, .output = scratch + "/none", .steps = 40, .memory_limit = mebibyte, .threads = threads});
  watch(refused, 40);

  if (!job.problem().empty() || !cancelled.problem().empty()) return 1;  // the last one is expected to have one
  std::printf("adapters are in %s\n", scratch.c_str());
} catch (const std::exception& problem) {
  std::fprintf(stderr, "embed: %s\n", problem.what());
  return 1;
}
