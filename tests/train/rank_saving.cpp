// Checkpoints written by all ranks together: the same bytes as from one writer, resumable on any number of ranks, or no checkpoint at all.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/parallel.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

using staged = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>;

/// Number of ranks that wrote the checkpoints.
class writers_seen final : public observer {
 public:
  using observer::on;
  void on(const checkpoint_written& done) override { all.push_back(done.writers); }
  std::vector<std::size_t> all;
};

/// Runs until `steps` steps are done, from the folder's newest checkpoint on; the global batch is 8. Returns the weights at the end.
template <class Parallel>
std::vector<double> run_in(const std::string& folder, std::size_t ranks, typename Parallel::config axes, std::size_t steps,
                           const checkpoint_options& how = {.save_steps = 3}) {
  const dataset data = sentences();
  std::vector<std::size_t> writers;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = llama<recipe<Parallel>>;
    typename Parallel::config own = axes;
    own.ranks = network;
    model_type model(sizes(true), {}, {.parallel = own});
    const std::size_t others = model.parallel().data().size();
    trainer trainer(model, run_config{.max_steps = steps,
                                      .micro_batch_size = 2,
                                      .gradient_accumulation_steps = 4 / others,
                                      .learning_rate = 1e-3,
                                      .lr_schedule = lr_schedule_kind::constant});
    checkpoint_folder checkpoints(trainer, folder, how);
    (void)checkpoints.resume();
    writers_seen seen;
    trainer.attach(seen);
    trainer.attach(checkpoints);
    trainer.fit(data);
    trainer.save(folder + "/out");
    if (network->rank() == 0) writers = seen.all;
  });
  for (const std::size_t those : writers) CHECK(those == (how.one_writer ? 1 : ranks));
  CHECK(!writers.empty());
  return all_weights(llama<recipe<single>>::from_pretrained(folder + "/out"));
}

/// Every rank must throw, and the first with this message.
void all_refused(const std::string& folder, const std::string& words, const checkpoint_options& how, std::size_t limit = 0) {
  std::array<std::string, 4> said;
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<staged>> model(sizes(true), {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2}});
    trainer trainer(model, run_config{.max_steps = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .learning_rate = 1e-3});
    checkpoint_folder checkpoints(trainer, folder, how);
    trainer.attach(checkpoints);
    std::unique_ptr<limited_file_size> full;
    if (limit != 0 && network->rank() == 0) full = std::make_unique<limited_file_size>(limit);
    model.parallel().world().barrier();
    try {
      trainer.fit(sentences());
    } catch (const file_error& problem) {
      said[network->rank()] = problem.what();
    }
    model.parallel().world().barrier();
  });
  for (const std::string& one : said) CHECK(!one.empty());
  CHECK_MESSAGE(said[0].find(words) != std::string::npos, said[0]);
}

}  // namespace

TEST_CASE("a checkpoint that ranks write together has the bytes that one writes") {
  const scratch_folder one, many, later;
  (void)run_in<staged>(one.path(), 8, {.data_parallel_size = 2, .tensor_parallel_size = 2}, 3, {.save_steps = 3, .one_writer = true});
  (void)run_in<staged>(many.path(), 8, {.data_parallel_size = 2, .tensor_parallel_size = 2}, 3);
  (void)run_in<staged>(later.path(), 8, {.data_parallel_size = 2, .tensor_parallel_size = 2}, 3, {.save_steps = 3, .asynchronous = true});
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json", "config.json"})
    for (const scratch_folder* other : {&many, &later})
      CHECK(get_file(one / concat("checkpoint-3/", file)) == get_file(*other / concat("checkpoint-3/", file)));
  for (const scratch_folder* other : {&many, &later}) CHECK(other->files() == std::vector<std::string>{"checkpoint-3", "out"});
}

TEST_CASE("what stages of divided layers saved, ranks with other rows go on with, and the other way around") {
  const scratch_folder folder, undisturbed;
  (void)run_in<staged>(folder.path(), 4, {.tensor_parallel_size = 2}, 3);
  (void)run_in<data_parallel>(folder.path(), 4, {}, 6);
  const auto there_and_back = run_in<staged>(folder.path(), 4, {.tensor_parallel_size = 2}, 9);
  CHECK(difference(there_and_back, run_in<data_parallel>(undisturbed.path(), 4, {}, 9)) < 2e-5);
}

TEST_CASE("a rank that cannot write its part lets all fail, at once or behind the training, and the checkpoint from before stays") {
  const scratch_folder folder;
  (void)run_in<staged>(folder.path(), 4, {.tensor_parallel_size = 2}, 3);
  std::filesystem::rename(folder / "checkpoint-3", folder / "checkpoint-2");
  std::filesystem::remove_all(folder / "out");
  const std::string before = get_file(folder / "checkpoint-2/optimizer.safetensors");
  // enough space for the weights, not for the optimizer state
  all_refused(folder.path(), "optimizer.safetensors: must be written whole", {.save_steps = 3, .later = later_checkpoints::kept}, before.size() - 1000);
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-2"});
  std::filesystem::create_symlink("nowhere", folder / "checkpoint-3");  // the final name is taken
  all_refused(folder.path(), "checkpoint-3: must take its name", {.save_steps = 3, .later = later_checkpoints::kept, .asynchronous = true});
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-2", "checkpoint-3"});
  CHECK(get_file(folder / "checkpoint-2/optimizer.safetensors") == before);
}

TEST_CASE("a weight that is not finite on one rank lets no rank save") {
  const scratch_folder folder;
  std::array<std::string, 4> said;
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    staged::config own{.tensor_parallel_size = 2};
    own.ranks = network;
    llama<recipe<staged>> model(sizes(true), {}, {.parallel = own});
    trainer trainer(model, run_config{.micro_batch_size = 2, .gradient_accumulation_steps = 4});
    for (const auto& entry : model.parameters().entries())
      if (network->rank() == 3 && entry.is_here) {
        const std::vector<float> values(entry.size(), std::numeric_limits<float>::quiet_NaN());
        model.parameters().set(model.stream(), entry, std::span<const float>(values));
      }
    try {
      trainer.save(folder / "out");
    } catch (const non_finite_error& problem) {
      said[network->rank()] = problem.what();
    }
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(said[rank] == "weights must be finite to be saved; those of another rank are not");
  CHECK(said[3].find("finite") != std::string::npos);
  CHECK(said[3] != said[0]);
  CHECK(folder.files().empty());
}
