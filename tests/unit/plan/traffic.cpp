// Predicted traffic of a rank equals what it sends, to the byte and message.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include <xtrain/parallel.hpp>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

template <class Parallel>
struct recipe : defaults {
  using parallel = Parallel;
};

/// Tied heads: a pipeline's first and last stage exchange the table's gradients.
decoder_config four_layers() {
  decoder_config shape = planned_run::sizes();
  shape.num_layers = 4;
  return shape;
}

/// Plans a step of every rank, runs two on threads, and compares each rank.
template <class Parallel>
std::vector<dry_run> check_traffic(std::size_t ranks, typename Parallel::config layout = {}, std::size_t accumulate = 2) {
  using model_type = llama<recipe<Parallel>>;
  const auto how = planned_run::settings(accumulate);
  std::vector<dry_run> plans(ranks);
  std::vector<step_traffic> first(ranks), second(ranks);
  std::vector<std::size_t> peaks(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const std::size_t rank = network->rank();
    typename model_type::options options;
    options.parallel = layout;
    options.parallel.ranks = std::make_shared<dry_transport>(rank, ranks);
    plans[rank] = plan<trainer<model_type>>(four_layers(), options, how, cpu::properties{1});

    options.parallel.ranks = network;
    model_type model(four_layers(), cpu::context({.threads = 1}), options);
    trainer trainer(model, how);
    const std::vector<host_batch> batches(accumulate, planned_run::full_rows(how.micro_batch_size, model.config().max_position_embeddings));
    const auto sent_by_a_step = [&] {
      const step_traffic before = traffic_of(model.parallel());
      (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
      return traffic_of(model.parallel()).since(before);
    };
    first[rank] = sent_by_a_step();
    second[rank] = sent_by_a_step();
    peaks[rank] = model.context().memory().total_peak;
  });
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t r = 0; r < traffic_roles; ++r) {
      CAPTURE(Parallel::name);
      CAPTURE(rank);
      CAPTURE(name_of(static_cast<traffic_role>(r)));
      CHECK(plans[rank].sent.sent[r].bytes == first[rank].sent[r].bytes);
      CHECK(plans[rank].sent.sent[r].messages == first[rank].sent[r].messages);
      CHECK(second[rank].sent[r].bytes == first[rank].sent[r].bytes);
      CHECK(second[rank].sent[r].messages == first[rank].sent[r].messages);
      CHECK(plans[rank].sent.sent[r].rounds == first[rank].sent[r].rounds);
      CHECK(plans[rank].sent.sent[r].collectives == first[rank].sent[r].collectives);
      CHECK(plans[rank].sent.sent[r].scratch == first[rank].sent[r].scratch);
    }
  for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(plans[rank].total() == peaks[rank]);
  return plans;
}

}  // namespace

TEST_CASE("one rank sends nothing, and its plan does not speak of it") {
  const dry_run alone = plan<trainer<llama<recipe<single>>>>(planned_run::sizes(), {}, planned_run::settings(), cpu::properties{1});
  CHECK(alone.sent.total().messages == 0);
  CHECK(plan_text(alone).find("messages") == std::string::npos);
}

TEST_CASE("data-parallel ranks: gradients once, and what ZeRO adds") {
  const std::size_t all = 4 * check_traffic<data_parallel>(1)[0].trained;  // bytes in fp32
  // three quarters of the bytes of 6 blocks; a rank's shard of a block is padded by at most 32 values
  const auto is_three_quarters = [](std::size_t sent, std::size_t of) { return sent >= of * 3 / 4 && sent <= (of + 6 * 4 * 32 * 4) * 3 / 4; };
  const auto rows = check_traffic<data_parallel>(4);
  CHECK(is_three_quarters(rows[0].sent.of(traffic_role::gradients).bytes, 2 * all));
  CHECK(rows[0].sent.of(traffic_role::weights).bytes == 0);
  const auto one = check_traffic<zero<1>>(4), two = check_traffic<zero<2>>(4), three = check_traffic<zero<3>>(4);
  CHECK(is_three_quarters(one[0].sent.of(traffic_role::gradients).bytes, all));
  CHECK(is_three_quarters(one[0].sent.of(traffic_role::weights).bytes, all));
  CHECK(two[0].sent.of(traffic_role::gradients).bytes == 2 * one[0].sent.of(traffic_role::gradients).bytes);  // of two micro-batches
  CHECK(three[0].sent.of(traffic_role::gradients).bytes == two[0].sent.of(traffic_role::gradients).bytes);
  CHECK(three[0].sent.of(traffic_role::weights).bytes > one[0].sent.of(traffic_role::weights).bytes);
  CHECK(plan_text(rows[0]).find(concat("    gradients                         ", rows[0].sent.of(traffic_role::gradients).messages, " x")) !=
        std::string::npos);
  check_traffic<zero<3>>(4, {.shards = 2});
  for (const std::size_t many : {9U, 11U}) {  // the plan runs only a few micro-batches
    check_traffic<data_parallel>(4, {}, many);
    check_traffic<zero<2>>(4, {}, many);
    check_traffic<zero<3>>(4, {}, many);
  }
}

