// The example with a custom layer: equal losses on ranks that shard the other layers, and on one device.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "program.hpp"

namespace {

program_result own_layer(std::vector<std::string> flags) {
  flags.insert(flags.begin(), EXAMPLES "/own_layer");
  return run_program(std::move(flags));
}

std::vector<double> losses(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--max-steps", "12"});
  const program_result run = own_layer(flags);
  INFO(run.err);
  REQUIRE(run.status == 0);
  std::vector<double> found;
  const std::string before = " loss ";
  for (std::size_t at = run.out.find("\nstep "); at != std::string::npos; at = run.out.find("\nstep ", at + 1))
    found.push_back(std::strtod(run.out.c_str() + run.out.find(before, at) + before.size(), nullptr));
  REQUIRE(found.size() == 12);
  return found;
}

}  // namespace

TEST_CASE("without flags it proves the layer and trains a model with it") {
  const program_result run = own_layer({});
  CHECK(run.status == 0);
  CHECK(run.out.find("41 derivatives checked") != std::string::npos);
  CHECK(run.out.find("on 2 ranks: equal to one device") != std::string::npos);
  const std::string before = ", after training ";
  const std::size_t at = run.out.find(before);
  REQUIRE(at != std::string::npos);
  CHECK(std::strtod(run.out.c_str() + at + before.size(), nullptr) < 4.0);
}

TEST_CASE("a model with a user's layer has the same losses under tensor and sequence parallelism as on one device") {
  const std::vector<double> one = losses({});
  CHECK(one.back() < one.front());
  for (const char* strategy : {"tensor", "sequence"})
    for (const char* ranks : {"1", "2", "4"}) {
      CAPTURE(strategy);
      CAPTURE(ranks);
      const std::vector<double> many = losses({"--strategy", strategy, "--ranks", ranks});
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - many[i]) < 2e-5);
    }
}

TEST_CASE("help is no error") {
  const program_result run = own_layer({"--help"});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("usage: own_layer [text file] [--ranks N]"));
  CHECK(run.err.empty());
}

TEST_CASE("wrong command lines end with status 2 and say why") {
  const auto refused = [](std::vector<std::string> flags, const std::string& why) {
    const program_result run = own_layer(std::move(flags));
    CHECK(run.status == 2);
    CHECK_MESSAGE(run.err.find(why) != std::string::npos, run.err);
  };
  refused({"--ranks", "2"}, "--ranks must be 1 with --strategy single; given 2");
  refused({"--strategy", "both"}, "--strategy must be single, tensor or sequence; given both");
  refused({"--max-steps", "0"}, "--max-steps must be between 1 and 1000000; given 0");
  refused({"--max-steps", "-3"}, "--max-steps must be between 1 and 1000000; given -3");
  refused({"--rank", "2"}, "there is no --rank; usage: own_layer");
  refused({"--max-steps"}, "--max-steps must be followed by a value");
  refused({"--strategy", "tensor", "--ranks", "3"}, "4 heads are not divisible by 3");
}
