// The conformance suite of transports: every collective, on odd sizes and every dtype, against computed values. All ranks of a run call it.
//
//     for (const std::string& problem : xtrain::testing::transport_conformance(network)) std::puts(problem.c_str());
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/mesh.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain::testing {

namespace detail {

template <class T>
class transport_check {
 public:
  transport_check(group& ranks, std::vector<std::string>& problems) : ranks_(&ranks), problems_(&problems) {}

  void all(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const std::vector<T> mine = drawn(me, n), whole = drawn(me, n * size);
    for (const reduction op : {reduction::sum, reduction::largest}) {
      std::vector<T> values = mine;
      ranks_->all_reduce(std::span<T>(values), op);
      same("all_reduce", values, reduced(n, op, 0, n));
      std::vector<T> part(n);
      ranks_->reduce_scatter(std::span<const T>(whole), std::span<T>(part), op);
      same("reduce_scatter", part, reduced(n * size, op, me * n, n));
      std::vector<T> in_place = whole;
      ranks_->reduce_scatter(std::span<const T>(in_place), std::span<T>(in_place).subspan(me * n, n), op);
      std::vector<T> expected = whole;
      std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(me * n));
      same("reduce_scatter in place", in_place, expected);
      for (std::size_t root = 0; root < size; ++root) {
        values = mine;
        ranks_->reduce(std::span<T>(values), op, root);
        same("reduce", values, me == root ? reduced(n, op, 0, n) : mine);
      }
    }
    std::vector<T> gathered(n * size);
    ranks_->all_gather(std::span<const T>(mine), std::span<T>(gathered));
    same("all_gather", gathered, all_of(n));
    for (std::size_t root = 0; root < size; ++root) {
      std::vector<T> values = mine;
      ranks_->broadcast(std::span<T>(values), root);
      same("broadcast", values, drawn(root, n));
      gathered.assign(n * size, T{});
      ranks_->gather(std::span<const T>(mine), std::span<T>(gathered), root);
      same("gather", gathered, me == root ? all_of(n) : std::vector<T>(n * size));
      std::vector<T> part(n);
      ranks_->scatter(std::span<const T>(whole), std::span<T>(part), root);
      same("scatter", part, part_of(drawn(root, n * size), me, n));
    }
    std::vector<T> turned(n * size), expected;
    ranks_->all_to_all(std::span<const T>(whole), std::span<T>(turned));
    for (std::size_t from = 0; from < size; ++from) append(expected, part_of(drawn(from, n * size), me, n));
    same("all_to_all", turned, expected);
    uneven(n);
    ring(n);
  }

 private:
  /// Rank r's values, known to every rank.
  [[nodiscard]] static std::vector<T> drawn(std::size_t r, std::size_t n) {
    std::vector<T> values(n);
    const random_site site{.seed = 7, .step = static_cast<std::uint32_t>(r), .site = static_cast<std::uint32_t>(n), .first = 0};
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(static_cast<int>(random_word(site, i) % 2001) - (std::is_unsigned_v<T> ? 0 : 1000));
    return values;
  }
  [[nodiscard]] static std::vector<T> part_of(const std::vector<T>& whole, std::size_t rank, std::size_t n) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(rank * n);
    return {begin, begin + static_cast<std::ptrdiff_t>(n)};
  }
  static void append(std::vector<T>& to, const std::vector<T>& more) { to.insert(to.end(), more.begin(), more.end()); }
  [[nodiscard]] std::vector<T> all_of(std::size_t n) const {
    std::vector<T> all;
    for (std::size_t r = 0; r < ranks_->size(); ++r) append(all, drawn(r, n));
    return all;
  }
  /// Elements [first, first + count) of the reduction of all ranks' values, summed in rank order.
  [[nodiscard]] std::vector<T> reduced(std::size_t n, reduction op, std::size_t first, std::size_t count) const {
    using sum = typename accumulate_dtype<T>::type;
    std::vector<sum> values(count);
    for (std::size_t r = 0; r < ranks_->size(); ++r) {
      const std::vector<T> theirs = drawn(r, n);
      for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<sum>(theirs[first + i]);
        values[i] = r == 0 ? x : op == reduction::sum ? static_cast<sum>(values[i] + x) : std::max(values[i], x);
      }
    }
    std::vector<T> rounded(count);
    for (std::size_t i = 0; i < count; ++i) rounded[i] = static_cast<T>(values[i]);
    return rounded;
  }

  /// Rank i sends (i + 2 j) mod 5 times n elements to rank j.
  void uneven(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const auto length = [&](std::size_t from, std::size_t to) { return n * ((from + 2 * to) % 5); };
    const auto message_of = [&](std::size_t from, std::size_t to) { return drawn(100 + from * size + to, length(from, to)); };
    std::vector<std::size_t> sends(size), receives(size);
    std::vector<T> from, expected;
    for (std::size_t i = 0; i < size; ++i) {
      sends[i] = length(me, i);
      receives[i] = length(i, me);
      append(from, message_of(me, i));
      append(expected, message_of(i, me));
    }
    std::vector<T> to(expected.size());
    ranks_->all_to_all(std::span<const T>(from), std::span<const std::size_t>(sends), std::span<T>(to), std::span<const std::size_t>(receives));
    same("all_to_all of uneven parts", to, expected);
  }

  /// Three messages to the next rank, all started before the first wait: they must arrive in order.
  void ring(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const std::size_t next = (me + 1) % size, before = (me + size - 1) % size;
    if (size == 1) return;
    std::vector<std::vector<T>> out, in(3, std::vector<T>(n));
    std::vector<pending_message> begun;
    for (std::size_t k = 0; k < 3; ++k) {
      out.push_back(drawn(1000 + 3 * me + k, n));
      begun.push_back(ranks_->begin_receive(before, std::span<T>(in[k])));
    }
    for (std::size_t k = 0; k < 3; ++k) begun.push_back(ranks_->begin_send(next, std::span<const T>(out[k])));
    for (const pending_message& one : begun) one->wait();
    for (std::size_t k = 0; k < 3; ++k) same("send and receive", in[k], drawn(1000 + 3 * before + k, n));
  }

  void same(std::string_view what, const std::vector<T>& got, const std::vector<T>& expected) {
    const auto differ = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end(),
                                      [](const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; });
    if (differ.first == got.end() && differ.second == expected.end()) return;
    problems_->push_back(concat(what, " of ", ranks_->size(), " ranks, numbers of ", sizeof(T), " bytes, ", expected.size(),
                                " elements: wrong from element ", differ.first - got.begin(), " on, at rank ", ranks_->rank()));
  }

  group* ranks_;
  std::vector<std::string>* problems_;
};

