// Parameter lists and layouts, without memory.
#include <doctest/doctest.h>

#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/tensor/parameter_layout.hpp>
#include <xtrain/tensor/parameter_list.hpp>

using namespace xtrain;

namespace {

constexpr std::size_t blocks = 6, shards = 3;

/// Blocks of different sizes, each with a matrix, a vector and a frozen matrix.
parameter_list small_list() {
  parameter_list list;
  for (std::size_t b = 0; b < blocks; ++b) {
    list.begin_block(b);
    list.declare({.name = concat(b, ".matrix"), .shape = {5 + 7 * b, 3}});
    list.declare({.name = concat(b, ".vector"), .shape = {3 + b}});
    list.declare({.name = concat(b, ".frozen"), .shape = {9, 4}, .trainable = false});
  }
  return list;
}

}  // namespace

TEST_CASE("the shards of a parameter are all of its elements, in order, each on one rank") {
  parameter_list list = small_list();
  std::vector<parameter_layout> ranks;
  for (std::size_t part = 0; part < shards; ++part) ranks.emplace_back(list, shard_spec{.parts = shards, .part = part, .values = true});
  for (const parameter_entry& e : list.entries()) {
    CAPTURE(e.spec.name);
    std::size_t next = 0;
    for (std::size_t part = 0; part < shards; ++part) {
      const parameter_layout::piece piece = ranks[part].piece_of(e, part);
      if (piece.count == 0) continue;
      CHECK(piece.first == next);
      CHECK(piece.kept + piece.count <= ranks[part].stored_values());
      next += piece.count;
    }
    CHECK(next == e.size());
  }
}

TEST_CASE("with an alignment, parameters and shards begin at its multiples, at the same distance from their block's begin") {
  constexpr std::size_t aligned = 48;  // with the alignment of every layout, 32: multiples of 96
  parameter_list whole_list = small_list(), list = small_list();
  const parameter_layout whole(whole_list, {.alignment = aligned});
  for (std::size_t part = 0; part < shards; ++part) {
    const parameter_layout layout(list, {.parts = shards, .part = part, .alignment = aligned});
    for (std::size_t i = 0; i < list.entries().size(); ++i) {
      const parameter_entry &e = list.entries()[i], &same = whole_list.entries()[i];
      CHECK(e.offset % 96 == 0);
      const bool trained = e.spec.trainable;
      CHECK(e.offset - layout.block(e.block, trained).begin == same.offset - whole.block(e.block, trained).begin);
      const parameter_layout::piece piece = layout.piece_of(e, part);
      if (piece.count == 0) continue;
      CHECK(piece.first % 96 == 0);
      CHECK(piece.kept % 96 == 0);
    }
  }
}

TEST_CASE("the ranges that ranks step do not overlap and are all trained parameters with their padding") {
  parameter_list list = small_list();
  std::vector<int> steps;
  for (std::size_t part = 0; part < shards; ++part) {
    const parameter_layout layout(list, {.parts = shards, .part = part});
    steps.resize(layout.trained());
    std::size_t stepped = 0;
    for (const parameter_slice& run : layout.parameter_slices()) {
      CHECK(run.kept == stepped);
      stepped += run.size();
      for (std::size_t i = run.begin; i < run.end; ++i) ++steps[i];
    }
    CHECK(stepped == layout.stepped());
  }
  REQUIRE(!steps.empty());
  CHECK(steps == std::vector<int>(steps.size(), 1));
}

