// Commands of AscendSpeed's document on a small model and data: only paths, sizes and the device differ. And fifty steps of pretrain_llama, against
// Megatron-LM's arithmetic in PyTorch (make_megatron_runs.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/eval/benchmark_subjects.hpp>

#include "golden.hpp"
#include "npu_programs.hpp"
#include "program.hpp"
#include "scratch.hpp"

using xtrain::json;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string model = golden::folder("benchmarks/model");  // a LLaMA of 2 layers, with a tokenizer
const std::string tokenizer = " --tokenizer-type PretrainedFromHF --tokenizer-name-or-path " + model + " --tokenizer-not-use-fast";
const std::string sizes = " --num-layers 2 --hidden-size 24 --ffn-hidden-size 40 --num-attention-heads 4 --max-position-embeddings 256";
const std::string grouped = " --group-query-attention --num-query-groups 2";  // the model's
const std::string launcher = "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6001 ";

/// Runs a command line, whose words have no spaces, with `program` before it.
program_result run(const std::string& program, const std::string& line, const std::string& programs = EXAMPLES) {
  std::vector<std::string> words{programs + "/" + program};
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return run_program(std::move(words));
}
program_result megatron(const std::string& line) { return run("megatron", line); }
/// A command's run.
json described(const std::string& line) {
  const auto result = megatron(line + " --print-run");
  REQUIRE_MESSAGE(result.status == 0, result.err);
  return json::parse(result.out);
}

/// The texts of make_megatron_runs.py.
std::string texts() {
  const char* const words[] = {"the",  "a",     "river", "stone",  "bird", "walks", "sings",   "under",
                               "over", "seven", "old",   "bright", "and",  "then",  "quietly", "again"};
  std::string all;
  for (std::size_t d = 0; d < 40; ++d) {
    std::string text;
    for (std::size_t i = 0; i < 5 + d * 11 % 23; ++i) text += std::string(i > 0 ? " " : "") + words[(7 * d * d + 3 * i * i + d * i) % 16];
    all += json{{"text", text}}.dump() + "\n";
  }
  return all;
}
/// Instructions in alpaca_data.json's form.
std::string alpaca() {
  json all = json::array();
  for (int i = 0; i < 24; ++i)
    all.push_back({{"instruction", "Say " + std::to_string(i)}, {"input", i % 2 == 0 ? "please" : ""}, {"output", std::to_string(i)}});
  return all.dump();
}

/// Tokens of texts() with an end of document, as PREFIX_text_document.
std::string pretraining_data(const scratch_folder& folder) {
  put_file(folder / "corpus.jsonl", texts());
  const auto result = megatron("python tools/preprocess_data.py --input " + (folder / "corpus.jsonl") + " --output-prefix " + (folder / "corpus") + tokenizer +
                               " --append-eod --workers 2");
  REQUIRE_MESSAGE(result.status == 0, result.err);
  return folder / "corpus_text_document";
}

const std::string fifty_steps = " --micro-batch-size 2 --global-batch-size 8 --seq-length 32 --lr 4e-3 --min-lr 4e-4 --weight-decay 0.1 --adam-beta2 0.95"
                                " --clip-grad 1.0 --seed 1234 --log-interval 10 --eval-iters 0 --load " + model + sizes + grouped + tokenizer;
const std::string by_iterations = " --train-iters 50 --lr-decay-style cosine --lr-warmup-iters 5 --lr-decay-iters 45";
const std::string by_samples = " --train-samples 255 --rampup-batch-size 2 2 100 --lr-decay-style linear --lr-warmup-samples 45 --lr-decay-samples 240";

