// Component 'text': tokenizers with vocabularies. Needs SentencePiece and PCRE2.
#pragma once

#include <xtrain/data/load_tokenizer.hpp>
#include <xtrain/io.hpp>
