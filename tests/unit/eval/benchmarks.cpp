// Benchmarks: log-likelihoods, answers and metrics of lm-evaluation-harness (tests/golden/make_benchmarks.py).
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/text.hpp>

#include <xtrain/core/json.hpp>
#include <xtrain/eval/answer_filter.hpp>
#include <xtrain/eval/benchmark.hpp>
#include <xtrain/eval/log_likelihood.hpp>
#include <xtrain/eval/math_answer.hpp>
#include <xtrain/eval/python_random.hpp>
#include <xtrain/eval/wikitext103.hpp>
#include <xtrain/train/forward_only.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {};
using model_type = llama<recipe>;
using passes_type = forward_only<shared_model<model_type>>;
using generator_type = generator<shared_model<model_type>>;

const std::string golden = XTRAIN_GOLDEN "/benchmarks";

const json& expected() {
  static const json all = read_json(golden + "/expected.json");
  return all;
}

/// A model and its evaluator, for batches of this size.
struct evaluated {
  explicit evaluated(std::size_t batch_size, std::size_t seq_length = 0)
      : model(model_type::from_pretrained(golden + "/model")), passes(model, {.micro_batch_size = batch_size, .seq_length = seq_length}), scorer(passes),
        seen(scorer, batch_size, [this, batch_size] { return std::make_unique<generator_type>(model, batch_size, scorer.max_length()); }),
        evaluator(seen, load_tokenizer(golden + "/model"), model.config().eos) {}

  using make_generator = std::function<std::unique_ptr<generator_type>()>;
  model_type model;
  passes_type passes;
  log_likelihood_scorer<passes_type> scorer;
  scored_language_model<log_likelihood_scorer<passes_type>, make_generator> seen;
  text_evaluator evaluator;
};

benchmark_task task_of(const std::string& name) { return benchmark_tasks_named(name).front(); }

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const error& problem) {
    return problem.what();
  }
  return {};
}

}

TEST_CASE("benchmarks have the log-likelihoods, answers and metrics of lm-evaluation-harness, whatever the batch size") {
  for (const std::size_t batch_size : {1U, 3U}) {
    evaluated on(batch_size);
    for (const auto& task : expected()["tasks"].items()) {
      const std::string& name = task.key();
      const json& wanted = task.value();
      CAPTURE(name);
      const benchmark_result result = run_benchmark(on.evaluator, task_of(name), {.data_dir = golden + "/data",
                                                                                  .num_fewshot = wanted["num_fewshot"].get<std::size_t>(),
                                                                                  .max_gen_toks = 12,
                                                                                  .log_samples = true});
      const json& responses = wanted["resps"];
      REQUIRE(result.samples.size() == responses.size());
      for (std::size_t i = 0; i < responses.size(); ++i) {
        const json sample = json::parse(result.samples[i]);
        const json& own = sample["resps"];
        CAPTURE(i);
        REQUIRE(own.size() == responses[i].size());
        for (std::size_t k = 0; k < own.size(); ++k) {
          const json& theirs = responses[i][k];
          // reference: sums of fp32 log-probabilities: 2^-24 of the sum, times the square root of the number of tokens
          const auto same = [](double a, double b) { return std::abs(a - b) < 1e-4 + 1e-6 * std::abs(b); };
          if (theirs.is_array()) {
            CHECK(same(own[k][0].get<double>(), theirs[0].get<double>()));
            CHECK(own[k][1] == theirs[1]);
          } else if (theirs.is_number()) {
            CHECK(same(own[k].get<double>(), theirs.get<double>()));
          } else {
            CHECK(own[k] == theirs);
          }
        }
      }
      const json all = json::parse(benchmark_json(std::span(&result, 1)));
      for (const auto& one : wanted["metrics"].items()) {
        const std::string& metric = one.key();
        const json& value = one.value();
        CAPTURE(metric);
        const json& own = all["results"][name][metric];
        if (value.is_number()) CHECK(own.get<double>() == doctest::Approx(value.get<double>()).epsilon(1e-4));
        else CHECK(own == value);
      }
    }
  }
}

