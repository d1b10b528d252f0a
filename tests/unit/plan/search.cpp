// A search finds what fits, reports its needs, and puts the fastest first.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>

#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/search.hpp>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {
  using precision = bf16_mixed;
};
using model_type = llama<recipe>;
using strategy = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>;
struct divided : recipe {
  using parallel = strategy;
};

decoder_config four_layers() {
  decoder_config shape = planned_run::sizes();
  shape.num_layers = 4;
  shape.num_kv_heads = 4;
  return shape;
}
constexpr std::size_t devices = 8;

std::vector<found_plan> small_search(const machine& on) {
  return search_plans<model_type, strategies<strategy>>(
      four_layers(), {.devices = devices, .global_batch_size = 16, .micro_batch_sizes = {2, 1}}, on, cpu::properties{1});
}

}  // namespace

TEST_CASE("everything that divides is there, and no rank needs more than was said") {
  const std::vector<found_plan> found = small_search(a100());
  CHECK(std::is_sorted(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.time.seconds < b.time.seconds; }));
  std::set<std::array<std::size_t, 3>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data_parallel_size, mesh.tensor_parallel_size, mesh.pipeline_parallel_size});
    CHECK(mesh.ranks() == devices);
    CHECK(mesh.data_parallel_size * one.micro_batch_size * one.layout.micro_batches == 16);
    CHECK(one.layout.zero_stage == 1);
    CHECK(one.tokens_per_second == doctest::Approx(16 * 12 / one.time.seconds / devices));
    CHECK(one.share_of_peak > 0);
    CHECK(one.share_of_peak < 1);
    if (one.micro_batch_size != 2) continue;
    for (std::size_t rank = 0; rank < devices; ++rank) {
      model_type::with_recipe<divided>::options options;
      options.parallel = {.ranks = std::make_shared<dry_transport>(rank, devices),
                          .data_parallel_size = mesh.data_parallel_size,
                          .tensor_parallel_size = mesh.tensor_parallel_size};
      const dry_run whole = plan<trainer<model_type::with_recipe<divided>>>(
          four_layers(), options,
          {.max_steps = 1, .micro_batch_size = one.micro_batch_size, .gradient_accumulation_steps = one.layout.micro_batches},
          cpu::properties{1});
      CHECK(whole.total() <= one.bytes);
    }
  }
  // tensor: 4 heads; pipeline: 4 layers
  CHECK(meshes == std::set<std::array<std::size_t, 3>>{{8, 1, 1}, {4, 1, 2}, {2, 1, 4}, {4, 2, 1}, {2, 2, 2}, {1, 2, 4}, {2, 4, 1}, {1, 4, 2}});
  const std::string text = search_text(found, 3);
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);
}

TEST_CASE("where nothing is divided, zero<1> is data_parallel") {
  using replicated = pipeline<one_forward_one_backward, parallel<data_parallel, tensor_parallel>>;
  mesh_settings settings{.mesh = {.data_parallel_size = 2, .tensor_parallel_size = 2, .pipeline_parallel_size = 2},
                         .global_batch_size = 16,
                         .micro_batch_size = 2};
  const auto plain = plan_mesh<model_type, replicated>(four_layers(), settings, h100(), cpu::properties{1});
  settings.shards = 1;
  const auto same = plan_mesh<model_type, strategy>(four_layers(), settings, h100(), cpu::properties{1});
  CHECK(same.memory == plain.memory);
  CHECK(same.layout.zero_stage == 0);
  for (std::size_t role = 0; role < traffic_roles; ++role) {
    CHECK(same.sent.sent[role].bytes == plain.sent.sent[role].bytes);
    CHECK(same.sent.sent[role].messages == plain.sent.sent[role].messages);
  }
  CHECK(same.time.seconds == plain.time.seconds);
  const auto found = search_plans<model_type, strategies<undivided<strategy>, strategy>>(
      four_layers(),
      {.devices = devices, .global_batch_size = 16, .micro_batch_sizes = {2}, .tensor_parallel_sizes = {2}, .pipeline_parallel_sizes = {2}},
      h100(), cpu::properties{1});
  REQUIRE(found.size() == 2);
  CHECK(found[0].layout.zero_stage + found[1].layout.zero_stage == 1);
  CHECK(found[found[0].layout.zero_stage].time.seconds == plain.time.seconds);
}

TEST_CASE("what does not fit is not found") {
  machine small = a100();
  const std::vector<found_plan> all = small_search(small);
  std::size_t least = all.front().bytes, most = least;
  for (const found_plan& one : all) {
    least = std::min(least, one.bytes);
    most = std::max(most, one.bytes);
  }
  small.memory = most - 1;
  const std::size_t fewer = small_search(small).size();
  CHECK(fewer < all.size());
  CHECK(fewer > 0);
  small.memory = least - 1;
  CHECK(small_search(small).empty());
  CHECK(search_text({}) == "no layout fits\n");
}

TEST_CASE("a model of 65 billion parameters on ten thousand devices is searched without one of them") {
  const decoder_config sizes{.vocab_size = 32'000,
                             .hidden_size = 8'192,
                             .num_layers = 80,
                             .num_heads = 64,
                             .intermediate_size = 22'016,
                             .max_position_embeddings = 2'048,
                             .tie_word_embeddings = false};
  const auto found = search_plans<model_type, strategies<strategy>>(sizes,
                                                                    {.devices = 10'240,
                                                                     .global_batch_size = 10'240,
                                                                     .micro_batch_sizes = {1},
                                                                     .tensor_parallel_sizes = {8},
                                                                     .pipeline_parallel_sizes = {4, 8}},
                                                                    a100(), cpu::properties{8});
  REQUIRE(found.size() == 2);
  for (const found_plan& one : found) {
    CHECK(one.layout.mesh.ranks() == 10'240);
    CHECK(one.bytes < a100().memory);
    // 2 + 2 bytes per parameter of a rank, and its shard of the optimizer's 12
    CHECK(static_cast<double>(one.bytes) > 4 * 65.2e9 / 8 / static_cast<double>(one.layout.mesh.pipeline_parallel_size));
  }
}

TEST_CASE("a search for nothing is refused") {
  CHECK_THROWS_WITH_AS((void)(search_plans<model_type, strategies<strategy>>(four_layers(), {.devices = 0}, a100(), cpu::properties{1})),
                       "search: devices and global_batch_size must be at least 1; given 0 and 1", config_error);
}
