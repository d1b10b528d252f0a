// Component 'text': tokenizers with vocabularies, conversations. Needs PCRE2 and utf8proc.
#pragma once

#if defined XTRAIN_TARGET && !defined XTRAIN_TARGET_TEXT
#error "xtrain: a target with a source that includes <xtrain/text.hpp> must link xtrain::text: call target_link_libraries"
#elif defined XTRAIN_TARGET && defined XTRAIN_LIBRARY && !defined XTRAIN_LIBRARY_TEXT
#error "xtrain: xtrain_add_library() must be called after find_package(xtrain COMPONENTS text), or xtrain::library has no 'text'"
#endif

namespace xtrain::detail {

struct text_header {};  // before the headers, which call functions of elsewhere.hpp

}  // namespace xtrain::detail

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/data/preference_dataset.hpp>
#include <xtrain/io.hpp>
#include <xtrain/text/add_tokens.hpp>
#include <xtrain/text/load_tokenizer.hpp>
