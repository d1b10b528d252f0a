// Attention merged block by block equals attention of whole sequences, with gradients.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/ops/attention_block.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/tensor/arena.hpp>

using namespace xtrain;

namespace {

constexpr ops::attention_shape sizes{.b = 2, .t = 96, .h = 4, .k = 2, .d = 10};
constexpr std::size_t num_tokens = sizes.b * sizes.t, kv_width = 2 * sizes.k * sizes.d, width = sizes.h * sizes.d;

template <class T>
std::vector<T> numbers(std::size_t n, std::uint32_t site) {
  std::vector<T> all(n);
  for (std::size_t i = 0; i < n; ++i)
    all[i] = static_cast<T>(2.0 * static_cast<double>(uniform_open(random_word({.seed = 9, .step = 0, .site = site}, i))) - 1.0);
  return all;
}

template <class T>
vector_view<T, host_memory> view(std::vector<std::remove_const_t<T>>& all) {
  return {span_of<T, host_memory>(all.data(), all.size()), {all.size()}};
}
template <class T>
matrix_view<T, host_memory> matrix(std::vector<T>& all, std::size_t columns) {
  return {span_of<T, host_memory>(all.data(), all.size()), {all.size() / columns, columns}};
}

struct seen {
  ops::attention_settings<cpu> settings{.scale = 0.6, .random = {.seed = 3, .step = 1, .site = 4, .first = 2}};
  std::vector<token> starts{}, ends{};
  std::vector<float> slopes{};

  void refer() {
    if (!ends.empty()) settings.end_bt = view<const token>(ends);
    if (!slopes.empty()) settings.slope_h = view<const float>(slopes);
  }
  [[nodiscard]] vector_view<const token, host_memory> start() { return starts.empty() ? vector_view<const token, host_memory>{} : view<const token>(starts); }
};

std::vector<seen> cases() {
  std::vector<seen> all(6);
  all[1].settings.dropout = 0.3;
  for (std::size_t i = 0; i < num_tokens; ++i) all[2].starts.push_back(static_cast<token>(i % sizes.t < 41 ? 0 : i % sizes.t < 53 ? 41 : 53));
  all[3].settings.window = 19;
  all[4].slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  all[4].settings.dropout = 0.2;
  for (std::size_t i = 0; i < num_tokens; ++i) all[5].ends.push_back(static_cast<token>(std::max<std::size_t>(i % sizes.t + 1, 50)));
  for (seen& one : all) one.refer();
  return all;
}

struct result {
  std::vector<float> o = std::vector<float>(num_tokens * width), lse = std::vector<float>(num_tokens * sizes.h),
                     dqkv = std::vector<float>(num_tokens * sizes.row());
};

class computing {
 public:
  result whole(seen& how) {
    result r;
    ops::attention(on_, sizes, how.settings, matrix(qkv_, sizes.row()), how.start(), matrix(r.o, width), view<float>(r.lse));
    ops::attention_backward(on_, sizes, how.settings, matrix(qkv_, sizes.row()), how.start(), matrix(r.o, width), view<const float>(r.lse),
                            matrix(do_, width), matrix(r.dqkv, sizes.row()));
    return r;
  }

  /// Blocks of `queries` on blocks of `keys`, the last keys first.
  result in_blocks(seen& how, std::size_t queries, std::size_t keys) {
    result r;
    std::vector<float> kv(num_tokens * kv_width), dkv(num_tokens * kv_width), dq(num_tokens * width);
    ops::copy_rows(on_, const_matrix(qkv_, sizes.row()).columns(sizes.key_offset(), kv_width), matrix(kv, kv_width));
    const auto each = [&](auto&& work) {
      for (std::size_t q = 0; q < sizes.t; q += queries) {
        bool begins = true;
        for (std::size_t k = sizes.t; k > 0; k -= keys) {
          const ops::attention_blocks blocks{{sizes.t, q, q, queries}, {sizes.t, k - keys, k - keys, keys}};
          if (!ops::may_see(blocks, how.settings.window, how.settings.end_bt.exists())) continue;
          ++computed;
          work(blocks, std::exchange(begins, false));
        }
      }
    };
    each([&](const ops::attention_blocks& blocks, bool begins) {
      ops::attention_block(on_, sizes, blocks, begins, how.settings, const_matrix(qkv_, sizes.row()), matrix(kv, kv_width), how.start(),
                           matrix(r.o, width), view<float>(r.lse));
    });
    each([&](const ops::attention_blocks& blocks, bool) {
      ops::attention_block_backward(on_, sizes, blocks, how.settings, const_matrix(qkv_, sizes.row()), matrix(kv, kv_width), how.start(),
                                    matrix(r.o, width), view<const float>(r.lse), matrix(do_, width), matrix(dq, width), matrix(dkv, kv_width));
    });
    ops::copy_rows(on_, const_matrix(dq, width), matrix(r.dqkv, sizes.row()).columns(0, width));
    ops::copy_rows(on_, const_matrix(dkv, kv_width), matrix(r.dqkv, sizes.row()).columns(sizes.key_offset(), kv_width));
    return r;
  }