TEST_CASE("TruthfulQA's numbers are lm-evaluation-harness's own of the same log-likelihoods") {
  /// Returns the outputs of lm-evaluation-harness's model.
  struct recited final : language_model {
    std::vector<double> says{};
    std::vector<token_score> score(std::span<const token_request> requests) override {
      std::vector<token_score> all;
      for (std::size_t i = 0; i < requests.size(); ++i) all.push_back({says[i], false});
      return all;
    }
    std::vector<std::vector<token>> generate(std::span<const std::vector<token>>, const continuation_settings&) override { return {}; }
    [[nodiscard]] std::size_t max_length() const override { return 2048; }
    [[nodiscard]] std::size_t batch_size() const override { return 1; }
  } model;
  const text_evaluator evaluator(model, load_tokenizer(golden + "/model"));
  // the dataset's file, its records as a list, and the authors' file, whose choices are in file order
  const scratch_folder scratch;
  make_folder(scratch / "lists/truthfulqa"), make_folder(scratch / "authors/truthfulqa");
  std::string list, authors;
  const std::string lines = get_file(golden + "/data/truthfulqa/validation.jsonl");
  for (std::size_t begin = 0; begin < lines.size(); begin = lines.find('\n', begin) + 1) {
    const std::string line = lines.substr(begin, lines.find('\n', begin) - begin);
    list += (begin == 0 ? "[" : ",\n") + line;
    const json record = json::parse(line);
    authors += (begin == 0 ? "[\n {\"question\": " : ",\n {\"question\": ") + record["question"].dump();
    for (const char* field : {"mc1_targets", "mc2_targets"}) {
      authors += concat(",\n  \"", field, "\": {");
      for (std::size_t i = 0; i < record[field]["choices"].size(); ++i)
        authors += concat(i > 0 ? "," : "", "\n   ", record[field]["choices"][i].dump(), ": ", record[field]["labels"][i].dump());
      authors += "}";
    }
    authors += "}";
  }
  put_file(scratch / "lists/truthfulqa/validation.json", list + "]\n");
  put_file(scratch / "authors/truthfulqa/mc_task.json", authors + "\n]\n");
  for (const char* name : {"truthfulqa_mc1", "truthfulqa_mc2"}) {
    const json& wanted = expected()["tasks"][name];
    model.says.clear();
    for (const json& document : wanted["resps"])
      for (const json& choice : document) model.says.push_back(choice[0].get<double>());
    const benchmark_task task = task_of(name);
    const auto documents = read_documents(task, golden + "/data");
    CHECK(benchmark_prompts(task, documents, {}) == wanted["prompts"].get<std::vector<std::string>>());
    for (const std::string& folder : {golden + "/data", scratch / "lists", scratch / "authors"}) {
      CAPTURE(folder);
      CHECK(read_documents(task, folder) == documents);
      const auto result = run_benchmark(evaluator, task, {.data_dir = folder});
      REQUIRE(result.metrics.size() == 1);
      // sums of at most 5 numbers, in another order: roundings of 2^-53
      CHECK(result.metrics[0].value == doctest::Approx(wanted["metrics"]["acc,none"].get<double>()).epsilon(2e-15));
      CHECK(*result.metrics[0].standard_error == doctest::Approx(wanted["metrics"]["acc_stderr,none"].get<double>()).epsilon(4e-15));
    }
    // all e^ll are 0 in fp64
    for (double& ll : model.says) ll -= 1000;
    const auto result = run_benchmark(evaluator, task, {.data_dir = golden + "/data"});
    CHECK(result.metrics[0].value == doctest::Approx(wanted["metrics"]["acc,none"].get<double>()).epsilon(1e-12));
  }
  CHECK(error_of([] { (void)benchmark_tasks_named("truthfulqa"); }).starts_with("there is no task or group 'truthfulqa'"));
}

