// Search over context-parallel, expert-parallel, sequence-parallel and ZeRO configurations.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/search.hpp>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {
  using precision = bf16_mixed;
};
using gradients_divided = parallel<zero<2>, tensor_parallel, context_parallel>;
using with_experts = pipeline<one_forward_one_backward, parallel<zero<1>, expert_parallel>>;
using keys_round = parallel<zero<3>, ring_context_parallel>;
struct divided_rows : recipe {
  using parallel = keys_round;
};
struct divided : recipe {
  using parallel = gradients_divided;
};
struct spread : recipe {
  using parallel = with_experts;
};
using experts_beside = parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>;
struct spread_beside : recipe {
  using parallel = experts_beside;
};
constexpr std::size_t devices = 8;

decoder_config even() {
  decoder_config shape = planned_run::sizes();
  shape.num_kv_heads = 4;
  shape.max_position_embeddings = 16;
  return shape;
}

decoder_config four_experts() {
  decoder_config shape = even();
  shape.num_experts = 4;
  shape.vocab_size = 130;  // divisible: all ranks send the same amount
  shape.attention_dropout = shape.residual_dropout = 0;
  return shape;
}

/// Every rank of a mesh needs at most the plan's memory; the largest rank needs exactly that.
template <class Model>
void check_ranks(const decoder_config& shape, const found_plan& found) {
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < devices; ++rank) {
    typename Model::options options;
    const mesh_sizes& mesh = found.layout.mesh;
    options.parallel.ranks = std::make_shared<dry_transport>(rank, devices);
    options.parallel.tensor_parallel_size = mesh.tensor_parallel_size;
    options.parallel.context_parallel_size = mesh.context_parallel_size;
    options.parallel.expert_parallel_size = mesh.expert_parallel_size;
    if constexpr (requires { options.parallel.data_parallel_size; }) options.parallel.data_parallel_size = mesh.data_parallel_size * mesh.expert_parallel_size;
    const dry_run whole = plan<trainer<Model>>(
        shape, options,
        {.max_steps = 1, .micro_batch_size = found.micro_batch_size, .gradient_accumulation_steps = found.layout.micro_batches},
        cpu::properties{1});
    most = std::max(most, whole.total());
    CHECK(whole.sent.total().bytes <= found.sent.total().bytes);
  }
  CHECK(most == found.bytes);
}

}  // namespace

TEST_CASE("context-parallel ranks are searched beside tensor-parallel ranks") {
  const auto found = search_plans<llama<recipe>, strategies<gradients_divided>>(even(),
                                                                                {.devices = devices,
                                                                                 .global_batch_size = 8,
                                                                                 .micro_batch_sizes = {1},
                                                                                 .tensor_parallel_sizes = {1, 2},
                                                                                 .context_parallel_sizes = {1, 2, 4, 3}},
                                                                                a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 3>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data_parallel_size, mesh.tensor_parallel_size, mesh.context_parallel_size});
    CHECK(mesh.data_parallel_size * one.layout.micro_batches == 8);
    CHECK(one.layout.zero_stage == 2);
    CHECK((one.sent.of(traffic_role::context_parallel).bytes > 0) == (mesh.context_parallel_size > 1));
    if (mesh.context_parallel_size == 2) check_ranks<llama<divided>>(even(), one);
  }
  // heads: 4, by tensor x context
  CHECK(meshes == std::set<std::array<std::size_t, 3>>{{8, 1, 1}, {4, 1, 2}, {2, 1, 4}, {4, 2, 1}, {2, 2, 2}});
  const std::string text = search_text(found);
  CHECK(text.starts_with("  data tensor context stages chunks  zero"));
}

TEST_CASE("keys and values go round among as many ranks as there are pairs of chunks") {
  const auto found = search_plans<llama<recipe>, strategies<keys_round>>(even(),
                                                                         {.devices = devices,
                                                                          .global_batch_size = 8,
                                                                          .micro_batch_sizes = {1},
                                                                          .tensor_parallel_sizes = {1},
                                                                          .context_parallel_sizes = {2, 8, 3}},
                                                                         a100(), cpu::properties{1});
  REQUIRE(found.size() == 2);  // more than the four heads
  for (const found_plan& one : found) {
    CHECK(one.layout.ring);
    CHECK(one.sent.of(traffic_role::context_parallel).bytes > 0);
    check_ranks<llama<divided_rows>>(even(), one);
  }
  CHECK(search_text(found).find("     8+r ") != std::string::npos);
}

TEST_CASE("what is between layers is divided only where layers are, and takes less memory") {
  const search_settings settings{.devices = devices, .global_batch_size = 8, .micro_batch_sizes = {1}, .tensor_parallel_sizes = {1, 4}};
  const auto both = search_plans<llama<recipe>, strategies<gradients_divided, parallel<zero<1>, sequence_parallel>>>(
      even(), settings, a100(), cpu::properties{1});
  REQUIRE(both.size() == 3);
  std::size_t with = 0, without = 0;
  for (const found_plan& one : both)
    if (one.layout.mesh.tensor_parallel_size == 4)
      (one.layout.has_sequence_parallel ? with : without) = one.memory[static_cast<std::size_t>(memory_role::stash)];
  CHECK(with > 0);
  CHECK(with < without);
  CHECK(search_text(both).find("    4+s      1") != std::string::npos);
}

