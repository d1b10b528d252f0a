// Parity of Mixtral with transformers, load-balancing loss included.
#include <doctest/doctest.h>

#include <xtrain/models/mixtral.hpp>
#include "parity.hpp"

using namespace parity;

TEST_CASE("mixtral is transformers', with a window and without") {
  check_all<mixtral>("mixtral");
  check_all<mixtral>("mixtral_full_attention");
}
