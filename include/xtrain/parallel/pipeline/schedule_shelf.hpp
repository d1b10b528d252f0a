// Schedules that were made and proved once, for who plans one rank after the other of the same pipelines.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

/// A list is as good for one rank of a pipeline as for the next: it follows from the schedule and how much there is of what. One thread at a
/// time. What is here is bounded: where it becomes too much, everything is made anew.
class schedule_shelf {
 public:
  /// What make() gave when it was first asked for these. Whoever makes another kind of lists names another Kind.
  template <class Kind, class Make>
  [[nodiscard]] std::shared_ptr<const pipeline_schedule> get(std::size_t ranks, std::size_t chunks, const std::vector<std::size_t>& rows, Make&& make) {
    const key wanted{&kind_of<Kind>, ranks, chunks, rows};
    if (const auto found = schedules_.find(wanted); found != schedules_.end()) return found->second;
    const auto made = std::make_shared<const pipeline_schedule>(make());
    std::size_t actions = 0;
    for (const auto& list : made->actions) actions += list.size();
    if (actions > most_actions) return made;
    if (actions > most_actions - actions_) {
      schedules_.clear();
      actions_ = 0;
    }
    actions_ += actions;
    schedules_.emplace(wanted, made);
    return made;
  }

 private:
  template <class Kind>
  static constexpr char kind_of = 0;  // its address tells one from another
  using key = std::tuple<const void*, std::size_t, std::size_t, std::vector<std::size_t>>;
  static constexpr std::size_t most_actions = std::size_t{1} << 20;  // 40 MiB of them

  std::map<key, std::shared_ptr<const pipeline_schedule>> schedules_;
  std::size_t actions_ = 0;
};

}  // namespace xtrain
