// Finds the fastest parallel layout for a model, or shows what one layout needs. A dry run: no training, no device needed.
//
//   plan --model-type llama --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --intermediate-size 22016 --devices 32 --global-batch-size 64
//     --machine 910b --search
//   plan --config config.json --devices 32 --global-batch-size 64 --tensor-parallel-size 8 --pipeline-parallel-size 4 --micro-batch-size 2
//
// Precision and optimizer are chosen at compile time: see xtrain_add_trainer.
#include "recipe.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/ascend_topology.hpp>
#include <xtrain/plan/machine_file.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/measure_machine.hpp>
#include <xtrain/plan/search.hpp>
#include <xtrain/plan/search_bar.hpp>

#include "command_line.hpp"

namespace {

using namespace xtrain;

struct keeping_recipe : recipe {
  using recompute = recompute_none;
};
struct recomputing_recipe : recipe {
  using recompute = recompute_full;
};

struct plan_flags {
  std::string model = "llama", config{}, machine = "a100", topology{}, save_machine{}, recompute{};
  decoder_config sizes{.vocab_size = 32'000, .max_position_embeddings = 2'048};
  std::size_t seq_length = 0, devices = 1, global_batch_size = 1, top = 10, tensor_parallel = 0, context_parallel = 0, expert_parallel = 0,
              stages = 0, zero = 0, micro_batch_size = 0;
  bool untied = false, measure = false, search = false, exhaustive = false, sequence = false, ring = false, zero_given = false;

  void add_all(CLI::App& app) {
    const auto count = [&](const char* flag, std::size_t& to, const char* help) {
      return app.add_option(flag, to, help)->check(command_line::positive_whole_number())->type_name("N");
    };
    app.add_option("--model-type", model, "model family: " + families::names())->capture_default_str();
    auto* file = app.add_option("--config", config, "config.json of the model, instead of the flags below")->type_name("FILE");
    count("--num-layers", sizes.num_layers, "transformer layers")->excludes(file);
    count("--hidden-size", sizes.hidden_size, "hidden size")->excludes(file);
    count("--num-attention-heads", sizes.num_heads, "attention heads")->excludes(file);
    count("--num-key-value-heads", sizes.num_kv_heads, "key/value heads, for grouped-query attention; default: as many as attention heads")->excludes(file);
    count("--intermediate-size", sizes.intermediate_size, "intermediate size of feed-forward layers; default: the family's")->excludes(file);
    count("--num-experts", sizes.num_experts, "experts of every layer (mixture of experts)")->excludes(file);
    count("--vocab-size", sizes.vocab_size, "vocabulary size")->excludes(file)->capture_default_str();
    app.add_flag("--untie-word-embeddings", untied, "do not tie the language model head to the token embeddings")->excludes(file);
    count("--seq-length", seq_length, "sequence length, in tokens; default: 2048, or the file's");
    count("--devices", devices, "number of devices")->capture_default_str();
    count("--global-batch-size", global_batch_size, "global batch size, in sequences")->capture_default_str();
    auto* named = app.add_option("--machine", machine, "a100, h100, h200, 910b, s4000, or a JSON file")->type_name("NAME|FILE")->capture_default_str();
    app.add_flag("--measure", measure, "measure this processor, and plan for it")->excludes(named);
    app.add_option("--topology", topology, "a file with the output of npu-smi info -t topo: the machine's nodes are like that")->type_name("FILE");
    app.add_option("--save-machine", save_machine, "write the machine's description to a file, to be edited")->type_name("FILE");
    app.add_option("--recompute", recompute, "activation checkpointing: none or full; default: none, and both when searching")
        ->check(command_line::one_of({"none", "full"}));
    app.add_flag("--search", search, "list the fastest layouts that fit, instead of planning one; the flags below narrow the search");
    count("--top", top, "number of layouts to list")->capture_default_str();
    app.add_flag("--exhaustive", exhaustive, "plan every layout of a search, also those that cannot be among the listed ones, and count those that fit");
    count("--tensor-parallel-size", tensor_parallel, "tensor-parallel ranks; default: 1");
    app.add_flag("--sequence-parallel", sequence, "sequence parallelism of the tensor-parallel ranks; with --zero-stage 1");
    count("--context-parallel-size", context_parallel,
          "context-parallel ranks; default: 1, and up to 8 in a search with sequences of 8192 tokens or more, or with "
          "fewer sequences than devices");
    app.add_flag("--ring-attention", ring, "ring attention of the context-parallel ranks; with --zero-stage 0, 1 or 3; a search tries both");
    count("--expert-parallel-size", expert_parallel, "expert-parallel ranks; default: 1, and up to 8 when searching");
    count("--pipeline-parallel-size", stages, "pipeline-parallel ranks; default: 1");
    app.add_option("--zero-stage", zero,
                   "ZeRO stage, what data-parallel ranks shard: 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights; default: 0")
        ->check(command_line::whole_number())
        ->type_name("N");
    count("--micro-batch-size", micro_batch_size, "sequences of a micro-batch; default: 1");
  }

