// What a search of layouts tells while it goes on.
#pragma once

#include <cstddef>

namespace xtrain {

/// How far a search is. `done` of `all` pieces of work: dry runs that are shared by many layouts, and layouts, which are planned or left out.
struct search_progress {
  std::size_t done = 0, all = 0;
  std::size_t layouts = 0;  ///< all that are searched
  std::size_t planned = 0;  ///< layouts planned so far
  double fastest = 0;       ///< seconds of a step of the fastest that fits so far; 0: none yet
};

/// Receives the progress of a search: one call at a time, from any of its threads.
class search_observer {
 public:
  virtual ~search_observer() = default;
  virtual void on(const search_progress& progress) = 0;
};

}  // namespace xtrain
