// A search finds what fits, reports its needs, and sorts by time.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include <xtrain/models/mistral.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/search.hpp>
#include <xtrain/plan/search_bar.hpp>

#include "planned_run.hpp"
#include "scratch.hpp"

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

/// Heads, layers and experts of many sizes.
struct searched_case {
  decoder_config sizes{};
  search_settings settings{};
};

std::vector<searched_case> small_cases(bool experts) {
  std::vector<searched_case> all;
  for (const std::size_t count : {1U, 6U, 16U})
    for (const std::size_t length : {64U, 1024U})
      for (const std::size_t layers : {2U, 5U}) {
        if (count == 1 && length > 64) continue;
        searched_case one;
        one.sizes = four_layers();
        one.sizes.vocab_size = 1000;
        one.sizes.hidden_size = 128;
        one.sizes.num_layers = layers;
        one.sizes.num_heads = 8;
        one.sizes.num_kv_heads = length == 64 ? 2 : 8;
        one.sizes.intermediate_size = 384;
        one.sizes.max_position_embeddings = length;
        one.sizes.tie_word_embeddings = layers == 2;
        if (experts) {
          one.sizes.num_experts = 4;
          one.sizes.num_experts_per_token = 2;
          one.sizes.balances_experts = layers == 2;
        }
        one.settings = {.devices = count,
                        .global_batch_size = length == 64 ? 4 * count : count / 2 + count % 2,
                        .micro_batch_sizes = {1, 4},
                        .tensor_parallel_sizes = {1, 2, 3, 8},
                        .context_parallel_sizes = {1, 2},
                        .expert_parallel_sizes = {1, 2, 4}};
        all.push_back(one);
      }
  return all;
}

/// A table row, with the bits of the time.
auto line_of(const found_plan& one) {
  const run_layout& at = one.layout;
  const mesh_sizes& mesh = at.mesh;
  return std::tuple(one.strategy, one.recompute, mesh.data_parallel_size, mesh.tensor_parallel_size, mesh.pipeline_parallel_size, mesh.context_parallel_size,
                    mesh.expert_parallel_size, at.zero_stage, at.ring, at.chunks, one.micro_batch_size, at.micro_batches, one.bytes, one.time.seconds,
                    one.sent.total().messages);
}
void check_same(const std::vector<found_plan>& found, const std::vector<found_plan>& all, std::size_t most) {
  REQUIRE(found.size() == std::min(most, all.size()));
  std::size_t others = 0;
  for (std::size_t i = 0; i < found.size(); ++i) others += line_of(found[i]) == line_of(all[i]) ? 0 : 1;
  CHECK(others == 0);
}

using add_case = void (*)(layout_search& to, const searched_case& of);
struct recomputing : recipe {
  using recompute = recompute_full;
};
void add_dense(layout_search& to, const searched_case& of) {
  to.add<model_type>(of.sizes, of.settings, cpu::properties{1});
  searched_case ring = of;
  ring.settings.context_parallel_sizes = {2};
  to.add<model_type, ring_strategies>(ring.sizes, ring.settings, cpu::properties{1});
  to.add<llama<recomputing>, strategies<strategy>>(of.sizes, of.settings, cpu::properties{1});
}
void add_experts(layout_search& to, const searched_case& of) { to.add<mixtral<recipe>, expert_strategies>(of.sizes, of.settings, cpu::properties{1}); }

/// A bounded search and the exhaustive search find the same fastest layouts: on a machine with room for all, and on one where a quarter fit and nodes are
/// connected slowly.
void check_first_layouts(const searched_case& of, add_case add, const machine& roomy) {
  machine on = roomy;
  for (const bool small : {false, true}) {
    layout_search exhaustive(on);
    add(exhaustive, of);
    const std::vector<found_plan> all = exhaustive.run();
    REQUIRE(!all.empty());
    for (const std::size_t most : small ? std::vector<std::size_t>{10} : std::vector<std::size_t>{1, 10}) {
      layout_search search(on);
      add(search, of);
      check_same(search.run(most), all, most);
    }
    if (small) break;
    std::vector<std::size_t> bytes;
    for (const found_plan& one : all) bytes.push_back(one.bytes);
    std::sort(bytes.begin(), bytes.end());
    on.memory = bytes[bytes.size() / 4];
    on.between.bandwidth /= 64;
  }
}

/// Bounds hold for every layout.
void check_bounds(const searched_case& of, add_case add, const machine& on) {
  layout_search search(on);
  add(search, of);
  std::size_t above = 0, unknown = 0, planned = 0;
  double tightest = 0;
  search.for_each_bound([&](const run_layout&, const layout_bound& bound, const std::optional<found_plan>& plan) {
    if (!plan) return;
    ++planned;
    above += bound.seconds > plan->time.seconds || bound.bytes > plan->bytes ? 1 : 0;
    unknown += bound.seconds > 0 && bound.bytes > 0 ? 0 : 1;
    tightest = std::max(tightest, bound.seconds / plan->time.seconds);
  });
  CHECK(planned > 0);
  CHECK(above == 0);
  CHECK(unknown == 0);
  CHECK(tightest > 0.5);  // small layouts spend much time outside the bound
}

struct last_progress final : search_observer {
  search_progress last{};
  std::size_t calls = 0;
  bool rises = true;
  void on(const search_progress& now) override {
    rises = rises && now.done == last.done + 1 && now.planned >= last.planned && now.done <= now.all;
    last = now;
    ++calls;
  }
};

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

