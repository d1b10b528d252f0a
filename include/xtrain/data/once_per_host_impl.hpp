// Definitions of once_per_host.hpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/once_per_host.hpp>
#include <xtrain/data/sentence_dataset.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE void packed_values::append(const void* from, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  bytes_.insert(bytes_.end(), begin, begin + bytes);
}

XTRAIN_INLINE void packed_values::take(void* to, std::size_t bytes) {
  require<comm_error>(bytes <= bytes_.size() - read_, "once_per_host: ranks must be processes of the same program");
  if (bytes > 0) std::memcpy(to, bytes_.data() + read_, bytes);
  read_ += bytes;
}

XTRAIN_INLINE std::uint64_t host_number() {
  std::array<char, 128> text{};
  std::string name;
  const descriptor boot(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ::ssize_t read = boot.valid() ? ::read(boot.get(), text.data(), text.size()) : 0;
  if (read > 0) name.assign(text.data(), static_cast<std::size_t>(read));
  const ::ssize_t linked = ::readlink("/proc/self/ns/pid", text.data(), text.size());
  if (linked > 0) name.append(text.data(), static_cast<std::size_t>(linked));
  if (read <= 0 || linked <= 0)
    name =
        concat("process ", ::getpid(), " of ", std::chrono::system_clock::now().time_since_epoch().count());  // counts as a separate host
  return checksum(name);
}

XTRAIN_INLINE std::vector<std::size_t> ranks_of_this_host(transport& ranks, std::uint32_t channel) {
  const std::uint64_t own = host_number();
  std::vector<std::uint64_t> hosts(ranks.size(), own);
  const auto one = [&](std::size_t rank) { return std::as_writable_bytes(std::span(hosts).subspan(rank, 1)); };
  if (ranks.rank() == 0) {
    for (std::size_t r = 1; r < ranks.size(); ++r) ranks.receive(r, channel, one(r))->wait();
    for (std::size_t r = 1; r < ranks.size(); ++r) ranks.send(r, channel, std::as_bytes(std::span(hosts)))->wait();
  } else {
    ranks.send(0, channel, one(ranks.rank()))->wait();
    ranks.receive(0, channel, std::as_writable_bytes(std::span(hosts)))->wait();
  }
  std::vector<std::size_t> here;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    if (hosts[r] == own) here.push_back(r);
  return here;
}

}  // namespace detail

}  // namespace xtrain
