// Logs of runs, read back: curves, resumed runs, settings, damaged files.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/report/run_log.hpp>
#include <xtrain/report/step_bins.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/json_lines.hpp>

#include "scratch.hpp"

using namespace xtrain;

namespace {

std::string step_line(std::size_t step, double loss) {
  return concat("{\"event\": \"step\", \"step\": ", step, ", \"loss\": ", loss,
                ", \"lr\": 0.001, \"grad_norm\": 1.5, \"tokens\": 100, \"tokens_per_second\": 200, ",
                "\"seconds\": 0.5, \"loss_scale\": 1, \"peak_memory\": 4096}\n");
}
run_log read_text(const std::string& text) {
  const scratch_folder folder;
  put_file(folder / "run.jsonl", text);
  return read_run_log(folder / "run.jsonl");
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::vector<double> losses(const run_log& run) {
  std::vector<double> all;
  if (const run_curve* loss = run.curve("loss"))
    for (const step_bin& bin : loss->bins.bins()) all.push_back(bin.mean);
  return all;
}
/// The problem of a log whose second line is `line`; its other lines must be read.
std::string problem_of(const std::string& line) {
  const run_log run = read_text(step_line(1, 3) + line + "\n" + step_line(9, 2));
  CAPTURE(line);
  CHECK(losses(run) == std::vector<double>{3, 2});
  REQUIRE(run.problem_count == 1);
  CHECK(run.problems.front().line == 2);
  return run.problems.front().text;
}

}  // namespace

TEST_CASE("what a record has written is read back") {
  const scratch_folder folder;
  {
    json_lines_record record(folder / "run.jsonl", 1e3);
    record.describe(R"({"recipe": {"precision": "fp32"}, "settings": {"learning_rate": 0.003, "betas": [0.9, 0.999]}, "plan": {"weights": 100, "batch": 7}})");
    memory_count memory;
    memory.now = {100, 50};
    memory.peak = {100, 60};
    memory.total_peak = 160;
    record.on(run_began{.max_steps = 4, .parameters = 12, .trained = 10, .sequences_per_step = 8, .seq_length = 16, .memory = memory});
    const std::array<std::string_view, 1> names{"rewards/margins"};
    for (std::size_t step = 1; step <= 3; ++step)
      record.on(step_done{.step = step, .loss = 4.0 - static_cast<double>(step), .learning_rate = 1e-3, .gradient_norm = 2, .tokens = 50, .seconds = 0.25,
                          .operations = 100, .statistics = {0.5, 0, 0, 0}, .statistic_names = names, .peak_memory = 150});
    for (std::size_t rank = 0; rank < 2; ++rank)
      record.on(
          rank_measured{.step = 3, .rank = rank, .ranks = 2, .seconds = 0.5, .waiting = 0.125 * static_cast<double>(rank), .tokens = 25, .peak_memory = 155});
    record.on(evaluation_done{.step = 3, .loss = 1.5, .perplexity = 4.5, .targets = 9, .seconds = 2});
    record.on(checkpoint_written{.step = 3, .seconds = 0.75, .writers = 1});
    record.on(step_skipped{.step = 4, .reason = "gradient of \"w\"", .in_a_row = 1});
    record.on(run_ended{.step = 4, .steps = 4, .seconds = 3, .skipped = 1, .memory = memory});
  }
  const run_log run = read_run_log(folder / "run.jsonl");
  CHECK(run.problem_count == 0);
  CHECK(losses(run) == std::vector<double>{3, 2, 1});
  REQUIRE(run.curve("rewards/margins") != nullptr);
  CHECK(run.curve("rewards/margins")->last.value == 0.5);
  CHECK(run.curve("mfu")->last.value == doctest::Approx(0.4));
  CHECK(run.tokens_per_second.median() == 200);
  CHECK(run.tokens == 150);
  CHECK(run.seconds == 0.75);
  CHECK(run.last_step == 4);
  CHECK(run.max_steps == 4);
  CHECK(run.parameters == 12);
  CHECK(run.trainable_parameters == 10);
  CHECK(run.global_batch_size == 8);
  CHECK(run.held_out.least.step == 3);
  CHECK(run.held_out.least.value == 1.5);
  CHECK(run.checkpoints == 1);
  CHECK(run.checkpoint_seconds == 0.75);
  CHECK(run.skipped == 1);
  REQUIRE(run.skips.size() == 1);
  CHECK(run.skips[0].text == "gradient of \"w\"");
  CHECK(run.has_end);
  CHECK_FALSE(run.stopped);
  CHECK(run.peak_memory == 160);
  CHECK(run.planned[0] == 100);
  CHECK(run.planned[static_cast<std::size_t>(memory_role::batch)] == 7);
  CHECK(run.allocated[1] == 50);
  CHECK(run.peak[1] == 60);
  REQUIRE(run.ranks.size() == 2);
  CHECK(run.ranks.at(1).waiting == 0.125);
  CHECK(run.setting("recipe.precision") == "fp32");
  CHECK(run.setting("settings.learning_rate") == "0.003");
  CHECK(run.setting("settings.betas") == "[0.9,0.999]");
  REQUIRE(run.parts.size() == 1);
  CHECK(run.parts[0].unix_time > 1'700'000'000);
}

TEST_CASE("what describes a run must be an object in one line") {
  const scratch_folder folder;
  json_lines_record record(folder / "run.jsonl");
  for (const char* text : {"", "{}", "x", "[1]", "{\"a\":\n1}"}) CHECK_THROWS_AS(record.describe(text), config_error);
}

TEST_CASE("a record goes on in a new line after one that was cut off") {
  const scratch_folder folder;
  put_file(folder / "run.jsonl", step_line(1, 3) + "{\"event\": \"step\", \"st");
  {
    json_lines_record record(folder / "run.jsonl");
    record.on(run_began{.first_step = 1, .max_steps = 2});
    record.on(step_done{.step = 2, .loss = 2});
  }
  const run_log run = read_run_log(folder / "run.jsonl");
  CHECK(losses(run) == std::vector<double>{3, 2});
  REQUIRE(run.problem_count == 1);
  CHECK(run.problems.front().line == 2);
}

TEST_CASE("of a step that is there more than once the last one counts") {
  const auto began = [](std::size_t first) { return concat("{\"event\": \"run\", \"max_steps\": 9, \"first_step\": ", first, "}\n"); };
  const auto evaluated = [](std::size_t step, double loss) { return concat("{\"event\": \"evaluation\", \"step\": ", step, ", \"loss\": ", loss, "}\n"); };

  std::string text = began(0);  // resumed after step 2 of a run that had reached step 4
  for (std::size_t s = 1; s <= 4; ++s) text += step_line(s, 10 + static_cast<double>(s));
  text += evaluated(2, 0.5) + evaluated(4, 0.25) + began(2) + step_line(3, 3) + step_line(4, 4) + step_line(5, 5) + evaluated(5, 0.75);
  run_log run = read_text(text);
  CHECK(losses(run) == std::vector<double>{11, 12, 3, 4, 5});
  CHECK(run.seconds == 2.5);
  CHECK(run.held_out.count == 2);
  CHECK(run.held_out.least.value == 0.5);  // step 4's value belongs to discarded steps
  CHECK(run.replaced == 3);
  REQUIRE(run.parts.size() == 2);
  CHECK(run.parts[1].first_step == 2);
  CHECK(run.parts[1].line == 8);

  // resumed twice, the second time from further back
  text = began(0) + step_line(1, 1) + step_line(2, 2) + step_line(3, 3) + began(2) + step_line(3, 30) + step_line(4, 40) + began(1) + step_line(2, 200);
  run = read_text(text);
  CHECK(losses(run) == std::vector<double>{1, 200});
  CHECK(run.parts.size() == 2);

  // the beginning of the second part is missing
  run = read_text(began(0) + step_line(1, 1) + step_line(2, 2) + step_line(3, 3) + evaluated(3, 0.1) + step_line(2, 20));
  CHECK(losses(run) == std::vector<double>{1, 20});
  CHECK(run.held_out.count == 0);

  // another run in the same file
  run = read_text(began(0) + "no line of a log\n" + step_line(1, 1) + step_line(2, 2) + began(0) + step_line(1, 7));
  CHECK(losses(run) == std::vector<double>{7});
  CHECK(run.replaced == 4);
  CHECK(run.problem_count == 0);
}

TEST_CASE("settings that were others in an earlier part of a run are told") {
  const auto began = [](std::size_t first, const char* rate) {
    return concat("{\"event\": \"run\", \"first_step\": ", first, "}\n{\"event\": \"settings\", \"settings\": {\"learning_rate\": ", rate, "}}\n");
  };
  const run_log run = read_text(began(0, "0.1") + step_line(1, 1) + began(1, "0.2") + step_line(2, 2));
  CHECK(run.setting("settings.learning_rate") == "0.2");
  REQUIRE(run.changes.size() == 1);
  CHECK(holds(run.changes[0], "settings.learning_rate was 0.1 in the part that began after step 0; at the end it is 0.2"));
}

TEST_CASE("a file that is no log of a run is refused, with its name and line") {
  const scratch_folder folder;
  CHECK_THROWS_WITH_AS((void)read_run_log(folder / "none.jsonl"), doctest::Contains("none.jsonl: must be a readable file"), file_error);
  CHECK_THROWS_AS((void)read_run_log(folder.path()), file_error);
  const auto refuses = [&](const std::string& text, const char* words) {
    put_file(folder / "x.jsonl", text);
    CHECK_THROWS_WITH_AS((void)read_run_log(folder / "x.jsonl"), doctest::Contains(words), file_error);
  };
  refuses("", "x.jsonl: must be the log of a run, an event per line; it is empty");
  refuses("\n\n", "x.jsonl");
  refuses("{\"text\": \"a data set\"}\n", "line 1: 'event' must be there");
  refuses("{\"event\": \"else\"}\n", "line 1: no event");
  refuses(std::string("\x7F" "ELF\0\1\2\xFF\xFE\n\0\0\n", 13), "line 1: must be a JSON object");
  refuses(std::string(3 << 20, 'x'), "line 1: must be at most 1048576 bytes long; it has 3145728");
}

TEST_CASE("lines that cannot be used are left out and told, and the others are read") {
  CHECK(holds(problem_of("{\"event\": \"step\", \"step\": 2, \"loss\": NaN}"), "must be a JSON object"));
  CHECK(holds(problem_of("{\"event\": \"step\", \"step\": 2, \"loss\": 1e999}"), "must be a JSON object"));
  CHECK(problem_of("{\"event\": \"step\", \"step\": 2, \"loss\": \"two\"}") == "'loss' must be a number or null; given 'two'");
  CHECK(problem_of("{\"event\": \"step\", \"step\": 2, \"loss\": true}") == "'loss' must be a number or null; given something else");
  CHECK(problem_of("{\"event\": \"step\", \"step\": 2}") == "'loss' must be there");
  CHECK(problem_of("{\"event\": \"step\", \"step\": -2, \"loss\": 1}") == "'step' must be a whole number from 0 to 2^53; given -2");
  CHECK(problem_of("{\"event\": \"step\", \"step\": 2.5, \"loss\": 1}") == "'step' must be a whole number from 0 to 2^53; given 2.5");
  CHECK(holds(problem_of("{\"event\": \"step\", \"step\": 18446744073709551615, \"loss\": 1}"), "'step' must be a whole number"));
  CHECK(problem_of("{\"event\": \"step\", \"step\": 2, \"loss\": 1, \"seconds\": -1}") == "'seconds' must be non-negative; given -1");
  CHECK(problem_of("{\"event\": \"step\", \"step\": 0, \"loss\": 1}") == "'step' must be positive");
  CHECK(holds(problem_of("{\"event\": \"step\", \"step\": 2, \"step\": 3, \"loss\": 1}"), "key 'step' occurs twice"));
  CHECK(problem_of("{\"event\": 7}") == "'event' must be the name of an event; given 7");
  CHECK(holds(problem_of("[1, 2]"), "must be a JSON object; it is a list"));
  CHECK(holds(problem_of("3"), "must be a JSON object; it is a single value"));
  CHECK(holds(problem_of(std::string("{\"event\": \"step\"\0}", 18)), "a zero byte"));
  CHECK(holds(problem_of("{\"a\": " + std::string(100000, '[')), "nested deeper than 128"));
  CHECK(holds(problem_of("{\"event\": \"rank\", \"step\": 2, \"rank\": 99999999, \"seconds\": 1}"), "'rank' must be below 65536"));
  CHECK(holds(problem_of("{\"event\": \"end\", \"step\": 2, \"memory\": {\"weights\": -1}}"), "'memory.weights' must be a whole number"));
  CHECK(holds(problem_of("{\"event\": \"run\", \"first_step\": \"0\"}"), "'first_step' must be a whole number"));
  CHECK(holds(problem_of("{\"event\": \"step\", \"step\": 2, \"lo{\"event\": \"checkpoint\", \"step\": 1, \"seconds\": 1}"), "cut off before byte"));
  CHECK(holds(problem_of("\xFF\xFE{\"event\": \"step\", \"step\": 1"), "must be a JSON object"));

  // a killed run: only the last line is cut
  const run_log killed = read_text(step_line(1, 3) + step_line(2, 2).substr(0, 40));
  CHECK(losses(killed) == std::vector<double>{3});
  REQUIRE(killed.problem_count == 1);
  CHECK(holds(killed.problems.front().text, "cut off, as by the end of a killed run"));
  // only its end of line is missing
  const std::string line = step_line(2, 2);
  CHECK(losses(read_text(step_line(1, 3) + line.substr(0, line.size() - 1))) == std::vector<double>{3, 2});
  CHECK(losses(read_text(step_line(1, 3) + "\r\n\n" + step_line(2, 2))) == std::vector<double>{3, 2});

  std::string many = step_line(1, 3);
  for (int i = 0; i < 100; ++i) many += "junk\n";
  const run_log noted = read_text(many);
  CHECK(noted.problem_count == 100);
  CHECK(noted.problems.size() == run_log::max_problems);
  CHECK(noted.problems.front().line == 2);  // the first ones
}

TEST_CASE("numbers that are not finite, or too large, are counted and left out") {
  const run_log run =
      read_text(step_line(1, 3) + "{\"event\": \"step\", \"step\": 2, \"loss\": null, \"grad_norm\": 1e305, \"other\": \"text\"}\n" + step_line(3, 2));
  CHECK(losses(run) == std::vector<double>{3, 2});
  CHECK(run.curves.at("loss").not_finite == 1);
  CHECK(run.curves.at("grad_norm").not_finite == 1);
  CHECK(run.last_step == 3);
  REQUIRE(run.problem_count == 1);
  CHECK(holds(run.problems.front().text, "'other' is no number and is left out"));
}

TEST_CASE("bins keep the least and the greatest of a long run, in little memory, whatever the order") {
  step_bins up, down;
  constexpr std::size_t steps = 300000;
  const auto value = [](std::size_t step) { return step == 123456 ? 99.0 : std::sin(static_cast<double>(step) * 1e-4); };
  double sum = 0;
  for (std::size_t s = 1; s <= steps; ++s) {
    up.add(s, value(s));
    down.add(steps + 1 - s, value(steps + 1 - s));
    sum += value(s);
  }
  for (const step_bins* bins : {&up, &down})
    for (const std::size_t most : {std::size_t{1024}, std::size_t{600}, std::size_t{7}, std::size_t{1}}) {
      const auto all = bins->bins(most);
      CAPTURE(most);
      CHECK(all.size() <= most + 1);
      CHECK(all.size() * 3 >= most);
      std::size_t count = 0;
      double found = 0, high = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        count += all[i].count;
        found += all[i].mean * static_cast<double>(all[i].count);
        high = std::max(high, all[i].high);
        if (i > 0) CHECK(all[i - 1].last < all[i].first);
        CHECK(all[i].low <= all[i].mean);
        CHECK(all[i].mean <= all[i].high);
      }
      CHECK(count == steps);
      CHECK(high == 99.0);
      CHECK(found == doctest::Approx(sum).epsilon(1e-9));  // 3e5 updates of means, each rounded by 2^-53, values about 1
      CHECK(all.front().first == 1);
      CHECK(all.back().last == steps);
    }
  step_bins wide;  // recorded from step 2^50 on, and a stray step
  for (std::size_t s = 0; s < 100; ++s) wide.add((std::size_t{1} << 50) + s, 1.0);
  CHECK(wide.bins().size() == 100);
  wide.add(1, 5.0);
  wide.add(step_bins::max_step, 5.0);
  CHECK(wide.bins().size() == 3);
}

TEST_CASE("smoothing begins at the first number, and forgets with its time constant") {
  std::vector<step_bin> bins;
  for (std::size_t s = 1; s <= 50; ++s) bins.push_back({s, s, 1, 0, 0, s <= 10 ? 1.0 : 0.0});
  const auto points = smoothed(bins, 5);
  REQUIRE(points.size() == 50);
  for (std::size_t i = 0; i < 10; ++i) CHECK(points[i].value == doctest::Approx(1));
  CHECK(points[14].value == doctest::Approx(std::exp(-1.0) * (1 - std::exp(-2.0)) / (1 - std::exp(-3.0))));  // e^-(5/5), of weights whose sum is still below 1
  CHECK(smoothed(bins, 0)[9].value == 1);
  CHECK(smoothed(bins, 0)[10].value == 0);
}

TEST_CASE("medians are exact, and within 0.2 % for more numbers than are kept") {
  running_median few;
  CHECK(few.empty());
  for (const double value : {5.0, 1.0, 4.0}) few.add(value);
  CHECK(few.median() == 4);
  few.add(2);
  CHECK(few.median() == 3);
  running_median many;
  for (std::size_t i = 1; i <= 200001; ++i) many.add(static_cast<double>(i * 7919 % 200003));  // 1 to 200002 without one number
  CHECK(many.median() == doctest::Approx(100001).epsilon(0.002));
}
