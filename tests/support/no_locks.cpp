// Loaded before a program, it makes every file system one without locks.
#include <cerrno>

extern "C" int flock(int, int) {
  errno = ENOLCK;
  return -1;
}