TEST_CASE("answers are found as by the regular expressions of lm-evaluation-harness") {
  for (const json& one : expected()["filters"]) {
    const std::string text = one[0].get<std::string>();
    CAPTURE(text);
    CHECK(answer::after_hashes(text) == one[1].get<std::string>());
    CHECK(answer::number_of_sentence(text) == one[2].get<std::string>());
    CHECK(answer::last_number(text) == one[3].get<std::string>());
    CHECK(answer::rest_of_sentence(text) == one[4].get<std::string>());
    CHECK(answer::as_number(text) == one[5].get<std::string>());
  }
}

TEST_CASE("formulas are found and compared as by lm-evaluation-harness's AGIEval") {
  const json& all = expected()["formulas"];
  std::vector<std::string> texts;
  for (const json& one : all["found"]) {
    texts.push_back(one[0].get<std::string>());
    CAPTURE(texts.back());
    const auto found = answer::formula_in(texts.back());
    CHECK(found.has_value() == one[1].is_string());
    if (found && one[1].is_string()) CHECK(*found == one[1].get<std::string>());
  }
  std::vector<std::vector<std::size_t>> same;
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (std::size_t j = 0; j < texts.size(); ++j)
      if (answer::is_same_formula(texts[i], texts[j])) same.push_back({i, j});
  CHECK(same == all["same"].get<std::vector<std::vector<std::size_t>>>());
}

TEST_CASE("samples are those of Python's random.Random(seed).sample") {
  for (const json& one : expected()["samples"]) {
    python_random random(one[0].get<std::uint32_t>());
    for (const json& drawn : one[1])
      CHECK(random.sample(drawn[0].get<std::size_t>(), drawn[1].get<std::size_t>()) == drawn[2].get<std::vector<std::size_t>>());
  }
}

TEST_CASE("contexts and continuations become tokens as in lm-evaluation-harness") {
  evaluated on(2);
  const auto& text = on.evaluator;
  CHECK(text.encode_pair("the sea  ", "flows").continuation == text.encode_pair("the sea", "  flows").continuation);
  CHECK(text.encode_pair("", "flows").context == std::vector<token>{0});
  CHECK(text.encode("<s>the sea") == text.encode("the sea"));  // the text already begins with the token
  CHECK(error_of([&] { (void)text.encode_pair("the sea", ""); }).find("more tokens than the context") != std::string::npos);
  CHECK(error_of([&] { (void)on.scorer.score(std::vector<token_request>{{.context = {1}, .continuation = {9999}}}); }).find("vocabulary") !=
        std::string::npos);
  CHECK(error_of([&] {
          (void)on.scorer.score(std::vector<token_request>{{.context = {1}, .continuation = std::vector<token>(257, 5)}});
        }).find("at most 256 tokens; request 1 has 257") != std::string::npos);
  // each token of a long text once
  std::string words;
  for (std::size_t i = 0; i < 700; ++i) words += " sea";
  const auto windows = text.rolling_windows(words);
  std::vector<token> scored;
  for (const token_request& w : windows) {
    CHECK(w.context.size() + w.continuation.size() <= 257);
    scored.insert(scored.end(), w.continuation.begin(), w.continuation.end());
  }
  CHECK(windows.size() > 2);
  CHECK(scored == text.encode(words));
  CHECK(detail::stripped("\xE3\x80\x80 a b\xC2\xA0\n") == "a b");
  CHECK(detail::space_at_end("\xE4\xBC\x9A") == 0);
}

