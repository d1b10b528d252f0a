// A partly implemented device: missing kernels run on the host, with bit-identical training.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/device/simt/simt.hpp>
#include <xtrain/device/unsupported.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/xtrain.hpp>

// an unfinished port: the cpu's kernels without attention and optimizer
namespace half {

struct device : xtrain::cpu {
  static constexpr std::string_view name = "half";
  struct stream : xtrain::cpu::stream {
    using xtrain::cpu::stream::stream;
  };
};
template <class T>
void run_kernel(device::stream&, const xtrain::kernel::attention<xtrain::host_memory, T>&,
                xtrain::scratch_span<xtrain::host_memory>) = delete;
template <class T>
void run_kernel(device::stream&, const xtrain::kernel::attention_backward<xtrain::host_memory, T>&,
                xtrain::scratch_span<xtrain::host_memory>) = delete;
template <class P, class G, class M, class S>
void run_kernel(device::stream&, const xtrain::kernel::adamw<xtrain::host_memory, P, G, M, S>&,
                xtrain::scratch_span<xtrain::host_memory>) = delete;

}  // namespace half

using namespace xtrain;

namespace {

/// Isolated memory and an asynchronous stream: a missing copy or synchronization in the fallback shows.
using far_device = testing::isolated<half::device>;
using whole_device = with_host_fallback<far_device>;

template <class Memory>
using attention = kernel::attention<Memory, float>;
template <class Memory>
using sum = kernel::add<Memory, float>;
static_assert(runs_kernel<half::device, sum<host_memory>> && !runs_kernel<half::device, attention<host_memory>>);
static_assert(runs_kernel<far_device, sum<far_device::memory>> && !runs_kernel<far_device, attention<far_device::memory>>);
static_assert(runs_kernel<whole_device, sum<far_device::memory>> && runs_kernel<whole_device, attention<far_device::memory>>);
static_assert(device<whole_device> && !host_addressable<whole_device>);

struct plain_recipe : defaults {};
struct whole_recipe : defaults {
  using device = whole_device;
};

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::separate);
    for (std::size_t s = 0; s < 12; ++s) {
      std::vector<token> tokens;
      for (std::size_t i = 0; i < 4 + s % 7; ++i) tokens.push_back(static_cast<token>((s * 11 + i * i * 5) % 29));
      d.add(tokens);
    }
    d.finish();
    return d;
  }();
  return all;
}

constexpr std::size_t layers = 2, steps = 3, accumulate = 2;

/// Losses, then weights.
template <class Recipe>
std::vector<double> run(const typename Recipe::device::context& on) {
  llama<Recipe> model({.vocab_size = 29,
                       .hidden_size = 24,
                       .num_layers = layers,
                       .num_heads = 2,
                       .num_kv_heads = 1,
                       .intermediate_size = 40,
                       .max_position_embeddings = 12,
                       .attention_dropout = 0.1},
                      on);
  trainer trainer(model, {.max_steps = steps, .micro_batch_size = 3, .gradient_accumulation_steps = accumulate, .learning_rate = 1e-2});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  std::vector<float> weights(model.parameters().trained_values().size());
  copy_to_host(model.stream(), std::span<float>(weights), model.parameters().trained_values());
  model.stream().synchronize();
  all.insert(all.end(), weights.begin(), weights.end());
  CHECK(trainer.plan().total() == on.memory().total_peak);  // host memory for the fallback is not device memory
  return all;
}

}  // namespace

TEST_CASE("a device that lacks kernels trains to the same result, bit for bit, and only what it lacks ran on the host") {
  const whole_device::context on;
  const std::vector<double> fallen_back = run<whole_recipe>(on);
  CHECK(fallen_back == run<plain_recipe>(cpu::context{}));

  std::map<std::string_view, std::size_t> runs;
  for (const fallback_count& count : on.fallbacks()) {
    runs[count.kernel] = count.runs;
    CHECK(count.seconds > 0);
  }
  CHECK(runs.size() == 3);
  CHECK(runs["attention"] == layers * accumulate * steps);
  CHECK(runs["attention_backward"] == layers * accumulate * steps);
  // once per contiguous run of parameters with or without decay: matrices before vectors in each of layers + 2 blocks; the embedding's block has only matrices
  // and precedes matrices, the last block has only a norm and follows norms
  CHECK(runs["adamw"] == 2 * layers * steps);
}

