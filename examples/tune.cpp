// torchtune's command line: its recipes and configs, run by this library.
//
//   tune ls
//   tune cp llama3_2/1B_lora_single_device my.yaml
//   tune validate my.yaml
//   tune run lora_finetune_single_device --config my.yaml dataset.source=json dataset.data_files=alpaca.json device=cpu
//   tune run --nproc_per_node 4 full_finetune_distributed --config llama3_2/1B_full
//
// Page: tune.md
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include <xtrain/front_ends/program_flags.hpp>
#include <xtrain/front_ends/torchtune.hpp>

#include "command_line.hpp"
#include "front_end.hpp"
#include "log_styles_hugging_face.hpp"
#include "python_program.hpp"

namespace {

constexpr const char* usage =
    "usage: tune COMMAND\n"
    "\n"
    "  ls                                       list recipes and configs\n"
    "  cat CONFIG [--sort]                      print a config, or a YAML file\n"
    "  cp CONFIG FILE [-n] [--make-parents]     copy a config\n"
    "  validate CONFIG [key=value ...]          check a config\n"
    "  run [--nproc_per_node N] [--nnodes N] RECIPE --config CONFIG [key=value ...] [~key ...]\n"
    "      --print-recipe  print the recipe type that the run asks for, and exit\n"
    "      --print-run     print the run description (JSON), and exit\n"
    "      --plan          print the memory and operations that the run needs, and exit\n"
    "\n"
    "CONFIG is a name that ls lists, or a file.\n";

using arguments = std::vector<std::string>;

/// Takes a flag without a value out of the arguments.
bool taken(arguments& from, const std::string& flag) { return std::erase(from, flag) > 0; }

void only(const arguments& given, std::size_t least, std::size_t most, const char* form) {
  for (const std::string& one : given)
    xtrain::require<xtrain::config_error>(!one.starts_with('-'), one, ": there is no such flag; usage: tune ", form);
  xtrain::require<xtrain::config_error>(given.size() >= least && given.size() <= most, "usage: tune ", form);
}

int list() {
  std::printf("%-40s %-40s\n", "RECIPE", "CONFIG");
  for (const xtrain::torchtune_recipe& recipe : xtrain::torchtune_recipes()) {
    if (!recipe.refusal.empty()) continue;
    std::string name = recipe.name;
    for (const xtrain::torchtune_config& config : xtrain::torchtune_configs()) {
      if (config.recipe != recipe.name) continue;
      std::printf("%-40s %-40s\n", name.c_str(), config.name.c_str());
      name.clear();
    }
    if (!name.empty()) std::printf("%-40s %-40s\n", name.c_str(), "<>");
  }
  return 0;
}

/// The text of a built-in config, by its name.
const xtrain::torchtune_config* own_config(const std::string& name) {
  for (const xtrain::torchtune_config& one : xtrain::torchtune_configs())
    if (one.name == name) return &one;
  for (const xtrain::torchtune_recipe& one : xtrain::torchtune_recipes())
    xtrain::require<xtrain::config_error>(one.name != name, name, ": is a recipe, not a config; recipes are not Python files here");
  return nullptr;
}

int print(arguments given) {
  const bool sorted = taken(given, "--sort");
  only(given, 1, 1, "cat CONFIG [--sort]");
  const xtrain::torchtune_config* own = own_config(given[0]);
  if (own == nullptr)
    xtrain::require<xtrain::config_error>(given[0].ends_with(".yaml") || given[0].ends_with(".yml"), given[0],
                                          ": must be a config that tune ls lists, or a file .yaml or .yml");
  command_line::print(xtrain::yaml_text(own != nullptr ? xtrain::parse_yaml(own->text, own->name) : xtrain::read_yaml(given[0]), sorted));
  return 0;
}

int copy(arguments given) {
  const bool brief = taken(given, "-n"), keeps = taken(given, "--no-clobber") || brief, makes_parents = taken(given, "--make-parents");
  only(given, 2, 2, "cp CONFIG FILE [-n] [--make-parents]");
  const xtrain::torchtune_config* own = own_config(given[0]);
  xtrain::require<xtrain::config_error>(own != nullptr, given[0], ": must be a config that tune ls lists");
  std::filesystem::path to = given[1];
  if (std::filesystem::is_directory(to)) to /= std::filesystem::path(given[0]).filename().string() + ".yaml";
  else if (to.extension() != ".yaml") to.replace_extension(".yaml");
  if (keeps && std::filesystem::exists(to)) {
    std::printf("File already exists at %s, not overwriting.\n", std::filesystem::absolute(to).c_str());
    return 0;
  }
  std::error_code problem;
  if (makes_parents && to.has_parent_path()) std::filesystem::create_directories(to.parent_path(), problem);
  xtrain::require<xtrain::config_error>(!to.has_parent_path() || std::filesystem::is_directory(to.parent_path()), to.string(),
                                        ": must be in a folder that exists; --make-parents makes it");
  xtrain::write_file(to.string(), own->text);
  std::printf("Copied file to %s\n", to.c_str());
  return 0;
}

int validate(const arguments& given) {
  xtrain::require<xtrain::config_error>(!given.empty() && !given[0].starts_with('-'), "usage: tune validate CONFIG [key=value ...]");
  xtrain::validate_torchtune(given[0], {given.begin() + 1, given.end()});
  std::printf("Config is well-formed!\n");
  return 0;
}

std::size_t whole(const std::string& flag, const std::string& text) {
  std::size_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  xtrain::require<xtrain::config_error>(problem == std::errc{} && end == text.data() + text.size() && value > 0, flag,
                                        ": must be a positive whole number; given '", text, "'");
  return value;
}

/// Numbers as PyYAML writes them: 2.0e-05.
void write_numbers_as_python(xtrain::yaml_value& value) {
  if (value.type == xtrain::yaml_value::kind::integer) value.text = xtrain::concat(value.whole);
  if (value.type == xtrain::yaml_value::kind::number) {
    value.text = command_line::python_number(value.real);
    if (!std::isfinite(value.real)) value.text.insert(value.text.starts_with('-') ? 1 : 0, ".");
    else if (const std::size_t e = value.text.find('e'); e != std::string::npos && value.text.find('.') == std::string::npos) value.text.insert(e, ".0");
  }
  for (xtrain::yaml_value& one : value.items) write_numbers_as_python(one);
}
/// The config as torchtune logs it: with the overrides, sorted.
void log_config(const std::string& recipe, const std::string& config, const arguments& overrides) {
  xtrain::yaml_value values = xtrain::torchtune_values(config, overrides);
  write_numbers_as_python(values);
  for (const xtrain::torchtune_recipe& one : xtrain::torchtune_recipes())
    if (one.name == recipe)
      std::fprintf(stderr, "INFO:torchtune.utils._logging:Running %s with resolved config:\n\n%s\n", one.logged.c_str(),
                   xtrain::yaml_text(values, true).c_str());
}

/// The file and line where a config, with the overrides, sets each member of a run description; no file for the command line.
described_files::member_names names_in(const std::string& config, const arguments& overrides) {
  const xtrain::yaml_value root = xtrain::torchtune_values(config, overrides);
  described_files::member_names names;
  // the first key that exists
  const auto name = [&](const char* member, std::initializer_list<const char*> keys) {
    for (const std::string key : keys) {
      const std::size_t dot = key.find('.');
      const xtrain::yaml_value* at = root.find(key.substr(0, dot));
      if (at != nullptr && dot != std::string::npos) at = at->find(key.substr(dot + 1));
      if (at == nullptr || at->is_null()) continue;
      names[member] = at->line > 0 ? xtrain::concat(config, ":", at->line, ": ", key) : key;
      return;
    }
  };
  name("model", {"model._component_", "policy_model._component_"});
  name("model.folder", {"checkpointer.checkpoint_dir"});
  name("model.files", {"checkpointer.checkpoint_files"});
  name("objective.second_model", {"ref_checkpointer.checkpoint_dir", "teacher_checkpointer.checkpoint_dir", "ref_policy_checkpointer.checkpoint_dir"});
  name("rollouts.reward_model", {"reward_checkpointer.checkpoint_dir"});
  name("rollouts.reward_files", {"reward_checkpointer.checkpoint_files"});
  name("rollouts.value_model", {"value_checkpointer.checkpoint_dir"});
  name("rollouts.value_files", {"value_checkpointer.checkpoint_files"});
  name("rollouts.value_output", {"value_checkpointer.output_dir"});
  name("rollouts.score_config", {"reward_and_value_model._component_"});
  name("tokenizer.path", {"tokenizer.path", "tokenizer.vocab_path"});
  name("seq_length", {"tokenizer.max_seq_len"});
  name("data", {"dataset.data_files", "dataset.source", "dataset"});
  name("output.folder", {"checkpointer.output_dir", "output_dir"});
  name("output.resume", {"resume_from_checkpoint"});
  return names;
}

int run(arguments given) {
  front_end::options asked;
  asked.take(given);
  std::size_t processes = 1, nodes = 1;
  xtrain::torchtune_launch launch;
  std::string recipe, config;
  arguments overrides, unused;
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::string flag = given[i], value;
    if (recipe.empty() && !flag.starts_with('-')) {
      recipe = flag;
      continue;
    }
    if (!flag.starts_with('-')) {
      overrides.push_back(flag);
      continue;
    }
    const std::size_t equals = flag.find('=');
    const bool has_value = equals != std::string::npos;
    if (has_value) value = flag.substr(equals + 1), flag = flag.substr(0, equals);
    const auto next = [&] {
      if (has_value) return value;
      xtrain::require<xtrain::config_error>(i + 1 < given.size(), flag, ": must have a value");
      return given[++i];
    };
    if (flag == "--config") {
      config = next();
      continue;
    }
    xtrain::require<xtrain::config_error>(recipe.empty(), flag,
                                          ": a recipe has no flags but --config; torchrun's stand before the recipe, values of the config are key=value");
    const std::string name = xtrain::launcher_flag_name(flag);  // --nproc-per-node is --nproc_per_node
    if (const xtrain::torchrun_flag* const one = xtrain::torchrun_flag_without_effect(name)) {
      if (one->has_value) (void)next();
      else
        xtrain::require<xtrain::config_error>(!has_value, flag, ": must have no value; given '", value, "'");
      if (std::find(unused.begin(), unused.end(), flag) == unused.end()) unused.push_back(flag);
    } else if (name == "nproc_per_node") {
      processes = whole("--nproc_per_node", next());
    } else if (name == "nnodes") {
      const std::string count = next();  // or the smallest and the largest number
      nodes = whole("--nnodes", count == "1:1" ? "1" : count);
    } else {
      std::vector<std::string> names{"--nproc_per_node", "--nnodes", "--config"};
      for (const xtrain::torchrun_flag& known : xtrain::torchrun_flags_without_effect) names.push_back(xtrain::concat("--", known.name));
      const std::string near = xtrain::nearest_name("--" + name, names);
      xtrain::fail<xtrain::config_error>(flag, ": must be --nproc_per_node, --nnodes, --config, or another flag of torchrun",
                                         near.empty() ? "" : xtrain::concat("; did you mean '", near, "'?"));
    }
    launch.is_distributed = true;
  }
  xtrain::require<xtrain::config_error>(!recipe.empty(), "run: the recipe must be given; tune ls lists them");
  xtrain::require<xtrain::config_error>(!config.empty(), "--config: must be given: a config that tune ls lists, or a file");
  const xtrain::launched_process process = xtrain::launched();
  const bool distributed = std::any_of(xtrain::torchtune_recipes().begin(), xtrain::torchtune_recipes().end(),
                                       [&](const xtrain::torchtune_recipe& one) { return one.name == recipe && one.is_distributed; });
  python_program::require_connected(
      process, xtrain::concat("tune run ", distributed ? xtrain::concat("--nproc_per_node ", process.size, " ") : "", recipe, " --config ", config, " ..."));
  launch.ranks = process.size > 1 ? process.size : processes * nodes;
  xtrain::require<xtrain::config_error>(process.size <= 1 || !launch.is_distributed || processes * nodes == process.size,
                                        "--nproc_per_node x --nnodes: must be the ", process.size, " ranks of ", process.launcher, "; given ",
                                        processes * nodes);
  launch.log_name = xtrain::concat("log_", static_cast<long long>(std::time(nullptr)), ".txt");
  for (const xtrain::torchtune_recipe& one : xtrain::torchtune_recipes())
    xtrain::require<xtrain::config_error>(one.name != recipe || !one.is_distributed || !one.refusal.empty() || launch.is_distributed || !process.alone(),
                                          "recipe ", recipe, ": needs --nproc_per_node, the number of ranks");
  const xtrain::torchtune_call call = xtrain::torchtune_run(recipe, config, overrides, launch);
  if (process.rank == 0 && !asked.print_run && !asked.print_recipe && !asked.plan) log_config(recipe, config, overrides);
  if (process.rank == 0) {
    std::string names;
    for (const std::string& flag : unused) names += (names.empty() ? "" : ", ") + flag;
    if (!names.empty()) std::fprintf(stderr, "note: %s: %s\n", names.c_str(), xtrain::torchrun_without_effect);
    if (call.run) std::fprintf(stderr, "note: defaults of %s\n", call.run->follows.c_str());
    for (const std::string& note : call.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  if (call.run) {
    xtrain::require<xtrain::config_error>(nodes == 1 || !process.alone() || asked.print_run || asked.print_recipe || asked.plan, "--nnodes: must be 1; given ",
                                          nodes, ": start the same command on all nodes with mpirun or srun");
    return front_end::start(*call.run, asked, names_in(config, overrides));
  }
  if (asked.print_run) {
    std::printf("%s", call.program.c_str());
    for (const std::string& argument : call.arguments)
      std::printf(" %s", xtrain::json(argument).dump(-1, ' ', false, xtrain::json::error_handler_t::replace).c_str());
    std::printf("\n");
    return 0;
  }
  xtrain::require<xtrain::config_error>(!asked.print_recipe && !asked.plan, "--print-recipe, --plan: need a recipe that trains; ", recipe, " is a call of ",
                                        call.program);
  described_files::require_weight_files(call.weights, call.weight_files, names_in(config, overrides));
  front_end::call(call.program, call.arguments);
}

}  // namespace

int main(int argc, char** argv) {
  return front_end::run("tune", [&]() -> int {
    arguments given(argv + std::min(argc, 1), argv + argc);
    const std::string command = given.empty() ? "" : given[0];
    if (!given.empty()) given.erase(given.begin());
    if (command == "-h" || command == "--help" || std::find(given.begin(), given.end(), "--help") != given.end()) {
      command_line::print(usage);
      return 0;
    }
    if (command == "ls") {
      only(given, 0, 0, "ls");
      return list();
    }
    if (command == "cat") return print(std::move(given));
    if (command == "cp") return copy(std::move(given));
    if (command == "validate") return validate(given);
    if (command == "run") return run(std::move(given));
    xtrain::require<xtrain::config_error>(
        command != "download",
        "download: this program does not use the network: fetch the model's folder by other means, and name it as checkpointer.checkpoint_dir");
    std::fputs(usage, stderr);
    xtrain::require<xtrain::config_error>(command.empty(), command, ": there is no such command");
    return 2;
  });
}
