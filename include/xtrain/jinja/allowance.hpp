// Cost limits of a rendering.
#pragma once

#include <cstddef>

#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

/// Remaining steps; values cost by size.
class allowance {
 public:
  explicit allowance(std::size_t steps) : left_(steps), all_(steps) {}
  void spend(std::size_t steps) {
    if (steps > left_) {
      left_ = 0;
      break_off("a template must be done in ", all_, " steps; it is not");
    }
    left_ -= steps;
  }
  [[nodiscard]] std::size_t spent() const { return all_ - left_; }

  /// Counts nested calls: the stack is finite.
  class deeper {
   public:
    explicit deeper(allowance& of) : of_(of) {
      if (of_.depth_ >= max_call_depth)
        break_off("a template's blocks, calls and expressions must run at most ", max_call_depth, " deep; these run deeper");
      ++of_.depth_;
    }
    ~deeper() { --of_.depth_; }
    deeper(const deeper&) = delete;
    deeper& operator=(const deeper&) = delete;

   private:
    allowance& of_;
  };

  /// Before adding list or mapping entries: more expensive than a step.
  void make_items(std::size_t count) { spend(count <= left_ / 8 ? 8 * count : left_ + 1); }
  void make_entries(std::size_t count) { make_items(count <= left_ ? 4 * count : count); }
  /// Before creating `bytes` of text.
  void make_text(std::size_t bytes) { spend(1 + bytes / 16); }
  /// The product may overflow.
  void make_text(std::size_t count, std::size_t each) {
    spend(each == 0 || count <= (left_ + 1) * 16 / each ? 0 : left_ + 1);
    make_text(count * each);
  }

 private:
  static constexpr std::size_t max_call_depth = 500;
  std::size_t left_, all_, depth_ = 0;
};

}  // namespace xtrain::detail::jinja
