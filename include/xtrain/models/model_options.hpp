// Options of a model besides its config.
#pragma once

#include <cstdint>

#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/offload.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain {

/// Recipes with the same adapter, strategy and offload share this type.
template <class Adapter, class Parallel, class Offload = no_offload>
struct model_options {
  typename Adapter::config adapter = {};
  typename Parallel::config parallel = {};
  std::uint64_t seed = 42;  ///< for initial values
  typename Offload::config offload = {};
  weight_blocks blocks = {};  ///< frozen linear weights stored in a GGUF file's blocks (blocks_in), if the adapter supports it
};

/// The device context for this recipe: offloaded roles are in files or pinned memory.
template <class Recipe, class Context, class Options>
[[nodiscard]] Context with_offload(Context on, const Options& options) {
  using offload = typename Recipe::offload;
  if constexpr (!offload::roles.empty() && keeps_on_host<offload> && !is_dry<typename Recipe::device>) {
    static_assert(requires { on.keep_on_host(offload::roles); },
                  "xtrain recipe: 'offload' must not be offload_to_host on this device: its context cannot keep memory on the host; see device/README.md");
    on.keep_on_host(offload::roles);
  } else if constexpr (!offload::roles.empty() && !is_dry<typename Recipe::device>) {
    static_assert(requires { on.keep_in_files(offload::roles, options.offload.folder); },
                  "xtrain recipe: 'offload' must be no_offload on this device: its context cannot keep memory in files; see device/README.md");
    on.keep_in_files(offload::roles, options.offload.folder);
  }
  return on;
}

}  // namespace xtrain
