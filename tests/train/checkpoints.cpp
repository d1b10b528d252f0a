// Checkpoints that are damaged, belong to another run, or do not fit on the disk.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/io/folder_lock.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/models/mistral.hpp>

#include "scratch.hpp"
#include "small_run.hpp"

using namespace xtrain;

namespace {

struct bench {
  small_run::model model{small_run::sizes()};
  xtrain::trainer<small_run::model> trainer;
  explicit bench(training_config<adamw> settings = small_run::settings(6)) : trainer(model, settings) {}
};

void refused(const std::string& folder, const std::string& words, training_config<adamw> settings = small_run::settings(6)) {
  bench b(settings);
  checkpoint_folder files(b.trainer, folder);
  CAPTURE(words);
  CHECK_THROWS_WITH_AS(files.resume(), doctest::Contains(words.c_str()), error);
}

}  // namespace

TEST_CASE("the newest checkpoints are kept, older ones removed, and nothing else touched") {
  const scratch_folder folder;
  put_file(folder / "notes.txt", "mine");
  bench b;
  checkpoint_folder files(b.trainer, folder.path(), {.save_steps = 1, .save_total_limit = 2});
  b.trainer.attach(files);
  b.trainer.fit(small_run::data());
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-5", "checkpoint-6", "notes.txt"});
}

TEST_CASE("a checkpoint just written stays, whatever later steps an earlier run left in the folder") {
  const scratch_folder folder;
  for (const char* earlier : {"checkpoint-20", "checkpoint-30"}) {
    std::filesystem::create_directory(folder / earlier);
    put_file(folder / concat(earlier, "/trainer_state.json"), "{}");
  }
  bench b;
  checkpoint_folder files(b.trainer, folder.path(), {.save_total_limit = 2, .later = later_checkpoints::kept});
  files.save();
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-0", "checkpoint-30"});
}

TEST_CASE("a run in a folder with another run's checkpoints of later steps is refused, or removes them; a run that goes on is not") {
  const scratch_folder folder;
  const auto train = [&](std::size_t steps, bool resumes, const checkpoint_options& options) {
    bench b(small_run::settings(steps));
    checkpoint_folder files(b.trainer, folder.path(), options);
    if (resumes) CHECK(files.resume());
    b.trainer.attach(files);
    b.trainer.fit(small_run::data());
  };
  train(4, false, {.save_steps = 2});
  train(6, true, {.save_steps = 2});
  const std::vector<std::string> all{"checkpoint-2", "checkpoint-4", "checkpoint-6"};
  CHECK(folder.files() == all);
  const auto refused = [&](const std::string& words, auto&& run) {
    CHECK_THROWS_WITH_AS(run(), doctest::Contains(words.c_str()), config_error);
    CHECK(folder.files() == all);
  };
  const std::string begins =
      concat("checkpoint_folder '", folder.path(), "': must have no checkpoints of later steps than the run's 0, which an earlier run has left; "
             "it has checkpoint-6. Call resume() to go on with that run, choose another folder, or give {.later = later_checkpoints::removed}");
  refused(begins, [&] { train(4, false, {.save_steps = 2}); });
  refused(begins, [&] { train(4, false, {}); });  // which would save when it is stopped
  {
    bench b;
    checkpoint_folder files(b.trainer, folder.path());
    refused(begins, [&] { files.save(); });
    files.resume_from(folder / "checkpoint-2");
    refused("the run's 2,", [&] { files.save(); });
    b.trainer.attach(files);
    refused("the run's 2,", [&] { b.trainer.fit(small_run::data()); });
    CHECK(files.resume());
    b.trainer.fit(small_run::data());  // no step is left
    refused(begins, [&] { b.trainer.fit(small_run::data()); });  // a new run
    CHECK(b.trainer.progress().step == 6);                       // not begun
  }
  train(3, false, {.save_steps = 3, .later = later_checkpoints::removed});
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-3"});
  {
    bench b;
    checkpoint_folder files(b.trainer, folder.path(), {.later = later_checkpoints::removed, .asynchronous = true});
    files.save();
    files.finish();
    CHECK(folder.files() == std::vector<std::string>{"checkpoint-0"});
  }
}

