#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <xtrain/front_ends/musa_demo.hpp>
#include <xtrain/recipes/recipe_type.hpp>

#include "../../../examples/log_styles_hugging_face.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
std::string text_of(std::FILE* file) {
  std::string all(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  all.resize(std::fread(all.data(), 1, all.size(), file));
  return all;
}

}  // namespace

TEST_CASE("the demo's command line") {
  const scratch_folder f;
  write(f / "train.jsonl", "{\"text\": \"a\"}\n");
  write(f / "test.jsonl", "{\"text\": \"a\"}\n");
  const auto [run, lines] = read_musa_demo({"torchrun", "--nproc_per_node=2", "main_hf.py", "--model_name_or_path", "gpt2", "--batch_size",
                                            "1", "--dataset_name_or_path", f.path()});
  CHECK(run.model.folder == "gpt2");
  CHECK(run.parallel.ranks == 2);
  CHECK(recipe_of(run).key() == "cpu-fp32-data_parallel");
  CHECK(run.micro_batch_size == 1);
  CHECK(run.epochs == 100);
  CHECK(run.seq_length == 1023);
  CHECK(run.data.front().block_size == 1024);
  CHECK(run.data.front().group_texts == 1000);
  CHECK(run.data.front().files == std::vector<std::string>{f / "train.jsonl"});
  CHECK(run.eval_data.front().files == std::vector<std::string>{f / "test.jsonl"});
  CHECK(run.output.eval_epochs);
  CHECK(run.schedule.learning_rate == 2e-4);
  CHECK(run.schedule.warmup_steps == 100);
  CHECK(run.schedule.settings == json{{"decay_epochs", 1}, {"continues", true}});
  CHECK(run.optimizer.settings.at("weight_decay") == 0.1);
  CHECK(run.optimizer.decays == "all");
  CHECK(run.optimizer.keep_gradients);
  CHECK(run.optimizer.max_grad_norm == 1.0);
  CHECK(run.objective.average == "micro_batch");
  CHECK(run.output.log_style == "musa_demo");
  CHECK(lines.empty());
  CHECK(musa_demo_texts_are_long("gpt2"));

  const auto on_device = read_musa_demo({"--device", "musa", "--dataset_name_or_path", f.path()});
  CHECK(recipe_of(on_device.run).key() == "musa-fp32");
  CHECK_THROWS_WITH_AS((void)read_musa_demo({"--device", "mps"}), "--device: must be one of cpu, cuda, npu, musa; given 'mps'", config_error);

  // datasets.load_dataset(path, config): a folder of that name
  std::filesystem::create_directory(f / "wikitext-2-raw-v1");
  write(f / "wikitext-2-raw-v1/train.txt", "a\n");
  CHECK_THROWS_WITH_AS(
      (void)read_musa_demo({"--dataset_name_or_path", f.path(), "--dataset_config_name", "wikitext-2-raw-v1"}),
      ("--dataset_name_or_path: must have files of texts whose names have train and test in them, as train.jsonl and test.jsonl; " +
       f.path() + "/wikitext-2-raw-v1 has 1 and 0")
          .c_str(),
      config_error);
  CHECK_THROWS_WITH_AS((void)read_musa_demo({"--dataset_name_or_path", "a.parquet"}),
                       "--dataset_name_or_path: must have files of texts, a .txt with one per line, .json, .jsonl or .csv; given a.parquet",
                       config_error);
  CHECK_THROWS_WITH_AS((void)read_musa_demo({"--block_size", "8"}), "--block_size: there is no such flag; did you mean --batch_size?",
                       config_error);
}

TEST_CASE("override_config.json, with the demo's warnings and its type error") {
  const scratch_folder f;
  write(f / "config.json",
        R"({"model_type": "gpt2", "attn_pdrop": 0.1, "n_layer": 12, "n_inner": null, "torch_dtype": "float32", "tie": true})");
  write(f / "tokenizer_config.json", R"({"model_max_length": 64})");
  const auto read = [&](const char* text) {
    return read_musa_demo({"--model_name_or_path", f.path(), "--dataset_name_or_path", "a.txt"}, text);
  };
  const auto [run, lines] = read(R"({"attn_pdrop": 0.0, "n_inner": 4, "n_layer": 2, "num_layers": 2, "torch_dtype": "bfloat16"})");
  CHECK(run.model.override_config ==
        json{{"attn_pdrop", 0.0}, {"n_layer", 2}, {"num_layers", 2}});  // num_layers: unknown to the family, noted
  CHECK(lines == std::vector<std::string>{"WARNING: config n_inner is set None and skip override it",
                                          "modify torch_dtype: torch.float32 -> torch.bfloat16"});
  CHECK(run.data.front().block_size == 64);
  CHECK_THROWS_WITH_AS((void)read(R"({"attn_pdrop": 0})"), "override_config.json: Type mismatch of attn_pdrop: 0.1 vs 0", config_error);
  CHECK_THROWS_WITH_AS((void)read(R"({"n_layer": 2.0})"), "override_config.json: Type mismatch of n_layer: 12 vs 2.0", config_error);
  CHECK_THROWS_WITH_AS((void)read(R"({"tie": "no"})"), "override_config.json: Type mismatch of tie: True vs no", config_error);
  CHECK_THROWS_WITH_AS((void)read("{"), doctest::Contains("override_config.json: must be JSON; line 1: "), config_error);
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  CHECK_THROWS_WITH_AS((void)read(("{\"n_layer\": " + deep + "}").c_str()), doctest::Contains("nested deeper than 128"), config_error);
  CHECK_FALSE(musa_demo_texts_are_long(f.path()));
  write(f / "config.json", R"({"model_type": "bert"})");
  CHECK_THROWS_WITH_AS((void)read(""), doctest::Contains("must be a decoder; given"), config_error);
}