/// Fifty steps against the fixture's. fp32 rounds relative to 2^-24 = 6e-8, and fifty steps amplify differences: 100 roundings of a loss, 1000 of a norm, the
/// square root of a difference.
void check_fifty_steps(const std::string& name, const std::string& log) {
  CAPTURE(name);
  const xtrain::safetensors_file file(golden::folder("megatron_runs/expected.safetensors"));
  const auto losses = golden::numbers(file, name + ".losses"), norms = golden::numbers(file, name + ".norms"), rates = golden::numbers(file, name + ".rates"),
             samples = golden::numbers(file, name + ".samples");
  std::size_t step = 0;
  double loss_error = 0, norm_error = 0;
  double tokens = 0;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = log.find('\n', at);
    const json one = json::parse(log.substr(at, end - at));
    at = end + 1;
    if (one.value("event", "") != "step") continue;
    REQUIRE(step < losses.size());
    loss_error = std::max(loss_error, std::abs(one.at("loss").get<double>() / losses[step] - 1.0));
    norm_error = std::max(norm_error, std::abs(one.at("grad_norm").get<double>() / norms[step] - 1.0));
    CHECK(one.at("lr").get<double>() == doctest::Approx(rates[step]).epsilon(2e-7));  // the file has fp32
    tokens += one.at("tokens").get<double>();
    CHECK(tokens == 32 * samples[step]);
    ++step;
  }
  CHECK(step == 50);
  MESSAGE(name, ": largest relative difference of a loss ", loss_error, ", of a norm ", norm_error);
  CHECK(loss_error < 100 * 6e-8);
  CHECK(norm_error < 1000 * 6e-8);
}

}  // namespace

TEST_CASE("fifty steps of pretrain_llama are Megatron-LM's") {
  const scratch_folder folder;
  const std::string data = " --data-path " + pretraining_data(folder);
  for (const auto& [name, flags] : {std::pair{"iterations", by_iterations}, {"samples", by_samples}}) {
    const std::string out = folder / name;
    json description = described("pretrain_llama.py" + flags + fifty_steps + data + " --save " + out);
    description["output"]["metrics"] = out + ".jsonl";
    put_file(out + ".json", description.dump());
    const auto result = run_program({EXAMPLES "/train-cpu-fp32", out + ".json"});
    REQUIRE_MESSAGE(result.status == 0, result.err);
    check_fifty_steps(name, get_file(out + ".jsonl"));
  }
  // as printed, and stopped and resumed: from the run's folder, whose model is not padded like a new one
  const std::string line = by_samples + fifty_steps + data + " --save-interval 20 --save " + (folder / "again");
  const auto whole = run("pretrain_llama", line);
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  CHECK_MESSAGE(holds(whole.out, " iteration       50/      50 | consumed samples:          252 |"), whole.out);
  CHECK(holds(whole.out, "| global batch size:     2 |"));
  CHECK(holds(whole.out, "| global batch size:     8 | lm loss: 3."));
  const std::string weights = get_file(folder / "again/model.safetensors");
  for (const char* name : {"again/checkpoint-40", "again/checkpoint-50", "again/model.safetensors", "again/config.json"})
    std::filesystem::remove_all(folder / name);
  const auto resumed = run("pretrain_llama", line + " --load " + (folder / "again"));
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK_MESSAGE(holds(resumed.err, "resuming after step 20"), resumed.err);
  CHECK_FALSE(holds(resumed.err, "settings differ"));
  CHECK(get_file(folder / "again/model.safetensors") == weights);
  CHECK(holds(get_file(folder / "again/README.md"), "This model is a fine-tuned version of " + model));
  std::filesystem::remove_all(folder / "again/checkpoint-40");
  const auto other = run("pretrain_llama", line + " --load " + (folder / "again") + " --rampup-batch-size 4 2 100");
  CHECK(holds(other.err, "a resumed run must have the same rampup_batch_size (start, increment, samples); it was [2,2,100], now [4,2,100] is given"));
}

