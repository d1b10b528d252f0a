// Tokenizes data once per host: one rank reads, the host's other ranks map its memory.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/sentence_dataset.hpp>

namespace xtrain {

namespace detail {

/// A dataset's arrays, in unnamed files, and fields, which are copied.
struct dataset_parts {
  template <class Visit>
  static void visit_arrays(dataset& of, Visit&& visit) {
    visit(of.tokens_);
    visit(of.begins_);
    visit(of.labels_);
    visit(of.reference_log_probs_);
    visit(of.token_weights_);
    visit(of.teacher_tokens_);
    visit(of.teacher_log_probs_);
  }
  template <class Visit>
  static void visit_fields(dataset& of, Visit&& visit) {
    visit(of.source_);
    visit(of.layout_);
    visit(of.when_too_long);
    visit(of.group_size);
    visit(of.targets_);
    visit(of.finished_);
    visit(of.largest_);
    visit(of.top_k_);
    visit(of.reference_seq_length_);
    visit(of.teacher_seq_length_);
  }
  template <class Visit>
  static void visit_arrays(sentence_dataset& of, Visit&& visit) {
    visit(of.tokens_);
    visit(of.begins_);
    visit(of.seconds_);
    visit(of.labels_);
  }
  template <class Visit>
  static void visit_fields(sentence_dataset& of, Visit&& visit) {
    visit(of.source_);
    visit(of.masking);
    visit(of.labels);
    visit(of.longest_);
    visit(of.largest_);
    visit(of.has_labels_);
  }
  /// A dataset of mapped files cannot be mapped: every rank maps the files.
  static bool can_be_mapped(const dataset& of) { return of.samples_ == nullptr; }
  static bool can_be_mapped(const sentence_dataset&) { return true; }
  static dataset empty(const dataset*) { return dataset("", sequence_layout::stream); }
  static sentence_dataset empty(const sentence_dataset*) { return sentence_dataset(""); }
};

/// An array in another process: process, file there, identity of the file. Empty: none.
struct shared_array {
  std::int64_t process = 0, descriptor = 0;
  std::uint64_t device = 0, inode = 0, count = 0;
};

/// Values in sequence, in this program's layout.
class packed_values {
 public:
  packed_values() = default;
  explicit packed_values(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      put(value.size());
      append(value.data(), value.size());
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      put(value.size());
      for (const std::string& one : value) put(one);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      append(&value, sizeof(T));
    }
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value.resize(get<std::size_t>());
      take(value.data(), value.size());
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      value.resize(get<std::size_t>());
      for (std::string& one : value) get(one);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      take(&value, sizeof(T));
    }
  }
  template <class T>
  [[nodiscard]] T get() {
    T value{};
    get(value);
    return value;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void append(const void* from, std::size_t bytes);
  void take(void* to, std::size_t bytes);

  std::vector<std::byte> bytes_;
  std::size_t read_ = 0;
};

/// Equal for processes that see each other's files in /proc, and only for them.
[[nodiscard]] std::uint64_t host_number();

/// Ranks of this host, in order.
[[nodiscard]] std::vector<std::size_t> ranks_of_this_host(transport& ranks, std::uint32_t channel);

/// From a host's first rank to the others: not ready, and the time of the next message; or ready, and the description's bytes.
struct host_notice {
  std::uint64_t ready = 0, bytes = 0, milliseconds = 0;
};

template <class Data>
[[nodiscard]] packed_values pack(Data& data) {
  packed_values all;
  all.put(static_cast<std::uint8_t>(dataset_parts::can_be_mapped(data) ? 1 : 0));
  if (!dataset_parts::can_be_mapped(data)) return all;
  dataset_parts::visit_arrays(data, [&](auto& array) {
    if (array.size() == 0) return all.put(shared_array{});
    array.move_to_file();
    struct ::stat status {};
    require<file_error>(array.in_file() && ::fstat(array.file(), &status) == 0, "once_per_host: tokens must be in a file; the system says: ", reason(errno));
    all.put(shared_array{::getpid(), array.file(), status.st_dev, status.st_ino, array.size()});
  });
  dataset_parts::visit_fields(data, [&](const auto& field) { all.put(field); });
  return all;
}
/// None: the other process's files cannot be opened, or there is nothing to map.
template <class Data>
[[nodiscard]] std::optional<Data> unpack(packed_values from) {
  if (from.get<std::uint8_t>() == 0) return std::nullopt;
  std::optional<Data> data(dataset_parts::empty(static_cast<const Data*>(nullptr)));
  bool all_there = true;
  dataset_parts::visit_arrays(*data, [&](auto& array) {
    const auto where = from.get<shared_array>();
    if (where.count == 0) return;
    descriptor file(::open(concat("/proc/", where.process, "/fd/", where.descriptor).c_str(), O_RDONLY | O_CLOEXEC));
    struct ::stat status {};
    const bool same = file.valid() && ::fstat(file.get(), &status) == 0 && status.st_dev == where.device && status.st_ino == where.inode;
    all_there = all_there && same && array.map(std::move(file), where.count);
  });
  if (!all_there) return std::nullopt;
  dataset_parts::visit_fields(*data, [&](auto& field) { from.get(field); });
  return data;
}

}  // namespace detail

