// The conformance suite of communicators: collectives on device memory, queued on a stream, against computed values; their order on the stream; events that
// mark their end. All ranks of a run call it.
//
//     for (const std::string& problem : xtrain::testing::communicator_conformance<acme>(on, ranks)) std::puts(problem.c_str());
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/comm/all_to_all.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>

namespace xtrain::testing {

namespace detail {

template <class C, class Stream, class Span, class ConstSpan>
concept has_exchange = requires(C& comm, Stream& stream, Span to, ConstSpan from, std::span<const message_part> parts) {
  comm.exchange(stream, from, parts, to, parts, std::size_t{});
};

template <class Device, class Communicator, class T>
class communicator_check {
 public:
  using memory = typename Device::memory;
  using stream_type = typename Device::stream;

  communicator_check(const typename Device::context& on, Communicator& ranks, std::vector<std::string>& problems)
      : on_(on), ranks_(&ranks), problems_(&problems), main_(on), other_(on) {}

  void all(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const buffer<Device> whole(on_, n * size * sizeof(T), memory_role::other), part(on_, n * sizeof(T), memory_role::other);
    const auto whole_span = whole.template as<T>(), part_span = part.template as<T>();
    using in = device_span<const T, memory>;
    using span = device_span<T, memory>;
    std::vector<T> expected(n, T{0});
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < size; ++r) sum += value(r, i);
      expected[i] = static_cast<T>(sum);  // small whole numbers: exact in every dtype
    }
    // copies and collective are only queued, in this order
    put(part_span, values_of(me, n));
    ranks_->all_reduce(main_, part_span, reduction::sum);
    same("all_reduce, sum", got(part_span), expected);
    put(part_span, values_of(me, n));
    ranks_->all_reduce(main_, part_span, reduction::largest);
    for (std::size_t i = 0; i < n; ++i) {
      double most = value(0, i);
      for (std::size_t r = 1; r < size; ++r) most = std::max(most, value(r, i));
      expected[i] = static_cast<T>(most);
    }
    same("all_reduce, largest", got(part_span), expected);

    put(part_span, values_of(me, n));
    ranks_->all_gather(main_, in(part_span), whole_span);
    expected.clear();
    for (std::size_t r = 0; r < size; ++r) {
      const std::vector<T> theirs = values_of(r, n);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    same("all_gather", got(whole_span), expected);

    put(whole_span, values_of(me, n * size));
    ranks_->reduce_scatter(main_, in(whole_span), part_span, reduction::sum);
    expected.assign(n, T{0});
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < size; ++r) sum += value(r, me * n + i);
      expected[i] = static_cast<T>(sum);
    }
    same("reduce_scatter", got(part_span), expected);

