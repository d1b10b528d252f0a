// What tests on a stand-in for a GPU check in the end.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <string>

template <class F>
std::string what_is_thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}

/// Everything that was made is gone, and nothing was called in a way that the vendor's documentation forbids.
template <class Fake>
void check_clean(Fake& fake) {
  CHECK(fake.violations() == "");
  CHECK(fake.leaks() == "");
}
