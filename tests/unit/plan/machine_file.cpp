// Machine descriptions as files that users can write.
#include <doctest/doctest.h>

#include <string>

#include <xtrain/plan/machine_file.hpp>
#include <xtrain/plan/machines.hpp>

#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("a machine that is written is read as it was") {
  const scratch_folder scratch;
  for (const char* name : {"a100", "h100", "h200", "910b", "s4000"}) {
    const machine m = machine_named(name);
    write_file(scratch / "machine.json", machine_text(m));
    CHECK(read_machine(scratch / "machine.json") == m);
  }
}

TEST_CASE("what is left out is what machines have") {
  const machine m = parse_machine(R"({"fp32": 1e12, "memory_bandwidth": 5e10, "memory": 17179869184})", "mine.json");
  CHECK(m.name == "mine.json");
  CHECK(m.devices_per_node == 1);
  CHECK(m.matmul_share == machine{}.matmul_share);
}

TEST_CASE("a description that makes no sense is refused, by name") {
  const auto refused = [](const std::string& text, const char* message) {
    CHECK_THROWS_WITH_AS((void)parse_machine(text, "mine.json"), message, config_error);
  };
  refused(R"({"fp32": 1e12, "memory_bandwith": 5e10})", "mine.json: must hold numbers of a machine only; given 'memory_bandwith'");
  refused(R"({"fp32": 1e12, "memory_bandwidth": 5e10})", "mine.json: 'memory' must be given; it is missing");
  refused(R"({"fp32": "fast", "memory_bandwidth": 5e10, "memory": 1})", "mine.json: 'fp32' must be a number; given \"fast\"");
  refused(R"({"fp32": -1, "memory_bandwidth": 5e10, "memory": 1})", "machine mine.json: fp32 must be a number above 0; given -1");
  refused(R"({"fp32": 1e12, "memory_bandwidth": 5e10, "memory": 1, "devices_per_node": 2})",
          "machine mine.json: bandwidth inside must be a number above 0; given 0");
  refused(R"({"memory": 1, "inside": {"speed": 5}})", "mine.json, 'inside': must hold numbers of a machine only; given 'speed'");
}
