#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/front_ends/megatron.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>
#include <xtrain/front_ends/megatron_programs.hpp>
#include <xtrain/recipes/recipe_type.hpp>

#include "../../../examples/log_styles_megatron.hpp"
#include "page.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) all.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}
megatron_command command(const std::string& line) {
  std::vector<std::string> words = words_of(line);
  const std::string program = words.front();
  words.erase(words.begin());
  return read_megatron(program, words);
}
run_description run_of(const std::string& line) { return command(line).run; }
std::string refusal(const std::string& line) {
  try {
    (void)command(line);
  } catch (const config_error& problem) {
    return problem.what();
  }
  return "accepted";
}
bool has_note(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

/// Required by every pretraining script.
const std::string sizes =
    " --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --max-position-embeddings 2048 --seq-length 2048"
    " --micro-batch-size 4 --train-iters 1000 --lr 1e-5 --data-path data/pile_text_document --tokenizer-name-or-path llama-7b-hf --save ckpt";
const std::string llama_line = "pretrain_llama" + sizes;

void write_model(const std::string& folder, const std::string& config) {
  std::filesystem::create_directories(folder);
  write_file(folder + "/config.json", config);
}
const char* const llama_7b =
    R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000})";

}  // namespace

TEST_CASE("the defaults are those of Megatron-LM and AscendSpeed") {
  const run_description run = run_of(llama_line);
  CHECK(run.model.family == "llama");
  CHECK(run.model.config ==
        json::parse(R"({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
    "intermediate_size": 11008, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.02, "tie_word_embeddings": false,
    "max_position_embeddings": 2048})"));
  CHECK(run.model.vocab_multiple == 128);
  CHECK(run.precision == "fp32");
  CHECK(run.seed == 1234);
  CHECK(run.max_steps == 1000);
  CHECK(run.micro_batch_size == 4);
  CHECK(run.gradient_accumulation_steps == 1);
  CHECK(run.objective.average == "micro_batch");
  CHECK(run.optimizer.kind == "adamw");
  CHECK(run.optimizer.settings == json::parse(R"({"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01})"));
  CHECK(run.optimizer.decays == "matrices");
  CHECK(run.optimizer.max_grad_norm == 1.0);
  CHECK(run.schedule.kind == "linear");
  CHECK(run.schedule.from_zero);
  CHECK(run.schedule.decay_steps == 1000);
  CHECK(run.schedule.settings == json::parse(R"({"counts_updates": true, "round_warmup": false})"));
  CHECK(run.split == "969,30,1");
  CHECK(run.eval_iters == 100);
  CHECK(run.output.eval_steps == 1000);
  CHECK(run.output.log_steps == 100);
  CHECK(run.output.log_style == "megatron");
  CHECK(run.data.front().kind == "indexed");
  CHECK(recipe_of(run).key() == "cpu-fp32");
  CHECK(run_description::from_megatron("pretrain_llama", words_of(sizes)).model == run.model);
  const run_description unsaved = run_of(llama_line.substr(0, llama_line.find(" --save")) + " --save-interval 10");
  CHECK(unsaved.output.folder == "pretrain_llama_output");
  CHECK(run_of(llama_line + " --seed 4294967295").seed == 4294967295);
  CHECK(refusal(llama_line + " --seed 4294967296") == "--seed: must be below 2^32, as numpy's; given 4294967296");
  CHECK(refusal(llama_line + " --seed -1") == "--seed: must be a non-negative integer; given -1");
  CHECK(unsaved.output.save_steps == 0);
  CHECK(run.output.save_steps == 1000);  // Megatron saves at the end
}

TEST_CASE("a launcher's ranks are threads of one process") {
  const std::string rest = " pretrain_llama.py" + sizes + " --global-batch-size 64";
  const std::string flags = " --nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6001";
  for (const std::string& line :
       {"megatron python -m torch.distributed.launch" + flags + rest, "megatron torchrun" + flags + rest, "megatron" + flags + rest,
        "megatron torchrun --nnodes 1:1 --nproc-per-node 8" + rest,
        "megatron deepspeed --num_nodes 1 --num_gpus 8" + rest, "pretrain_llama" + flags + sizes + " --global-batch-size 64",
        "megatron --nproc-per-node=8 ./examples/pretrain_llama.py" + sizes + " --global-batch-size 64"}) {
    CAPTURE(line);
    const run_description run = run_of(line);
    CHECK(run.parallel.ranks == 8);
    CHECK(run.gradient_accumulation_steps == 2);
    CHECK(run.model.family == "llama");
  }
  CHECK(
      refusal(llama_line + " --nnodes 4 --nproc_per_node 8") ==
      "--nnodes: must be 1: the ranks are threads of this process; several hosts are started by mpirun -n 32 or srun, with a trainer built with MPI; given 4");
  CHECK(refusal("megatron --num-layers 2")
            .starts_with("megatron: the words must have a script of Megatron-LM's or AscendSpeed's: pretrain_gpt, pretrain_llama"));
  CHECK(refusal("megatron sh pretrain_llama_7B.sh").starts_with("sh: a shell script is run by the shell"));
  CHECK(is_megatron_program("tools/preprocess_data.py"));
  CHECK_FALSE(is_megatron_program("megatron"));
}

