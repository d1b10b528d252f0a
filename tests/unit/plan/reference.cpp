// The plan holds on another device: it runs the same code with any kernels.
#include <doctest/doctest.h>

#include <xtrain/device/reference/reference.hpp>
#include "planned_run.hpp"

using namespace xtrain;

TEST_CASE("the plan of a run on the reference device is what the run takes, and its kernels need no memory of their own") {
  struct recipe : defaults {
    using device = reference;
  };
  const dry_run plan = planned_run::check_memory<llama<recipe>>({.weight = 4, .gradient = 4, .optimizer = 8}, {}, 2);
  const dry_run on_cpu = xtrain::plan<trainer<llama<defaults>>>(planned_run::sizes(), {}, planned_run::settings(2), cpu::properties{1});
  CHECK(plan.of(memory_role::stash) == on_cpu.of(memory_role::stash));
  CHECK(plan.of(memory_role::workspace) < on_cpu.of(memory_role::workspace));
  CHECK(plan.record.operations() == on_cpu.record.operations());
}
