// Finds the fastest parallel layout for a model, or shows what one layout needs. A dry run: no training, no device needed.
//
//   plan --model llama --layers 80 --width 8192 --heads 64 --feed-forward 22016 --devices 32 --rows 64 --machine 910b --search
//   plan --config config.json --devices 32 --rows 64 --tensor 8 --stages 4 --batch 2
//
// Precision and optimizer are chosen at compile time: see xtrain_add_trainer.
#include "recipe.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/machine_file.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/measure_machine.hpp>
#include <xtrain/plan/search.hpp>

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
  std::string model = "llama", config{}, machine = "a100", save_machine{}, recompute{};
  decoder_config sizes{.vocabulary = 32'000, .context = 2'048};
  std::size_t context = 0, devices = 1, rows = 1, top = 10, tensor = 0, sharing = 0, expert = 0, stages = 0, zero = 0, batch = 0;
  bool untied = false, measure = false, search = false, sequence = false, ring = false, zero_given = false;

  void add_all(CLI::App& app) {
    const auto count = [&](const char* flag, std::size_t& to, const char* help) {
      return app.add_option(flag, to, help)->check(command_line::positive_whole_number())->type_name("N");
    };
    app.add_option("--model", model, "family: " + families::names())->capture_default_str();
    auto* file = app.add_option("--config", config, "config.json with family and sizes, instead of the flags below")->type_name("FILE");
    count("--layers", sizes.layers, "blocks")->excludes(file);
    count("--width", sizes.width, "channels of the residual stream")->excludes(file);
    count("--heads", sizes.heads, "attention heads")->excludes(file);
    count("--kv-heads", sizes.kv_heads, "key/value heads; default: as many as heads")->excludes(file);
    count("--feed-forward", sizes.feed_forward, "inner size of feed-forward layers; default: the family's")->excludes(file);
    count("--experts", sizes.experts, "experts of a mixture in every layer")->excludes(file);
    count("--vocabulary", sizes.vocabulary, "tokens")->excludes(file)->capture_default_str();
    app.add_flag("--untied-head", untied, "the head has a weight of its own")->excludes(file);
    count("--context", context, "tokens of a row; default: 2048, or the file's");
    count("--devices", devices, "devices to divide the model among")->capture_default_str();
    count("--rows", rows, "rows of a step, of all devices together")->capture_default_str();
    auto* named = app.add_option("--machine", machine, "a100, h100, h200, 910b, s4000, or a JSON file")->type_name("NAME|FILE")->capture_default_str();
    app.add_flag("--measure", measure, "the machine is this processor, measured")->excludes(named);
    app.add_option("--save-machine", save_machine, "write the machine's description to a file, to be edited")->type_name("FILE");
    app.add_option("--recompute", recompute, "none or full; default: none, and both when searching")->check(command_line::one_of({"none", "full"}));
    app.add_flag("--search", search, "list the fastest ways that fit, instead of planning one; flags below narrow it");
    count("--top", top, "how many to list")->capture_default_str();
    count("--tensor", tensor, "ranks that divide every layer; default: 1");
    app.add_flag("--sequence", sequence, "they divide what is between layers, too; with --zero 1");
    count("--context-ranks", sharing, "ranks that share rows; default: 1, and up to 8 when a search is of rows of 8192 tokens, or of fewer rows than devices");
    app.add_flag("--ring", ring, "their keys and values go round; with --zero 0, 1 or 3. A search tries both ways");
    count("--expert", expert, "ranks that spread experts; default: 1, and up to 8 when searching");
    count("--stages", stages, "stages of a pipeline; default: 1");
    app.add_option("--zero", zero,
                   "what ranks with the same weights divide: 0 nothing, 1 the optimizer's state, 2 that and gradients, 3 those and weights; default: 0")
        ->check(command_line::whole_number())
        ->type_name("N");
    count("--batch", batch, "rows of a micro-batch; default: 1");
  }

  [[nodiscard]] xtrain::machine planned_machine() const {
    const bool is_file = machine.find_first_of("./") != std::string::npos;
    xtrain::machine found = measure   ? measure_machine(cpu::context())
                            : is_file ? command_line::for_flag("--machine", "", [&] { return read_machine(machine); })
                                      : command_line::for_flag("--machine", "", [&] { return machine_named(machine); });
    if (!save_machine.empty()) command_line::for_flag("--save-machine", "", [&] { write_file(save_machine, machine_text(found)); });
    require<command_line::usage_error>(!measure || devices == 1, "--measure: tells of one device and not of wires; for --devices ", devices,
                          " save it with --save-machine, say what 'inside' and 'between' are, and pass the file as --machine");
    return found;
  }
};

