// Declares json. Component 'io'.
#pragma once

#if !__has_include(<nlohmann/json_fwd.hpp>)
#error "xtrain io: nlohmann-json must be found; link xtrain::io (Debian and Ubuntu: nlohmann-json3-dev)"
#endif

#include <nlohmann/json_fwd.hpp>

namespace xtrain {

/// Sorted by name: lookup in vocabularies (100,000 members) is a tree search.
using json = nlohmann::json;

}  // namespace xtrain
