// Distillation from a teacher model or from log-probabilities in the data; every strategy equals one device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include "capped_llama.hpp"
#include "planned.hpp"
#include "ranks.hpp"

namespace {

template <class Parallel, class Device = cpu>
struct student_recipe : defaults {
  using parallel = Parallel;
  using device = Device;
  using objective = distillation;
};
template <class Parallel, class Device = cpu>
struct teacher_recipe : defaults {
  using parallel = Parallel;
  using device = Device;
};
template <class Parallel, class Device = cpu>
using student = capped_llama<student_recipe<Parallel, Device>>;
template <class Parallel, class Device = cpu>
using teacher = capped_llama<teacher_recipe<Parallel, Device>>;

[[nodiscard]] decoder_config student_shape(double softcap = 0.0) {
  decoder_config c = sizes(false);
  c.final_logit_softcapping = softcap;
  if (softcap != 0.0) c.initializer_range = 0.2;
  c.attention_dropout = c.residual_dropout = 0.0;
  return c;
}
[[nodiscard]] decoder_config teacher_shape(double softcap = 0.0) {
  decoder_config c = student_shape(softcap);
  c.hidden_size = 32;
  c.num_heads = 4;
  c.num_layers = 2;
  return c;
}

constexpr std::size_t length = 16;

[[nodiscard]] host_batch batch_of(std::size_t number) {
  host_batch batch;
  batch.b = 2;
  batch.t = length;
  batch.first_sequence = 2 * number;
  for (std::size_t i = 0; i < batch.b * batch.t; ++i) {
    batch.tokens.push_back(static_cast<token>((i * i * 5 + number * 11) % 97));
    batch.targets.push_back(i % 5 == 0 ? -1 : static_cast<token>((i * 3 + number * 7) % 97));
    batch.positions.push_back(static_cast<token>(i % batch.t));
    batch.starts.push_back(0);
    batch.target_count += i % 5 == 0 ? 0 : 1;
  }
  batch.token_count = batch.b * batch.t;
  return batch;
}

struct result {
  std::vector<double> losses, norms;
};

template <class Trainer>
result take_steps(Trainer& trainer) {
  auto& parallel = trainer.model().parallel();
  const std::size_t ranks = parallel.data().size(), rank = parallel.data().rank();
  result all;
  for (std::size_t step = 0; step < 4; ++step) {
    std::vector<host_batch> batches;
    for (std::size_t m = 0; m < 4 / ranks; ++m) batches.push_back(batch_of(4 * step + m * ranks + rank));
    const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-2);
    all.losses.push_back(done.loss);
    all.norms.push_back(done.gradient_norm);
  }
  return all;
}
[[nodiscard]] training_config<adamw, distillation> settings(const distillation::config& how, std::size_t ranks = 1) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4 / ranks, .seq_length = length, .objective = how};
}

template <class Parallel, class Device = cpu>
result train_on(std::size_t ranks, const distillation::config& how, typename Parallel::config layout = {}, double softcap = 0.0) {
  std::vector<result> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout, other = layout;
    if constexpr (requires { own.ranks = network; }) {
      own.ranks = network;
      other.ranks = separate_channels(network);
    }
    using model_type = student<Parallel, Device>;
    using frozen_type = teacher<Parallel, Device>;
    const typename Device::context on;
    model_type model(student_shape(softcap), on, {.parallel = own});
    frozen_type knows(teacher_shape(softcap), on, {.parallel = other, .seed = 7});
    const std::size_t data_ranks = model.parallel().data().size();
    trainer trainer(model, settings(how, data_ranks));
    const forward_only_config batches{.micro_batch_size = 2, .gradient_accumulation_steps = 4 / data_ranks, .seq_length = length};
    teacher_model source(knows, batches);
    trainer.use_teacher(source);
    all[network->rank()] = take_steps(trainer);
    dry_run planned = plan<xtrain::trainer<model_type>>(student_shape(softcap), {.parallel = own}, settings(how, data_ranks), on.properties());
    planned.set_beside("teacher", plan<teacher_model<frozen_type>>(teacher_shape(softcap), {.parallel = other}, batches, on.properties()));
    check_planned(planned, on.memory());
    check_planned(trainer.plan(), on.memory());
  });
  for (const result& one : all) CHECK(one.losses == all[0].losses);
  return all[0];
}

void agree(const result& a, const result& b, double bound) {
  CHECK(difference(a.losses, b.losses) < bound);
  CHECK(difference(a.norms, b.norms) < 10 * bound);
}

}  // namespace

