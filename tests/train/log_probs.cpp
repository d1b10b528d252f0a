// Stored log-probabilities of a reference model or teacher, in the dataset or in files: training with them equals training with the model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <xtrain/data/log_prob_file.hpp>
#include <xtrain/data/once_per_host.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/train/add_log_probs.hpp>
#include <xtrain/train/checkpoint_state.hpp>
#include "golden.hpp"
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

template <class Objective, class Parallel = single, class Adapter = no_adapter>
struct recipe_of : defaults {
  using parallel = Parallel;
  using adapter = Adapter;
  using objective = Objective;
};
template <class Objective, class Parallel = single, class Adapter = no_adapter>
using model_of = llama<recipe_of<Objective, Parallel, Adapter>>;

constexpr std::size_t length = 16;

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(false);
  c.attention_dropout = c.residual_dropout = 0.0;
  return c;
}

/// Pairs of different lengths; some exceed the sequence length.
[[nodiscard]] dataset pairs() {
  dataset data("pairs", sequence_layout::separate);
  data.group_size = 2;
  data.when_too_long = overlong::truncate;
  for (std::size_t i = 0; i < 80; ++i) {
    const std::size_t prompt = 3 + i / 2 % 4, answer = i % 10 == 1 ? length : 3 + i * 7 % 5;
    std::vector<token> tokens;
    for (std::size_t t = 0; t < prompt + answer; ++t) tokens.push_back(static_cast<token>((t < prompt ? i / 2 * 13 + t * 5 : i * 31 + t * t * 3) % 97));
    data.add(tokens, [&](std::size_t t) { return t >= prompt; });
  }
  data.finish();
  return data;
}
/// A student's samples, untruncated.
[[nodiscard]] dataset samples(sequence_layout layout) {
  dataset data("samples", layout);
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<token> tokens;
    for (std::size_t t = 0; t < 3 + i * 5 % 11; ++t) tokens.push_back(static_cast<token>((i * 17 + t * t * 7) % 97));
    data.add(tokens, [](std::size_t t) { return t % 4 != 1; });
  }
  data.finish();
  return data;
}

struct losses_of_steps final : observer {
  std::vector<double> all;
  using observer::on;
  void on(const step_done& done) override { all.push_back(done.loss); }
};
template <class Trainer>
std::vector<double> fit(Trainer& trainer, const dataset& data) {
  losses_of_steps seen;
  trainer.attach(seen);
  trainer.fit(data);
  return seen.all;
}
template <class Objective>
[[nodiscard]] training_config<adamw, Objective> settings(std::size_t ranks = 1) {
  return {.max_steps = 7, .micro_batch_size = 4, .gradient_accumulation_steps = 4 / ranks, .seq_length = length, .learning_rate = 1e-2};
}

}  // namespace

