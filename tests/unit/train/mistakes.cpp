// Usual mistakes of users' programs, and their messages, which the page's table repeats.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text.hpp>
#include "page.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {};
struct adapted_recipe : defaults {
  using adapter = lora;
};
using model_type = llama<recipe>;
using trainer_type = trainer<shared_model<model_type>>;

/// An objective whose state sets nothing.
struct idle : next_token {
  static constexpr std::string_view name = "idle";
  using hooks = xtrain::hooks<>;
  template <class Recipe>
  struct state {
    template <class Context>
    state(const config&, const Context&, const objective_sizes&) {}
    void prepare(pass<Recipe>&, std::size_t) {}
  };
};
struct idle_recipe : defaults {
  using objective = idle;
};

/// An adapter that saves activations: surrounding layers would pop them.
struct saving : no_adapter {
  static constexpr std::string_view name = "saving";
  template <class Recipe>
  struct on_linear : no_adapter::on_linear<Recipe> {
    template <class Pass, class X, class Y>
    void forward(Pass& p, const X& x, const Y&) const {
      (void)p.save(x.shape(0), 3);
    }
    template <class Pass, class X, class DY, class DX>
    void backward(Pass& p, const X& x, const DY&, const DX&) const {
      (void)p.pop_saved(x.shape(0), 3);
    }
  };
};
struct saving_recipe : defaults {
  using adapter = saving;
};

decoder_config sizes() {
  return {.vocab_size = 31, .hidden_size = 16, .num_layers = 1, .num_heads = 2, .intermediate_size = 24, .max_position_embeddings = 12};
}
training_config<adamw> settings() {
  return {.max_steps = 2, .micro_batch_size = 2, .seq_length = 8, .learning_rate = 1e-2};
}
host_batch rows(std::size_t b, std::size_t t, token first = 3) {
  host_batch all{.b = b, .t = t, .tokens = std::vector<token>(b * t, first), .targets = std::vector<token>(b * t, 4)};
  for (std::size_t i = 0; i < b * t; ++i) all.positions.push_back(static_cast<token>(i % t));
  all.target_count = all.token_count = b * t;
  return all;
}
const dataset& numbers() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 100; ++i) tokens.push_back(i * i % 31);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

/// The page's message column, without quotation marks.
const std::vector<std::string>& messages() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> found;
    for (const page_row& row : rows_of_page(XTRAIN_SOURCE "/include/xtrain/train/README.md"))
      if (row.section == "Mistakes and their messages" && row.cells.size() == 2 && row.cells[1].starts_with('`'))
        found.push_back(row.cells[1].substr(1, row.cells[1].size() - 2));
    return found;
  }();
  return all;
}
/// The error begins with a message of the page, where "..." stands for a value, and contains `detail`.
template <class Error, class Do>
void told(Do&& mistake, std::string_view detail = "") {
  std::string said;
  try {
    mistake();
  } catch (const Error& problem) {
    said = problem.what();
  }
  REQUIRE_MESSAGE(!said.empty(), "nothing was thrown, or another type");
  const auto matches = [&](const std::string& message) {
    std::size_t at = 0;
    for (std::size_t begin = 0; begin <= message.size();) {
      const std::size_t end = std::min(message.find("...", begin), message.size());
      const std::size_t found = said.find(message.substr(begin, end - begin), at);
      if (found == std::string::npos) return false;
      at = found + end - begin;
      begin = end + 3;
    }
    return true;
  };
  CHECK_MESSAGE(std::any_of(messages().begin(), messages().end(), matches), "no row of the page's table for: ", said);
  CHECK_MESSAGE(said.find(detail) != std::string::npos, said);
}

}  // namespace