TEST_CASE("expert-parallel ranks are searched for mixtures") {
  const decoder_config shape = four_experts();
  const auto found = search_plans<mixtral<recipe>, strategies<with_experts>>(
      shape, {.devices = devices, .global_batch_size = 16, .micro_batch_sizes = {2}}, a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 3>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data_parallel_size, mesh.expert_parallel_size, mesh.pipeline_parallel_size});
    CHECK(mesh.data_parallel_size * mesh.expert_parallel_size * one.layout.micro_batches * one.micro_batch_size == 16);
    CHECK((one.sent.of(traffic_role::expert_parallel).bytes > 0) == (mesh.expert_parallel_size > 1));
    CHECK((one.sent.of(traffic_role::partial_sums).bytes > 0) == (mesh.expert_parallel_size > 1));
    check_ranks<mixtral<spread>>(shape, one);
  }
  // three layers in two stages; four experts
  CHECK(meshes == std::set<std::array<std::size_t, 3>>{{8, 1, 1}, {4, 2, 1}, {2, 4, 1}, {4, 1, 2}, {2, 2, 2}, {1, 4, 2}});
  CHECK_THROWS_WITH_AS(
      (void)(plan_mesh<mixtral<recipe>, with_experts>(
          shape, {.mesh = {.data_parallel_size = 4, .expert_parallel_size = 2}, .global_batch_size = 12}, a100(), cpu::properties{1})),
      "mesh: global_batch_size must be a multiple of data x expert x micro_batch_size; given 12, 8 and 1", config_error);
}

TEST_CASE("expert-parallel ranks are searched beside tensor-parallel and context-parallel ranks") {
  const decoder_config shape = four_experts();
  const auto found = search_plans<mixtral<recipe>, strategies<experts_beside>>(shape,
                                                                               {.devices = devices,
                                                                                .global_batch_size = 8,
                                                                                .micro_batch_sizes = {1},
                                                                                .tensor_parallel_sizes = {1, 2},
                                                                                .context_parallel_sizes = {1, 2},
                                                                                .expert_parallel_sizes = {1, 2, 4}},
                                                                               a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 4>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data_parallel_size, mesh.tensor_parallel_size, mesh.context_parallel_size, mesh.expert_parallel_size});
    CHECK(mesh.data_parallel_size * mesh.expert_parallel_size * one.layout.micro_batches == 8);
    CHECK((one.sent.of(traffic_role::tensor_parallel).bytes > 0) == (mesh.tensor_parallel_size > 1));
    CHECK((one.sent.of(traffic_role::context_parallel).bytes > 0) == (mesh.context_parallel_size > 1));
    CHECK((one.sent.of(traffic_role::expert_parallel).bytes > 0) == (mesh.expert_parallel_size > 1));
    check_ranks<mixtral<spread_beside>>(shape, one);
  }
  CHECK(meshes == std::set<std::array<std::size_t, 4>>{{8, 1, 1, 1}, {4, 1, 1, 2}, {2, 1, 1, 4}, {4, 1, 2, 1}, {2, 1, 2, 2}, {1, 1, 2, 4},
                                                       {4, 2, 1, 1}, {2, 2, 1, 2}, {1, 2, 1, 4}, {2, 2, 2, 1}, {1, 2, 2, 2}});
}

TEST_CASE("neighbours with other experts add up gradients of everything else, and nothing more") {
  const decoder_config shape = four_experts();
  const auto one = plan_mesh<mixtral<recipe>, with_experts>(
      shape, {.mesh = {.data_parallel_size = 4, .expert_parallel_size = 2}, .global_batch_size = 16, .micro_batch_size = 2}, a100(),
      cpu::properties{1});
  const std::size_t experts = shape.num_layers * shape.num_experts * 3 * shape.hidden_size * shape.intermediate_size;
  CHECK(one.sent.of(traffic_role::partial_sums).bytes == (one.parameters - experts) * sizeof(float));  // in fp32; two ranks: half of it, twice
}

TEST_CASE("balanced experts' load goes with the rows from stage to stage, in a message of its own") {
  decoder_config shape = four_experts();
  shape.num_layers = 4;
  const mesh_settings settings{.mesh = {.data_parallel_size = 4, .pipeline_parallel_size = 2}, .global_batch_size = 16, .micro_batch_size = 2};
  const auto planned = [&] { return plan_mesh<mixtral<recipe>, with_experts>(shape, settings, a100(), cpu::properties{1}); };
  const found_plan plain = planned();
  shape.balances_experts = true;
  const found_plan balanced = planned();
  const std::size_t m = plain.layout.micro_batches;
  CHECK(m == 2);
  const traffic rows = plain.sent.of(traffic_role::pipeline_parallel), both = balanced.sent.of(traffic_role::pipeline_parallel);
  CHECK(plain.layout.stage_messages == 1);
  CHECK(balanced.layout.stage_messages == 2);
  CHECK(rows.messages == m);
  CHECK(both.messages == 2 * m);
  const std::size_t load = both.bytes - rows.bytes;  // of the stage that sends most: two layers forward or backward
  CHECK((load == m * 16 * shape.num_experts * 2 || load == m * 8 * shape.num_experts));
  CHECK(balanced.time.bubble >= plain.time.bubble);
}
