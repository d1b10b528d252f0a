// Training on the GPU's kernels, run on the host, asynchronously and captured.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/gemma2.hpp>
#include <xtrain/models/mixtral.hpp>

// kernels compute here, thread by thread
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2")
#endif
#include <xtrain/device/simt/simt.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

namespace {

using late_simt = testing::isolated<simt_device>;

template <class Device, class Adapter, class Objective>
struct on_device : defaults {
  using device = Device;
  using precision = bf16_mixed;
  using adapter = Adapter;
  using objective = Objective;
};

constexpr std::size_t length = 24, steps = 3, pieces = 2;
constexpr token vocabulary = 61;

/// Two rows, the second packed with two samples.
[[nodiscard]] host_batch packed_rows(std::size_t number) {
  host_batch batch{.b = 2, .t = length, .first_sequence = 2 * (number % pieces)};
  for (std::size_t i = 0; i < 2 * length; ++i) {
    const std::size_t at = i % length, start = i > length && at >= 15 ? 15 : 0;
    batch.tokens.push_back(static_cast<token>((i * i * 5 + number * 17) % vocabulary));
    batch.targets.push_back(at == 14 ? -1 : static_cast<token>((i * 3 + number * 29) % vocabulary));
    batch.positions.push_back(static_cast<token>(at - start));
    batch.starts.push_back(static_cast<token>(start));
    batch.target_count += batch.targets.back() >= 0 ? 1 : 0;
  }
  batch.token_count = 2 * length;
  return batch;
}
/// Two rows of masked words, the second with padding.
[[nodiscard]] host_batch masked_rows(std::size_t number) {
  std::vector<token> tokens, segments, mask, targets;
  for (std::size_t i = 0; i < 2 * length; ++i) {
    const bool is_word = i < length + 17;
    tokens.push_back(is_word ? static_cast<token>((i * i * 5 + number * 17) % vocabulary) : 0);
    segments.push_back(i % length < 9 ? 0 : 1);
    mask.push_back(is_word ? 1 : 0);
    targets.push_back(is_word && (i + number) % 5 == 0 ? static_cast<token>((i * 3 + number * 29) % vocabulary) : -1);
  }
  return sentence_batch({.b = 2, .t = length, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets}, 2 * (number % pieces));
}
/// A chosen and a rejected answer, with a reference model's log-probabilities.
[[nodiscard]] host_batch pair(std::size_t number) {
  host_batch batch = packed_rows(number);
  batch.targets.assign(2 * length, -1);
  batch.starts.assign(2 * length, 0);
  for (std::size_t i = 0; i < 2 * length; ++i) {
    batch.positions[i] = static_cast<token>(i % length);
    if (i % length >= 8) batch.targets[i] = static_cast<token>((i * 7 + number * 29) % vocabulary);
  }
  batch.target_count = 2 * (length - 8);
  batch.reference_log_probs = {-66.0, -65.5};
  return batch;
}
/// Two answers of a group, with their sampling log-probabilities.
[[nodiscard]] host_batch answers(std::size_t number) {
  host_batch batch = pair(number);
  batch.reference_log_probs.clear();
  batch.advantages = {0.75, -1.0};
  for (std::size_t i = 0; i < 2 * length; ++i) batch.old_log_probs.push_back(-4.1F + 0.01F * static_cast<float>(i % 7));
  return batch;
}

struct run {
  std::vector<double> losses, norms;
  testing::host_waits waits{};  // of the last step
};

template <class Model>
run take_steps(Model& model, host_batch (*rows)(std::size_t), bool captures) {
  trainer trainer(model, {.max_steps = steps, .micro_batch_size = 2, .gradient_accumulation_steps = pieces, .seq_length = length, .capture_steps = captures});
  run taken;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<host_batch> batches;
    for (std::size_t piece = 0; piece < pieces; ++piece) batches.push_back(rows(pieces * step + piece));
    testing::host_waits before;
    if constexpr (requires { model.context().waits(); }) before = model.context().waits();
    const step_done done = trainer.step(std::span<const host_batch>(batches), 3e-3);
    if constexpr (requires { model.context().waits(); }) taken.waits = model.context().waits().since(before);
    taken.losses.push_back(done.loss);
    taken.norms.push_back(done.gradient_norm);
  }
  return taken;
}

