// Activation recomputation.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

namespace xtrain {

/// Norm outputs, recomputed from saved inputs.
struct norm_outputs {};
/// Outputs of activation functions, recomputed from inputs.
struct activation_outputs {};
/// Attention outputs and softmax statistics, recomputed from queries, keys and values. [Korthikanti et al. 2022, selective]
struct attention_outputs {};

namespace clause {

template <class Piece>
concept is_a_recomputable_piece =
    std::same_as<Piece, norm_outputs> || std::same_as<Piece, activation_outputs> || std::same_as<Piece, attention_outputs>;

template <class R>
concept recompute_has_a_name = requires {
  { R::name } -> std::convertible_to<std::string_view>;
};

/// drops_blocks: saves only block inputs. drops<Piece>: does not save the piece.
template <class R>
concept recompute_says_what_is_dropped = requires {
  { R::drops_blocks } -> std::convertible_to<bool>;
  { R::template drops<norm_outputs> } -> std::convertible_to<bool>;
  { R::template drops<activation_outputs> } -> std::convertible_to<bool>;
  { R::template drops<attention_outputs> } -> std::convertible_to<bool>;
};

}  // namespace clause

/// Policy of the axis recompute.
template <class R>
concept recompute_policy = clause::recompute_has_a_name<R> && clause::recompute_says_what_is_dropped<R>;

/// Saves everything: fastest, most memory.
struct recompute_none {
  static constexpr std::string_view name = "none";
  static constexpr bool drops_blocks = false;
  template <class Piece>
  static constexpr bool drops = false;
};

/// Saves only block inputs; a block's backward begins with its forward. [Chen et al. 2016]
struct recompute_full {
  static constexpr std::string_view name = "full";
  static constexpr bool drops_blocks = true;
  template <class Piece>
  static constexpr bool drops = false;  // a recomputed block saves its pieces
};

/// Recomputes the named pieces.
template <class... Pieces>
struct recompute_selective {
  static_assert(
      (clause::is_a_recomputable_piece<Pieces> && ...),
      "xtrain recompute_selective: every argument must be one of norm_outputs, activation_outputs, attention_outputs; another type was given; "
      "see layers/README.md");
  static constexpr std::string_view name = "selective";
  static constexpr bool drops_blocks = false;
  template <class Piece>
  static constexpr bool drops = (std::is_same_v<Piece, Pieces> || ...);
};

static_assert(recompute_policy<recompute_none> && recompute_policy<recompute_full> && recompute_policy<recompute_selective<norm_outputs>>);

}  // namespace xtrain
