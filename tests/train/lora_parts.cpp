// Adapters of parts of fused modules: torchtune's numbers, folders for PEFT, ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/adapt/qlora.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/models/phi3.hpp>
#include <xtrain/parallel.hpp>
#include "parity.hpp"
#include "ranks.hpp"

using parity::require_close;

namespace {

struct four_bits : defaults {
  using adapter = qlora;
};
struct plain : defaults {};

/// phi3's fixture as torchtune's model: RoPE on whole heads, no sliding window.
decoder_config torchtune_sizes() {
  decoder_config c = read_sizes<phi3_family>(golden::folder("phi3"));
  c.rotary_dim = 0;
  c.sliding_window = 0;
  return c;
}
const std::string fixture = golden::folder("phi3_lora_parts");

template <class Model>
Model with_weights(const typename Model::options& options = {}) {
  Model model(torchtune_sizes(), {}, options);
  load_weights(model, golden::folder("phi3"));
  return model;
}
template <class Recipe>
phi3<Recipe> with_adapter(double dropout = 0.0) {
  typename phi3<Recipe>::options options;
  static_cast<lora_config&>(options.adapter) = adapter_config_of(fixture);
  options.adapter.dropout = dropout;
  auto model = with_weights<phi3<Recipe>>(options);
  load_adapter(model, fixture);
  return model;
}

/// A parameter's values or gradients in file layout.
template <class Entry, class T>
std::vector<double> as_in_file(const Entry& entry, std::span<const T> values) {
  const std::vector<double> all(values.begin(), values.end());
  if (!entry.spec.blocks_in_files) return all;
  return xtrain::detail::blocks_to_file<double>(all, *entry.spec.blocks_in_files, entry.spec.shape[1]);
}

host_batch rows_of(const safetensors_file& expected, std::size_t step) {
  return golden::batch(golden::numbers(expected, "inputs"), golden::numbers(expected, "targets"), step * 22, 2, 11);
}

using axes = parallel<zero<1>, tensor_parallel>;

/// Runs to `steps` steps from the folder's newest checkpoint; the global batch is 8.
template <class Parallel>
void run_in(const std::string& folder, std::size_t ranks, typename Parallel::config layout, std::size_t steps, bool one_writer = false) {
  dataset data("numbers", sequence_layout::separate);
  for (std::size_t s = 0; s < 64; ++s) {
    std::vector<token> tokens;
    for (std::size_t i = 0; i < 8; ++i) tokens.push_back(static_cast<token>((s * 31 + i * i * 5) % 53));
    data.add(tokens, [](std::size_t i) { return i > 1; });
  }
  data.finish();
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    own.ranks = network;
    using model_type = phi3<lora_recipe<Parallel>>;
    typename model_type::options options{.adapter = adapter_config_of(fixture), .parallel = own};
    options.adapter.dropout = 0.25;
    auto model = with_weights<model_type>(options);
    load_adapter(model, fixture);
    const std::size_t others = model.parallel().data().size();
    trainer trainer(model, training_config<adamw>{.max_steps = steps,
                                                  .micro_batch_size = 2,
                                                  .gradient_accumulation_steps = 4 / others,
                                                  .learning_rate = 1e-3,
                                                  .lr_schedule = lr_schedule_kind::constant});
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3, .one_writer = one_writer});
    (void)checkpoints.resume();
    trainer.attach(checkpoints);
    trainer.fit(data);
  });
}

}  // namespace

TEST_CASE("loss, gradients and ten steps of Phi-3 with adapters of q_proj, v_proj, gate_proj and up_proj are torchtune's") {
  const safetensors_file expected(fixture + "/expected.safetensors");
  auto model = with_adapter<parity::lora_recipe>();
  require_close(parity::logits_of(model, rows_of(expected, 0)), golden::numbers(expected, "logits"), parity::fp32_logits, "logits");
  trainer trainer(model, training_config<adamw>{.max_steps = 10,
                                                .micro_batch_size = 2,
                                                .seq_length = 11,
                                                .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                                                .max_grad_norm = 0.0});
  const auto losses = golden::numbers(expected, "losses");
  const auto& store = model.parameters();
  {
    auto same = with_adapter<parity::lora_recipe>();
    xtrain::trainer one(same, training_config<adamw>{.max_steps = 1, .micro_batch_size = 2, .seq_length = 11, .max_grad_norm = 0.0});
    const host_batch rows = rows_of(expected, 0);
    CHECK(one.step(std::span<const host_batch>(&rows, 1), 0.0).loss == doctest::Approx(losses[0]).epsilon(1e-5));
    for (const auto& entry : same.parameters().entries()) {
      if (!entry.spec.trainable) continue;
      require_close(as_in_file(entry, std::span<const float>(same.parameters().gradient(entry).host())), golden::numbers(expected, "grad." + entry.spec.name),
                    parity::fp32_gradients, entry.spec.name);
    }
  }
  double error = 0;
  for (std::size_t step = 0; step < 10; ++step) {
    const host_batch rows = rows_of(expected, step);
    error = std::max(error, std::abs(trainer.step(std::span<const host_batch>(&rows, 1), 1e-2).loss - losses[step]));
  }
  MESSAGE("largest difference of a step's loss from torchtune's: ", error);
  CHECK(error < 1e-5);
  // ten steps of 1e-2; their direction m / sqrt(v) has the gradients' relative error
  for (const auto& entry : store.entries())
    if (entry.spec.trainable)
      require_close(as_in_file(entry, std::span<const float>(store.value(entry).host())), golden::numbers(expected, "last." + entry.spec.name),
                    {.absolute = 10 * 1e-2 * 1e-3, .relative = 1e-3}, entry.spec.name);
}

