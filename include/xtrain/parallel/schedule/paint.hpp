#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/schedule/timeline.hpp>

namespace xtrain {

/// title   above the picture; empty: no title
///   unit    of times, at the axis
///   width   of the picture, in pixels
struct paint_options {
  std::string title = {};
  std::string unit = {};
  double width = 900;
};

namespace detail {

struct colour {
  std::uint8_t red, green, blue;
};

/// Distinguishable for color-blind readers: forward, backward, not compute.
[[nodiscard]] constexpr colour colour_of(action_kind kind) {
  switch (kind) {
    case action_kind::forward:
      return {91, 155, 232};
    case action_kind::backward:
    case action_kind::backward_input:
      return {240, 165, 60};
    case action_kind::backward_weight:
      return {125, 190, 120};
    case action_kind::reduce:
      return {165, 120, 200};
    default:
      return {150, 150, 150};
  }
}

[[nodiscard]] inline std::string shade(action_kind kind, std::size_t chunk, std::size_t chunks) {
  constexpr std::string_view digits = "0123456789abcdef";
  const double white = 0.6 * static_cast<double>(chunk) / static_cast<double>(chunks);
  const colour base = colour_of(kind);
  std::string text = "#";
  for (const std::uint8_t part : {base.red, base.green, base.blue}) {
    const auto value = static_cast<std::size_t>(part + (255 - part) * white);
    text += digits[value / 16];
    text += digits[value % 16];
  }
  return text;
}

[[nodiscard]] inline std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') escaped += "&amp;";
    else if (c == '<') escaped += "&lt;";
    else if (c == '>') escaped += "&gt;";
    else if (c == '"') escaped += "&quot;";
    else escaped += static_cast<unsigned char>(c) < 32 ? ' ' : c;  // XML allows no other control characters
  }
  return escaped;
}

