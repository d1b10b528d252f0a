// A program with kernels for several instruction-set levels: the chosen level, and its report. The build runs this once per level, with the conformance suite
// in the same program.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/peak.hpp>

using namespace xtrain;

TEST_CASE("the level that is asked for is the level that runs") {
  const char* const asked = std::getenv("XTRAIN_CPU_LEVEL");
  REQUIRE(asked != nullptr);
  const auto chosen = static_cast<std::size_t>(cpu_levels::chosen());
  CHECK(cpu_levels::names.at(chosen) == asked);
  const std::string said(cpu::instructions());
  INFO(said);
  CHECK((said.find("avx512") != std::string::npos) == (chosen >= 2));
  CHECK((said.find("bf16 products") != std::string::npos) == (chosen == 3));
  CHECK(cpu::context().description().find(said) != std::string::npos);
}

TEST_CASE("a level that is none, or that the processor lacks, is refused with what could be asked") {
  const std::string asked = std::getenv("XTRAIN_CPU_LEVEL");
  ::setenv("XTRAIN_CPU_LEVEL", "sse9", 1);
  CHECK_THROWS_WITH_AS((void)cpu_levels::detail::choose(), "XTRAIN_CPU_LEVEL: must be baseline, avx2, avx512 or avx512_bf16; given 'sse9'",
                       config_error);
  ::setenv("XTRAIN_CPU_LEVEL", "", 1);
  CHECK(cpu_levels::detail::choose() == cpu_levels::detail::highest());
  ::setenv("XTRAIN_CPU_LEVEL", asked.c_str(), 1);
}

TEST_CASE("the peak is measured with the chosen level's instructions") {
  const cpu::context device;
  CHECK(measure_peak(device) > 0.0);
  CHECK(measure_peak<bf16>(device) > 0.0);
  CHECK(measure_bandwidth(device, 0.01) > 0.0);
  CHECK(measure_read_bandwidth(device, 0.01) > 0.0);
}