TEST_CASE("the mesh, sequence parallelism and virtual stages") {
  const run_description run = run_of(
      llama_line +
      " --nproc_per_node 32 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2"
      " --sequence-parallel --use-distributed-optimizer --global-batch-size 64 --bf16 --mlp-layer-fusion");
  CHECK(run.parallel.tensor == 4);
  CHECK(run.parallel.virtual_stages == 4);
  CHECK(run.parallel.zero == 1);
  CHECK(run.model.vocab_multiple == 512);
  CHECK(run.gradient_accumulation_steps == 8);
  CHECK(recipe_of(run).parallel == "pipeline<interleaved, parallel<zero<1>, sequence_parallel>>");
  CHECK(has_note(run.notes, "--mlp-layer-fusion: gate and up"));
  CHECK(recipe_of(run_of(llama_line +
                         " --nproc_per_node 4 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 --fold-mode aiao "
                         "--global-batch-size 16"))
            .parallel == "pipeline<all_in_all_out>");
  CHECK(run_of(llama_line + " --nproc_per_node 4 --pipeline-model-parallel-size 4 --use-manual-layer-allocation --manual-layers 7,8,9,8")
            .parallel.stage_layers == std::vector<std::size_t>{7, 8, 9, 8});

  const std::string pipeline = llama_line + " --nproc_per_node 4 --pipeline-model-parallel-size 4 --global-batch-size 64 --optimized-pipeline";
  const run_description opp = run_of(pipeline + " --manual-mbs example-config-1");
  CHECK(opp.parallel.micro_batch_sizes == std::vector<std::size_t>{1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 3, 2});
  CHECK(opp.objective.average == "step");
  CHECK(recipe_of(opp).parallel == "pipeline<one_forward_one_backward>");
  CHECK(run_of(pipeline + " --global-batch-size 12 --manual-mbs 2,6,4").parallel.micro_batch_sizes == std::vector<std::size_t>{2, 6, 4});
  CHECK(
      refusal(pipeline + " --manual-mbs 4,4") ==
      "--manual-mbs: must be --global-batch-size 64 / data-parallel ranks 1 / --micro-batch-size 4 = 16 numbers with the sum 64; given 2 with the sum 8");
  CHECK(refusal(pipeline + " --manual-mbs example-config-2") ==
        "--manual-mbs: example-config-2 is for --pipeline-model-parallel-size 8; given 4");
}

TEST_CASE("contradictions are one sentence") {
  const auto refused = [](const std::string& flags) { return refusal(llama_line + flags); };
  CHECK(refused(" --weight-decay nan") == "--weight-decay: must be non-negative; given nan");
  CHECK(refused(" --clip-grad inf") == "--clip-grad: must be non-negative; given inf");
  CHECK(refused(" --save-interval nan") == "--save-interval: must be a non-negative integer; given nan");
  CHECK(refused(" --sequence-parallel") == "--sequence-parallel: needs --tensor-model-parallel-size above 1; given 1");
  CHECK(refused(" --global-batch-size 30") ==
        "--global-batch-size: must be divisible by --micro-batch-size x data-parallel ranks = 4 x 1 = 4; given 30");
  CHECK(refused(" --num-layers-per-virtual-pipeline-stage 5 --nproc_per_node 2 --pipeline-model-parallel-size 2") ==
        "--num-layers-per-virtual-pipeline-stage: times --pipeline-model-parallel-size must divide --num-layers: 5 x 2 does not divide 32");
  CHECK(refused(" --tensor-model-parallel-size 8") ==
        "--nproc_per_node: must be divisible by --tensor-model-parallel-size x --pipeline-model-parallel-size = 8; given 1 rank");
  CHECK(refused(" --fold-mode aiao") == "--fold-mode: aiao needs virtual pipeline stages: --num-layers-per-virtual-pipeline-stage");
  CHECK(refused(" --triangle-atn") == "--triangle-atn: there is no such flag; did you mean '--triangle-attn'?");
  CHECK(refused(" --rampup-batch-size 192 16 9_765_625") == "--rampup-batch-size: needs --train-samples, not --train-iters");
  CHECK(refused(" --task boolq") == "--task: is not a flag of pretrain_llama");
  CHECK(refused(" --fp16 --bf16") == "--fp16: must not be given with --bf16");
  CHECK(refused(" --seq-length 4096") == "--max-position-embeddings: must be at least --seq-length, 4096; given 2048");
  CHECK(refused(" --lr-warmup-iters 1000") == "--lr-warmup-iters: must be shorter than the decay, 1000 steps; given 1000");
  CHECK(refused(" --min-lr 1") == "--min-lr: must not be above --lr, 1e-05; given 1");
  CHECK(refused(" --hidden-size 4097") == "--hidden-size: must be divisible by --num-attention-heads 32; given 4097");
  CHECK(refused(" --num-query-groups 8") == "--num-query-groups: needs --group-query-attention");
  CHECK(refused(" --normalization LayerNorm") == "--normalization: must be RMSNorm for pretrain_llama");
  CHECK(refused(" --hidden-dropout 0.1") == "--hidden-dropout: must be 0 for pretrain_llama, whose model has none; given 0.1");
  CHECK(refused(" --lr-decay-style wsd") == "--lr-decay-style: must be one of constant, linear, cosine, inverse-square-root; given wsd");
  CHECK(refused(" --train-iters ten") == "--train-iters: must be a non-negative integer; given ten");
  CHECK(refused(" --optimizer sgd").starts_with("--optimizer: sgd needs --weight-decay 0"));
  CHECK(refused(" --data-path 0.5 a b") == "--data-path: must be one prefix, or a weight before each; given 3 words");
  CHECK(refused(" stray") ==
        "stray: must be a flag or the value of one; there is a script of Megatron-LM's or AscendSpeed's before it already");
  CHECK(refused(" --load nowhere").ends_with("nowhere does not exist"));
  CHECK(refused(" --num-layers 30 --nproc_per_node 4 --pipeline-model-parallel-size 4") ==
        "--num-layers: must be divisible by --pipeline-model-parallel-size 4, or --manual-layers given; given 30");
}

