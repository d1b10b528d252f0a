// The report page: one file, escaped, small for long runs, complete without a script.
#include <doctest/doctest.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/report_page.hpp>
#include <xtrain/report/run_log.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

run_log made(const std::string& path, std::size_t steps, double rate) {
  run_log run;
  run.path = path;
  run.lines = steps;
  for (std::size_t s = 1; s <= steps; ++s) {
    run.curves["loss"].add(s, 2 + 3 * std::exp(-rate * static_cast<double>(s)) + 0.1 * std::sin(static_cast<double>(s)));
    run.curves["lr"].add(s, rate * static_cast<double>(s));
    run.curves["grad_norm"].add(s, s == 77 ? 1e6 : 1.0);
    run.curves["tokens_per_second"].add(s, 1000);
    run.tokens_per_second.add(1000);
  }
  run.held_out.add(steps, 2.5);
  run.last_step = run.max_steps = steps;
  run.seconds = 61;
  run.has_end = true;
  run.peak_memory = std::size_t{3} << 30;
  run.planned = {1 << 20, 1 << 19};
  run.ranks[0] = {2, 0.5, 0.25, 100, 4096};
  run.ranks[1] = {2, 0.5, 0.125, 100, 4096};
  run.parts = {{1, 0, 1800000000}, {50, 40, 1800003600}};
  run.settings = {{"recipe.precision", "fp32"}, {"recipe.objective", "next_token"}, {"settings.learning_rate", concat(rate)}};
  return run;
}

/// Opened elements close in order.
void check_nesting(const std::string& page) {
  std::vector<std::string> open;
  std::string without = page;
  for (const char* name : {"style", "script"})
    if (const std::size_t begin = without.find(concat("<", name)); begin != std::string::npos) {
      const std::size_t inner = without.find('>', begin) + 1, end = without.find(concat("</", name, ">"), inner);
      without.erase(inner, end - inner);
    }
  for (std::size_t at = without.find('<'); at != std::string::npos; at = without.find('<', at + 1)) {
    const std::size_t end = without.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = without.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '!' || tag.ends_with('/') || name == "meta" || name == "input" || name == "wbr") continue;
    if (tag[0] != '/') {
      open.push_back(name);
      continue;
    }
    CAPTURE(without.substr(at > 200 ? at - 200 : 0, 260));
    REQUIRE(!open.empty());
    REQUIRE(tag.substr(1) == open.back());
    open.pop_back();
  }
  CHECK(open.empty());
}

}  // namespace

TEST_CASE("a page is one file without addresses, with every part of it, for one run and for several") {
  const std::vector<run_log> runs{made("a/run.jsonl", 200, 0.01), made("b/run.jsonl", 300, 0.03)};
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}}) {
    const std::string page = report_page(std::span(runs).first(count), {.title = "Two rates"});
    CAPTURE(count);
    check_nesting(page);
    for (const char* word : {"http:", "https:", "//", "src=\"", "url(", "@import", "<link", "NaN", "nan%", "inf%", "infinity"}) {
      CAPTURE(word);
      CHECK_FALSE(holds(page, word));
    }
    for (const char* part :
         {"<title>Two rates</title>", ">Loss<", ">Learning rate<", ">Gradient norm<", ">Throughput<", ">Memory<", ">Ranks<", ">Step time of ranks<",
          "prefers-color-scheme:dark", "width=device-width", "held-out", "3.00 GiB", "1 min 1 s", "class=\"resumed", "2027-01-15"}) {
      CAPTURE(part);
      CHECK(holds(page, part) == (std::string_view(part) != ">Step time of ranks<"));  // made() has none
    }
    CHECK(count_of(page, "<script") == 1);
    CHECK(count_of(page, "<svg") == 6);  // loss and gradient norm twice: linear, logarithmic
  }
  const std::string page = report_page(runs);
  CHECK(holds(page, ">a/run<"));
  CHECK(holds(page, ">b/run<"));
  CHECK(holds(page, "<tr class=\"differs\"><th scope=\"row\"><code>settings.<wbr>learning_<wbr>rate</code>"));
  CHECK_FALSE(holds(page, "<tr class=\"differs\"><th scope=\"row\"><code>recipe.<wbr>precision"));
  CHECK_FALSE(holds(page, "Read this first"));
  CHECK(report_page(runs) == page);
}

