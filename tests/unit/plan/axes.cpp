// A search over context-parallel, expert-parallel, sequence-parallel and ZeRO configurations.
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
  shape.kv_heads = 4;
  shape.context = 16;
  return shape;
}

decoder_config four_experts() {
  decoder_config shape = even();
  shape.experts = 4;
  shape.vocabulary = 130;  // divisible: all ranks send the same amount
  shape.attention_dropout = shape.residual_dropout = 0;
  return shape;
}

/// Every rank of a mesh needs at most the memory of the found plan, and one of them exactly as much.
template <class Model>
void check_ranks(const decoder_config& shape, const found_plan& found) {
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < devices; ++rank) {
    typename Model::options options;
    const mesh_sizes& mesh = found.layout.mesh;
    options.parallel.ranks = std::make_shared<dry_transport>(rank, devices);
    options.parallel.tensor = mesh.tensor;
    options.parallel.context = mesh.context;
    options.parallel.expert = mesh.expert;
    if constexpr (requires { options.parallel.data; }) options.parallel.data = mesh.data * mesh.expert;
    const rehearsal whole =
        plan<trainer<Model>>(shape, options, {.steps = 1, .batch = found.batch, .accumulate = found.layout.micro_batches}, cpu::properties{1});
    most = std::max(most, whole.total());
    CHECK(whole.sent.total().bytes <= found.sent.total().bytes);
  }
  CHECK(most == found.bytes);
}

}  // namespace

TEST_CASE("ranks that share rows are searched beside those that divide layers") {
  const auto found = search_plans<llama<recipe>, strategies<gradients_divided>>(
      even(), {.devices = devices, .rows = 8, .batches = {1}, .tensors = {1, 2}, .contexts = {1, 2, 4, 3}}, a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 3>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data, mesh.tensor, mesh.context});
    CHECK(mesh.data * one.layout.micro_batches == 8);
    CHECK(one.layout.zero_stage == 2);
    CHECK((one.sent.of(traffic_role::places).bytes > 0) == (mesh.context > 1));
    if (mesh.context == 2) check_ranks<llama<divided>>(even(), one);
  }
  // heads: 4, by tensor x context
  CHECK(meshes == std::set<std::array<std::size_t, 3>>{{8, 1, 1}, {4, 1, 2}, {2, 1, 4}, {4, 2, 1}, {2, 2, 2}});
  const std::string text = search_text(found);
  CHECK(text.starts_with("  data tensor context stages chunks  zero"));
}

TEST_CASE("keys and values go round among as many ranks as there are pairs of chunks") {
  const auto found = search_plans<llama<recipe>, strategies<keys_round>>(
      even(), {.devices = devices, .rows = 8, .batches = {1}, .tensors = {1}, .contexts = {2, 8, 3}}, a100(), cpu::properties{1});
  REQUIRE(found.size() == 2);  // more than the four heads
  for (const found_plan& one : found) {
    CHECK(one.layout.ring);
    CHECK(one.sent.of(traffic_role::places).bytes > 0);
    check_ranks<llama<divided_rows>>(even(), one);
  }
  CHECK(search_text(found).find("     8+r ") != std::string::npos);
}

TEST_CASE("what is between layers is divided only where layers are, and takes less memory") {
  const search_settings settings{.devices = devices, .rows = 8, .batches = {1}, .tensors = {1, 4}};
  const auto both = search_plans<llama<recipe>, strategies<gradients_divided, parallel<zero<1>, sequence_parallel>>>(even(), settings, a100(), cpu::properties{1});
  REQUIRE(both.size() == 3);
  std::size_t with = 0, without = 0;
  for (const found_plan& one : both)
    if (one.layout.mesh.tensor == 4) (one.layout.between_layers ? with : without) = one.memory[static_cast<std::size_t>(memory_role::stash)];
  CHECK(with > 0);
  CHECK(with < without);
  CHECK(search_text(both).find("    4+s      1") != std::string::npos);
}