TEST_CASE("the quick start: a dataset, weights, training with DeepSpeed and LoRA, inference in four modes") {
  const scratch_folder folder;
  put_file(folder / "alpaca_data.json", alpaca());
  const std::string prefix = folder / "alpaca", weights = folder / "ckpt", lora = folder / "lora";
  const auto data = megatron("python tools/preprocess_data.py --input " + (folder / "alpaca_data.json") + " --output-prefix " + prefix + tokenizer +
                             " --handler-name GeneralInstructionHandler");
  REQUIRE_MESSAGE(data.status == 0, data.err);
  const auto converted = megatron("python tools/ckpt_convert/llama/convert_weights_from_huggingface.py --input-model-dir " + model + " --output-model-dir " +
                                  weights + " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --type small --num_layers 2 --hidden_size 24");
  REQUIRE_MESSAGE(converted.status == 0, converted.err);
  const auto reshards = megatron("python tools/ckpt_convert/llama/convert_weights_when_tp_pp_change.py --input-model-dir " + weights + " --output-model-dir " +
                                 (folder / "merged") + " --src-tensor-model-parallel-size 2 --src-pipeline-model-parallel-size 2"
                                 " --tgt-tensor-model-parallel-size 1 --tgt-pipeline-model-parallel-size 1");
  CHECK_MESSAGE(reshards.status == 0, reshards.err);
  CHECK(get_file(folder / "merged/model.safetensors") == get_file(weights + "/model.safetensors"));

  // pretrain_llama_7B_zero_8p.sh with the document's LoRA flags; 2 ranks follow from the batch sizes
  put_file(folder / "ds.json", R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 8, "hysteresis": 2,
    "min_loss_scale": 1}, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 2, "allgather_partitions": true, "allgather_bucket_size": 1e8,
    "overlap_comm": true, "reduce_scatter": true, "reduce_bucket_size": 1e8, "contiguous_gradients": true}, "gradient_accumulation_steps": 1,
    "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": true})");
  ::setenv("XTRAIN_CACHE", (folder / "cache").c_str(), 1);
  const std::string deepspeed = " --deepspeed --no-pipeline-parallel --deepspeed_config=" + (folder / "ds.json") + " --zero-stage=2";
  const auto trained = run("megatron",
      "deepspeed pretrain_llama.py --DDP-impl local --no-contiguous-buffers-in-local-ddp --is-instruction-dataset --tensor-model-parallel-size 1"
      " --pipeline-model-parallel-size 1 --micro-batch-size 2 --global-batch-size 4 --seq-length 256 --train-iters 6 --lr-decay-iters 6 --lr 1e-3"
      " --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-fraction .01 --weight-decay 1e-2 --clip-grad 1.0 --data-impl mmap --split 949,50,1"
      " --distributed-backend nccl --log-interval 2 --save-interval 3 --eval-interval 6 --eval-iters 2 --initial-loss-scale 65536.0 --checkpoint-activations"
      " --use-cpu-initialization --fp16 --optimizer fused_adam --mlp-layer-fusion --use-fused-rotary-pos-emb --triangle-attn --use-flash-attn"
      " --lora-target-modules query_key_value dense gate_proj up_proj down_proj --lora-r 4 --lora-alpha 8 --lora-modules-to-save word_embeddings"
      " --lora-register-forward-hook word_embeddings input_layernorm --deepspeed-activation-checkpointing" +
      sizes + grouped + tokenizer + deepspeed + " --data-path " + prefix + " --load " + weights + " --save " + lora + " --device npu", npu_programs(EXAMPLES));
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  CHECK_FALSE(holds(trained.err, "rehearsal: "));
  CHECK_MESSAGE(holds(trained.err, "compiling the trainer npu-fp16_mixed-zero.2-recompute_full-lora, once"), trained.err);
  CHECK_MESSAGE(holds(trained.out, " iteration        6/       6 | consumed samples:           24 |"), trained.out);
  CHECK(holds(trained.out, " validation loss at iteration 6 | lm loss value: "));
  CHECK(std::filesystem::exists(lora + "/adapter_model.safetensors"));
  ::unsetenv("XTRAIN_CACHE");

  const std::string common = sizes + tokenizer + " --fp16 --micro-batch-size 1 --seed 42 --max-new-tokens 8 --seq-length 256 --load " + weights;
  const auto text = megatron(launcher + "./tasks/inference/inference_llama.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2" + common);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(holds(text.out, "\"log_probs\":["));
  for (const std::string& line :
       {"deepspeed --num_gpus 8 ./tasks/inference/inference_llama.py" + deepspeed,
        "deepspeed --num_gpus 8 ./tasks/inference/inference_llama_pipeline.py --tensor-model-parallel-size 8 --deepspeed --deepspeed_config " +
            (folder / "ds.json")}) {
    const auto same = megatron(line + common);
    CHECK_MESSAGE(same.status == 0, same.err);
    CHECK(same.out == text.out);
  }
  const auto adapted = megatron("deepspeed --num_gpus 8 ./tasks/inference/inference_alpaca.py --task 1 --lora-load " + lora +
                                " --lora-r 4 --lora-alpha 8 --lora-target-modules query_key_value dense gate_proj up_proj down_proj" + deepspeed + common);
  CHECK_MESSAGE(adapted.status == 0, adapted.err);
}