TEST_CASE("with reference log-probabilities of a file, of a second model, and with the adapter switched off: the same losses") {
  const scratch_folder folder;
  const dataset data = pairs();
  dataset with_values = pairs(), read = pairs();
  llama<defaults> frozen(shape());
  add_reference_log_probs(frozen, with_values, {.micro_batch_size = 3, .seq_length = length});
  save_reference_log_probs(with_values, folder / "reference.safetensors");
  load_reference_log_probs(read, folder / "reference.safetensors");
  CHECK(std::equal(read.reference_log_probs().begin(), read.reference_log_probs().end(), with_values.reference_log_probs().begin()));

  using adapted = model_of<dpo, single, lora>;
  adapted::options options;
  options.adapter.rank = 4;
  adapted first(shape(), {}, options), second(shape(), {}, options), third(shape(), {}, options);
  trainer switched_off(first, settings<dpo>()), by_model(second, settings<dpo>()), by_file(third, settings<dpo>());
  reference_model source(frozen, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  by_model.use_reference(source);
  const std::vector<double> expected = fit(switched_off, data);
  CHECK(expected.size() == 7);  // three in an epoch
  CHECK(std::abs(expected.front() - std::log(2.0)) < 1e-6);
  CHECK(expected.back() < std::log(2.0) - 0.005);
  CHECK(difference(expected, fit(by_model, data)) < 1e-6);
  CHECK(difference(expected, fit(by_file, read)) < 1e-6);
  CHECK(std::abs(by_file.evaluate(read).loss - switched_off.evaluate(data).loss) < 1e-6);

  // two data-parallel ranks; one reads the file
  model_of<dpo> all_weights(shape());
  trainer alone(all_weights, settings<dpo>());
  const std::vector<double> of_one = fit(alone, read);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const dataset mine = once_per_host(*network, [&] {
      dataset all = pairs();
      load_reference_log_probs(all, folder / "reference.safetensors");
      return all;
    });
    model_of<dpo, data_parallel> model(shape(), {}, {.parallel = {.ranks = network}});
    trainer trainer(model, settings<dpo>(2));
    CHECK(difference(of_one, fit(trainer, mine)) < 1e-5);
    // computed by all ranks
    const auto agrees = [&](auto& reference) {
      dataset computed = pairs();
      add_reference_log_probs(reference, computed, {.micro_batch_size = 3, .seq_length = length});
      double most = 0;
      for (std::size_t s = 0; s < computed.size(); ++s) most = std::max(most, std::abs(computed.reference_log_probs()[s] - read.reference_log_probs()[s]));
      CHECK(most < 1e-4);  // sums of up to 16 terms near 5
    };
    llama<recipe_of<next_token, data_parallel>> copies(shape(), {}, {.parallel = {.ranks = separate_channels(network)}});
    llama<recipe_of<next_token, pipeline<one_forward_one_backward>>> stages(shape(), {}, {.parallel = {.ranks = separate_channels(network, 2)}});
    agrees(copies);
    agrees(stages);
  });

  // refused: values of differently read samples, and other files
  auto longer = settings<dpo>();
  longer.seq_length = length + 8;
  trainer another(all_weights, longer);
  CHECK_THROWS_WITH_AS(another.fit(read), doctest::Contains("reference log-probabilities must be of samples as they are read"), data_error);
  dataset other("others", sequence_layout::separate);
  other.group_size = 2;
  other.add(std::vector<token>{1, 2, 3});
  other.add(std::vector<token>{1, 2, 4});
  other.finish();
  CHECK_THROWS_WITH_AS(load_reference_log_probs(other, folder / "reference.safetensors"), doctest::Contains("must be of the same data as others"),
                       data_error);
  CHECK_THROWS_WITH_AS(load_teacher_log_probs(read, folder / "reference.safetensors"),
                       doctest::Contains("must be a file of xtrain teacher log-probabilities"), file_error);
  CHECK_THROWS_WITH_AS(save_teacher_log_probs(read, folder / "x"), doctest::Contains("it has none"), config_error);

  // the model that computed a file
  const auto weights = [&](const std::string& name, std::size_t last) {
    make_folder(folder / name);
    put_file(folder / name + "/config.json", "{}");
    std::string values(100000, 'x');
    values[last] = 'y';
    put_file(folder / name + "/model.safetensors", values);
    return log_prob_model_in(folder / name);
  };
  const log_prob_model base = weights("base", 99999), copy = weights("copy", 99999), further = weights("further", 99998);
  CHECK(base.name == folder / "base");
  CHECK(base.fingerprint == copy.fingerprint);
  CHECK(base.fingerprint != further.fingerprint);
  // in a large file, a change of 1/255 is detected anywhere
  const std::size_t size = (std::size_t{1} << 23) + 17, part = size / 255 + 1;
  const auto changed = [&](std::size_t begin) {
    std::string values(size, 'x');
    for (std::size_t i = begin; i < std::min(size, begin + part); ++i) values[i] = 'y';
    put_file(folder / "large.safetensors", values);
    return log_prob_model_in(folder / "large.safetensors").fingerprint;
  };
  const std::string unchanged = changed(size);
  CHECK(changed(size) == unchanged);
  for (const std::size_t begin : {std::size_t{0}, size / 17, size / 2, size - part}) CHECK(changed(begin) != unchanged);
  put_file(folder / "copy" + "/config.json", "{\"rope_theta\": 1}");
  CHECK(base.fingerprint != log_prob_model_in(folder / "copy").fingerprint);
  CHECK(log_prob_model_in(folder / "copy" + "/model.safetensors").fingerprint != base.fingerprint);
  CHECK_THROWS_WITH_AS((void)log_prob_model_in(folder / "none"), doctest::Contains("must be the folder of a model"), file_error);
  std::filesystem::remove(folder / "copy" + "/model.safetensors");
  CHECK_THROWS_WITH_AS((void)log_prob_model_in(folder / "copy"), doctest::Contains("it has no files with weights"), file_error);
  CHECK(load_reference_log_probs(read, folder / "reference.safetensors", base) == log_prob_model{});  // the file does not say
  save_reference_log_probs(with_values, folder / "by-base.safetensors", base);
  CHECK(load_reference_log_probs(read, folder / "by-base.safetensors") == base);
  CHECK(load_reference_log_probs(read, folder / "by-base.safetensors", base) == base);
  CHECK_THROWS_WITH_AS(load_reference_log_probs(read, folder / "by-base.safetensors", further), doctest::Contains("must be of the model in "), data_error);
  std::string bytes = get_file(folder / "reference.safetensors");
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  put_file(folder / "reference.safetensors", bytes);
  CHECK_THROWS_WITH_AS(load_reference_log_probs(read, folder / "reference.safetensors"), doctest::Contains("the checksum of its values"), file_error);
}

