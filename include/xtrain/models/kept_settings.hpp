// Refuses settings that the family's config.json cannot hold: a saved folder would load as another model.
#pragma once

#include <xtrain/models/config.hpp>

namespace xtrain::detail {

/// Writes config.json in memory and reads it again: what decides the computation must be equal up to rounding.
///   c        completed, with its family
///   throws   config_error with the first setting that differs, as given and as read
void require_kept(const decoder_config& c);

}  // namespace xtrain::detail

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/kept_settings_impl.hpp>
#endif
