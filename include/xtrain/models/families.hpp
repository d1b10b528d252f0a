// All decoder families; loads a model of any.
#pragma once

#include <string>

#include <xtrain/models/any_decoder.hpp>
#include <xtrain/models/aquila.hpp>
#include <xtrain/models/baichuan.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/family_list.hpp>
#include <xtrain/models/gemma.hpp>
#include <xtrain/models/gemma2.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/internlm.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mistral.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/models/phi3.hpp>
#include <xtrain/models/qwen2.hpp>
#include <xtrain/models/qwen3.hpp>

namespace xtrain {

/// All decoder families.
using all_families = family_list<gpt2_family, llama_family, mistral_family, mixtral_family, qwen2_family, bloom_family, baichuan_family,
                                 internlm_family, internlm2_family, aquila_family, chatglm_family, chatglm1_family, qwen3_family, gemma_family, phi3_family,
                                 gemma2_family>;

/// A decoder of any family.
template <class Recipe>
using any_decoder = any_decoder_of<Recipe, all_families>;

/// The model of a folder's config.json. Requires <xtrain/io.hpp>.
///   Families  accepted: all, or a family_list
///   throws    file_error, config_error, memory_error
template <class Recipe, class Families = all_families>
[[nodiscard]] any_decoder_of<Recipe, Families> load_model(const std::string& folder, const typename Recipe::device::context& on = {},
                                                          const typename any_decoder_of<Recipe, Families>::options& options = {}) {
  static_assert(
      requires { pretrained_settings(pretrained_tag<Recipe>{}, folder); },
      "xtrain load_model: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
  return any_decoder_of<Recipe, Families>::from_pretrained(folder, on, options);
}

}  // namespace xtrain