  [[nodiscard]] xtrain::machine planned_machine() const {
    const bool is_file = machine.find_first_of("./") != std::string::npos;
    xtrain::machine found = measure   ? measure_machine(cpu::context())
                            : is_file ? command_line::for_flag("--machine", "", [&] { return read_machine(machine); })
                                      : command_line::for_flag("--machine", "", [&] { return machine_named(machine); });
    if (!topology.empty())
      found = command_line::for_flag("--topology", "", [&] { return with_topology(found, parse_ascend_topology(mapped_file(topology).text(), topology)); });
    if (!save_machine.empty()) command_line::for_flag("--save-machine", "", [&] { write_file(save_machine, machine_text(found)); });
    require<command_line::usage_error>(!measure || devices == 1, "--measure: measures one device and no links; for --devices ", devices,
                          " save it with --save-machine, add the links 'inside' and 'between' nodes, and pass the file as --machine");
    return found;
  }
};

/// The CMake line that builds the trainer of a plan, and the command that starts it.
std::string how_to_run(const found_plan& plan) {
  const run_layout& at = plan.layout;
  const mesh_sizes& mesh = at.mesh;
  const std::string beside = at.zero_stage == 0 ? "data_parallel" : concat("zero<", at.zero_stage, ">");
  std::string axes = at.has_sequence_parallel ? ", sequence_parallel" : mesh.tensor_parallel_size > 1 ? ", tensor_parallel" : "";
  if (mesh.context_parallel_size > 1) axes += at.ring ? ", ring_context_parallel" : ", context_parallel";
  if (mesh.expert_parallel_size > 1) axes += ", expert_parallel";
  const std::string rows = axes.empty() ? beside : concat("parallel<", beside, axes, ">");
  const std::string strategy = mesh.pipeline_parallel_size == 1 ? rows : concat("pipeline<one_forward_one_backward, ", rows, ">");
  const std::size_t ranks = mesh.ranks();
  const auto flag = [](const char* name, std::size_t value, bool given) { return given ? concat(" ", name, " ", value) : std::string(); };
  std::string text =
      concat("  xtrain_add_trainer(NAME my_trainer SOURCE pretrain.cpp PRECISION ", recipe::precision::name, " RECOMPUTE recompute_",
             plan.recompute, ranks > 1 ? concat(" PARALLEL \"", strategy, "\" MPI") : std::string(), ")\n");
  text += concat(ranks > 1 ? concat("  mpirun -n ", ranks, " my_trainer") : "  my_trainer",
                 flag("--tensor-parallel-size", mesh.tensor_parallel_size, mesh.tensor_parallel_size > 1),
                 flag("--context-parallel-size", mesh.context_parallel_size, mesh.context_parallel_size > 1),
                 flag("--expert-parallel-size", mesh.expert_parallel_size, mesh.expert_parallel_size > 1),
                 flag("--data-parallel-size", mesh.data_parallel_size * mesh.expert_parallel_size, mesh.pipeline_parallel_size > 1),
                 " --micro-batch-size ", plan.micro_batch_size, " --gradient-accumulation-steps ", at.micro_batches, " ...\n");
  return text;
}

/// The strategies that are searched for a family, or chosen from for a given layout.
template <class Family>
inline constexpr bool is_mixture = std::is_same_v<Family, mixtral_family>;
template <class Family>
using tried = std::conditional_t<is_mixture<Family>, expert_strategies, usual_strategies>;
/// Families with models for long sequences; only these are also compiled with ring attention.
template <class Family>
inline constexpr bool has_long_rows = !is_mixture<Family> && std::is_same_v<typename Family::template positions<recipe>, rotary_positions<recipe>>;

template <class Model>
void add_layouts(layout_search& to, const plan_flags& flags, const decoder_config& sizes) {
  search_settings settings{.devices = flags.devices, .global_batch_size = flags.global_batch_size, .seq_length = flags.seq_length};
  const std::size_t num_tokens = flags.seq_length > 0 ? flags.seq_length : sizes.max_position_embeddings;
  if (num_tokens >= 8192 || flags.global_batch_size < flags.devices) settings.context_parallel_sizes = {1, 2, 4, 8};
  if (flags.micro_batch_size > 0) settings.micro_batch_sizes = {flags.micro_batch_size};
  if (flags.tensor_parallel > 0) settings.tensor_parallel_sizes = {flags.tensor_parallel};
  if (flags.context_parallel > 0) settings.context_parallel_sizes = {flags.context_parallel};
  if (flags.expert_parallel > 0) settings.expert_parallel_sizes = {flags.expert_parallel};
  if (flags.stages > 0) settings.pipeline_parallel_sizes = {flags.stages};
  settings.wanted = [&flags](const run_layout& layout) {
    return (!flags.zero_given || layout.zero_stage == flags.zero) && (flags.stages == 0 || layout.mesh.pipeline_parallel_size == flags.stages) &&
           (!flags.sequence || layout.has_sequence_parallel) && (!flags.ring || layout.ring);
  };
  to.add<Model, tried<typename Model::family>>(sizes, settings, cpu::properties{8});
  if constexpr (has_long_rows<typename Model::family>) {
    std::erase(settings.context_parallel_sizes, 1U);  // a ring needs more than one rank
    if (!settings.context_parallel_sizes.empty()) to.add<Model, ring_strategies>(sizes, settings, cpu::properties{8});
  }
}

std::string on_what(const plan_flags& flags, const machine& on) {
  return concat(flags.devices, " x ", on.name, " (", bytes_text(on.memory), " each)");
}

std::string ways(const mesh_sizes& mesh) {
  const auto axis = [](const char* name, std::size_t size) { return size > 1 ? concat(" x ", name, " ", size) : std::string(); };
  return concat("data ", mesh.data_parallel_size, " x tensor ", mesh.tensor_parallel_size, axis("context", mesh.context_parallel_size),
                axis("expert", mesh.expert_parallel_size), " x stages ", mesh.pipeline_parallel_size);
}

template <class Family>
void list_plans(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  layout_search search(on);
  if (flags.recompute != "full") add_layouts<decoder<keeping_recipe, Family>>(search, flags, sizes);
  if (flags.recompute != "none") add_layouts<decoder<recomputing_recipe, Family>>(search, flags, sizes);
  search_bar bar;
  const std::vector<found_plan> found = search.run(flags.exhaustive ? 0 : flags.top, &bar);
  if (found.empty()) {
    const std::optional<found_plan> least = search.least_memory(&bar);
    require<command_line::usage_error>(least.has_value(), "search: there is no layout of ", flags.global_batch_size, " sequences, ",
                                       sizes.num_layers, " layers and ", sizes.num_heads, " heads on ", flags.devices,
                                       " devices; choose --global-batch-size or --devices with more divisors, or give fewer flags");
    fail<memory_error>("search: no layout fits ", on_what(flags, on), "; what needs least is ", ways(least->layout.mesh), ", zero ",
                       least->layout.zero_stage, ", recompute ", least->recompute, ", ", least->micro_batch_size,
                       " sequences: ", bytes_text(least->bytes), ". More devices, or an adapter, need less of each");
  }
  const bool is_complete = flags.exhaustive || found.size() < flags.top;  // fewer than requested: all that fit
  const std::string count = is_complete ? concat(found.size(), " layouts fit") : concat("At least ", found.size(), " of ", search.layouts(), " layouts fit");
  std::printf("%s, %s parameters, on %s, a global batch of %zu sequences\n%s%s. The first:\n%s", std::string(Family::name).c_str(),
              count_text(static_cast<double>(found.front().parameters)).c_str(), on_what(flags, on).c_str(), flags.global_batch_size,
              search_text(found, flags.top, is_complete ? search_columns{} : search.columns()).c_str(), count.c_str(), how_to_run(found.front()).c_str());
}

template <class Model>
found_plan plan_one(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  const auto given = [](std::size_t ranks) { return std::max<std::size_t>(ranks, 1); };
  const std::size_t tensor = given(flags.tensor_parallel), context = given(flags.context_parallel), expert = given(flags.expert_parallel),
                    stages = given(flags.stages);
  std::size_t beside = 1;
  for (const std::size_t axis : {tensor, context, expert, stages}) {
    require<command_line::usage_error>(flags.devices / beside % axis == 0 && axis <= flags.devices, "--devices ", flags.devices,
                                       ": must be a multiple of --tensor-parallel-size ", tensor,
                                       context > 1 ? concat(" x --context-parallel-size ", context) : std::string(),
                                       expert > 1 ? concat(" x --expert-parallel-size ", expert) : std::string(), " x --pipeline-parallel-size ", stages);
    beside *= axis;
  }
  require<command_line::usage_error>(flags.zero <= 3 && (flags.zero < 2 || stages == 1), "--zero-stage ", flags.zero,
                        ": must be 0 or 1, or 2 or 3 without stages; given with --pipeline-parallel-size ", stages);
  const mesh_settings settings{.mesh = {.data_parallel_size = flags.devices / beside,
                                        .tensor_parallel_size = tensor,
                                        .pipeline_parallel_size = stages,
                                        .context_parallel_size = context,
                                        .expert_parallel_size = expert},
                               .shards = flags.zero == 0 && !is_mixture<typename Model::family> ? std::size_t{1} : 0,
                               .global_batch_size = flags.global_batch_size,
                               .micro_batch_size = given(flags.micro_batch_size),
                               .seq_length = flags.seq_length};
  const auto of = [&]<class Strategy>(Strategy) { return plan_mesh<Model, Strategy>(sizes, settings, on, cpu::properties{8}); };
  if constexpr (is_mixture<typename Model::family>) {
    const bool alone = settings.mesh.data_parallel_size == 1;  // a single data-parallel rank has nothing to shard over
    require<command_line::usage_error>((flags.zero % 2 == 1 || (alone && flags.zero == 0)) && !flags.sequence && !flags.ring, "--zero-stage ", flags.zero,
                          ": must be 1 or 3 for a mixture of experts, without --sequence-parallel and --ring-attention");
    if (flags.zero < 3) return of(pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>>{});
    return of(parallel<zero<3>, tensor_parallel, context_parallel, expert_parallel>{});
  } else {
    require<command_line::usage_error>(expert == 1, "--expert-parallel-size ", expert, ": must be 1: the family has no experts");
    if (flags.sequence) {
      require<command_line::usage_error>(flags.zero == 1 && context == 1,
                                         "--sequence-parallel: must be given with --zero-stage 1, and without "
                                         "--context-parallel-size");
      return of(pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>{});
    }
    require<command_line::usage_error>(!flags.ring || (has_long_rows<typename Model::family> && context > 1 && flags.zero != 2),
                          "--ring-attention: must be given with --context-parallel-size, with --zero-stage 0, 1 or 3, and of a family with rotary positions");
    if constexpr (has_long_rows<typename Model::family>) {
      if (flags.ring && flags.zero == 3) return of(parallel<zero<3>, tensor_parallel, ring_context_parallel>{});
      if (flags.ring) return of(pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, ring_context_parallel>>{});
    }
    if (flags.zero <= 1) return of(pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>{});
    if (flags.zero == 2) return of(parallel<zero<2>, tensor_parallel, context_parallel>{});
    return of(parallel<zero<3>, tensor_parallel, context_parallel>{});
  }
}

template <class Family>
void show_plan(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  const found_plan plan = flags.recompute == "full" ? plan_one<decoder<recomputing_recipe, Family>>(flags, sizes, on)
                                                    : plan_one<decoder<keeping_recipe, Family>>(flags, sizes, on);
  std::printf("%s, %s parameters, on %s\n%sto run it:\n%s", std::string(Family::name).c_str(), count_text(static_cast<double>(plan.parameters)).c_str(),
              on_what(flags, on).c_str(), mesh_text(plan).c_str(), how_to_run(plan).c_str());
  std::fflush(stdout);
  require<memory_error>(plan.bytes <= on.memory, "memory: a rank must fit ", bytes_text(on.memory), "; it needs ", bytes_text(plan.bytes),
                        "; --search lists what fits");
}

/// Plans as the flags say.
void answer(const plan_flags& flags) {
  const json_settings settings = flags.config.empty() ? json_settings(json{{"model_type", flags.model}}, "--model-type")
                                                      : command_line::for_flag("--config", "", [&] { return read_settings(flags.config); });
  families::choose(settings, flags.config.empty() ? "--model-type " + flags.model : "--config " + flags.config, [&](auto tag) {
    using family = typename decltype(tag)::type;
    decoder_config sizes = flags.sizes;
    if (flags.config.empty()) {
      require<command_line::usage_error>(sizes.num_layers > 0 && sizes.hidden_size > 0 && sizes.num_heads > 0,
                                         "sizes: --num-layers, --hidden-size and --num-attention-heads must be given, or --config");
      if (flags.seq_length > 0) sizes.max_position_embeddings = flags.seq_length;
      sizes.tie_word_embeddings = !flags.untied;
    } else {
      sizes = command_line::for_flag("--config", "", [&] { return sizes_of<family>(settings); });
    }
    const machine on = flags.planned_machine();
    if (flags.search) list_plans<family>(flags, sizes, on);
    else show_plan<family>(flags, sizes, on);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Finds the fastest parallel layout for a model, or shows what one layout needs.", "plan");
  plan_flags flags;
  flags.add_all(app);
  return command_line::run(app, argc, argv, [&] {
    flags.zero_given = app.count("--zero-stage") > 0;
    command_line::for_flags([&] { answer(flags); });
  });
}