TEST_CASE("schedules count samples") {
  const std::string by_samples =
      "pretrain_bloom --num-layers 30 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 2048 --seq-length 2048"
      " --micro-batch-size 4 --global-batch-size 512 --lr 1.2e-4 --min-lr 6e-6 --lr-decay-style cosine --data-path d"
      " --tokenizer-name-or-path t --save s --embed-layernorm --position-embedding-type alibi --attention-dropout 0 --hidden-dropout 0";
  const run_description run = run_of(
      by_samples + " --train-samples 220_000_256 --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 --pad-vocab-size-to 250880");
  CHECK(run.model.family == "bloom");
  CHECK(run.model.config.at("vocab_size") == 250880);
  CHECK(run.model.config.at("seq_length") == 2048);
  CHECK(run.max_steps == 429688);
  CHECK(run.samples == 220'000'256);
  CHECK(run.schedule.counts == "sequences");
  CHECK(run.schedule.decay_steps == 200'000'000);
  CHECK(run.schedule.warmup_steps == 183'105);
  const run_description between = run_of(by_samples + " --train-samples 1000 --lr-warmup-fraction 0.1");
  CHECK(between.max_steps == 1);
  CHECK(between.samples == 1000);
  CHECK(between.schedule.decay_steps == 1000);
  CHECK(between.schedule.warmup_ratio == 0.1);
  CHECK(refusal(by_samples + " --train-samples 1024 --lr-warmup-iters 3") == "--lr-warmup-iters: must not be given with --train-samples");

  const run_description fraction = run_of(llama_line + " --lr-decay-style cosine --lr-decay-iters 320 --lr-warmup-fraction .01 --min-lr 1.0e-6");
  CHECK(fraction.schedule.kind == "cosine");
  CHECK(fraction.schedule.decay_steps == 320);
  CHECK(fraction.schedule.warmup_ratio == 0.01);
  CHECK(fraction.schedule.min_learning_rate == 1e-6);
  const run_description root = run_of(llama_line + " --lr-decay-style inverse-square-root --lr-warmup-iters 10");
  CHECK(root.schedule.kind == "inverse_square_root");
  CHECK(root.schedule.warmup_steps == 10);
  CHECK(root.schedule.settings.at("timescale") == 0.25);
  CHECK(root.schedule.counts == "steps");
}

TEST_CASE("the global batch grows by Megatron's rule") {
  // BLOOM-176B's with fewer ranks: 12 stages, 8 data-parallel ranks
  const std::string bloom =
      "pretrain_bloom --nproc_per_node 96 --num-layers 24 --hidden-size 448 --num-attention-heads 14 --max-position-embeddings 2048 --seq-length 2048"
      " --pipeline-model-parallel-size 12 --micro-batch-size 2 --global-batch-size 2048 --train-samples 220_000_000 --lr 6e-5 --data-path d --save s"
      " --tokenizer-name-or-path t --embed-layernorm --attention-dropout 0 --hidden-dropout 0 --bf16";
  const std::string ramp = " --rampup-batch-size 192 16 9_765_625";
  const run_description run = run_of(bloom + ramp);
  CHECK(run.rampup_batch_size == std::vector<std::size_t>{192, 16, 9'765'625});
  CHECK(run.gradient_accumulation_steps == 128);
  CHECK(run.samples == 220'000'000);
  // Megatron-LM's update_train_iters
  const auto iterations = [](std::size_t start, std::size_t increment, std::size_t samples, std::size_t full, std::size_t all) {
    const double per_increment = static_cast<double>(samples) / static_cast<double>((full - start) / increment);
    std::size_t steps = 0, consumed = 0;
    while (consumed <= samples) {
      consumed += start + static_cast<std::size_t>(static_cast<double>(consumed) / per_increment) * increment;
      ++steps;
    }
    return steps + (all - consumed) / full;
  };
  CHECK(run.max_steps == iterations(192, 16, 9'765'625, 2048, 220'000'000));
  const global_batch_sizes batches(2048, {192, 16, 9'765'625}, 16);
  CHECK(batches.before(run.max_steps) <= 220'000'000);
  CHECK(batches.before(run.max_steps + 1) > 220'000'000);
  CHECK(run.to_json(false).at("rampup_batch_size") == json::parse("[192, 16, 9765625]"));
  CHECK(refusal(bloom + " --rampup-batch-size 192 16") == "--rampup-batch-size: must be three numbers: start, increment, samples; given 2");
  CHECK(refusal(bloom + " --rampup-batch-size 0 16 100") == "--rampup-batch-size: must start with at least 1; given 0");
  CHECK(refusal(bloom + " --rampup-batch-size 2048 16 100") == "--rampup-batch-size: must start below the global batch size, 2048; given 2048");
  CHECK(refusal(bloom + " --rampup-batch-size 192 30 100") ==
        "--rampup-batch-size: the increment must divide the global batch size minus the start, 2048 - 192; given 30");
  CHECK(refusal(bloom + " --rampup-batch-size 200 8 100") ==
        "--rampup-batch-size: start and increment must be divisible by micro-batch size x data-parallel ranks, 16; given 200 and 8");
  CHECK(refusal(bloom + " --rampup-batch-size 192 16 0") ==
        "--rampup-batch-size: must be over a positive number of samples below 2^53; given 0");
  CHECK(refusal(bloom + " --rampup-batch-size 192 16 220_000_000") ==
        "--rampup-batch-size: must end before --train-samples, 220000000; given 220000000");
  CHECK(refusal(bloom + " --rampup-batch-size 192 16 many") == "--rampup-batch-size: must be whole numbers that are not negative; given 192 16 many");
  CHECK(refusal(bloom + ramp + " --num-layers-per-virtual-pipeline-stage 1 --global-batch-size 2112") ==
        "--rampup-batch-size: start and increment must be divisible by --micro-batch-size x data-parallel ranks x --pipeline-model-parallel-size = 192 with "
        "virtual pipeline stages; given 16");
}

TEST_CASE("precision and loss scaling") {
  CHECK(run_of(llama_line + " --fp16").loss_scale == json::parse(R"({"initial": 4294967296.0, "min": 1.0, "window": 1000, "hysteresis": 2})"));
  CHECK(run_of(llama_line + " --fp16 --initial-loss-scale 524288.0 --loss-scale-window 500.0 --hysteresis 3").loss_scale ==
        json::parse(R"({"initial": 524288.0, "min": 1.0, "window": 500, "hysteresis": 3})"));
  const run_description fixed = run_of(llama_line + " --fp16 --loss-scale 64");
  CHECK(fixed.loss_scale.at("initial") == 64.0);
  CHECK(fixed.loss_scale.at("min") == 64.0);
  const run_description bf16 = run_of(llama_line + " --bf16 --initial-loss-scale 524288.0");
  CHECK(bf16.precision == "bf16_mixed");
  CHECK(bf16.loss_scale.empty());
  CHECK(has_note(bf16.notes, "--initial-loss-scale: the loss is scaled with --fp16 only"));
  CHECK(run_of(llama_line + " --bf16 --grad-reduce-in-bf16").precision == "bf16_gradients");
  CHECK(refusal(llama_line + " --fp16 --accumulate-allreduce-grads-in-fp32")
            .starts_with("--accumulate-allreduce-grads-in-fp32: is not supported with --fp16"));
}

TEST_CASE("recomputation") {
  CHECK(run_of(llama_line).recompute == "none");
  CHECK(run_of(llama_line + " --checkpoint-activations").recompute == "full");
  CHECK(run_of(llama_line + " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1").recompute == "full");
  CHECK(run_of(llama_line + " --recompute-granularity selective").recompute == "selective");
  CHECK(run_of(llama_line + " --checkpoint-activations --recompute-method custom --recomputation-layer-num 3 2 1 0").recompute == "full");
  CHECK(run_of(llama_line + " --recompute-activations").recompute == "selective");
  CHECK(run_of(llama_line + " --checkpoint-activations --checkpoint-policy custom").recompute == "selective");
  const run_description block = run_of(llama_line + " --checkpoint-activations --checkpoint_policy block --checkpoint_block_layer 5");
  CHECK(block.recompute == "full");
  CHECK(has_note(block.notes, "--checkpoint_policy block: all layers are recomputed, not 5 of each stage"));
}

TEST_CASE("DeepSpeed's config is applied as AscendSpeed applies it") {
  const scratch_folder f;
  write_file(
      f / "ds.json",
      R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 8, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 2, "overlap_comm": true, "allgather_bucket_size": 5e8}, "gradient_accumulation_steps": 1,
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "zero_allow_untested_optimizer": true})");
  const std::string flags =
      sizes +
      " --micro-batch-size 8 --global-batch-size 64 --clip-grad 1.0 --adam-beta2 0.95 --fp16 --no-pipeline-parallel --deepspeed "
      "--deepspeed-activation-checkpointing --deepspeed_config=" +
      (f / "ds.json");
  const run_description run = run_of("megatron deepspeed pretrain_llama.py" + flags + " --zero-stage=2");
  CHECK(run.parallel.ranks == 8);
  CHECK(run.parallel.zero == 2);
  CHECK(run.gradient_accumulation_steps == 1);
  CHECK(run.recompute == "full");
  CHECK(run.loss_scale.at("initial") == 256.0);
  CHECK(run.optimizer.settings.at("beta2") == 0.95);
  CHECK(run.schedule.learning_rate == 1e-5);
  CHECK(run.optimizer.max_grad_norm == 1.0);  // DeepSpeed clips by its own key or default
  CHECK(has_note(run.notes, "gradient_clipping: is not given: 1, the default of DeepSpeed from 0.19.3 on"));
  CHECK(run.follows == "AscendSpeed 2023-10 and Megatron-LM (core 0.16), DeepSpeed 0.19.8");
  CHECK(has_note(run.notes, "8 ranks, which follows from train_batch_size"));
  CHECK(recipe_of(run).key() == "cpu-fp16_mixed-zero.2-recompute_full");
  CHECK(refusal("megatron deepspeed --num_gpus 8 pretrain_llama.py" + flags + " --zero-stage 3").find("must be zero_optimization.stage") !=
        std::string::npos);
  CHECK(refusal("megatron deepspeed --num_gpus 4 pretrain_llama.py" + flags).find("gradient_accumulation_steps") != std::string::npos);
  json two = read_json(f / "ds.json");
  two.erase("gradient_accumulation_steps");
  write_file(f / "ds.json", two.dump());
  CHECK(run_of("megatron deepspeed pretrain_llama.py" + flags + " --zero-stage=2").parallel.ranks == 8);
  CHECK(refusal("megatron deepspeed pretrain_llama.py" + sizes) ==
        "deepspeed: --num_gpus must be given: the number of ranks, which are threads of this process");
  CHECK(refusal(llama_line + " --deepspeed") == "--deepspeed: needs --deepspeed_config, a file");
}

