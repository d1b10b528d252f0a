// Progress of a layout search.
#pragma once

#include <cstddef>

namespace xtrain {

/// `done` of `all` pieces of work: shared dry runs, and layouts (planned or left out).
struct search_progress {
  std::size_t done = 0, all = 0;
  std::size_t layouts = 0;  ///< in the search
  std::size_t planned = 0;
  double fastest = 0;  ///< step seconds of the fastest that fits; 0: none yet
};

/// Receives progress, one call at a time, from any search thread.
class search_observer {
 public:
  virtual ~search_observer() = default;
  virtual void on(const search_progress& progress) = 0;
};

}  // namespace xtrain
