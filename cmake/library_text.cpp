// The definitions of component 'text', once. Compiled by xtrain_add_library.
#define XTRAIN_COMPILES_LIBRARY
#include <xtrain/text/add_tokens_impl.hpp>
#include <xtrain/text/gguf_tokenizer_impl.hpp>
#include <xtrain/text/load_tokenizer_impl.hpp>