TEST_CASE("datasets for pretraining: Wikipedia's folder, and Alpaca's texts") {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "wikipedia/20220301.en");
  put_file(folder / "wikipedia/20220301.en/train.jsonl", texts());
  put_file(folder / "hf_config_json.json", json{{"path", folder / "wikipedia"}, {"name", "20220301.en"}, {"streaming", true}, {"split", "train"}}.dump());
  const auto wikipedia =
      megatron("python tools/preprocess_data.py --input " + (folder / "wikipedia") + " --hf-datasets-params " + (folder / "hf_config_json.json") +
               " --output-prefix " + (folder / "preprocessed") + " --dataset-impl mmap" + tokenizer + " --streaming --workers 8");
  REQUIRE_MESSAGE(wikipedia.status == 0, wikipedia.err);
  json records = json::array();
  for (const json& one : json::parse(alpaca())) records.push_back({{"text", one.at("instruction").get<std::string>() + one.at("output").get<std::string>()}});
  put_file(folder / "alpaca.json", records.dump());
  const auto texts_of_alpaca = megatron("python tools/preprocess_data.py --input " + (folder / "alpaca.json") + " --output-prefix " + (folder / "texts") +
                                        tokenizer + " --json-key text");
  REQUIRE_MESSAGE(texts_of_alpaca.status == 0, texts_of_alpaca.err);
  const auto trained = megatron(
      "python -m torch.distributed.launch --nproc_per_node 1 pretrain_llama.py --micro-batch-size 4 --global-batch-size 8 --seq-length 32"
      " --train-iters 4 --lr 1e-3 --data-path 0.7 " +
      (folder / "preprocessed_text_document") + " 0.3 " + (folder / "texts_text_document") + " --split 949,50,1 --eval-iters 0 --log-interval 4 --save " +
      (folder / "out") + sizes + tokenizer);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  CHECK_MESSAGE(holds(trained.out, " iteration        4/       4 | consumed samples:           32 |"), trained.out);
}

TEST_CASE("pipelines: micro-batches of different sizes, and a global batch that grows") {
  const scratch_folder folder;
  const std::string data = " --data-path " + pretraining_data(folder);
  ::setenv("XTRAIN_CACHE", (folder / "cache").c_str(), 1);
  const auto opp = megatron(
      "python -m torch.distributed.launch --nproc_per_node 4 pretrain_llama.py --pipeline-model-parallel-size 4 --optimized-pipeline"
      " --manual-mbs example-config-1 --micro-batch-size 4 --global-batch-size 64 --num-layers 4 --hidden-size 16 --num-attention-heads 2"
      " --ffn-hidden-size 32 --max-position-embeddings 32 --seq-length 32 --train-iters 3 --lr 1e-3 --eval-iters 0 --log-interval 3 --save " +
      (folder / "opp") + data + tokenizer);
  REQUIRE_MESSAGE(opp.status == 0, opp.err);
  CHECK_MESSAGE(holds(opp.out, " iteration        3/       3 | consumed samples:          192 |"), opp.out);
  // the fifty steps with a ramp-up, on two stages
  const std::string out = folder / "stages";
  json description =
      described("torchrun --nproc_per_node 2 pretrain_llama.py --pipeline-model-parallel-size 2" + by_samples + fifty_steps + data + " --save " + out);
  description["output"]["metrics"] = out + ".jsonl";
  put_file(out + ".json", description.dump());
  std::string trainer;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "cache"))  // a lock file lies next to the program
    if (entry.is_regular_file() && (entry.status().permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none)
      trainer = entry.path().string();
  REQUIRE_FALSE(trainer.empty());
  const auto result = run_program({trainer, out + ".json"});
  REQUIRE_MESSAGE(result.status == 0, result.err);
  check_fifty_steps("samples", get_file(out + ".jsonl"));
  ::unsetenv("XTRAIN_CACHE");
}

