// Makes thread creation fail, as at a process limit.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <stdexcept>

/// While an object exists, new threads request an impossible stack size.
class no_new_threads {
 public:
  no_new_threads() {
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    bool set = ::pthread_getattr_default_np(&before_) == 0 && ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50) == 0;
    set = set && ::pthread_setattr_default_np(&huge) == 0;
    pthread_attr_destroy(&huge);
    if (!set) throw std::runtime_error("no_new_threads: the default size of stacks must be set");
  }
  ~no_new_threads() {
    ::pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  no_new_threads(const no_new_threads&) = delete;
  no_new_threads& operator=(const no_new_threads&) = delete;

 private:
  pthread_attr_t before_;
};