TEST_CASE("ranks that spread experts are searched for mixtures") {
  const decoder_config shape = four_experts();
  const auto found = search_plans<mixtral<recipe>, strategies<with_experts>>(shape, {.devices = devices, .rows = 16, .batches = {2}}, a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 3>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data, mesh.expert, mesh.pipeline});
    CHECK(mesh.data * mesh.expert * one.layout.micro_batches * one.batch == 16);
    CHECK((one.sent.of(traffic_role::experts).bytes > 0) == (mesh.expert > 1));
    CHECK((one.sent.of(traffic_role::parts).bytes > 0) == (mesh.expert > 1));
    check_ranks<mixtral<spread>>(shape, one);
  }
  // three layers in two stages; four experts
  CHECK(meshes == std::set<std::array<std::size_t, 3>>{{8, 1, 1}, {4, 2, 1}, {2, 4, 1}, {4, 1, 2}, {2, 2, 2}, {1, 4, 2}});
  CHECK_THROWS_WITH_AS((void)(plan_mesh<mixtral<recipe>, with_experts>(shape, {.mesh = {.data = 4, .expert = 2}, .rows = 12}, a100(), cpu::properties{1})),
                       "mesh: rows of a step must be a multiple of data x expert x batch; given 12, 8 and 1", config_error);
}

TEST_CASE("ranks that spread experts are searched beside those that divide layers and share rows") {
  const decoder_config shape = four_experts();
  const auto found = search_plans<mixtral<recipe>, strategies<experts_beside>>(
      shape, {.devices = devices, .rows = 8, .batches = {1}, .tensors = {1, 2}, .contexts = {1, 2}, .experts = {1, 2, 4}}, a100(), cpu::properties{1});
  std::set<std::array<std::size_t, 4>> meshes;
  for (const found_plan& one : found) {
    const mesh_sizes& mesh = one.layout.mesh;
    meshes.insert({mesh.data, mesh.tensor, mesh.context, mesh.expert});
    CHECK(mesh.data * mesh.expert * one.layout.micro_batches == 8);
    CHECK((one.sent.of(traffic_role::layers).bytes > 0) == (mesh.tensor > 1));
    CHECK((one.sent.of(traffic_role::places).bytes > 0) == (mesh.context > 1));
    CHECK((one.sent.of(traffic_role::experts).bytes > 0) == (mesh.expert > 1));
    check_ranks<mixtral<spread_beside>>(shape, one);
  }
  CHECK(meshes == std::set<std::array<std::size_t, 4>>{{8, 1, 1, 1}, {4, 1, 1, 2}, {2, 1, 1, 4}, {4, 1, 2, 1}, {2, 1, 2, 2}, {1, 1, 2, 4},
                                                       {4, 2, 1, 1}, {2, 2, 1, 2}, {1, 2, 1, 4}, {2, 2, 2, 1}, {1, 2, 2, 2}});
}

TEST_CASE("neighbours with other experts add up gradients of everything else, and nothing more") {
  const decoder_config shape = four_experts();
  const auto one = plan_mesh<mixtral<recipe>, with_experts>(shape, {.mesh = {.data = 4, .expert = 2}, .rows = 16, .batch = 2}, a100(), cpu::properties{1});
  const std::size_t experts = shape.layers * shape.experts * 3 * shape.width * shape.feed_forward;
  CHECK(one.sent.of(traffic_role::parts).bytes == (one.parameters - experts) * sizeof(float));  // in fp32; two ranks: half of it, twice
}

TEST_CASE("balanced experts' load goes with the rows from stage to stage, in a message of its own") {
  decoder_config shape = four_experts();
  shape.layers = 4;
  const mesh_settings settings{.mesh = {.data = 4, .pipeline = 2}, .rows = 16, .batch = 2};
  const auto planned = [&] { return plan_mesh<mixtral<recipe>, with_experts>(shape, settings, a100(), cpu::properties{1}); };
  const found_plan plain = planned();
  shape.balances_experts = true;
  const found_plan balanced = planned();
  const std::size_t m = plain.layout.micro_batches;
  CHECK(m == 2);
  const traffic rows = plain.sent.of(traffic_role::stages), both = balanced.sent.of(traffic_role::stages);
  CHECK(plain.layout.stage_messages == 1);
  CHECK(balanced.layout.stage_messages == 2);
  CHECK(rows.messages == m);
  CHECK(both.messages == 2 * m);
  const std::size_t load = both.bytes - rows.bytes;  // of the stage that sends most: of two layers forward, or backward
  CHECK((load == m * 16 * shape.experts * 2 || load == m * 8 * shape.experts));
  CHECK(balanced.time.bubble >= plain.time.bubble);
}