TEST_CASE("checkpoints that training does not wait for are the same, and there when the run ends") {
  const scratch_folder now, later;
  for (const bool asynchronous : {false, true}) {
    bench b;
    checkpoint_folder files(b.trainer, asynchronous ? later.path() : now.path(), {.save_steps = 1, .save_total_limit = 3, .asynchronous = asynchronous});
    b.trainer.attach(files);
    b.trainer.fit(small_run::data());
    CHECK((asynchronous ? later : now).files() == std::vector<std::string>{"checkpoint-4", "checkpoint-5", "checkpoint-6"});
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json", "config.json"})
    CHECK(get_file(now / concat("checkpoint-5/", file)) == get_file(later / concat("checkpoint-5/", file)));
}

TEST_CASE("a checkpoint that is saved again takes the place of the old one") {
  const scratch_folder folder;
  bench b;
  checkpoint_folder files(b.trainer, folder.path());
  files.save();
  b.model.parameters().trained_values().host()[0] = 5.0f;
  files.save();
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-0"});
  bench again;
  checkpoint_folder(again.trainer, folder.path()).resume();
  CHECK(again.model.parameters().trained_values().host()[0] == 5.0f);
}

TEST_CASE("what a killed save left behind is removed, and never taken for a checkpoint") {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / ".checkpoint-9.123.part");
  std::filesystem::create_directories(folder / "checkpoint-x");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const std::string running = concat("run.json.", ::getpid(), ".part");
  const std::string of_another = concat("corpus.", child, ".bin.part");  // not a name that a save draws
  for (const std::string& name : {concat("tokenizer_config.json.", child, ".part"), concat("model.safetensors.", child, ".00ff0123456789ab.part"), running,
                                  of_another, std::string("mine.part"), std::string("7.part")})
    put_file(folder / name, "half");
  CHECK(checkpoints_in(folder.path()).empty());
  bench b;
  const checkpoint_folder files(b.trainer, folder.path());
  CHECK(folder.files() == std::vector<std::string>{"7.part", "checkpoint-x", of_another, "mine.part", running});
}

TEST_CASE("damage is named, and the other checkpoints stay") {
  const auto damaged = [](const std::string& file, const std::string& words, auto&& damage) {
    const scratch_folder folder;
    bench b;
    checkpoint_folder files(b.trainer, folder.path(), {.save_steps = 2});
    b.trainer.attach(files);
    b.trainer.fit(small_run::data());
    const std::string path = folder / ("checkpoint-6/" + file);
    damage(path);
    refused(folder.path(), words);
    CHECK(checkpoints_in(folder.path()).size() == 3);
    bench older;
    checkpoint_folder older_files(older.trainer, folder.path());
    CHECK_NOTHROW(older_files.resume_from(folder / "checkpoint-4"));
  };
  damaged("model.safetensors", "model.safetensors: not a whole safetensors file",
          [](const std::string& path) { put_file(path, get_file(path).substr(0, 2000)); });
  damaged("model.safetensors", "must hold model.safetensors", [](const std::string& path) { std::filesystem::remove(path); });
  damaged("optimizer.safetensors", "optimizer.safetensors: must be a readable file",
          [](const std::string& path) { std::filesystem::remove(path); });
  damaged("optimizer.safetensors", "not a whole safetensors file",
          [](const std::string& path) { put_file(path, get_file(path) + "more"); });
  damaged("trainer_state.json", "must be JSON; line", [](const std::string& path) { put_file(path, get_file(path).substr(0, 40)); });
  damaged("trainer_state.json", "'step' must be a whole number",
          [](const std::string& path) { put_file(path, R"({"micro_batch_size": 2, "gradient_accumulation_steps": 1, "seq_length": 12})"); });
}

