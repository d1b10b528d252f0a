// Checks that a frozen second model is not the trained one and has its vocabulary.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// The channels of a model's ranks.
template <class Model>
[[nodiscard]] channel_origin channels_of(const Model& model) {
  if constexpr (requires { model.settings().parallel.ranks->size(); })
    if (const auto& ranks = model.settings().parallel.ranks; ranks != nullptr && ranks->size() > 1) return ranks->channels();
  return {};
}
/// Models that share ranks must not confuse messages.
///   throws   config_error
template <class Model>
void require_own_channels(std::string_view who, const channel_origin& channels, const Model& other, std::string_view what = "trained") {
  require<config_error>(!channels.overlaps(channels_of(other)), who, " must send on channels of its own: give its model parallel = {.ranks = "
                        "separate_channels(ranks)}, with another number for each further model; given are the channels of the ", what,
                        " model. See objective/README.md");
}

/// A trained model cannot be its reference. Sources without parameters() or vocab_size() are not checked.
///   throws   config_error when `source` uses the parameters of `trained`, shares its channels, or has another vocabulary
template <class Source, class Model>
void require_second_model(std::string_view who, const Source& source, const Model& trained) {
  if constexpr (requires { { source.parameters() } -> std::convertible_to<const void*>; })
    require<config_error>(static_cast<const void*>(source.parameters()) != static_cast<const void*>(&trained.parameters()), who,
                          " must be a second model, which is not trained; given is the trained one");
  if constexpr (requires { source.channels(); }) {
    static_assert(std::is_convertible_v<decltype(source.channels()), channel_origin>, "xtrain: channels() of a second model must return a channel_origin");
    require_own_channels(who, source.channels(), trained);
  }
  if constexpr (requires { { source.vocab_size() } -> std::convertible_to<std::size_t>; })
    require<config_error>(source.vocab_size() == 0 || source.vocab_size() == trained.config().vocab_size, who,
                          ": its vocabulary must be that of the trained model, ", trained.config().vocab_size, "; it is ", source.vocab_size());
}

}  // namespace xtrain::detail
