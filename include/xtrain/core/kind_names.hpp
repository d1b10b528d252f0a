// Names of enumerations in settings.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// Kinds with names.
template <class Kind, std::size_t N>
using named_kinds = std::array<std::pair<std::string_view, Kind>, N>;

/// all: an enumeration's names. Specialize it for your kinds.
template <class Kind>
struct kind_names;

/// An enumeration with kind_names.
template <class Kind>
concept kind_with_names = requires {
  kind_names<Kind>::all.size();
};

/// The name of a kind.
template <kind_with_names Kind>
[[nodiscard]] constexpr std::string_view name_of_kind(Kind kind) {
  for (const auto& [name, known] : kind_names<Kind>::all)
    if (known == kind) return name;
  return "unknown";
}
/// throws config_error for an unknown name, with known ones
template <kind_with_names Kind>
[[nodiscard]] Kind kind_named(std::string_view name) {
  std::string names;
  for (const auto& [each, kind] : kind_names<Kind>::all) {
    if (each == name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(each);
  }
  fail<config_error>("must be one of ", names, "; given '", name, "'");
}

}  // namespace xtrain