TEST_CASE("evaluation with the document's parameters") {
  const scratch_folder folder;
  const std::filesystem::path benchmarks = golden::folder("benchmarks/data"), dataset = folder / "dataset";
  std::filesystem::create_directories(dataset / "boolq/test");
  std::filesystem::copy(benchmarks / "boolq/dev.jsonl", dataset / "boolq/test/dev.jsonl");
  for (const char* name : {"mmlu", "gsm8k", "lambada"}) std::filesystem::copy(benchmarks / name, dataset / name, std::filesystem::copy_options::recursive);
  const std::string common = " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --load " + model + sizes + tokenizer +
                             " --fp16 --micro-batch-size 1 --seed 42";
  const auto boolq = megatron(launcher + "evaluation.py --task-data-path " + (dataset / "boolq/test/").string() +
                              " --task boolq --seq-length 256 --max-new-tokens 1" + common);
  REQUIRE_MESSAGE(boolq.status == 0, boolq.err);
  CHECK_MESSAGE(holds(boolq.out, "|boolq|none  |     0|acc   |"), boolq.out);
  CHECK(holds(boolq.err, "documents of " + dataset.string() + "/boolq/test/dev.jsonl"));
  const auto gsm8k =
      megatron(launcher + "evaluation.py --task-data-path " + (dataset / "gsm8k").string() + " --task gsm8k --seq-length 256 --max-new-tokens 16" + common);
  CHECK_MESSAGE(gsm8k.status == 0, gsm8k.err);
  const auto lambada = megatron("python tasks/main.py --task LAMBADA --strict-lambada --log-interval 10 --no-load-optim --no-load-rng --valid-data " +
                                (dataset / "lambada/test.jsonl").string() + common);
  CHECK_MESSAGE(lambada.status == 0, lambada.err);
  CHECK(holds(lambada.out, "lambada_openai"));
  // WIKITEXT103: Megatron-LM's lines, printed by make_benchmarks.py
  std::filesystem::create_directories(dataset / "wikitext-103");
  const std::string pages = get_file((benchmarks / "wikitext/test.jsonl").string()), file = (dataset / "wikitext-103/wiki.test.tokens").string();
  put_file(file, json::parse(pages.substr(0, pages.find('\n')))["page"].get<std::string>());
  const json expected = json::parse(get_file((benchmarks / "../expected.json").string()));
  for (const json& wanted : expected.at("wikitext103")) {
    std::string line = "python tasks/main.py --task WIKITEXT103 --log-interval 10 --no-load-optim --no-load-rng --valid-data " + file + common +
                       " --seq-length " + wanted["seq_length"].dump() + " --overlapping-eval " + wanted["overlapping_eval"].dump();
    if (!wanted["with_bos"].get<bool>()) line += " --tokenizer-type GPT2BPETokenizer";
    const auto wikitext = megatron(line);
    CHECK_MESSAGE(wikitext.status == 0, wikitext.err);
    CHECK_MESSAGE(holds(wikitext.out, "\n" + wanted["line"].get<std::string>() + "\n----"), wikitext.out);
  }
}