TEST_CASE("the folder of adapters of parts is what PEFT reads: saved again the same, merged the same") {
  const safetensors_file expected(fixture + "/expected.safetensors");
  const auto says_the_same = [&](auto& model, const std::string& what) {
    require_close(parity::logits_of(model, rows_of(expected, 0)), golden::numbers(expected, "logits"), parity::fp32_logits, what);
  };
  auto model = with_adapter<parity::lora_recipe>();
  const scratch_folder folder;
  save_pretrained(model, folder.path());
  CHECK(adapter_config_of(folder.path()) == model.settings().adapter);
  CHECK(json::parse(get_file(folder / "xtrain_parts.json")) == json::parse(get_file(fixture + "/xtrain_parts.json")));
  const json config = json::parse(get_file(folder / "adapter_config.json")), theirs = json::parse(get_file(fixture + "/adapter_config.json"));
  for (const auto& item : theirs.items())
    if (item.key() != "base_model_name_or_path") CHECK_MESSAGE(config.at(item.key()) == item.value(), item.key());
  const safetensors_file before(fixture + "/adapter_model.safetensors"), after(folder / "adapter_model.safetensors");
  CHECK(before.tensors().size() == after.tensors().size());
  for (const file_tensor& tensor : before.tensors()) {
    REQUIRE(after.find(tensor.name) != nullptr);
    CHECK(after.find(tensor.name)->shape == tensor.shape);
    CHECK(golden::numbers(before, tensor.name) == golden::numbers(after, tensor.name));
  }
  auto merged = with_weights<phi3<plain>>();
  merge_adapter(merged, folder.path());
  says_the_same(merged, "merged from its folder");
  merge_adapter(model);
  says_the_same(model, "merged");

  // PEFT's view, without our file: one adapter per module
  std::filesystem::remove(folder / "xtrain_parts.json");
  const lora_config whole = adapter_config_of(folder.path());
  CHECK(whole.parts.empty());
  CHECK(whole.rank_of("model.layers.0.self_attn.qkv_proj") == 6);
  CHECK(whole.scale_of("model.layers.0.self_attn.qkv_proj") == 4.0);
  auto one_each = with_weights<phi3<parity::lora_recipe>>({.adapter = whole});
  load_adapter(one_each, folder.path());
  says_the_same(one_each, "as adapters of whole modules");
  save_pretrained(one_each, folder.path());
  CHECK_FALSE(file_exists(folder / "xtrain_parts.json"));
}

