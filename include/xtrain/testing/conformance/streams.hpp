// Conformance cases: a stream's copies, fills and events.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain::testing::detail {

/// Every check calls report(problem) once per case; empty: passed.
template <device Device>
class stream_checks {
 public:
  explicit stream_checks(const typename Device::context& context) : context_(context), stream_(context) {}

  /// From the host, within the device, and back: odd sizes and misaligned starts, without a wait in between.
  template <class Report>
  void copies(Report&& report) {
    for (const std::size_t bytes : sizes)
      for (const std::size_t first : starts)
        for (const std::size_t second : starts) {
          const std::size_t room = bytes + 2 * edge;
          const buffer<Device> a(context_, room, memory_role::other), b(context_, room, memory_role::other);
          const std::vector<std::byte> marks(room, mark), other_marks(room, other_mark);
          stream_.copy_from_host(at(a, 0), marks.data(), room);
          stream_.copy_from_host(at(b, 0), other_marks.data(), room);
          const std::vector<std::byte> host = pattern(bytes + second, 1);
          stream_.copy_from_host(at(a, first), host.data() + second, bytes);
          stream_.copy_within(at(b, second), at(a, first), bytes);
          std::vector<std::byte> back(bytes + first + edge, mark), all_a(room), all_b(room);
          stream_.copy_to_host(back.data() + first, at(b, second), bytes);
          stream_.copy_to_host(all_a.data(), at(a, 0), room);
          stream_.copy_to_host(all_b.data(), at(b, 0), room);
          stream_.synchronize();
          const std::byte* const sent = host.data() + second;
          std::string problem = compared(all_a, sent, bytes, first, "copy_from_host");
          if (problem.empty()) problem = compared(all_b, sent, bytes, second, "copy_within", other_mark);
          if (problem.empty()) problem = compared(back, sent, bytes, first, "copy_to_host");
          report(problem);
        }
  }

  template <class Report>
  void fills(Report&& report) {
    for (const std::size_t bytes : sizes)
      for (const std::size_t first : starts) {
        const std::size_t room = bytes + 2 * edge;
        const buffer<Device> a(context_, room, memory_role::other);
        const std::vector<std::byte> marks(room, mark), zeros(bytes);
        stream_.copy_from_host(at(a, 0), marks.data(), room);
        stream_.fill_zero(at(a, first), bytes);
        std::vector<std::byte> all(room);
        stream_.copy_to_host(all.data(), at(a, 0), room);
        stream_.synchronize();
        report(compared(all, zeros.data(), bytes, first, "fill_zero"));
      }
  }

  template <class Report>
  void events(Report&& report) {
    constexpr std::size_t bytes = 700000;
    const std::vector<std::byte> one = pattern(bytes, 1), two = pattern(bytes, 2), zeros(bytes);
    const buffer<Device> x(context_, bytes, memory_role::other), y(context_, bytes, memory_role::other);
    std::vector<std::byte> got(bytes), later(bytes);
    const auto result = [&](const std::vector<std::byte>& is, const std::vector<std::byte>& should, const char* what) {
      report(is == should ? std::string() : concat(what, ": the other stream's work, and it alone, must be seen; byte ",
                                                   std::mismatch(is.begin(), is.end(), should.begin()).first - is.begin(), " is not"));
    };
    {  // a second stream reads the first stream's output; then the first overwrites it
      typename Device::stream other(context_);
      for (int round = 0; round < 3; ++round) {
        const auto& values = round % 2 == 0 ? one : two;
        stream_.copy_from_host(at(x, 0), values.data(), bytes);
        const auto written = stream_.record();
        auto copy_of_event = written;
        other.wait(copy_of_event);
        other.copy_within(at(y, 0), at(x, 0), bytes);
        const auto read = other.record();
        stream_.wait(read);
        stream_.fill_zero(at(x, 0), bytes);
        other.copy_to_host(got.data(), at(y, 0), bytes);
        stream_.copy_to_host(later.data(), at(x, 0), bytes);
        other.synchronize();
        stream_.synchronize();
        result(got, values, "wait, read after write");
        result(later, zeros, "wait, write after read");
      }
    }
    {  // the host waits for an event: earlier work is done; later work does no harm
      stream_.copy_from_host(at(x, 0), one.data(), bytes);
      stream_.copy_to_host(got.data(), at(x, 0), bytes);
      const auto event = stream_.record();
      stream_.fill_zero(at(x, 0), bytes);
      event.synchronize();
      result(got, one, "synchronize of an event");
      event.synchronize();  // again
      typename Device::stream other(context_);
      other.wait(event);  // of the past, twice
      other.wait(event);
      other.copy_from_host(at(y, 0), two.data(), bytes);
      other.copy_to_host(got.data(), at(y, 0), bytes);
      other.record().synchronize();
      result(got, two, "wait for a past event");
      const auto own = stream_.record();
      stream_.wait(own);  // of the stream itself
      stream_.copy_to_host(later.data(), at(x, 0), bytes);
      stream_.synchronize();
      result(later, zeros, "wait for an event of its own");
      stream_.record().synchronize();  // of a stream without work
      report({});
    }
  }

 private:
  static constexpr std::size_t edge = 64;  // bytes around the copy that must not change
  static constexpr std::byte mark{0xA5}, other_mark{0x5B};
  static constexpr std::array<std::size_t, 8> sizes{0, 1, 3, 15, 64, 257, 4099, 700001};
  static constexpr std::array<std::size_t, 4> starts{0, 1, 4, 23};

  static std::byte* at(const buffer<Device>& memory, std::size_t offset) { return memory.template as<std::byte>().raw() + offset; }
  static std::vector<std::byte> pattern(std::size_t bytes, std::size_t seed) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>((i * 2654435761U + seed * 40503U) >> 8);
    return all;
  }
  /// Whether `all` has the bytes at `first`, with marks around them.
  static std::string compared(const std::vector<std::byte>& all, const std::byte* expected, std::size_t bytes, std::size_t first, const char* what,
                              std::byte outside = mark) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool inside = i >= first && i < first + bytes;
      if (all[i] == (inside ? expected[i - first] : outside)) continue;
      return concat(what, " of ", bytes, " bytes to offset ", first, ": byte ", i, inside ? " is wrong" : ", outside of it, was written");
    }
    return {};
  }

  typename Device::context context_;
  typename Device::stream stream_;
};

}  // namespace xtrain::testing::detail