TEST_CASE("pretrain_gpt is the model that its flags make") {
  const std::string gpt =
      "pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 32 --seq-length 32 --micro-batch-size 1 --train-iters 3 "
      "--lr 1e-3 --data-path d --save s --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt";
  const run_description gpt2 = run_of(gpt);
  CHECK(gpt2.model.family == "gpt2");
  CHECK(gpt2.model.config ==
        json::parse(R"({"n_layer": 2, "n_embd": 64, "n_head": 4, "n_inner": 256, "n_positions": 32, "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02, "tie_word_embeddings": true, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1})"));
  CHECK(gpt2.tokenizer.path == "gpt2-vocab.json");
  CHECK(gpt2.tokenizer.merges == "gpt2-merges.txt");
  const std::string modern =
      gpt + " --position-embedding-type rope --normalization RMSNorm --swiglu --hidden-dropout 0 --attention-dropout 0.0";
  const run_description llama_like =
      run_of(modern + " --disable-bias-linear --group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights");
  CHECK(llama_like.model.family == "llama");
  CHECK(llama_like.model.config.at("num_key_value_heads") == 2);
  CHECK(llama_like.model.config.at("tie_word_embeddings") == false);
  CHECK(run_of(modern).model.config.at("mlp_bias") == true);
  CHECK(run_of(modern + " --disable-bias-linear --add-qkv-bias").model.family == "qwen2");
  CHECK(run_of(modern + " --disable-bias-linear --qk-layernorm").model.family == "qwen3");
  const run_description experts =
      run_of(modern + " --disable-bias-linear --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm");
  CHECK(experts.model.family == "mixtral");
  CHECK(experts.model.config.at("router_aux_loss_coef") == 1e-2);
  CHECK(run_of(gpt + " --position-embedding-type alibi --embed-layernorm").model.family == "bloom");
  CHECK(refusal(gpt + " --swiglu").starts_with("pretrain_gpt: must be a model that the library has: GPT-2 (learned positions"));
  CHECK(refusal(gpt + " --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear") ==
        "--hidden-dropout: must be given as 0 for a model with RMSNorm and SwiGLU, which has none; it is 0.1, Megatron's default");
  CHECK(refusal(gpt + " --no-bias-gelu-fusion").starts_with("--no-bias-gelu-fusion: computes GELU by erf"));
  CHECK(refusal(gpt + " --merge-file other.txt").starts_with("--merge-file: must stand beside --vocab-file"));
}

