#pragma once

#include <string>

#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// A part of the translation: reads some of the flags into some of the run.
class megatron_part {
 public:
  megatron_part(megatron_arguments& flags, const megatron_script& script, run_description& run) : flags_(flags), script_(script), run_(run) {}

 protected:
  void note(const std::string& text) { run_.notes.push_back(text); }

  megatron_arguments& flags_;
  const megatron_script& script_;
  run_description& run_;
};

}  // namespace xtrain::detail