TEST_CASE("a model that was moved or destroyed, and what was made for it") {
  std::optional<trainer_type> late;
  std::optional<generator<computed_model<model_type>>> texts;
  {
    model_type first(sizes());
    late.emplace(first, settings());
    texts.emplace(first, 1);
    late->fit(numbers());
    (void)texts->generate({1, 2}, {.max_new_tokens = 1});
    const model_type second = std::move(first);
    told<config_error>([&] { late->fit(numbers()); }, "the model has been moved");
    told<config_error>([&] { (void)late->evaluate(numbers()); });
    told<config_error>([&] { (void)late->model(); });
    told<config_error>([&] { (void)texts->generate({1, 2}, {}); }, "generator: its model must stay where it was when the generator was made");
    told<error>([&] { (void)trainer_type(first, settings()); });  // NOLINT(bugprone-use-after-move)
    told<error>([&] { (void)logits(first, rows(1, 1)); });
  }
  told<config_error>([&] { late->fit(numbers()); }, "the model has been destroyed");
  told<config_error>([&] { (void)texts->generate({1, 2}, {}); }, "the model has been destroyed");
}

TEST_CASE("a trainer and a generator that were moved from say so") {
  model_type model(sizes());
  trainer_type first(model, settings());
  trainer_type second = std::move(first);
  told<error>([&] { first.fit(numbers()); }, "trainer: must not be used");  // NOLINT(bugprone-use-after-move)
  second.fit(numbers());
  CHECK(second.progress().step == 2);
  generator<computed_model<model_type>> texts(model, 1);
  auto more_texts = std::move(texts);
  told<error>([&] { (void)texts.generate({1, 2}, {}); }, "generator: must not be used");  // NOLINT(bugprone-use-after-move)
  CHECK(more_texts.generate({1, 2}, {.max_new_tokens = 1}).size() == 1);
}

TEST_CASE("a dataset that is moved or destroyed while a loader reads it") {
  const auto sentences = [] {
    sentence_dataset all("sentences");
    for (token i = 0; i < 4; ++i) all.add({.tokens = {1, 2, i}, .label = i % 2});
    all.finish();
    CHECK_THROWS_WITH_AS(all.add({.tokens = {1, 2, 3}, .maskable = {true}}),
                         "sentences: maskable and continues must be empty or have a value for each of the 3 tokens; given 1", data_error);
    return all;
  };
  const loader_config how{.micro_batch_size = 2, .seq_length = 8};
  const auto copy = [] {
    dataset all("numbers", sequence_layout::stream);
    std::vector<token> tokens(2000, 3);
    all.add(tokens);
    all.finish();
    return all;
  };
  std::optional<dataset> data = copy();
  loader rows(*data, how);
  for (int i = 0; i < 3; ++i) (void)rows.next();  // the next step is prepared meanwhile
  dataset moved = std::move(*data);
  told<config_error>([&] { (void)rows.next(); }, "loader: its dataset must stay where it was when the loader was made; the dataset has been moved");
  told<config_error>([&] { (void)rows.data(); }, "has been moved");
  told<error>([&] { const loader none(*data, how); }, "dataset: must not be used after it was moved from");
  *data = std::move(moved);  // same position
  std::vector<host_batch> batches;
  rows.fill({}, batches);
  CHECK(batches.size() == 1);
  *data = copy();
  told<config_error>([&] { (void)rows.next(); }, "destroyed or assigned to");

  loader others(*data, how);
  (void)others.next();
  data.reset();
  told<config_error>([&] { (void)others.next(); }, "destroyed or assigned to");
  told<config_error>([&] { others.fill({}, batches); }, "destroyed or assigned to");

  std::optional<sentence_dataset> of_sentences = sentences();
  sentence_loader first(*of_sentences, how);
  sentence_loader pairs = std::move(first);
  told<error>([&] { (void)first.next(); }, "use the sentence_loader that it was moved to");  // NOLINT(bugprone-use-after-move)
  (void)pairs.next();
  const sentence_dataset elsewhere = std::move(*of_sentences);
  told<config_error>([&] { (void)pairs.next(); }, "sentence_loader: its dataset must stay where it was");
  told<error>([&] { const sentence_loader none(*of_sentences, how); }, "must not be used after it was moved from");
  of_sentences.reset();
  CHECK(elsewhere.size() == 4);
}

TEST_CASE("a dataset may end while its loader prepares the next step") {
  for (int i = 0; i < 50; ++i) {
    std::optional<dataset> data;
    data.emplace("zeros", sequence_layout::stream);
    data->add(std::vector<token>(5000, 0));
    data->finish();
    loader rows(*data, {.micro_batch_size = 64, .gradient_accumulation_steps = 8, .seq_length = 8});
    (void)rows.next();
    data.reset();  // waits for the thread that reads
    told<config_error>([&] { (void)rows.next(); }, "destroyed");
  }
}

