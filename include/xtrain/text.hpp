// Component 'text': tokenizers with vocabularies. Needs SentencePiece, PCRE2 and utf8proc.
#pragma once

#include <xtrain/data/load_tokenizer.hpp>
#include <xtrain/io.hpp>
