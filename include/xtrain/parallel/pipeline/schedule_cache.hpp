#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

/// A cache of checked schedules, for planning many ranks. A schedule depends only on policy and sizes, and covers all ranks. Not thread-safe. Cleared when it
/// would exceed its limit.
class schedule_cache {
 public:
  /// Returns the result of the first make() with these sizes. Different kinds of lists need different Kinds.
  template <class Kind, class Make>
  [[nodiscard]] std::shared_ptr<const pipeline_schedule> get(std::size_t ranks, std::size_t chunks, const std::vector<std::size_t>& rows, Make&& make) {
    const key wanted{&kind_of<Kind>, ranks, chunks, rows};
    if (const auto found = schedules_.find(wanted); found != schedules_.end()) return found->second;
    const auto made = std::make_shared<const pipeline_schedule>(make());
    std::size_t actions = 0;
    for (const auto& list : made->actions) actions += list.size();
    if (actions > max_actions) return made;
    if (actions > max_actions - actions_) {
      schedules_.clear();
      actions_ = 0;
    }
    actions_ += actions;
    schedules_.emplace(wanted, made);
    return made;
  }

 private:
  template <class Kind>
  static constexpr char kind_of = 0;  // its address identifies the kind
  using key = std::tuple<const void*, std::size_t, std::size_t, std::vector<std::size_t>>;
  static constexpr std::size_t max_actions = std::size_t{1} << 20;  // 40 MiB

  std::map<key, std::shared_ptr<const pipeline_schedule>> schedules_;
  std::size_t actions_ = 0;
};

}  // namespace xtrain