TEST_CASE("a model that another was assigned to") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  model = model_type(sizes());
  told<config_error>([&] { trainer.fit(numbers()); }, "destroyed or assigned to");
}

TEST_CASE("an observer is attached once, until it is destroyed, also when it is assigned to") {
  struct counting final : observer {
    using observer::on;
    explicit counting(std::size_t& to) : count(&to) {}
    void on(const step_done&) override { ++*count; }
    std::size_t* count;
  };
  model_type model(sizes());
  trainer_type trainer(model, settings());
  std::size_t short_lived = 0, assigned = 0, assigned_to = 0;
  counting stays(assigned);
  trainer.attach(stays);
  trainer.attach(stays);
  {
    counting goes(short_lived);
    trainer.attach(goes);
    trainer.fit(numbers());
  }
  stays = counting(assigned_to);
  trainer.fit(numbers());
  CHECK(short_lived == 2);
  CHECK(assigned == 2);
  CHECK(assigned_to == 2);
  {
    const scratch_folder folder;
    checkpoint_folder checkpoints(trainer, folder.path(), {.save_steps = 1});
    trainer.attach(checkpoints);
  }
  trainer.fit(numbers());
  CHECK(assigned_to == 4);
}

TEST_CASE("trainers of several threads share an observer") {
  struct counting final : observer {
    using observer::on;
    void on(const step_done&) override { ++count; }
    std::atomic<std::size_t> count = 0;
  };
  counting all;
  std::atomic<std::size_t> here = 0;
  run_ranks(2, [&](const std::shared_ptr<transport>&) {
    model_type model(sizes());
    trainer_type trainer(model, settings());
    ++here;
    while (here < 2) std::this_thread::yield();
    trainer.attach(all);
    trainer.fit(numbers());
  });
  CHECK(all.count == 4);
}

TEST_CASE("objects with a lifetime() that is something else are not watched") {
  struct other {
    [[nodiscard]] double lifetime() const { return 1.0; }
  };
  const detail::watched life{other{}};
  CHECK_FALSE(life.is_destroyed());
  CHECK(life.is_unmoved());
}

TEST_CASE("an observer that trains or resumes") {
  struct meddling final : observer {
    using observer::on;
    explicit meddling(std::function<void()> then) : work(std::move(then)) {}
    void on(const step_done& done) override {
      if (done.step == 1) work();
    }
    std::function<void()> work;
  };
  const scratch_folder folder;
  model_type model(sizes());
  trainer_type trainer(model, settings());
  checkpoint_folder checkpoints(trainer, folder.path());
  (void)checkpoints.save();
  const auto meddles = [&](std::string_view what, std::function<void()> work) {
    meddling watcher([&] { told<config_error>(work, what); });
    trainer.attach(watcher);
    trainer.fit(numbers());
    CHECK(trainer.progress().step == 2);
  };
  meddles("trainer: fit() must not be called in an observer", [&] { trainer.fit(numbers()); });
  meddles("trainer: step() must not", [&] { (void)trainer.step(rows(1, 8), 1e-2); });
  meddles("trainer: step() must not", [&] { trainer.queue_step(std::vector{rows(1, 8)}, 1e-2); });
  meddles("checkpoint_folder: resume() must not", [&] {
    const double before = trainer.evaluate(numbers()).loss;
    try {
      (void)checkpoints.resume();
    } catch (...) {
      CHECK(trainer.evaluate(numbers()).loss == before);
      throw;
    }
  });
  meddles("trainer: restore() must not", [&] { trainer.restore({}); });
  auto late = settings();
  late.late_metrics = true;
  trainer_type ahead(model, late);
  meddling finishes([&] { told<config_error>([&] { (void)ahead.finish_step(); }, "trainer: finish_step() must not"); });
  ahead.attach(finishes);
  ahead.fit(numbers());
  double loss = 0;
  meddling evaluates([&] {
    loss = trainer.evaluate(numbers()).loss;
    trainer.save(folder / "model");
    (void)checkpoints.save();
  });
  trainer.attach(evaluates);
  trainer.fit(numbers());
  CHECK(loss > 0);
  CHECK(std::filesystem::exists(folder / "checkpoint-1"));
}

