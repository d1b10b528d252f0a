// Generation by llama.cpp, on its CPU backend: the line that decode.cpp prints of a folder.
//
//   decode_llamacpp FILE.gguf fp32|bf16|fp16 [PROMPT] [NEW] [BATCH] [TEMPERATURE] [TOP_P]     the dtype is only printed, and decides on that of the KV cache
//
// All prompts are one batch, the next tokens of all sequences are one batch. With a temperature of 0 (default) the most likely token is found here: no sampler
// sorts the vocabulary. Otherwise llama.cpp samples: its top-p, temperature and draw, without the top-k of 40 that its programs begin with.
// XTRAIN_THREADS is the number of threads, as for xtrain.
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/host_threads.hpp>

#include "../processors.hpp"

namespace {

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "decode_llamacpp: %s\n", what);
  std::exit(1);
}

[[nodiscard]] double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

class stopwatch {
 public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void add(llama_batch& batch, llama_token token, std::size_t position, std::size_t sequence, bool has_logits) {
  const auto i = static_cast<std::size_t>(batch.n_tokens++);
  batch.token[i] = token;
  batch.pos[i] = static_cast<llama_pos>(position);
  batch.n_seq_id[i] = 1;
  batch.seq_id[i][0] = static_cast<llama_seq_id>(sequence);
  batch.logits[i] = has_logits ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const processors_report processors;
  if (argc < 3) stop("needs FILE.gguf and the name of its dtype");
  const auto number = [&](int at, std::size_t otherwise) { return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise; };
  const std::size_t prompt = number(3, 512), fresh = number(4, 32), sequences = number(5, 1);
  const auto threads = static_cast<std::int32_t>(xtrain::detail::usable_processors(xtrain::detail::processors_of_process()));
  llama_log_set([](ggml_log_level level, const char* text, void*) { if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr); }, nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) stop("cannot load the file");
  llama_context_params how = llama_context_default_params();
  how.n_seq_max = static_cast<std::uint32_t>(sequences);
  how.n_ctx = static_cast<std::uint32_t>(sequences * (prompt + fresh));
  how.n_batch = how.n_ubatch = static_cast<std::uint32_t>(std::max<std::size_t>(sequences * prompt, 32));
  how.n_threads = how.n_threads_batch = threads;
  if (std::string(argv[2]) == "fp32") {
    how.type_k = how.type_v = GGML_TYPE_F32;
    how.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // which would decide on other tokens where two are nearly as likely
  }
  llama_context* context = llama_init_from_model(model, how);
  if (context == nullptr) stop("cannot make a context");
  const auto vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));

  const double temperature = argc > 6 ? std::strtod(argv[6], nullptr) : 0.0, top_p = argc > 7 ? std::strtod(argv[7], nullptr) : 1.0;
  llama_sampler* const sampler = llama_sampler_chain_init(llama_sampler_chain_default_params());
  if (top_p < 1.0) llama_sampler_chain_add(sampler, llama_sampler_init_top_p(static_cast<float>(top_p), 1));
  llama_sampler_chain_add(sampler, llama_sampler_init_temp(static_cast<float>(temperature)));
  llama_sampler_chain_add(sampler, llama_sampler_init_dist(42));

  llama_batch batch = llama_batch_init(static_cast<std::int32_t>(sequences * prompt), 0, 1);
  std::vector<double> prefill, decode;
  std::vector<std::vector<llama_token>> texts(sequences);
  const auto decode_batch = [&] {
    if (llama_decode(context, batch) != 0) stop("llama_decode has failed");
  };
  for (int round = 0; round < 4; ++round) {  // the first one warms up
    llama_memory_clear(llama_get_memory(context), true);
    for (auto& text : texts) text.clear();
    // the token after the i-th token of the batch, which has logits
    const auto take = [&](std::size_t sequence, std::size_t i) {
      if (temperature > 0) {
        texts[sequence].push_back(llama_sampler_sample(sampler, context, static_cast<std::int32_t>(i)));
        return;
      }
      const float* logits = llama_get_logits_ith(context, static_cast<std::int32_t>(i));
      texts[sequence].push_back(static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits));
    };
    batch.n_tokens = 0;
    for (std::size_t s = 0; s < sequences; ++s)
      for (std::size_t i = 0; i < prompt; ++i) {
        const auto token = static_cast<llama_token>(s > 0 && i == 0 ? s : xtrain::random_word({.seed = 1}, i) % vocabulary);
        add(batch, token, i, s, i + 1 == prompt);
      }
    const stopwatch first;
    decode_batch();
    for (std::size_t s = 0; s < sequences; ++s) take(s, (s + 1) * prompt - 1);
    const double seconds = first.seconds();
    const stopwatch second;
    for (std::size_t step = 1; step < fresh; ++step) {
      batch.n_tokens = 0;
      for (std::size_t s = 0; s < sequences; ++s) add(batch, texts[s].back(), prompt + step - 1, s, true);
      decode_batch();
      for (std::size_t s = 0; s < sequences; ++s) take(s, s);
    }
    if (round == 0) continue;
    decode.push_back(static_cast<double>(sequences * (fresh - 1)) / second.seconds());
    prefill.push_back(static_cast<double>(sequences * prompt) / seconds);
  }
  std::printf("llama.cpp %s batch %zu, %d threads: prefill %.1f tokens/s, decode %.1f tokens/s, tokens", argv[2], sequences, threads, median(prefill),
              median(decode));
  for (const auto& text : texts)
    for (const llama_token t : text) std::printf(" %d", t);
  std::printf("\n");
  llama_sampler_free(sampler);
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
}