/// The dataset or sentence_dataset of make(). All ranks call this, threads or processes; per host only the first rank calls make(), and others map its
/// tokens from an unnamed file that ends with its last process. A rank that may not open the first rank's files (other user or container) calls make(), and
/// so do all ranks for a gpt_dataset, which maps files anyway.
///   beat    the first rank's heartbeat interval; must be shorter than the transport's timeout
///   throws  errors of make() on ranks that call it; comm_error on waiting ranks
template <class Make>
[[nodiscard]] auto once_per_host(transport& ranks, Make&& make, std::chrono::milliseconds beat = std::chrono::seconds(1)) {
  using data = std::decay_t<std::invoke_result_t<Make&>>;
  constexpr std::uint32_t channel = 33;  // lower channels: strategies, checkpoints
  if (ranks.size() == 1) return data(make());
  const std::vector<std::size_t> here = detail::ranks_of_this_host(ranks, channel);
  const std::span<const std::size_t> others = std::span(here).subspan(1);
  const auto writable = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
  if (ranks.rank() != here.front()) {
    detail::host_notice notice;
    while (notice.ready == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(notice.milliseconds));  // a rank waiting for a message would poll
      ranks.receive(here.front(), channel, writable(notice))->wait();
    }
    std::vector<std::byte> packed(notice.bytes);
    ranks.receive(here.front(), channel, packed)->wait();
    std::optional<data> mapped = detail::unpack<data>(detail::packed_values(std::move(packed)));
    std::uint64_t taken = 1;
    ranks.send(here.front(), channel, std::as_bytes(std::span(&taken, 1)))->wait();
    if (mapped) return std::move(*mapped);
    return data(make());
  }
  if (others.empty()) return data(make());
  const auto tell = [&](std::span<const std::byte> bytes) {
    std::vector<pending_message> all;
    for (const std::size_t other : others) all.push_back(ranks.send(other, channel, bytes));
    for (const pending_message& one : all) one->wait();
  };
  const auto began = std::chrono::steady_clock::now();
  auto work = std::async(std::launch::async, [&] { return data(make()); });
  std::chrono::milliseconds silence(1);
  while (work.wait_for(silence) != std::future_status::ready) {
    silence = std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began) / 8,
                         std::chrono::milliseconds(1), beat);
    const detail::host_notice not_yet{.milliseconds = static_cast<std::uint64_t>(silence.count())};
    tell(std::as_bytes(std::span(&not_yet, 1)));
  }
  data made = work.get();
  const detail::packed_values packed = detail::pack(made);
  const detail::host_notice ready{.ready = 1, .bytes = packed.bytes().size()};
  tell(std::as_bytes(std::span(&ready, 1)));
  tell(packed.bytes());
  for (const std::size_t other : others) {  // they have opened the files: this rank may end
    std::uint64_t taken = 0;
    ranks.receive(other, channel, writable(taken))->wait();
  }
  return made;
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/once_per_host_impl.hpp>
#endif
