// The planner, run as on a command line.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "program.hpp"
#include "scratch.hpp"

namespace {

using words = std::vector<std::string>;

program_result plan(words flags) {
  flags.insert(flags.begin(), EXAMPLES "/plan");
  return run_program(std::move(flags));
}
words operator+(words left, const words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const words seven_billion = {"--num-layers",        "32",    "--hidden-size",          "4096", "--num-attention-heads", "32",
                             "--intermediate-size", "11008", "--untie-word-embeddings"};

}  // namespace

TEST_CASE("a search lists what fits, the fastest first, and says how to run it") {
  const auto found = plan(seven_billion + words{"--devices", "8", "--global-batch-size", "32", "--machine", "910b", "--search", "--top", "2"});
  CAPTURE(found.err);
  CHECK(found.status == 0);
  CHECK(holds(found.out, "llama, 6.74 G parameters, on 8 x 910b (64.00 GiB each), a global batch of 32 sequences\n"));
  CHECK(holds(found.out, "layouts fit. The first:\n  xtrain_add_trainer(NAME my_trainer SOURCE pretrain.cpp PRECISION bf16_mixed RECOMPUTE recompute_"));
  CHECK(holds(found.out, "mpirun -n 8 my_trainer "));
  CHECK(found.err.empty());  // progress is shown in a terminal only
  const auto all = plan(seven_billion + words{"--devices", "8", "--global-batch-size", "32", "--machine", "910b", "--search", "--top", "2", "--exhaustive"});
  const auto until_count = [](const std::string& text, const char* count) { return text.substr(0, text.find(count)); };
  CHECK(until_count(found.out, "At least 2 of 216 layouts fit.") == until_count(all.out, "200 layouts fit."));
  CHECK(std::count(found.out.begin(), found.out.end(), '\n') == 7);
  const auto narrow = plan(seven_billion + words{"--devices", "8", "--global-batch-size", "32", "--search", "--tensor-parallel-size", "8", "--recompute",
                                                 "full", "--micro-batch-size", "4"});
  CHECK(holds(narrow.out, "2 layouts fit"));  // with sequence parallelism, or without
  CHECK(holds(narrow.out, "--tensor-parallel-size 8 --micro-batch-size 4 --gradient-accumulation-steps 8"));
}

TEST_CASE("one mesh is planned: memory, messages, time") {
  const auto one = plan(seven_billion + words{"--devices", "8", "--global-batch-size", "32", "--tensor-parallel-size", "2", "--pipeline-parallel-size", "2",
                                              "--zero-stage", "1", "--micro-batch-size", "4"});
  CAPTURE(one.err);
  CHECK(one.status == 0);
  for (const char* part : {"mesh           data 2 x tensor 2 x stages 2, zero 1\n", "  optimizer    ", "  stages       ", "  bubble       ",
                           "PARALLEL \"pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>\" MPI)\n",
                           "mpirun -n 8 my_trainer --tensor-parallel-size 2 --data-parallel-size 2 --micro-batch-size 4 --gradient-accumulation-steps 4"})
    CHECK_MESSAGE(holds(one.out, part), part);
}

TEST_CASE("every axis can be planned, and is named as the trainers name it") {
  const auto runs_as = [](const words& flags, const char* mesh, const char* strategy, const char* start) {
    const auto one = plan(seven_billion + flags);
    CAPTURE(one.out);
    CAPTURE(one.err);
    CHECK(holds(one.out, mesh));
    CHECK(holds(one.out, std::string("PARALLEL \"") + strategy + "\" MPI)\n"));
    CHECK(holds(one.out, start));
  };
  runs_as({"--devices", "8", "--global-batch-size", "8", "--zero-stage", "2"}, "mesh           data 8 x tensor 1 x stages 1, zero 2\n", "zero<2>",
          "mpirun -n 8 my_trainer --micro-batch-size 1");
  runs_as({"--devices", "8", "--global-batch-size", "8", "--tensor-parallel-size", "8", "--zero-stage", "1", "--sequence-parallel"},
          "mesh           data 1 x tensor 8 and sequence x stages 1, zero 1\n", "parallel<zero<1>, sequence_parallel>",
          "mpirun -n 8 my_trainer --tensor-parallel-size 8");
  runs_as({"--devices", "8", "--global-batch-size", "4", "--tensor-parallel-size", "2", "--pipeline-parallel-size", "2", "--zero-stage", "1",
           "--sequence-parallel"},
          "mesh           data 2 x tensor 2 and sequence x stages 2, zero 1\n", "pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>",
          "mpirun -n 8 my_trainer --tensor-parallel-size 2 --data-parallel-size 2 --micro-batch-size 1");
  runs_as({"--devices", "8", "--global-batch-size", "2", "--tensor-parallel-size", "2", "--context-parallel-size", "2", "--pipeline-parallel-size", "2"},
          "mesh           data 1 x tensor 2 x context 2 x stages 2, zero 0\n",
          "pipeline<one_forward_one_backward, parallel<data_parallel, tensor_parallel, context_parallel>>",
          "mpirun -n 8 my_trainer --tensor-parallel-size 2 --context-parallel-size 2 --data-parallel-size 1");
  runs_as({"--devices", "8", "--global-batch-size", "2", "--context-parallel-size", "4", "--ring-attention", "--zero-stage", "3"},
          "mesh           data 2 x tensor 1 x context 4 in a ring x stages 1, zero 3\n", "parallel<zero<3>, ring_context_parallel>",
          "mpirun -n 8 my_trainer --context-parallel-size 4 --micro-batch-size 1");
  runs_as({"--devices", "8", "--global-batch-size", "2", "--tensor-parallel-size", "2", "--context-parallel-size", "2", "--pipeline-parallel-size", "2",
           "--ring-attention"},
          "mesh           data 1 x tensor 2 x context 2 in a ring x stages 2, zero 0\n",
          "pipeline<one_forward_one_backward, parallel<data_parallel, tensor_parallel, ring_context_parallel>>",
          "mpirun -n 8 my_trainer --tensor-parallel-size 2 --context-parallel-size 2 --data-parallel-size 1");
  runs_as({"--devices", "8", "--global-batch-size", "4", "--pipeline-parallel-size", "2", "--zero-stage", "1"},
          "mesh           data 4 x tensor 1 x stages 2, zero 1\n", "pipeline<one_forward_one_backward, zero<1>>",
          "mpirun -n 8 my_trainer --data-parallel-size 4");
  runs_as({"--model-type", "mixtral", "--devices", "32", "--global-batch-size", "16", "--expert-parallel-size", "8", "--pipeline-parallel-size", "2",
           "--zero-stage", "1"},
          "mesh           data 2 x tensor 1 x expert 8 x stages 2, zero 1\n", "pipeline<one_forward_one_backward, parallel<zero<1>, expert_parallel>>",
          "mpirun -n 32 my_trainer --expert-parallel-size 8 --data-parallel-size 16");
  const auto shared = plan(seven_billion + words{"--devices", "8", "--global-batch-size", "4", "--search", "--top", "1000"});  // fewer sequences than devices
  CHECK(holds(shared.out, "  data tensor context stages"));
  CHECK(holds(shared.out, "     2+r "));
}

TEST_CASE("what does not fit says what it needs, and what would need least") {
  const auto one = plan(seven_billion);
  CHECK(one.status == 1);
  CHECK(holds(one.out, "memory         "));
  CHECK(holds(one.err, "plan: memory: a rank must fit 80.00 GiB; it needs 1"));
  CHECK(holds(one.err, "--search lists what fits"));
  const auto none = plan(seven_billion + words{"--search", "--machine", "s4000"});
  CHECK(none.status == 1);
  CHECK(holds(none.err,
              "plan: search: no layout fits 1 x s4000 (48.00 GiB each); what needs least is data 1 x tensor 1 x stages 1, zero 0, recompute full, "
              "1 sequences: 1"));
}

TEST_CASE("what cannot be divided is refused with the numbers") {
  const auto error = [](const words& flags) { return plan(seven_billion + flags).err; };
  CHECK(error({"--devices", "8", "--tensor-parallel-size", "3"}) ==
        "plan: --devices 8: must be a multiple of --tensor-parallel-size 3 x "
        "--pipeline-parallel-size 1\n");
  CHECK(error({"--devices", "8", "--global-batch-size", "12"}) ==
        "plan: mesh: global_batch_size must be a multiple of data x micro_batch_size; given 12, 8 "
        "and 1\n");
  CHECK(holds(error({"--devices", "3", "--global-batch-size", "3", "--tensor-parallel-size", "3"}), "32 heads are not divisible by 3"));
  CHECK(holds(error({"--zero-stage", "2", "--devices", "2", "--pipeline-parallel-size", "2"}), "--zero-stage 2: must be 0 or 1, or 2 or 3 without stages"));
  CHECK(holds(error({"--devices", "2", "--global-batch-size", "2", "--tensor-parallel-size", "2", "--sequence-parallel"}),
              "--sequence-parallel: must be given with --zero-stage 1"));
  CHECK(holds(error({"--devices", "8", "--global-batch-size", "8", "--context-parallel-size", "3"}),
              "--devices 8: must be a multiple of --tensor-parallel-size 1 x --context-parallel-size 3 x --pipeline-parallel-size 1"));
  CHECK(holds(error({"--devices", "2", "--global-batch-size", "2", "--ring-attention"}), "--ring-attention: must be given with --context-parallel-size"));
  CHECK(holds(error({"--devices", "2", "--global-batch-size", "2", "--expert-parallel-size", "2"}),
              "--expert-parallel-size 2: must be 1: the family has no experts"));
  CHECK(holds(error({"--devices", "2", "--global-batch-size", "2", "--zero-stage", "1", "--sequence-parallel"}), "must have tensor ranks; given tensor 1"));
  CHECK(holds(error({"--devices", "37", "--global-batch-size", "6", "--search"}),
              "search: there is no layout of 6 sequences, 32 layers and 32 heads on 37 devices"));
  CHECK(holds(error({"--machine", "a101"}), "plan: --machine: must be a100, h100, h200, 910b or s4000; given a101"));
  CHECK(holds(error({"--measure", "--devices", "2"}), "--measure: measures one device and no links"));
  CHECK(holds(plan({"--devices", "2"}).err, "sizes: --num-layers, --hidden-size and --num-attention-heads must be given, or --config"));
  CHECK(holds(plan({"--model-type", "lama"}).err, "--model-type lama: its model_type must be one that this program was compiled with (llama, mixtral, bloom)"));
  CHECK(plan({"--device", "2"}).status == 2);
  CHECK(plan({}).status == 2);
  CHECK(plan({"--model-type", "lama"}).status == 2);
  CHECK(plan(seven_billion + words{"--devices", "8", "--tensor-parallel-size", "3"}).status == 2);
  CHECK(plan(seven_billion + words{"--devices", "8", "--global-batch-size", "12"}).status == 2);  // what the library refuses
}

TEST_CASE("a config.json is read as trainers read it") {
  const scratch_folder folder;
  const auto error = [&](const std::string& more) {
    put_file(
        folder / "config.json",
        R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128)" +
            more + "}");
    const auto result = plan({"--config", folder / "config.json"});
    CHECK(result.status == (more.empty() ? 0 : 2));
    return result.err;
  };
  CHECK(error("") == "");
  CHECK(holds(error(R"(, "num_key_value_head": 2)"), "'num_key_value_head' is not a setting; did you mean 'num_key_value_heads'?"));
  CHECK(holds(error(R"(, "quantization_config": {"bits": 4})"), "must not be quantized"));
  CHECK(holds(error(R"(, "rope_scaling": {"rope_type": "linear", "factr": 2.0})"), ", 'rope_scaling': 'factr' is not a setting; did you mean 'factor'?"));
  CHECK(holds(error(R"(, "rope_parameters": {"rope_thta": 5000.0})"), ", 'rope_parameters': 'rope_thta' is not a setting; did you mean 'rope_theta'?"));
}

