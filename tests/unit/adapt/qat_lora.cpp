// Quantization-aware LoRA: output and gradients of torchtune's layer; whole models.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/adapt/qat_lora.hpp>
#include <xtrain/io.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/models/llama.hpp>
#include "golden.hpp"
#include "scratch.hpp"
#include "small_decoder.hpp"

using namespace xtrain;

namespace {

using small_decoder::data;
using small_decoder::difference;
decoder_config sizes() { return small_decoder::sizes(0.3); }

struct rounding_recipe : defaults {
  using adapter = qat_lora;
};
struct rounding_fp64_recipe : rounding_recipe {
  using precision = fp64;
};
struct low_rank_recipe : defaults {
  using adapter = lora;
};
using rounding_model = llama<rounding_recipe>;

rounding_model::options options(const lora_config& low_rank) { return {.adapter = {low_rank, {.group_size = 8}}}; }

}  // namespace

TEST_CASE("output and gradients are those of torchtune's layer; a module without an adapter is not rounded") {
  const safetensors_file file(golden::folder("qat") + "/lora.safetensors");
  cpu::context on;
  cpu::stream stream(on);
  parameter_store<cpu, fp64> store(on);
  qat_lora::config settings{{.rank = 2, .alpha = 3.0, .targets = {"q", "v"}}, {.group_size = 4}};
  builder<rounding_fp64_recipe> build(store, settings);
  const linear<rounding_fp64_recipe> layer(build, {{"m.q", 6}, {"m.k", 4}, {"m.v", 3}}, 8, {});
  single::state<cpu> parallel(single::config{});
  stash<cpu> kept(on, std::size_t{1} << 16);
  arena<cpu> workspace(on, std::size_t{1} << 20, memory_role::workspace);
  store.allocate();
  store.allocate_gradients();
  const auto set = [&](const std::string& name, const std::string& of) {
    const auto values = golden::numbers(file, of);
    store.set(stream, *store.find(name), std::span<const double>(values));
  };
  for (const std::string name : {"q", "k", "v"}) set(concat("m.", name, ".weight"), name);
  for (const std::string name : {"q", "v"}) {
    set(concat("m.", name, lora_names::a), name + ".a");
    set(concat("m.", name, lora_names::b), name + ".b");
  }
  constexpr std::size_t n = 5;
  auto x = golden::numbers(file, "x"), dy = golden::numbers(file, "dy");
  std::vector<double> y(n * 13), dx(n * 8, 1.0);
  const auto of = [](auto& values, std::size_t columns) { return matrix_view<double, host_memory>(span_of(std::span<double>(values)), {n, columns}); };
  pass<rounding_fp64_recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
  fill_zero(stream, store.gradients());
  layer.forward(p, of(x, 8), of(y, 13));
  layer.backward(p, of(x, 8), of(dy, 13), of(dx, 8), ops::result::is_added);
  // sums of up to 13 products of numbers up to 10, in another order: 13 · 2^-53 · 100; one wrong rounding would be 1e-2
  constexpr double bound = 2e-13;
  CHECK(difference(y, golden::numbers(file, "y")) < bound);
  auto added = dx;
  for (double& d : added) d -= 1.0;
  CHECK(difference(added, golden::numbers(file, "dx")) < bound);
  layer.backward(p, of(x, 8), of(dy, 13), of(dx, 8));  // replaced; gradients add up
  CHECK(difference(dx, golden::numbers(file, "dx")) < bound);
  for (const std::string name : {"q", "v"})
    for (const auto& [parameter, expected] : {std::pair{lora_names::a, ".da"}, {lora_names::b, ".db"}}) {
      auto twice = golden::numbers(file, name + expected);
      for (double& one : twice) one *= 2.0;
      CHECK(difference(store.gradient(*store.find(concat("m.", name, parameter))).host(), twice) < 2 * bound);
    }
  // without rounding the layer equals lora's
  p.internal.without_fake_quantization = true;
  std::vector<double> plain(n * 13);
  layer.forward(p, of(x, 8), of(plain, 13));
  CHECK(difference(plain, y) > 1e-3);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t o = 6; o < 10; ++o) CHECK(plain[i * 13 + o] == y[i * 13 + o]);
}

