// That a frozen model beside the trained one is another model.
#pragma once

#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// A model that is trained is no reference for itself: it moves along.
///   frozen   the parameters of the model beside the trained one; null: it has none
///   throws   config_error
template <class Store>
void require_second_model(std::string_view who, const void* frozen, const Store& trained) {
  require<config_error>(frozen != static_cast<const void*>(&trained), who, " must be a second model, which is not trained; given is the trained one");
}

}  // namespace xtrain::detail
