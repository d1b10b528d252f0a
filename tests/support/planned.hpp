// Compares a run's plan with its use.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>

#include <xtrain/device/memory.hpp>
#include <xtrain/train/concepts.hpp>

namespace {

/// By role and in total, to the byte. taken: by all users of the plan's device
[[maybe_unused]] void check_planned(const xtrain::dry_run& plan, const xtrain::memory_count& taken) {
  CHECK(plan.total() == taken.total_peak);
  for (std::size_t r = 0; r < xtrain::memory_roles; ++r) {
    const auto role = static_cast<xtrain::memory_role>(r);
    CAPTURE(xtrain::name_of(role));
    CHECK(plan.total_of(role) == taken.peak_of(role));
  }
}

}  // namespace