/// A few steps on the cpu and on the kernels, queued and captured. allowed: difference of losses; zero: a fraction 2⁻⁹ of the loss. After sums in another
/// order, a different rounding to bf16 changes an activation by a fraction 2⁻⁸; the loss averages such changes over tokens: half is allowed
template <template <class> class Family, class Adapter = no_adapter, class Objective = next_token, class Config>
void check(const char* name, const Config& sizes, host_batch (*rows)(std::size_t), double allowed = 0) {
  CAPTURE(name);
  constexpr bool has_adapter = !std::is_same_v<Adapter, no_adapter>, captured = std::is_same_v<Objective, next_token>;
  using expected_model = Family<on_device<cpu, Adapter, Objective>>;
  using model_type = Family<on_device<with_host_fallback<late_simt>, Adapter, Objective>>;
  const auto options = [&]<class Model>(const Model*) {
    typename Model::options all;
    if constexpr (has_adapter) all.adapter = {.rank = 4, .dropout = 0.1};
    return all;
  };
  expected_model on_cpu(sizes, typename expected_model::context_type{}, options(static_cast<expected_model*>(nullptr)));
  const run expected = take_steps(on_cpu, rows, false);
  const auto run_on_simt = [&](bool captures) {
    const typename model_type::context_type device(late_simt::context(simt_context({.seed = 3})));
    model_type model(sizes, device, options(static_cast<model_type*>(nullptr)));
    const run taken = take_steps(model, rows, captures);
    INFO(device.report());
    CHECK(device.fallbacks().empty());
    CHECK(taken.waits.synchronizations + taken.waits.event_waits == 1);
    CHECK(taken.waits.blocking_copies == 0);
    CHECK(taken.waits.replays == (captures ? 1 : 0));
    CHECK((taken.waits.launches == 0) == captures);
    return taken;
  };
  const run queued = run_on_simt(false);
  for (std::size_t i = 0; i < steps; ++i) CHECK(std::abs(queued.losses[i] - expected.losses[i]) < (allowed > 0 ? allowed : expected.losses[i] * 0x1p-9));
  CHECK(queued.losses[steps - 1] != queued.losses[0]);
  if constexpr (captured) {
    const run replayed = run_on_simt(true);
    CHECK(replayed.losses == queued.losses);
    CHECK(replayed.norms == queued.norms);
  }
}

[[nodiscard]] decoder_config decoder_sizes() {
  return {.vocab_size = vocabulary,
          .hidden_size = 32,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .intermediate_size = 48,
          .max_position_embeddings = length};
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on the GPU's kernels to the cpu's losses, without a kernel of the host, captured and not") {
  check<llama>("llama", decoder_sizes(), packed_rows);
  decoder_config sizes = decoder_sizes();
  sizes.num_kv_heads = 0;
  sizes.intermediate_size = 0;
  sizes.attention_dropout = sizes.residual_dropout = 0.1;
  check<gpt2>("gpt2", sizes, packed_rows);
}

TEST_CASE("a Mixtral with LoRA, a Gemma 2 and a BERT") {
  decoder_config experts = decoder_sizes();
  experts.num_experts = 4;
  experts.num_experts_per_token = 2;
  experts.balances_experts = true;
  experts.router_aux_loss_coef = 0.02;
  check<mixtral, lora>("mixtral with LoRA", experts, packed_rows);
  decoder_config capped = decoder_sizes();
  capped.head_dim = 16;
  capped.sliding_window = 7;
  capped.attn_logit_softcapping = 2.0;
  capped.final_logit_softcapping = 3.0;
  check<gemma2>("gemma2", capped, packed_rows);
  check<bert_masked_lm>("bert", encoder_config{.vocab_size = vocabulary, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = length},
                        masked_rows);
}

TEST_CASE("DPO and GRPO") {
  // β · (Δ of two sums of 16 log-probabilities near −ln 61), each with a loss's error; sigmoid's slope is at most 1
  check<llama, no_adapter, dpo>("dpo", decoder_sizes(), pair, 0.1 * 2 * 16 * std::log(61.0) * 0x1p-9);
  // a token's probability ratio has its log-probability's error, times an advantage of at most 1
  check<llama, no_adapter, grpo>("grpo", decoder_sizes(), answers, std::log(61.0) * 0x1p-9);
}