TEST_CASE("an adapter on rounded weights learns, the same in one micro-batch and in four, and is saved as a LoRA adapter") {
  const lora_config low_rank{.rank = 4, .targets = {"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};
  const auto trained = [&](std::size_t steps, std::size_t micro_batch, const std::string& folder = {}) {
    rounding_model model(sizes(), {}, options(low_rank));
    trainer trainer(model, {.max_steps = steps,
                            .micro_batch_size = micro_batch,
                            .gradient_accumulation_steps = 8 / micro_batch,
                            .learning_rate = 3e-2,
                            .optimizer = {.epsilon = 1e-4}});
    const double before = trainer.evaluate(data()).loss;
    trainer.fit(data());
    if (!folder.empty()) {
      save_pretrained(model, folder + "/base");
      trainer.save(folder + "/adapter", save_adapter_options{});
      CHECK(trainer.evaluate(data()).loss < 0.7 * before);
    }
    const auto values = model.parameters().trained_values().host();
    return std::vector<double>(values.begin(), values.end());
  };
  const scratch_folder folder;
  (void)trained(40, 8, folder.path());
  // micro-batches add gradients in another order; AdamW with epsilon 1e-4 and rate 3e-2 changes weights by 300 times as much
  CHECK(difference(trained(1, 8), trained(1, 2)) < 3e-4);

  llama<low_rank_recipe> plain(sizes(), {}, {.adapter = low_rank});
  load_adapter(plain, folder / "adapter");
  rounding_model again(sizes(), {}, options(low_rank));
  load_adapter(again, folder / "adapter");
  const array<token, 2> tokens{{1, 2, 3, 4, 5}};
  CHECK(logits(plain, tokens) != logits(again, tokens));
  // inputs are rounded, too; already rounded weights leave the rest equal
  rounding_model weights_alone(sizes(), {}, {.adapter = {low_rank, {.group_size = 8, .quantizes_activations = false}}});
  load_adapter(weights_alone, folder / "adapter");
  const cpu::context on;
  cpu::stream stream(on);
  arena<cpu> workspace(on, std::size_t{1} << 16, memory_role::workspace);
  execution<cpu> where{stream, workspace, on.properties()};
  for (const auto& entry : plain.parameters().entries()) {
    if (!entry.spec.name.ends_with("_proj.weight") || entry.spec.name.find("k_proj") != std::string::npos) continue;
    const matrix_view<float, host_memory> w(plain.parameters().value(entry), {entry.spec.shape[0], entry.spec.shape[1]});
    ops::fake_quantize<cpu, float>(where, w, 8, {.bits = 4}, w);
  }
  CHECK(logits(weights_alone, tokens) == logits(plain, tokens));
}

TEST_CASE("what has no rounded update is refused") {
  CHECK_THROWS_WITH_AS(rounding_model(sizes(), {}, options({.dora = true})), "qat_lora: rows of weights that are rounded must not be decomposed (DoRA)",
                       config_error);
  CHECK_THROWS_WITH_AS(rounding_model(sizes(), {}, {.adapter = {{.targets = {"down_proj"}}, {.group_size = 32}}}),
                       "qat: group_size must divide the inputs of every linear layer; 'model.layers.0.mlp.down_proj' has 24, group_size is 32", config_error);
  CHECK_THROWS_WITH_AS(rounding_model(sizes(), {}, options({.targets = {"q_proj", "lm_head"}})),
                       "qat_lora: targets must be layers whose weights are rounded; the head, 'lm_head', is not", config_error);
  // layers without an adapter need not be divisible
  CHECK_NOTHROW(rounding_model(sizes(), {}, {.adapter = {{.targets = {"q_proj"}}, {.group_size = 16}}}));
}