  void merge(const ops::attention_blocks& blocks) {
    seen how;
    result r;
    std::vector<float> kv(num_tokens * kv_width);
    ops::attention_block(on_, sizes, blocks, true, how.settings, const_matrix(qkv_, sizes.row()), matrix(kv, kv_width), how.start(),
                         matrix(r.o, width), view<float>(r.lse));
  }

  std::size_t computed = 0;

 private:
  static matrix_view<const float, host_memory> const_matrix(std::vector<float>& all, std::size_t columns) { return matrix(all, columns); }

  cpu::context context_;
  cpu::stream stream_{context_};
  arena<cpu> workspace_{context_, std::size_t{1} << 26, memory_role::workspace};
  execution<cpu> on_{stream_, workspace_, context_.properties()};
  std::vector<float> qkv_ = numbers<float>(num_tokens * sizes.row(), 1), do_ = numbers<float>(num_tokens * width, 2);
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, static_cast<double>(std::abs(a[i] - b[i])));
  return most;
}

}  // namespace

// Forward: sums of 96 products of magnitude 2 (dropout's factor) in fp32, in another order: 2 · 2^-24 · 96 · 2. Backward, through
// d products: at most 10 times as much.
TEST_CASE("whatever queries see, in blocks of several sizes") {
  computing all;
  for (seen& how : cases()) {
    const result whole = all.whole(how);
    for (const auto& of : {std::pair<std::size_t, std::size_t>{96, 96}, {24, 24}, {8, 48}, {32, 6}}) {
      CAPTURE(of.first);
      CAPTURE(of.second);
      const result merged = all.in_blocks(how, of.first, of.second);
      CHECK(difference(whole.o, merged.o) < 2.3e-5);
      CHECK(difference(whole.lse, merged.lse) < 2.3e-5);
      CHECK(difference(whole.dqkv, merged.dqkv) < 2.3e-4);
    }
  }
}

TEST_CASE("blocks that nothing is seen of are not computed") {
  std::vector<seen> all = cases();
  computing one;
  (void)one.in_blocks(all[0], 12, 12);
  CHECK(one.computed == 2 * 36);  // the triangle of eight by eight, forward and backward
  one.computed = 0;
  (void)one.in_blocks(all[3], 12, 12);
  CHECK(one.computed == 2 * (8 + 7 + 6));  // a window of 19 tokens reaches two blocks back
}

TEST_CASE("pairs of places are counted") {
  const auto counted = [](const ops::position_block& queries, const ops::position_block& keys) {
    double pairs = 0;
    for (std::size_t i = queries.first; i < queries.end(); ++i)
      for (std::size_t j = keys.first; j < keys.end(); ++j) pairs += j <= i ? 1 : 0;
    return pairs;
  };
  for (std::size_t first = 0; first < 12; ++first)
    for (std::size_t count = 1; count < 9; ++count)
      for (const std::size_t keys : {1U, 4U, 7U}) {
        const ops::position_block q{12, 0, first, count}, k{7, 0, 5, keys};
        CHECK(kernel::causal_pairs(q, k) == counted(q, k));
      }
}

TEST_CASE("a block that does not lie in its matrix or row is refused") {
  computing one;
  const auto says = [&](const ops::position_block& queries, const std::string& what) {
    CHECK_THROWS_WITH_AS(
        one.merge({queries, {96, 0, 0, 96}}),
        ("attention_block: a block must lie within the tokens that a matrix has of a sequence, and within the sequence; given " + what).c_str(), shape_error);
  };
  says({96, 90, 90, 12}, "12 from 90 on of 96, and from 90 on of 96");
  says({96, 0, 85, 12}, "12 from 85 on of 96, and from 0 on of 96");
  says({96, 0, 0, 0}, "0 from 0 on of 96, and from 0 on of 96");
  CHECK_THROWS_WITH_AS(one.merge({{96, 0, 0, 96}, {48, 0, 0, 48}}), "attention_block: must have shape [96, 40]; given [192, 40]", shape_error);
}