TEST_CASE("windows that overlap score every token once, after as many as a window has") {
  for (const std::size_t count : {2U, 3U, 8U, 9U, 10U, 17U, 40U, 41U})
    for (const auto& sizes : std::vector<std::pair<std::size_t, std::size_t>>{{8, 8}, {8, 3}, {8, 1}, {1, 1}, {100, 32}}) {
      const std::size_t length = sizes.first, overlap = sizes.second;
      CAPTURE(count);
      CAPTURE(length);
      CAPTURE(overlap);
      std::vector<token> tokens(count);
      for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<token>(i);
      std::size_t next = 1;
      for (const token_request& w : overlapping_windows(tokens, length, overlap)) {
        REQUIRE(!w.context.empty());
        const auto first = static_cast<std::size_t>(w.context.front());
        CHECK(static_cast<std::size_t>(w.continuation.front()) == next);
        CHECK(static_cast<std::size_t>(w.context.back()) + 1 == next);
        CHECK(w.context.size() == next - first);
        CHECK(first % overlap == 0);
        next += w.continuation.size();
        const bool is_whole = w.context.size() + w.continuation.size() == length + 1;
        CHECK((is_whole || next == count));
        if (first > 0) CHECK(w.continuation.size() <= overlap);
      }
      CHECK(next == count);
    }
  const std::vector<token> tokens(9, 1);
  for (const std::size_t overlap : {0U, 5U})
    CHECK(error_of([&] { (void)overlapping_windows(tokens, 4, overlap); }).starts_with("evaluation: overlapping_eval must be from 1 to 4, the length"));
}

TEST_CASE("WIKITEXT103 is Megatron-LM's") {
  const scratch_folder scratch;
  const std::string file = scratch / "wiki.test.tokens", lines = get_file(golden + "/data/wikitext/test.jsonl");
  put_file(file, json::parse(lines.substr(0, lines.find('\n')))["page"].get<std::string>());
  const tokenizer with = load_tokenizer(golden + "/model");
  for (const json& wanted : expected()["wikitext103"]) {
    CAPTURE(wanted);
    evaluated on(5, wanted["seq_length"].get<std::size_t>());
    const auto result = evaluate_wikitext103(on.seen, with, file, {.overlapping_eval = wanted["overlapping_eval"].get<std::size_t>(),
                                                                   .begins_text = wanted["with_bos"].get<bool>()});
    CHECK(result.original_tokens == wanted["original_tokens"].get<std::size_t>());
    CHECK(result.tokens == wanted["tokens"].get<std::size_t>());
    CHECK(result.loss == doctest::Approx(wanted["loss"].get<double>()).epsilon(1e-6));  // logits are fp32 on both sides
    const std::string report = wikitext103_report(result), line = wanted["line"].get<std::string>(), rule(line.size() + 1, '-');
    CHECK(report == concat(" > number of original tokens: ", result.original_tokens, ", number of detokenized tokens: ", result.tokens, "\n", rule, "\n",
                           line, "\n", rule, "\n"));
  }
  CHECK(wikitext103_report({.original_tokens = 3, .tokens = 3, .loss = 25, .perplexity = std::exp(20.0), .token_ratio = 1, .adjusted_perplexity = 1})
            .find("| avg loss: 2.5000E+01 | ppl: 4.8517E+08 | adjusted ppl: 1.0000E+00 | token ratio: 1.0 |\n") != std::string::npos);
  evaluated on(1, 16);
  const auto refusal = [&](const char* name, const std::string& text, std::size_t overlap = 4) {
    const std::string path = scratch / name;
    put_file(path, text);
    const std::string problem = error_of([&] { (void)evaluate_wikitext103(on.seen, with, path, {.overlapping_eval = overlap}); });
    return problem.starts_with(path) ? problem.substr(path.size()) : problem;
  };
  CHECK(refusal("test.tokens", "a b c").starts_with(": must have 'wiki' in its path, and not 'ptb'"));
  CHECK(refusal("wiki.ptb", "a b c").starts_with(": must have 'wiki' in its path, and not 'ptb'"));
  CHECK(refusal("wiki.a", "a b\nc \xff d") == ": line 2: must be UTF-8");
  CHECK(refusal("wiki.a", " word\n") == ": must have at least two words with a space between them; it has one");
  CHECK(refusal("wiki.a", "") == ": must have at least two words with a space between them; it has one");
  CHECK(refusal("wiki.a", "a b c", 17) ==
        "--overlapping-eval: must be from 1 to 16, the length of a window, so that no token is left out; given 17");
}

