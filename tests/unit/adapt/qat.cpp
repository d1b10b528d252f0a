// Quantization-aware training: rounding, gradients and steps of torchao's layers; whole models.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/io/quantized_weights.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/reference_model.hpp>
#include "golden.hpp"
#include "scratch.hpp"
#include "small_decoder.hpp"

using namespace xtrain;

namespace {

using small_decoder::data;
using small_decoder::difference;
decoder_config sizes() { return small_decoder::sizes(0.3); }

struct plain_recipe : defaults {};
struct qat_recipe : defaults {
  using adapter = qat;
};
struct double_recipe : qat_recipe {
  using precision = fp64;
};
using plain_model = llama<plain_recipe>;
using qat_model = llama<qat_recipe>;

/// The fixture's two layers, and their pass.
struct two_layers {
  cpu::context on;
  cpu::stream stream{on};
  parameter_store<cpu, fp64> store{on};
  qat::config settings;
  builder<double_recipe> build{store, settings};
  linear<double_recipe> up{build, {{"up", 12}}, 8, {}}, down{build, {{"down", 3}}, 12, {}};
  single::state<cpu> parallel{single::config{}};
  stash<cpu> kept{on, std::size_t{1} << 16};
  arena<cpu> workspace{on, std::size_t{1} << 20, memory_role::workspace};

  explicit two_layers(const safetensors_file& file, const qat::config& of = {.group_size = 4}) : settings(of) {
    store.allocate();
    store.allocate_gradients();
    for (const char* name : {"up", "down"}) {
      const auto values = golden::numbers(file, name);
      store.set(stream, *store.find(concat(name, ".weight")), std::span<const double>(values));
    }
  }
  /// y = down(up(x)); with dy also gradients.
  void run(const std::vector<double>& x, const std::vector<double>& target, std::vector<double>& y, std::vector<double>& dx) {
    const std::size_t n = x.size() / 8;
    std::vector<double> h(n * 12), dh(n * 12), dy(n * 3);
    const auto of = [n](auto& values, std::size_t columns) { return matrix_view<double, host_memory>(span_of(std::span<double>(values)), {n, columns}); };
    std::vector<double> input = x;
    pass<double_recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
    fill_zero(stream, store.gradients());
    up.forward(p, of(input, 8), of(h, 12));
    down.forward(p, of(h, 12), of(y, 3));
    for (std::size_t i = 0; i < y.size(); ++i) dy[i] = y[i] - target[i];
    down.backward(p, of(h, 12), of(dy, 3), of(dh, 12));
    up.backward(p, of(input, 8), of(dh, 12), of(dx, 8), ops::result::is_added);
  }
  [[nodiscard]] std::span<double> values(const std::string& name) { return store.value(*store.find(name + ".weight")).host(); }
  [[nodiscard]] std::span<double> gradients(const std::string& name) { return store.gradient(*store.find(name + ".weight")).host(); }
};

template <class Model>
std::vector<float> weights_of(const Model& model) {
  const auto values = model.parameters().trained_values().host();
  return {values.begin(), values.end()};
}
template <class Model>
std::vector<float> trained(std::size_t steps, const typename Model::options& options, std::size_t micro_batch = 8, double* loss = nullptr) {
  Model model(sizes(), {}, options);
  trainer trainer(model, {.max_steps = steps,
                          .micro_batch_size = micro_batch,
                          .gradient_accumulation_steps = 8 / micro_batch,
                          .learning_rate = 1e-2,
                          .optimizer = {.epsilon = 1e-4}});
  trainer.fit(data());
  if (loss != nullptr) *loss = trainer.evaluate(data()).loss;
  return weights_of(model);
}

}  // namespace

