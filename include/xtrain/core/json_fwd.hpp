// The name of a JSON document, for headers that only pass one on. Component 'io'.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace xtrain {

/// Members are sorted by name, so lookup in objects of a hundred thousand members (vocabularies) is a tree search, not a linear one.
using json = nlohmann::json;

}  // namespace xtrain
