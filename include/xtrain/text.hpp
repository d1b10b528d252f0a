// Component 'text': tokenizers with vocabularies, conversations. Needs PCRE2 and utf8proc.
#pragma once

namespace xtrain::detail {

struct text_header {};  // before the headers, which call functions of elsewhere.hpp

}  // namespace xtrain::detail

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/data/preference_dataset.hpp>
#include <xtrain/io.hpp>
#include <xtrain/text/add_tokens.hpp>
#include <xtrain/text/load_tokenizer.hpp>