TEST_CASE("results of a group are weighted by documents, and only of a whole group") {
  const auto result = [](const char* name, const char* group, std::size_t n, double value, double error) {
    return benchmark_result{.name = name, .groups = {group}, .metrics = {{.name = "acc", .value = value, .standard_error = error}}, .documents = n};
  };
  const std::vector<benchmark_result> mine{result("a", "mine", 10, 0.5, 0.1), result("b", "mine", 30, 0.9, 0.05)};
  const auto groups = benchmark_groups(mine);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].metrics[0].value == doctest::Approx(0.8));
  CHECK(*groups[0].metrics[0].standard_error == doctest::Approx(std::sqrt((9 * 0.01 * 10 + 29 * 0.0025 * 30) / 38 / 40)));
  CHECK(benchmark_groups(std::vector{result("mmlu_anatomy", "mmlu", 10, 0.5, 0.1)}).empty());
  // a task of one document has no standard error, nor has its group: "N/A", as in lm-evaluation-harness 0.4.13
  std::vector one_document{result("a", "mine", 10, 0.5, 0.1), result("b", "mine", 1, 1.0, 0.0)};
  one_document[1].metrics[0].standard_error.reset();
  const auto without = benchmark_groups(one_document);
  REQUIRE(without.size() == 1);
  CHECK(without[0].metrics[0].value == doctest::Approx(6.0 / 11));
  CHECK_FALSE(without[0].metrics[0].standard_error.has_value());
  // by name, in any order; of tasks with different metrics only the common ones
  const auto both = [](const char* name, std::vector<benchmark_metric> metrics, std::size_t shots) {
    return benchmark_result{.name = name, .groups = {"mine"}, .metrics = std::move(metrics), .num_fewshot = shots, .documents = 10};
  };
  const auto mixed = benchmark_groups(std::vector{both("a", {{.name = "acc_norm", .value = 0.1}, {.name = "acc", .value = 0.2}}, 0),
                                                  both("b", {{.name = "acc", .value = 0.4}, {.name = "acc", .filter = "strict", .value = 0.9}}, 5)});
  REQUIRE(mixed.size() == 1);
  REQUIRE(mixed[0].metrics.size() == 1);
  CHECK(mixed[0].metrics[0].name == "acc");
  CHECK(mixed[0].metrics[0].value == doctest::Approx(0.3));
  CHECK(!mixed[0].num_fewshot.has_value());
  CHECK(benchmark_tasks_named("mmlu,mmlu_anatomy").size() == 57);
  CHECK(benchmark_tasks_named("agieval").size() == 21);
  CHECK(benchmark_tasks_named("agieval_en").size() == 10);
  CHECK(benchmark_tasks_named("agieval_cn").size() == 11);
  CHECK(benchmark_tasks_named("agieval_nous").size() == 8);
  CHECK(benchmark_tasks_named("mmlu_stem").size() == 19);
  CHECK(benchmark_tasks_named("ceval-valid").size() == 52);
  CHECK(error_of([] { (void)benchmark_tasks_named("mmlu_astronmy"); }) ==
        "there is no task or group 'mmlu_astronmy'; did you mean 'mmlu_astronomy'?");
}

TEST_CASE("a result of ARC's validation split says so") {
  evaluated on(2);
  const std::string test = golden + "/data/arc/ARC-Easy-test.jsonl";
  const scratch_folder scratch;
  std::filesystem::create_directory(scratch / "arc");
  put_file(scratch / "arc/ARC-Easy-validation.jsonl", get_file(test));
  const auto result = run_benchmark(on.evaluator, task_of("arc_easy"), {.data_dir = scratch.path(), .num_fewshot = 0, .limit = 1});
  CHECK(result.split == "validation");
  CHECK(benchmark_table(std::span(&result, 1)).find("\narc_easy: of the validation split, " + result.file) != std::string::npos);
  CHECK(parse_json(benchmark_json(std::span(&result, 1)), "results")["config"]["splits"]["arc_easy"] == "validation");
  const auto own = run_benchmark(on.evaluator, task_of("arc_easy"), {.data_dir = golden + "/data", .num_fewshot = 0, .limit = 1});
  CHECK(own.split.empty());
  CHECK(benchmark_table(std::span(&own, 1)).find("split") == std::string::npos);
}

