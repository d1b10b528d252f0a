// The trainer of encoders, run as on a command line.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/train/checkpoint_state.hpp>

#include "program.hpp"
#include "scratch.hpp"

namespace {

using words = std::vector<std::string>;

words operator+(words left, const words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
program_result run(const words& flags) { return run_program(words{EXAMPLES "/train_encoder"} + flags); }
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A vocabulary, sizes, documents, and records labelled by their first word.
struct small_world : scratch_folder {
  words names = {"one", "two", "three", "four", "five", "six"};

  small_world() {
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", text, records;
    for (const std::string& name : names) vocabulary += name + "\n";
    std::filesystem::create_directory(*this / "words");
    put_file(*this / "words/vocab.txt", vocabulary);
    put_file(*this / "config.json",
             R"({"model_type": "bert", "vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
      "intermediate_size": 32, "max_position_embeddings": 16, "initializer_range": 0.1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})");
    for (std::size_t line = 0; line < 240; ++line) {
      for (std::size_t i = 0; i < 6; ++i) text += names[(line + i) % 6] + " ";
      text += line % 8 == 7 ? "\n\n" : "\n";
      records += xtrain::concat("{\"text\": \"", names[line % 6], " ", names[(line * 5 + 1) % 6], "\", \"label\": \"",
                                line % 6 < 3 ? "low" : "high", "\"}\n");
    }
    put_file(*this / "text.txt", text);
    put_file(*this / "records.jsonl", records);
  }
};

}  // namespace

