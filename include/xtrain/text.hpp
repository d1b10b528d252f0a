// Component 'text': tokenizers with vocabularies, conversations. Needs PCRE2 and utf8proc.
#pragma once

#include <xtrain/data/add_tokens.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/data/chat_templates.hpp>
#include <xtrain/data/load_tokenizer.hpp>
#include <xtrain/io.hpp>
