// Pictures of timelines: well-formed for any content, a bar per action that takes time.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/paint.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

using namespace xtrain;

namespace {

const pipeline_costs costs{.stages = {{.forward = {1, 0}, .backward_input = {1, 0}, .backward_weight = {1, 0}, .reduce = 3}},
                           .message = {.25, 0}};

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// An '&' must be followed by one of the five names that XML knows.
bool entities_are_known(std::string_view text) {
  for (std::size_t at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with("&amp;") && !rest.starts_with("&lt;") && !rest.starts_with("&gt;") && !rest.starts_with("&quot;") &&
        !rest.starts_with("&apos;"))
      return false;
  }
  return true;
}

/// Parses ' name="value"' until the end of a tag; attributes are unique.
bool attributes_are_right(std::string_view rest) {
  std::vector<std::string_view> names;
  while (!rest.empty()) {
    const std::size_t equals = rest.find('=');
    if (!rest.starts_with(' ') || equals == std::string_view::npos || equals + 1 >= rest.size() || rest[equals + 1] != '"') return false;
    const std::string_view name = rest.substr(1, equals - 1);
    for (const std::string_view other : names)
      if (name == other) return false;
    names.push_back(name);
    const std::size_t close = rest.find('"', equals + 2);
    if (name.empty() || close == std::string_view::npos) return false;
    rest.remove_prefix(close + 1);
  }
  return true;
}

/// The XML subset of pictures: one root, properly nested tags, quoted attributes, known entities.
bool is_well_formed(std::string_view text) {
  std::vector<std::string_view> open;
  std::size_t roots = 0;
  if (!entities_are_known(text)) return false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '<') {
      if (text[at] == '>' || (open.empty() && text[at] != '\n')) return false;
      ++at;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return false;
    std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string_view::npos) return false;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
      continue;
    }
    const bool closes = tag.ends_with('/');
    if (closes) tag.remove_suffix(1);
    const std::string_view name = tag.substr(0, tag.find(' '));
    if (!attributes_are_right(tag.substr(name.size()))) return false;
    if (open.empty() && ++roots > 1) return false;
    if (!closes) open.push_back(name);
  }
  return open.empty() && roots == 1;
}

std::string refusal(const pipeline_timeline& timeline, const paint_options& options = {}) {
  try {
    (void)paint_timeline(timeline, options);
  } catch (const config_error& problem) {
    return problem.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("the test's reader of XML sees what is wrong") {
  CHECK(is_well_formed("<a b=\"1\"><c/>x &amp; y</a>\n"));
  for (const std::string_view wrong : {"", "<a>", "<a></b>", "<a/><a/>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>", "<a>&x;</a>",
                                       "x<a/>", "<a>></a>", "<a b=\"<\"/>"})
    CHECK_FALSE(is_well_formed(wrong));
}

TEST_CASE("pictures of simulated steps are well-formed, with a bar for every action that takes time") {
  for (std::size_t ranks = 1; ranks <= 8; ++ranks)
    for (std::size_t chunks = 1; chunks <= 4; ++chunks)
      for (const pipeline_schedule& schedule : {zero_bubble_schedule(ranks, std::vector<std::size_t>(13, 1)),
                                                interleaved_schedule(ranks, chunks, std::vector<std::size_t>(2 * ranks, 1))}) {
        const pipeline_timeline timeline = simulate_schedule(schedule, costs);
        const std::string picture = paint_timeline(timeline, {.title = schedule.name, .unit = " ms"});
        REQUIRE(is_well_formed(picture));
        std::size_t bars = 0;
        for (const auto& rank : timeline.ranks)
          for (const timed_action& timed : rank) bars += timed.end > timed.start ? 1 : 0;
        const std::size_t kinds = schedule.name == "zero_bubble" ? 4 : 3;  // the legend's, and the background
        REQUIRE(count(picture, "<rect") == bars + kinds * schedule.chunks + 1);
        REQUIRE(count(picture, ">rank ") == ranks);
      }
}

TEST_CASE("a measured step is painted as it was measured, in whatever order it is told") {
  const pipeline_timeline measured{{{{{action_kind::backward, 0}, 0.75, 1.5}, {{action_kind::forward, 0}, 0.25, 0.5}}, {}}};
  const std::string picture = paint_timeline(measured, {.unit = " s", .width = 230});  // 150 pixels for 1.5 seconds
  CHECK(is_well_formed(picture));
  CHECK(count(picture, "<rect x=\"89\" y=\"10\" width=\"25\"") == 1);
  CHECK(count(picture, "<rect x=\"139\" y=\"10\" width=\"75\"") == 1);
  CHECK(count(picture, ">1.4 s<") == 1);
  CHECK(count(picture, ">rank 1<") == 1);
}

TEST_CASE("titles and units are text, whatever they hold") {
  const pipeline_timeline timeline = simulate_schedule(zero_bubble_schedule(2, {1, 1}), costs);
  const std::string picture = paint_timeline(timeline, {.title = "<script>\"1\" & '2'\n\x01", .unit = "<&>"});
  CHECK(is_well_formed(picture));
  CHECK(count(picture, "&lt;script&gt;&quot;1&quot; &amp; '2'  <") == 1);
  CHECK(count(picture, "\x01") == 0);
}

TEST_CASE("a picture of nothing is one, too") {
  CHECK(is_well_formed(paint_timeline({})));
  CHECK(is_well_formed(paint_timeline({{{}, {}}})));
  CHECK(is_well_formed(paint_timeline({{{{{action_kind::forward, 0}, 0, 0}}}})));
}

TEST_CASE("a step too short to be divided has no marks") {
  CHECK(is_well_formed(paint_timeline({{{{{action_kind::forward, 0}, 0, std::numeric_limits<double>::denorm_min()}}}})));
}

TEST_CASE("very short and very long steps have about ten marks") {
  for (const double length : {1e-300, 1e-9, 0.003, 1.0, 7.0, 99.0, 12345.0, 1e18, 1e300}) {
    CAPTURE(length);
    const std::string picture = paint_timeline({{{{{action_kind::forward, 0}, 0, length}}}});
    CHECK(is_well_formed(picture));
    CHECK(count(picture, "<path") >= 5);
    CHECK(count(picture, "<path") <= 14);
  }
}

TEST_CASE("times that are none are refused with their action") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  CHECK(
      refusal({{{}, {{{action_kind::forward, 3}, 2, 1}}}}) ==
      "paint_timeline: an action must start at 0 or later and end after that; given rank 1, action 0: forward of micro-batch 3 on chunk 0, from 2 to 1");
  for (const auto& [start, end] : {std::pair(nan, 1.0), std::pair(0.0, nan), std::pair(-1.0, 1.0), std::pair(0.0, infinity)})
    CHECK(refusal({{{{{action_kind::forward, 0}, start, end}}}}).find("must start at 0 or later") != std::string::npos);
  CHECK(refusal({}, {.width = nan}).find("the width must be from 200") != std::string::npos);
  CHECK(refusal({}, {.width = 1e9}).find("the width must be from 200") != std::string::npos);
}