TEST_CASE("the report names the missing kernels, the most expensive first") {
  const whole_device::context on;
  CHECK(on.report().empty());
  on.count("cheap", 0.001);
  on.count("dear", 0.5);
  on.count("cheap", 0.002);
  CHECK(on.report() == "isolated lacks kernels:\n  dear: 1 runs on the host, 500.0 ms\n  cheap: 2 runs on the host, 3.0 ms\n");
  const whole_device::context copy = on;  // handles of one device share its counters
  copy.count("dear", 0.5);
  CHECK(on.fallbacks()[0].runs == 2);
}

TEST_CASE("a fallback gives back what it writes, and leaves what it reads") {
  const whole_device::context on;
  whole_device::stream stream(on);
  constexpr kernel::attention_shape s{.b = 1, .t = 3, .h = 2, .k = 1, .d = 2};
  std::vector<float> qkv(s.t * s.row()), back(qkv.size()), o(s.t * s.h * s.d), lse(s.h * s.t);
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = 0.1f * static_cast<float>(i % 7);
  const buffer<whole_device> qkv_there(on, qkv.size() * sizeof(float), memory_role::other),
      o_there(on, o.size() * sizeof(float), memory_role::other), lse_there(on, lse.size() * sizeof(float), memory_role::other);
  copy_to_device(stream, qkv_there.as<float>(), qkv);
  run_kernel(stream,
             attention<far_device::memory>{.shape = s,
                                           .scale = 0.5,
                                           .qkv = device_span<const float, far_device::memory>(qkv_there.as<float>()),
                                           .o_bthd = o_there.as<float>(),
                                           .lse_bht = lse_there.as<float>()},
             scratch_span<far_device::memory>{});
  copy_to_host(stream, std::span<float>(back), qkv_there.as<float>());
  copy_to_host(stream, std::span<float>(o), o_there.as<float>());
  copy_to_host(stream, std::span<float>(lse), lse_there.as<float>());
  stream.synchronize();
  CHECK(back == qkv);
  // the first token attends only to itself: output is its value, logsumexp its score; Approx allows 1.2e-5, a hundred roundings; exp, log and two products make
  // a few
  for (std::size_t h = 0; h < s.h; ++h) {
    for (std::size_t j = 0; j < s.d; ++j) CHECK(o[h * s.d + j] == doctest::Approx(qkv[s.value_offset() + j]));
    const float score = 0.5f * (qkv[h * s.d] * qkv[s.key_offset()] + qkv[h * s.d + 1] * qkv[s.key_offset() + 1]);
    CHECK(lse[h * s.t] == doctest::Approx(score));
  }
  CHECK(on.fallbacks().size() == 1);
}

TEST_CASE("what a device lacks is named before a run: nothing of cpu, simt and cuda; of another, its kernels by dtype, or those that fall back") {
  const auto lacks_nothing = [](const unsupported_kernels& all) {
    CHECK(all.known > 180);
    CHECK(all.missing == std::vector<std::string>{});
    CHECK(all.fall_back == std::vector<std::string>{});
  };
  lacks_nothing(find_unsupported<cpu>());
  lacks_nothing(find_unsupported<simt_device>());
  lacks_nothing(find_unsupported<cuda>());
  lacks_nothing(find_unsupported<testing::isolated<cpu>>());

  const std::vector<std::string> kernels{"attention<float>", "attention_backward<float>", "adamw<float, float, float, float>"};
  const auto has_each = [&](const std::vector<std::string>& of) {
    for (const std::string& one : kernels) CHECK_MESSAGE(std::count(of.begin(), of.end(), one) == 1, one);
    CHECK(std::all_of(of.begin(), of.end(), [](const std::string& one) { return one.starts_with("attention") || one.starts_with("adamw<"); }));
    CHECK(std::count(of.begin(), of.end(), "attention_block<float>") == 0);
  };
  has_each(find_unsupported<far_device>().missing);
  CHECK(find_unsupported<far_device>().fall_back.empty());
  CHECK(find_unsupported<whole_device>().missing.empty());
  CHECK(find_unsupported<whole_device>().fall_back == find_unsupported<far_device>().missing);

  const std::string said = describe_unsupported<half::device>();
  CHECK(said.starts_with("half runs "));
  CHECK(said.find("does not compile, unless the device is with_host_fallback of this one:\n") != std::string::npos);
  CHECK(said.find("\n  attention<bf16>\n") != std::string::npos);
  CHECK(describe_unsupported<whole_device>().find("leaves ") != std::string::npos);
}
