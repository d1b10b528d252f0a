// What the example programs share for their ranks.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <xtrain/comm/threads.hpp>

#include "../../examples/python_program.hpp"
#include "../../examples/ranks.hpp"

namespace {

struct layout {
  std::shared_ptr<xtrain::transport> ranks{};
};

}  // namespace

TEST_CASE("what ranks of a process share is made once, and what is wrong with it is said to all") {
  command_line::made_once<std::string> text, nothing;
  std::atomic<int> made = 0, right = 0, told = 0;
  xtrain::run_ranks(4, [&](const std::shared_ptr<xtrain::transport>&) {
    const std::string& mine = text.get([&] {
      ++made;
      return std::string("a tokenizer");
    });
    right += mine == "a tokenizer" ? 1 : 0;
    try {
      (void)nothing.get([&]() -> std::string {
        ++made;
        throw command_line::usage_error("there is none");
      });
    } catch (const command_line::usage_error&) {
      ++told;
    }
  });
  CHECK(made == 2);
  CHECK(right == 4);
  CHECK(told == 4);
}

TEST_CASE("no rank goes on before the first has done its work") {
  std::atomic<int> works = 0, early = 0;
  xtrain::run_ranks(4, [&](const std::shared_ptr<xtrain::transport>& network) {
    command_line::on_first_rank(layout{network}, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ++works;
    });
    if (works == 0) ++early;
  });
  CHECK(works == 1);
  CHECK(early == 0);
  command_line::on_first_rank(layout{}, [&] { ++works; });  // of one rank
  CHECK(works == 2);
}

TEST_CASE("a call is printed as a shell reads it") {
  CHECK(python_program::shell_line("generate", {"--model", "a/b-1.0", "--prompt", "it's $5 \"now\"", "--stop="}) ==
        R"(generate --model a/b-1.0 --prompt 'it'\''s $5 "now"' --stop=)");
  CHECK(python_program::shell_line("generate", {""}) == "generate ''");
}

TEST_CASE("an error keeps its kind behind a flag") {
  const auto kind = [](const auto& problem) {
    try {
      command_line::for_flag("--flag", "value", [&] { throw problem; });
    } catch (const command_line::usage_error& told) {
      return std::string("2 ") + told.what();
    } catch (const xtrain::error& told) {
      return std::string("1 ") + told.what();
    }
    return std::string();
  };
  CHECK(kind(xtrain::config_error("no")) == "2 --flag value: no");
  CHECK(kind(command_line::usage_error("no")) == "2 --flag value: no");
  CHECK(kind(xtrain::file_error("no")) == "1 --flag value: no");
  CHECK(kind(xtrain::data_error("no")) == "1 --flag value: no");
  CHECK(kind(xtrain::memory_error("no")) == "1 --flag value: no");
}
