// Archetypes are minimal: each satisfies its concept, and no member can be removed.
#include <doctest/doctest.h>

#include <span>
#include <string_view>

#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;
using namespace xtrain::testing;

static_assert(device<bare_device> && precision<bare_precision> && communicator<bare_communicator> && parallel_strategy<bare_strategy> &&
              optimizer<bare_optimizer>);
static_assert(parallel_strategy_for<bare_strategy, bare_device, parameter_store<bare_device, bare_precision>>);
static_assert(optimizer_for<bare_optimizer, bare_device, bare_precision>);
// wrapped by the library it is a device
static_assert(device<dry<bare_device>> && device<with_host_fallback<bare_device>>);
// the isolated device requires host-addressable memory, which this one lacks
static_assert(!host_addressable<bare_device>);
template <class Device>
concept can_be_isolated = requires {
  typename isolated<Device>;
};
static_assert(can_be_isolated<cpu> && !can_be_isolated<bare_device> && !can_be_isolated<isolated<cpu>>);

// not a single kernel, of any kind
template <template <class, class> class Kernel>
inline constexpr bool is_there = runs_kernel<bare_device, Kernel<bare_memory, float>>;
template <class Memory, class T>
using plain_matmul = kernel::matmul<Memory, T>;
template <class Memory, class T>
using plain_loss = kernel::linear_cross_entropy<Memory, T>;
template <class Memory, class T>
using plain_cast = kernel::cast<Memory, T, T>;
static_assert(!is_there<plain_matmul> && !is_there<plain_loss> && !is_there<plain_cast> && !is_there<kernel::add> &&
              !is_there<kernel::attention> && !is_there<kernel::attention_backward> && !is_there<kernel::cached_attention> &&
              !is_there<kernel::embedding> && !is_there<kernel::rms_norm> && !is_there<kernel::layer_norm> && !is_there<kernel::swiglu> &&
              !is_there<kernel::gelu_tanh> && !is_there<kernel::dropout> && !is_there<kernel::sum_of_squares>);

// with one member less the concept does not hold
namespace {

struct nameless_device : bare_device {
 private:
  using bare_device::name;
};
struct eventless_device : bare_device {
  struct stream {
    explicit stream(const context&) {}
    void copy_from_host(void*, const void*, std::size_t) {}
    void copy_to_host(void*, const void*, std::size_t) {}
    void copy_within(void*, const void*, std::size_t) {}
    void fill_zero(void*, std::size_t) {}
    void synchronize() {}
  };
};
struct uncounted_device : bare_device {
  struct context {
    [[nodiscard]] void* allocate(std::size_t, memory_role) const { return nullptr; }
    void release(void*, std::size_t, memory_role) const {}
  };
};
static_assert(!clause::device_has_a_name<nameless_device> && !device<nameless_device>);
static_assert(clause::device_stream_moves_memory<eventless_device> && !clause::device_has_events<eventless_device>);
static_assert(clause::device_opens<uncounted_device> && !clause::device_allocates<uncounted_device>);

struct without_master : bare_precision {
 private:
  using bare_precision::master;
};
static_assert(!clause::precision_names_a_dtype_for_every_role<without_master>);

struct host_communicator {
  [[nodiscard]] std::size_t rank() const { return 0; }
  [[nodiscard]] std::size_t size() const { return 1; }
  void all_reduce(std::span<double>, reduction) {}
  void barrier() {}
};
static_assert(communicator<host_communicator> && !clause::communicator_on<host_communicator, bare_device, float> &&
              clause::communicator_on<bare_communicator, bare_device, float>);

struct without_state {
  [[maybe_unused]] static constexpr std::string_view name = "x";
  using hooks = xtrain::hooks<>;
  struct config {};
};
static_assert(optimizer<without_state> && !optimizer_for<without_state, bare_device, bare_precision>);

}  // namespace

TEST_CASE("the bare device counts and limits its memory, and its stream copies") {
  const bare_device::context on;
  bare_device::stream stream(on);
  const buffer<bare_device> memory(on, 3 * sizeof(float), memory_role::other);
  const std::array<float, 3> from{1, 2, 3};
  std::array<float, 3> back{};
  copy_to_device(stream, memory.as<float>(), from);
  copy_to_host(stream, std::span<float>(back), memory.as<float>());
  stream.synchronize();
  CHECK(back == from);
  CHECK(on.memory().total_now == 12);
}

TEST_CASE("a parameter store, an arena and a stash ask a device for nothing but memory") {
  const bare_device::context on;
  bare_device::stream stream(on);
  parameter_store<bare_device, bare_precision> store(on);
  (void)store.declare({.name = "w", .shape = {5, 7}, .initial = initial_values::constant(2.0)});
  store.allocate();
  store.allocate_gradients();
  store.initialise(stream, 1, [](std::string_view) { return true; });
  std::vector<float> back(35);
  copy_to_host(stream, std::span<float>(back), store.value(store.entries()[0]));
  stream.synchronize();
  CHECK(back == std::vector<float>(35, 2.0f));
  stash<bare_device> kept(on, 4096);
  (void)kept.push<float>(100);
  CHECK(kept.high_water() == 448);  // 400 bytes, up to a cache line
  CHECK(on.memory().of(memory_role::stash) == 4096);
  arena<bare_device> workspace(on, 4096, memory_role::workspace);
  execution<bare_device> execute{stream, workspace, on.properties()};
  bare_optimizer::state<bare_device, bare_precision> optimizer({}, execute, store);
  optimizer.step(execute, store, {});
}
