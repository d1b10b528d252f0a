// What a step that threw leaves behind, and what a trainer refuses afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

enum class remains : std::uint8_t {
  nothing,      // weights are of complete steps
  half_a_step,  // some weights have changed
  ranks_apart   // other ranks may be elsewhere in the step
};

class failed_step {
 public:
  void require_ranks_together() const {
    require<comm_error>(left_ != remains::ranks_apart, "training: all ranks must finish every step together; one failed halfway, and others may be "
                        "elsewhere in it. Create new ranks, and load the last checkpoint");
  }
  void require_whole_steps() const {
    require_ranks_together();
    require<error>(left_ != remains::half_a_step, "training: weights must be those of whole steps; the last failed while the optimizer changed "
                   "them. Load the last checkpoint");
  }
  void restore() {
    require_ranks_together();
    left_ = remains::nothing;
  }

  /// Runs collective work. If it throws with several ranks, the other ranks' state is unknown; with one rank, forget() resets all state except
  /// `remaining`.
  template <class Work, class Forget>
  decltype(auto) together(std::size_t ranks, remains remaining, Work&& work, Forget&& forget) {
    try {
      return work();
    } catch (...) {
      left_ = ranks > 1 ? remains::ranks_apart : remaining;
      if (left_ != remains::ranks_apart) forget();
      throw;
    }
  }

 private:
  remains left_ = remains::nothing;
};

}  // namespace xtrain::detail