TEST_CASE("sizes come from a config.json and the machine from a file, too") {
  const scratch_folder folder;
  put_file(folder / "config.json", R"({"model_type": "bloom", "vocab_size": 1000, "hidden_size": 64, "n_layer": 4, "n_head": 4})");
  const auto saved = plan({"--config", folder / "config.json", "--seq-length", "128", "--machine", "h100", "--save-machine", folder / "m.json"});
  CAPTURE(saved.err);
  CHECK(saved.status == 0);
  CHECK(holds(saved.out, "bloom, "));
  std::string text = get_file(folder / "m.json");
  const std::string name = "\"h100\"";
  REQUIRE(holds(text, name));
  text.replace(text.find(name), name.size(), "\"mine\"");
  put_file(folder / "m.json", text);
  const auto mine = plan(
      {"--config", folder / "config.json", "--seq-length", "128", "--machine", folder / "m.json", "--devices", "4", "--global-batch-size", "8", "--search"});
  CHECK(holds(mine.out, "on 4 x mine (80.00 GiB each)"));
  put_file(folder / "m.json", R"({"bandwith": 1})");
  CHECK(holds(plan({"--config", folder / "config.json", "--machine", folder / "m.json"}).err, "must hold numbers of a machine only; given 'bandwith'"));
}
