#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

XTRAIN_INLINE std::uint64_t checksum(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t p1 = 11400714785074694791U, p2 = 14029467366897019727U, p3 = 1609587929392839161U, p4 = 9650029242287828579U,
                          p5 = 2870177450012600261U;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  const auto take = [&]<class Word>(Word word) {
    std::memcpy(&word, at, sizeof(word));
    at += sizeof(word);
    left -= sizeof(word);
    return word;
  };
  const auto round = [](std::uint64_t sum, std::uint64_t word) { return std::rotl(sum + word * p2, 31) * p1; };
  std::uint64_t hash = p5;
  if (left >= 32) {
    std::array<std::uint64_t, 4> lanes{p1 + p2, p2, 0, 0 - p1};
    while (left >= 32)
      for (std::uint64_t& lane : lanes) lane = round(lane, take(std::uint64_t{}));
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * p1 + p4;
  }
  hash += bytes.size();
  while (left >= 8) hash = std::rotl(hash ^ round(0, take(std::uint64_t{})), 27) * p1 + p4;
  if (left >= 4) hash = std::rotl(hash ^ (take(std::uint32_t{}) * p1), 23) * p2 + p3;
  while (left > 0) hash = std::rotl(hash ^ (take(std::uint8_t{}) * p5), 11) * p1;
  hash = (hash ^ (hash >> 33)) * p2;
  hash = (hash ^ (hash >> 29)) * p3;
  return hash ^ (hash >> 32);
}

XTRAIN_INLINE std::string checksum_text(std::string_view bytes) {
  const std::uint64_t hash = checksum(bytes);
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 15];
  return text;
}

XTRAIN_INLINE std::vector<std::uint64_t> sampled_checksums(std::string_view bytes, std::size_t unit) {
  constexpr std::size_t blocks = 64, block_bytes = 4096;
  const std::size_t size = bytes.size() / unit, block = block_bytes / unit, count = std::min(blocks, (size + block - 1) / block);
  std::vector<std::uint64_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(checksum(bytes.substr((count > 1 ? (size - block) * i / (count - 1) : 0) * unit, block * unit)));
  return all;
}

}  // namespace xtrain