TEST_CASE("a model that two threads use at once") {
  model_type model(sizes());
  trainer_type trainer(model, settings()), second(model, settings());
  generator<computed_model<model_type>> texts(model, 1);
  const auto on_another_thread = [](const auto& work) { std::thread([&] { told<config_error>(work, "must be used by one thread at a time"); }).join(); };
  std::size_t calls = 0;
  const auto meanwhile = [&](std::size_t, token) {
    ++calls;
    on_another_thread([&] { trainer.fit(numbers()); });
    on_another_thread([&] { (void)second.step(rows(1, 8), 1e-2); });
    on_another_thread([&] { (void)trainer.evaluate(numbers()); });
    on_another_thread([&] { (void)texts.generate({1, 2}, {.max_new_tokens = 1}); });
    on_another_thread([&] { (void)logits(model, rows(1, 1)); });
    (void)second.step(rows(1, 8), 1e-2);  // on the thread that generates
    told<config_error>([&] { (void)texts.generate({1, 2}, {.max_new_tokens = 1}); }, "generator: must not be called in its own on_token");
    return true;
  };
  (void)texts.generate({1, 2}, {.max_new_tokens = 1, .on_token = meanwhile});
  CHECK(calls == 1);
  std::thread([&] { trainer.fit(numbers()); }).join();  // threads may take turns
  second.fit(numbers());
  CHECK(second.progress().step == 2);
}

TEST_CASE("evaluations without data to evaluate") {
  model_type model(sizes());
  auto each = settings();
  each.eval_steps = 1;
  trainer_type trainer(model, each);
  told<config_error>([&] { trainer.fit(numbers()); }, "eval_steps must be 0 in a fit() without held-out data; given 1");
  trainer.fit(numbers(), &numbers());
  CHECK(trainer.progress().step == 2);
}

TEST_CASE("a batch whose targets are its tokens") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  const auto batch = [](std::vector<token> tokens, std::vector<token> targets, std::vector<token> starts = {}) {
    host_batch all{.b = 1, .t = tokens.size(), .tokens = std::move(tokens), .targets = std::move(targets), .starts = std::move(starts)};
    for (std::size_t i = 0; i < all.t; ++i) all.positions.push_back(static_cast<token>(all.starts.empty() ? i : i - static_cast<std::size_t>(all.starts[i])));
    all.target_count = static_cast<std::size_t>(std::count_if(all.targets.begin(), all.targets.end(), [](token one) { return one >= 0; }));
    all.token_count = all.t;
    return all;
  };
  const auto unshifted = batch({1, 2, 3, 4}, {-100, 2, 3, 4});
  told<data_error>([&] { (void)trainer.step(unshifted, 1e-2); }, "all targets of a micro-batch are its own tokens");
  told<data_error>([&] { (void)trainer.step(std::vector{rows(1, 4), unshifted}, 1e-2); });
  CHECK(trainer.progress().step == 0);
  for (const host_batch& good : {batch({1, 2, 3, 4}, {2, 3, 4, 5}), batch({5, 5, 5, 5}, {5, 5, 5, 5}), batch({1, 2, 2, 3}, {-100, 2, -100, -100}),
                                 batch({1, 1, 2, 2}, {1, 1, 2, 2}, {0, 0, 2, 2}), batch({1, 2, 3, 4}, {1, 2, 3, 5}),
                                 batch({7, 2, 0, 0}, {-100, 2, -100, -100})})
    (void)trainer.step(good, 1e-2);
  CHECK(trainer.progress().step == 6);
  auto copies = settings();
  copies.check_targets = false;
  trainer_type that_copies(model, copies);
  (void)that_copies.step(unshifted, 1e-2);
}

TEST_CASE("checkpoints of a trainer that is gone") {
  const scratch_folder folder;
  model_type model(sizes());
  std::optional<trainer_type> trainer;
  trainer.emplace(model, settings());
  checkpoint_folder checkpoints(*trainer, folder.path());
  const std::string saved = checkpoints.save();
  trainer.reset();
  told<config_error>([&] { (void)checkpoints.save(); }, "its trainer");
  told<config_error>([&] { (void)checkpoints.resume(); }, "its trainer");
  told<config_error>([&] { checkpoints.resume_from(saved); }, "its trainer");
}