TEST_CASE("other families differ in biases and positions") {
  CHECK(run_of("pretrain_internlm" + sizes).model.config.at("bias") == true);
  CHECK(run_of("megatron pretrain_intern.py" + sizes).model.family == "internlm");
  CHECK(run_of("pretrain_aquila" + sizes).model.family == "aquila");
  const run_description rope = run_of("pretrain_baichuan" + sizes),
                        alibi = run_of("pretrain_baichuan" + sizes + " --position-embedding-type alibi");
  CHECK(rope.model.config.at("max_position_embeddings") == 2048);
  CHECK_FALSE(alibi.model.config.contains("max_position_embeddings"));
  CHECK(alibi.model.config.at("model_max_length") == 2048);
  CHECK(refusal(llama_line + " --position-embedding-type alibi") == "--position-embedding-type: must be rope for pretrain_llama; given alibi");
}

TEST_CASE("--load is a model's folder, a run's, or a checkpoint") {
  const scratch_folder f;
  const std::string model = f / "llama-7b", run_folder = f / "ckpt";
  write_model(model, llama_7b);
  const run_description tuned = run_of(llama_line + " --load " + model + " --no-load-optim --no-load-rng --layernorm-epsilon 1e-6");
  CHECK(tuned.model.folder == model);
  CHECK(tuned.model.config.at("num_hidden_layers") == 32);
  CHECK_FALSE(tuned.model.config.contains("rms_norm_eps"));
  CHECK(tuned.model.override_config == json::parse(R"({"rms_norm_eps": 1e-6})"));
  CHECK(tuned.output.resume.empty());
  CHECK(has_note(tuned.notes, "--max-position-embeddings: how long sequences may be"));
  CHECK_FALSE(tuned.model.config.contains("tie_word_embeddings"));
  CHECK(run_of(llama_line + " --load " + model + " --untie-embeddings-and-output-weights").model.config.at("tie_word_embeddings") == false);
  CHECK(run_of(llama_line + " --load " + model + " --no-untie-embeddings-and-output-weights").model.config.at("tie_word_embeddings") == true);
  CHECK(refusal(llama_line + " --load " + model + " --save " + model).starts_with("--save: must not be the folder of --load"));
  CHECK(run_of("pretrain_llama --micro-batch-size 1 --seq-length 8 --train-iters 2 --lr 1 --data-path d --save s --load " + model)
            .model.config.empty());
  // Megatron's own model has biases by default: a folder without them is another model
  const std::string gpt = "pretrain_gpt --micro-batch-size 1 --seq-length 8 --train-iters 2 --lr 1 --data-path d --save s --swiglu --normalization RMSNorm "
                          "--position-embedding-type rope --hidden-dropout 0 --attention-dropout 0 --load " + model;
  CHECK(run_of(gpt).model.config == json::parse(R"({"attention_bias": true, "mlp_bias": true})"));
  CHECK(run_of(gpt + " --disable-bias-linear").model.config.empty());

  CHECK(run_of(llama_line + " --load " + run_folder + " --save " + run_folder).output.resume == "latest");
  CHECK(refusal(llama_line + " --load " + run_folder + " --save " + run_folder + " --exit-on-missing-checkpoint") ==
        "--exit-on-missing-checkpoint: there is no checkpoint in --load, " + run_folder);
  CHECK(run_of(llama_line + " --load " + model + " --exit-on-missing-checkpoint").model.folder == model);
  std::filesystem::create_directories(run_folder + "/checkpoint-20");
  std::filesystem::create_directories(run_folder + "/checkpoint-100");
  CHECK(run_of(llama_line + " --load " + run_folder).output.resume == run_folder + "/checkpoint-100");
  CHECK(run_of(llama_line + " --load " + run_folder + " --save " + run_folder + " --exit-on-missing-checkpoint").output.resume == "latest");
  CHECK(
      refusal(llama_line + " --load " + run_folder + " --save " + run_folder + " --finetune").starts_with("--finetune: needs a model's folder"));
  write_model(run_folder, llama_7b);
  CHECK(run_of(llama_line + " --load " + run_folder + " --save " + run_folder).output.resume == "latest");
  CHECK(run_of(llama_line + " --finetune --load " + run_folder).model.folder == run_folder);
  CHECK(refusal(llama_line + " --load " + run_folder).find("holds a model and checkpoints of its run") != std::string::npos);
}