TEST_CASE("a bit that is flipped anywhere in a tensor file, or in the state of the run, is refused") {
  const scratch_folder folder;
  {
    bench b;
    checkpoint_folder files(b.trainer, folder.path());
    b.trainer.attach(files);
    b.trainer.fit(small_run::data());
    files.save();
  }
  const std::string checkpoint = folder / "checkpoint-6";
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    const std::string path = checkpoint + "/" + name, whole = get_file(path);
    for (std::uint32_t i = 0; i < 24; ++i) {
      std::string damaged = whole;
      const std::size_t bit = random_word({.seed = 5}, i) % (8 * whole.size());
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      put_file(path, damaged);
      bench b;
      checkpoint_folder files(b.trainer, folder.path());
      CAPTURE(name);
      CAPTURE(bit);
      CHECK_THROWS_AS(files.resume(), error);
    }
    put_file(path, whole);
  }
  // in the middle of the data only a checksum can detect it
  const std::string path = checkpoint + "/model.safetensors";
  std::string damaged = get_file(path);
  damaged[damaged.size() - 5] = static_cast<char>(damaged[damaged.size() - 5] ^ 1);
  put_file(path, damaged);
  refused(folder.path(), "model.safetensors: must be what was saved; its checksum is ");
}

TEST_CASE("what a run goes on with that is otherwise than before is said") {
  const scratch_folder folder;
  {
    bench b;
    checkpoint_folder(b.trainer, folder.path()).save();
  }
  const auto changes = [&](const training_config<adamw>& settings) {
    bench b(settings);
    checkpoint_folder files(b.trainer, folder.path());
    files.resume();
    return files.changes();
  };
  CHECK(changes(small_run::settings(6)).empty());
  auto settings = small_run::settings(9);
  settings.learning_rate = 0.25;
  settings.lr_schedule = lr_schedule_kind::linear;
  settings.optimizer.weight_decay = 0.125;
  const auto found = changes(settings);
  REQUIRE(found.size() == 4);
  CHECK(found[0].starts_with("learning_rate is 0.25, it was "));
  CHECK(found[1] == "lr_schedule is \"linear\", it was \"constant\"");
  CHECK(found[2] == "max_steps is 9, it was 6");
  CHECK(found[3].starts_with("weight_decay is 0.125, it was "));
  settings = small_run::settings(6);
  settings.average_loss = loss_average::micro_batch;
  settings.keep_gradients = true;
  settings.lr_decay_steps = 5;
  settings.lr_from_zero = true;
  settings.weight_decay_of = decayed_parameters::all;
  CHECK(changes(settings) == std::vector<std::string>{"average_loss is \"micro_batch\", it was \"step\"", "keep_gradients is true, it was false",
                                                      "lr_decay_steps is 5, it was 0", "lr_from_zero is true, it was false",
                                                      "weight_decay_of is \"all\", it was \"matrices\""});
}

TEST_CASE("a folder in which another process writes checkpoints is refused, until that ends") {
  const scratch_folder folder;
  int to_child[2], to_parent[2];
  REQUIRE(::pipe(to_child) == 0);
  REQUIRE(::pipe(to_parent) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char letter = 'x';
    const folder_lock lock(folder.path(), "the child");
    const bool told = ::write(to_parent[1], &letter, 1) == 1 && ::read(to_child[0], &letter, 1) == 1;
    ::kill(::getpid(), told ? SIGKILL : SIGTERM);  // unannounced, like killed runs
  }
  char letter = 0;
  REQUIRE(::read(to_parent[0], &letter, 1) == 1);
  bench b;
  CHECK_THROWS_WITH_AS((checkpoint_folder(b.trainer, folder.path())),
                       concat(folder.path(), ": another run writes checkpoints there; it must end first, or another folder be chosen").c_str(), file_error);
  REQUIRE(::write(to_child[1], &letter, 1) == 1);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  {
    checkpoint_folder files(b.trainer, folder.path());
    CHECK_NOTHROW(checkpoint_folder(b.trainer, folder.path()));  // one process may have several
  }
  CHECK_FALSE(file_exists(folder / ".lock"));  // the lock file is removed
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(end);
}

TEST_CASE("a run goes on only with what it was begun with") {
  const scratch_folder folder;
  {
    bench b;
    checkpoint_folder(b.trainer, folder.path()).save();
  }
  auto settings = small_run::settings(6);
  settings.micro_batch_size = 4;
  refused(folder.path(), "must have the same global batch size (micro_batch_size x gradient_accumulation_steps x ranks): it had 2, now 4 x 1 x 1 are given",
          settings);
  settings = small_run::settings(6);
  settings.seed = 7;
  refused(folder.path(), "must have the same seed; it was 42, now 7 is given", settings);
  struct other_recipe : defaults {
    using optimizer = sgd;
  };
  llama<other_recipe> model(small_run::sizes());
  trainer trainer(model, {.max_steps = 6, .micro_batch_size = 2});
  checkpoint_folder files(trainer, folder.path());
  CHECK_THROWS_WITH_AS(files.resume(), doctest::Contains("must have the same optimizer; it was 'adamw', now it is 'sgd'"), config_error);
}