TEST_CASE("numbers as Python prints them") {
  using command_line::python_number;
  CHECK(python_number(0.0) == "0.0");
  CHECK(python_number(1.0) == "1.0");
  CHECK(python_number(2e-5) == "2e-05");
  CHECK(python_number(0.0001) == "0.0001");
  CHECK(python_number(1e16) == "1e+16");
  CHECK(python_number(123456.75) == "123456.75");
  CHECK(python_number(-1.5e-7) == "-1.5e-07");
  CHECK(python_number(1e300) == "1e+300");
  CHECK(command_line::rounded_to(1.23456, 4) == 1.2346);
}

TEST_CASE("the lines of a run") {
  const auto step = [](std::size_t number, double loss) {
    return step_done{.step = number,
                     .steps = 24,
                     .epoch = static_cast<double>(number) / 12,
                     .loss = loss,
                     .learning_rate = 2e-5,
                     .gradient_norm = 0.5,
                     .seconds = 0.25};
  };
  std::FILE* const file = std::tmpfile();
  command_line::musa_demo_lines demo({.epochs = 2, .batch_size = 2, .ranks = 2, .seq_len = 16, .warnings = 1}, file);
  demo.on(run_began{.steps_per_epoch = 12, .seq_length = 7});
  for (std::size_t s = 1; s <= 13; ++s) demo.on(step(s, static_cast<double>(s)));
  demo.on(evaluation_done{.step = 12, .loss = 0.5, .targets = 63});
  CHECK(text_of(file) ==
        "WARNING: The chosen tokenizer supports a `model_max_length` that is longer than the default `block_size` value of 1024. If you would like to use a "
        "longer `block_size` up to `tokenizer.model_max_length` you can override this with `--block_size xxx`.\n"
        "seq_len = 16\n"
        "epoch[0/1], step[0/11]: train_loss: 1.0, train_tokens_throughput: 256.0 tokens/s\n"
        "epoch[0/1], step[10/11]: train_loss: 6.0, train_tokens_throughput: 256.0 tokens/s\n"
        "epoch[1/1], step[0/11]: train_loss: 13.0, train_tokens_throughput: 256.0 tokens/s\n"
        "validation in train epoch 0: eval_loss: 0.5, val_perplexity: 4.4816890703380645\n");  // 9 samples, 3 batches: e^1.5
  std::fclose(file);

  std::FILE* const log = std::tmpfile();
  command_line::hugging_face_lines trainer(2, log);
  trainer.on(run_began{.steps_per_epoch = 12, .sequences_per_step = 4});
  for (std::size_t s = 1; s <= 4; ++s) trainer.on(step(s, static_cast<double>(s)));
  trainer.on(step(5, 5.0));
  trainer.on(step(6, std::numeric_limits<double>::quiet_NaN()));  // without targets
  trainer.on(evaluation_done{.step = 4, .loss = 0.5, .seconds = 1.5});
  trainer.on(run_ended{.step = 6, .steps = 24, .seconds = 2.0});
  CHECK(text_of(log) ==
        "{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.17}\n"
        "{'loss': 3.5, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.33}\n"
        "{'loss': 5.0, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.5}\n"
        "{'eval_loss': 0.5, 'eval_runtime': 1.5, 'epoch': 0.5}\n"
        "{'train_runtime': 2.0, 'train_samples_per_second': 12.0, 'train_steps_per_second': 3.0, 'train_loss': 3.0, 'epoch': 0.5}\n");
  std::fclose(log);

  // ten micro-batches per epoch, eight per step: the second step has two
  std::FILE* const fractions = std::tmpfile();
  command_line::hugging_face_lines of_fractions(1, fractions, 10, 8);
  of_fractions.on(run_began{.steps_per_epoch = 2, .sequences_per_step = 32});
  for (std::size_t s = 1; s <= 3; ++s) of_fractions.on(step(s, 1.0));
  for (const char* epoch : {"'epoch': 0.8}\n", "'epoch': 1.0}\n", "'epoch': 1.8}\n"}) CHECK(text_of(fractions).find(epoch) != std::string::npos);
  std::fclose(fractions);
}