/// A length in pixels, rounded to tenths, without a trailing ".0".
[[nodiscard]] inline std::string pixels(double value) {
  std::string text = fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

/// Distance between marks of the axis: 1, 2 or 5 times a power of ten, for about ten marks.
[[nodiscard]] inline double mark_distance(double length) {
  const double power = std::pow(10.0, std::floor(std::log10(length / 10)));
  for (const double times : {1.0, 2.0, 5.0})
    if (length / (times * power) <= 12) return times * power;
  return 10 * power;
}

class timeline_painter {
 public:
  timeline_painter(const pipeline_timeline& timeline, const paint_options& options)
      : timeline_(&timeline), options_(&options), length_(timeline.step_time()), top_(options.title.empty() ? 10 : 34) {
    for (const auto& rank : timeline.ranks)
      for (const timed_action& timed : rank) {
        seen_[static_cast<std::size_t>(timed.action.kind)] = true;
        has_second_lane_ = has_second_lane_ || !is_work(timed.action.kind);
        chunks_ = std::max(chunks_, timed.action.chunk + 1);
      }
  }

  [[nodiscard]] std::string paint() {
    const double bottom = top_ + row_height() * static_cast<double>(timeline_->ranks.size());
    svg_ = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", pixels(options_->width), "\" height=\"", pixels(bottom + 56),
                  "\" viewBox=\"0 0 ", pixels(options_->width), " ", pixels(bottom + 56),
                  "\" font-family=\"sans-serif\" font-size=\"11\">\n", "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    if (!options_->title.empty()) text(left, 20, xml_escaped(options_->title), " font-size=\"14\"");
    axis(bottom);
    for (std::size_t rank = 0; rank < timeline_->ranks.size(); ++rank) row(rank);
    legend(bottom + 40);
    return svg_ += "</svg>\n";
  }

 private:
  static constexpr double left = 64, right = 16, lane = 20, second_lane = 5, gap = 6;

  [[nodiscard]] double row_height() const { return lane + (has_second_lane_ ? second_lane : 0) + gap; }
  [[nodiscard]] double at(double time) const { return length_ > 0 ? left + time / length_ * (options_->width - left - right) : left; }

  void text(double x, double y, std::string_view escaped, std::string_view attributes = {}) {
    svg_ += concat("<text x=\"", pixels(x), "\" y=\"", pixels(y), "\"", attributes, ">", escaped, "</text>\n");
  }

  void axis(double bottom) {
    const double distance = length_ > 0 ? mark_distance(length_) : 0;
    if (!(distance > 0)) return;  // zero length, or too small to divide
    for (std::size_t i = 0; distance * static_cast<double>(i) <= length_; ++i) {
      const double x = at(distance * static_cast<double>(i));
      svg_ += concat("<path d=\"M", pixels(x), " ", pixels(top_), "V", pixels(bottom), "\" stroke=\"#ddd\"/>\n");
      text(x, bottom + 14, concat(number(distance * static_cast<double>(i), distance), xml_escaped(options_->unit)),
           " text-anchor=\"middle\"");
    }
  }

  [[nodiscard]] static std::string number(double value, double distance) {
    const double digits = -std::floor(std::log10(distance));
    return digits > 12 || digits < -12 ? concat(value) : fixed(value, digits > 0 ? static_cast<int>(digits) : 0);
  }

  /// A rank's compute; in a thinner lane below, overlapping messages and reductions.
  void row(std::size_t rank) {
    const double y = top_ + row_height() * static_cast<double>(rank);
    text(8, y + 14, concat("rank ", rank));
    for (const bool messages : {true, false})  // waits for messages must not cover reductions
      for (const timed_action& timed : timeline_->ranks[rank])
        if (messages == is_message(timed.action.kind) && timed.end > timed.start) bar(timed, y);
  }

  void bar(const timed_action& timed, double y) {
    const bool work = is_work(timed.action.kind);
    const double x = at(timed.start), width = at(timed.end) - x;
    svg_ += concat("<rect x=\"", pixels(x), "\" y=\"", pixels(work ? y : y + lane), "\" width=\"", pixels(width), "\" height=\"",
                   pixels(work ? lane : second_lane), "\" fill=\"", shade(timed.action.kind, timed.action.chunk, chunks_), "\"",
                   work ? " stroke=\"#fff\" stroke-width=\".6\"" : "", "/>\n");
    const std::string label = concat(timed.action.micro_batch);
    if (work && width > 7 * static_cast<double>(label.size())) text(x + width / 2, y + 14, label, " text-anchor=\"middle\"");
  }

  void legend(double y) {
    double x = left;
    for (std::size_t i = 0; i < action_kinds; ++i) {
      if (!seen_[i]) continue;
      const auto kind = static_cast<action_kind>(i);
      if (is_message(kind)) continue;
      for (std::size_t chunk = 0; chunk < std::min<std::size_t>(chunks_, 8); ++chunk, x += 12)
        svg_ += concat("<rect x=\"", pixels(x), "\" y=\"", pixels(y - 9), "\" width=\"12\" height=\"10\" fill=\"",
                       shade(kind, chunk, chunks_), "\"/>\n");
      text(x + 4, y, name_of(kind));
      x += 22 + 6.5 * static_cast<double>(name_of(kind).size());
    }
    if (chunks_ > 1) text(x, y, "from dark to light: chunk 0 and on");
  }

  const pipeline_timeline* timeline_;
  const paint_options* options_;
  double length_, top_;
  std::size_t chunks_ = 1;
  std::array<bool, action_kinds> seen_{};
  bool has_second_lane_ = false;
  std::string svg_;
};

}  // namespace detail

/// Ranks are rows, kinds are colors, chunks are shades; numbers are micro-batches.
///   throws  config_error when times are not finite, negative, or end before they start
[[nodiscard]] inline std::string paint_timeline(const pipeline_timeline& timeline, const paint_options& options = {}) {
  require<config_error>(options.width >= 200 && options.width <= 100000,
                        "paint_timeline: the width must be from 200 to 100000 pixels; given ", options.width);
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    for (std::size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
      const timed_action& timed = timeline.ranks[rank][i];
      require<config_error>(static_cast<std::size_t>(timed.action.kind) < action_kinds && timed.start >= 0 && timed.end >= timed.start &&
                                std::isfinite(timed.end),
                            "paint_timeline: an action must start at 0 or later and end after that; given rank ", rank, ", action ", i,
                            ": ", action_text(timed.action), ", from ", timed.start, " to ", timed.end);
    }
  return detail::timeline_painter(timeline, options).paint();
}

}  // namespace xtrain