TEST_CASE("a text is scored after bos, or after eos where bos is null") {
  evaluated on(2);
  const scratch_folder scratch;
  put_file(scratch / "tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"<|endoftext|>": 0, "a": 1, "<|im_end|>": 2}, "unk_token": "a"}})");
  put_file(scratch / "tokenizer_config.json", R"({"bos_token": null, "eos_token": "<|im_end|>"})");
  CHECK(text_evaluator(on.seen, load_tokenizer(scratch.path())).encode_pair("", "a").context == std::vector<token>{2});
  put_file(scratch / "tokenizer_config.json", R"({"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"})");
  CHECK(text_evaluator(on.seen, load_tokenizer(scratch.path())).encode_pair("", "a").context == std::vector<token>{0});
}

TEST_CASE("malformed files are refused with file and line") {
  const scratch_folder scratch;
  const auto refusal = [&](const char* name, const std::string& file, const std::string& contents) {
    const std::string path = scratch / file;
    put_file(path, contents);
    const benchmark_task task = task_of(name);
    const std::string problem = error_of([&] { (void)read_documents(task, task.format, path); });
    return problem.starts_with(path) ? problem.substr(path.size()) : problem;
  };
  CHECK(refusal("boolq", "a.jsonl", "{\"passage\": \"p\", \"question\": \"q\", \"answer\": true}\n{\"passage\": \"p\"}\n") ==
        ": line 2: a record must have 'question'; it is missing");
  CHECK(refusal("boolq", "a.jsonl", "{\"passage\": \"p\", \"question\": \"q\", \"answer\": 1}\n") ==
        ": line 1: 'answer' must be true or false; it is number");
  CHECK(refusal("mmlu_anatomy", "a.csv", "q,1,2,3,4,A\nq,1,2,3,4,E\n") == ": line 2: 'answer' must be a letter from A to D; given 'E'");
  CHECK(refusal("mmlu_anatomy", "a.csv", "\"q\nr\",1,2,3,4,A\nq,1,2\n") == ": line 3: a row must have 6 fields; it has 3");
  CHECK(refusal("mmlu_anatomy", "a.csv", "\"q,1\n").find("a quoted field must end; this one does not") != std::string::npos);
  CHECK(refusal("piqa", "a.jsonl", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 2}") ==
        ": line 1: 'label' must be a number below 2; given 2");
  CHECK(refusal("arc_easy", "a.jsonl", R"({"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"})") ==
        ": line 1: 'answerKey' must be the label of one of 1 choices; given 'B'");
  CHECK(refusal("hellaswag", "a.txt", "prompt\n1\na\nb\nc\n") == ": line 5: a document must have six lines; the last has 5");
  CHECK(refusal("hellaswag", "a.txt", "prompt\n4\na\nb\nc\nd\n") == ": line 2: must be the number of the correct ending, 0 to 3; given '4'");
  const auto truth = [&](const char* name, const std::string& targets) {
    const std::string good = R"({"question": "q", "mc1_targets": {"a": 1, "b": 0}, "mc2_targets": {"a": 1, "b": 0}})";
    return refusal(name, "a.json", concat("[", good, ",\n{\"question\": \"q\", \"", name + 11, "_targets\": ", targets, "}]"));
  };
  CHECK(truth("truthfulqa_mc1", R"({"a": 1, "b": 0})").empty());
  CHECK(truth("truthfulqa_mc2", R"({"choices": ["a", "b", "c"], "labels": [0, 1, 1]})").empty());
  CHECK(truth("truthfulqa_mc1", R"({"b": 0, "a": 1})") == ": line 2: 'mc1_targets' must have label 1 at its first choice and 0 at the others; given [0,1]");
  CHECK(truth("truthfulqa_mc1", R"({"choices": ["a", "b"], "labels": [1, 1]})") ==
        ": line 2: 'mc1_targets' must have label 1 at its first choice and 0 at the others; given [1,1]");
  CHECK(truth("truthfulqa_mc1", R"({"choices": ["a", "b"], "labels": [1]})") == ": line 2: 'mc1_targets' must have a label for each of 2 choices; it has 1");
  CHECK(truth("truthfulqa_mc1", R"({"choices": ["a", "b"]})") == ": line 2: a record must have 'labels'; it is missing");
  CHECK(truth("truthfulqa_mc1", R"({"choices": ["a", ""], "labels": [1, 0]})") == ": line 2: a choice in 'mc1_targets' must be a text; choice 2 is empty");
  CHECK(truth("truthfulqa_mc2", R"({"a": 1, "b": "0"})") == ": line 2: a label in 'mc2_targets' must be 0 or 1; that of choice 2 is \"0\"");
  CHECK(truth("truthfulqa_mc2", R"({"a": 1, "b": 1})") ==
        ": line 2: 'mc2_targets' must have true choices and false ones; given 2 of label 1 among 2");
  CHECK(truth("truthfulqa_mc2", R"({"a": 1, "a": 0})").find("key 'a' occurs twice") != std::string::npos);
  CHECK(truth("truthfulqa_mc2", "{}") == ": line 2: 'mc2_targets' must have true choices and false ones; given 0 of label 1 among 0");
  CHECK(truth("truthfulqa_mc2", "[1]") == ": line 2: 'mc2_targets' must be choices with labels; it is array");
  CHECK(refusal("truthfulqa_mc1", "a.json", R"([{"question": "q"}])") == ": line 1: a record must have 'mc1_targets'; it is missing");
  CHECK(refusal("truthfulqa_mc1", "a.json", R"({"examples": [{"question": "q", "mc1_targets": {"a": 1, "b": 0}}]})") ==
        ": line 1: 'mc1_targets' must be lists of choices and labels in a list 'examples'");
  CHECK(refusal("gsm8k", "a.jsonl", "").find("must have documents") != std::string::npos);
  CHECK(refusal("humaneval", "a.jsonl.gz", "x") == ": must not be compressed; unpack it with gunzip");
  evaluated on(1);
  CHECK(error_of([&] {
          (void)run_benchmark(on.evaluator, task_of("boolq"), {.data_dir = scratch.path()});
        }).find("must have its documents; looked for") != std::string::npos);
  const std::string data = golden + "/data";
  CHECK(error_of([&] { (void)run_benchmark(on.evaluator, task_of("mmlu_abstract_algebra"), {.data_dir = data, .num_fewshot = 4}); }) ==
        "mmlu_abstract_algebra: --num-fewshot must be at most the number of examples, 3; given 4");
  CHECK(error_of([&] { (void)run_benchmark(on.evaluator, task_of("agieval_aqua_rat"), {.data_dir = data, .num_fewshot = 1}); }) ==
        "agieval_aqua_rat: --num-fewshot must be 0, because the task has no few-shot examples");
  CHECK(error_of([&] { (void)run_benchmark(on.evaluator, task_of("gsm8k"), {.data_dir = data, .max_gen_toks = 256}); })
            .find("max_gen_toks must leave room") != std::string::npos);
}

