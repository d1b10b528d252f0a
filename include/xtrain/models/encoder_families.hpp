// Loads encoders.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/family_list.hpp>

namespace xtrain {

/// All encoder families.
using encoder_families = family_list<bert_pretraining_family, bert_masked_lm_family, bert_classification_family>;

namespace detail {

/// Calls use(family_tag<Family>{}) for the first family among the architectures; false: none.
template <class... Families, class Use>
bool choose_architecture(family_list<Families...>, const std::vector<std::string>& architectures, Use&& use) {
  const auto is_one = [&](const char* name) { return std::find(architectures.begin(), architectures.end(), name) != architectures.end(); };
  return ((is_one(Families::architecture) ? (use(family_tag<Families>{}), true) : false) || ...);
}

}  // namespace detail

/// Constructs the encoder of a folder's config.json, with the heads that `architectures` names, and calls visit(model). Requires <xtrain/io.hpp>.
///   throws  file_error, config_error, memory_error
template <class Recipe, class Visit>
void load_encoder(const std::string& folder, Visit&& visit, const typename Recipe::device::context& on = {},
                  const model_options<typename Recipe::adapter, typename Recipe::parallel, typename Recipe::offload>& options = {}) {
  static_assert(
      requires { pretrained_settings(pretrained_tag<Recipe>{}, folder); },
      "xtrain load_encoder: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
  const auto settings = pretrained_settings(pretrained_tag<Recipe>{}, folder);
  const std::vector<std::string> architectures = settings.texts({"architectures"});
  bool found = false;  // not const: nvcc cannot read require<Error>(found) then, see findings/nvcc_const_of_lambda.sh
  found = detail::choose_architecture(encoder_families{}, architectures, [&](auto family) {
    auto model = encoder<Recipe, typename decltype(family)::type>::from_pretrained(folder, on, options);
    visit(model);
  });
  require<config_error>(found, folder,
                        ": its architectures must name an encoder with heads (BertForPreTraining, BertForMaskedLM, "
                        "BertForSequenceClassification); given '",
                        architectures.empty() ? "" : architectures.front(), "'");
}

}  // namespace xtrain