TEST_CASE("BERT is trained on pairs, adapted to words, and labels texts; each folder leads to the next") {
  const small_world world;
  const words often = {"--learning-rate", "1e-2", "--micro-batch-size", "8", "--seed", "1"};
  const auto pairs =
      run(often + words{"--task", "pretraining", "--config", world / "config.json", "--tokenizer", world / "words", "--data",
                        world / "text.txt", "--eval-data", world / "text.txt", "--max-steps", "60", "--output-dir", world / "pretrained"});
  CAPTURE(pairs.err);
  REQUIRE(pairs.status == 0);
  CHECK(holds(pairs.err, "accuracy "));
  CHECK(holds(get_file(world / "pretrained/config.json"), "BertForPreTraining"));

  const auto found =
      run(often + words{"--model", world / "pretrained", "--data", world / "text.txt", "--line-by-line", "--whole-word-mask", "--eval-data",
                        world / "text.txt", "--max-steps", "400", "--output-dir", world / "adapted", "--add-tokens", "seven"});
  CAPTURE(found.err);
  REQUIRE(found.status == 0);
  const std::size_t at = found.err.rfind("perplexity ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(found.err.substr(at + 11)) < 4.0);  // 11 words, six of which occur, in an order that reveals the missing one
  CHECK(holds(get_file(world / "adapted/config.json"), "\"vocab_size\": 12"));

  const auto labelled = run(often + words{"--task", "classification", "--model", world / "adapted", "--data", world / "records.jsonl",
                                          "--eval-data", world / "records.jsonl", "--num-train-epochs", "3", "--output-dir", world / "labels"});
  CAPTURE(labelled.err);
  REQUIRE(labelled.status == 0);
  CHECK(holds(labelled.err, "accuracy 1.0000: 240 of 240 labels"));
  const std::string config = get_file(world / "labels/config.json");
  CHECK((holds(config, "BertForSequenceClassification") && holds(config, "\"high\"") && holds(config, "\"low\"")));
  for (const char* name : {"model.safetensors", "vocab.txt", "tokenizer.json"})
    CHECK(std::filesystem::exists(world / "labels" + "/" + name));
}

TEST_CASE("a classifier keeps the names of its labels, and is not trained for others") {
  const small_world world;
  const auto classify = [&](const std::string& model, const std::string& data, const words& more = {}) {
    return run(words{"--task", "classification", "--model", model, "--data", data, "--max-steps", "2", "--output-dir", world / "out"} + more);
  };
  REQUIRE(run({"--config", world / "config.json", "--tokenizer", world / "words", "--data", world / "text.txt", "--max-steps", "1", "--output-dir",
               world / "base"})
              .status == 0);
  put_file(world / "names.json", R"({"id2label": {"0": "pos", "1": "neg"}, "label2id": {"pos": 0, "neg": 1}})");
  std::string numbers, names, others;
  for (std::size_t line = 0; line < 24; ++line) {
    const std::string text = xtrain::concat("{\"text\": \"", world.names[line % 6], "\", \"label\": ");
    numbers += xtrain::concat(text, line % 2, "}\n");
    names += xtrain::concat(text, line % 2 == 0 ? "\"pos\"" : "\"neg\"", "}\n");
    others += xtrain::concat(text, line % 2 == 0 ? "\"good\"" : "\"bad\"", "}\n");
  }
  put_file(world / "numbers.jsonl", numbers);
  put_file(world / "labelled.jsonl", names);
  put_file(world / "others.jsonl", others);
  const auto named = classify(world / "base", world / "numbers.jsonl",
                              {"--override-config", world / "names.json", "--eval-data", world / "labelled.jsonl"});
  CAPTURE(named.err);
  REQUIRE(named.status == 0);
  CHECK(holds(get_file(world / "out/config.json"), "\"0\": \"pos\""));
  const std::string weights = get_file(world / "out/model.safetensors");
  std::filesystem::rename(world / "out", world / "trained");
  REQUIRE(classify(world / "base", world / "labelled.jsonl", {"--override-config", world / "names.json"}).status == 0);
  CHECK(get_file(world / "out/model.safetensors") == weights);  // number 0 is the first name
  std::filesystem::remove_all(world / "out");

  REQUIRE(classify(world / "trained", world / "numbers.jsonl").status == 0);
  CHECK(holds(get_file(world / "out/config.json"), "\"0\": \"pos\""));
  std::filesystem::remove_all(world / "out");
  const auto unknown = classify(world / "trained", world / "others.jsonl");
  CAPTURE(unknown.err);
  CHECK(unknown.status == 1);
  CHECK(holds(unknown.err, "line 1: 'label' must be one of the 2 labels that are known, the first of them 'pos'; given 'good'"));
  put_file(world / "three.json", R"({"id2label": {"0": "a", "1": "b", "2": "c"}})");
  const auto three = classify(world / "trained", world / "numbers.jsonl", {"--override-config", world / "three.json"});
  CAPTURE(three.err);
  CHECK(three.status == 2);
  CHECK(holds(three.err, "id2label must name the 2 rows of classifier.weight; it has 3 names"));
}

TEST_CASE("a run that was stopped goes on with the words that were to be masked, to the same weights") {
  const small_world world;
  const words flags = {"--config", world / "config.json", "--tokenizer", world / "words", "--data", world / "text.txt", "--micro-batch-size", "8"};
  REQUIRE(run(flags + words{"--max-steps", "20", "--lr-scheduler-type", "constant", "--output-dir", world / "whole"}).status == 0);
  REQUIRE(run(flags + words{"--max-steps", "13", "--lr-scheduler-type", "constant", "--save-steps", "13", "--output-dir", world / "halves"}).status == 0);
  const auto rest = run(flags + words{"--max-steps", "20", "--lr-scheduler-type", "constant", "--resume", "--output-dir", world / "halves"});
  CAPTURE(rest.err);
  REQUIRE(rest.status == 0);
  CHECK(holds(rest.err, "resuming after step 13"));
  CHECK(get_file(world / "halves/model.safetensors") == get_file(world / "whole/model.safetensors"));
}

TEST_CASE("a run that is killed is restarted from its checkpoint, written while it trained, to the same weights") {
  const small_world world;
  const words flags = {"--config", world / "config.json", "--tokenizer", world / "words", "--data",       world / "text.txt", "--micro-batch-size", "8",
                       "--max-steps", "1500", "--save-steps", "50", "--save-total-limit", "2", "--async-save"};
  REQUIRE(run(flags + words{"--output-dir", world / "whole"}).status == 0);
  running_program watched(words{EXAMPLES "/train_encoder"} + flags + words{"--output-dir", world / "killed", "--max-restarts", "1"});
  while (!watched.ended()) {
    const std::string children = get_file(xtrain::concat("/proc/", watched.id(), "/task/", watched.id(), "/children"));
    if (!children.empty() && !xtrain::checkpoints_in(world / "killed").empty()) {
      ::kill(static_cast<pid_t>(std::stol(children)), SIGKILL);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto result = watched.wait();
  CAPTURE(result.err);
  CHECK(result.status == 0);
  CHECK(holds(result.err, "train_encoder: the run was killed by signal 9 (Killed); restarted, 1 of 1, from step "));
  CHECK(get_file(world / "killed/model.safetensors") == get_file(world / "whole/model.safetensors"));
}

TEST_CASE("what an encoder's command line lacks is said") {
  const small_world world;
  const auto refused = [&](const words& flags, const std::string& part, int status = 2) {
    const auto result = run(flags + words{"--output-dir", world / "x"});
    CAPTURE(result.err);
    CHECK(result.status == status);
    CHECK(holds(result.err, part));
  };
  refused({"--data", world / "text.txt"}, "--model or --config: one of them must be given");
  refused({"--data", world / "text.txt", "--config", world / "config.json"}, "--tokenizer: must be given beside --config");
  refused({"--task", "clasification", "--data", "x"}, "did you mean 'classification'?");
  const words fresh = {"--config", world / "config.json", "--tokenizer", world / "words"};
  refused(fresh + words{"--task", "classification", "--data", world / "text.txt"}, "--data " + world / "text.txt", 1);
  refused(fresh + words{"--data", world / "text.txt", "--max-restarts", "1"}, "--max-restarts: needs --output-dir and --save-steps");
  refused(fresh + words{"--data", world / "text.txt", "--seq-length", "2"}, "seq_length must be given, and more than 3 tokens; given 2");
  refused(fresh + words{"--data", world / "text.txt", "--seq-length", "17"}, "seq_length: must not be longer than the model's 16");
  const words text = fresh + words{"--data", world / "text.txt"};
  refused(text + words{"--label-field", "class"}, "--label-field: needs --task classification; it is masked-lm");
  refused(text + words{"--task", "classification", "--whole-word-mask"}, "--whole-word-mask: needs a text whose tokens are masked; --task is classification");
  refused(text + words{"--eval-steps", "2"}, "--eval-steps 2: needs data to evaluate; give --eval-data");
  CHECK_FALSE(std::filesystem::exists(world / "x"));
}
