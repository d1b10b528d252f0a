#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/precision/precision.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/tensor.hpp>
#include <xtrain/tensor/xtensor_face.hpp>

using namespace xtrain;

TEST_CASE("a view knows its shape, its rows and its columns") {
  std::vector<float> memory(12);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const matrix_view<float, host_memory> m(span_of(std::span<float>(memory)), {3, 4});
  CHECK(m.size() == 12);
  CHECK(m.dense());
  const auto middle = m.columns(1, 2);
  CHECK(middle.shape() == shape_of_rank<2>{3, 2});
  CHECK(middle.stride() == 4);
  CHECK(!middle.dense());
  CHECK(middle.extent().size() == 10);  // from element 1 to element 10
  CHECK(middle.extent().raw()[0] == 1.0f);
  CHECK(m.rows(1, 2).span().raw()[0] == 4.0f);
  CHECK(m.reshaped<3>({2, 3, 2}).shape() == shape_of_rank<3>{2, 3, 2});
  CHECK_THROWS_AS((void)middle.span(), shape_error);
  CHECK_THROWS_WITH_AS((matrix_view<float, host_memory>(span_of(std::span<float>(memory)), {3, 5})),
                       doctest::Contains("shape [3, 5] over 12 elements"), shape_error);
}

TEST_CASE("xtensor sees the same memory, both ways, without a copy") {
  const cpu::context on;
  tensor<float, 2, cpu> t(on, {2, 3}, memory_role::other);
  auto seen = as_xtensor(t);
  seen.fill(1.5f);
  seen(1, 2) = 7.0f;
  CHECK(t.span().host()[5] == 7.0f);
  CHECK(seen.data() == t.span().raw());
  array<float, 2> mine = xt::ones<float>({2, 3});
  const auto view = view_of(mine);
  CHECK(view.data().raw() == mine.data());
  CHECK(view.shape() == shape_of_rank<2>{2, 3});
  // an expression, not only a container
  const array<float, 2> doubled = 2.0f * seen;
  CHECK(doubled(1, 2) == 14.0f);
}

TEST_CASE("an arena gives memory in the order of a stack and says when it is full") {
  const cpu::context on;
  arena<cpu> a(on, 256, memory_role::workspace);
  {
    const arena<cpu>::scope scope(a);
    const auto first = a.take<float>(10);
    const auto second = a.take<double>(1);
    CHECK(reinterpret_cast<std::uintptr_t>(second.raw()) - reinterpret_cast<std::uintptr_t>(first.raw()) == 64);
    CHECK(a.used() == 128);
    CHECK_THROWS_WITH_AS((void)a.take<float>(100), doctest::Contains("arena of the workspace: must be large enough"), memory_error);
  }
  CHECK(a.used() == 0);
  CHECK(a.high_water() == 128);
}

TEST_CASE("on the dry device an arena has no end and measures") {
  using device_type = dry<cpu>;
  arena<device_type> a(device_type::context(cpu::properties{1}), 0, memory_role::stash);
  (void)a.take<float>(std::size_t{1} << 40);
  CHECK(a.high_water() == std::size_t{1} << 42);
}

TEST_CASE("a stash gives back what was pushed last, and refuses a backward that is not the mirror") {
  const cpu::context on;
  stash<cpu> s(on, 4096);
  const auto a = s.push<float>(10);
  a.raw()[3] = 5.0f;
  const auto b = s.push<float>(20);
  s.push_reference(a);
  CHECK(s.pop_reference<float>(10).raw() == a.raw());
  CHECK_THROWS_WITH_AS((void)s.pop<float>(10), doctest::Contains("memory of 80 bytes was pushed last, memory of 40 bytes is popped"),
                       shape_error);
  CHECK(s.pop<float>(20).raw() == b.raw());
  CHECK(s.pop<float>(10).raw()[3] == 5.0f);
  CHECK_THROWS_WITH_AS((void)s.pop<float>(10), doctest::Contains("nothing is left to pop"), shape_error);
  (void)s.push<float>(1);
  const std::size_t before = s.entries();
  (void)s.push<float>(100);
  s.push_reference(a);
  s.drop(before);
  CHECK(s.entries() == 1);
  s.push_number(77);
  CHECK_THROWS_WITH_AS((void)s.pop<float>(0), doctest::Contains("a number of 0 bytes was pushed last, memory of 0 bytes is popped"),
                       shape_error);
  CHECK(s.pop_number() == 77);
  CHECK_THROWS_WITH_AS((void)s.pop_number(), doctest::Contains("memory of 4 bytes was pushed last, a number of 0 bytes is popped"),
                       shape_error);
}

namespace {

using store = parameter_store<cpu, fp32>;

store small_store(const cpu::context& on) {
  store all(on);
  all.begin_block(0);
  all.declare({.name = "embedding", .shape = {5, 3}, .initial = initial_values::normal(0.5)});
  all.begin_block(1);
  all.declare({.name = "norm", .shape = {3}, .initial = initial_values::constant(1)});
  std::vector<parameter_spec> qkv;
  for (const char* name : {"q", "k", "v"}) qkv.push_back({.name = name, .shape = {2, 3}, .initial = initial_values::uniform(0.1)});
  all.declare(std::move(qkv));
  all.declare({.name = "frozen", .shape = {7, 3}, .trainable = false});
  all.allocate();
  return all;
}

}  // namespace

