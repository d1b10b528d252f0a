#include <doctest/doctest.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/recipes/trainer_cache.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

void write_program(const std::string& path, const std::string& text) {
  write_file(path, text);
  ::chmod(path.c_str(), 0755);
}

/// A folder of programs, with a fake compiler that counts its calls.
struct programs {
  scratch_folder folder{};
  trainer_cache::config settings{.programs = folder / "bin", .folder = folder / "cache"};

  explicit programs(const std::string& script = "sleep 0.2\nprintf '#!/bin/sh\\n' > \"$out\"\nchmod +x \"$out\"\n") {
    std::filesystem::create_directories(folder / "bin");
    std::filesystem::create_directories(folder / "include/xtrain");
    write_file(folder / "include/xtrain/a.hpp", "");
    write_file(folder / "train.cpp", "int main() {}\n");
    write_program(folder / "compiler", "#!/bin/sh\necho \"$*\" >> " + (folder / "calls") +
                                           "\nout=\nwhile [ $# -gt 0 ]; do if [ \"$1\" = -o ]; then out=$2; fi; shift; done\n" + script);
    describe(folder / "compiler");
  }
  void describe(const std::string& compiler, const std::string& options = "-O1;-Wall;SHELL:--param x=1", const std::string& libraries = "-lm") const {
    write_file(folder / "bin/trainers.txt", "compiler=" + compiler + "\nsource=" + (folder / "train.cpp") + "\nversion=1.0\noptions=" + options +
                                                "\ndefinitions=A;B=\"c\"\nincludes=" + (folder / "include") + "\nlibraries=" + libraries + "\n");
  }
  [[nodiscard]] std::size_t calls() const {
    if (!file_exists(folder / "calls")) return 0;
    const mapped_file file(folder / "calls");
    return static_cast<std::size_t>(std::count(file.text().begin(), file.text().end(), '\n'));
  }
};

}  // namespace

TEST_CASE("a prebuilt trainer is found, another one is compiled once") {
  const programs p;
  const trainer_cache trainers(p.settings);
  write_program(p.folder / "bin/train-cpu-fp32", "");
  CHECK(trainers.prebuilt() == std::vector<std::string>{"cpu-fp32"});
  CHECK(trainers.find_or_compile({}) == (p.folder / "bin/train-cpu-fp32"));
  const recipe_type other{.precision = "bf16_mixed"};
  const std::string program = trainers.find_or_compile(other);
  CHECK(program.starts_with(p.folder / "cache/train-cpu-bf16_mixed-"));
  CHECK(::access(program.c_str(), X_OK) == 0);
  CHECK(trainers.find_or_compile(other) == program);
  CHECK(p.calls() == 1);
  const std::string command(mapped_file(p.folder / "calls").text());
  CHECK(command.starts_with("-std=c++20 -w -O1 --param x=1 -DA -DB=\"c\" -DXTRAIN_RECIPE_KEY=\"cpu-bf16_mixed\" -I"));
  CHECK(command.ends_with(" -lm\n"));

  // different header, different options
  write_file(p.folder / "include/xtrain/b.hpp", "");
  const std::string second = trainers.find_or_compile(other);
  CHECK(second != program);
  p.describe(p.folder / "compiler", "-O2");
  const std::string third = trainers.find_or_compile(other);
  CHECK(third != second);
  CHECK(p.calls() == 3);

  // different compiler of the same name, different libraries
  write_program(p.folder / "compiler", std::string(mapped_file(p.folder / "compiler").text()) + "# of a new version\n");
  const std::string fourth = trainers.find_or_compile(other);
  CHECK(fourth != third);
  p.describe(p.folder / "compiler", "-O2", "-lm;-lz");
  CHECK(trainers.find_or_compile(other) != fourth);
  CHECK(p.calls() == 5);
}

TEST_CASE("trainers are compiled without warnings, whatever the build asks for") {
  const programs p;
  p.describe(p.folder / "compiler", "-Werror;-O1;-pedantic-errors;-Wl,-z,now;SHELL:-Wshadow -Werror=all -g;-Wp,-DX;-Weverything");
  (void)trainer_cache(p.settings).find_or_compile({.optimizer = "lion"});
  const std::string command(mapped_file(p.folder / "calls").text());
  CHECK(command.starts_with("-std=c++20 -w -O1 -Wl,-z,now -g -Wp,-DX -DA"));
}