TEST_CASE("LoRA's modules are those of the family") {
  const scratch_folder f;
  const std::string model = f / "llama-7b", adapter = f / "adapter";
  write_model(model, llama_7b);
  std::filesystem::create_directories(adapter);
  write_file(adapter + "/adapter_config.json", "{}");
  const std::string lora =
      " --load " + model +
      " --is-instruction-dataset --lora-r 64 --lora-alpha 128 --lora-register-forward-hook word_embeddings input_layernorm";
  const run_description run =
      run_of(llama_line + lora +
             " --lora-target-modules query_key_value dense gate_proj up_proj down_proj --lora-modules-to-save word_embeddings "
             "lm_head.lm_head --split 949,50,1 --eval-iters 10");
  CHECK(run.adapter.kind == "lora");
  CHECK(run.adapter.rank == 64);
  CHECK(run.adapter.alpha == 128.0);
  CHECK(run.adapter.targets == std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  CHECK(run.adapter.modules_to_save == std::vector<std::string>{"embed_tokens", "lm_head"});
  CHECK(run.data.front().kind == "indexed_instructions");
  CHECK(run.data.front().split == "train of 949,50,1");
  CHECK(run.eval_data.front().split == "validation of 949,50,1");
  CHECK(run.eval_iters == 0);
  CHECK(run_of(llama_line + lora + " --lora-target-modules query_key_value --lora-load " + adapter).model.adapter == adapter);
  CHECK(run_of("pretrain_baichuan" + sizes + lora + " --lora-target-modules query_key_value dense_h_to_4h").adapter.targets ==
        std::vector<std::string>{"W_pack", "up_proj"});
  CHECK(
      refusal(
          "pretrain_bloom --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --micro-batch-size 1 --train-iters 2 --lr 1 --data-path d "
          "--save s --lora-target-modules dense --lora-modules-to-save lm_head --load " +
          model)
          .ends_with("the head of bloom is its embedding; give word_embeddings"));
  CHECK(refusal(llama_line + " --lora-target-modules dense") ==
        "--lora-target-modules: needs a model's folder as --load: its weights are not trained");
  CHECK(refusal(llama_line + lora + " --lora-target-modules qkv")
            .starts_with("--lora-target-modules: must be modules of llama: query_key_value, dense"));
  CHECK(run_of(llama_line + " --lora-r 8").adapter.kind == "none");
}

TEST_CASE("data: weights, and parts") {
  const run_description blend = run_of(llama_line + " --data-path 0.3 a_text_document 0.7 b_text_document --split 100,0,0 --eval-iters 10");
  REQUIRE(blend.data.size() == 2);
  CHECK(blend.data[1].files == std::vector<std::string>{"b_text_document"});
  CHECK(blend.data[1].weight == 0.7);
  CHECK(blend.eval_iters == 0);
  CHECK(blend.output.eval_steps == 0);
  CHECK(has_note(blend.notes, "--eval-iters: --split 100,0,0 has no validation part"));
}

TEST_CASE("weights are converted to a folder for every mesh, after a look at their sizes") {
  const scratch_folder f;
  const std::string model = f / "llama-7b-hf";
  write_model(model, llama_7b);
  const std::string convert =
      "megatron tools/ckpt_convert/llama/convert_weights_from_huggingface.py --output-model-dir ckpt --input-model-dir ";
  const megatron_command all =
      command(convert + model + " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --type 7B --deepspeed");
  CHECK_FALSE(all.trains);
  REQUIRE(all.calls.size() == 1);
  CHECK(all.calls[0] == megatron_command::call{"convert", {"--from", model, "--to", "ckpt", "--format", "hf"}});
  CHECK(has_note(all.notes, "every mesh loads, not only 2 x 4"));
  CHECK(refusal(convert + model + " --type 13B").starts_with("--type 13B: is 40 layers, a hidden size of 5120 and 40 heads; "));
  // a given size replaces 7B's
  json small = json::parse(llama_7b);
  small["num_hidden_layers"] = 22;
  write_model(f / "small", small.dump());
  CHECK(refusal(convert + (f / "small")).starts_with("--type: is 7B where no size is given: 32 layers, a hidden size of 4096 and 32 heads; "));
  CHECK(command(convert + (f / "small") + " --num-layers 22").calls.size() == 1);
  CHECK(refusal(convert + (f / "small") + " --num-layers 24").starts_with("--num-layers: says 24 layers; "));
  CHECK(refusal(convert + model + " --pipeline-model-parallel-size 5") ==
        "--pipeline-model-parallel-size: must divide the model's 32 layers; given 5");
  CHECK(refusal(convert + model + " --pse").starts_with("--pse: is for Baichuan's W_pack"));
  CHECK(refusal(convert + model + " --bias").starts_with("--bias: needs a model with biases"));
  CHECK(refusal(convert + (f / "none")).find("must be a Hugging Face folder") != std::string::npos);
}

TEST_CASE("inference and evaluation are calls of this library's programs") {
  const std::string model_flags =
      " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008"
      " --num-attention-heads 32 --load llama-7b --tokenizer-type PretrainedFromHF --tokenizer-name-or-path vocab"
      " --tokenizer-not-use-fast --fp16 --micro-batch-size 1 --seed 42 --max-position-embeddings 2048";
  const megatron_command text =
      command("megatron python -m torch.distributed.launch --nproc_per_node 4 ./tasks/inference/inference_llama.py" + model_flags +
              " --seq-length 256 --max-new-tokens 64");
  REQUIRE(text.calls.size() == 2);
  CHECK(text.calls[0] == megatron_command::call{"generate",
                                                {"--model", "llama-7b", "--tokenizer", "vocab", "--prompt", "how are you?",
                                                 "--max-new-tokens", "64", "--temperature", "0"}});
  CHECK(text.calls[1] ==
        megatron_command::call{"generate",
                               {"--model", "llama-7b", "--tokenizer", "vocab", "--prompt", "how are you?", "--max-new-tokens", "64",
                                "--temperature", "0.7", "--top-k", "50", "--top-p", "0.95", "--seed", "42", "--log-probs"}});
  CHECK(has_note(text.notes, "does not depend on the mesh"));
  CHECK(refusal("inference_llama" + model_flags + " --task") == "--task: must have a value: 1 (greedy), 2 (sampled, with log-probabilities)");
  const megatron_command alpaca = command(
      "megatron deepspeed --num_gpus 8 inference_alpaca.py" + model_flags +
      " --lora-load adapter --lora-r 16 --lora-alpha 32 --lora-target-modules dense --deepspeed --deepspeed_config ds.json --task 1");
  REQUIRE(alpaca.calls.size() == 1);
  CHECK(alpaca.calls[0].arguments == std::vector<std::string>{"--model", "llama-7b", "--adapter", "adapter", "--tokenizer", "vocab",
                                                              "--format", "alpaca", "--prompt", "how are you?", "--max-new-tokens", "128",
                                                              "--temperature", "0"});
  const megatron_command on_gpu = command("inference_llama --load m --bf16 --task 1 --device cuda");
  CHECK(on_gpu.calls[0] == megatron_command::call{"generate_cuda", {"--model", "m", "--prompt", "how are you?", "--max-new-tokens", "128", "--device", "cuda",
                                                                    "--temperature", "0"}});
  CHECK(refusal("inference_llama --load m --device cuda") == "--device: must be given with --bf16 for cuda: generate_cuda computes in it; given cuda");
  CHECK(refusal("inference_llama --load m --device npu") == "--device: must be given with --bf16 or --fp16 for npu: generate_npu computes in bf16; given npu");
  const megatron_command on_npu = command("inference_llama --load m --fp16 --task 1 --device npu");
  CHECK(on_npu.calls[0].program == "generate_npu");
  CHECK(has_note(on_npu.notes, "text is generated in bf16"));
  CHECK(command("evaluation.py --load m --task boolq --task-data-path ./dataset/boolq/test/ --fp16 --device npu").calls[0].program == "evaluate_npu");
  const megatron_command on_a_gpu = command("evaluation.py --load m --task boolq --task-data-path ./dataset/boolq/test/ --bf16 --device cuda");
  CHECK(on_a_gpu.calls[0].program == "evaluate_cuda");
  CHECK(has_note(on_a_gpu.notes, "benchmarks are run in bf16"));
  CHECK(refusal("inference_llama" + model_flags + " --top-p 1.5") == "--top-p: must be above 0, at most 1; given 1.5");
  CHECK(refusal("inference_llama" + model_flags + " --top-p 0") == "--top-p: must be above 0, at most 1; given 0");
  CHECK(refusal("generate_llama" + model_flags + " --task 3").starts_with("--task 3: is a conversation in the terminal"));
  CHECK(refusal("generate_llama --max-new-tokens 3") == "--load: must be given: the model's folder");

  const megatron_command boolq =
      command("megatron torchrun --nproc_per_node 8 evaluation.py --task-data-path dataset/boolq/test --task boolq" + model_flags +
              " --seq-length 512 --max-new-tokens 1");
  REQUIRE(boolq.calls.size() == 1);
  CHECK(boolq.calls[0] == megatron_command::call{"evaluate",
                                                 {"--model", "llama-7b", "--tokenizer", "vocab", "--max-length", "512", "--batch-size", "1",
                                                  "--tasks", "boolq", "--data-dir", "dataset"}});
  const megatron_command two = command("evaluation --load m --task mmlu gsm8k --task-data-path ./mmlu/data gsm8k --max-new-tokens 256");
  REQUIRE(two.calls.size() == 2);
  CHECK(two.calls[0].arguments == words_of("--model m --batch-size 1 --tasks mmlu --data-dir ."));
  CHECK(two.calls[1].arguments == words_of("--model m --batch-size 1 --tasks gsm8k --data-dir . --max-gen-toks 256"));
  CHECK(command("megatron evaluation.py --load m --task boolq --task-data-path ./dataset/boolq/test/").calls[0].arguments ==
        words_of("--model m --batch-size 1 --tasks boolq --data-dir dataset"));
  const std::string lambada = "megatron python tasks/main.py --load m --task LAMBADA --valid-data data/lambada/test.jsonl --micro-batch-size 8"
                              " --num-layers 24 --tokenizer-type GPT2BPETokenizer --log-interval 10 --no-load-optim --fp16";
  CHECK(command(lambada + " --strict-lambada").calls[0] ==
        megatron_command::call{"evaluate", words_of("--model m --batch-size 8 --tasks lambada_openai --data-dir data")});
  CHECK(refusal(lambada) == "--strict-lambada: must be given: the last word is to be predicted, not its last token");
  CHECK(refusal(lambada + " --strict-lambada --task RACE") ==
        "--task: must be LAMBADA or WIKITEXT103: others are for models that are not decoders; given RACE");
  const std::string wikitext = "megatron python tasks/main.py --task WIKITEXT103 --load m --tokenizer-model t --seq-length 1024 --micro-batch-size 8";
  CHECK(command(wikitext + " --tokenizer-type GPT2BPETokenizer --valid-data wikitext-103/wiki.test.tokens --overlapping-eval 64").calls[0] ==
        megatron_command::call{"evaluate", words_of("--model m --tokenizer t --max-length 1024 --batch-size 8 --wikitext103 wikitext-103/wiki.test.tokens"
                                                    " --overlapping-eval 64 --no-bos")});
  CHECK(command(wikitext + " --tokenizer-type PretrainedFromHF --valid-data wikitext-103/wiki.test.tokens").calls[0].arguments ==
        words_of("--model m --tokenizer t --max-length 1024 --batch-size 8 --wikitext103 wikitext-103/wiki.test.tokens --overlapping-eval 32"));
  CHECK(refusal(wikitext + " --valid-data test.tokens").starts_with("--valid-data: must be one file with 'wiki' in its path, and not 'ptb'"));
  CHECK(refusal(wikitext + " --valid-data wiki/ptb.txt").starts_with("--valid-data: must be one file with 'wiki' in its path, and not 'ptb'"));
  CHECK(refusal(wikitext + " --valid-data wiki.txt --overlapping-eval 0") == "--overlapping-eval: must be positive; given 0");
  CHECK(refusal(lambada + " --strict-lambada --valid-data lambada.jsonl") ==
        "--valid-data: must be one file, test.jsonl or lambada_test_en.jsonl in a folder lambada; given lambada.jsonl");
  CHECK(refusal("megatron main.py --load m").starts_with("megatron: the words must have a script"));
  CHECK(refusal("evaluation --load m --task squad --task-data-path d").starts_with("--task: must be of boolq, mmlu, gsm8k"));
}

TEST_CASE("preprocess_data keeps its flags, and reads datasets that are there") {
  const scratch_folder f;
  std::filesystem::create_directories(f / "wikipedia/20220301.en");
  write_file(f / "params.json",
             "{\"path\": \"" + (f / "wikipedia") + "\", \"name\": \"20220301.en\", \"streaming\": true, \"split\": \"train\"}");
  const std::string flags =
      " --output-prefix out --dataset-impl mmap --tokenizer-type PretrainedFromHF --tokenizer-name-or-path t --tokenizer-not-use-fast --workers 8";
  const megatron_command plain =
      command("megatron python tools/preprocess_data.py --input alpaca.parquet" + flags + " --pad-vocab-size-to 64");
  REQUIRE(plain.calls.size() == 1);
  CHECK(plain.calls[0] == megatron_command::call{"preprocess_data", words_of("--input alpaca.parquet" + flags)});
  const megatron_command hub =
      command("megatron preprocess_data --input WORKSPACE/wikipedia --hf-datasets-params " + (f / "params.json") + flags + " --streaming");
  CHECK(hub.calls[0].arguments == words_of("--input " + (f / "wikipedia/20220301.en") + flags + " --streaming"));
  write_file(f / "params.json", R"({"path": "tatsu-lab/alpaca"})");
  CHECK(refusal("megatron preprocess_data --hf-datasets-params " + (f / "params.json")).find("datasets are not downloaded") !=
        std::string::npos);
}

TEST_CASE("iterations are logged as Megatron logs them") {
  std::FILE* const to = std::tmpfile();
  REQUIRE(to != nullptr);
  const auto text = [&] {
    std::string all(static_cast<std::size_t>(std::ftell(to)), ' ');
    std::rewind(to);
    all.resize(std::fread(all.data(), 1, all.size(), to));
    std::rewind(to);
    const std::string_view time = "elapsed time per iteration (ms): ";
    if (const std::size_t at = all.find(time); at != std::string::npos)
      all.replace(at + time.size(), all.find(" |", at) - at - time.size(), "T");
    return all;
  };
  command_line::megatron_lines lines(2, to);
  lines.on(run_began{.max_steps = 100, .sequences_per_step = 64});
  lines.on(step_done{.step = 1, .steps = 100, .loss = 6.0, .learning_rate = 0.0, .gradient_norm = 1.0});
  CHECK(std::ftell(to) == 0);
  lines.on(step_done{.step = 2, .steps = 100, .loss = 5.0, .learning_rate = 1e-5, .gradient_norm = 1.2345});
  CHECK(
      text() ==
      " iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): T | learning rate: 1.000E-05 |"
      " global batch size:    64 |"
      " lm loss: 5.500000E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |\n");
  lines.on(step_done{.step = 3, .steps = 100, .loss = 4.0, .learning_rate = 2e-5, .gradient_norm = 2.0, .loss_scale = 8.0});
  lines.on(step_skipped{.step = 4, .overflow = true});
  CHECK(text() ==
        " iteration        4/     100 | consumed samples:          256 | elapsed time per iteration (ms): T | learning rate: 2.000E-05 |"
        " global batch size:    64 |"
        " lm loss: 4.000000E+00 | loss scale: 8.0 | number of skipped iterations:   1 | number of nan iterations:   0 |\n");
  lines.on(evaluation_done{.step = 4, .loss = 1.0});
  CHECK(text() ==
        "---------------------------------------------------------------------------------------------\n"
        " validation loss at iteration 4 | lm loss value: 1.000000E+00 | lm loss PPL: 2.718282E+00 | \n"
        "---------------------------------------------------------------------------------------------\n");
  std::fclose(to);
}

TEST_CASE("experts are divided over data-parallel ranks") {
  CHECK(refusal(llama_line + " --nproc_per_node 2 --expert-model-parallel-size 2") == "--expert-model-parallel-size: needs --num-experts; given 2");
  CHECK(refusal("pretrain_gpt" + sizes + " --normalization RMSNorm --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights "
                "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --num-experts 8 --nproc_per_node 2 --tensor-model-parallel-size 2 "
                "--expert-model-parallel-size 2") == "--expert-model-parallel-size: must divide the data-parallel ranks, 1; given 2");
}

TEST_CASE("assignments in front of a command are not read") {
  const megatron_command one = command("megatron CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 2 pretrain_llama.py" + sizes);
  CHECK(one.run.parallel.ranks == 2);
  CHECK(has_note(one.notes, "CUDA_DEVICE_MAX_CONNECTIONS=1: variables of the environment are not read here"));
}

TEST_CASE("the page lists every flag, with what becomes of it") {
  using use = detail::megatron_flag_use;
  const std::string page = XTRAIN_SOURCE "/examples/ascendspeed.md";
  std::map<std::string, std::pair<use, std::string>> listed;
  std::set<std::string> of_conversion;
  std::map<std::string, std::string> ignored_by_conversion;
  for (const page_row& row : rows_of_page(page)) {
    if (row.section == "Of the conversions")
      for (const std::string& flag : flags_in(row.cells.front())) ignored_by_conversion[flag] = row.cells.at(1);
    const bool read = row.section == "Flags that are read", ignored = row.section == "Flags that have no effect",
               refused = row.section == "Flags that are refused";
    if ((!read && !ignored && !refused) || row.cells.front().starts_with("--")) continue;
    for (const std::string& flag : flags_in(row.cells.at(read ? 1 : 0))) {
      if (read && row.cells.front().starts_with("`convert_weights")) {
        of_conversion.insert(flag);
        continue;
      }
      CHECK_MESSAGE(listed.emplace(flag, std::pair{read ? use::read : ignored ? use::no_effect : use::refused, read ? "" : row.cells.at(1)}).second,
                    "--", flag, " is listed twice");
    }
  }
  for (const detail::megatron_flag& flag : detail::megatron_flags) {
    CAPTURE(flag.name);
    const auto at = listed.find(std::string(flag.name));
    CHECK_MESSAGE(at != listed.end(), "is not on the page");
    if (at == listed.end()) continue;
    CHECK_MESSAGE(at->second.first == flag.use, "is in another table");
    CHECK(at->second.second == flag.why);
    listed.erase(at);
  }
  for (const auto& one : listed) CHECK_MESSAGE(false, "there is no --", one.first);

  std::set<std::string> known{"print-run", "print-recipe", "plan", "input"};  // flags of the program and of preprocess_data
  for (const detail::megatron_flag& flag : detail::conversion_flags) {
    known.emplace(flag.name);
    if (flag.use == use::read) CHECK_MESSAGE(of_conversion.erase(std::string(flag.name)) == 1, flag.name, " of the conversion is not on the page");
    else CHECK(ignored_by_conversion[std::string(flag.name)] == flag.why);
  }
  CHECK(of_conversion.empty());
  for (const auto& row : ignored_by_conversion)
    CHECK_MESSAGE(std::any_of(detail::conversion_flags.begin(), detail::conversion_flags.end(),
                              [&](const detail::megatron_flag& one) { return one.name == row.first && one.use == use::no_effect; }),
                  "no conversion has --", row.first);
  for (const detail::megatron_flag& flag : detail::megatron_flags) known.emplace(flag.name);
  for (const std::string& flag : flags_of_page(page)) CHECK_MESSAGE(known.contains(flag), "the page names --", flag, ", which does not exist");
}
