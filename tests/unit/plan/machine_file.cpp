#include <doctest/doctest.h>

#include <string>

#include <xtrain/core/file.hpp>
#include <xtrain/plan/ascend_topology.hpp>
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

TEST_CASE("the topology of a node of NPUs, as npu-smi prints it, becomes the links of a machine") {
  // a node with eight Ascend 910B1
  const std::string rows = "NPU0 X HCCS HCCS HCCS HCCS HCCS HCCS HCCS 144-167\nNPU1 HCCS X HCCS HCCS HCCS HCCS HCCS HCCS 0-23\n"
                           "NPU2 HCCS HCCS X HCCS HCCS HCCS HCCS HCCS 144-167\nNPU3 HCCS HCCS HCCS X HCCS HCCS HCCS HCCS 0-23\n"
                           "NPU4       HCCS       HCCS       HCCS       HCCS       X          HCCS       HCCS       HCCS       96-119\n"
                           "NPU5 HCCS HCCS HCCS HCCS HCCS X HCCS HCCS 48-71\nNPU6 HCCS HCCS HCCS HCCS HCCS HCCS X HCCS 96-119\n"
                           "NPU7 HCCS HCCS HCCS HCCS HCCS HCCS HCCS X 48-71\n\n\nLegend:\n  X    = Self\n  HCCS = Connection traversing HCCS.\n";
  const std::string head = "> npu-smi info -t topo\n\nNPU0       NPU1       NPU2       NPU3       NPU4       NPU5       NPU6       NPU7       CPU Affinity\n";
  const ascend_topology mesh = parse_ascend_topology(head + rows, "topo.txt");
  CHECK(mesh.devices() == 8);
  CHECK(mesh.is_full_mesh());
  CHECK(mesh.processors[4] == "96-119");
  CHECK(with_topology(ascend_910b(), mesh) == ascend_910b());
  const ascend_topology two = parse_ascend_topology("NPU0 NPU1 CPU Affinity\nNPU0 X SYS 0-3\nNPU1 SYS X 4-7\n", "topo.txt");
  CHECK(with_topology(ascend_910b(), two).devices_per_node == 2);
  CHECK(with_topology(ascend_910b(), two).inside.bandwidth == 32e9);
  const auto refuses = [](const std::string& text, const char* said) {
    CHECK_THROWS_WITH_AS((void)parse_ascend_topology(text, "topo.txt"), doctest::Contains(said), data_error);
  };
  refuses("", "topo.txt: must be the output of npu-smi info -t topo, with a row for each of its 0 NPUs; it has 0");
  refuses("NPU0 NPU1\nNPU0 X HCCS\n", "with a row for each of its 2 NPUs; it has 1");
  refuses("NPU0 NPU1\nNPU0 HCCS X\n", "topo.txt: line 2: must be the row of NPU0, with X in its own column; it begins with NPU0");
  refuses("NPU0 NPU1\nNPU0 X NV4\n", "topo.txt: line 2: links must be HCCS, HCCS_SW, SIO, PIX, PXB, PHB, SYS or NA; given NV4");
  refuses("NPU0 NPU1\nNPU0 X HCCS\nNPU1 SYS X\n", "topo.txt: NPU1 and NPU0 must be connected alike both ways; given SYS and HCCS");
}