TEST_CASE("a trainer with MPI says that it links the component, which <xtrain/mpi.hpp> asks for where definitions name components") {
  const programs p;
  write_file(p.folder / "bin/trainers.txt",
             std::string(mapped_file(p.folder / "bin/trainers.txt").text()) + "mpi_includes=/mpi/include\nmpi_libraries=-lmpi\n");
  const trainer_cache trainers(p.settings);
  const auto command = [&](bool mpi) {
    (void)trainers.find_or_compile({}, mpi);
    std::string all(mapped_file(p.folder / "calls").text());
    std::filesystem::remove(p.folder / "calls");
    return all;
  };
  CHECK(command(false).find("MPI") == std::string::npos);
  const std::string with_mpi = command(true);
  CHECK(with_mpi.find(" -DXTRAIN_TARGET_MPI ") != std::string::npos);
  CHECK(with_mpi.find(" -I/mpi/include ") != std::string::npos);
  CHECK(with_mpi.ends_with(" -lm -lmpi\n"));
}

TEST_CASE("trainers for this processor are not those of another one") {
  // trainers of a shared folder compiled with -march=native have a name per processor
  programs p;
  p.describe(p.folder / "compiler", "-O1;-march=native");
  const auto program_on = [&](const std::string& text) {
    p.settings.processor = p.folder / "processor";
    write_file(p.settings.processor, text);
    return trainer_cache(p.settings).find_or_compile({.optimizer = "lion"});
  };
  const std::string one = program_on("processor\t: 0\nflags\t\t: fpu avx2\ncpu MHz\t\t: 2000\n");
  CHECK(program_on("processor\t: 0\nflags\t\t: fpu avx2\ncpu MHz\t\t: 2100\n") == one);
  CHECK(program_on("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n") != one);
  CHECK(program_on("processor\t: 0\nFeatures\t: fp asimd sve\n") != program_on("processor\t: 0\nFeatures\t: fp asimd\n"));
  CHECK(p.calls() == 4);
}

TEST_CASE("what a killed process left is removed, and its compiler ends with it") {
  const programs p("echo $$ > \"$out.began\"\nsleep 1\nprintf '#!/bin/sh\\n' > \"$out\"\nchmod +x \"$out\"\n");
  const trainer_cache trainers(p.settings);
  const recipe_type type{.optimizer = "sgd"};
  const auto files = [&](const std::string& end) {
    std::size_t count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(p.folder / "cache", none)) count += entry.path().string().ends_with(end) ? 1 : 0;
    return count;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    (void)trainers.find_or_compile(type);
    ::_exit(0);
  }
  for (int i = 0; i < 100 && files(".began") == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE(files(".began") == 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  CHECK(files(".part") == 1);  // the folder of recipe.hpp: the compiler has written nothing
  CHECK(files(".recipe.part") == 1);
  const std::string program = trainers.find_or_compile(type);
  CHECK(::access(program.c_str(), X_OK) == 0);
  CHECK(files(".part") == 0);
  CHECK(p.calls() == 2);
}

TEST_CASE("two that ask for the same trainer compile it once") {
  const programs p;
  const trainer_cache trainers(p.settings);
  const recipe_type type{.optimizer = "lion"};
  std::string first, second;
  std::thread other([&] { first = trainers.find_or_compile(type); });
  second = trainers.find_or_compile(type);
  other.join();
  CHECK(first == second);
  CHECK(p.calls() == 1);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(p.folder / "cache")) files += entry.path().string().ends_with(".part") ? 1 : 0;
  CHECK(files == 0);
}

TEST_CASE("a type that does not compile is refused with what the compiler says, and leaves no trainer") {
  const programs p("echo 'x.cpp:1: error: static assertion failed: xtrain muon: refused'; echo half > \"$out\"; exit 1\n");
  const trainer_cache trainers(p.settings);
  try {
    (void)trainers.find_or_compile({.optimizer = "muon"});
    FAIL("compiled");
  } catch (const config_error& problem) {
    const std::string said = problem.what();
    CHECK(said.starts_with("trainer cpu-fp32-muon: the compiler refuses the type\nstruct recipe : xtrain::defaults {\n  using optimizer = xtrain::muon;\n};\n"
                           "x.cpp:1: error: static assertion failed: xtrain muon: refused\nall that it says is in "));
  }
  for (const auto& entry : std::filesystem::directory_iterator(p.folder / "cache")) CHECK_FALSE(entry.path().string().ends_with(".part"));
  CHECK_THROWS_AS((void)trainers.find_or_compile({.optimizer = "muon"}), config_error);
  CHECK(p.calls() == 2);
}