TEST_CASE("MMLU with the document's parameters, and results by category as in its table") {
  const scratch_folder folder;
  const std::filesystem::path dataset = folder / "dataset";
  std::filesystem::create_directories(dataset / "mmlu/test");
  std::filesystem::create_directories(dataset / "mmlu/dev");
  // five examples and one to three questions per subject: a mean over questions differs from one over subjects
  std::map<std::string, std::map<std::string, std::size_t>> questions;  // by category and subject
  std::size_t number = 0, all = 0;
  for (const auto& [category, subjects] : xtrain::detail::mmlu_subjects())
    for (const std::string& subject : subjects) {
      const std::size_t count = 1 + number % 3;
      for (const auto& [split, rows] : {std::pair<std::string, std::size_t>{"dev", 5}, {"test", count}}) {
        std::string text;
        for (std::size_t i = 0; i < rows; ++i)
          text += xtrain::concat("\"What is ", number, " + ", i, ", and why?\",", number, ",", number + i, ",\"", number + i + 1,
                                 ", or so\",\"none of \"\"these\"\"\",", "ABCD"[(number + i) % 4], "\n");
        put_file((dataset / "mmlu" / split / (subject + "_" + split + ".csv")).string(), text);
      }
      questions[category][subject] = count;
      all += count;
      ++number;
    }
  REQUIRE(number == 57);
  const std::string line = launcher + "evaluation.py --task-data-path " + (dataset / "mmlu/test/").string() +
                           " --task mmlu --seq-length 256 --max-new-tokens 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --load " + model +
                           sizes + tokenizer + " --fp16 --micro-batch-size 1 --seed 42";
  const auto result = megatron(line);
  REQUIRE_MESSAGE(result.status == 0, result.err);
  std::map<std::string, double> accuracy;  // by the table's first column
  for (std::size_t begin = 0; begin < result.out.size(); begin = result.out.find('\n', begin) + 1) {
    std::vector<std::string> cells;
    const std::string row = result.out.substr(begin + 1, result.out.find('\n', begin) - begin - 1);
    for (std::size_t at = 0; at < row.size(); at = row.find('|', at) + 1) {
      const std::string cell = row.substr(at, row.find('|', at) - at);
      const std::size_t from = cell.find_first_not_of(' ');
      cells.push_back(from == std::string::npos ? "" : cell.substr(from, cell.find_last_not_of(' ') + 1 - from));
    }
    REQUIRE(cells.size() == 6);
    if (!cells[0].starts_with("mmlu")) continue;
    CHECK(cells[2] == "5");
    CHECK(cells[3] == "acc");
    accuracy[cells[0]] = std::stod(cells[4]);
  }
  CHECK(accuracy.size() == 57 + 4 + 1);  // subjects; STEM, humanities, social sciences, other; total
  double right = 0;
  for (const auto& of_category : questions) {
    const std::string& category = of_category.first;
    CAPTURE(category);
    double right_here = 0, here = 0;
    for (const auto& of_subject : of_category.second) {
      const std::string& subject = of_subject.first;
      const std::size_t count = of_subject.second;
      CAPTURE(subject);
      const double right_answers = std::round(accuracy.at("mmlu_" + subject) * static_cast<double>(count));
      CHECK(accuracy.at("mmlu_" + subject) == doctest::Approx(right_answers / static_cast<double>(count)).epsilon(1e-3));
      CHECK(holds(result.err, xtrain::concat("mmlu_", subject, ": ", count, " of ", count, " documents of ", (dataset / "mmlu/test").string(), "/", subject,
                                             "_test.csv\n")));
      right_here += right_answers;
      here += static_cast<double>(count);
    }
    CHECK(std::abs(accuracy.at(category) - right_here / here) < 5.1e-5);  // four digits
    right += right_here;
  }
  CHECK(right > 0);
  CHECK(right < static_cast<double>(all));
  CHECK(std::abs(accuracy.at("mmlu") - right / static_cast<double>(all)) < 5.1e-5);
  MESSAGE(result.out.substr(result.out.find("|mmlu  ")));
  // a missing subject file is reported before any computation
  std::filesystem::remove(dataset / "mmlu/test/virology_test.csv");
  const auto incomplete = megatron(line);
  CHECK(incomplete.status != 0);
  CHECK_MESSAGE(holds(incomplete.err, "mmlu_virology: must have its documents; looked for " + dataset.string() + "/mmlu/test/virology_test.csv"),
                incomplete.err);
  CHECK(incomplete.out.empty());
}