TEST_CASE("a student that is its teacher has nothing to learn from it") {
  for (const divergence_kind kind : {divergence_kind::forward, divergence_kind::reverse}) {
    student<single> model(student_shape());
    teacher<single> same(student_shape());
    trainer trainer(model, settings({.kind = kind, .ratio = 1.0, .temperature = 2.0}));
    teacher_model source(same, {.micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = length});
    trainer.use_teacher(source);
    std::vector<host_batch> batches;
    for (std::size_t m = 0; m < 4; ++m) batches.push_back(batch_of(m));
    const step_done done = trainer.step(std::span<const host_batch>(batches), 0.0);
    CHECK(std::abs(done.loss) < 1e-6);
    CHECK(done.gradient_norm < 1e-5);
  }
}

TEST_CASE("a ratio of 0 is the cross-entropy of the next token") {
  const result mixed = train_on<single>(1, {.ratio = 0.0});
  teacher<single> model(student_shape());
  trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = length});
  agree(mixed, take_steps(trainer), 1e-5);
}

TEST_CASE("the mean of micro-batches' means, as torchtune's recipe logs it") {
  // the second micro-batch has a quarter of the first one's targets
  std::vector<host_batch> batches{batch_of(0), batch_of(1)};
  for (std::size_t i = 0, kept = 0; i < batches[1].targets.size(); ++i)
    if (batches[1].targets[i] >= 0 && kept++ % 4 != 0) batches[1].targets[i] = -1;
  batches[1].target_count = static_cast<std::size_t>(std::count_if(batches[1].targets.begin(), batches[1].targets.end(), [](token t) { return t >= 0; }));
  const auto step_of = [&](std::span<const host_batch> some, loss_average average) {
    student<single> model(student_shape());
    teacher<single> knows(teacher_shape(), {}, {.seed = 7});
    auto how = settings({.ratio = 0.5});
    how.gradient_accumulation_steps = some.size();
    how.average_loss = average;
    trainer trainer(model, how);
    teacher_model source(knows, {.micro_batch_size = 2, .gradient_accumulation_steps = some.size(), .seq_length = length});
    trainer.use_teacher(source);
    const step_done done = trainer.step(some, 0.0);
    const auto gradients = model.parameters().gradients().host();
    return std::pair{done.loss, std::vector<float>(gradients.begin(), gradients.end())};
  };
  const auto first = step_of(std::span(batches).first(1), loss_average::step), second = step_of(std::span(batches).last(1), loss_average::step);
  const auto both = step_of(batches, loss_average::micro_batch), weighted = step_of(batches, loss_average::step);
  CHECK(both.first == doctest::Approx(0.5 * (first.first + second.first)).epsilon(1e-6));
  CHECK(std::abs(both.first - weighted.first) > 1e-4);
  REQUIRE(both.second.size() == first.second.size());
  double most = 0;
  for (std::size_t i = 0; i < both.second.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(both.second[i]) - 0.5 * (static_cast<double>(first.second[i]) + static_cast<double>(second.second[i]))));
  CHECK(most < 1e-6);  // gradients below 1: sums of two round at 2^-24
}

TEST_CASE("data, tensor, sequence, context and pipeline parallelism equal one device") {
  const distillation::config how{.kind = divergence_kind::reverse, .ratio = 0.7, .temperature = 1.5};
  const result one = train_on<single>(1, how);
  agree(one, train_on<zero<2>>(2, how), 2e-5);
  agree(one, train_on<tensor_parallel>(2, how, {.tensor_parallel_size = 2}), 2e-5);
  agree(one, train_on<sequence_parallel>(2, how, {.tensor_parallel_size = 2}), 2e-5);
  agree(one, train_on<context_parallel>(2, how, {.context_parallel_size = 2}), 2e-5);
  agree(one, train_on<pipeline<one_forward_one_backward>>(2, how), 2e-5);
  const result capped = train_on<single>(1, how, {}, 1.5);
  agree(capped, train_on<tensor_parallel>(2, how, {.tensor_parallel_size = 2}, 1.5), 2e-5);
  CHECK(difference(capped.losses, one.losses) > 1e-3);
}

TEST_CASE("on a device that works asynchronously, bit for bit") {
  const distillation::config how{.ratio = 0.5};
  const result here = train_on<single>(1, how), there = train_on<single, testing::isolated<cpu>>(1, how);
  CHECK(here.losses == there.losses);
  CHECK(here.norms == there.norms);
}