TEST_CASE("parameters lie block by block, matrices before vectors, frozen ones behind; modules used as one lie side by side") {
  const cpu::context on;
  const store all = small_store(on);
  CHECK(all.count() == 15 + 3 + 18 + 21);
  CHECK(all.trained_count() == 15 + 3 + 18);
  CHECK(all.find("q")->offset + 6 == all.find("k")->offset);
  CHECK(all.find("k")->offset + 6 == all.find("v")->offset);
  CHECK(all.find("embedding")->offset < all.find("q")->offset);
  CHECK(all.find("q")->offset < all.find("norm")->offset);
  CHECK(all.find("frozen")->offset >= all.trained_values().size());
  REQUIRE(all.parameter_slices().size() == 2);  // the matrices of both blocks are adjacent
  CHECK(all.parameter_slices()[0].decays);
  CHECK(!all.parameter_slices()[1].decays);
  CHECK(all.parameter_slices()[1].end == all.trained_values().size());
  CHECK(all.block(0).begin == 0);
  CHECK(all.block(0).end == all.block(1).begin);
  CHECK(all.find("nothing") == nullptr);
}

TEST_CASE("what neighbouring ranks hold alone lies on one of them, and random numbers are drawn as where all is") {
  const cpu::context on;
  const auto store_of = [&](std::optional<std::size_t> rank) {
    store all(on);
    all.declare({.name = "before", .shape = {3, 40}});
    for (std::size_t e = 0; e < 4; ++e) {
      all.begin_owner(e / 2);
      all.declare({.name = concat("expert.", e), .shape = {5, 40}});
      all.declare({.name = concat("bias.", e), .shape = {5}});
    }
    all.begin_owner(std::nullopt);
    all.declare({.name = "behind", .shape = {2, 40}});
    all.declare({.name = "norm", .shape = {40}});
    if (rank) all.keep_owned_by(*rank);
    all.allocate();
    return all;
  };
  const store whole = store_of({}), second = store_of(1);
  CHECK(whole.all_here());
  CHECK(!second.all_here());
  second.require_blocks_here("a test");
  CHECK_THROWS_WITH_AS(second.require_all_here("a test"), doctest::Contains("different experts"), config_error);
  CHECK(second.value(*second.find("expert.1")).empty());
  CHECK(second.value(*second.find("expert.2")).size() == 200);
  CHECK(!second.find("norm")->spec.owner);
  CHECK(second.find("bias.3")->spec.owner == 1);
  const auto element_of = [](const store& s, const char* name) {
    const std::size_t offset = s.find(name)->offset;
    for (const parameter_slice& run : s.parameter_slices())
      if (run.begin <= offset && offset < run.end) return run.element + (offset - run.begin);
    return ~std::size_t{0};
  };
  for (const char* name : {"before", "expert.2", "expert.3", "behind", "bias.2", "bias.3", "norm"}) {
    CAPTURE(name);
    CHECK(element_of(second, name) == whole.find(name)->offset);
    CHECK(element_of(whole, name) == whole.find(name)->offset);
  }
}

TEST_CASE("initial values are a function of seed, name and element") {
  const cpu::context on;
  cpu::stream stream(on);
  const store a = small_store(on), b = small_store(on);
  const auto everything = [](std::string_view) { return true; };
  a.initialise(stream, 1, everything);
  b.initialise(stream, 1, everything);
  const auto of = [](const store& s, const char* name) {
    return std::vector<float>(s.value(*s.find(name)).host().begin(), s.value(*s.find(name)).host().end());
  };
  CHECK(of(a, "embedding") == of(b, "embedding"));
  CHECK(of(a, "q") != of(a, "k"));
  b.initialise(stream, 2, everything);
  CHECK(of(a, "embedding") != of(b, "embedding"));
  for (const float x : of(a, "norm")) CHECK(x == 1.0f);
  for (const float x : of(a, "q")) CHECK(std::abs(x) <= 0.1f);
  for (const float x : of(a, "frozen")) CHECK(x == 0.0f);
}

TEST_CASE("frozen parameters have no gradient, and names must be different") {
  const cpu::context on;
  store all(on);
  const parameter free = all.declare({.name = "a", .shape = {2, 2}});
  const parameter frozen = all.declare({.name = "b", .shape = {2, 2}, .trainable = false});
  CHECK_THROWS_WITH_AS(all.declare({.name = "a", .shape = {1}}), doctest::Contains("'a' is declared twice"), config_error);
  std::vector<parameter_spec> pair;
  pair.push_back({.name = "c", .shape = {2, 2}});
  pair.push_back({.name = "d", .shape = {2, 2}, .trainable = false});
  CHECK_THROWS_WITH_AS(all.declare(std::move(pair)), doctest::Contains("train both or none"), config_error);
  all.allocate();
  CHECK(all.gradient(free).empty());
  all.allocate_gradients();
  CHECK(all.gradient(free).size() == 4);
  CHECK(all.gradient(frozen).empty());
}
