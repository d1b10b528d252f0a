#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/formatting.hpp>
#include <xtrain/jinja/operators.hpp>

namespace xtrain::detail::jinja {

/// Evaluates the loop's condition as late as possible: it may read a namespace that the body changes.
class loop_state {
 public:
  loop_state(std::vector<value> items, std::function<bool(const value&)> keeps) : items_(std::move(items)), keeps_(std::move(keeps)) {}

  /// False: no more items.
  bool advance() {
    if (!look_ahead()) return false;
    if (index_ > 0) previous_ = std::move(current_);
    current_ = std::move(items_[at_++]);
    looked_ = false;
    ++index_;
    return true;
  }
  [[nodiscard]] const value& current() const { return current_; }

  /// Releases everything, the condition first.
  void finish() {
    keeps_ = nullptr;
    items_.clear();
    at_ = 0;
    previous_ = current_ = changed_ = value{};
  }

  [[nodiscard]] value attribute(std::string_view name) {
    if (name == "index") return index_;
    if (name == "index0") return index_ - 1;
    if (name == "first") return index_ == 1;
    if (name == "last") return !look_ahead();
    if (name == "length") return length();
    if (name == "revindex") return length() - index_ + 1;
    if (name == "revindex0") return length() - index_;
    if (name == "previtem") return index_ > 1 ? previous_ : value::undefined("'loop.previtem' must not be used for the first item");
    if (name == "nextitem") return look_ahead() ? items_[at_] : value::undefined("'loop.nextitem' must not be used for the last item");
    if (name == "depth") return 1;
    if (name == "depth0") return 0;
    return value::undefined("'loop' has no attribute '", name, "'");
  }

  [[nodiscard]] value call(std::string_view method, const arguments& given, allowance& cost) {
    if (method == "cycle") {
      if (given.placed.empty()) break_off("'loop.cycle' must be given values");
      return given.placed[(index_ - 1) % given.placed.size()];
    }
    const value now(given.placed, form::tuple);  // changed: these values differ from the last call's
    const bool differs = changed_.is_none() || !equal(changed_, now, cost);
    changed_ = now;
    return differs;
  }

 private:
  /// The next item, if any, is at at_.
  bool look_ahead() {
    while (!looked_ && at_ < items_.size()) {
      looked_ = !keeps_ || keeps_(items_[at_]);
      if (!looked_) ++at_;
    }
    return looked_;
  }
  /// Evaluates the condition for all remaining items.
  [[nodiscard]] std::size_t length() {
    std::vector<value> rest;
    while (look_ahead()) {
      rest.push_back(std::move(items_[at_++]));
      looked_ = false;
    }
    items_ = std::move(rest);
    at_ = 0;
    keeps_ = nullptr;
    return index_ + items_.size();
  }

  std::vector<value> items_;
  std::function<bool(const value&)> keeps_;
  std::size_t at_ = 0, index_ = 0;
  bool looked_ = false;
  value previous_{}, current_{}, changed_{};
};

}  // namespace xtrain::detail::jinja