TEST_CASE("a template's text is in place of description and examples") {
  const scratch_folder scratch;
  put_file(scratch / "t.json", R"({"abstract_algebra": "Examples.\n", "few_shot": "For all."})");
  const std::vector<benchmark_document> one{{.text = "Q"}};
  CHECK(benchmark_prompts(task_of("mmlu_abstract_algebra"), one, {.fewshot_template = scratch / "t.json"}) ==
        std::vector<std::string>{"Examples.\nQ"});
  CHECK(benchmark_prompts(task_of("gsm8k"), one, {.fewshot_template = scratch / "t.json"}) == std::vector<std::string>{"For all.\n\nQ"});
  // the file determines the number of examples
  CHECK(!read_few_shots(scratch / "t.json", task_of("gsm8k")).count.has_value());
  put_file(scratch / "n.json", R"({"num_fewshot": 3, "few_shot": "For all."})");
  CHECK(read_few_shots(scratch / "n.json", task_of("gsm8k")).count == 3);
  put_file(scratch / "w.json", R"({"num_fewshot": "three", "few_shot": "For all."})");
  CHECK(error_of([&] { (void)read_few_shots(scratch / "w.json", task_of("gsm8k")); }).find("'num_fewshot' must be a whole number") != std::string::npos);
  evaluated on(1);
  for (const auto& [file, shots] : {std::pair{"t.json", json(nullptr)}, {"n.json", json(3)}}) {
    const auto result = run_benchmark(on.evaluator, task_of("boolq"), {.data_dir = golden + "/data", .limit = 1, .fewshot_template = scratch / file});
    CHECK(json::parse(benchmark_json(std::span(&result, 1)))["n-shot"]["boolq"] == shots);
  }
  CHECK(error_of([&] { (void)benchmark_prompts(task_of("boolq"), one, {.num_fewshot = 1, .fewshot_template = scratch / "n.json"}); })
            .find("a template or a number of examples") != std::string::npos);
}