/// How to run a plan: the CMake line that builds the trainer, and the command that starts it.
std::string how_to_run(const found_plan& plan) {
  const run_layout& at = plan.layout;
  const mesh_sizes& mesh = at.mesh;
  const std::string beside = at.zero_stage == 0 ? "data_parallel" : concat("zero<", at.zero_stage, ">");
  std::string axes = at.between_layers ? ", sequence_parallel" : mesh.tensor > 1 ? ", tensor_parallel" : "";
  if (mesh.context > 1) axes += at.ring ? ", ring_context_parallel" : ", context_parallel";
  if (mesh.expert > 1) axes += ", expert_parallel";
  const std::string rows = axes.empty() ? beside : concat("parallel<", beside, axes, ">");
  const std::string strategy = mesh.pipeline == 1 ? rows : concat("pipeline<one_forward_one_backward, ", rows, ">");
  const std::size_t ranks = mesh.ranks();
  const auto flag = [](const char* name, std::size_t value, bool given) { return given ? concat(" ", name, " ", value) : std::string(); };
  std::string text = concat("  xtrain_add_trainer(NAME my_trainer SOURCE pretrain.cpp PRECISION ", recipe::precision::name, " RECOMPUTE recompute_", plan.recompute,
                            ranks > 1 ? concat(" PARALLEL \"", strategy, "\" MPI") : std::string(), ")\n");
  text += concat(ranks > 1 ? concat("  mpirun -n ", ranks, " my_trainer") : "  my_trainer", flag("--tensor", mesh.tensor, mesh.tensor > 1),
                 flag("--context-ranks", mesh.context, mesh.context > 1), flag("--expert", mesh.expert, mesh.expert > 1),
                 flag("--data-ranks", mesh.data * mesh.expert, mesh.pipeline > 1), " --batch ", plan.batch, " --accumulate ", at.micro_batches, " ...\n");
  return text;
}

/// The strategies that are searched for a family, and those that a given layout is chosen from.
template <class Family>
inline constexpr bool is_mixture = std::is_same_v<Family, mixtral_family>;
template <class Family>
using tried = std::conditional_t<is_mixture<Family>, expert_strategies, usual_strategies>;
/// Families with models for long sequences; only these are also compiled with ring attention.
template <class Family>
inline constexpr bool has_long_rows = !is_mixture<Family> && std::is_same_v<typename Family::template positions<recipe>, rotary_positions<recipe>>;

template <class Model>
void search(const plan_flags& flags, const decoder_config& sizes, const machine& on, std::vector<found_plan>& found) {
  search_settings settings{.devices = flags.devices, .rows = flags.rows, .context = flags.context};
  const std::size_t places = flags.context > 0 ? flags.context : sizes.context;
  if (places >= 8192 || flags.rows < flags.devices) settings.contexts = {1, 2, 4, 8};
  if (flags.batch > 0) settings.batches = {flags.batch};
  if (flags.tensor > 0) settings.tensors = {flags.tensor};
  if (flags.sharing > 0) settings.contexts = {flags.sharing};
  if (flags.expert > 0) settings.experts = {flags.expert};
  if (flags.stages > 0) settings.pipelines = {flags.stages};
  const auto take = [&](const std::vector<found_plan>& all) {
    for (const found_plan& one : all)
      if ((!flags.zero_given || one.layout.zero_stage == flags.zero) && (flags.stages == 0 || one.layout.mesh.pipeline == flags.stages) &&
          (!flags.sequence || one.layout.between_layers) && (!flags.ring || one.layout.ring))
        found.push_back(one);
  };
  take(search_plans<Model, tried<typename Model::family>>(sizes, settings, on, cpu::properties{8}));
  if constexpr (has_long_rows<typename Model::family>) {
    std::erase(settings.contexts, 1U);  // a ring needs more than one rank
    if (!settings.contexts.empty()) take(search_plans<Model, ring_strategies>(sizes, settings, on, cpu::properties{8}));
  }
}

template <class Family>
std::vector<found_plan> search(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  std::vector<found_plan> found;
  if (flags.recompute != "full") search<decoder<keeping_recipe, Family>>(flags, sizes, on, found);
  if (flags.recompute != "none") search<decoder<recomputing_recipe, Family>>(flags, sizes, on, found);
  std::stable_sort(found.begin(), found.end(), [](const found_plan& a, const found_plan& b) { return a.time.seconds < b.time.seconds; });
  return found;
}

std::string on_what(const plan_flags& flags, const machine& on) {
  return concat(flags.devices, " x ", on.name, " (", bytes_text(on.memory), " each)");
}

std::string ways(const mesh_sizes& mesh) {
  const auto axis = [](const char* name, std::size_t size) { return size > 1 ? concat(" x ", name, " ", size) : std::string(); };
  return concat("data ", mesh.data, " x tensor ", mesh.tensor, axis("context", mesh.context), axis("expert", mesh.expert), " x stages ", mesh.pipeline);
}

