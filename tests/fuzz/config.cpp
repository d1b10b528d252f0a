// A config.json, read by every family; a model is constructed from an accepted one, within a small memory limit.
#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/chatglm1.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {};

/// Deeper models would be correct, but slow.
constexpr std::size_t max_layers = 32;

template <class Model>
bool read_as() {
  using family = typename Model::family;
  return fuzz::reads([] {
    const decoder_config raw = read_sizes<family>(fuzz::folder().path());
    decoder_config sizes = raw;
    family::complete(sizes);
    detail::complete_decoder(sizes, family::name);
    fuzz::must(sizes.num_kv_heads > 0 && sizes.num_heads % sizes.num_kv_heads == 0, "heads must be divisible by num_kv_heads");
    fuzz::must(sizes.head_dim > 0 && sizes.intermediate_size > 0, "sizes that were left out must be chosen");
    for (const token t : sizes.eos) fuzz::must(t >= 0, "tokens must not be negative");

    // written again, the sizes are the same
    json_settings written;
    written.set("model_type", family::name);
    family::write(sizes, written);
    const decoder_config again = family::read(json_settings(parse_json(written.object().dump(), "again"), "again"));
    fuzz::must(again.vocab_size == sizes.vocab_size && again.hidden_size == sizes.hidden_size && again.num_layers == sizes.num_layers &&
                   again.num_heads == sizes.num_heads && again.intermediate_size == sizes.intermediate_size &&
                   again.max_position_embeddings == sizes.max_position_embeddings &&
                   again.tie_word_embeddings == sizes.tie_word_embeddings && again.bos == sizes.bos &&
                   again.norm_epsilon == sizes.norm_epsilon && again.rope_theta == sizes.rope_theta &&
                   again.attention_dropout == sizes.attention_dropout,
               "sizes must survive being written");

    if (sizes.num_layers > max_layers) return;
    const cpu::context small(cpu::config{.threads = 1, .memory_limit = std::size_t{1} << 20});
    const Model model(typename Model::uninitialised_t{}, raw, small, {});
    fuzz::must(model.parameters().count() * sizeof(float) <= small.memory_limit(), "a model must fit the memory it is allowed");
    std::size_t numbers = 0;
    for (const auto& entry : model.parameters().entries()) {
      fuzz::must(entry.offset + entry.size() <= small.memory_limit() / sizeof(float), "every parameter must lie in the model's memory");
      numbers += entry.size();
    }
    fuzz::must(numbers >= sizes.vocab_size * sizes.hidden_size, "the embedding must be part of the model");
  });
}

/// For encoders.
template <class Model>
bool reads_encoder() {
  using family = typename Model::family;
  return fuzz::reads([] {
    const encoder_config raw = read_sizes<family>(fuzz::folder().path());
    encoder_config sizes = raw;
    family::complete(sizes);
    detail::complete_encoder(sizes, family::name);
    fuzz::must(sizes.num_heads > 0 && sizes.hidden_size % sizes.num_heads == 0 && sizes.segments > 0, "heads must divide the width");

    json_settings written;
    family::write(sizes, written);
    const encoder_config again = family::read(json_settings(parse_json(written.object().dump(), "again"), "again"));
    fuzz::must(again.vocab_size == sizes.vocab_size && again.hidden_size == sizes.hidden_size && again.intermediate_size == sizes.intermediate_size &&
                   again.segments == sizes.segments && again.norm_epsilon == sizes.norm_epsilon && again.pad_token_id == sizes.pad_token_id &&
                   again.label_dropout == sizes.label_dropout,
               "sizes must survive being written");

    if (sizes.num_layers > max_layers) return;
    const cpu::context small(cpu::config{.threads = 1, .memory_limit = std::size_t{1} << 20});
    const Model model(typename Model::uninitialised_t{}, raw, small, {});
    fuzz::must(model.parameters().count() * sizeof(float) <= small.memory_limit(), "a model must fit the memory it is allowed");
  });
}

/// As overriding settings: accepted or rejected like a config.json.
void replaces_settings() {
  (void)fuzz::reads([] {
    json_settings theirs;
    for (const char* size : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) theirs.set(size, 8);
    theirs.set("model_type", "llama");
    const json_settings with = read_config(fuzz::folder().path());
    const auto result = override_settings<llama_family>(theirs, with);
    fuzz::must(result.changes.size() + result.unknown.size() >= with.object().size(), "every setting must be replaced or told");
    (void)sizes_of<llama_family>(result.settings);
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  put_file(fuzz::folder() / "config.json", fuzz::text_of(data, size));
  const bool as_gpt2 = read_as<gpt2<recipe>>(), as_llama = read_as<llama<recipe>>();
  const bool as_glm = read_as<chatglm1<recipe>>();
  const bool as_bert = reads_encoder<bert_classifier<recipe>>();
  (void)reads_encoder<bert_pretraining<recipe>>();
  replaces_settings();
  fuzz::must(as_gpt2 + as_llama + as_glm + as_bert <= 1, "a config.json must be of one family");
  fuzz::accepted = as_gpt2 || as_llama || as_glm || as_bert;
  return 0;
}
