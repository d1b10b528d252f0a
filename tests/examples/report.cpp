// The example `report`, run as on a command line.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <xtrain/core/text.hpp>

#include "program.hpp"
#include "scratch.hpp"

namespace {

program_result report(std::vector<std::string> flags) {
  flags.insert(flags.begin(), EXAMPLES "/report");
  return run_program(std::move(flags));
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::string a_log(std::size_t steps) {
  std::string text = "{\"event\": \"run\", \"max_steps\": 9, \"first_step\": 0}\n";
  for (std::size_t s = 1; s <= steps; ++s)
    text += xtrain::concat("{\"event\": \"step\", \"step\": ", s, ", \"loss\": ", 5.0 - 0.5 * static_cast<double>(s), "}\n");
  return text;
}
void refuses(const std::vector<std::string>& flags, const std::string& words, int status) {
  const auto result = report(flags);
  CAPTURE(result.err);
  CHECK(result.status == status);
  CHECK(holds(result.err, words));
}

}  // namespace

TEST_CASE("a page about one run, and one about two") {
  const scratch_folder f;
  put_file(f / "a.jsonl", a_log(3));
  put_file(f / "b.jsonl", a_log(5) + "{\"event\": \"step\", \"st");
  const auto one = report({f / "a.jsonl", "--output", f / "a.html"});
  CAPTURE(one.err);
  REQUIRE(one.status == 0);
  CHECK(one.out == "wrote " + f / "a.html" + ": 1 run\n");
  CHECK(one.err.empty());
  CHECK(holds(get_file(f / "a.html"), "<title>Training report: a</title>"));

  const auto both = report({f / "a.jsonl", f / "b.jsonl", "--output", f / "both.html", "--title", "A <b> & B"});
  REQUIRE(both.status == 0);
  CHECK(holds(both.err, "warning: " + f / "b.jsonl" + ": line 7: cut off, as by the end of a killed run"));
  const std::string page = get_file(f / "both.html");
  CHECK(holds(page, "<title>A &lt;b&gt; &amp; B</title>"));
  CHECK(holds(page, "line 7: cut off"));
  CHECK(f.files() == std::vector<std::string>{"a.html", "a.jsonl", "b.jsonl", "both.html"});  // no temporary file is left
}

TEST_CASE("a page that cannot be written, or of what is no log, is refused, and an older page stays") {
  const scratch_folder f;
  put_file(f / "a.jsonl", a_log(3));
  put_file(f / "empty.jsonl", "");
  put_file(f / "old.html", "old");
  refuses({}, "logs", 2);
  refuses({f / "a.jsonl", "--outptu", "x"}, "did you mean '--output'?", 2);
  refuses({f / "a.jsonl", "--output", f / "a.jsonl"}, "must not be one of the logs", 2);
  std::vector<std::string> many(65, f / "a.jsonl");
  refuses(many, "must be at most 64; given 65", 2);
  refuses({f / "none.jsonl", "--output", f / "old.html"}, "none.jsonl: must be a readable file", 1);
  refuses({f / "a.jsonl", f / "empty.jsonl", "--output", f / "old.html"}, "empty.jsonl: must be the log of a run, an event per line; it is empty", 1);
  refuses({f / "old.html", "--output", f / "x.html"}, "old.html: must be the log of a run, an event per line; line 1: cut off", 1);
  refuses({f / "a.jsonl", "--output", f / "no/page.html"}, "no/page.html", 1);
  CHECK(get_file(f / "old.html") == "old");
  CHECK(get_file(f / "a.jsonl") == a_log(3));
  CHECK(f.files() == std::vector<std::string>{"a.jsonl", "empty.jsonl", "old.html"});
}
