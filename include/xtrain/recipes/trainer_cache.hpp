// Trainers by recipe type: those built with the project, and those compiled once by the user's compiler and kept.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <xtrain/recipes/recipe_type.hpp>

namespace xtrain {

/// How this project's build compiles a trainer: what a build writes into the file trainers.txt beside its programs, a line "name=value" each, lists
/// separated by ';'.
struct trainer_build {
  std::string compiler{}, source{}, version{};
  std::vector<std::string> options{}, definitions{}, includes{}, libraries{};
  std::vector<std::string> mpi_includes{}, mpi_libraries{};  ///< empty: the build found no MPI
  std::string cuda{};                                        ///< "nvcc 13.0.88 for 80;90": what compiled the kernels; empty: the build has none
  std::vector<std::string> cuda_definitions{}, cuda_libraries{};
  std::vector<std::string> npu_definitions{};                ///< of a rehearsal; empty: CANN is loaded when a trainer runs

  /// throws  file_error, with the line
  [[nodiscard]] static trainer_build load(const std::string& path);
};

/// Finds the trainer of a recipe type, or makes it.
class trainer_cache {
 public:
  struct config {
    std::string programs{};  ///< folder of the project's programs: prebuilt trainers train-KEY, and trainers.txt
    std::string folder{};    ///< where compiled trainers are kept; empty: XTRAIN_CACHE, or xtrain in XDG_CACHE_HOME or ~/.cache
    std::string processor = "/proc/cpuinfo";  ///< what says which instructions the processor has: trainers may be compiled for them
    std::string cuda_driver = "libcuda.so.1";  ///< what a trainer for cuda loads when it runs
    std::string npu_library = "libascendcl.so";  ///< the same for npu
    bool only_plan = false;                    ///< the trainer will compute nothing, and needs no driver
    /// Told while a trainer is compiled, several times a second, and once when it is there (seconds < 0: the compiler has begun).
    std::function<void(const std::string& key, double seconds, bool done)> progress{};
  };
  explicit trainer_cache(config settings);

  /// The program, an absolute path. A trainer that is not there is compiled, which takes about a minute: into a temporary file, which gets its name when it
  /// is whole. Processes that ask for the same one wait for the first. A cached trainer is one of the same type, library (version and headers), compiler
  /// and options, and with -march=native of the same processor; for cuda, of the same nvcc, architectures and kernels. The compiler ends with this process.
  ///   mpi     its ranks may be processes of a launcher
  ///   throws  config_error when it cannot be compiled: there is no compiler (with the type and the trainers that are there), or it fails (with what it
  ///           says); when the device is cuda, and the build has no kernels for it or the machine no driver (with all that is missing, and its packages)
  [[nodiscard]] std::string find_or_compile(const recipe_type& type, bool mpi = false) const;
  /// Keys of the prebuilt trainers.
  [[nodiscard]] std::vector<std::string> prebuilt() const;

 private:
  [[nodiscard]] std::string compile(const recipe_type& type, bool mpi, const trainer_build& with) const;

  config settings_;
};

/// The recipe.hpp of a trainer.
[[nodiscard]] std::string recipe_header(const recipe_type& type, bool mpi);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/trainer_cache_impl.hpp>
#endif