template <class Family>
void list_plans(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  const std::vector<found_plan> found = search<Family>(flags, sizes, on);
  if (found.empty()) {
    machine roomy = on;
    roomy.memory = std::size_t{1} << 60;
    const std::vector<found_plan> all = search<Family>(flags, sizes, roomy);
    require<command_line::usage_error>(!all.empty(), "search: nothing divides ", flags.rows, " rows, ", sizes.layers, " layers and ", sizes.heads, " heads among ", flags.devices,
                          " devices this way; choose --rows or --devices with more divisors, or give fewer flags");
    const found_plan& least = *std::min_element(all.begin(), all.end(), [](const found_plan& a, const found_plan& b) { return a.bytes < b.bytes; });
    const mesh_sizes& mesh = least.layout.mesh;
    fail<memory_error>("search: nothing fits ", on_what(flags, on), "; what needs least is ", ways(mesh), ", zero ", least.layout.zero_stage, ", recompute ", least.recompute, ", ", least.batch, " rows: ", bytes_text(least.bytes),
                       ". More devices, or an adapter, need less of each");
  }
  std::printf("%s, %s parameters, on %s, a step of %zu rows\n%s%zu ways fit. The first:\n%s", std::string(Family::name).c_str(),
              count_text(static_cast<double>(found.front().parameters)).c_str(), on_what(flags, on).c_str(), flags.rows, search_text(found, flags.top).c_str(),
              found.size(), how_to_run(found.front()).c_str());
}

template <class Model>
found_plan plan_one(const plan_flags& flags, const decoder_config& sizes, const machine& on) {
  const auto given = [](std::size_t ranks) { return std::max<std::size_t>(ranks, 1); };
  const std::size_t tensor = given(flags.tensor), context = given(flags.sharing), expert = given(flags.expert), stages = given(flags.stages);
  std::size_t beside = 1;
  for (const std::size_t axis : {tensor, context, expert, stages}) {
    require<command_line::usage_error>(flags.devices / beside % axis == 0 && axis <= flags.devices, "--devices ", flags.devices, ": must be a multiple of --tensor ", tensor,
                          context > 1 ? concat(" x --context-ranks ", context) : std::string(), expert > 1 ? concat(" x --expert ", expert) : std::string(),
                          " x --stages ", stages);
    beside *= axis;
  }
  require<command_line::usage_error>(flags.zero <= 3 && (flags.zero < 2 || stages == 1), "--zero ", flags.zero,
                        ": must be 0 or 1, or 2 or 3 without stages; given with --stages ", stages);
  const mesh_settings settings{.mesh = {.data = flags.devices / beside, .tensor = tensor, .pipeline = stages, .context = context, .expert = expert},
                               .shards = flags.zero == 0 && !is_mixture<typename Model::family> ? std::size_t{1} : 0,
                               .rows = flags.rows,
                               .batch = given(flags.batch),
                               .context = flags.context};
  const auto of = [&]<class Strategy>(Strategy) { return plan_mesh<Model, Strategy>(sizes, settings, on, cpu::properties{8}); };
  if constexpr (is_mixture<typename Model::family>) {
    const bool alone = settings.mesh.data == 1;  // a single data-parallel rank has nothing to shard over
    require<command_line::usage_error>((flags.zero % 2 == 1 || (alone && flags.zero == 0)) && !flags.sequence && !flags.ring, "--zero ", flags.zero,
                          ": must be 1 or 3 for a mixture of experts, without --sequence and --ring");
    if (flags.zero < 3) return of(pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>>{});
    return of(parallel<zero<3>, tensor_parallel, context_parallel, expert_parallel>{});
  } else {
    require<command_line::usage_error>(expert == 1, "--expert ", expert, ": must be 1: the family has no experts");
    if (flags.sequence) {
      require<command_line::usage_error>(flags.zero == 1 && context == 1, "--sequence: must be given with --zero 1, and without --context-ranks");
      return of(pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>{});
    }
    require<command_line::usage_error>(!flags.ring || (has_long_rows<typename Model::family> && context > 1 && flags.zero != 2),
                          "--ring: must be given with --context-ranks, with --zero 0, 1 or 3, and of a family with rotary positions");
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

/// Plans what the flags ask for.
void answer(const plan_flags& flags) {
  const json_settings settings = flags.config.empty() ? json_settings(json{{"model_type", flags.model}}, "--model")
                                                      : command_line::for_flag("--config", "", [&] { return read_settings(flags.config); });
  families::choose(settings, flags.config.empty() ? "--model " + flags.model : "--config " + flags.config, [&](auto tag) {
    using family = typename decltype(tag)::type;
    decoder_config sizes = flags.sizes;
    if (flags.config.empty()) {
      require<command_line::usage_error>(sizes.layers > 0 && sizes.width > 0 && sizes.heads > 0, "sizes: --layers, --width and --heads must be given, or --config");
      if (flags.context > 0) sizes.context = flags.context;
      sizes.tied_head = !flags.untied;
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
  CLI::App app("Which way of dividing a model among devices is fastest, and what one way comes to.", "plan");
  plan_flags flags;
  flags.add_all(app);
  return command_line::run(app, argc, argv, [&] {
    flags.zero_given = app.count("--zero") > 0;
    command_line::for_flags([&] { answer(flags); });
  });
}