TEST_CASE("output, gradients and twenty steps are those of torchao's layers, of both quantizers") {
  for (const bool weights_only : {false, true}) {
    CAPTURE(weights_only);
    const safetensors_file file(golden::folder("qat") + (weights_only ? "/weights_only.safetensors" : "/expected.safetensors"));
    two_layers layers(file, {.group_size = 4, .quantizes_activations = !weights_only, .float_zero_points = weights_only});
    const auto x = golden::numbers(file, "x"), target = golden::numbers(file, "target");
    std::vector<double> y(target.size()), dx(x.size(), 1.0);
    layers.run(x, target, y, dx);
    // sums of up to 24 products of numbers up to 100, in another order: 24 · 2^-53 · 1e4; one wrong rounding would be 1e-2
    constexpr double bound = 3e-11;
    CHECK(difference(y, golden::numbers(file, "y")) < bound);
    for (double& d : dx) d -= 1.0;  // added to the previous value
    CHECK(difference(dx, golden::numbers(file, "dx")) < bound);
    CHECK(difference(layers.gradients("up"), golden::numbers(file, "dup")) < bound);
    CHECK(difference(layers.gradients("down"), golden::numbers(file, "ddown")) < bound);
    const auto losses = golden::numbers(file, "losses");
    REQUIRE(losses.size() == 20);
    for (std::size_t step = 0; step < losses.size(); ++step) {
      INFO("step ", step);
      for (const char* name : {"up", "down"}) {  // equal initial weights: see make_qat.py
        const auto all = golden::numbers(file, concat(name, "_steps"));
        const auto own = layers.values(name);
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(step * own.size()), own.size(), own.begin());
      }
      layers.run(x, target, y, dx);
      double loss = 0;
      for (std::size_t i = 0; i < y.size(); ++i) loss += 0.5 * (y[i] - target[i]) * (y[i] - target[i]);
      CHECK(loss == doctest::Approx(losses[step]).epsilon(1e-10));
      for (const char* name : {"up", "down"}) {
        const auto all = golden::numbers(file, concat(name, "_steps"));
        const auto own = layers.values(name);
        for (std::size_t i = 0; i < own.size(); ++i) own[i] -= 0.002 * layers.gradients(name)[i];
        const auto next = all.begin() + static_cast<std::ptrdiff_t>((step + 1) * own.size());
        CHECK(difference(own, {next, next + static_cast<std::ptrdiff_t>(own.size())}) < bound);
      }
    }
  }
}

TEST_CASE("int4 with zero points in floating point is torchao's bit for bit, in fp32 and in bf16") {
  const safetensors_file file(golden::folder("qat") + "/weights_only.safetensors");
  const auto check = [&]<class T>(T, const char* name) {
    std::vector<T> w, mine(96);
    for (const double value : golden::numbers(file, "up")) w.push_back(static_cast<T>(static_cast<float>(value)));
    const cpu::context on;
    cpu::stream stream(on);
    arena<cpu> workspace(on, std::size_t{1} << 16, memory_role::workspace);
    execution<cpu> where{stream, workspace, on.properties()};
    ops::fake_quantize<cpu, T>(where, matrix_view<T, host_memory>(span_of(std::span<T>(w)), {12, 8}), 4, {.bits = 4, .zeros = zero_points::floating},
                               matrix_view<T, host_memory>(span_of(std::span<T>(mine)), {12, 8}));
    CHECK(difference(mine, golden::numbers(file, name)) == 0);
  };
  check(float{}, "rounded_float");
  check(bf16{}, "rounded_bf16");
}

TEST_CASE("a model learns with rounded weights, the same in one micro-batch and in four; the first steps may be those without") {
  const qat_model::options rounded{.adapter = {.group_size = 8}};
  double before = 0, after = 0;
  (void)trained<qat_model>(1, rounded, 8, &before);
  (void)trained<qat_model>(30, rounded, 8, &after);
  CHECK(after < 0.7 * before);
  // micro-batches add gradients in another order; AdamW with epsilon 1e-4 and rate 1e-2 changes weights by 100 times as much
  const auto in_one = trained<qat_model>(1, rounded), in_four = trained<qat_model>(1, rounded, 2);
  CHECK(difference(in_one, {in_four.begin(), in_four.end()}) < 1e-4);
  CHECK(trained<plain_model>(3, {}) != trained<qat_model>(3, rounded));
  CHECK(trained<qat_model>(3, {.adapter = {.group_size = 8, .quantizes_activations = false}}) != trained<qat_model>(3, rounded));
  const qat_model::options late{.adapter = {.group_size = 8, .fake_quant_after_n_steps = 3}};
  CHECK(trained<plain_model>(3, {}) == trained<qat_model>(3, late));
  CHECK(trained<plain_model>(5, {}) != trained<qat_model>(5, late));  // the last step of the schedule has rate 0
}

TEST_CASE("the weights themselves are saved; logits are those of rounded weights") {
  const scratch_folder folder;
  qat_model model(sizes(), {}, {.adapter = {.group_size = 8, .quantizes_activations = false}});
  save_pretrained(model, folder.path());
  auto plain = plain_model::from_pretrained(folder.path());
  CHECK(weights_of(plain) == weights_of(model));
  const array<token, 2> tokens{{1, 2, 3, 4, 5}};
  CHECK(logits(model, tokens) != logits(plain, tokens));
  // a reference model uses unrounded weights
  const auto log_probs = [](auto& of) {
    reference_model source(of, {.micro_batch_size = 1});
    host_batch batch;
    batch.b = 1;
    batch.t = 4;
    batch.tokens = {1, 2, 3, 4};
    batch.targets = {2, 3, 4, 5};
    batch.positions = {0, 1, 2, 3};
    batch.starts = {0, 0, 0, 0};
    return source.token_log_probs(batch);
  };
  CHECK(log_probs(model) == log_probs(plain));
}

