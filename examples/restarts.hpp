// --max-restarts: restarts a run that failed, from its last checkpoint.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/io.hpp>

#include "command_line.hpp"

namespace command_line {

namespace restarts {

/// How a child process ended.
struct ending {
  int status = 0;      // its exit status, or 128 + the signal that killed it
  bool killed = false;
  bool asked = false;  // a stop was requested
};

/// Runs this program with other arguments, and waits for it. Forwards SIGINT, SIGTERM and SIGHUP, unless that is ignored.
///   throws  file_error when no process can be started
inline ending run_child(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  sigset_t ours, before;
  sigemptyset(&ours);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&ours, signal);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&ours, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &ours, &before);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // the child must not outlive this process: it would train at the same time as the next one
    if (::getppid() != parent) ::_exit(1);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::execv("/proc/self/exe", pointers.data());
    ::_exit(127);
  }
  xtrain::require<xtrain::file_error>(child > 0, "--max-restarts: a process must be started; the system says: ", std::strerror(errno));
  ending end;
  for (int status = 0;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&ours, &info);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
      end.asked = true;
      if (info.si_code != SI_KERNEL) ::kill(child, signal);  // a terminal sends it to both
    }
    if (::waitpid(child, &status, WNOHANG) != child) continue;
    end.killed = WIFSIGNALED(status);
    end.status = end.killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    break;
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return end;
}

/// The child's arguments: without --max-restarts; with --resume from the second attempt on.
inline std::vector<std::string> arguments_of_child(int argc, char** argv, bool resume) {
  std::vector<std::string> all;
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--max-restarts") ++i;
    else if (!argument.starts_with("--max-restarts=") && argument != "--resume") all.push_back(argument);
    else if (argument == "--resume") resume = true;
  }
  if (resume) all.emplace_back("--resume");
  return all;
}

inline std::size_t last_step(const std::string& folder) {
  const auto found = xtrain::checkpoints_in(folder);
  return found.empty() ? 0 : found.back().first;
}

}  // namespace restarts

/// Runs the program as a child, and again when it fails, at most `most` times. Returns the last exit status.
///   throws  usage_error when each attempt would start from the beginning, or for one of a launcher's processes
inline int run_with_restarts(const std::string& name, int argc, char** argv, std::size_t most, std::size_t save_every, const std::string& output) {
  xtrain::require<usage_error>(xtrain::launched().alone(), "--max-restarts: a process of a launcher cannot restart the others; restart the launcher, with "
                                        "--resume, while it fails");
  xtrain::require<usage_error>(save_every > 0 && !output.empty(),
                               "--max-restarts: needs --output-dir and --save-steps: a run resumes from its last "
                               "checkpoint");
  for (std::size_t attempt = 0;; ++attempt) {
    const std::size_t before = restarts::last_step(output);
    const restarts::ending end = restarts::run_child(restarts::arguments_of_child(argc, argv, attempt > 0));
    const bool was_stopped = end.status == 128 + SIGINT || end.status == 128 + SIGTERM || end.status == 128 + SIGHUP;  // only the child got the signal
    if (end.status == 0 || end.asked || was_stopped || (!end.killed && end.status == 2)) return end.status;
    const std::string how = end.killed ? xtrain::concat("was killed by signal ", end.status - 128, " (", ::strsignal(end.status - 128), ")")
                                       : xtrain::concat("failed with status ", end.status);
    const std::size_t step = restarts::last_step(output);
    const auto say = [&](const std::string& then) { std::fprintf(stderr, "%s: the run %s; %s\n", name.c_str(), how.c_str(), then.c_str()); };
    if (!end.killed && step <= before) {
      say("it saved no checkpoint before that, and would fail again: not restarted");
      return end.status;
    }
    if (attempt == most) {
      say(xtrain::concat("it has been restarted ", most, most == 1 ? " time" : " times", " already"));
      return end.status;
    }
    say(xtrain::concat("restarted, ", attempt + 1, " of ", most, ", ", step > 0 ? xtrain::concat("from step ", step) : "from the beginning"));
  }
}

}  // namespace command_line
