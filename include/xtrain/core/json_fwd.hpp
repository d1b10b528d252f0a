// The name of a JSON document, for headers that only pass one on. Component 'io'.
#pragma once

#if !__has_include(<nlohmann/json_fwd.hpp>)
#error "xtrain io: nlohmann-json must be found; link xtrain::io (Debian and Ubuntu: nlohmann-json3-dev)"
#endif

#include <nlohmann/json_fwd.hpp>

namespace xtrain {

/// Members are sorted by name, so lookup in objects of a hundred thousand members (vocabularies) is a tree search, not a linear one.
using json = nlohmann::json;

}  // namespace xtrain
