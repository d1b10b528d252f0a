// `tokenizer_class` of a tokenizer_config.json.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace xtrain::detail {

/// A class's changes beyond its files.
enum class class_kind : std::uint8_t {
  as_written,  ///< generic and unknown classes
  bert,        ///< keys for lower case, accents, ideographs
  mpnet,       ///< as bert; ideographs only with the key
  byte_level,  ///< add_prefix_space (default false) for a ByteLevel step
  blenderbot,  ///< as byte_level, only with the key
  roberta,     ///< byte_level; vocab.json: <s> text </s>
  gpt_neox,    ///< byte_level; add_bos_token and add_eos_token around a text
  qwen2,       ///< byte_level, also in a Sequence
  cohere,      ///< add_prefix_space, if true, for every ByteLevel step
  llama,       ///< add_prefix_space, if false; legacy, for SentencePiece
  code_llama,  ///< transformers 5 replaces its steps
  gemma,       ///< no space before a text
};

struct tokenizer_class {
  std::string_view name;  ///< without Tokenizer and Fast; empty: unknown
  class_kind kind = class_kind::as_written;
  std::string_view bos{}, eos{}, unk{}, pad{}, cls{}, sep{}, mask{};  ///< the class's special tokens; empty: none
};

/// Known classes. [transformers 4, models/*/tokenization_*.py]
inline constexpr std::array tokenizer_classes{
    tokenizer_class{"PreTrained"},
    tokenizer_class{"TokenizersBackend"},
    tokenizer_class{"Llama", class_kind::llama, "<s>", "</s>", "<unk>"},
    tokenizer_class{"CodeLlama", class_kind::code_llama, "<s>", "</s>", "<unk>"},
    tokenizer_class{"Baichuan", class_kind::as_written, "<s>", "</s>", "<unk>"},
    tokenizer_class{"InternLM", class_kind::as_written, "<s>", "</s>", "<unk>", "</s>"},
    tokenizer_class{"InternLM2", class_kind::as_written, "<s>", "</s>", "<unk>", "</s>"},
    tokenizer_class{"GPT2", class_kind::byte_level, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    tokenizer_class{"CodeGen", class_kind::byte_level, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    tokenizer_class{"GPTNeoX", class_kind::gpt_neox, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    tokenizer_class{"Qwen2", class_kind::qwen2, "", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    tokenizer_class{"Gemma", class_kind::gemma, "<bos>", "<eos>", "<unk>", "<pad>"},
    tokenizer_class{"Bloom", class_kind::as_written, "<s>", "</s>", "<unk>", "<pad>"},
    tokenizer_class{"Cohere", class_kind::cohere, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>"},
    tokenizer_class{"Roberta", class_kind::roberta, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Bart", class_kind::roberta, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"LED", class_kind::roberta, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Longformer", class_kind::roberta, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Mvp", class_kind::roberta, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Blenderbot", class_kind::blenderbot, "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Deberta", class_kind::byte_level, "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"Whisper", class_kind::byte_level, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    tokenizer_class{"Bert", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"DistilBert", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"Electra", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"MobileBert", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"LayoutLM", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"Lxmert", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"SqueezeBert", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"DPRContextEncoder", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"DPRQuestionEncoder", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"DPRReader", class_kind::bert, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"ConvBert", class_kind::as_written, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{"Funnel", class_kind::bert, "<s>", "</s>", "<unk>", "<pad>", "<cls>", "<sep>", "<mask>"},
    tokenizer_class{"MPNet", class_kind::mpnet, "<s>", "</s>", "[UNK]", "<pad>", "<s>", "</s>", "<mask>"},
    tokenizer_class{"Splinter", class_kind::mpnet, "", "", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"},
    tokenizer_class{""},
};

/// By name, such as GPT2TokenizerFast.
[[nodiscard]] constexpr const tokenizer_class& tokenizer_class_of(std::string_view name) {
  for (const std::string_view ending : {"Fast", "Tokenizer"})
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  const auto known = std::find_if(tokenizer_classes.begin(), tokenizer_classes.end() - 1, [&](const tokenizer_class& one) { return one.name == name; });
  return *known;
}

/// transformers' class of a model_type; empty if unknown.
[[nodiscard]] constexpr std::string_view class_of_model_type(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 61> known{{
      {"llama", "Llama"}, {"mistral", "Llama"}, {"mixtral", "Llama"}, {"phi3", "Llama"}, {"code_llama", "CodeLlama"},
      {"gpt2", "GPT2"}, {"gpt_neo", "GPT2"}, {"gptj", "GPT2"}, {"opt", "GPT2"}, {"starcoder2", "GPT2"},
      {"dbrx", "GPT2"}, {"codegen", "CodeGen"}, {"phi", "CodeGen"}, {"gpt_neox", "GPTNeoX"}, {"mpt", "GPTNeoX"},
      {"olmo", "GPTNeoX"}, {"olmoe", "GPTNeoX"}, {"mamba", "GPTNeoX"}, {"mamba2", "GPTNeoX"},
      {"falcon_mamba", "GPTNeoX"}, {"rwkv", "GPTNeoX"}, {"qwen2", "Qwen2"}, {"qwen2_moe", "Qwen2"},
      {"qwen2_vl", "Qwen2"}, {"qwen2_5_vl", "Qwen2"}, {"qwen3", "Qwen2"}, {"qwen3_moe", "Qwen2"},
      {"qwen3_next", "Qwen2"}, {"qwen3_vl", "Qwen2"}, {"qwen3_vl_moe", "Qwen2"}, {"gemma", "Gemma"},
      {"gemma2", "Gemma"}, {"gemma3", "Gemma"}, {"gemma3_text", "Gemma"}, {"gemma3n", "Gemma"},
      {"gemma3n_text", "Gemma"}, {"recurrent_gemma", "Gemma"}, {"bloom", "Bloom"}, {"cohere", "Cohere"},
      {"cohere2", "Cohere"}, {"roberta", "Roberta"}, {"roberta-prelayernorm", "Roberta"}, {"bart", "Bart"},
      {"led", "LED"}, {"longformer", "Longformer"}, {"mvp", "Mvp"}, {"blenderbot", "Blenderbot"},
      {"deberta", "Deberta"}, {"bert", "Bert"}, {"megatron-bert", "Bert"}, {"ernie", "Bert"}, {"nezha", "Bert"},
      {"distilbert", "DistilBert"}, {"electra", "Electra"}, {"mobilebert", "MobileBert"}, {"convbert", "Bert"},
      {"layoutlm", "LayoutLM"}, {"squeezebert", "SqueezeBert"}, {"lxmert", "Lxmert"}, {"mpnet", "MPNet"},
      {"splinter", "Splinter"}
  }};
  for (const auto& [model, name] : known)
    if (model == type) return name;
  return {};
}

/// transformers 5.24 loads tokenizer.json as written, whatever the class.
[[nodiscard]] constexpr bool is_loaded_as_written(std::string_view model_type) {
  constexpr std::array<std::string_view, 11> types{"mistral",  "mixtral", "phi3",        "internlm2", "internlm3", "stablelm",
                                                   "olmo2",    "granite", "gpt_bigcode", "glm",       "glm4"};
  return std::find(types.begin(), types.end(), model_type) != types.end();
}

}  // namespace xtrain::detail