TEST_CASE("a checkpoint folder that is not attached") {
  const scratch_folder folder;
  model_type model(sizes());
  trainer_type trainer(model, settings());
  {
    checkpoint_folder checkpoints(trainer, folder / "run", {.save_steps = 1});
    told<config_error>([&] { trainer.fit(numbers()); }, "the checkpoint_folder '" + (folder / "run") + "' with save_steps 1 must be attached before fit()");
    trainer.attach(checkpoints);
    trainer.fit(numbers());
    CHECK(std::filesystem::exists(folder / "run/checkpoint-2"));
  }
  trainer.fit(numbers());  // a moved-from loader
  checkpoint_folder by_hand(trainer, folder / "run");
  trainer.fit(numbers());
  (void)by_hand.save();
}

TEST_CASE("a checkpoint that is written in the background needs neither trainer nor model") {
  for (int i = 0; i < 10; ++i) {
    const scratch_folder folder;
    {
      std::optional<model_type> model(sizes());
      std::optional<trainer_type> trainer;
      trainer.emplace(*model, settings());
      checkpoint_folder checkpoints(*trainer, folder.path(), {.asynchronous = true});
      trainer->fit(numbers());
      (void)checkpoints.save();
      trainer.reset();
      model.reset();
    }
    model_type model(sizes());
    trainer_type trainer(model, settings());
    checkpoint_folder checkpoints(trainer, folder.path());
    CHECK(checkpoints.resume());
    CHECK(trainer.progress().step == 2);
  }
}

TEST_CASE("a step takes a span, a vector, or one batch") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  const std::vector<host_batch> one{rows(2, 8)};
  CHECK(trainer.step(one, 0.0).loss == trainer.step(std::span(one), 0.0).loss);
  CHECK(trainer.step(one, 0.0).loss == trainer.step(one.front(), 0.0).loss);
  trainer.queue_step(one, 0.0);
  CHECK(trainer.finish_step().step == 5);
}

TEST_CASE("an adapter that saves activations") {
  llama<saving_recipe> model(sizes(), {}, {.adapter = {}});
  told<config_error>([&] { (void)trainer(model, {.max_steps = 1, .micro_batch_size = 2}); }, "adapter 'saving': forward() of on_linear must not save");
}

TEST_CASE("a step with other rows than the trainer was made for") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  const auto step = [&](const host_batch& batch) { (void)trainer.step(std::span(&batch, 1), 1e-2); };
  told<shape_error>([&] { step(rows(1, 9)); }, "8 tokens; given 9");
  told<shape_error>([&] { step(rows(3, 8)); }, "16; given 3 sequences of 8");
  told<data_error>([&] { step(rows(1, 8, 31)); }, "vocabulary of 31; given 31");
  told<data_error>([&] { (void)trainer.step(std::span<const host_batch>(), 1e-2); });
  for (const double rate : {std::numeric_limits<double>::quiet_NaN(), -1.0, std::numeric_limits<double>::infinity()}) {
    const host_batch good = rows(1, 8);
    told<config_error>([&] { (void)trainer.step(std::span(&good, 1), rate); });
    auto wrong = settings();
    wrong.learning_rate = rate;
    told<config_error>([&] { (void)trainer_type(model, wrong); });
  }
  step(rows(2, 8));
  CHECK(trainer.progress().step == 1);
}

TEST_CASE("an objective that prepares nothing") {
  llama<idle_recipe> model(sizes());
  told<config_error>([&] { (void)trainer(model, {.max_steps = 1, .micro_batch_size = 2}); }, "idle: ");
}

TEST_CASE("a recipe's members under other names") {
  std::ifstream source(XTRAIN_SOURCE "/tests/compile_fail/recipe_with_other_name.cpp");
  std::string line;
  std::size_t said = 0;
  const std::string words = "// says: ";
  while (std::getline(source, line))
    if (line.starts_with(words) && std::any_of(messages().begin(), messages().end(), [&](const std::string& message) {
          const std::size_t end = message.find("...");
          return line.substr(words.size()).starts_with(message.substr(0, end));
        }))
      ++said;
  CHECK(said == 3);
}

