// Shared by the programs that take the command lines of Python programs: their launchers, and what they would download.
#pragma once

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace python_program {

inline constexpr const char* own_flags =
    "  --device cpu|cuda|npu|musa\n"
    "                   the device, cpu by default. A build with DEVICES cuda has trainers for an NVIDIA GPU, with DEVICES musa for a Moore Threads GPU\n"
    "  --print-run      print the run description (JSON), and exit\n"
    "  --print-recipe   print the recipe type that the run asks for, and exit\n"
    "  --plan           print the memory and operations that the run needs, and exit\n";

[[nodiscard]] inline bool asks_for_help(const std::vector<std::string>& words) {
  return words.empty() || std::any_of(words.begin(), words.end(), [](const std::string& one) { return one == "--help" || one == "-h"; });
}

/// A launcher whose processes do not find each other here, as torchrun, would start as many runs.
///   command  what does it instead: "hf_train --nproc_per_node=4 train.py ..."
///   throws   config_error
inline void require_connected(const xtrain::launched_process& process, const std::string& command) {
  const std::string count = process.size == 0 ? "N" : xtrain::concat(process.size);
  xtrain::require<xtrain::config_error>(process.alone() || process.mpi, process.launcher, " has started this process as one of ", count,
                                        ", but does not connect them. Start `", command, "` without torchrun: ranks are then threads of one process; "
                                        "or use mpirun -n ", count, " or srun -n ", count);
}

/// Under mpirun or srun, the number of processes is the number of ranks: it is put before the flags, as torchrun has it.
///   throws  config_error: torchrun has started the program, or the command line says another number
inline void add_ranks_of(const xtrain::launched_process& process, const std::string& program, std::vector<std::string>& words) {
  if (process.alone()) return;
  const std::string count = process.size == 0 ? "N" : xtrain::concat(process.size);
  require_connected(process, xtrain::concat(program, " --nproc_per_node=", count, " train.py ..."));
  const auto at = std::find_if(words.begin(), words.end(), [](const std::string& one) {
    return one.starts_with("--nproc_per_node") || one.starts_with("--nproc-per-node") || one.starts_with("--num_gpus");
  });
  if (process.size == 0) {
    xtrain::require<xtrain::config_error>(at != words.end(), "--nproc_per_node: must be given with ", process.launcher,
                                          ", which does not say how many processes there are: the number of all of them");
    return;
  }
  if (at != words.end()) {
    const std::string said = at->find('=') != std::string::npos ? at->substr(at->find('=') + 1)
                             : at + 1 != words.end()            ? *(at + 1)
                                                                : std::string();
    xtrain::require<xtrain::config_error>(said == count, "--nproc_per_node: must be the number of ", process.launcher, "'s processes, ",
                                          count, "; given ", said);
    return;
  }
  words.insert(words.begin(), "--nproc_per_node=" + count);
}

/// A call of another program as a line of a shell.
[[nodiscard]] inline std::string shell_line(const std::string& program, const std::vector<std::string>& arguments) {
  std::string line = program;
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() &&
                       argument.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:") == std::string::npos;
    if (plain) {
      line += " " + argument;
      continue;
    }
    line += " '";
    for (const char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

/// What these programs do on a GPU is done on the cpu unless the command line names a device: says so.
inline void print_device(const xtrain::run_description& run, const std::vector<std::string>& words) {
  const auto names = [](const std::string& word) {
    return word.starts_with("--device") || word.starts_with("--no_cuda") || word.starts_with("--use_cpu");
  };
  if (run.device == "cpu" && std::none_of(words.begin(), words.end(), names))
    std::fprintf(stderr, "note: on the cpu; --device cuda asks for an NVIDIA GPU\n");
}

inline void print_notes(const xtrain::run_description& run) {
  if (!run.follows.empty()) std::fprintf(stderr, "note: defaults of %s\n", run.follows.c_str());
  for (const std::string& note : run.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
}

/// Models and datasets of the Hugging Face hub are not downloaded.
///   throws  config_error
inline void require_local_folder(const char* flag, const std::string& folder) {
  std::error_code ignored;
  const bool is_there = std::filesystem::is_directory(folder, ignored) || xtrain::gguf_file::is_one(folder);
  xtrain::require<xtrain::config_error>(is_there, flag, ": must be a folder on this machine; given '",
                                        folder, "'. Models are not downloaded: get its files with a program of the hub first");
}

}  // namespace python_program
