// The norm of sharded gradients: each value counts once; a rank sends one message to each other rank of a group.
#include <doctest/doctest.h>

#include <memory>
#include <span>

#include <xtrain/comm/threads.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

template <class Parallel>
struct recipe : defaults {
  using parallel = Parallel;
};

/// Checks on every rank: one call with all spans, every value in one span of one rank, this many messages.
template <class Parallel>
void counts_once(std::size_t ranks, std::size_t messages, typename Parallel::config layout) {
  const decoder_config shape{.vocab_size = 64, .hidden_size = 64, .num_layers = 4, .num_heads = 4, .intermediate_size = 128, .max_position_embeddings = 16};
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    own.ranks = network;
    llama<recipe<Parallel>> model(shape, {}, {.parallel = own});
    model.parameters().allocate_gradients();
    const step_traffic before = traffic_of(model.parallel());
    std::size_t asked = 0;
    const buffer<cpu> result(model.context(), sizeof(double), memory_role::other);
    const auto sum_1 = result.as<double>();
    model.parallel().gradient_squares(
        model.stream(), model.parameters(),
        [&]<class Span>(std::span<const Span> all, device_span<double, host_memory> sum) {
          ++asked;
          double numbers_here = 0;
          for (const Span& span : all) numbers_here += static_cast<double>(span.size());
          sum.raw()[0] = numbers_here;
        },
        sum_1);
    const double numbers = sum_1.raw()[0];
    std::size_t all_of_model = 0;
    for (const auto& entry : model.parameters().entries()) all_of_model += entry.whole_size();
    CHECK(asked == 1);
    CHECK(numbers == static_cast<double>(all_of_model));  // sizes are chosen without padding
    CHECK(traffic_of(model.parallel()).since(before).total().messages == messages);
  });
}

}  // namespace

TEST_CASE("of ranks that divide rows, layers, both, and stages besides") {
  counts_once<data_parallel>(2, 0, {});
  counts_once<zero<3>>(2, 1, {});
  counts_once<parallel<data_parallel, tensor_parallel>>(4, 1, {.tensor_parallel_size = 2});
  counts_once<parallel<zero<2>, tensor_parallel>>(4, 1 + 1, {.tensor_parallel_size = 2});
  counts_once<pipeline<one_forward_one_backward, parallel<zero<2>, tensor_parallel>>>(8, 1 + 1 + 1, {.data_parallel_size = 2, .tensor_parallel_size = 2});
}
