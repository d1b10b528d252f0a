// Dry runs of devices in host memory record the costs of runs on the dry device.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/trainer.hpp>

using namespace xtrain;

namespace {

/// The device as another type, without own support of dry runs.
using wrapped_cpu = with_host_fallback<cpu>;
static_assert(clause::device_has_dry_run<cpu> && clause::device_has_dry_run<reference>);
static_assert(!clause::device_has_dry_run<wrapped_cpu> && !clause::device_has_dry_run<dry<cpu>>);

template <class Device>
struct recipe : defaults {
  using device = Device;
};
template <class Device>
using model = llama<recipe<Device>>;
static_assert(std::is_same_v<dry_model<model<cpu>>, model<cpu>>);
static_assert(std::is_same_v<dry_model<model<wrapped_cpu>>::device, dry<wrapped_cpu>>);

template <class Device>
void counts_and_computes_nothing(const typename Device::properties& properties) {
  const auto on = Device::context::for_dry_run(properties);
  CHECK(is_dry_run(on));
  constexpr std::size_t tebibyte = std::size_t{1} << 40;
  {
    const buffer<Device> weights(on, 300 * tebibyte, memory_role::weights), more(on, 5, memory_role::stash);
    CHECK(on.memory().of(memory_role::weights) == 300 * tebibyte);
    CHECK(more.template as<std::byte>().raw() >= weights.template as<std::byte>().raw() + weights.bytes());
  }
  CHECK(on.memory().total_now == 0);

  typename Device::stream stream(on);
  REQUIRE(counts_of(stream) == &on.record());
  const buffer<Device> values(on, 40, memory_role::other);
  const auto span = values.template as<float>();
  std::array<float, 10> host{};
  host.fill(7);
  copy_to_device(stream, span, std::span<const float>(host));
  copy_within(stream, span.subspan(0, 5), device_span<const float, host_memory>(span.subspan(5, 5)));
  fill_zero(stream, span);
  copy_to_host(stream, std::span<float>(host), device_span<const float, host_memory>(span));
  stream.synchronize();
  CHECK(host == std::array<float, 10>{});
  CHECK(on.record().bytes_from_host == 40);
  CHECK(on.record().bytes_to_host == 40);
  CHECK(on.record().synchronisations == 1);

  arena<Device> workspace(on, 0, memory_role::workspace);  // unbounded
  execution<Device> where{stream, workspace, on.properties()};
  const matrix_view<float, host_memory> x(span, {2, 5});
  ops::tanh<Device, float>(where, x, x);
  REQUIRE(on.record().kernels.size() == 3);
  CHECK(on.record().kernels[0].name == "copy");
  CHECK(on.record().kernels[0].bytes == 40);
  CHECK(on.record().kernels[1].name == "fill_zero");
  CHECK(on.record().kernels[1].bytes == 40);
  CHECK(on.record().kernels[2].name == "tanh");
  CHECK(on.record().kernels[2].bytes == 80);

  const typename Device::context real;
  CHECK_FALSE(is_dry_run(real));
  CHECK(counts_of(typename Device::stream(real)) == nullptr);
}

}  // namespace

TEST_CASE("a device that rehearses gives out memory that no machine has, counts, and shows zeros") {
  counts_and_computes_nothing<cpu>({3});
  CHECK(cpu::context::for_dry_run({3}).properties().threads == 3);
  counts_and_computes_nothing<reference>({});
}

TEST_CASE("nothing is put into files, and no files are asked for") {
  auto on = cpu::context::for_dry_run({1});
  on.keep_in_files({memory_role::weights}, "/a folder that is not there");
  const buffer<cpu> weights(on, std::size_t{1} << 40, memory_role::weights);
  CHECK(on.memory().of(memory_role::weights) == std::size_t{1} << 40);
  on.will_read(weights.as<std::byte>().raw(), 4096);
}

TEST_CASE("a step takes what it takes on the dry device, kernel by kernel") {
  const model<cpu>::config_type sizes{.vocab_size = 300, .hidden_size = 32, .num_layers = 3, .num_heads = 4, .num_kv_heads = 2, .max_position_embeddings = 24};
  const cpu::properties properties{2};
  const dry_run itself = trainer<model<cpu>>::run_dry(sizes, {}, {.max_steps = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 3}, properties);
  const dry_run dry = trainer<model<wrapped_cpu>>::run_dry(sizes, {}, {.max_steps = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 3}, properties);
  CHECK(itself.bytes == dry.bytes);
  CHECK(itself.passes.workspace == dry.passes.workspace);
  CHECK(itself.passes.stash() == dry.passes.stash());
  REQUIRE(itself.record.kernels.size() == dry.record.kernels.size());
  for (std::size_t i = 0; i < dry.record.kernels.size(); ++i) {
    CHECK(itself.record.kernels[i].name == dry.record.kernels[i].name);
    CHECK(itself.record.kernels[i].runs == dry.record.kernels[i].runs);
    CHECK(itself.record.kernels[i].operations == dry.record.kernels[i].operations);
    CHECK(itself.record.kernels[i].bytes == dry.record.kernels[i].bytes);
  }
  CHECK(itself.record.synchronisations == dry.record.synchronisations);
  CHECK(itself.record.bytes_from_host == dry.record.bytes_from_host);
  CHECK(itself.record.bytes_to_host == dry.record.bytes_to_host);
}