template <class... T>
void check_transport(group& ranks, std::size_t n, std::vector<std::string>& problems) {
  (transport_check<T>(ranks, problems).all(n), ...);
}

}  // namespace detail

/// Problems of the transport; empty: passed. Every rank of the run calls it.
[[nodiscard]] inline std::vector<std::string> transport_conformance(const std::shared_ptr<transport>& network) {
  std::vector<std::string> problems;
  const auto check = [&](group& ranks) {
    for (const std::size_t n : {0U, 1U, 7U, 64U, 1025U, 5000U})
      detail::check_transport<float, double, bf16, fp16, std::uint8_t, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(ranks, n,
                                                                                                                            problems);
    ranks.barrier();
  };
  group all(network);
  check(all);
  const std::size_t size = network->size();
  for (std::size_t columns = 2; columns < size; ++columns) {
    if (size % columns != 0) continue;
    const mesh grid(network, {.data_parallel_size = size / columns, .tensor_parallel_size = columns});
    group rows = grid.along(axis::data), neighbours = grid.along(axis::tensor);
    check(rows);
    check(neighbours);
  }
  std::vector<float> large(3'000'001, 1.0F);  // larger than one piece of the collective
  all.all_reduce(std::span<float>(large), reduction::sum);
  if (std::any_of(large.begin(), large.end(), [&](float x) { return x != static_cast<float>(size); }))
    problems.push_back("all_reduce of more than one piece is wrong");
  return problems;
}

}  // namespace xtrain::testing