TEST_CASE("files with quantized values compute what quantization-aware training computes, and packed ones hold the same values") {
  const scratch_folder folder;
  save_pretrained(plain_model(sizes()), folder / "plain");
  const weight_folder source(folder / "plain");
  const array<token, 2> tokens{{1, 2, 3, 4, 5}};
  for (const bool zeros : {false, true}) {
    const weight_quantization quantization{.format = {.bits = 4, .zeros = zeros ? zero_points::floating : zero_points::none}, .group_size = 8};
    const auto names = quantized_weights(source, false, quantization);
    CHECK(names.size() == 2 * 7);
    std::vector<tensor_to_write> tensors;
    for (const auto& [name, tensor] : source.tensors())
      tensors.push_back(std::count(names.begin(), names.end(), name) > 0 ? with_quantized_values(*tensor, false, quantization, "F32")
                                                                         : rewritten(*tensor, "F32"));
    const std::string to = folder / (zeros ? "floating" : "symmetric");
    make_folder(to);
    write_file(to + "/config.json", mapped_file(folder / "plain" + "/config.json").text());
    write_weights(to, std::move(tensors), std::size_t{1} << 20);
    auto rounded = plain_model::from_pretrained(to);
    const qat::config as_training{.group_size = 8, .quantizes_activations = false, .float_zero_points = zeros};
    auto rounding = qat_model::from_pretrained(folder / "plain", {}, {.adapter = as_training});
    CHECK(logits(rounding, tokens) == logits(rounded, tokens));
  }
  // eight integers of a group, plus 8, in 32 bits
  const weight_quantization quantization{.group_size = 8};
  const file_tensor& w = *source.find("model.layers.1.mlp.down_proj.weight");
  std::vector<std::vector<std::byte>> parts;
  for (const tensor_to_write& part : packed_in_four_bits(w, quantization)) {
    parts.emplace_back();
    part.produce([&](const void* data, std::size_t n) {
      parts.back().insert(parts.back().end(), static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + n);
    });
    CHECK(parts.back().size() == part.bytes);
  }
  std::vector<float> expected(w.size());
  with_quantized_values(w, false, quantization, "F32").produce([&](const void* data, std::size_t n) { std::memcpy(expected.data(), data, n); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float scale = 0;
    std::memcpy(&scale, parts[1].data() + i / 8 * sizeof(float), sizeof(float));
    const int code = std::to_integer<int>(parts[0][i / 2] >> (i % 2 * 4)) % 16 - 8;
    CHECK(static_cast<float>(code) * scale == expected[i]);
  }
  // the file holds [in, out]: columns are groups
  const std::vector<float> one = {0.1f, 7.5f, -0.7f, -15.0f, 0.75f, 3.1f};  // columns 0.1, -0.7, 0.75 and 7.5, -15, 3.1
  const file_tensor transposed{.name = "h.0.w.weight", .dtype = "F32", .shape = {3, 2}, .bytes = std::as_bytes(std::span(one))};
  std::vector<float> columns(6);
  with_quantized_values(transposed, true, {.group_size = 3}, "F32").produce([&](const void* data, std::size_t n) { std::memcpy(columns.data(), data, n); });
  for (std::size_t i = 0; i < 6; ++i) {  // scales are 0.1 and 2, or the next number
    const float scale = i % 2 == 0 ? 0.1f : 2.0f;
    CHECK(columns[i] == doctest::Approx(std::clamp(std::nearbyint(one[i] / scale), -8.0f, 7.0f) * scale));
  }
  CHECK_THROWS_WITH_AS((void)quantized_weights(source, false, {.group_size = 16}),
                       "quantized weights: groups must divide the inputs of every linear layer; 'model.layers.0.mlp.down_proj.weight' has 24, a group 16",
                       config_error);
}

TEST_CASE("what cannot be rounded is refused") {
  CHECK_THROWS_WITH_AS(qat_model(sizes(), {}, {.adapter = {.group_size = 32}}),
                       "qat: group_size must divide the inputs of every linear layer; 'model.layers.0.self_attn.q_proj' has 16, group_size is 32",
                       config_error);
}
