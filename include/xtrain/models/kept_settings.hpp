// Refuses settings of a decoder that its family's config.json cannot hold: a saved folder would load as another model.
#pragma once

#include <xtrain/models/config.hpp>

namespace xtrain::detail {

/// The family writes its config.json, in memory, and reads it again: what decides what the model computes must be the same, but for rounding.
///   c        completed, with its family
///   throws   config_error with the first setting that differs, its value and the one that is read
void require_kept(const decoder_config& c);

}  // namespace xtrain::detail

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/kept_settings_impl.hpp>
#endif
