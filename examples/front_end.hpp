// Shared by the front ends for other systems' configs and flags: a run description becomes a trainer that is found or compiled, and started.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/recipes/recipe_type.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/recipes/trainer_cache.hpp>

#include "described_files.hpp"
#include "program_start.hpp"

namespace front_end {

/// What every front end offers beside its system's own flags.
struct options {
  bool print_recipe = false;  ///< --print-recipe: the recipe type, and how to make a trainer of it
  bool print_run = false;     ///< --print-run: the run description
  bool plan = false;          ///< --plan: memory and operations, without a run

  void add(CLI::App& app) {
    app.add_flag("--print-recipe", print_recipe, "print the recipe type that the run asks for, and exit");
    app.add_flag("--print-run", print_run, "print the run description (JSON), and exit");
    app.add_flag("--plan", plan, "print the memory and operations that the run needs, and exit");
  }
  /// Takes these flags out of a command line that is parsed by another system's rules.
  void take(std::vector<std::string>& arguments) {
    std::erase_if(arguments, [&](const std::string& one) {
      if (one == "--print-recipe") return print_recipe = true;
      if (one == "--print-run") return print_run = true;
      return one == "--plan" && (plan = true);
    });
  }
};

/// The folder of this program: the others are beside it.
[[nodiscard]] inline std::string program_folder() {
  std::error_code problem;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", problem);
  xtrain::require<xtrain::file_error>(!problem, "/proc/self/exe: must be readable, to find the programs beside this one; the system says: ",
                                      problem.message());
  return self.parent_path().string();
}

/// Becomes another program.
///   throws  file_error when it cannot be started
[[noreturn]] inline void become(const std::string& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(program.c_str(), pointers.data());
  xtrain::fail<xtrain::file_error>(program, ": must be a program that can be started; the system says: ", std::strerror(errno));
}

/// Becomes one of the programs of this project: generate, evaluate, convert, preprocess_data; generate_cuda, evaluate_npu.
///   throws  config_error when this build has no such program for a card
[[noreturn]] inline void call(const std::string& program, std::vector<std::string> arguments) {
  for (const auto& [device, option] : {std::pair<std::string, const char*>{"cuda", "XTRAIN_CUDA"}, {"npu", "XTRAIN_NPU"}}) {
    if (!program.ends_with("_" + device)) continue;
    const std::string name = program.substr(0, program.size() - device.size() - 1);
    xtrain::require<xtrain::config_error>(xtrain::file_exists(program_folder() + "/" + program), "the device ", device, " needs ", program,
                                          " beside this program, which this build has not: -D ", option, "=ON, or xtrain_add_trainer(NAME ", program,
                                          " SOURCE ", name, ".cpp DEVICE ", device, " PRECISION bf16_mixed); or give the device cpu");
  }
  become(program_folder() + "/" + program, std::move(arguments));
}

/// Prints what is asked for, or becomes the trainer of the run.
///   names    what users of the front end call the description's members
///   returns  0: only printed
///   throws   config_error when the description contradicts itself, or there is no trainer for it
inline int start(const xtrain::run_description& run, const options& asked, const described_files::member_names& names = {}) {
  const xtrain::recipe_type type = xtrain::recipe_of(run);
  if (asked.print_run) std::printf("%s\n", run.to_json(false).dump(2, ' ', false, xtrain::json::error_handler_t::replace).c_str());
  const std::string name = "train-" + type.key();
  if (asked.print_recipe) std::printf("%s\n%s\n", type.text("my_run").c_str(), type.cmake(name, "train.cpp").c_str());
  if (asked.print_run || asked.print_recipe) return 0;

  if (!asked.plan) described_files::require(run, names);
  const xtrain::launched_process process = xtrain::launched();
  const bool terminal = ::isatty(2) == 1;
  double told = 0;
  const auto tell = [&](const std::string& key, double seconds, bool done) {
    if (process.rank != 0) return;
    if (done) std::fprintf(stderr, "%scompiled the trainer %s in %.0f s; it is kept\n", terminal ? "\r" : "", key.c_str(), seconds);
    else if (seconds < 0) std::fprintf(stderr, "compiling the trainer %s, once%s", key.c_str(), terminal ? "" : "\n");
    else if (terminal && seconds >= told + 1.0) {
      told = seconds;
      std::fprintf(stderr, "\rcompiling the trainer %s, once: %.0f s", key.c_str(), seconds);
    }
  };
  const xtrain::trainer_cache trainers({.programs = program_folder(), .only_plan = asked.plan, .progress = tell});
  const std::string program = trainers.find_or_compile(type, !process.alone());
  // the run description reaches the trainer as a file, which also is what it is resumed by
  const bool beside = !run.output.folder.empty() && !asked.plan;  // a plan writes nothing
  const std::string folder = beside ? run.output.folder : std::filesystem::temp_directory_path().string();
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  // processes of several hosts may share the folder, and their numbers may be the same
  const std::string file = xtrain::concat(folder, "/.run-", process.rank, "-", ::getpid(), ".json");
  run.save(file);
  std::vector<std::string> arguments{file, "--remove-run"};
  if (asked.plan) arguments.emplace_back("--plan");
  become(program, std::move(arguments));
}

/// The main function of a front end: exit status 2 for a config or command line that cannot be honoured, 1 for what else fails.
template <class Program>
int run(const char* name, const Program& program) {
  program_start::prepare();
  const auto tell = [name](const std::string& message) {  // the library may have named the program already
    const std::string who = xtrain::concat(name, ": ");
    std::fprintf(stderr, "%s%s\n", message.starts_with(who) ? "" : who.c_str(), xtrain::printable(message, true).c_str());  // a compiler's words have lines
  };
  try {
    return program_start::with_output_written(name, program());
  } catch (const xtrain::config_error& problem) {
    tell(problem.what());
    return 2;
  } catch (const std::exception& problem) {
    tell(problem.what());
    return 1;
  }
}

}  // namespace front_end