TEST_CASE("windows overlap only if two blocks share one, and none is longer than its array") {
  parameter_list list = small_list();
  const parameter_layout layout(list, {.parts = shards, .gradients = true, .values = true});
  const auto check = [&](auto begin_of, auto size_of, std::size_t length) {
    for (std::size_t a = 0; a < blocks; ++a) {
      CHECK(begin_of(a) + size_of(a) <= length);
      for (std::size_t b = 0; b < a; ++b) {
        const bool overlap = begin_of(a) < begin_of(b) + size_of(b) && begin_of(b) < begin_of(a) + size_of(a);
        CAPTURE(a);
        CAPTURE(b);
        CHECK(overlap == layout.share_window(a, b));
      }
    }
  };
  check([&](std::size_t b) { return layout.value_window(b, true); },
        [&](std::size_t b) { return layout.block(b, true).size() + layout.block(b, false).size(); }, layout.value_windows());
  check([&](std::size_t b) { return layout.gradient_window(b); }, [&](std::size_t b) { return layout.block(b, true).size(); },
        layout.gradient_windows());
  // parameters lie in their block's window, frozen ones after trained ones
  for (const parameter_entry& e : list.entries()) {
    CAPTURE(e.spec.name);
    const std::size_t begin = layout.value_window(e.block, e.spec.trainable);
    CHECK(layout.in_value_window(e) >= begin);
    CHECK(layout.in_value_window(e) + e.size() <= begin + layout.block(e.block, e.spec.trainable).size());
  }
  CHECK(layout.value_window(1, false) == layout.value_window(1, true) + layout.block(1, true).size());
}

TEST_CASE("quantized parameters are stored separately, without overlap") {
  parameter_list list;
  for (const std::size_t rows : {std::size_t{3}, std::size_t{70}, std::size_t{11}})
    list.declare({.name = concat("rows.", rows), .shape = {rows, 33}, .trainable = false, .quantized = true});
  const parameter_layout layout(list, {});
  CHECK(layout.total() == 0);
  std::size_t codes = 0, outer = 0;
  for (const parameter_entry& e : list.entries()) {
    const parameter_layout::quantized_offsets& at = layout.quantized(e);
    CHECK(at.n == e.size());
    CHECK(at.codes >= codes);
    CHECK(at.outer == outer);
    codes = at.codes + nf4::code_bytes(at.n) + nf4::scales(at.n);
    outer = at.outer + nf4::outer_scales(at.n);
  }
  CHECK(layout.code_bytes() >= codes);
  CHECK(layout.outer_scales() == outer);
}

TEST_CASE("integers with a scale per row are stored in the same arrays") {
  parameter_list list;
  list.declare({.name = "nf4", .shape = {3, 33}, .trainable = false, .quantized = true});
  for (const std::size_t bits : {std::size_t{4}, std::size_t{8}})
    list.declare({.name = concat("bits.", bits), .shape = {70, 33}, .trainable = false, .quantized = true, .integer_bits = bits});
  const parameter_layout layout(list, {});
  const auto at = [&](std::size_t i) { return layout.quantized(list.entries()[i]); };
  CHECK(at(1).codes >= nf4::code_bytes(99) + nf4::scales(99));
  CHECK(at(1).outer == nf4::outer_scales(99));
  CHECK(at(2).codes >= at(1).codes + 70 * 17);
  CHECK(at(2).outer == at(1).outer + 70);
  CHECK(layout.code_bytes() >= at(2).codes + 70 * 33);
  CHECK(layout.outer_scales() == at(2).outer + 70);
}

TEST_CASE("blocks of GGUF are stored in the same array, without scales of their own") {
  parameter_list list;
  list.declare({.name = "q4_k", .shape = {3, 512}, .trainable = false, .quantized = true, .blocks = block_format::q4_k});
  list.declare({.name = "nf4", .shape = {3, 33}, .trainable = false, .quantized = true});
  list.declare({.name = "q8_0", .shape = {5, 64}, .trainable = false, .quantized = true, .blocks = block_format::q8_0});
  const parameter_layout layout(list, {});
  const auto at = [&](std::size_t i) { return layout.quantized(list.entries()[i]); };
  CHECK(at(0).codes == 0);
  CHECK(at(1).codes >= 3 * 2 * 144);
  CHECK(at(1).outer == 0);
  CHECK(at(2).codes >= at(1).codes + nf4::code_bytes(99) + nf4::scales(99));
  CHECK(at(2).outer == nf4::outer_scales(99));
  CHECK(layout.code_bytes() >= at(2).codes + 5 * 2 * 34);
  CHECK(layout.outer_scales() == nf4::outer_scales(99));
}

TEST_CASE("shapes whose product overflows are refused") {
  parameter_list list;
  list.declare({.name = "large", .shape = {std::size_t{1} << 40, std::size_t{1} << 40}});
  CHECK_THROWS_WITH_AS(parameter_layout(list, {}), doctest::Contains("a model must have fewer than 2^56 numbers"), memory_error);
}