TEST_CASE("special tokens may end an answer, which does not have them") {
  /// Continues every prompt with these tokens.
  struct recited final : language_model {
    std::vector<token> says{};
    std::size_t asked = 0;
    std::vector<token_score> score(std::span<const token_request>) override { return {}; }
    std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts, const continuation_settings& how) override {
      std::vector<std::vector<token>> all(prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i)
        for (const token t : says) {
          all[i].push_back(t);
          ++asked;
          if (!how.on_token(i, t)) break;
        }
      return all;
    }
    [[nodiscard]] std::size_t max_length() const override { return 256; }
    [[nodiscard]] std::size_t batch_size() const override { return 2; }
  } model;
  const tokenizer with = load_tokenizer(golden + "/model");
  const text_evaluator evaluator(model, with);
  const auto tokens = [&](const char* text) { return with.encode(text); };
  model.says = tokens("the sea");
  model.says.push_back(0);  // <s>
  const std::size_t wanted = model.says.size();
  for (const token t : tokens(" flows")) model.says.push_back(t);
  const text_evaluator::generation_request stops{.context = "Q", .until = {"<s>"}, .max_gen_toks = 16},
      goes_on{.context = "Q", .until = {"river"}, .max_gen_toks = 16};
  CHECK(evaluator.generate_until(std::vector{stops}) == std::vector<std::string>{"the sea"});
  CHECK(model.asked == wanted);
  CHECK(evaluator.generate_until(std::vector{goes_on}) == std::vector<std::string>{"the sea flows"});
  // a stop string with a special token inside is matched without this token
  const text_evaluator::generation_request across{.context = "Q", .until = {"sea flows"}, .max_gen_toks = 16};
  CHECK(evaluator.generate_until(std::vector{across}) == std::vector<std::string>{"the "});
}

TEST_CASE("HumanEval's completions are written for its checker") {
  evaluated on(2);
  const scratch_folder scratch;
  make_folder(scratch / "humaneval");
  put_file(scratch / "humaneval/HumanEval.jsonl",
           "{\"task_id\": \"t/0\", \"prompt\": \"def add(a, b):\\n\"}\n{\"task_id\": \"t/1\", \"prompt\": \"def \"}\n");
  const auto result = run_benchmark(on.evaluator, task_of("humaneval"), {.data_dir = scratch.path(), .max_gen_toks = 8});
  REQUIRE(result.completions.size() == 2);
  CHECK(json::parse(result.completions[1])["task_id"] == "t/1");
  CHECK(json::parse(result.completions[0])["completion"].is_string());
  CHECK(result.metrics.empty());
}
