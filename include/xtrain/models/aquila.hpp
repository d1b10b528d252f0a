// Aquila.                                                                        [Beijing Academy of Artificial Intelligence 2023]
#pragma once

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA under another name.
struct aquila_family : llama_family {
  static constexpr const char* name = "aquila";
  static constexpr const char* architecture = "AquilaForCausalLM";

  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s, {});
    c.pad_token_id = s.token_or(0, "pad_token_id");  // the default of the published class
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    write_rope_scaling_of_two_fields(c, s);
  }
};

/// An Aquila.
template <class Recipe>
using aquila = decoder<Recipe, aquila_family>;

}  // namespace xtrain
