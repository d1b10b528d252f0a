// ChatGLM's tokens outside its SentencePiece model, as in the published code: tokens after the pieces, whitespace pieces, special tokens around a text.
// Component 'text'. [Du et al. 2022, "GLM"; Zeng et al. 2024, "ChatGLM: A family of large language models"]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/added_tokens.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/sentencepiece_tokenizer.hpp>

namespace xtrain::detail {

/// Tokens of ChatGLM2 and 3 after their pieces. 'sop' and 'eop' could be words: matched only without adjacent word characters, sop after [gMASK], [sMASK].
///   roles  include ChatGLM3's
[[nodiscard]] inline std::vector<added_token> chatglm_tokens(token pieces, bool roles) {
  std::vector<added_token> all;
  for (const char* name : {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"}) {
    if (!roles && all.size() == 5) break;
    all.push_back({.content = name, .id = pieces++, .single_word = name[0] != '[' && name[0] != '<', .special = true});
  }
  return all;
}

/// Configures ChatGLM. ChatGLM-6B (pieces for line breaks): text, [gMASK] <sop>; ChatGLM2 and 3: [gMASK] sop, text.
///   throws  config_error for shifted ids (num_image_tokens, in the first published files)
inline void configure_chatglm(sentencepiece_model& model, const companion_files& beside, special_tokens& special) {
  special.adds_bos = false;
  if (model.find_token("<n>") >= 0) {
    require<config_error>(beside.image_tokens() == 0, model.path(), ": num_image_tokens must be 0, as in the current files of ChatGLM-6B; it is ",
                          beside.image_tokens());
    const token mask = model.find_token("[gMASK]"), sop = model.find_token("<sop>"), eop = model.find_token("<eop>");
    require<config_error>(mask >= 0 && sop >= 0 && eop >= 0, model.path(), ": ChatGLM-6B's pieces must have [gMASK], <sop> and <eop>");
    std::vector<added_token> written;  // pieces that the model does not match in text
    for (const char* name : {"[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<pad>"})
      if (const token id = model.find_token(name); id >= 0) written.push_back({.content = name, .id = id, .special = true});
    model.add(std::move(written));
    model.write_spaces_as_pieces();
    model.surround({.after = {mask, sop}, .after_first = {mask, sop}, .after_second = {eop}, .prompt_ending = {mask, sop}});
    special.bos = sop;
    special.eos = eop;
    return;
  }
  if (model.find_token("sop") < 0 && model.find_token("[gMASK]") < 0)
    model.add(chatglm_tokens(model.pieces(), beside.has_roles()));
  const token mask = model.find_token("[gMASK]"), sop = model.find_token("sop");
  require<config_error>(mask >= 0 && sop >= 0, model.path(), ": ChatGLM's tokens must have [gMASK] and sop; added_tokens name others");
  model.add(following_token{.behind = {mask, model.find_token("[sMASK]")}, .content = "sop", .id = sop});
  std::vector<token> after_second;
  if (special.eos >= 0) after_second.push_back(special.eos);
  model.surround({.before = {mask, sop}, .after_second = after_second, .prompt_beginning = {mask, sop}});
}

}  // namespace xtrain::detail
