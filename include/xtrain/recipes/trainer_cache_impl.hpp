// Definitions of trainer_cache.hpp.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/device/npu/library.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/recipes/split_list.hpp>
#include <xtrain/recipes/trainer_cache.hpp>

namespace xtrain {

namespace detail {

/// A lock between processes; waits; ends with the process.
class waiting_lock {
 public:
  explicit waiting_lock(const std::string& path) : file_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    require<file_error>(file_ >= 0, path, ": must be writable: compiled trainers are kept there; the system says: ", std::strerror(errno));
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~waiting_lock() { ::close(file_); }
  waiting_lock(const waiting_lock&) = delete;
  waiting_lock& operator=(const waiting_lock&) = delete;

 private:
  int file_;
};

/// Changes with headers or the source: paths, sizes, times.
[[nodiscard]] inline std::string state_of_sources(const trainer_build& with) {
  std::vector<std::string> lines;
  const auto add = [&](const std::filesystem::path& path) {
    std::error_code problem;
    const auto size = std::filesystem::file_size(path, problem);
    const auto time = std::filesystem::last_write_time(path, problem);
    if (!problem) lines.push_back(concat(path.string(), " ", size, " ", time.time_since_epoch().count()));
  };
  add(with.source);
  add(with.compiler);
  std::error_code problem;
  for (const auto& beside : std::filesystem::directory_iterator(std::filesystem::path(with.source).parent_path(), problem))
    if (beside.path().extension() == ".hpp") add(beside.path());
  for (const std::string& folder : with.includes) {
    const std::filesystem::path headers = std::filesystem::path(folder) / "xtrain";
    if (!std::filesystem::is_directory(headers, problem)) continue;
    for (const auto& file : std::filesystem::recursive_directory_iterator(headers, problem))
      if (file.is_regular_file(problem)) add(file.path());
  }
  for (const auto* libraries : {&with.libraries, &with.mpi_libraries, &with.cuda.libraries, &with.musa.libraries})
    for (const std::string& library : *libraries)
      if (library.front() == '/') add(library);
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

/// With -Werror, a newer compiler's warning would end a user's run. -Wl, -Wa and -Wp pass options on.
[[nodiscard]] inline bool asks_for_warnings(std::string_view option) {
  const bool passed_on = option.starts_with("-Wl,") || option.starts_with("-Wa,") || option.starts_with("-Wp,");
  return option.starts_with("-pedantic") || (option.starts_with("-W") && !passed_on);
}

/// The processor's instructions, for -march=native: machines may share a folder of trainers.
[[nodiscard]] inline std::string processor_features(const std::string& path) {
  std::string text;  // such a file has no size and cannot be mapped
  if (const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) {
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = ::read(file, piece.data(), piece.size())) > 0;) text.append(piece.data(), static_cast<std::size_t>(n));
    ::close(file);
  }
  for (const std::string& line : split_list(text, '\n'))
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return {};
}

/// Everything missing for a trainer for cuda or musa, and its source; empty: nothing.
[[nodiscard]] inline std::string what_gpu_lacks(const trainer_build::gpu& with, const trainer_cache::config& settings, bool is_musa) {
  std::string all;
  const auto add = [&](const auto&... text) { all += concat(all.empty() ? "" : ", and ", text...); };
  if (with.kernels.empty())
    add(is_musa ? "kernels that mcc compiled, which this build has not: xtrain_add_front_ends(DEVICES musa), with mcc and libmusart of Moore Threads' MUSA SDK"
                : "kernels that nvcc compiled, which this build has not: xtrain_add_front_ends(DEVICES cuda), with nvcc of NVIDIA's packages cuda-nvcc-13-0, "
                  "cuda-cudart-dev-13-0, cuda-crt-13-0");
  for (const std::string& library : with.libraries)
    if (library.front() == '/' && !file_exists(library)) add("the library ", library, ", which the build makes with its programs");
  const bool runs_on_gpu = with.kernels.empty() || !with.libraries.empty();  // rather than the runtime of a rehearsal
  if (settings.only_plan || !runs_on_gpu) return all;
  const std::string& file = is_musa ? settings.musa_driver : settings.cuda_driver;
  if (void* const driver = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL); driver != nullptr) ::dlclose(driver);
  else add(is_musa ? "Moore Threads' driver" : "an NVIDIA driver", ", of which this machine has none that can be loaded (", file, ")",
           is_musa ? "" : ": Debian's nvidia-driver, or NVIDIA's cuda-drivers");
  return all;
}

