#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/train/history.hpp>
#include <xtrain/train/json_lines.hpp>
#include <xtrain/train/memory_statistics.hpp>
#include <xtrain/train/progress_bar.hpp>
#include <xtrain/train/tensorboard.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

const step_done a_step{.step = 3,
                       .steps = 10,
                       .epoch = 0.5,
                       .loss = 2.5,
                       .learning_rate = 1e-3,
                       .gradient_norm = 0.25,
                       .tokens = 100,
                       .targets = 90,
                       .seconds = 0.5,
                       .operations = 1e9,
                       .peak_memory = 4096};

struct event {
  std::uint64_t step = 0;
  std::string tag;
  float value = 0;
};

/// Reads an event file and verifies checksums, independently of the writer.
std::vector<event> read_events(const std::string& contents) {
  std::vector<event> events;
  const auto at = [&]<class T>(std::size_t place, T) {
    T value;
    std::memcpy(&value, contents.data() + place, sizeof value);
    return value;
  };
  for (std::size_t place = 0; place < contents.size();) {
    const auto length = at(place, std::uint64_t{});
    REQUIRE(at(place + 8, std::uint32_t{}) == detail::masked_crc32c(std::string_view(contents).substr(place, 8)));
    const std::string_view data = std::string_view(contents).substr(place + 12, length);
    REQUIRE(at(place + 12 + length, std::uint32_t{}) == detail::masked_crc32c(data));
    place += 16 + length;
    event found;
    const auto read = [&](auto&& self, std::string_view message, int level) -> void {
      for (std::size_t i = 0; i < message.size();) {
        const auto varint = [&] {
          std::uint64_t value = 0;
          for (unsigned shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(message[i++]);
            value |= std::uint64_t{byte & 0x7FU} << shift;
            if ((byte & 0x80U) == 0) return value;
          }
        };
        const std::uint64_t key = varint();
        const std::uint64_t field = key >> 3, kind = key & 7;
        if (kind == 0) {
          const std::uint64_t value = varint();
          if (level == 0 && field == 2) found.step = value;
        } else if (kind == 1) i += 8;
        else if (kind == 5) {
          if (level == 2 && field == 2) std::memcpy(&found.value, message.data() + i, 4);
          i += 4;
        } else {
          const std::uint64_t size = varint();
          const std::string_view inner = message.substr(i, size);
          i += size;
          if (level == 2 && field == 1) found.tag = inner;
          else if ((level == 0 && field == 5) || (level == 1 && field == 1)) self(self, inner, level + 1);
        }
      }
    };
    read(read, data, 0);
    events.push_back(found);
  }
  return events;
}

}  // namespace

TEST_CASE("checksums are CRC-32C") {
  CHECK(detail::crc32c("123456789") == 0xE3069283U);  // the polynomial's published check value
  CHECK(detail::crc32c("") == 0);
}

TEST_CASE("event files of others are read, checksums and all: the reader above is right") {
  const std::string folder = test_data("formats/tfevents/strict");
  if (folder.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  std::size_t events = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename().string().find("tfevents") != std::string::npos)
      events += read_events(get_file(entry.path().string())).size();
  CHECK(events > 10);
}

TEST_CASE("TensorBoard finds the curves of a run") {
  const scratch_folder folder;
  {
    tensorboard_record record(folder.path());
    record.on(a_step);
    record.on(evaluation_done{.step = 300, .loss = 2.0, .perplexity = 7.5});
    record.on(run_ended{});
  }
  REQUIRE(folder.files().size() == 1);
  CHECK(folder.files()[0].starts_with("events.out.tfevents."));
  const auto events = read_events(get_file(folder / folder.files()[0]));
  REQUIRE(events.size() == 8);
  CHECK(events[1].tag == "train/loss");
  CHECK(events[1].value == 2.5f);
  CHECK(events[1].step == 3);
  CHECK(events[7].tag == "evaluation/perplexity");
  CHECK(events[7].step == 300);
  CHECK_THROWS_AS(tensorboard_record(folder / "none"), file_error);
}