TEST_CASE("no text of a log becomes markup") {
  const std::string evil = "</script><script>alert(1)</script>'\"&<img src=x onerror=alert(2)>";
  run_log run = made("/tmp/" + evil + ".jsonl", 30, 0.01);
  run.curves[evil].add(1, 1.0);
  run.settings.emplace_back("settings." + evil, evil);
  run.settings.emplace_back(evil + ".x", evil);
  run.settings.emplace_back("recipe.objective", evil);
  run.skips.push_back({3, evil});
  run.skipped = 1;
  run.changes.push_back(evil);
  run.problems.push_back({2, evil});
  run.problem_count = 1;
  run_log other = run;
  other.path = "/tmp/other" + evil;
  for (const std::vector<run_log>& runs : {std::vector<run_log>{run}, std::vector<run_log>{run, other}}) {
    const std::string page = report_page(runs, {.title = evil});
    check_nesting(page);
    CHECK(count_of(page, "<script") == 1);
    CHECK(count_of(page, "</script>") == 1);
    CHECK_FALSE(holds(page, "<img"));
    CHECK_FALSE(holds(page, "alert(1)</"));
    CHECK(holds(page, "&lt;script&gt;alert(1)&lt;/script&gt;&#39;&quot;&amp;&lt;img"));
  }
}

TEST_CASE("text is valid UTF-8 without control characters, and not longer than asked") {
  CHECK(detail::escaped("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(detail::printable("h\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80") == "h\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(detail::printable("\xFF") == bad);
  CHECK(detail::printable("\xC3") == bad);
  CHECK(detail::printable("\xC0\xAF") == bad + bad);                  // overlong
  CHECK(detail::printable("\xED\xA0\x80") == bad + bad + bad);        // a surrogate
  CHECK(detail::printable("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // beyond U+10FFFF
  CHECK(detail::printable(std::string("a\0\x1B\x7F\n\xC2\x85z", 8)) == "a" + bad + bad + bad + " " + bad + "z");
  CHECK(detail::printable("abcdef", 3) == "abc\xE2\x80\xA6");
}

TEST_CASE("names are as short as they can be told apart") {
  const auto names = [](std::vector<std::string> paths) { return short_run_names(paths); };
  using texts = std::vector<std::string>;
  CHECK(names({"/x/run.jsonl"}) == texts{"run"});
  CHECK(names({"a/run.jsonl", "b/run.jsonl", "c.json"}) == texts{"a/run", "b/run", "c"});
  CHECK(names({"run.jsonl", "a/run.jsonl"}) == texts{"run", "a/run"});
  CHECK(names({"x/a", "x/a"}) == texts{"x/a", "x/a (2)"});
  CHECK(names({".jsonl"}) == texts{".jsonl"});
}

TEST_CASE("long runs and many of them make a page of a few megabytes") {
  CHECK(report_page(std::vector<run_log>{made("long.jsonl", 300000, 1e-5)}).size() < 1000000);
  std::vector<run_log> many;
  for (std::size_t r = 0; r < max_report_runs; ++r) many.push_back(made(concat("run-", r), 2000, 1e-3));
  CHECK(report_page(many).size() < 4000000);
  many.push_back(many.front());
  CHECK_THROWS_WITH_AS((void)report_page(many), doctest::Contains("must be of 1 to 64 runs; given 65"), config_error);
  CHECK_THROWS_AS((void)report_page({}), config_error);
}

TEST_CASE("runs of odd numbers are drawn: none, one step, equal, huge, tiny and negative ones") {
  run_log none;
  none.path = "none";
  CHECK(holds(report_page(std::span(&none, 1)), "No step is recorded yet"));
  for (const std::vector<double>& values :
       {std::vector<double>{1.0}, {0.0, 0.0}, {3.0, 3.0, 3.0}, {1e300, -1e300}, {5e-324, 1e300}, {-1e-300, 1e-300}, {1e15, 1e15 + 1}, {-5.0, -4.0}}) {
    run_log run;
    run.path = "run";
    for (std::size_t i = 0; i < values.size(); ++i)
      for (const char* key : {"loss", "lr", "grad_norm", "mfu", "loss_scale", "other"}) run.curves[key].add(i + 1, values[i]);
    run.last_step = values.size();
    const std::string page = report_page(std::span(&run, 1));
    CAPTURE(values.front());
    check_nesting(page);
    const std::size_t begin = page.find("<body>");
    for (const char* word : {"nan", "-nan", "NaN", "inf%", ">inf", "e+30%"}) CHECK(page.find(word, begin) == std::string::npos);
    CHECK(page.size() < 100000);
  }
  run_log late;  // its steps begin far from 0
  late.path = "late";
  for (std::size_t s = 0; s < 10; ++s) late.curves["loss"].add((std::size_t{1} << 53) - 10 + s, 1.0 + static_cast<double>(s));
  late.last_step = std::size_t{1} << 53;
  check_nesting(report_page(std::span(&late, 1)));
}

TEST_CASE("runs that cannot be compared are told so") {
  std::vector<run_log> runs{made("a", 30, 0.1), made("b", 30, 0.1)};
  runs[1].settings = {{"recipe.objective", "dpo"}, {"model.vocab_size", "10"}};
  const std::string page = report_page(runs);
  CHECK(holds(page, "different objectives"));
  CHECK(count_of(page, "class=\"best\"") == 2);  // tokens per second, equal in both; no loss
  runs[1].settings.clear();
  CHECK(holds(report_page(runs), "not recorded in the log of <span class=\"name\">b</span>"));
}