TEST_CASE("without a compiler the type and the trainers that are there are named") {
  const programs p;
  write_program(p.folder / "bin/train-cpu-fp32", "");
  p.describe("/nowhere/compiler");
  const trainer_cache trainers(p.settings);
  CHECK_THROWS_WITH_AS((void)trainers.find_or_compile({.optimizer = "lion"}),
                       "trainer cpu-fp32-lion: is not built, and the compiler /nowhere/compiler cannot be started; the type is\n"
                       "struct recipe : xtrain::defaults {\n  using optimizer = xtrain::lion;\n};\nprebuilt: cpu-fp32",
                       config_error);
  CHECK_THROWS_WITH_AS(
      (void)trainers.find_or_compile({.device = "tpu"}),
      "trainer tpu-fp32: this build has no device 'tpu': its trainers are for cpu (there are: cpu-fp32); give the device cpu, or build a "
      "trainer for a device of your own: --print-recipe shows its recipe and CMake call",
      config_error);
  CHECK_THROWS_WITH_AS((void)trainers.find_or_compile({}, true), "trainer cpu-fp32-mpi: needs MPI, which this build has not found", config_error);
  std::filesystem::remove(p.folder / "bin/trainers.txt");
  CHECK_THROWS_AS((void)trainers.find_or_compile({.optimizer = "lion"}), config_error);
  write_file(p.folder / "bin/trainers.txt", "compiler=c\nnonsense\n");
  CHECK_THROWS_WITH_AS((void)trainer_build::load(p.folder / "bin/trainers.txt"),
                       std::string((p.folder / "bin/trainers.txt") + ": line 2: must be name=value; it is 'nonsense'").c_str(), file_error);
}

TEST_CASE("a trainer for npu needs no toolkit: CANN is looked for where it runs, and its absence is said before anything is compiled") {
  programs p;
  const recipe_type type{.device = "npu", .parallel = "data_parallel"};
  p.settings.npu_library = "libno_such_ascendcl.so";
  CHECK_THROWS_WITH_AS((void)trainer_cache(p.settings).find_or_compile(type),
                       doctest::Contains("trainer npu-fp32-data_parallel: the device npu needs CANN, whose environment must be set (source set_env.sh of the "
                                         "installation): libno_such_ascendcl.so cannot be loaded: "),
                       config_error);
  CHECK(p.calls() == 0);
  p.settings.only_plan = true;  // computes nothing
  const std::string planned = trainer_cache(p.settings).find_or_compile(type);
  CHECK(p.calls() == 1);
  p.settings.only_plan = false;
  p.settings.npu_library = "libm.so.6";
  CHECK(trainer_cache(p.settings).find_or_compile(type) == planned);
  CHECK(recipe_header(type, false).find("#include <xtrain/comm/hccl/hccl.hpp>\n#include <xtrain/device/npu/npu.hpp>\n") != std::string::npos);
}

TEST_CASE("a trainer for musa is compiled with the kernels that mcc compiled; what is missing is named together; a rehearsal needs nothing") {
  programs p;
  const recipe_type type{.device = "musa"};
  p.settings.musa_driver = "libno_such_driver.so";
  const std::string who = "trainer musa-fp32: the device musa needs ";
  const std::string driver = "Moore Threads' driver, of which this machine has none that can be loaded (libno_such_driver.so); or give the device cpu";
  const auto compiled = [&](const std::string& more) {
    p.describe(p.folder / "compiler");
    const std::string path = p.folder / "bin/trainers.txt", before(mapped_file(path).text());
    write_file(path, before + more);
    try {
      return trainer_cache(p.settings).find_or_compile(type);
    } catch (const config_error& problem) {
      return std::string(problem.what());
    }
  };
  const std::string of_cuda = "cuda=nvcc\ncuda_definitions=XTRAIN_CUDA_KERNELS\ncuda_libraries=-lof_cuda\n";
  CHECK(compiled(of_cuda) == who + "kernels that mcc compiled, which this build has not: xtrain_add_front_ends(DEVICES musa), with mcc and libmusart of "
                                   "Moore Threads' MUSA SDK, and " + driver);
  const std::string lines = of_cuda + "musa=/a/mcc for 22;31\nmusa_definitions=XTRAIN_MUSA_KERNELS\nmusa_libraries=-lkernels;-lmusart;-ldl\n";
  CHECK(compiled(lines) == who + driver);
  CHECK(p.calls() == 0);
  p.settings.musa_driver = "libm.so.6";
  const std::string first = compiled(lines);
  CHECK(::access(first.c_str(), X_OK) == 0);
  const std::string command(mapped_file(p.folder / "calls").text());
  CHECK(command.find(" -DXTRAIN_MUSA_KERNELS -DXTRAIN_RECIPE_KEY=\"musa-fp32\" ") != std::string::npos);
  CHECK(command.ends_with(" -lkernels -lmusart -ldl -lm\n"));
  CHECK(command.find("CUDA") == std::string::npos);
  CHECK(recipe_header(type, false).find("#include <xtrain/comm/mccl/mccl.hpp>\n#include <xtrain/device/musa/musa.hpp>\n") != std::string::npos);
  p.settings.musa_driver = "libno_such_driver.so";
  CHECK(compiled("musa=rehearsal\nmusa_definitions=XTRAIN_GPU_REHEARSAL;XTRAIN_MUSA_REHEARSAL\n") != first);
  CHECK(p.calls() == 2);
}