TEST_CASE("log-probabilities of the whole vocabulary in the data are the teacher") {
  const std::size_t vocabulary = 97;
  const auto stored = [&](std::size_t ranks, auto parallel, auto layout, double softcap = 0.0) {
    using parallel_type = decltype(parallel);
    std::vector<result> all(ranks);
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      auto own = layout;
      if constexpr (requires { own.ranks = network; }) own.ranks = network;
      teacher<single> knows(teacher_shape(softcap), {}, {.seed = 7});
      student<parallel_type> model(student_shape(softcap), {}, {.parallel = own});
      trainer trainer(model, settings({.ratio = 0.5, .top_k = vocabulary}));
      result mine;
      for (std::size_t step = 0; step < 4; ++step) {
        std::vector<host_batch> batches;
        for (std::size_t m = 0; m < 4; ++m) {
          host_batch batch = batch_of(4 * step + m);
          const auto logits = xtrain::logits(knows, batch);
          for (std::size_t row = 0; row < batch.b; ++row) {
            for (std::size_t t = 0; t < length; ++t) {
              double most = -1e9, sum = 0;
              for (std::size_t v = 0; v < vocabulary; ++v) most = std::max(most, static_cast<double>(logits(row, t, v)));
              for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits(row, t, v)) - most);
              for (std::size_t v = 0; v < vocabulary; ++v) {
                batch.teacher_tokens.push_back(static_cast<token>((v * 5 + t) % vocabulary));  // in any order
                batch.teacher_log_probs.push_back(
                    static_cast<float>(static_cast<double>(logits(row, t, static_cast<std::size_t>(batch.teacher_tokens.back()))) - most - std::log(sum)));
              }
            }
          }
          batches.push_back(std::move(batch));
        }
        const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-2);
        mine.losses.push_back(done.loss);
        mine.norms.push_back(done.gradient_norm);
      }
      all[network->rank()] = mine;
    });
    return all[0];
  };
  const result by_model = train_on<single>(1, {.ratio = 0.5});
  agree(by_model, stored(1, single{}, single::config{}), 1e-5);
  agree(train_on<single>(1, {.ratio = 0.5}, {}, 1.5), stored(1, single{}, single::config{}, 1.5), 1e-5);
  agree(by_model, stored(2, tensor_parallel{}, rank_layout{.tensor_parallel_size = 2}), 2e-5);
  agree(by_model, stored(2, pipeline<one_forward_one_backward>{}, pipeline<one_forward_one_backward>::config{}), 2e-5);
}

TEST_CASE("what is missing or does not fit is said") {
  student<single> model(student_shape());
  trainer trainer(model, settings({}));
  const std::vector<host_batch> batches(4, batch_of(0));
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(batches), 1e-2), doctest::Contains("a teacher must be given"), config_error);
  decoder_config other = teacher_shape();
  other.vocab_size = 101;
  teacher<single> stranger(other);
  teacher_model source(stranger, {.micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = length});
  trainer.use_teacher(source);
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(batches), 1e-2), doctest::Contains("vocabulary must be the student's"), shape_error);
  {
    teacher<single> short_lived(teacher_shape());
    teacher_model brief(short_lived, {.micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = length});
    trainer.use_teacher(brief);
  }
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(batches), 1e-2),
                       doctest::Contains("trainer: the teacher must live as long as it is used; it has been destroyed"), config_error);
  xtrain::trainer<student<single>> stored(model, settings({.top_k = 4}));
  CHECK_THROWS_WITH_AS((void)stored.step(std::span<const host_batch>(batches), 1e-2), doctest::Contains("top-4"), data_error);
  CHECK_THROWS_WITH_AS((xtrain::trainer<student<single>>(model, settings({.kind = divergence_kind::reverse, .top_k = 4}))),
                       doctest::Contains("must be forward"), config_error);
  CHECK_THROWS_WITH_AS((xtrain::trainer<student<single>>(model, settings({.ratio = 1.5}))), doctest::Contains("ratio must be in [0, 1]"), config_error);
  CHECK_THROWS_WITH_AS((xtrain::trainer<student<single>>(model, settings({.temperature = 0.0}))),
                       doctest::Contains("distillation: temperature must be positive; given 0"), config_error);
  CHECK_THROWS_WITH_AS((void)teacher_model(stranger, {.micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = length, .temperature = 0.5}),
                       doctest::Contains("teacher_model: the temperature is a setting of the objective; given 0.5"), config_error);
}