TEST_CASE("a save that cannot be leaves everything as it was, and the trainer goes on") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  const scratch_folder tokenizer, to;
  byte_tokenizer().save(tokenizer.path());
  told<config_error>([&] { trainer.save(to / "model", save_options{.tokenizer_from = tokenizer.path()}); }, "vocabulary of 31 tokens; it has 257");
  told<config_error>([&] { (void)checkpoint_folder(trainer, to / "run", {.tokenizer_from = tokenizer.path()}); }, "vocabulary of 31 tokens; it has 257");
  CHECK(to.files().empty());

  std::ofstream(to / "config.json") << R"({"model_type": "gpt2"})";
  std::ofstream(to / "model.safetensors") << "weights";
  told<config_error>([&] { trainer.save(to.path()); }, "model_type 'gpt2', and the model saved is 'llama'");
  CHECK(to.files() == std::vector<std::string>{"config.json", "model.safetensors"});
  CHECK(mapped_file(to / "model.safetensors").text() == "weights");

  trainer.fit(numbers());
  trainer.save(to / "model");
  trainer.save(to / "model");  // same family: replaced
  CHECK(model_type::from_pretrained(to / "model").config().vocab_size == 31);
}

TEST_CASE("an adapter without its base model") {
  llama<adapted_recipe> model(sizes(), {}, {.adapter = {.rank = 2}});
  const scratch_folder to, tokenizer;
  byte_tokenizer().save(tokenizer.path());
  told<config_error>([&] { save_pretrained(model, to.path(), save_adapter_options{.tokenizer_from = tokenizer.path()}); }, "it has 257");
  CHECK(to.files().empty());
  save_pretrained(model, to.path());
  CHECK(read_json(to / "adapter_config.json").at("base_model_name_or_path").is_null());  // as PEFT writes it
  load_adapter(model, to.path());
  told<file_error>([&] { (void)model_type::from_pretrained(to.path()); });
}

TEST_CASE("a folder or file that is not there, or is another") {
  const scratch_folder folder;
  told<file_error>([&] { (void)model_type::from_pretrained(folder / "none"); }, "no such folder");
  std::filesystem::create_directory(folder / "checkpoint-7");
  told<file_error>([&] { (void)model_type::from_pretrained(folder.path()); }, "checkpoint-7");
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2"})";
  told<config_error>([&] { (void)model_type::from_pretrained(folder.path()); }, "'gpt2'");
  told<file_error>([&] { (void)text_dataset(folder / "none.txt", byte_tokenizer()); }, "none.txt");
  told<file_error>([&] { (void)load_tokenizer(folder / "none"); }, "none");
}

TEST_CASE("a dataset, an adapter and a limit of memory that do not fit the model") {
  model_type model(sizes());
  trainer_type trainer(model, settings());
  const auto samples = [](std::size_t length, token value) {
    dataset all("rows", sequence_layout::separate);
    all.add(std::vector<token>(length, value));
    return all;
  };
  dataset unfinished = samples(4, 3), too_long = samples(20, 3), of_other_words = samples(4, 31);
  told<error>([&] { trainer.fit(unfinished); }, "rows: finish() must be called");
  too_long.finish();
  told<error>([&] { trainer.fit(too_long); }, "sample 1 has 20. Raise the sequence length, or set the data's when_too_long to overlong::truncate");
  of_other_words.finish();
  told<error>([&] { trainer.fit(of_other_words); }, "token 31 occurs");

  const scratch_folder folder;
  using adapted_model = llama<adapted_recipe>;
  save_pretrained(adapted_model(sizes(), {}, {.adapter = {.rank = 4}}), folder.path());
  adapted_model other(sizes(), {}, {.adapter = {.rank = 8}});
  told<error>([&] { load_adapter(other, folder.path()); }, "rank must be the model's 8; the adapter has 4");

  model_type small(sizes(), cpu::context({.memory_limit = std::size_t{1} << 16}));
  told<memory_error>([&] { (void)trainer_type(small, settings()); }, "64.00 KiB");
}