TEST_CASE("adapters of parts that do not fit are refused by name") {
  const auto refused = [](const lora_config& adapter) -> std::string {
    try {
      (void)phi3<parity::lora_recipe>(torchtune_sizes(), {}, {.adapter = adapter});
    } catch (const config_error& problem) {
      return problem.what();
    }
    return "it is accepted";
  };
  CHECK(refused({.targets = {"qkv_proj"}, .parts = {{"qkv_proj", {"q_proj", "o_proj"}}}}) ==
        "lora: parts of 'model.layers.0.self_attn.qkv_proj' must be some of its parts, each once: q_proj, k_proj, v_proj; given 'o_proj'");
  CHECK(refused({.targets = {"qkv_proj"}, .parts = {{"qkv_proj", {"q_proj", "q_proj"}}}}).find("each once") != std::string::npos);
  CHECK(refused({.targets = {"o_proj"}, .parts = {{"o_proj", {"q_proj"}}}}) ==
        "lora: parts of 'model.layers.0.self_attn.o_proj' must be some of its parts, each once; it has none; given 'q_proj'");
  CHECK(refused({.targets = {"o_proj"}, .parts = {{"qkv_proj", {"q_proj"}}}}) == "lora: 'qkv_proj' must name a module with an adapter");
  CHECK(refused({.targets = {"qkv_proj"}, .parts = {{"qkv_proj", {}}}}) == "lora: parts of 'qkv_proj' must be named; none is given");
  CHECK(refused({.targets = {"qkv_proj"}, .parts = {{"qkv_proj", {"q_proj"}}}, .dora = true}) ==
        "lora: parts of 'qkv_proj' must not be decomposed (DoRA): they have LoRA alone");
  CHECK(refused({.targets = {"qkv_proj"}, .rank_pattern = {{"qkv_proj", 2}}, .parts = {{"qkv_proj", {"q_proj"}}}}).find("a pattern is given") !=
        std::string::npos);

  // an adapter of the fused module is not one of a part
  auto model = with_adapter<parity::lora_recipe>();
  const scratch_folder folder;
  save_pretrained(model, folder.path());
  std::filesystem::remove(folder / "xtrain_parts.json");
  CHECK_THROWS_WITH_AS(load_adapter(model, folder.path()), doctest::Contains("the parts of fused modules that have adapters of their own must be"),
                       config_error);
  auto whole = with_weights<phi3<parity::lora_recipe>>({.adapter = adapter_config_of(folder.path())});
  load_adapter(whole, folder.path());
  for (const auto& entry : whole.parameters().entries())
    if (entry.spec.name == "model.layers.1.self_attn.qkv_proj.lora_B.weight")
      whole.parameters().value(entry).host()[5] = 1.0f;  // q_proj's row, v_proj's column
  save_pretrained(whole, folder.path());
  put_file(folder / "xtrain_parts.json", get_file(fixture + "/xtrain_parts.json"));
  CHECK_THROWS_WITH_AS(load_adapter(model, folder.path()),
                       doctest::Contains("layers.1.self_attn.qkv_proj.lora_B.weight' must be zero but for the rows and columns of each part of a fused module; "
                                         "1 values are not"),
                       config_error);
  put_file(folder / "xtrain_parts.json", R"({"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]})");
  CHECK_THROWS_WITH_AS((void)adapter_config_of(folder.path()),
                       doctest::Contains("rank_pattern and alpha_pattern of adapter_config.json must be those of these"), config_error);
}

TEST_CASE("ranks that shard fused modules train and save adapters of their parts as one device does, and go on from its checkpoints") {
  const scratch_folder one, many, by_one, turns;
  run_in<data_parallel>(one.path(), 1, {}, 6);
  run_in<axes>(many.path(), 4, {.tensor_parallel_size = 2}, 6);
  run_in<axes>(by_one.path(), 4, {.tensor_parallel_size = 2}, 6, true);
  run_in<axes>(turns.path(), 4, {.tensor_parallel_size = 2}, 3);
  run_in<data_parallel>(turns.path(), 1, {}, 6);
  for (const char* file : {"adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json", "xtrain_parts.json"})
    CHECK_MESSAGE(get_file(many / concat("checkpoint-6/", file)) == get_file(by_one / concat("checkpoint-6/", file)), file);
  const safetensors_file expected(one / "checkpoint-6/adapter_model.safetensors"), start(fixture + "/adapter_model.safetensors");
  for (const scratch_folder* other : {&many, &turns}) {
    const safetensors_file saved(*other / "checkpoint-6/adapter_model.safetensors");
    for (const file_tensor& tensor : expected.tensors()) {
      // six steps of 1e-3 whose direction has the gradients' relative error
      require_close(golden::numbers(saved, tensor.name), golden::numbers(expected, tensor.name), {.absolute = 2e-5, .relative = 1e-4}, tensor.name);
      CHECK(golden::numbers(saved, tensor.name) != golden::numbers(start, tensor.name));
    }
  }
}

TEST_CASE("adapters of parts train beside weights in four bits") {
  const safetensors_file expected(fixture + "/expected.safetensors");
  auto model = with_adapter<four_bits>(0.1);
  trainer trainer(model, training_config<adamw>{.max_steps = 30, .micro_batch_size = 2, .seq_length = 11});
  const host_batch rows = rows_of(expected, 0);
  const double before = trainer.step(std::span<const host_batch>(&rows, 1), 1e-2).loss;
  CHECK(before == doctest::Approx(golden::numbers(expected, "losses")[0]).epsilon(0.2));
  double loss = before;
  for (std::size_t step = 1; step < 30; ++step) loss = trainer.step(std::span<const host_batch>(&rows, 1), 1e-2).loss;
  CHECK(loss < before - 1.0);
}