TEST_CASE("tensor-parallel ranks send sums of outputs in every micro-batch") {
  const auto once = check_traffic<tensor_parallel>(2, {.tensor_parallel_size = 2}, 1),
             twice = check_traffic<tensor_parallel>(2, {.tensor_parallel_size = 2}, 2);
  CHECK(once[0].sent.of(traffic_role::tensor_parallel).bytes > 0);
  CHECK(once[0].sent.of(traffic_role::gradients).bytes == 0);
  CHECK(twice[0].sent.of(traffic_role::tensor_parallel).bytes > once[0].sent.of(traffic_role::tensor_parallel).bytes);
  check_traffic<parallel<zero<2>, tensor_parallel>>(4, {.tensor_parallel_size = 2});
  check_traffic<tensor_parallel>(2, {.tensor_parallel_size = 2}, 10);
}

TEST_CASE("stages of a pipeline send rows forth and their gradients back") {
  const auto stages = check_traffic<pipeline<>>(4, {}, 4);
  const decoder_config shape = four_layers();
  const std::size_t rows = 3 * shape.max_position_embeddings * shape.hidden_size * 4;  // bytes of a micro-batch in fp32
  const std::size_t table = shape.vocab_size * shape.hidden_size * 4;
  CHECK(stages[1].sent.of(traffic_role::pipeline_parallel).bytes == 4 * 2 * rows);
  CHECK(stages[1].sent.of(traffic_role::pipeline_parallel).messages == 4 * 2);
  CHECK(stages[0].sent.of(traffic_role::pipeline_parallel).bytes == 4 * rows);
  CHECK(stages[0].sent.of(traffic_role::tied_table).bytes == table);  // half of it, both directions
  CHECK(stages[1].sent.of(traffic_role::tied_table).bytes == 0);
  check_traffic<pipeline<interleaved, data_parallel>>(4, {.data_parallel_size = 2, .chunks = 2}, 4);
  using beside = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>;
  const auto divided = check_traffic<beside>(8, {.data_parallel_size = 2, .tensor_parallel_size = 2}, 2),
             kept = check_traffic<beside>(8, {.data_parallel_size = 2, .tensor_parallel_size = 2, .shards = 1}, 2);
  CHECK(divided[0].sent.of(traffic_role::weights).bytes > 0);
  CHECK(kept[0].sent.of(traffic_role::weights).bytes == 0);
  const std::size_t twice = 2 * divided[0].sent.of(traffic_role::gradients).bytes;  // without padding
  CHECK(kept[0].sent.of(traffic_role::gradients).bytes <= twice);
  CHECK(kept[0].sent.of(traffic_role::gradients).bytes >= twice - 2 * 4 * 64 * 4);  // two of four blocks, padded to 2 x 32 values
}

TEST_CASE("of a pipeline's many micro-batches a few are planned, and come to what all of them take") {
  check_traffic<pipeline<>>(2, {}, 21);  // 17 are planned
  check_traffic<pipeline<gpipe>>(2, {}, 20);
  check_traffic<pipeline<interleaved, data_parallel>>(4, {.data_parallel_size = 2, .chunks = 2}, 20);
  check_traffic<pipeline<zero_bubble, zero<2>>>(4, {.data_parallel_size = 2}, 19);
}

TEST_CASE("planning a pipeline of a million micro-batches takes no longer than a few") {
  const auto planned = [](auto schedule, std::size_t accumulate) {
    using model_type = llama<recipe<pipeline<decltype(schedule)>>>;
    typename model_type::options options;
    options.parallel.ranks = std::make_shared<dry_transport>(0, 2);
    return plan<trainer<model_type>>(four_layers(), options, planned_run::settings(accumulate), cpu::properties{1});
  };
  const dry_run few = planned(one_forward_one_backward{}, 16), many = planned(one_forward_one_backward{}, 1'000'000);
  CHECK(many.bytes == few.bytes);
  CHECK(many.sent.of(traffic_role::pipeline_parallel).messages == 1'000'000);
  CHECK(many.num_tokens == few.num_tokens / 16 * 1'000'000);
  CHECK(many.host > 1'000'000 * 2 * 36 * 4 * sizeof(token));  // batches of two steps, of 3 sequences of 12
  const dry_run all = planned(gpipe{}, 1'000'000);            // all of them are in flight
  CHECK(all.of(memory_role::stash) > planned(gpipe{}, 16).of(memory_role::stash) * 60'000);
}
