// For every command line: signals and descriptors that would end a run silently, or put text into its files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

namespace program_start {

/// A write to a closed pipe (SIGPIPE) or beyond `ulimit -f` (SIGXFSZ) fails with an error instead of killing the process. Closed standard streams become
/// /dev/null: otherwise the next opened file would get their number, and printed text.
inline void prepare() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {0, 1, 2})  // in this order: open() takes the lowest free number
    if (::fcntl(stream, F_GETFD) == -1 && errno == EBADF) (void)::open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY);
}

/// The program's exit status: `status`, or 1 instead of 0, with a message, if standard output is incomplete.
inline int with_output_written(const std::string& name, int status) {
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = flushed ? 0 : errno;
  if (flushed && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "%s: standard output: must be writable; %s\n", name.c_str(), flushed ? "what was printed is not whole" : std::strerror(reason));
  return status == 0 ? 1 : status;
}

}  // namespace program_start