TEST_CASE("scripts for more ranks than a machine has are runs that could begin") {
  const std::string data = " --data-path d --save ckpt --tokenizer-type PretrainedFromHF --tokenizer-name-or-path t --tokenizer-not-use-fast";
  const std::string llama_65b =
      "pretrain_llama.py --num-layers 80 --hidden-size 8192 --ffn-hidden-size 22016 --num-attention-heads 64 --seq-length 2048"
      " --max-position-embeddings 2048 --micro-batch-size 4 --train-iters 1000 --lr 1e-5 --fp16 --sequence-parallel --mlp-layer-fusion"
      " --use-distributed-optimizer --tensor-model-parallel-size 8 --checkpoint-activations" +
      data;
  const json plain = described("torchrun --nproc_per_node 32 " + llama_65b + " --pipeline-model-parallel-size 4 --global-batch-size 64");
  CHECK(plain.at("parallel") == json::parse(R"({"ranks": 32, "zero": 1, "tensor": 8, "pipeline": 4, "sequence_parallel": true})"));
  const json opp = described("torchrun --nproc_per_node 64 " + llama_65b +
                             " --pipeline-model-parallel-size 8 --global-batch-size 96 --optimized-pipeline --manual-mbs example-config-2");
  CHECK(opp.at("parallel").at("micro_batch_sizes").size() == 24);
  const json virtual_stages = described("torchrun --nproc_per_node 32 " + llama_65b +
                                        " --pipeline-model-parallel-size 4 --global-batch-size 64 --num-layers-per-virtual-pipeline-stage 2");
  CHECK(virtual_stages.at("parallel").at("virtual_stages") == 10);
  for (const char* flag : {"--fold-mode aiao", "--foldx-mode aiao"}) {
    const json fold = described("torchrun --nproc_per_node 32 " + llama_65b +
                                " --pipeline-model-parallel-size 4 --global-batch-size 64 --num-layers-per-virtual-pipeline-stage 2 " + flag);
    CHECK(fold.at("parallel").at("schedule") == "aiao");
  }
  const json selective =
      described("torchrun --nproc_per_node 32 " + llama_65b + " --pipeline-model-parallel-size 4 --global-batch-size 64 --checkpoint_policy custom");
  CHECK(selective.at("recompute") == "selective");
  const json bloom = described(
      "torchrun --nproc_per_node 96 --nnodes 1 pretrain_bloom.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 12 --num-layers 72"
      " --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --rampup-batch-size 192"
      " 16 9_765_625 --global-batch-size 2048 --train-samples 220_000_000 --init-method-std 0.0048 --embed-layernorm --position-embedding-type"
      " alibi --attention-dropout 0 --hidden-dropout 0 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6"
      " --lr-decay-style cosine --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 --clip-grad 1.0 --weight-decay 1e-1 --bf16"
      " --checkpoint-activations --log-interval 1 --pad-vocab-size-to 250880 --abort-on-unmet-fused-kernel-constraints --valid-num-workers 0"
      " --pp-partition-method type:transformer|embedding" +
      data);
  CHECK(bloom.at("rampup_batch_size") == json::parse("[192, 16, 9765625]"));
  CHECK(bloom.at("schedule").at("counts") == "sequences");
  for (const char* script : {"pretrain_baichuan.py", "pretrain_internlm.py", "pretrain_llama.py"}) {
    const json one =
        described(std::string("torchrun --nproc_per_node 8 ") + script +
                  " --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048"
                  " --micro-batch-size 4 --global-batch-size 32 --train-iters 1000 --lr 1e-5 --fp16 --use-distributed-optimizer --is-instruction-dataset" +
                  data);
    CHECK(one.at("parallel").at("zero") == 1);
  }
}