TEST_CASE("the record is a JSON object per line, with numbers a script expects") {
  const scratch_folder folder;
  {
    json_lines_record record(folder / "m.jsonl", 4e9);
    record.on(run_began{.max_steps = 10, .parameters = 5, .trained = 5});
    record.on(a_step);
    step_done broken = a_step;
    broken.loss = std::numeric_limits<double>::quiet_NaN();
    record.on(broken);
    record.on(step_skipped{.step = 4, .reason = "weight \"a\\b\"\n is bad", .in_a_row = 2});
    record.on(evaluation_done{.step = 5, .loss = 1.0, .perplexity = 2.7, .targets = 9});
    record.on(run_ended{.step = 5, .steps = 10, .stopped = true});
    record.on(rank_measured{.step = 5, .rank = 1, .ranks = 2, .seconds = 0.5, .waiting = 0.125, .tokens = 50, .peak_memory = 4096});
  }
  std::vector<json> lines;
  const std::string text = get_file(folder / "m.jsonl");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(parse_json(text.substr(begin, end - begin), "m.jsonl"));
    begin = end + 1;
  }
  REQUIRE(lines.size() == 7);
  CHECK(lines[1]["event"] == "step");
  CHECK(lines[1]["loss"] == 2.5);
  CHECK(lines[1]["lr"] == 1e-3);
  CHECK(lines[1]["grad_norm"] == 0.25);
  CHECK(lines[1]["tokens_per_second"] == 200);
  CHECK(lines[1]["peak_memory"] == 4096);
  CHECK(lines[1]["mfu"] == 0.5);
  CHECK(lines[2]["loss"].is_null());
  CHECK(lines[3]["reason"] == "weight \"a\\b\"\n is bad");
  CHECK(lines[5]["stopped"] == 1);
  CHECK(lines[6]["event"] == "rank");
  CHECK(lines[6]["rank"] == 1);
  CHECK(lines[6]["waiting"] == 0.125);
  json_lines_record again(folder / "m.jsonl");  // a resumed run continues the same file
  again.on(a_step);
  CHECK(get_file(folder / "m.jsonl").size() > text.size());
  CHECK_THROWS_AS(json_lines_record(folder / "no/such"), file_error);
  for (const char* other : {"text to train on\n", "{\"text\": \"a\"}\n", "\n"}) {
    put_file(folder / "data", other);
    CHECK_THROWS_WITH_AS(json_lines_record(folder / "data"), doctest::Contains("data: must be a new file or the log of a run"), file_error);
    CHECK(get_file(folder / "data") == other);
  }
  for (const char* begun : {"", "{\"ev"}) {
    put_file(folder / "data", begun);
    CHECK_NOTHROW(json_lines_record(folder / "data"));
  }
}

TEST_CASE("a full disk is an error of the record too") {
  const scratch_folder folder;
  json_lines_record record(folder / "m.jsonl");
  const limited_file_size full(100);
  CHECK_THROWS_WITH_AS(record.on(a_step), doctest::Contains("the record must be written"), file_error);
}

TEST_CASE("a record that can report goes on without the lines that a full disk cuts off, and says so once") {
  const scratch_folder folder;
  std::vector<std::string> reports;
  json_lines_record record(folder / "m.jsonl", 0, [&](const std::string& what) { reports.push_back(what); });
  record.on(a_step);
  const std::size_t line = get_file(folder / "m.jsonl").size();
  {
    const limited_file_size full(line + 100);
    for (int i = 0; i < 3; ++i) CHECK_NOTHROW(record.on(a_step));
  }
  REQUIRE(reports.size() == 1);
  CHECK(reports[0] == concat(folder / "m.jsonl", ": the record must be written; the disk may be full"));
  record.on(a_step);  // there is room again
  record.on(a_step);
  const std::string text = get_file(folder / "m.jsonl");
  CHECK(text.substr(text.size() - 2 * line) == text.substr(0, line) + text.substr(0, line));
  CHECK(text[text.size() - 2 * line - 1] == '\n');

  std::string problem;
  tensorboard_record curves(folder.path(), [&](const std::string& what) { problem += what; });
  const limited_file_size full(100);
  for (int i = 0; i < 100; ++i) CHECK_NOTHROW(curves.on(a_step));
  CHECK_NOTHROW(curves.on(run_ended{}));
  CHECK(problem.ends_with(": the record must be written; the disk may be full"));
  CHECK(problem.find(": the record") == problem.rfind(": the record"));
}

TEST_CASE("where there is no terminal, the progress bar is silent") {
  const scratch_folder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    progress_bar bar(file);
    bar.on(run_began{.max_steps = 10});
    bar.on(a_step);
    bar.on(step_skipped{.step = 1, .reason = "x"});
    bar.on(run_ended{.stopped = true});
  }
  std::fclose(file);
  CHECK(get_file(folder / "out").empty());
}

TEST_CASE("memory statistics name every role in use") {
  memory_count count;
  count.peak[0] = 1536;
  count.total_peak = 1536;
  CHECK(memory_text(count) == "  weights    1.50 KiB\n  peak       1.50 KiB\n");
}

TEST_CASE("a history keeps what a program wants to plot") {
  history h;
  h.on(run_began{.max_steps = 2});
  h.on(a_step);
  CHECK(h.losses().size() == 1);
  CHECK(h.learning_rates()[0] == 1e-3);
  CHECK(h.gradient_norms()[0] == 0.25);
}