TEST_CASE("a trainer for cuda is compiled with the build's kernels, once for each nvcc; what is missing is named together") {
  programs p;
  const recipe_type type{.device = "cuda", .parallel = "data_parallel"};
  p.settings.cuda_driver = "libno_such_driver.so.1";
  const std::string who = "trainer cuda-fp32-data_parallel: the device cuda needs ";
  const std::string driver =
      "an NVIDIA driver, of which this machine has none that can be loaded (libno_such_driver.so.1): Debian's nvidia-driver, or NVIDIA's cuda-drivers; "
      "or give the device cpu";
  const auto refusal = [&] {
    try {
      return trainer_cache(p.settings).find_or_compile(type);
    } catch (const config_error& problem) {
      return std::string(problem.what());
    }
  };
  CHECK(refusal() == who + "kernels that nvcc compiled, which this build has not: xtrain_add_front_ends(DEVICES cuda), with nvcc of NVIDIA's packages "
                           "cuda-nvcc-13-0, cuda-cudart-dev-13-0, cuda-crt-13-0, and " + driver);
  const std::string kernels = p.folder / "libkernels.a";
  const auto describe = [&](const std::string& nvcc) {
    p.describe(p.folder / "compiler");
    const std::string path = p.folder / "bin/trainers.txt", before(mapped_file(path).text());
    write_file(path, before + "cuda=" + nvcc + "\ncuda_definitions=XTRAIN_CUDA_KERNELS\ncuda_libraries=" + kernels + ";-lrt\n");
  };
  describe("nvcc 13.0.88 for 80;90");
  CHECK(refusal() == who + "the library " + kernels + ", which the build makes with its programs, and " + driver);
  write_file(kernels, "one");
  CHECK(refusal() == who + driver);
  CHECK(p.calls() == 0);

  p.settings.only_plan = true;  // no driver needed
  const std::string first = trainer_cache(p.settings).find_or_compile(type);
  CHECK(trainer_cache(p.settings).find_or_compile(type) == first);
  const std::string command(mapped_file(p.folder / "calls").text());
  CHECK(command.find(" -DXTRAIN_CUDA_KERNELS -DXTRAIN_RECIPE_KEY=\"cuda-fp32-data_parallel\" ") != std::string::npos);
  CHECK(command.ends_with(" " + kernels + " -lrt -lm\n"));
  const std::string header = recipe_header(type, false);
  CHECK(header.find("<xtrain/device/cuda/cuda.hpp>") != std::string::npos);
  CHECK(header.find("  using device = xtrain::cuda;") != std::string::npos);
  CHECK(recipe_header({}, false).find("cuda") == std::string::npos);

  const recipe_type on_cpu{.optimizer = "lion"};
  const std::string lion = trainer_cache(p.settings).find_or_compile(on_cpu);
  describe("nvcc 13.1.80 for 80;90");  // different nvcc, architectures, kernels
  const std::string second = trainer_cache(p.settings).find_or_compile(type);
  describe("nvcc 13.1.80 for 90");
  const std::string third = trainer_cache(p.settings).find_or_compile(type);
  write_file(kernels, "two of them");
  const std::string fourth = trainer_cache(p.settings).find_or_compile(type);
  CHECK(first != second);
  CHECK(second != third);
  CHECK(third != fourth);
  CHECK(p.calls() == 5);
  CHECK(trainer_cache(p.settings).find_or_compile(on_cpu) == lion);  // does not concern the cpu
}