TEST_CASE("a model in several GGUF files is known by all of them") {
  const scratch_folder folder;
  const auto path = [&](int number) { return folder / concat("model-0000", number, "-of-00003.gguf"); };
  for (int number = 1; number <= 3; ++number) put_file(path(number), get_file(golden::folder(concat("gguf/shards/model-0000", number, "-of-00003.gguf"))));
  const auto known = [&] { return std::pair(log_prob_model_in(path(1)).fingerprint, detail::base_weights_fingerprint(path(1))); };
  const auto before = known();
  CHECK(before == known());
  for (int number = 1; number <= 3; ++number) {
    CAPTURE(number);
    std::string bytes = get_file(path(number));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(path(number), bytes);
    const auto after = known();
    CHECK(after.first != before.first);
    CHECK(after.second != before.second);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(path(number), bytes);
  }
  CHECK(before == known());
}

TEST_CASE("a teacher's log-probabilities of the whole vocabulary in a file are the teacher, whatever the layout") {
  const scratch_folder folder;
  llama<defaults> teacher(shape(), {}, {.seed = 7});
  for (const sequence_layout layout : {sequence_layout::separate, sequence_layout::packed, sequence_layout::stream}) {
    const dataset data = samples(layout);
    dataset with_values = samples(layout), read = samples(layout);
    add_teacher_log_probs(teacher, with_values, {.top_k = 97, .micro_batch_size = 3, .seq_length = length});
    save_teacher_log_probs(with_values, folder / "teacher.safetensors");
    load_teacher_log_probs(read, folder / "teacher.safetensors");
    model_of<distillation> one(shape()), other(shape());
    auto how = settings<distillation>();
    trainer by_model(one, how);
    how.objective.top_k = 97;
    trainer by_file(other, how);
    teacher_model source(teacher, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
    by_model.use_teacher(source);
    CHECK(difference(fit(by_model, data), fit(by_file, read)) < 1e-5);
    if (layout != sequence_layout::stream) continue;
    how.seq_length = length / 2;
    trainer shorter(other, how);
    CHECK_THROWS_WITH_AS(shorter.fit(read), doctest::Contains("log-probabilities of a stream are those of sequences of 16 tokens"), data_error);
  }
  // of fewer: the most probable, in order
  dataset few = samples(sequence_layout::separate), all = samples(sequence_layout::separate);
  add_teacher_log_probs(teacher, few, {.top_k = 3, .seq_length = length});
  add_teacher_log_probs(teacher, all, {.top_k = 97, .seq_length = length});
  CHECK(few.top_k() == 3);
  for (std::size_t i = few.begin(5); i + 1 < few.begin(6); ++i) {
    const auto log_probs = few.teacher_log_probs().subspan(3 * i, 3);
    CHECK(log_probs[0] >= log_probs[1]);
    CHECK(log_probs[1] >= log_probs[2]);
    for (std::size_t j = 0; j < 3; ++j) CHECK(few.teacher_tokens()[3 * i + j] == all.teacher_tokens()[97 * i + j]);
  }
  CHECK_THROWS_WITH_AS(add_teacher_log_probs(teacher, few, {.top_k = 98}), doctest::Contains("top_k must be positive and at most the vocabulary's 97"),
                       config_error);
  dataset packed = samples(sequence_layout::packed);
  CHECK_THROWS_WITH_AS(add_reference_log_probs(teacher, packed), doctest::Contains("must be sequences of their own"), config_error);
}