TEST_CASE("a run goes on only with the model it was begun with, though every tensor of another fits") {
  const scratch_folder folder;
  {
    bench b;
    checkpoint_folder(b.trainer, folder.path()).save();
  }
  const auto changes = [&](const decoder_config& sizes) {
    small_run::model model(sizes);
    auto settings = small_run::settings(6);
    settings.seq_length = 12;
    trainer trainer(model, settings);
    checkpoint_folder files(trainer, folder.path());
    files.resume();
    return files.changes();
  };
  const auto differs = [&](const decoder_config& sizes, const std::string& words) {
    CAPTURE(words);
    CHECK_THROWS_WITH_AS((void)changes(sizes), doctest::Contains(concat("a resumed run must have the same model; its ", words).c_str()), config_error);
  };
  auto sizes = small_run::sizes();
  CHECK(changes(sizes).empty());
  sizes.rope_theta = 5e5;
  differs(sizes, "rope_theta was 10000.0, now it is 500000.0");
  sizes = small_run::sizes();
  sizes.norm_epsilon = 1e-6;
  differs(sizes, "rms_norm_eps was 1e-05, now it is 1e-06");
  sizes = small_run::sizes();
  sizes.rope_scaling = {.kind = rope_scaling_config::rule::linear, .factor = 2.0};
  differs(sizes, "rope_scaling was not set, now it is {");
  sizes = small_run::sizes();
  sizes.num_heads = 4;
  differs(sizes, "head_dim was 8, now it is 4");
  mistral<defaults> other(small_run::sizes());
  trainer of_other(other, small_run::settings(6));
  CHECK_THROWS_WITH_AS((void)checkpoint_folder(of_other, folder.path()).resume(), doctest::Contains("its model_type was \"llama\", now it is \"mistral\""),
                       config_error);
  sizes = small_run::sizes();
  sizes.attention_dropout = 0.25;
  sizes.max_position_embeddings = 24;
  CHECK(changes(sizes).size() == 2);

  // an earlier version's checkpoint does not identify the model
  const std::string path = folder / "checkpoint-0/trainer_state.json";
  json state = read_settings(path).object();
  for (const char* key : {"model", "checksums", "checksum"}) state.erase(key);
  put_file(path, state.dump());
  sizes = small_run::sizes();
  sizes.rope_theta = 5e5;
  CHECK(changes(sizes).empty());
}

TEST_CASE("an adapter goes on only with the weights that it was begun with") {
  struct adapted : defaults {
    using adapter = lora;
  };
  const scratch_folder folder, one, two, copied;
  save_pretrained(small_run::model(small_run::sizes(), {}, {.seed = 1}), one.path());
  save_pretrained(small_run::model(small_run::sizes(), {}, {.seed = 2}), two.path());
  std::filesystem::copy(one.path(), copied.path(), std::filesystem::copy_options::recursive);
  const auto changes = [&](const std::string& base, double dropout = 0.0, bool resumes = true) {
    auto model = load_as<llama<adapted>>(base, small_run::sizes(), {}, {.adapter = {.rank = 2, .dropout = dropout}});
    trainer trainer(model, {.max_steps = 8, .micro_batch_size = 2});
    checkpoint_folder files(trainer, folder.path(), {.base_model = base});
    if (resumes) files.resume();
    else files.save();
    return files.changes();
  };
  (void)changes(one.path(), 0.0, false);
  CHECK(changes(one.path()).empty());
  CHECK(changes(copied.path()).empty());
  CHECK(changes(one.path(), 0.25) == std::vector<std::string>{"lora_dropout is 0.25, it was 0.0"});
  CHECK_THROWS_WITH_AS((void)changes(two.path()), doctest::Contains("a resumed run must train the adapter of the same weights; those of "), config_error);
}

