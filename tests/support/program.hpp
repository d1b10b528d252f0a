// Runs programs: arguments in, exit status and outputs out.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "scratch.hpp"

struct program_result {
  int status = 0;  // 128 + signal if killed
  std::string out{}, err{};
};

/// A program that runs while the object exists.
class running_program {
 public:
  explicit running_program(std::vector<std::string> arguments) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (const auto& [stream, file] : {std::pair{1, out_}, {2, err_}})
      ::posix_spawn_file_actions_addopen(&actions, stream, file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int problem = ::posix_spawn(&child_, arguments.front().c_str(), &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (problem != 0) throw std::runtime_error("cannot start " + arguments.front());
  }
  ~running_program() {
    if (child_ == 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  running_program(const running_program&) = delete;
  running_program& operator=(const running_program&) = delete;

  [[nodiscard]] pid_t id() const { return child_; }
  void send(int signal) const { ::kill(child_, signal); }
  [[nodiscard]] std::string err() const { return get_file(err_); }
  /// It has closed its outputs.
  [[nodiscard]] bool ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
  }
  program_result wait() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), get_file(out_), get_file(err_)};
  }

 private:
  scratch_folder folder_;
  std::string out_ = folder_ / "out", err_ = folder_ / "err";
  pid_t child_ = 0;
};

inline program_result run_program(std::vector<std::string> arguments) { return running_program(std::move(arguments)).wait(); }