TEST_CASE("the first layouts are those of the search that plans all of them") {
  for (const searched_case& of : small_cases(false)) check_first_layouts(of, add_dense, h100());
  for (const searched_case& of : small_cases(true)) check_first_layouts(of, add_experts, a100());
}

TEST_CASE("no layout needs less memory or less time than its bounds say") {
  machine slow = h100();  // counts kernels, not launches
  slow.launch = slow.message = 0;
  for (const searched_case& of : small_cases(false)) check_bounds(of, add_dense, slow);
  for (const searched_case& of : small_cases(true)) check_bounds(of, add_experts, slow);
}

TEST_CASE("bounds hold for other orders, and with several stages on a rank") {
  using splits = pipeline<zero_bubble, parallel<zero<1>, tensor_parallel>>;
  using chunks = pipeline<interleaved, parallel<zero<1>, tensor_parallel>>;
  searched_case of = small_cases(false)[7];
  of.sizes.num_layers = 8;
  of.settings.context_parallel_sizes = {1};
  check_bounds(of, [](layout_search& to, const searched_case& one) { to.add<model_type, strategies<splits>>(one.sizes, one.settings, cpu::properties{1}); },
               h100());
  check_first_layouts(of,
                      [](layout_search& to, const searched_case& one) {
                        to.add<model_type, strategies<splits>>(one.sizes, one.settings, cpu::properties{1});
                        searched_case several = one;
                        several.settings.chunks = {1, 2};
                        to.add<model_type, strategies<chunks, undivided<chunks>>>(several.sizes, several.settings, cpu::properties{1});
                      },
                      h100());
}

TEST_CASE("layers with and without a sliding window are searched alike") {
  searched_case of = small_cases(false)[3];
  of.sizes.sliding_window = 16;
  of.sizes.first_windowed_layer = 1;
  const add_case add = [](layout_search& to, const searched_case& one) {
    to.add<mistral<recipe>, strategies<strategy>>(one.sizes, one.settings, cpu::properties{1});
  };
  check_bounds(of, add, h100());
  check_first_layouts(of, add, h100());
}

TEST_CASE("layers that differ are noticed: there are no bounds") {
  const auto with_layers = [](std::size_t layers) {
    decoder_config sizes = four_layers();
    sizes.num_layers = layers;
    return detail::run_dry_on_one<model_type>(sizes, 12, cpu::properties{1});
  };
  const dry_run one = with_layers(1), two = with_layers(2);
  dry_run all = with_layers(4);
  CHECK(detail::layers_are_alike(one, two, all, 4));
  CHECK(!detail::layers_are_alike(one, two, all, 5));
  SUBCASE("in memory") { all.add(memory_role::stash, 1); }
  SUBCASE("in kernels") { all.record.kernels.front().operations += 1; }
  SUBCASE("in a kernel that others lack") { all.record.count("window", 1, 1); }
  CHECK(!detail::layers_are_alike(one, two, all, 4));
}

TEST_CASE("a search finds the same on any number of threads, and tells how far it is") {
  const searched_case of = small_cases(false).back();
  std::vector<found_plan> before;
  for (const std::size_t threads : {1U, 3U}) {
    layout_search search(h100(), std::make_shared<thread_pool>(threads));
    add_dense(search, of);
    last_progress told;
    const std::vector<found_plan> found = search.run(5, &told);
    CHECK(told.rises);
    CHECK(told.last.done == told.last.all);
    CHECK(told.last.layouts == search.layouts());
    CHECK(told.last.planned >= 5);
    CHECK(told.last.planned < search.layouts());
    CHECK(told.last.fastest == found.front().time.seconds);
    if (threads > 1) check_same(found, before, 5);
    before = found;
  }
}

TEST_CASE("a search shows its progress in a terminal, and writes nothing to a file") {
  const scratch_folder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    search_bar bar(file);
    for (std::size_t done = 1; done <= 3; ++done) bar.on({.done = done, .all = 3, .layouts = 3, .planned = done, .fastest = 0.5});
  }
  std::fclose(file);
  CHECK(std::filesystem::file_size(folder / "out") == 0);
}

TEST_CASE("what needs least is found among what does not fit") {
  const searched_case of = small_cases(false)[7];
  machine tiny = h100();
  tiny.memory = 1;
  layout_search roomy(h100()), search(tiny);
  add_dense(roomy, of);
  add_dense(search, of);
  const std::vector<found_plan> all = roomy.run();
  CHECK(search.run(10).empty());
  const std::optional<found_plan> least = search.least_memory();
  REQUIRE(least);
  CHECK(line_of(*least) == line_of(*std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; })));
}

TEST_CASE("only wanted layouts are searched") {
  searched_case of = small_cases(false)[7];
  of.settings.wanted = [](const run_layout& layout) { return layout.zero_stage == 1 && layout.mesh.tensor_parallel_size == 2; };
  const auto found = search_plans<model_type, strategies<undivided<strategy>, strategy>>(of.sizes, of.settings, h100(), cpu::properties{1});
  CHECK(!found.empty());
  CHECK(std::all_of(found.begin(), found.end(), [&](const found_plan& one) { return of.settings.wanted(one.layout); }));
}

TEST_CASE("a search for nothing is refused") {
  CHECK_THROWS_WITH_AS((void)(search_plans<model_type, strategies<strategy>>(four_layers(), {.devices = 0}, a100(), cpu::properties{1})),
                       "search: devices and global_batch_size must be at least 1; given 0 and 1", config_error);
}
