// A small drawn run, and its results on any ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mixtral.hpp>

namespace equality {

using namespace xtrain;

/// What is trained: a model family and recipe options. gpt2's head is tied to its embedding.
enum class kind : std::uint8_t { llama, llama_adapted, gpt2_recomputing, mixtral, mixtral_adapted };

[[nodiscard]] constexpr std::string_view name_of(kind k) {
  constexpr std::string_view names[] = {"llama", "llama, LoRA, recomputed", "gpt2, recomputed", "mixtral", "mixtral, LoRA, recomputed"};
  return names[static_cast<std::size_t>(k)];
}
[[nodiscard]] constexpr bool has_experts(kind k) { return k == kind::mixtral || k == kind::mixtral_adapted; }
[[nodiscard]] constexpr bool is_adapted(kind k) { return k == kind::llama_adapted || k == kind::mixtral_adapted; }

/// The axes of a strategy type; their sizes are drawn.
struct sharded_axes {
  bool tensor = false, context = false, expert = false, stages = false, states = false;
  bool backwards = false;  // in two parts, where the schedule supports that
};

/// The mesh and other parallel settings.
struct drawn_mesh {
  std::size_t ranks = 1, data = 1, tensor = 1, context = 1, depth = 1, expert = 1;
  std::size_t shards = 0, chunks = 1, schedule = 0;
  std::vector<std::size_t> rows{};  // sequences of each micro-batch, where they differ
};

/// A run's values that are not types.
struct drawn_run {
  kind what = kind::llama;
  decoder_config shape{};
  training_config<adamw> settings{};  // per rank
  lora_config adapter{};
  sequence_layout layout = sequence_layout::separate;
  drawn_mesh mesh{};
};

/// Weights are unsharded and on the first rank only; other results are on all ranks.
struct outcome {
  std::vector<double> losses, norms, weights;
  double held_out = 0;
};

[[nodiscard]] inline dataset samples(sequence_layout layout) {
  dataset all("samples", layout);
  for (std::size_t s = 0; s < 96; ++s) {
    const std::size_t length = layout == sequence_layout::packed ? 3 + (s * 5) % 9 : 5 + (s * 7) % 18;
    std::vector<token> tokens;
    for (std::size_t i = 0; i < length; ++i) tokens.push_back(static_cast<token>((s * 31 + i * i * 5) % 97));
    all.add(tokens, [](std::size_t i) { return i > 1; });
  }
  all.finish();
  return all;
}

template <class Model>
[[nodiscard]] outcome train(const drawn_run& run, const training_config<adamw>& settings, const typename Model::options& options) {
  const dataset data = samples(run.layout);
  const cpu::context on({.threads = 1});
  Model model(run.shape, on, options);
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  outcome found{{seen.losses().begin(), seen.losses().end()}, {seen.gradient_norms().begin(), seen.gradient_norms().end()}, {}, 0};
  found.held_out = trainer.evaluate(data).loss;
  using dtype = typename Model::precision::parameter;
  for (const auto& entry : model.parameters().entries()) {
    std::vector<dtype> whole(entry.whole_size());
    model.parallel().collect(model.stream(), model.parameters(), entry, model.parameters().stored_values(), std::span<dtype>(whole));
    found.weights.insert(found.weights.end(), whole.begin(), whole.end());
  }
  return found;
}

template <class Parallel>
struct plain_recipe : defaults {
  using parallel = Parallel;
};
template <class Parallel>
struct recomputing_recipe : plain_recipe<Parallel> {
  using recompute = recompute_full;
};
template <class Parallel>
struct adapted_recipe : recomputing_recipe<Parallel> {
  using adapter = lora;
};

/// Calls use.template operator()<Model>() for the kind's model.
template <class Parallel, class Use>
decltype(auto) with_dense_model(kind what, Use&& use) {
  switch (what) {
    case kind::llama: return use.template operator()<llama<plain_recipe<Parallel>>>();
    case kind::llama_adapted: return use.template operator()<llama<adapted_recipe<Parallel>>>();
    default: return use.template operator()<gpt2<recomputing_recipe<Parallel>>>();
  }
}

/// The run on one device with the entire global batch. Compiled once, in alone.cpp.
[[nodiscard]] outcome train_alone(const drawn_run& run);

/// The program's strategy: axes, trainable models, and how a rank trains its part.
struct combination {
  std::string_view name;
  sharded_axes axes;
  std::vector<kind> kinds;
  outcome (*train)(const drawn_run&, const std::shared_ptr<transport>&);
};
[[nodiscard]] combination this_combination();

/// A pipeline's schedules, chosen at run time: one compiled trainer for all.
struct schedule_choice {
  std::string_view name;
  bool has_chunks;  // a rank may have several stages
  bool groups;      // micro-batches must be a multiple of the ranks of a pipeline
};
/// The last only for backwards in two parts.
inline constexpr schedule_choice schedules[] = {{"gpipe", false, false}, {"one_forward_one_backward", false, false}, {"interleaved", true, true},
                                                {"all_in_all_out", true, false}, {"zero_bubble", false, false}};

}  // namespace equality