TEST_CASE("a full disk stops the run with an error and leaves the last checkpoint whole") {
  const scratch_folder folder;
  bench b;
  checkpoint_folder files(b.trainer, folder.path(), {.save_steps = 1});
  const std::string good = files.save();
  b.trainer.attach(files);
  {
    const limited_file_size full(4000);
    CHECK_THROWS_WITH_AS(b.trainer.fit(small_run::data()), doctest::Contains("must be written whole"), file_error);
  }
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-0"});
  bench again;
  CHECK(checkpoint_folder(again.trainer, folder.path()).resume());
}

TEST_CASE("a checkpoint that fails behind the training is told of at the next save, or when the run ends, and the one from before stays") {
  const checkpoint_options behind{.save_steps = 2, .asynchronous = true};
  const auto goes_on_from_two = [](const scratch_folder& folder) {
    bench again;
    checkpoint_folder files(again.trainer, folder / "run");
    CHECK(files.resume());
    CHECK(again.trainer.progress().step == 2);
  };
  for (const std::size_t failing : {4U, 6U}) {  // the first is followed by another save, the second by the end of the run
    CAPTURE(failing);
    const scratch_folder folder;
    bench b;
    checkpoint_folder files(b.trainer, folder / "run", behind);
    b.trainer.attach(files);
    // renaming a folder over a non-folder fails only after everything is on disk
    std::filesystem::create_symlink("nowhere", folder / concat("run/checkpoint-", failing));
    CHECK_THROWS_WITH_AS(b.trainer.fit(small_run::data()), doctest::Contains("must take its name; the system says: "), file_error);
    CHECK(b.trainer.progress().step == 6);
    std::filesystem::remove_all(folder / "run/checkpoint-4");
    CHECK_NOTHROW(files.finish());  // the error is reported once
    goes_on_from_two(folder);
    for (const auto& entry : std::filesystem::directory_iterator(folder / "run")) CHECK(entry.path().extension() != ".part");
  }
  {  // the folder is gone: the pending save cannot complete, and no new one can begin
    const scratch_folder folder;
    bench b;
    checkpoint_folder files(b.trainer, folder / "run", behind);
    struct mover final : observer {
      const scratch_folder& at;
      explicit mover(const scratch_folder& f) : at(f) {}
      using observer::on;
      void on(const step_done& done) override {
        if (done.step == 3) {
          std::filesystem::rename(at / "run", at / "moved");
          put_file(at / "run", "in the way");
        }
      }
    } watcher(folder);
    b.trainer.attach(watcher);
    b.trainer.attach(files);
    CHECK_THROWS_AS(b.trainer.fit(small_run::data()), file_error);
    std::filesystem::remove(folder / "run");
    std::filesystem::rename(folder / "moved", folder / "run");
    bench again;
    checkpoint_folder others(again.trainer, folder / "run");
    (void)others.resume();
    CHECK((again.trainer.progress().step == 2 || again.trainer.progress().step == 0));
  }
}

TEST_CASE("an adapter's run is saved and resumed as an adapter") {
  struct adapted : defaults {
    using adapter = lora;
  };
  const scratch_folder folder;
  const auto run = [&](std::size_t steps) {
    llama<adapted> model(small_run::sizes(), {}, {.adapter = {.rank = 2}});
    trainer trainer(model, {.max_steps = 8, .micro_batch_size = 2, .learning_rate = 1e-2});
    checkpoint_folder files(trainer, folder.path(), {.base_model = "base"});
    files.resume();
    loader rows(small_run::data(), trainer.loader_settings());
    std::stop_source stop;
    struct stopper final : observer {
      std::stop_source& source;
      std::size_t at;
      stopper(std::stop_source& s, std::size_t a) : source(s), at(a) {}
      using observer::on;
      void on(const step_done& done) override {
        if (done.step == at) source.request_stop();
      }
    } watcher(stop, steps);
    trainer.attach(watcher);
    trainer.attach(files);
    trainer.fit(rows, nullptr, stop.get_token());
    const auto values = model.parameters().trained_values().host();
    return std::vector<float>(values.begin(), values.end());
  };
  (void)run(3);
  CHECK(file_exists(folder / "checkpoint-3/adapter_model.safetensors"));
  CHECK(!file_exists(folder / "checkpoint-3/model.safetensors"));
  const auto resumed = run(8);
  const scratch_folder other;
  std::filesystem::remove_all(folder.path());
  CHECK(run(8) == resumed);
}
