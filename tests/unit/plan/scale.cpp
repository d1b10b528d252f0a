// A 7B model on 512 ranks: how many messages a rank sends in a step.
#include <doctest/doctest.h>

#include <memory>

#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

template <class Parallel>
struct recipe : defaults {
  using precision = bf16_mixed;
  using parallel = Parallel;
  using recompute = recompute_full;
};

decoder_config seven_billion() {
  return {.vocabulary = 32'000, .width = 4'096, .layers = 32, .heads = 32, .feed_forward = 11'008, .context = 2'048, .tied_head = false};
}

template <class Parallel>
rehearsal step_of(std::size_t rank, std::size_t ranks) {
  using model = llama<recipe<Parallel>>;
  typename model::options options;
  options.parallel.ranks = std::make_shared<dry_transport>(rank, ranks);
  const rehearsal step = plan<trainer<model>>(seven_billion(), options, {.steps = 1, .batch = 1}, cpu::properties{1});
  const auto time = predict(step, layout_of<recipe<Parallel>>(options.parallel, 1), h100(), "bf16");
  for (std::size_t r = 0; r < traffic_roles; ++r)
    if (step.sent.sent[r].messages > 0)
      MESSAGE(Parallel::name, " rank ", rank, " of ", ranks, " ", std::string(name_of(static_cast<traffic_role>(r))), ": ", step.sent.sent[r].messages, " messages, ",
              step.sent.sent[r].bytes, " bytes");
  MESSAGE("all: ", step.sent.total().messages, ", ", prediction_text(time));
  return step;
}

}  // namespace

TEST_CASE("messages of a 7B model's step on 512 ranks") {
  for (const std::size_t rank : {0U, 511U}) {
    step_of<data_parallel>(rank, 512);
    step_of<zero<1>>(rank, 512);
    step_of<zero<3>>(rank, 512);
  }
}
