// Sharded models of every parallelism: all ranks together write the folder that the first rank alone writes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/models/bloom.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

/// Exactly one rank writes each element, for weights and optimizer state; work is shared.
template <class Model>
void count_writers(const Model& model, bool optimizer, std::vector<std::vector<std::size_t>>& times, std::size_t& written) {
  static std::mutex mutex;
  const auto& store = model.parameters();
  const auto& entries = store.entries();
  const auto array = optimizer ? store.gradients() : store.stored_values();
  {
    const std::scoped_lock lock(mutex);
    times.resize(entries.size());
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    using dtype = typename Model::precision::parameter;
    if (optimizer && !entries[i].spec.trainable) continue;
    const stored_range kept = model.parallel().kept(store, entries[i], array.size());
    pinned_pipe<typename Model::device> pipe(model.context());
    write_kept<dtype>(pipe, model.stream(), entries[i].spec, kept, array, !optimizer, i, [&](std::size_t first, const void*, std::size_t bytes) {
      const std::scoped_lock lock(mutex);
      times[i].resize(entries[i].whole_size());
      for (std::size_t at = first / sizeof(dtype); at < (first + bytes) / sizeof(dtype); ++at) ++times[i][at];
      written += bytes / sizeof(dtype);
    });
  }
}

template <class Model>
void save_both_ways(const decoder_config& shape, std::size_t ranks, const typename Model::options& how, std::size_t stages = 1) {
  CAPTURE(Model::recipe::parallel::name);
  const scratch_folder folder;
  std::vector<std::vector<std::size_t>> of_weights, of_state;
  std::vector<std::size_t> written(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options options = how;
    options.parallel.ranks = network;
    Model model(shape, {}, options);
    model.parameters().allocate_gradients();
    save_pretrained(model, folder / "one", {.one_writer = true});
    save_pretrained(model, folder / "many");
    save_pretrained(model, folder / "files", {.shard_bytes = 10'000});
    count_writers(model, false, of_weights, written[network->rank()]);
    count_writers(model, true, of_state, written[network->rank()]);
  });
  CHECK(get_file(folder / "one/model.safetensors") == get_file(folder / "many/model.safetensors"));
  const weight_folder one(folder / "one"), files(folder / "files");
  CHECK(one.tensors().size() == files.tensors().size());
  for (const auto& [name, tensor] : one.tensors()) {
    const auto other = files.find(name);
    REQUIRE(other != nullptr);
    CHECK(std::equal(tensor->bytes.begin(), tensor->bytes.end(), other->bytes.begin(), other->bytes.end()));
  }
  for (const auto* times : {&of_weights, &of_state})
    for (const auto& numbers : *times) CHECK(std::all_of(numbers.begin(), numbers.end(), [](std::size_t n) { return n == 1; }));
  std::size_t all = 0;
  for (const std::size_t own : written) all += own;
  CHECK(*std::max_element(written.begin(), written.end()) < 2 * stages * all / ranks);  // mostly the embedding table, on the first stage
}

/// The embedding table is larger than one writing turn.
decoder_config shape() {
  decoder_config c = sizes(false);
  c.num_heads = 4;
  c.num_layers = 4;
  c.vocab_size = 12'000;
  return c;
}

}  // namespace

TEST_CASE("a folder that ranks write together has the bytes that one writes") {
  using both = parallel<zero<3>, tensor_parallel>;
  save_both_ways<llama<recipe<data_parallel>>>(shape(), 3, {});
  decoder_config few = shape();
  few.num_kv_heads = 2;  // fewer heads than tensor-parallel ranks: neighbors share heads
  save_both_ways<llama<recipe<both>>>(few, 8, {.parallel = {.tensor_parallel_size = 4}});
  save_both_ways<gpt2<recipe<both>>>(shape(), 4, {.parallel = {.tensor_parallel_size = 2}});  // matrices are transposed in files
  using stages = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>;
  decoder_config tied = shape();
  tied.tie_word_embeddings = true;
  save_both_ways<llama<recipe<stages>>>(tied, 8, {.parallel = {.data_parallel_size = 2, .tensor_parallel_size = 2}}, 2);
  decoder_config experts = shape();
  experts.attention_dropout = experts.residual_dropout = 0;
  experts.num_experts = 4;
  using spread = parallel<zero<2>, tensor_parallel, expert_parallel>;
  save_both_ways<mixtral<recipe<spread>>>(experts, 4, {.parallel = {.expert_parallel_size = 2}});
  save_both_ways<mixtral<recipe<spread>>>(experts, 8, {.parallel = {.tensor_parallel_size = 2, .expert_parallel_size = 2}});  // shards of experts
}

TEST_CASE("rows that files hold in another order, and copies of what ranks divide, are written by one rank each") {
  using copies = parallel<zero<3>, tensor_parallel>;
  decoder_config large = shape();
  large.intermediate_size = 4 * large.hidden_size;
  save_both_ways<bloom<recipe<copies>>>(large, 8, {.parallel = {.tensor_parallel_size = 2, .shards = 2}});
}

TEST_CASE("ranks that save wait for each other where they say so, not in a destructor") {
  static_assert(std::is_nothrow_destructible_v<detail::saving_ranks<llama<recipe<data_parallel>>>>);
  try {
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      llama<recipe<data_parallel>> model(shape(), {}, {.parallel = {.ranks = network}});
      const detail::saving_ranks saving(model, true);
      if (network->rank() == 1) throw std::runtime_error("rank 1 cannot write");
      saving.wait_for_all();
    });
    FAIL("must be refused");
  } catch (const std::runtime_error& problem) {
    CHECK(std::string(problem.what()) == "rank 1 cannot write");
  }
}
