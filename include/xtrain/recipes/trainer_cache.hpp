// Trainers by recipe type: prebuilt with the project, or compiled once and stored.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <xtrain/recipes/recipe_type.hpp>

namespace xtrain {

/// How this build compiles a trainer: from trainers.txt, written with its programs; lines "name=value", lists separated by ';'.
struct trainer_build {
  std::string compiler{}, source{}, version{};
  std::vector<std::string> options{}, definitions{}, includes{}, libraries{};
  std::vector<std::string> mpi_includes{}, mpi_libraries{};  ///< empty: no MPI
  /// How kernels of a GPU are compiled and linked.
  struct gpu {
    std::string kernels{};  ///< their compiler: "nvcc 13.0.88 for 80;90"; empty: none
    std::vector<std::string> definitions{}, libraries{};
  };
  gpu cuda{}, musa{};  ///< by device
  std::vector<std::string> npu_definitions{};                ///< of a rehearsal; empty: CANN is loaded when a trainer runs

  /// throws  file_error with the line
  [[nodiscard]] static trainer_build load(const std::string& path);
};

/// Finds or compiles the trainer of a recipe type.
class trainer_cache {
 public:
  struct config {
    std::string programs{};  ///< folder of the project's programs: prebuilt trainers train-KEY, and trainers.txt
    std::string folder{};    ///< where compiled trainers are kept; empty: XTRAIN_CACHE, or xtrain in XDG_CACHE_HOME or ~/.cache
    std::string processor = "/proc/cpuinfo";  ///< what says which instructions the processor has: trainers may be compiled for them
    std::string cuda_driver = "libcuda.so.1";  ///< what a trainer for cuda loads when it runs
    std::string musa_driver = "libmusa.so";      ///< the same for musa
    std::string npu_library = "libascendcl.so";  ///< the same for npu
    bool only_plan = false;                    ///< the trainer will compute nothing, and needs no driver
    /// Told while a trainer is compiled, several times a second, and once when it is there (seconds < 0: the compiler has begun).
    std::function<void(const std::string& key, double seconds, bool done)> progress{};
  };
  explicit trainer_cache(config settings);

  /// Absolute path of the program. A missing trainer is compiled, in about a minute, to a temporary file that is renamed when complete; other processes wait. A
  /// cached trainer matches type, library (version, headers), compiler, options, and with -march=native the processor; for cuda and
  /// musa the kernels, their compiler and architectures. The compiler ends with this process.
  ///   mpi     ranks may be a launcher's processes
  ///   throws  config_error when there is no compiler (with type and existing trainers) or it fails (with its output); when the device is cuda or musa, and
  ///           the build has no kernels or the machine no driver (with everything missing and its packages)
  [[nodiscard]] std::string find_or_compile(const recipe_type& type, bool mpi = false) const;
  /// Keys.
  [[nodiscard]] std::vector<std::string> prebuilt() const;

 private:
  [[nodiscard]] std::string compile(const recipe_type& type, bool mpi, const trainer_build& with) const;

  config settings_;
};

/// A trainer's recipe.hpp.
[[nodiscard]] std::string recipe_header(const recipe_type& type, bool mpi);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/trainer_cache_impl.hpp>
#endif