/// Runs a command with output to a file; it ends with this process.
///   returns  exit status; 127: not started; 128 + signal
inline int run_command(const std::vector<std::string>& command, const std::string& output, const std::function<void(double)>& progress) {
  std::vector<char*> pointers;
  for (const std::string& part : command) pointers.push_back(const_cast<char*>(part.c_str()));
  pointers.push_back(nullptr);
  const auto began = std::chrono::steady_clock::now();
  const pid_t parent = ::getpid(), child = ::fork();
  require<file_error>(child >= 0, command.front(), ": a process must be started; the system says: ", std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // the parent ended before
    const int file = ::open(output.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (file >= 0) {
      ::dup2(file, 1);
      ::dup2(file, 2);
    }
    ::execvp(pointers.front(), pointers.data());
    ::_exit(127);
  }
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    require<file_error>(ended == 0 || errno == EINTR, command.front(), ": the compiler must be waited for; the system says: ", std::strerror(errno));
    if (progress) progress(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace detail

XTRAIN_INLINE trainer_build trainer_build::load(const std::string& path) {
  const mapped_file file(path);
  trainer_build result;
  std::size_t number = 0;
  for (const std::string& line : detail::split_list(file.text(), '\n')) {
    ++number;
    const std::size_t equals = line.find('=');
    require<file_error>(equals != std::string::npos, path, ": line ", number, ": must be name=value; it is '", line, "'");
    const std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    if (name == "compiler") result.compiler = value;
    else if (name == "source") result.source = value;
    else if (name == "version") result.version = value;
    else if (name == "definitions") result.definitions = detail::split_list(value, ';');
    else if (name == "includes") result.includes = detail::split_list(value, ';');
    else if (name == "libraries") result.libraries = detail::split_list(value, ';');
    else if (name == "mpi_includes") result.mpi_includes = detail::split_list(value, ';');
    else if (name == "mpi_libraries") result.mpi_libraries = detail::split_list(value, ';');
    else if (name == "cuda") result.cuda.kernels = value;
    else if (name == "cuda_definitions") result.cuda.definitions = detail::split_list(value, ';');
    else if (name == "cuda_libraries") result.cuda.libraries = detail::split_list(value, ';');
    else if (name == "musa") result.musa.kernels = value;
    else if (name == "musa_definitions") result.musa.definitions = detail::split_list(value, ';');
    else if (name == "musa_libraries") result.musa.libraries = detail::split_list(value, ';');
    else if (name == "npu_definitions") result.npu_definitions = detail::split_list(value, ';');
    else if (name == "options") {
      const auto take = [&](std::string& one) {
        if (!detail::asks_for_warnings(one)) result.options.push_back(std::move(one));
      };
      for (std::string& one : detail::split_list(value, ';')) {
        if (!one.starts_with("SHELL:")) take(one);
        else
          for (std::string& part : detail::split_list(one.substr(6), ' ')) take(part);
      }
    } else fail<file_error>(path, ": line ", number, ": there is no '", name, "'; this program is of another version");
  }
  require<file_error>(!result.compiler.empty() && !result.source.empty(), path, ": must name a compiler and a source");
  return result;
}

XTRAIN_INLINE std::string recipe_header(const recipe_type& type, bool mpi) {
  const auto include = [](const char* header) { return concat("#", "include <xtrain/", header, ".hpp>\n"); };
  return concat("// The policies of a trainer, as a run description asks for them.\n#pragma once\n\n", include("models/families"),
                type.device == "cuda" ? include("comm/nccl/nccl") + include("device/cuda/cuda") : std::string(),
                type.device == "musa" ? include("comm/mccl/mccl") + include("device/musa/musa") : std::string(),
                type.device == "npu" ? include("comm/hccl/hccl") + include("device/npu/npu") : std::string(), mpi ? include("mpi") : std::string(),
                include("parallel"), include("text"), "\n", type.text(),
                "\nusing families = xtrain::all_families;\ntemplate <class Recipe>\nusing model_of = xtrain::any_decoder_of<Recipe, families>;\n",
                "using processes = ", mpi ? "xtrain::mpi_session" : "void", ";\n");
}

XTRAIN_INLINE trainer_cache::trainer_cache(config settings) : settings_(std::move(settings)) {
  if (!settings_.folder.empty()) return;
  if (const char* given = std::getenv("XTRAIN_CACHE"); given != nullptr && *given != '\0') settings_.folder = given;
  else if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') settings_.folder = std::string(cache) + "/xtrain";
  else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') settings_.folder = std::string(home) + "/.cache/xtrain";
}

XTRAIN_INLINE std::vector<std::string> trainer_cache::prebuilt() const {
  std::vector<std::string> keys;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(settings_.programs, problem))
    if (const std::string name = entry.path().filename().string(); name.starts_with("train-") && ::access(entry.path().c_str(), X_OK) == 0)
      keys.push_back(name.substr(6));
  std::sort(keys.begin(), keys.end());
  return keys;
}

XTRAIN_INLINE std::string trainer_cache::find_or_compile(const recipe_type& type, bool mpi) const {
  const std::string key = type.key() + (mpi ? "-mpi" : "");
  const std::string built = settings_.programs + "/train-" + key;
  if (::access(built.c_str(), X_OK) == 0) return built;
  const std::string description = settings_.programs + "/trainers.txt";
  std::string others;
  for (const std::string& one : prebuilt()) others += (others.empty() ? "" : ", ") + one;
  require<config_error>(file_exists(description), "trainer ", key, ": is not built, and nothing says how to compile it: ", description,
                        " is missing; there are: ", others.empty() ? "none" : others);
  const bool is_musa = type.device == "musa", is_gpu = is_musa || type.device == "cuda";
  require<config_error>(is_gpu || type.device == "cpu" || type.device == "npu", "trainer ", key, ": this build has no device '", type.device,
                        "': its trainers are for cpu (there are: ", others.empty() ? "none" : others,
                        "); give the device cpu, or build a trainer for a device of your own: --print-recipe shows its recipe and CMake call");
  trainer_build with = trainer_build::load(description);
  if (type.device == "npu" && !settings_.only_plan && with.npu_definitions.empty()) {
    const npu_library cann = npu_library::open(settings_.npu_library);
    require<config_error>(static_cast<bool>(cann), "trainer ", key, ": the device npu needs CANN, whose environment must be set (source set_env.sh of the ",
                          "installation): ", cann.why(), "; or give the device cpu");
  }
  // only its own libraries change a trainer
  if (type.device != "cuda") with.cuda = {};
  if (!is_musa) with.musa = {};
  if (is_gpu) {
    const std::string missing = detail::what_gpu_lacks(is_musa ? with.musa : with.cuda, settings_, is_musa);
    require<config_error>(missing.empty(), "trainer ", key, ": the device ", type.device, " needs ", missing, "; or give the device cpu");
  }
  require<config_error>(!mpi || !with.mpi_libraries.empty(), "trainer ", key, ": needs MPI, which this build has not found");
  return compile(type, mpi, with);
}

XTRAIN_INLINE std::string trainer_cache::compile(const recipe_type& type, bool mpi, const trainer_build& with) const {
  const std::string key = type.key() + (mpi ? "-mpi" : "");
  require<config_error>(!settings_.folder.empty(), "trainer ", key, ": must be kept somewhere; set XTRAIN_CACHE to a folder");
  std::string others;
  for (const std::string& one : prebuilt()) others += (others.empty() ? "" : ", ") + one;

  std::vector<std::string> command{with.compiler, "-std=c++20", "-w"};  // -w: no warnings, also of dependencies
  for (const std::string& one : with.options) command.push_back(one);
  for (const std::string& one : with.definitions) command.push_back("-D" + one);
  const trainer_build::gpu& gpu = type.device == "musa" ? with.musa : with.cuda;  // empty for another device
  if (type.device == "npu")
    for (const std::string& one : with.npu_definitions) command.push_back("-D" + one);
  for (const std::string& one : gpu.definitions) command.push_back("-D" + one);
  command.push_back(concat("-DXTRAIN_RECIPE_KEY=\"", type.key(), "\""));
  for (const std::string& one : with.includes) command.push_back("-I" + one);
  if (mpi) {
    command.emplace_back("-DXTRAIN_TARGET_MPI");  // <xtrain/mpi.hpp> asks for it where definitions have XTRAIN_TARGET
    for (const std::string& one : with.mpi_includes) command.push_back("-I" + one);
  }
  std::string settings = concat(with.version, "\n", recipe_header(type, mpi), detail::state_of_sources(with));
  for (const std::string& one : command) settings += one + "\n";
  for (const std::string& one : with.libraries) settings += one + "\n";
  if (mpi)
    for (const std::string& one : with.mpi_libraries) settings += one + "\n";
  if (!gpu.kernels.empty()) settings += gpu.kernels + "\n";
  for (const std::string& one : gpu.libraries) settings += one + "\n";
  if (std::any_of(with.options.begin(), with.options.end(), [](const std::string& one) { return one.ends_with("=native"); }))
    settings += detail::processor_features(settings_.processor);
  const std::string name = concat("train-", key, "-", checksum_text(settings));
  const std::string program = settings_.folder + "/" + name;
  if (::access(program.c_str(), X_OK) == 0) return program;

  std::error_code problem;
  std::filesystem::create_directories(settings_.folder, problem);
  require<file_error>(!problem, settings_.folder, ": must be a folder that can be written: compiled trainers are kept there; the system says: ",
                      problem.message());
  const detail::waiting_lock lock(program + ".lock");
  if (::access(program.c_str(), X_OK) == 0) return program;  // another process compiled it
  for (const auto& entry : std::filesystem::directory_iterator(settings_.folder, problem))  // left by a killed process: this one has the lock
    if (const std::string file = entry.path().filename().string(); file.starts_with(name + ".") && file.ends_with(".part"))
      std::filesystem::remove_all(entry.path(), problem);
  const std::string recipe = concat(program, ".", ::getpid(), ".recipe.part"), part = concat(program, ".", ::getpid(), ".part"), log = program + ".log";
  std::filesystem::create_directories(recipe, problem);
  write_file(recipe + "/recipe.hpp", recipe_header(type, mpi));
  command.insert(command.end(), {"-I" + recipe, with.source, "-o", part});
  for (const std::string& one : gpu.libraries) command.push_back(one);
  for (const std::string& one : with.libraries) command.push_back(one);
  if (type.device == "npu") command.emplace_back("-ldl");
  if (mpi)
    for (const std::string& one : with.mpi_libraries) command.push_back(one);
  const auto tell = [&](double seconds, bool done) {
    if (settings_.progress) settings_.progress(key, seconds, done);
  };
  const auto began = std::chrono::steady_clock::now();
  tell(-1.0, false);
  const int status = detail::run_command(command, log, [&](double seconds) { tell(seconds, false); });
  std::filesystem::remove_all(recipe, problem);
  if (status != 0) {
    std::filesystem::remove(part, problem);
    require<config_error>(status != 127, "trainer ", key, ": is not built, and the compiler ", with.compiler, " cannot be started; the type is\n", type.text(),
                          "prebuilt: ", others.empty() ? "none" : others);
    std::string said;
    for (const std::string& line : detail::split_list(mapped_file(log).text(), '\n'))
      if (said.size() < 2000 && (line.find("error") != std::string::npos || line.find("static assertion") != std::string::npos)) said += line + "\n";
    fail<config_error>("trainer ", key, ": the compiler refuses the type\n", type.text(), said, "all that it says is in ", log);
  }
  std::filesystem::rename(part, program, problem);
  require<file_error>(!problem, program, ": must be writable; the system says: ", problem.message());
  std::filesystem::remove(log, problem);
  tell(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), true);
  return program;
}

}  // namespace xtrain
