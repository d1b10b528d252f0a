// Public names that <xtrain/xtrain.hpp> does not define. A program that uses one without its header is told the header: a function says a sentence, a type
// has its declaration here, which compilers quote.
#pragma once

namespace xtrain {

struct data_parallel;            // defined in <xtrain/parallel.hpp>, which must be included
template <int Stage>
struct zero;                     // defined in <xtrain/parallel.hpp>, which must be included
struct tensor_parallel;          // defined in <xtrain/parallel.hpp>, which must be included
struct sequence_parallel;        // defined in <xtrain/parallel.hpp>, which must be included
struct context_parallel;         // defined in <xtrain/parallel.hpp>, which must be included
struct ring_context_parallel;    // defined in <xtrain/parallel.hpp>, which must be included
struct expert_parallel;          // defined in <xtrain/parallel.hpp>, which must be included
template <class Rows, class... Axes>
struct parallel;                 // defined in <xtrain/parallel.hpp>, which must be included

struct reference;                // defined in <xtrain/device/reference/reference.hpp>, which must be included
struct simt_device;              // defined in <xtrain/device/simt/simt.hpp>, which must be included
struct cuda;                     // defined in <xtrain/device/cuda/cuda.hpp>, which must be included
struct musa;                     // defined in <xtrain/device/musa/musa.hpp>, which must be included
struct npu;                      // defined in <xtrain/device/npu/npu.hpp>, which must be included

template <class Trainer>
class checkpoint_folder;         // defined in <xtrain/io.hpp>, which must be included; link xtrain::io

namespace detail {

struct parallel_header;  // defined in <xtrain/parallel.hpp>, and so on: then the functions below cannot be called
struct io_header;
struct text_header;

template <class Header>
concept is_not_included = !requires { sizeof(Header); };

/// Every real function is a better match.
struct any_argument {
  template <class T>
  any_argument(T&&) {}
};

}  // namespace detail

#define XTRAIN_FUNCTION_OF_HEADER(NAME, HEADER, LINK)                                                                       \
  template <class Header = detail::HEADER##_header>                                                                         \
    requires detail::is_not_included<Header>                                                                                \
  int NAME(detail::any_argument, ...) {                                                                                     \
    static_assert(!detail::is_not_included<Header>, "xtrain " #NAME ": <xtrain/" #HEADER ".hpp> must be included" LINK);    \
    return 0;                                                                                                               \
  }
XTRAIN_FUNCTION_OF_HEADER(run_ranks, parallel, "; see comm/README.md")
XTRAIN_FUNCTION_OF_HEADER(instruct_dataset, io, "; link xtrain::io; see data/README.md")
XTRAIN_FUNCTION_OF_HEADER(json_text_dataset, io, "; link xtrain::io; see data/README.md")
XTRAIN_FUNCTION_OF_HEADER(load_adapter, io, "; link xtrain::io; see adapt/README.md")
XTRAIN_FUNCTION_OF_HEADER(load_tokenizer, text, "; link xtrain::text; see text/README.md")
XTRAIN_FUNCTION_OF_HEADER(load_tokenizer_json, text, "; link xtrain::text; see text/README.md")
XTRAIN_FUNCTION_OF_HEADER(load_sentencepiece, text, "; link xtrain::text; see text/README.md")
XTRAIN_FUNCTION_OF_HEADER(named_chat_template, text, "; link xtrain::text; see chat/README.md")
XTRAIN_FUNCTION_OF_HEADER(chat_dataset, text, "; link xtrain::text; see data/README.md")
XTRAIN_FUNCTION_OF_HEADER(preference_dataset, text, "; link xtrain::text; see data/README.md")
XTRAIN_FUNCTION_OF_HEADER(unpaired_preference_dataset, text, "; link xtrain::text; see data/README.md")
#undef XTRAIN_FUNCTION_OF_HEADER

}  // namespace xtrain