    for (std::size_t root = 0; root < size; ++root) {
      put(part_span, values_of(me, n));
      ranks_->broadcast(main_, part_span, root);
      same("broadcast", got(part_span), values_of(root, n));
    }
    if constexpr (clause::communicator_has_all_to_all<Communicator, stream_type, span, in>) each_to_each(n);
    if constexpr (clause::communicator_has_send_receive<Communicator, stream_type, span, in>) around_the_ring(n);
    if constexpr (has_exchange<Communicator, stream_type, span, in>) in_ranges(n);
    rounding(n);
    many_in_order(n);
    seen_by_another_stream(n);
  }

 private:
  [[nodiscard]] static double value(std::size_t rank, std::size_t i) { return static_cast<double>((rank * 7 + i * 3) % 13) - 5.0; }
  [[nodiscard]] static std::vector<T> values_of(std::size_t rank, std::size_t n) {
    std::vector<T> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<T>(value(rank, i));
    return all;
  }
  /// Queued; the host memory lives until got().
  void put(device_span<T, memory> to, std::vector<T> values) {
    kept_.push_back(std::move(values));
    copy_to_device(main_, to, std::span<const T>(kept_.back()));
  }
  [[nodiscard]] std::vector<T> got(device_span<T, memory> from) {
    std::vector<T> host(from.size());
    copy_to_host(main_, std::span<T>(host), from);
    main_.synchronize();
    kept_.clear();
    return host;
  }
  void same(std::string_view what, const std::vector<T>& found, const std::vector<T>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!(found[i] == expected[i])) {
        problems_->push_back(concat(what, " of ", expected.size(), " ", dtype_traits<T>::name, ", rank ", ranks_->rank(), ": element ", i, " is ",
                                    static_cast<double>(found[i]), ", must be ", static_cast<double>(expected[i])));
        return;
      }
  }

  void each_to_each(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const buffer<Device> from(on_, n * size * sizeof(T), memory_role::other), to(on_, n * size * sizeof(T), memory_role::other);
    put(from.template as<T>(), values_of(me, n * size));
    ranks_->all_to_all(main_, device_span<const T, memory>(from.template as<T>()), to.template as<T>());
    std::vector<T> expected;
    for (std::size_t r = 0; r < size; ++r) {
      const std::vector<T> theirs = values_of(r, n * size);
      expected.insert(expected.end(), theirs.begin() + static_cast<std::ptrdiff_t>(me * n), theirs.begin() + static_cast<std::ptrdiff_t>((me + 1) * n));
    }
    same("all_to_all", got(to.template as<T>()), expected);
  }
  void around_the_ring(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    if (size == 1) return;
    const buffer<Device> from(on_, n * sizeof(T), memory_role::other), to(on_, n * sizeof(T), memory_role::other);
    put(from.template as<T>(), values_of(me, n));
    ranks_->send_receive(main_, device_span<const T, memory>(from.template as<T>()), (me + 1) % size, to.template as<T>(), (me + size - 1) % size);
    same("send_receive", got(to.template as<T>()), values_of((me + size - 1) % size, n));
  }
  /// Ranks exchange ranges of different length, some empty, in two parts; a row has n elements.
  void in_ranges(std::size_t n) {
    const std::size_t size = ranks_->size(), me = ranks_->rank();
    const auto rows = [](std::size_t from, std::size_t to, std::size_t part) { return (from + 2 * to + part) % 3; };
    std::vector<message_part> sends, receives;
    std::size_t leave = 0, arrive = 0;
    for (std::size_t part = 0; part < 2; ++part)
      for (std::size_t r = 0; r < size; ++r) {
        sends.push_back({r, leave, rows(me, r, part)});
        receives.push_back({r, arrive, rows(r, me, part)});
        leave += sends.back().count;
        arrive += receives.back().count;
      }
    const buffer<Device> from(on_, leave * n * sizeof(T), memory_role::other), to(on_, arrive * n * sizeof(T), memory_role::other);
    put(from.template as<T>(), values_of(me, leave * n));
    ranks_->exchange(main_, device_span<const T, memory>(from.template as<T>()), std::span<const message_part>(sends), to.template as<T>(),
                     std::span<const message_part>(receives), n);
    std::vector<T> expected;
    for (std::size_t part = 0; part < 2; ++part)
      for (std::size_t r = 0; r < size; ++r) {
        std::size_t first = 0;  // of this part, in rank r's data
        for (std::size_t p = 0; p < 2; ++p)
          for (std::size_t to_rank = 0; to_rank < size && !(p == part && to_rank == me); ++to_rank) first += p <= part ? rows(r, to_rank, p) : 0;
        for (std::size_t i = 0; i < rows(r, me, part) * n; ++i) expected.push_back(static_cast<T>(value(r, first * n + i)));
      }
    same("exchange", got(to.template as<T>()), expected);
  }
  /// A sum of inexact values: every hop of a ring may round to T: r - 1 roundings of partial sums, each at most Σ|x| (1 + u)^(r-2) u, plus
  /// roundings of the expected value in double. u: half the distance from 1 to the next value.
  void rounding(std::size_t n) {
    const std::size_t size = ranks_->size();
    const auto fraction = [](std::size_t rank, std::size_t i) { return static_cast<T>(1.0 / (1.0 + static_cast<double>((rank * 31 + i * 7) % 97))); };
    std::vector<T> own(n);
    for (std::size_t i = 0; i < n; ++i) own[i] = fraction(ranks_->rank(), i);
    const buffer<Device> values(on_, n * sizeof(T), memory_role::other);
    put(values.template as<T>(), own);
    ranks_->all_reduce(main_, values.template as<T>(), reduction::sum);
    const std::vector<T> found = got(values.template as<T>());
    const double u = unit_roundoff();
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0, growth = 1;
      for (std::size_t r = 0; r < size; ++r) sum += static_cast<double>(fraction(r, i));
      for (std::size_t r = 1; r < size; ++r) growth *= 1 + u;
      const double most = sum * (growth - 1) + sum * static_cast<double>(size) * 0x1p-53;
      const double error = std::abs(static_cast<double>(found[i]) - sum);
      if (error > most) {
        problems_->push_back(concat("all_reduce, rounded, of ", n, " ", dtype_traits<T>::name, ", rank ", ranks_->rank(), ": element ", i, " is ",
                                    static_cast<double>(found[i]), ", must be ", sum, " within ", most, ", a rounding per other rank"));
        return;
      }
    }
  }
  [[nodiscard]] static double unit_roundoff() {
    double u = 0.5;
    while (static_cast<double>(static_cast<T>(1.0 + 2 * u)) > 1.0) u /= 2;  // ends below the spacing; halves are ties to even
    return 2 * u;
  }

  /// Queues several collectives before reading results; each reads its predecessor's output.
  void many_in_order(std::size_t n) {
    const buffer<Device> values(on_, n * sizeof(T), memory_role::other);
    const auto span = values.template as<T>();
    put(span, values_of(ranks_->rank(), n));
    ranks_->all_reduce(main_, span, reduction::largest);
    std::vector<T> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      double most = value(0, i);
      for (std::size_t r = 1; r < ranks_->size(); ++r) most = std::max(most, value(r, i));
      expected[i] = static_cast<T>(most * static_cast<double>(ranks_->size()));
    }
    ranks_->all_reduce(main_, span, reduction::sum);
    ranks_->broadcast(main_, span, ranks_->size() - 1);
    same("several in a row", got(span), expected);
  }
  void seen_by_another_stream(std::size_t n) {
    const buffer<Device> values(on_, n * sizeof(T), memory_role::other);
    const auto span = values.template as<T>();
    put(span, values_of(ranks_->rank(), n));
    ranks_->broadcast(main_, span, 0);
    other_.wait(main_.record());
    std::vector<T> host(n);
    copy_to_host(other_, std::span<T>(host), span);
    other_.synchronize();
    same("seen by another stream", host, values_of(0, n));
    main_.synchronize();
    kept_.clear();
  }

  typename Device::context on_;
  Communicator* ranks_;
  std::vector<std::string>* problems_;
  stream_type main_, other_;
  std::vector<std::vector<T>> kept_;
};

}  // namespace detail

/// Returns problems; empty: passed.
template <class Device, class Communicator>
[[nodiscard]] std::vector<std::string> communicator_conformance(const typename Device::context& on, Communicator& ranks) {
  std::vector<std::string> problems;
  for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    detail::communicator_check<Device, Communicator, float>(on, ranks, problems).all(n);
    detail::communicator_check<Device, Communicator, bf16>(on, ranks, problems).all(n);
    detail::communicator_check<Device, Communicator, double>(on, ranks, problems).all(n);
  }
  return problems;
}

}  // namespace xtrain::testing
